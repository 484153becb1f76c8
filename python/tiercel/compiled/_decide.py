"""What becomes of every saved value of a program: it stays, it moves, or it is made again.

Tiercel's joint planner decides, on the program as the compiler cuts it without us. What is to be made again is marked and the program
is cut again, which may change more than was asked for; so what moves is decided on the program as it then is. Where that
does not fit, the first decision is taken again with less memory.
"""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass, field
from typing import Callable, Optional

import torch.fx as fx

from .. import _tiercel
from ._program import Program, Value

#: Shares of the memory that is there with which is decided what is made again, one after the other.
TIGHTER = (1.0, 0.92, 0.82, 0.7, 0.55, 0.4, 0.25, 0.1)
#: The same for what moves: where nothing fits, the least memory that does is looked for.
WIDER = (1.0, 1.05, 1.12, 1.25, 1.5, 2.0, 3.0)
#: Changes that the search tries; enough of them, and the same program always gets the same plan.
ROUNDS = 4000

Cut = tuple[fx.GraphModule, fx.GraphModule]


@dataclass
class Move:
    """A value that leaves and comes back: positions of nodes, in a row over both graphs, at which the four operators stand.

    ``leave`` and ``release`` stand behind their node, ``fetch`` and ``arrive`` before it.
    """

    value: Value
    leave: int
    release: int
    fetch: int
    arrive: int


@dataclass
class Decision:
    """What was decided, and what is expected of it."""

    program: Program
    cut: Cut
    moves: list[Move] = field(default_factory=list)
    again: frozenset[str] = frozenset()
    room: int = 0
    seconds: float = 0.0
    all_fast: float = 0.0
    bound: float = 0.0
    #: The bytes at the most: with everything kept, and as planned without what must stay.
    peak: int = 0
    #: The bytes that its forward pass keeps for its backward pass and that may leave; the seconds of the two.
    kept: int = 0
    parts: tuple[float, ...] = (0.0, 0.0)
    #: The memory that the plan is for, as a share of the room; more than 1 where nothing fits.
    over: float = 1.0

    @property
    def fits(self) -> bool:
        """Whether the program keeps to its room."""
        return self.over <= 1.0


def decide(cut: Callable[[frozenset[str]], Cut], look: Callable[[Cut], Program], machine: str, room: int, slow: int,
           seconds: float) -> Decision:
    """Decides for a program. ``cut`` cuts it in two, with these nodes made again; ``look`` shows it to the planner; ``room`` is the
    memory for what it makes."""
    plain = cut(frozenset())
    program = look(plain)
    recording, fixed = program.recording()
    whole = _tiercel.schedule(recording, machine, [1 << 50, slow], False, False, 0, 1.0)[0]
    peak = whole[3] + fixed
    if peak <= room:
        return Decision(program, plain, room=room, seconds=whole[0] / 1e9, all_fast=whole[1] / 1e9, bound=whole[2] / 1e9, peak=peak)
    best: Optional[Decision] = None
    for share in (*TIGHTER, *WIDER[1:]):
        if share > 1.0 and best is not None:
            break
        again = _what_again(program, recording, machine, int((room - fixed) * share), slow, seconds)
        if again is None:
            continue
        if os.environ.get("TIERCEL_COMPILED_VERBOSE"):
            print(f"tiercel: with {share:.2f} of the room {len(again)} nodes are made again", file=sys.stderr, flush=True)
        found = _moves(cut(again) if again else plain, look, machine, room, slow, seconds)
        found.again, found.peak, found.all_fast = again, peak, whole[1] / 1e9
        if best is None or found.over < best.over:
            best = found
        if found.fits:
            break
    return best or Decision(program, plain, room=room, peak=peak, over=math.inf)


def _what_again(program: Program, recording: object, machine: str, room: int, slow: int, seconds: float) -> Optional[frozenset[str]]:
    """The nodes that are best made again with so much memory, by name; `None` where there is no plan."""
    if room <= 0:
        return None
    try:
        _, acts = _tiercel.schedule(recording, machine, [room, slow], True, True, ROUNDS, seconds)
    except RuntimeError:
        return None
    again: set[str] = set()
    for step, _, what, kernel in acts:
        if what == "recompute" and program.kernels[step].phase == 1 and program.kernels[kernel].phase == 0:
            made = program.kernels[kernel]
            again.update(part.name for part in made.parts)
            again.update(node.name for value in made.writes for node in value.nodes[0])
    return frozenset(again)


def _moves(cut: Cut, look: Callable[[Cut], Program], machine: str, room: int, slow: int, seconds: float) -> Decision:
    """What moves in a program that is cut already."""
    program = look(cut)
    recording, fixed = program.recording()
    for more in WIDER:
        try:
            figures, acts = _tiercel.schedule(recording, machine, [max(1, int((room - fixed) * more)), slow], True, False, ROUNDS, seconds)
            break
        except RuntimeError:
            continue
    else:
        return Decision(program, cut, room=room, over=math.inf)
    decision = Decision(program, cut, room=room, seconds=figures[0] / 1e9, bound=figures[2] / 1e9, over=more)
    opened: dict[int, list[int]] = {}
    for step, _, what, slot in acts:
        if what in ("evict", "fetch"):
            if what == "evict":
                opened[slot] = []
            if slot in opened:
                opened[slot].append(step)
        elif what == "wait" and slot in opened:
            opened[slot].append(step)
            if len(opened[slot]) == 4:
                move = _place(program, program.known[slot], opened.pop(slot))
                if move is not None:
                    decision.moves.append(move)
    return decision


def _place(program: Program, value: Value, steps: list[int]) -> Optional[Move]:
    """Where a move's operators stand: as planned, but between two uses of the value as the graphs have them."""
    leave, release, fetch, arrive = (program.kernels[step].at for step in steps)
    if steps[1] > 0:
        release = program.kernels[steps[1] - 1].at  # it is waited for before that kernel, behind the one before
    uses = sorted({value.made, *value.users})
    later = [at for at in uses if at > leave and at > release]
    before = max((at for at in uses if not later or at < later[0]), default=value.made)
    if not later:
        return None
    following = later[0]
    release = max(release, before)
    arrive = min(arrive, following)
    fetch = min(max(fetch, release), arrive)
    if not before <= leave <= release < arrive:
        leave = min(max(leave, before), release)
    comes_late = arrive > program.where[program.graphs[0].output_node()]
    return Move(value, leave, release, fetch, arrive) if comes_late and release < arrive else None

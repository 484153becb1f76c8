"""Programs in a row: what one keeps for its backward pass leaves while others run, where all together would not fit.

A model that is compiled block by block, or whose compilation is interrupted, runs as several programs, of which the compiler sees one at
a time. What each keeps is known when it has run. While nothing else is known, memory is made when a program needs it: what was
kept first leaves first, because it is wanted last. When a step has been seen, Tiercel's planner decides which programs' values leave
and when they come back, and from then on that is done beside the programs that run.
"""

from __future__ import annotations

import weakref
from typing import Any, Optional, Sequence

import torch

from .. import _tiercel
from .._devices import bytes_of
from ._decide import ROUNDS, Decision
from ._room import Room
from ._store import GRAIN, Store, reach


class Kept:
    """What one run of a program keeps for its backward pass."""

    def __init__(self, program: int, storages: list[torch.UntypedStorage], index: int) -> None:
        self.program, self.index = program, index
        self.refs = [weakref.ref(s) for s in storages]
        self.nbytes = sum(bytes_of(s) for s in storages)
        #: 0 in place, 1 on its way out, 2 away, 3 on its way back.
        self.state = 0

    def storages(self) -> list[torch.UntypedStorage]:
        """Those that are alive."""
        return [s for s in (ref() for ref in self.refs) if s is not None]


class Line:
    """The runs of one step, and what is kept between them."""

    def __init__(self, room: Room, machine: str, slow: int, least: int, store: Any) -> None:
        self.room, self.machine, self.slow, self.least = room, machine, slow, least
        self._store_of = store
        self.decisions: list[Decision] = []
        self.kept: list[Kept] = []
        self.of: dict[int, Kept] = {}
        self.given: dict[int, int] = {}
        #: The runs so far: the program, whether backward, and which run of a step's forward passes it belongs to.
        self.runs: list[tuple[int, bool, int]] = []
        self.sizes: list[int] = []
        self.known: Optional[list[tuple[int, bool, int]]] = None
        self.acts: dict[tuple[int, bool], list[tuple[str, int]]] = {}
        self.planned: Optional[tuple[float, float]] = None
        self.evicted = 0

    @property
    def store(self) -> Store:
        """Where values go."""
        return self._store_of()

    # --- around a run ---

    def keep(self, values: Sequence[torch.Tensor], program: int) -> None:
        """A forward pass is about to end and keeps these values."""
        found: dict[int, torch.UntypedStorage] = {}
        for value in values:
            storage = value.untyped_storage()
            nbytes = bytes_of(storage)
            if self.least <= nbytes <= reach(value) + GRAIN and storage.resizable():
                found[storage._cdata] = storage
        index = sum(1 for _, back, _ in self.runs if not back)
        kept = Kept(program, list(found.values()), index)
        self.kept.append(kept)
        self.of.update((key, kept) for key in found)
        self.runs.append((program, False, index))
        self.sizes.append(kept.nbytes)

    def before(self, inputs: Sequence[Any], program: Optional[int]) -> Optional[Kept]:
        """A program is about to run: makes room, and brings what it is given back. Gives what its forward pass kept, if it is a
        backward pass."""
        kept = None
        for value in inputs:
            if isinstance(value, torch.Tensor):
                key = value.untyped_storage()._cdata
                if isinstance(value, torch.nn.Parameter):
                    self.given[key] = bytes_of(value.untyped_storage())
                elif kept is None:
                    kept = self.of.get(key)
        if kept is None and not self._alive():
            self._begin_step()
        self._do(len(self.runs), False)
        if kept is not None:
            for storage in kept.storages():
                self.of.pop(storage._cdata, None)
            if kept in self.kept:
                self.kept.remove(kept)
            program = kept.program
        need = 0 if program is None else self._need(program, kept is not None)
        if kept is not None and kept.state == 2:
            need += kept.nbytes - sum(map(bytes_of, kept.storages()))
        self._make_room(need)
        if kept is not None:
            self._back(kept)
        return kept

    def after(self, kept: Optional[Kept]) -> None:
        """It has run."""
        if kept is not None:
            self.runs.append((kept.program, True, kept.index))
        if self.runs:
            self._do(len(self.runs) - 1, True)

    def _alive(self) -> bool:
        self.kept = [k for k in self.kept if k.storages()]
        return bool(self.kept)

    def _need(self, program: int, back: bool) -> int:
        decision = self.decisions[program]
        return max(0, min(decision.peak, decision.room) - (decision.kept if back else 0))

    # --- memory on demand ---

    def resident(self) -> int:
        """The bytes of kept values that are in fast memory and could leave."""
        return sum(bytes_of(storage) for kept in self.kept for storage in kept.storages())

    def _make_room(self, nbytes: int) -> None:
        """Takes away what was kept first until there is so much memory."""
        if not self.kept:
            return
        short = self.room.used(self.given, self.resident()) + nbytes - self.room.usable()
        for kept in self.kept:
            for storage in kept.storages() if kept.state < 3 else ():
                there = bytes_of(storage)
                if short <= 0:
                    return
                if there:
                    self.store.leave_storages([storage])
                    self.store.release_storages([storage])
                    kept.state = 2
                    self.evicted += there
                    short -= there

    def _back(self, kept: Kept) -> None:
        if kept.state:
            self.store.arrive_storages(kept.storages())
        kept.state = 0

    # --- steps ---

    def _begin_step(self) -> None:
        """Nothing is kept, so a step has ended and another begins."""
        if self.runs and self.runs != self.known:
            self.known = self.runs
            self._plan()
        self.runs, self.sizes = [], []
        self.of.clear()

    def _plan(self) -> None:
        self.acts, self.planned = {}, None
        room = self.room.usable() - self.room.used(self.given, 0)
        if len({run[2] for run in self.runs}) < 2 or room <= 0:
            return
        recording = _tiercel.Recording()
        slots = {index: recording.storage(f"kept {index}", max(1, nbytes), "activation", False) for index, nbytes in enumerate(self.sizes)}
        for program, back, index in self.runs:
            decision = self.decisions[program]
            work = max(0, min(decision.peak, decision.room) - decision.kept)
            slot = [slots[index]]
            recording.operation("program", ("forward", "backward")[back], int(back), slot if back else [], [] if back else slot, work,
                                max(1, int(decision.parts[back] * 1e9)), True)
        try:
            figures, acts = _tiercel.schedule(recording, self.machine, [room, self.slow], True, False, ROUNDS, 20.0)
        except RuntimeError:  # no plan: memory goes on being made when it is needed
            return
        self.planned = (figures[0] / 1e9, figures[1] / 1e9)
        for step, behind, what, slot in acts:
            self.acts.setdefault((step, behind), []).append((what, slot))

    def _do(self, at: int, behind: bool) -> None:
        """What the plan has before or behind a run, as far as the step has been the known one."""
        acts = self.acts.get((at, behind))
        if not acts or self.known is None or self.runs != self.known[: len(self.runs)]:
            return
        by_index = {kept.index: kept for kept in self.kept}
        for what, slot in acts:
            kept = by_index.get(slot)
            if kept is None:
                continue
            if what == "evict" and kept.state == 0:
                self.store.leave_storages(kept.storages())
                kept.state = 1
                self.evicted += kept.nbytes
            elif what == "wait" and kept.state == 1:
                self.store.release_storages(kept.storages())
                kept.state = 2
            elif what == "fetch" and kept.state == 2:
                self.store.fetch_storages(kept.storages())
                kept.state = 3

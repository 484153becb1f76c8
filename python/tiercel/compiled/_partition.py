"""The partitioner that Inductor calls while a limit is in force: it cuts a program as always, and has the planner change the cut.

PyTorch's own partitioner does the cutting, before and after nodes are marked to be made again; so a program that fits is cut
exactly as it is without a limit.
"""

from __future__ import annotations

import copy
import sys
import traceback
import uuid
from typing import Any, Optional, Sequence

import torch
import torch.fx as fx
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch.utils.checkpoint import CheckpointPolicy

from .. import _tiercel
from ._costs import Rates, is_view
from ._decide import Cut, Decision, decide
from ._insert import insert, keep
from ._line import Line
from ._program import Program
from ._room import Room


class Partitioner(CustomPartitionerFn):
    """Cuts programs for one session."""

    def __init__(self, room: Room, line: Line, machine: str, slow: int, least: int, seconds: float, verbose: bool) -> None:
        self.room, self.slow, self.least, self.seconds, self.verbose = room, slow, least, seconds, verbose
        self.machine = machine
        self.rates = Rates(self.machine)
        self.line = line
        self.decisions = line.decisions
        self.moves = 0
        self.refused: Optional[str] = None
        self.identity = f"tiercel {uuid.uuid4()}"

    def __call__(self, gm: fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any) -> Cut:
        def cut(again: frozenset[str]) -> Cut:
            return _cut(gm, joint_inputs, again, kwargs)

        def look(cut: Cut) -> Program:
            _raise_views(cut[0].graph, kwargs["num_fwd_outputs"])
            return Program(*cut, kwargs["num_fwd_outputs"], self.rates, self.least)

        try:
            room = self.room.for_program(gm, kwargs.get("static_lifetime_input_indices") or (), self.line)
            decision = decide(cut, look, self.machine, room, self.slow, self.seconds)
            self.moves += insert(decision, self.moves)
            keep(decision, len(self.decisions))
            for module in decision.cut:
                module.graph.lint()
                module.recompile()
        except Exception as error:  # a program that cannot be planned for: it is cut as without a limit
            self.refused = f"{type(error).__name__}: {error}"[:300]
            if self.verbose:
                traceback.print_exc()
            return cut(frozenset())
        self.decisions.append(decision)
        if self.verbose:
            print(self.describe(decision), file=sys.stderr, flush=True)
        return decision.cut

    def uuid(self) -> Any:
        # What is decided depends on more than the program, so nothing that was compiled for another session may be taken for it.
        return self.identity

    def __deepcopy__(self, memo: Any) -> "Partitioner":
        return self  # Inductor copies its settings to name what it compiles; this one stays what it is

    def __reduce__(self) -> Any:
        return str, (self.identity,)

    @staticmethod
    def describe(decision: Decision) -> str:
        """A decision in words."""
        show = _tiercel.show_bytes
        if decision.peak <= decision.room:
            return f"tiercel: compiled: {show(decision.peak)} of {show(decision.room)} are wanted; all is kept"
        moved = sum(move.value.nbytes for move in decision.moves)
        ratio = decision.seconds / max(decision.all_fast, 1e-12)
        fits = "" if decision.fits else "; NO PLAN FITS"
        return (f"tiercel: compiled: {show(decision.peak)} wanted, {show(decision.room)} there: {len(decision.moves)} values ({show(moved)}) move, "
                f"{len(decision.again)} nodes are made again; predicted {ratio:.3f}x{fits}")


def _cut(gm: fx.GraphModule, joint_inputs: Sequence[object], again: frozenset[str], kwargs: dict) -> Cut:
    """The program cut by PyTorch's own partitioner, with these nodes made again in the backward pass."""
    module = fx._lazy_graph_module._make_graph_module(gm, copy.deepcopy(gm.graph))
    module.meta = dict(gm.meta)
    if again:
        for node in module.graph.nodes:
            if node.name in again and node.op == "call_function":
                node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
    return min_cut_rematerialization_partition(module, joint_inputs, **kwargs)


def _raise_views(forward: fx.Graph, outputs: int) -> None:
    """Puts views that are saved right behind what they are views of, so that they can be named from there on."""
    for node in forward.output_node().args[0][outputs:]:
        chain: list[fx.Node] = []
        while isinstance(node, fx.Node) and is_view(node):
            chain.append(node)
            node = node.args[0]
        for view in reversed(chain):
            if node.op != "placeholder" and view.all_input_nodes == [node]:
                node.append(view)
            node = view

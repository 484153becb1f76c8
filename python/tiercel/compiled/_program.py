"""A compiled program as the planner sees it: the kernels that the compiler will make of its two graphs, and the values in memory.

Forward and backward are one sequence. A value is a stretch of memory: all views of it are one value, and what is saved for the
backward pass is the same value in both graphs. Parameters, buffers and inputs are there all the time and no part of it.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.fx as fx

from .._tiercel import Recording
from . import _costs as costs


#: Inductor puts an elementwise result that is used more than once into memory where it reads more than this.
READS = 4
#: What others are expected to need between the two graphs, for each byte of what the forward graph gives out.
OUTSIDE = 2


class Value:
    """A stretch of memory that kernels make and use."""

    def __init__(self, name: str, nbytes: int, made: int) -> None:
        self.name, self.nbytes = name, nbytes
        #: The position of the node that makes it, and of those that use it or a view of it: of all nodes of both graphs in a row.
        self.made = made
        self.users: list[int] = []
        #: The nodes that stand for it in the forward and in the backward graph.
        self.nodes: tuple[list[fx.Node], list[fx.Node]] = ([], [])
        self.saved = False
        #: Whether somebody else looks at it: it may not be taken away.
        self.shown = False
        self.slot = -1


class Kernel:
    """What the compiler makes of one node and of those that vanish in it."""

    def __init__(self, node: Optional[fx.Node], at: int, phase: int) -> None:
        self.node, self.at, self.phase = node, at, phase
        self.reads: list[Value] = []
        self.writes: list[Value] = []
        self.parts: list[fx.Node] = []
        self.once = False
        self.seconds = 0.0
        #: What it uses that is there all the time, and memory that others need while it runs.
        self.given: list[fx.Node] = []
        self.outside = 0


class Program:
    """The two graphs of a compiled program."""

    def __init__(self, forward: fx.GraphModule, backward: fx.GraphModule, outputs: int, rates: costs.Rates, least: int) -> None:
        self.graphs = (forward.graph, backward.graph)
        self.rates, self.least = rates, least
        self.nodes: list[fx.Node] = [node for graph in self.graphs for node in graph.nodes]
        self.where = {node: at for at, node in enumerate(self.nodes)}
        self.values: list[Value] = []
        self.kernels: list[Kernel] = []
        self._value: dict[fx.Node, Value] = {}
        #: What a node reads where it is used: values, nodes that vanish in its users, and things that are there all the time.
        self._sources: dict[fx.Node, tuple[list[Value], list[fx.Node], list[fx.Node]]] = {}
        self._saved: dict[str, list[Value]] = {}
        self._walk(0, outputs)
        self.turn = len(self.kernels)
        self._end(0, outputs)
        self._walk(1, 0)
        self._end(1, 0)
        self._count_gradients()

    # --- values and kernels ---

    def _walk(self, phase: int, outputs: int) -> None:
        graph = self.graphs[phase]
        results = [x for x in graph.output_node().args[0] if isinstance(x, fx.Node)]
        kept = {self._base(x) for x in results}
        for node in graph.nodes:
            if node.op == "placeholder":
                self._given(node, phase)
            elif node.op == "call_function":
                self._call(node, phase, kept)
        if phase == 0:
            every = list(graph.output_node().args[0])
            for node in every[outputs:]:
                self._save(node)
            for node in every[:outputs]:
                value = self._value.get(self._base(node)) if isinstance(node, fx.Node) else None
                if value is not None:
                    value.shown = True

    def _base(self, node: fx.Node) -> fx.Node:
        while costs.is_view(node):
            node = node.args[0] if isinstance(node.args[0], fx.Node) else node.all_input_nodes[0]
        return node

    def _given(self, node: fx.Node, phase: int) -> None:
        for value in self._saved.get(node.name, ()) if phase == 1 else ():
            self._value[node] = value
            value.nodes[1].append(node)
        static = self._value.get(node) is None
        self._sources[node] = ([] if static else [self._value[node]], [], [node] if static else [])

    def _save(self, node: Any) -> None:
        """A result of the forward graph that the backward graph gets."""
        value = self._value.get(self._base(node)) if isinstance(node, fx.Node) and costs.tensor_of(node) is not None else None
        if value is not None:
            value.saved = True
            if node not in value.nodes[0]:
                value.nodes[0].append(node)
            self._saved.setdefault(node.name, []).append(value)

    def _call(self, node: fx.Node, phase: int, kept: set[fx.Node]) -> None:
        at = self.where[node]
        for operand in node.all_input_nodes:
            value = self._value.get(self._base(operand))
            # In the backward graph a view counts, too: what is behind it must find the value in place.
            if value is not None and (phase == 1 or not costs.is_view(node)):
                value.users.append(at)
        if costs.is_view(node):
            self._sources[node] = self._sources.get(self._base(node), ([], [], []))
            return
        if costs.is_part(node):
            self._part(node, phase)
            return
        values: list[Value] = []
        parts: list[fx.Node] = [node]
        outside: list[fx.Node] = []
        for operand in node.all_input_nodes:
            found, vanished, given = self._sources.get(operand, ([], [], []))
            values.extend(v for v in found if v not in values)
            parts.extend(p for p in vanished if p not in parts)
            outside.extend(g for g in given if g not in outside)
        if self._vanishes(node, kept, len(values) + len(outside)):
            self._sources[node] = (values, parts, outside)
            return
        kernel = Kernel(node, at, phase)
        kernel.reads, kernel.parts, kernel.given = values, parts, outside
        kernel.once = any(costs.is_once(part) for part in parts)
        made = costs.bytes_of(node)
        if costs.tensor_of(node) is not None:
            kernel.writes.append(self._new(node, node.name, made, at, phase))
        else:
            made = sum(costs.bytes_of(user) for user in node.users)
        before = self.kernels[-1] if self.kernels else None
        # What the kernel before has just made, and may be fused with this one, is not read again.
        fused = before is not None and before.node is not None and not costs.is_call(node) and not costs.is_call(before.node)
        read = sum(v.nbytes for v in values if not (fused and v in before.writes))
        kernel.seconds = self.rates.seconds(node, read + made + sum(map(costs.bytes_of, outside)))
        self.kernels.append(kernel)
        self._sources[node] = (list(kernel.writes), [], [])

    def _part(self, node: fx.Node, phase: int) -> None:
        """One of several results of a kernel."""
        kernel = next((k for k in reversed(self.kernels) if k.node is node.args[0]), None)
        if costs.tensor_of(node) is None or kernel is None:
            self._sources[node] = self._sources.get(node.args[0], ([], [], []))
            return
        value = self._new(node, node.name, costs.bytes_of(node), self.where[node], phase)
        kernel.writes.append(value)
        kernel.at = max(kernel.at, self.where[node])
        self._sources[node] = ([value], [], [])

    def _new(self, node: fx.Node, name: str, nbytes: int, at: int, phase: int) -> Value:
        value = Value(name, nbytes, at)
        value.nodes[phase].append(node)
        self._value[node] = value
        self.values.append(value)
        return value

    def _vanishes(self, node: fx.Node, kept: set[fx.Node], reads: int) -> bool:
        if node in kept or not costs.is_elementwise(node) or (reads > READS and len(node.users) > 1):
            return False
        open_, seen = list(node.users), set()
        while open_:
            user = open_.pop()
            if user in seen:
                continue
            seen.add(user)
            if costs.is_view(user):
                open_.extend(user.users)
            elif costs.is_call(user) or user.op == "output":
                return False
        return True

    def _end(self, phase: int, outputs: int) -> None:
        """The end of a graph: what it gives to somebody is there."""
        kernel = Kernel(None, self.where[self.graphs[phase].output_node()], phase)
        kernel.once = True
        given = self.graphs[phase].output_node().args[0]
        for node in given[:outputs] if phase == 0 else given:
            value = self._value.get(self._base(node)) if isinstance(node, fx.Node) else None
            if value is not None and value not in kernel.reads:
                kernel.reads.append(value)
        if phase == 0:
            # Between the two graphs others compute with what this one gives out, and come back with its gradients.
            kernel.outside = OUTSIDE * sum(value.nbytes for value in kernel.reads)
        self.kernels.append(kernel)

    def _count_gradients(self) -> None:
        """The gradients that the backward graph is given are there until it has used them for the last time."""
        last: dict[fx.Node, int] = {}
        for at, kernel in enumerate(self.kernels):
            last.update((node, at) for node in kernel.given if node.name.startswith("tangents"))
        for node, until in last.items():
            for kernel in self.kernels[self.turn + 1 : until + 1]:
                kernel.outside += costs.bytes_of(node)

    # --- for the planner ---

    def recording(self) -> tuple[Recording, int]:
        """The program for the planner, and the bytes of values that must stay, which are no part of it."""
        recording = Recording()
        fixed = sum(v.nbytes for v in self.values if v.saved and v.shown)
        known = [v for v in self.values if v.nbytes >= self.least and not (v.saved and v.shown)]
        for value in self.values:
            value.slot = -1
        for slot, value in enumerate(known):
            value.slot = slot
            recording.storage(value.name, value.nbytes, "activation", False)
        made: set[int] = set()
        for kernel in self.kernels:
            writes = [v.slot for v in kernel.writes if v.slot >= 0]
            reads = [v.slot for v in kernel.reads if v.slot in made and v.slot not in writes]
            made.update(writes)
            name = "mul.compiled" if not kernel.once else "end" if kernel.node is None else "once"
            layer = ("forward", "backward")[kernel.phase]
            once = kernel.once or kernel.phase == 1
            recording.operation(name, layer, kernel.phase, reads, writes, kernel.outside, max(1, int(kernel.seconds * 1e9)), once)
        self.known = known
        return recording, fixed

    @property
    def saved(self) -> int:
        """The bytes that the forward pass leaves for the backward pass, parameters and inputs aside."""
        return sum(v.nbytes for v in self.values if v.saved)

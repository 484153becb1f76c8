"""Writes a decision into the two graphs of a program: the four operators, each where the plan has it."""

from __future__ import annotations

import torch.fx as fx

from ._decide import Decision
from ._operators import KEEP, OPERATORS
from ._program import Program, Value

#: What stands at the same place stands in this order: memory is given up before more is taken.
_ORDER = ("release", "leave", "fetch", "arrive")


def insert(decision: Decision, first_key: int) -> int:
    """Puts the operators of all moves into the graphs; says how many moves there are."""
    program = decision.program
    turn = program.where[program.graphs[0].output_node()]
    rows: list[tuple[int, int, int, str, Value, int]] = []
    for key, move in enumerate(decision.moves):
        for word in _ORDER:
            at = getattr(move, word)
            # Behind a node is before the next one.
            place = at + 1 if word in ("leave", "release") else at
            if at == turn:
                place = turn
            rows.append((place, _ORDER.index(word), key, word, move.value, at))
    rows.sort(key=lambda row: row[:3])
    arrived: dict[fx.Node, fx.Node] = {}
    for place, _, key, word, value, _ in rows:
        side = 0 if place <= turn else 1
        graph = program.graphs[side]
        nodes = [arrived.get(node, node) for node in _seen(program, value, side)]
        with graph.inserting_before(_behind_inputs(program, program.nodes[place], side)):
            if word != "arrive":
                graph.call_function(OPERATORS[word], (nodes, first_key + key))
                continue
            for node in nodes:
                new = graph.call_function(OPERATORS["arrive"], (node, first_key + key))
                new.meta["val"] = node.meta["val"]
                node.replace_all_uses_with(new, delete_user_cb=lambda user: program.where.get(user, -1) >= place)
                arrived[node] = new
    return len(decision.moves)


def keep(decision: Decision, number: int) -> None:
    """Has the forward graph say at its end what it keeps for the backward graph, as far as that may leave and does not do so anyway."""
    program, moved = decision.program, {move.value for move in decision.moves}
    values = [v for v in program.values if v.saved and not v.shown and v not in moved and v.nbytes >= program.least]
    decision.kept = sum(v.nbytes for v in values)
    decision.parts = tuple(sum(k.seconds for k in program.kernels if k.phase == phase) for phase in (0, 1))
    end = program.graphs[0].output_node()
    nodes = [_seen(program, value, 0)[0] for value in values]
    if nodes:
        with program.graphs[0].inserting_before(end):
            program.graphs[0].call_function(KEEP, (nodes, number))


def _seen(program: Program, value: Value, side: int) -> list[fx.Node]:
    """The nodes of a graph that stand for a value: of those that are kept for the other graph, where there are any."""
    nodes = value.nodes[side]
    if side == 0 and value.saved:
        results = set(program.graphs[0].output_node().args[0])
        nodes = [node for node in nodes if node in results] or nodes[:1]
    if not nodes:
        raise AssertionError(f"{value.name} is to be moved where the {('forward', 'backward')[side]} graph does not have it")
    return nodes


def _behind_inputs(program: Program, node: fx.Node, side: int) -> fx.Node:
    while node.op == "placeholder" and node.graph is program.graphs[side]:
        node = node.next
    return node

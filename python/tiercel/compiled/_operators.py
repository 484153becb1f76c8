"""The operators that a plan puts into compiled programs, and the pass that makes them what they are.

``leave`` begins a copy to slow memory, ``release`` gives the memory up, ``fetch`` begins the copy back, ``arrive`` waits for it.
Each works on the storages of what it is given, so the tensors that the program holds stay the same. ``release`` and ``arrive``
change their values as far as the compiler is concerned: nothing that reads a value is moved past them. While the compiler still
rewrites patterns they are plain marks without that claim, because it rewrites nothing across a change; behind its last rewriting
a pass makes them what they are.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx.node import has_side_effect

_library = torch.library.Library("tiercel", "DEF")
#: The store of the session that is in force.
_store: Callable[[], Optional[Any]] = lambda: None
WORDS = ("leave", "release", "fetch", "arrive")
CHANGING = ("release", "arrive")


def serve(store: Callable[[], Optional[Any]]) -> None:
    """Says whose store the operators work on; without one they do nothing, and values stay where they are."""
    global _store
    _store = store


def _define(word: str, overload: str, values: str) -> None:
    name = f"{word}.{overload}" if overload else word
    _library.define(f"{name}(Tensor{values}[] values, int key) -> ()", tags=(torch.Tag.cudagraph_unsafe,))

    def run(values: list[torch.Tensor], key: int) -> None:
        store = _store()
        if store is not None and values[0].device == store.device:
            getattr(store, word)(values)

    _library.impl(name, run, "CPU")
    _library.impl(name, run, "CUDA")
    _library.impl(name, lambda values, key: None, "Meta")
    has_side_effect(getattr(getattr(torch.ops.tiercel, word), overload or "default"))


for _word in WORDS:
    _define(_word, "", "")
for _word in CHANGING:
    _define(_word, "now", "(a!)")

#: The operator of each word, as it is put into a graph.
OPERATORS = {word: getattr(torch.ops.tiercel, word).default for word in WORDS}
_CHANGES = {OPERATORS[word]: getattr(torch.ops.tiercel, word).now for word in CHANGING}


class MakeChanges(CustomGraphPass):
    """Makes marks what they are, and then does what the user's own pass does."""

    def __init__(self, after: Any = None) -> None:
        self.after = after

    def __call__(self, graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            changing = _CHANGES.get(node.target) if node.op == "call_function" else None
            if changing is not None:
                node.target = changing
        if self.after is not None:
            self.after(graph)

    def uuid(self) -> Any:
        return ("tiercel", None if self.after is None else self.after.uuid())

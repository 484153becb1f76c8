"""The operators that a plan puts into compiled programs, and the pass that makes them what they are.

``leave`` begins a copy to slow memory, ``release`` gives the memory up, ``fetch`` begins the copy back, ``arrive`` waits for it.
Each works on the storages of what it is given, so the tensors that the program holds stay the same. What ``arrive`` returns is
its value, and everything behind it uses that: nothing can run before it. ``release`` changes its values as far as the
compiler is concerned, so that everything that reads them has run. While the compiler still rewrites patterns it is a plain mark
without that claim, because nothing is rewritten across a change; behind the last rewriting a pass makes it what it is, and
puts it behind what has been moved past it.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, Optional

import torch
import torch._functorch.config as functorch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.ir import FallbackKernel, TensorBox
from torch._inductor.lowering import register_lowering
from torch._inductor.virtualized import V
from torch.fx.node import has_side_effect

from ._costs import is_view

_library = torch.library.Library("tiercel", "DEF")
#: The store of the session that is in force.
_store: Callable[[], Optional[Any]] = lambda: None
_line: Callable[[], Optional[Any]] = lambda: None
WORDS = ("leave", "release", "fetch", "arrive")
_TAGS = (torch.Tag.cudagraph_unsafe, torch.Tag.flexible_layout)


def serve(store: Callable[[], Optional[Any]], line: Callable[[], Optional[Any]]) -> None:
    """Says whose store the operators work on; without one they do nothing, and values stay where they are. The line hears what
    a program keeps."""
    global _store, _line
    _store, _line = store, line


def _define(schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> None:
    name = schema[: schema.index("(")]
    _library.define(schema, tags=_TAGS)
    for key in ("CPU", "CUDA"):
        _library.impl(name, run, key)
    _library.impl(name, fake, "Meta")


def _define_mark(word: str, name: str, values: str) -> None:
    def run(values: list[torch.Tensor], key: int) -> None:
        store = _store()
        if store is not None and values[0].device == store.device:
            getattr(store, word)(values)

    _define(f"{name}(Tensor{values}[] values, int key) -> ()", run, lambda values, key: None)


def _arrive(value: torch.Tensor, key: int) -> torch.Tensor:
    store = _store()
    if store is not None and value.device == store.device:
        store.arrive([value])
    return value


def _as_arrived(value: torch.Tensor, key: int) -> torch.Tensor:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


for _word in ("leave", "release", "fetch"):
    _define_mark(_word, _word, "")
_define_mark("release", "release.now", "(a!)")
_define("keep(Tensor[] values, int program) -> ()", lambda values, program: None if _line() is None else _line().keep(values, program),
        lambda values, program: None)
_define("arrive(Tensor(a) value, int key) -> Tensor(a)", _arrive, _as_arrived)

#: The operator of each word, as it is put into a graph.
OPERATORS = {word: getattr(torch.ops.tiercel, word).default for word in WORDS}
KEEP = torch.ops.tiercel.keep.default
for _operator in (KEEP, *(OPERATORS[word] for word in ("leave", "release", "fetch")), torch.ops.tiercel.release.now):
    has_side_effect(_operator)


@register_lowering(OPERATORS["arrive"], type_promotion_kind=None)
def _lower_arrive(value: Any, key: int) -> Any:
    """The result lies where the value lies, so nothing else may be put into the value's memory when the value itself is done with."""
    value.realize()
    V.graph.never_reuse_buffers.add(value.get_name())
    result = TensorBox.create(FallbackKernel.create(OPERATORS["arrive"], value, key))
    if not functorch.donated_buffer:
        # The program may run its backward pass again and wants to find the value unchanged.
        V.graph.never_reuse_buffers.add(result.get_name())
    return result


def _readers(value: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The nodes that read a value or a view of it."""
    for user in value.users:
        if is_view(user):
            yield from _readers(user)
        elif user.op != "output" and user.target not in _MARKS:
            yield user


_MARKS = (OPERATORS["leave"], OPERATORS["fetch"], OPERATORS["release"], torch.ops.tiercel.release.now, KEEP)


class MakeChanges(CustomGraphPass):
    """Makes marks what they are, and then does what the user's own pass does."""

    def __init__(self, after: Any = None) -> None:
        self.after = after

    def __call__(self, graph: torch.fx.Graph) -> None:
        order = {node: at for at, node in enumerate(graph.nodes)}
        for node in list(graph.nodes):
            if node.op == "call_function" and node.target is OPERATORS["release"]:
                last = max((r for value in node.args[0] for r in _readers(value)), key=order.__getitem__, default=node)
                if order[last] > order[node] and last.target is not OPERATORS["arrive"]:
                    last.append(node)
                node.target = torch.ops.tiercel.release.now
        if self.after is not None:
            self.after(graph)

    def __deepcopy__(self, memo: Any) -> "MakeChanges":
        return self

    def __reduce__(self) -> Any:
        return str, (str(self.uuid()),)

    def uuid(self) -> Any:
        return ("tiercel", None if self.after is None else self.after.uuid())

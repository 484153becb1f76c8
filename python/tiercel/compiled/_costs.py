"""What a node of a graph is to the compiler, and how long it should take.

Inductor fuses what it writes itself, and calls libraries for products, convolutions and attention. So a node is one of four: a
view, which is its operand in another form; a call, which reads and writes memory; a reduction or another node whose result
lies in memory; and an elementwise node, which vanishes in those that use it unless something needs it in memory. Times are those of
a roofline with the rates of the machine file; what counts for a plan is how they compare with each other and with copies.
"""

from __future__ import annotations

import operator
import re
from typing import Any, Iterator

import torch
import torch.fx as fx
from torch.utils.flop_counter import flop_registry

aten, prims = torch.ops.aten, torch.ops.prims

_VIEWS = {
    aten.view, aten.reshape, aten.permute, aten.t, aten.transpose, aten.slice, aten.select, aten.expand, aten.unsqueeze, aten.squeeze, aten.alias,
    aten.detach, aten.as_strided, aten._unsafe_view, aten.split, aten.split_with_sizes, aten.unbind, aten.diagonal, aten.view_as_real, aten.chunk,
}
_ELEMENTWISE = {
    prims.convert_element_type, aten.where, aten.full, aten.full_like, prims.iota, aten.arange, aten.clone, aten._to_copy, aten.embedding,
    aten.index, aten.gather, aten.cat, aten.constant_pad_nd, aten.slice_scatter, aten.select_scatter, aten.zeros_like, aten.ones_like,
    aten.zeros, aten.ones, aten.empty, prims.inductor_lookup_seed, prims.inductor_random,
    prims.inductor_randint, aten.triu, aten.tril, aten.flip, aten.copy, aten.scalar_tensor, aten.gelu, aten.gelu_backward,
}
#: Changes of the program's own tensors, and what talks to other processes: they happen once.
_ONCE = ("copy_", "c10d", "all_reduce", "all_gather", "reduce_scatter", "seeds", "rand", "dropout", "bernoulli", "set_", "resize_", "tiercel", "sampl")


def packet(node: fx.Node) -> Any:
    """The operator that a node calls, whichever overload."""
    return getattr(node.target, "overloadpacket", node.target)


def tensor_of(node: Any) -> Any:
    """The tensor that stands for a node's value; `None` where it is none, or several."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def bytes_of(node: fx.Node) -> int:
    """The bytes of a node's value. Sizes that are not known yet count as they were when the program was traced."""
    value = tensor_of(node)
    if value is None:
        return 0
    count = 1
    for size, stride in zip(value.shape, value.stride()):
        if stride != 0:
            count *= _number(size)
    return count * value.element_size()


def _number(size: Any) -> int:
    if isinstance(size, int):
        return size
    hint = size.node.hint
    return int(hint) if hint is not None else 4096


def is_view(node: fx.Node) -> bool:
    """Whether a node is its first operand in another form."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and packet(node.args[0]) in _VIEWS
    return packet(node) in _VIEWS


def is_part(node: fx.Node) -> bool:
    """Whether a node is one of several results of its operand."""
    return node.op == "call_function" and node.target is operator.getitem and not is_view(node)


def is_call(node: fx.Node) -> bool:
    """Whether a node becomes a call of a library, as products, convolutions and attention do."""
    from torch._inductor.lowering import fallbacks

    kind = packet(node)
    return node.op == "call_function" and (kind in flop_registry or node.target in fallbacks or kind in fallbacks)


def is_elementwise(node: fx.Node) -> bool:
    """Whether a node may vanish in those that use it."""
    if is_call(node):
        return False
    return torch.Tag.pointwise in getattr(node.target, "tags", ()) or packet(node) in _ELEMENTWISE


def is_once(node: fx.Node) -> bool:
    """Whether a node must not be computed a second time."""
    name = str(node.target)
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return packet(node) is not prims.inductor_random and packet(node) is not prims.inductor_lookup_seed
    if name.startswith("prims.inductor_") and "seeds" not in name:
        return False
    return any(word in name for word in _ONCE) or not isinstance(node.target, torch._ops.OpOverload)


class Rates:
    """How fast a machine is: bytes and products a second."""

    def __init__(self, machine: str) -> None:
        found = re.search(r"gflops = ([\d.]+)", machine)
        self.flops = float(found[1]) * 1e9 if found else 1e12
        memory = re.search(r'read = "([\d.]+) GB/s"', machine)
        self.bytes = float(memory[1]) * 1e9 if memory else 1e12
        self.start = 2e-6 if self.flops > 1e13 else 1e-7

    def seconds(self, node: fx.Node, nbytes: int) -> float:
        """What a node takes that reads and writes so many bytes."""
        flops, share = _flops(node), 0.6
        value = tensor_of(node) if tensor_of(node) is not None else next((tensor_of(a) for a in operands(node) if tensor_of(a) is not None), None)
        if value is not None and value.dtype in (torch.bfloat16, torch.float16):
            share = 1.5
        elif "conv" in str(node.target):
            share = 0.53
        return max(flops / (self.flops * share), nbytes / (0.75 * self.bytes)) + self.start


def operands(node: fx.Node) -> Iterator[fx.Node]:
    """The nodes whose values a node uses."""
    yield from node.all_input_nodes


def _flops(node: fx.Node) -> float:
    count = flop_registry.get(packet(node))
    if count is None:
        return 0.0

    def value(x: fx.Node) -> Any:
        return x.meta.get("val")

    try:
        args, kwargs = fx.node.map_arg(node.args, value), fx.node.map_arg(node.kwargs, value)
        return float(count(*args, **kwargs, out_val=node.meta.get("val")))
    except Exception:  # an operator whose count is not known for such operands: it counts by its bytes
        return 0.0

"""What an operation costs, as far as its operands say: floating-point operations, bytes read and written, and in which form.

Operations are counted by PyTorch's own formulas (``torch.utils.flop_counter``); bytes are those of the tensors that it is given
and makes, each once. How long that takes is the machine file's to say (``crates/torch/src/clock.rs``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import flop_registry

from ._operations import tensors_in

_HALF = (torch.bfloat16, torch.float16)
#: What looks up rows reads no more than it writes.
_ROWS = ("embedding", "index", "gather", "index_select", "select", "slice", "nll_loss_forward", "nll_loss_backward")
#: What overwrites its operand does not read it.
_OVER = ("copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_")
#: What only takes memory.
_TAKES = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided")


class Call(NamedTuple):
    """One operation's cost, in the form of `kernel_times`; `drawn` says that it draws from a generator of the program's own."""

    op: str
    format: str
    flops: int
    read: int
    written: int
    odd: bool
    strided: bool
    drawn: bool = False

    @classmethod
    def nothing(cls, func: Any) -> "Call":
        return cls(_name(func), "f32", 0, 0, 0, False, False)


def _name(func: Any) -> str:
    return str(func).removeprefix("aten.").removesuffix(".default")


def _span(tensor: torch.Tensor) -> int:
    """The bytes of memory that a tensor covers; what is repeated counts once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride()):
        count *= 1 if stride == 0 and size > 0 else int(size)
    return count * tensor.element_size()


def _format(func: Any, tensors: list[torch.Tensor]) -> str:
    dtype = next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)
    if dtype in _HALF:
        return "half"
    convolution = "convolution" in _name(func)
    allowed = torch.backends.cudnn.allow_tf32 if convolution else torch.backends.cuda.matmul.allow_tf32
    return "tf32" if dtype == torch.float32 and allowed else "f32"


def _flops(func: Any, args: tuple, kwargs: dict, result: Any) -> int:
    formula = flop_registry.get(func.overloadpacket) if hasattr(func, "overloadpacket") else None
    if formula is None:
        return 0
    try:
        flops = int(formula(*args, **kwargs, out_val=result))
    except Exception:  # a formula that does not know this form
        return 0
    if "attention" in _name(func):
        at = next((i for i, a in enumerate(func._schema.arguments) if a.name == "is_causal"), None)
        causal = kwargs.get("is_causal", args[at] if at is not None and at < len(args) else False)
        return flops // 2 if causal else flops
    return flops


def _strided(operands: list[torch.Tensor], results: list[torch.Tensor]) -> bool:
    """Whether what is read lies in another order than what is written, so that memory is gone through with strides."""
    if not results or results[0].dim() < 2:
        return False
    shape, stride = results[0].shape, results[0].stride()
    for t in operands:
        if t.shape == shape and 0 not in t.stride() and t.stride() != stride:
            order = sorted(range(t.dim()), key=lambda d: (t.stride(d), t.shape[d]))
            other = sorted(range(t.dim()), key=lambda d: (stride[d], shape[d]))
            if [d for d in order if t.shape[d] > 1] != [d for d in other if shape[d] > 1]:
                return True
    return False


def call_of(func: Any, kind: Any, args: tuple, kwargs: dict, result: Any, made: bool) -> Call:
    """The cost of an operation that has run dry."""
    name = _name(func)
    short = name.split(".")[0]
    if short in _TAKES:
        return Call.nothing(func)
    operands = list(tensors_in((args, kwargs)))
    results = list(tensors_in(result))
    written = [t for at, value in enumerate(args) if at in kind.written_at for t in tensors_in(value)]
    written += [t for key, value in kwargs.items() if key in kind.written_as for t in tensors_in(value)]
    wrote = sum(map(_span, written)) + (sum(map(_span, results)) if made and not written else 0)
    over = {id(t) for t in written} if short in _OVER else set()
    unique = {id(t): t for t in operands if id(t) not in over}
    read = sum(_span(t) for t in unique.values())
    if short in _ROWS:
        read = min(read, wrote + sum(_span(t) for t in operands if not t.is_floating_point()))
    flops = _flops(func, args, kwargs, result)
    shapes = [t.shape[-2:] for t in (*operands, *results) if t.dim() >= 2]
    size = operands[0].element_size() if operands else 4
    odd = flops > 0 and any(int(d) * size % 4 for shape in shapes for d in shape)
    drawn = any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values()))
    return Call(name, _format(func, operands or results), flops, read, wrote, odd, not flops and _strided(operands, written or results), drawn)

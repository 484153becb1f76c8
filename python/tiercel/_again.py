"""Runs an operation of the iteration once more, so that what was dropped is there again, with the same bits.

At its first run an operation that the plan repeats leaves a note: the function, and for every tensor argument which storage it
lies in and in what form. The second run makes tensors of that form on the storages as they are then. Results go straight
into the storage that lost its bytes where the operation can write to a given place, and are copied there otherwise. What is
too small for the books is held by the note; statistics that an operation changes beside its results are changed in a copy.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch

from ._operations import tensors_in

Tensor = torch.Tensor


class Form:
    """A tensor on a storage of the iteration, without the tensor."""

    __slots__ = ("slot", "size", "stride", "offset", "dtype", "device")

    def __init__(self, slot: int, tensor: Tensor) -> None:
        self.slot, self.size, self.stride, self.offset = slot, tensor.size(), tensor.stride(), tensor.storage_offset()
        self.dtype, self.device = tensor.dtype, tensor.device

    def on(self, storage: torch.UntypedStorage) -> Tensor:
        """The tensor, on the bytes as they are now."""
        return torch.empty(0, dtype=self.dtype, device=self.device).set_(storage, self.offset, self.size, self.stride)


class Note:
    """What an operation was, so that it can be run again."""

    __slots__ = ("func", "args", "kwargs", "results", "whole")

    def __init__(self, func: Any, args: tuple, kwargs: dict, result: Any, slot_of: Callable[[Tensor], Optional[int]], made: tuple) -> None:
        def note(value: Any) -> Any:
            if isinstance(value, Tensor):
                slot = slot_of(value)
                return value.detach() if slot is None else Form(slot, value)
            if isinstance(value, (list, tuple)):
                return type(value)(note(v) for v in value)
            return value

        self.func = func
        self.args = note(tuple(args))
        self.kwargs = {name: note(value) for name, value in kwargs.items()}
        self.results: list[Optional[Form]] = []
        for tensor in tensors_in(result):
            slot = slot_of(tensor)
            self.results.append(Form(slot, tensor) if slot in made else None)
        self.whole = isinstance(result, Tensor)

    def run(self, storage_of: Callable[[int], torch.UntypedStorage], refill: Callable[[int], torch.UntypedStorage]) -> None:
        """Runs the operation again; `refill` gives a storage that lost its bytes its memory back."""

        def there(value: Any) -> Any:
            if isinstance(value, Form):
                return value.on(storage_of(value.slot))
            if isinstance(value, Tensor):
                return value.clone()
            if isinstance(value, (list, tuple)):
                return type(value)(there(v) for v in value)
            return value

        args, kwargs = there(self.args), {name: there(value) for name, value in self.kwargs.items()}
        if not any(form is not None for form in self.results):
            self.func(*args, **kwargs)  # it changes a storage in place
            return
        targets = [None if form is None else form.on(refill(form.slot)) for form in self.results]
        out = _into(self.func) if self.whole and targets[0] is not None else None
        if out is not None:
            out(*args, **kwargs, out=targets[0])
            return
        for target, made in zip(targets, tensors_in(self.func(*args, **kwargs))):
            if target is not None:
                target.copy_(made)


_outs: dict[Any, Any] = {}

#: Operations whose variant for a given place runs the same kernels as the plain one.
_SAME = ("add", "sub", "mul", "div", "gelu", "relu", "silu", "sigmoid", "tanh", "mm", "bmm", "addmm", "pow", "rsqrt", "sqrt", "exp", "neg",
         "gelu_backward", "silu_backward", "tanh_backward", "cat", "sum", "mean")


def _into(func: Any) -> Optional[Any]:
    """The variant of an operation that writes to a given place, where there is one that does the same."""
    if func not in _outs:
        packet = func.overloadpacket
        found = None
        if packet.__name__ in _SAME:
            wanted = [(a.name, str(a.type)) for a in func._schema.arguments]
            for name in packet.overloads():
                other = getattr(packet, name)
                given = [(a.name, str(a.type)) for a in other._schema.arguments]
                if given == wanted + [("out", "Tensor")]:
                    found = other
        _outs[func] = found
    return _outs[func]

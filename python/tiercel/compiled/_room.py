"""How much of the limit a compiled program may use for what it makes.

Parameters, inputs and what else the process holds are there already when a program is compiled; optimizers take their
states at their first step, so they are foreseen from how an optimizer of the same kind treats a small parameter.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any, Sequence

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily


class Room:
    """The memory of one device under a limit."""

    def __init__(self, device: torch.device, limit: int) -> None:
        self.device, self.limit = device, limit

    def usable(self) -> int:
        """The limit, less what an allocator loses in pieces, and libraries' workspaces."""
        return int(self.limit * 0.92) - (96 << 20) if self.device.type == "cuda" else self.limit

    def used(self, given: dict[int, int], kept: int) -> int:
        """The bytes in use: as the allocator says, or what programs were given, what optimizers hold, and what is kept."""
        if self.device.type == "cuda":
            return torch.cuda.memory_allocated(self.device) + states_to_come(self.device)
        return max(sum(given.values()), parameters_there(self.device)) + states_there(self.device) + states_to_come(self.device) + kept

    def for_program(self, gm: fx.GraphModule, lasting: Sequence[int], line: Any) -> int:
        """The bytes that a program may use beside what is there anyway. What other programs keep may leave.
        ``lasting`` are the positions of parameters and buffers among its inputs."""
        look_for_optimizers()
        inputs = [node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder" and not node.name.startswith("tangents")]
        given = sum(_bytes(value, self.device) for value in inputs)
        states = states_to_come(self.device)
        if self.device.type == "cuda":
            held = max(torch.cuda.memory_allocated(self.device) - line.resident(), given)
        else:
            own = sum(_bytes(inputs[at], self.device) for at in lasting if at < len(inputs))
            held = given - own + max(own, parameters_there(self.device)) + states_there(self.device)
        return self.usable() - held - states


def _bytes(value: Any, device: torch.device) -> int:
    if not isinstance(value, torch.Tensor) or value.device.type != device.type or isinstance(value.numel(), torch.SymInt):
        return 0
    return value.numel() * value.element_size()


_known: list[Any] = []


def look_for_optimizers() -> None:
    """Finds the optimizers that there are. It looks at everything that Python holds, so it is done when a program is compiled only."""
    _known[:] = [weakref.ref(thing) for thing in gc.get_objects() if issubclass(type(thing), torch.optim.Optimizer)]


def _optimizers() -> list[torch.optim.Optimizer]:
    return [optimizer for optimizer in (ref() for ref in _known) if optimizer is not None]


def parameters_there(device: torch.device) -> int:
    """The bytes of the parameters that optimizers have."""
    held = [p for o in _optimizers() for group in o.param_groups for p in group["params"] if p.device.type == device.type]
    return sum({p.untyped_storage()._cdata: p.numel() * p.element_size() for p in held}.values())


def states_there(device: torch.device) -> int:
    """The bytes of the optimizers' states that there are."""
    tensors = [t for o in _optimizers() for state in o.state.values() for t in state.values() if isinstance(t, torch.Tensor) and t.device.type == device.type]
    return sum({t.untyped_storage()._cdata: t.numel() * t.element_size() for t in tensors}.values())


def states_to_come(device: torch.device) -> int:
    """The bytes of states that optimizers will make at their first step."""
    total = 0
    for optimizer in _optimizers():
        new = [p for group in optimizer.param_groups for p in group["params"] if p.device.type == device.type and p not in optimizer.state and p.requires_grad]
        if new and not isinstance(new[0], FakeTensor):
            total += int(sum(p.numel() * p.element_size() for p in new) * _share(optimizer, new[0].dtype))
    return total


_shares: dict[Any, float] = {}


def _share(optimizer: torch.optim.Optimizer, dtype: torch.dtype) -> float:
    """The bytes of states for each byte of a parameter, seen at a small one."""
    group = {k: v for k, v in optimizer.param_groups[0].items() if k in optimizer.defaults}
    key = (type(optimizer), dtype, tuple(sorted((k, repr(v)) for k, v in group.items())))
    if key not in _shares:
        try:
            with unset_fake_temporarily(), torch.utils._python_dispatch._disable_current_modes(), torch.enable_grad():
                small = torch.nn.Parameter(torch.zeros(16, 16, dtype=dtype))
                small.grad = torch.zeros_like(small)
                twin = type(optimizer)([small], **group)
                inner = getattr(type(twin).step, "__wrapped__", type(twin).step)
                inner(twin)
                made = sum(t.numel() * t.element_size() for t in twin.state[small].values() if isinstance(t, torch.Tensor) and t.numel() > 1)
                _shares[key] = made / (small.numel() * small.element_size())
        except Exception:  # an optimizer that cannot be tried so: two values a parameter, as Adam has
            _shares[key] = 2.0
    return _shares[key]

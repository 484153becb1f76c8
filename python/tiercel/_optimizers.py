"""What the runtime must know of optimizers: when an iteration ends, and how to take a step in pieces.

A fused or foreach optimizer touches all parameters, gradients and states in one operation. A step over some of the
parameters after the other computes the same bits and needs a fraction of the memory at once.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)


class Optimizers:
    """Watches all optimizers while a runtime is active."""

    def __init__(self, current: Callable[[], Optional[Any]]) -> None:
        self.current = current
        self.handles = [
            register_optimizer_step_pre_hook(self._before),
            register_optimizer_step_post_hook(self._after),
        ]

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def _before(self, optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
        runtime = self.current()
        if runtime is None or not runtime.active:
            return
        runtime.phase = 2
        _name(runtime, optimizer)
        _in_pieces(type(optimizer), self.current)

    def _after(self, optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
        runtime = self.current()
        if runtime is None or not runtime.active:
            return
        runtime.phase = 0
        _name(runtime, optimizer)
        runtime.boundary(optimizer)


def _name(runtime: Any, optimizer: Optimizer) -> None:
    """Tells the runtime which storages are gradients and which are states."""
    if runtime.following is not None:
        return
    rank = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            rank += 1
            for tensor, role in ((parameter, "weight"), (parameter.grad, "gradient")):
                entry = None if tensor is None else runtime.entry(tensor)
                if entry is not None and not entry.role:
                    entry.role = role
                if entry is not None and role == "weight":
                    entry.rank = rank
    for state in optimizer.state.values():
        for tensor in state.values():
            entry = runtime.entry(tensor) if isinstance(tensor, torch.Tensor) else None
            if entry is not None and not entry.role:
                entry.role = "state"


_chunked: set[type] = set()


def _in_pieces(kind: type, current: Callable[[], Optional[Any]]) -> None:
    """From the next step on, optimizers of this class step over some parameters after the other."""
    inner = getattr(kind.step, "__wrapped__", None)
    if kind in _chunked or inner is None:
        return
    _chunked.add(kind)

    @functools.wraps(inner)
    def step(self: Optimizer, closure: Any = None, *args: Any, **kwargs: Any) -> Any:
        runtime = current()
        if runtime is None or not runtime.active or args or kwargs:
            return inner(self, closure, *args, **kwargs) if closure is not None else inner(self, *args, **kwargs)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        whole = [group["params"] for group in self.param_groups]
        most = max(runtime.least * 4, runtime.limit // 24)
        try:
            for at, parameters in enumerate(whole):
                for group in self.param_groups:
                    group["params"] = []
                for piece in _pieces(parameters, most):
                    self.param_groups[at]["params"] = piece
                    inner(self)
        finally:
            for group, parameters in zip(self.param_groups, whole):
                group["params"] = parameters
        return loss

    step.hooked = True  # type: ignore[attr-defined]
    kind.step = Optimizer.profile_hook_step(step)  # type: ignore[method-assign]
    kind.step.hooked = True  # type: ignore[attr-defined]


def _pieces(parameters: list, most: int) -> list[list]:
    pieces: list[list] = []
    held = most + 1
    for parameter in parameters:
        # A parameter comes with its gradient and two states.
        weight = 4 * parameter.numel() * parameter.element_size() if parameter.grad is not None else 0
        if held + weight > most or not pieces:
            pieces.append([])
            held = 0
        pieces[-1].append(parameter)
        held += weight
    return pieces

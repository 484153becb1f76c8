"""The four calls of PyTorch that read or clear ``grad`` directly: on parameters of an ``OffloadAdamW``, whose gradients are on the
host, they would silently do nothing. Each is wrapped once and asks the optimizer; others go on as before.
"""

from __future__ import annotations

import functools
from typing import Any, Iterable, Optional

import torch
from torch.utils.weak import WeakIdKeyDictionary

#: The optimizer of each parameter, as a weak reference.
OWNERS: Any = WeakIdKeyDictionary()
_done = False


def owners(parameters: Iterable[Any]) -> list[Any]:
    """The optimizers of some parameters, and nothing for those that have none of ours."""
    found: list[Any] = []
    for parameter in parameters:
        reference = OWNERS.get(parameter)
        optimizer = None if reference is None else reference()
        if optimizer is not None and not any(optimizer is other for other in found):
            found.append(optimizer)
    return found


def install() -> None:
    """Wraps the calls."""
    global _done
    if _done:
        return
    _done = True
    clip = torch.nn.utils.clip_grad
    _clip_norm(clip)
    _clip_value(clip)

    unscale = torch.amp.GradScaler._unscale_grads_

    @functools.wraps(unscale)
    def unscaled(self: Any, optimizer: Any, inverse: torch.Tensor, found: torch.Tensor, *rest: Any, **more: Any) -> Any:
        mine = getattr(optimizer, "_unscale", None)
        return mine(inverse, found) if mine is not None and _is_ours(optimizer) else unscale(self, optimizer, inverse, found, *rest, **more)

    torch.amp.GradScaler._unscale_grads_ = unscaled

    clear = torch.nn.Module.zero_grad

    @functools.wraps(clear)
    def cleared(self: torch.nn.Module, set_to_none: bool = True) -> None:
        clear(self, set_to_none)
        for optimizer in owners(self.parameters()):
            optimizer._forget(self.parameters())

    torch.nn.Module.zero_grad = cleared


def _is_ours(optimizer: Any) -> bool:
    return type(optimizer).__module__.startswith("tiercel.optim")


def _listed(parameters: Any) -> list[Any]:
    return [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)


def _clip_norm(clip: Any) -> None:
    original = clip.clip_grad_norm_

    @functools.wraps(original)
    def clip_grad_norm_(
        parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: Optional[bool] = None
    ) -> torch.Tensor:
        parameters = _listed(parameters)
        found = owners(parameters)
        if not found:
            return original(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
        wanted = {id(parameter) for parameter in parameters}
        mine = {id(parameter) for parameter in found[0]._slots}
        others = any(p.grad is not None for p in parameters if id(p) not in mine)
        if len(found) > 1 or others or not mine <= wanted:
            raise RuntimeError("clip_grad_norm_: give it all parameters of one OffloadAdamW, and no others")
        return found[0].clip_grad_norm_(max_norm, norm_type, error_if_nonfinite)

    clip.clip_grad_norm_ = torch.nn.utils.clip_grad_norm_ = clip_grad_norm_


def _clip_value(clip: Any) -> None:
    original = clip.clip_grad_value_

    @functools.wraps(original)
    def clip_grad_value_(parameters: Any, clip_value: float, foreach: Optional[bool] = None) -> None:
        parameters = _listed(parameters)
        if owners(parameters):
            raise RuntimeError("clip_grad_value_: an OffloadAdamW clips by the norm alone")
        original(parameters, clip_value, foreach)

    clip.clip_grad_value_ = torch.nn.utils.clip_grad_value_ = clip_grad_value_

"""A forward pass that runs beside the update waits for just the parameters that it needs, module by module (section 5.4.1).

A module that has parameters of its own may use those of the modules in it too, as ``nn.MultiheadAttention`` does, and so waits
for all of them; a module that is not being trained does the same, because PyTorch then takes short cuts past its parts.
Programs that use a parameter elsewhere, without running its module, must not ask for this.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch


class Waits:
    """Hooks on all modules of a model."""

    def __init__(self, model: torch.nn.Module, optimizer: Any) -> None:
        me = weakref.ref(optimizer)

        def wait(module: torch.nn.Module) -> None:
            optimizer = me()
            if optimizer is None or not optimizer._beside:
                return
            own = any(parameter is not None for parameter in module._parameters.values())
            if own or not module.training:
                for parameter in module.parameters():
                    place = optimizer._slots.get(parameter)
                    if place is not None:
                        bucket = place[0]
                        if not bucket.there.is_set():
                            with optimizer._clock.of("forward pass waiting for parameters"):
                                bucket.there.wait()
                        optimizer._roads[bucket.device].let(bucket)

        def before(module: torch.nn.Module, arguments: Any) -> None:
            wait(module)

        def all_there(module: torch.nn.Module, *rest: Any) -> None:
            optimizer = me()
            if optimizer is not None:
                optimizer.synchronize()

        for module in model.modules():
            module.register_forward_pre_hook(before)
        model.register_state_dict_pre_hook(all_there)
        model.register_load_state_dict_pre_hook(all_there)

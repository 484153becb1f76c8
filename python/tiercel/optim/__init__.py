"""Optimizers whose states live on the host (ZeRO-Offload).

>>> import torch, tiercel
>>> model = torch.nn.Linear(8, 8)
>>> optimizer = tiercel.optim.OffloadAdamW(model.parameters(), lr=3e-4)      # in place of torch.optim.AdamW

Master parameters and moments in 32 bits, and gradients, lie in host memory; the processor computes the update. Everything
else of a training loop stays: clipping, accumulation, ``GradScaler``, schedules, ``state_dict``. ``docs/optim.md`` has the rest.
"""

from __future__ import annotations

from typing import Any

from ._offload import OffloadAdamW
from ._saving import save

__all__ = ["OffloadAdamW", "Sharded", "save"]


def __getattr__(name: str) -> Any:
    """What needs ``torch.distributed`` is imported when it is asked for."""
    if name == "Sharded":
        from ._sharded import Sharded

        return Sharded
    raise AttributeError(f"module 'tiercel.optim' has no attribute '{name}'")

"""Optimizers whose states live on the host (ZeRO-Offload).

>>> optimizer = tiercel.optim.OffloadAdamW(model.parameters(), lr=3e-4)      # in place of torch.optim.AdamW

Master parameters and moments in 32 bits, and gradients, lie in host memory; the processor computes the update. Everything
else of a training loop stays: clipping, accumulation, ``GradScaler``, schedules, ``state_dict``. ``docs/optim.md`` has the rest.
"""

from __future__ import annotations

from ._offload import OffloadAdamW
from ._saving import save

__all__ = ["OffloadAdamW", "save"]

"""Storages that belong to Tiercel itself, such as an optimizer's on a GPU: a session neither counts nor moves them.

Copies on streams of their own use them, of which a session knows nothing.
"""

from __future__ import annotations

import weakref

import torch
from torch.utils._python_dispatch import _disable_current_modes

#: The addresses of the storages' own objects.
OURS: set[int] = set()


def movable(storage: torch.UntypedStorage) -> bool:
    """Whether a session may take a storage's bytes away: it is neither ours nor memory that somebody else allocated."""
    return storage.resizable() and storage._cdata not in OURS


def zeros(count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros that sessions leave alone, as long as they live."""
    with _disable_current_modes():
        tensor = torch.zeros(count, dtype=dtype, device=device)
        storage = tensor.untyped_storage()
    key = storage._cdata
    OURS.add(key)
    weakref.finalize(storage, OURS.discard, key).atexit = False
    return tensor

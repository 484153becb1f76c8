"""Tiercel for PyTorch: any model in a hard limit of memory.

>>> import tiercel
>>> tiercel.show_bytes(tiercel.parse_bytes("12GiB"))
'12 GiB'

``tiercel.limit("12GiB")`` before training is all that a program needs: from there on this process keeps to 12 GiB of the
device's memory, and the rest lies on the host. ``with tiercel.Session(fast="12GiB") as s`` does the same for a block.

``tiercel.estimate(make)`` says what a step needs and how long it takes on a machine, before it runs and without a GPU.

``tiercel.ann`` has indexes of vectors that may be larger than fast memory, and does without PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._tiercel import __version__, machine_text, parse_bytes, show_bytes

if TYPE_CHECKING:
    from . import optim
    from ._estimate import Estimate, estimate
    from ._session import Session, explain, limit, unlimit

__all__ = ["Estimate", "Session", "estimate", "explain", "limit", "unlimit", "machine_text", "optim", "parse_bytes", "show_bytes", "__version__"]


#: The oldest PyTorch that this works with.
_TORCH = (2, 11)


def _see_to_torch() -> None:
    """PyTorch is there, and not too old."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"tiercel needs PyTorch {_TORCH[0]}.{_TORCH[1]} or newer, which cannot be imported ({error}): pip install torch") from error
    numbers = [int("".join(c for c in part if c.isdigit()) or 0) for part in str(torch.__version__).split("+")[0].split(".")[:2]]
    if tuple(numbers) < _TORCH:
        raise ImportError(f"tiercel needs PyTorch {_TORCH[0]}.{_TORCH[1]} or newer; {torch.__version__} is installed: pip install --upgrade torch")


def __getattr__(name: str) -> Any:
    """What needs PyTorch is imported when it is asked for: ``tiercel.ann`` does without."""
    if name in ("Session", "explain", "limit", "unlimit", "Estimate", "estimate", "optim"):
        _see_to_torch()
    if name in ("Session", "explain", "limit", "unlimit"):
        from . import _session

        return getattr(_session, name)
    if name in ("Estimate", "estimate"):
        from . import _estimate

        return getattr(_estimate, name)
    if name == "optim":
        import importlib

        return importlib.import_module("tiercel.optim")
    raise AttributeError(f"module 'tiercel' has no attribute '{name}'")

"""Tiercel for PyTorch: any model in a hard limit of memory.

>>> import tiercel
>>> tiercel.show_bytes(tiercel.parse_bytes("12GiB"))
'12 GiB'

``tiercel.limit("12GiB")`` before training is all that a program needs: from there on this process keeps to 12 GiB of the
device's memory, and the rest lies on the host. ``with tiercel.Session(fast="12GiB") as s`` does the same for a block.
"""

from __future__ import annotations

from . import optim
from ._session import Session, explain, limit, unlimit
from ._tiercel import __version__, machine_text, parse_bytes, show_bytes

__all__ = ["Session", "explain", "limit", "unlimit", "machine_text", "optim", "parse_bytes", "show_bytes", "__version__"]

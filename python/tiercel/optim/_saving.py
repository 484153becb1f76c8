"""Files that are whole or not there."""

from __future__ import annotations

import os
from typing import Any

import torch


def save(value: Any, path: str | os.PathLike) -> None:
    """``torch.save`` that leaves the file as it was until the new one is wholly on the disk."""
    path = os.fspath(path)
    beside = f"{path}.{os.getpid()}.part"
    try:
        with open(beside, "wb") as file:
            torch.save(value, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        if os.path.exists(beside):
            os.unlink(beside)

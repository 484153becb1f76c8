"""Hands the memory of one storage to another, so that what was made again need not be copied to where it is wanted.

A storage is known to its tensors by its identity; its memory is a pointer inside. PyTorch has no call that gives one
storage another's memory, so the pointers are exchanged where they lie: the address, its owner, the device and the size are five
words in a row. Where they lie is found by looking, on storages made for that, and proven by an exchange that is looked at from outside.
Where the proof fails, as with another version of PyTorch it may, bytes are copied instead.
"""

from __future__ import annotations

import ctypes
from typing import Optional

import torch

from ._devices import address_of, bytes_of

#: The words that are exchanged: address, owner and how it is let go, device, size.
_WORDS = 5
#: How far into a storage they are looked for, in words.
_FAR = 8

_Block = ctypes.c_uint64 * _WORDS


def _words(storage: torch.UntypedStorage, offset: int) -> ctypes.Array:
    return _Block.from_address(storage._cdata + offset)


def _find() -> Optional[int]:
    """Where the words begin in a storage."""
    storages = [torch.UntypedStorage(size) for size in (4104, 8216, 12328)]
    for word in range(1, _FAR):
        offset = word * 8
        if all(_words(s, offset)[0] == address_of(s) and _words(s, offset)[_WORDS - 1] == bytes_of(s) for s in storages):
            return offset
    return None


def _exchange(a: torch.UntypedStorage, b: torch.UntypedStorage, offset: int) -> None:
    first, second = _words(a, offset), _words(b, offset)
    first[:], second[:] = list(second), list(first)


def _prove(offset: int) -> bool:
    """Exchanges the memory of two storages, and looks at them as everybody else does."""
    a, b = torch.arange(64, dtype=torch.uint8), torch.empty(0, dtype=torch.uint8)
    empty, full, address = b.untyped_storage(), a.untyped_storage(), a.data_ptr()
    _exchange(empty, full, offset)
    if bytes_of(full) != 0 or bytes_of(empty) != 64 or address_of(empty) != address:
        _exchange(empty, full, offset)
        return False
    seen = torch.empty(0, dtype=torch.uint8).set_(empty)
    right = bool((seen == torch.arange(64, dtype=torch.uint8)).all())
    empty.resize_(0)
    full.resize_(64)
    return right and bytes_of(empty) == 0 and bytes_of(full) == 64


_offset: Optional[int] = None
_tried = False


def can() -> bool:
    """Whether memory can be handed over here."""
    global _offset, _tried
    if not _tried:
        _tried = True
        found = _find()
        _offset = found if found is not None and _prove(found) else None
    return _offset is not None


def exchange(a: torch.UntypedStorage, b: torch.UntypedStorage) -> None:
    """Gives each of two storages the other's memory."""
    assert _offset is not None
    _exchange(a, b, _offset)


def hand_over(full: torch.UntypedStorage, empty: torch.UntypedStorage) -> None:
    """Gives `empty`, which has no memory, that of `full`, which has none then."""
    assert _offset is not None and bytes_of(empty) == 0
    _exchange(empty, full, _offset)

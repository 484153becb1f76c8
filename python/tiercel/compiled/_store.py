"""Saved values of compiled programs that lie in slow memory: where each one is, and the copies there and back.

A value is known by its storage, so whoever holds the tensor keeps it: the storage loses its bytes and gets them back. Copies run
beside the program where the device has streams. A value that dies while it is away gives its place back.
"""

from __future__ import annotations

import bisect
import threading
import weakref
from typing import Any, Iterable, Iterator, Optional, Sequence

import torch

from .._devices import bytes_of, mover

#: Places in slow memory begin at multiples of this.
GRAIN = 4096


class Places:
    """Which stretches of slow memory are free; the first that is large enough is taken."""

    def __init__(self, nbytes: int) -> None:
        self.free: list[tuple[int, int]] = [(0, nbytes)]
        self.used = 0
        self.most = 0

    def take(self, nbytes: int) -> int:
        """The offset of a free stretch."""
        size = -(-nbytes // GRAIN) * GRAIN
        for at, (offset, length) in enumerate(self.free):
            if length >= size:
                if length == size:
                    del self.free[at]
                else:
                    self.free[at] = (offset + size, length - size)
                self.used += size
                self.most = max(self.most, self.used)
                return offset
        free = sum(length for _, length in self.free)
        raise MemoryError(f"tiercel: {nbytes} bytes of slow memory wanted for a saved value; {free} are free, in {len(self.free)} pieces")

    def give_back(self, offset: int, nbytes: int) -> None:
        """Frees a stretch again."""
        size = -(-nbytes // GRAIN) * GRAIN
        self.used -= size
        at = bisect.bisect_left(self.free, (offset, 0))
        if at < len(self.free) and offset + size == self.free[at][0]:
            size += self.free.pop(at)[1]
        if at > 0 and sum(self.free[at - 1]) == offset:
            before = self.free[at - 1]
            self.free[at - 1] = (before[0], before[1] + size)
        else:
            self.free.insert(at, (offset, size))


class Away:
    """A storage that leaves, is away, or comes back."""

    __slots__ = ("nbytes", "offset", "out", "back", "gone", "ref")

    def __init__(self, nbytes: int, offset: int, out: int) -> None:
        self.nbytes, self.offset, self.out = nbytes, offset, out
        self.back: Optional[int] = None
        self.gone = False
        self.ref: Any = None


class Store:
    """Slow memory for the saved values of one device."""

    def __init__(self, device: torch.device, slow: int, folder: Optional[str]) -> None:
        self.device = device
        self.mover = mover(device)
        self.places = Places(slow)
        self.slab = self.mover.slab(slow, folder, True)
        self.away: dict[int, Away] = {}
        self.lock = threading.RLock()
        self.ticket = 0
        #: Bytes that left and came back so far, and values that could not leave because others share their storage.
        self.left = self.came = self.shared = 0

    def leave(self, values: Sequence[torch.Tensor]) -> None:
        """A copy of the values' storages to slow memory begins."""
        mine = []
        for storage in _storages(values):
            if bytes_of(storage) > max(reach(v) for v in values) + GRAIN or not storage.resizable():
                self.shared += 1  # the value is a part of something larger, which is not ours to take away
            else:
                mine.append(storage)
        self.leave_storages(mine)

    def release(self, values: Sequence[torch.Tensor]) -> None:
        """The values' memory is given up; what is computed next waits until the copies have read it."""
        self.release_storages(_storages(values))

    def fetch(self, values: Sequence[torch.Tensor]) -> None:
        """The values get memory again, and a copy back begins."""
        self.fetch_storages(_storages(values))

    def arrive(self, values: Sequence[torch.Tensor]) -> None:
        """What is computed next finds the values in place."""
        self.arrive_storages(_storages(values))

    def leave_storages(self, storages: Iterable[torch.UntypedStorage]) -> None:
        """The same for storages, as for those below."""
        with self.lock:
            for storage in storages:
                nbytes = bytes_of(storage)
                if storage._cdata not in self.away and nbytes > 0:
                    self._leave(storage, nbytes)

    def release_storages(self, storages: Iterable[torch.UntypedStorage]) -> None:
        with self.lock:
            for storage in storages:
                entry = self.away.get(storage._cdata)
                if entry is not None and not entry.gone:
                    self.mover.wait(entry.out)
                    storage.resize_(0)
                    entry.gone = True

    def fetch_storages(self, storages: Iterable[torch.UntypedStorage]) -> None:
        with self.lock:
            for storage in storages:
                entry = self.away.get(storage._cdata)
                if entry is not None and entry.gone and entry.back is None:
                    self.ticket += 1
                    entry.back = self.ticket
                    storage.resize_(entry.nbytes)
                    self.mover.back(entry.back, storage, self.slab, entry.offset, entry.nbytes, [entry.out])
                    self.came += entry.nbytes

    def arrive_storages(self, storages: Iterable[torch.UntypedStorage]) -> None:
        with self.lock:
            storages = list(storages)
            self.fetch_storages(storages)
            for storage in storages:
                entry = self.away.pop(storage._cdata, None)
                if entry is not None:
                    self._forget(storage._cdata, entry)

    def _leave(self, storage: torch.UntypedStorage, nbytes: int) -> None:
        self.ticket += 1
        entry = Away(nbytes, self.places.take(nbytes), self.ticket)
        self.mover.out(entry.out, storage, self.slab, entry.offset, nbytes, [])
        key, owner = storage._cdata, weakref.ref(self)

        def died(_: Any) -> None:
            store = owner()
            if store is not None:
                with store.lock:
                    if store.away.get(key) is entry:
                        store._forget(key, entry)

        entry.ref = weakref.ref(storage, died)
        self.away[key] = entry
        self.left += nbytes

    def _forget(self, key: int, entry: Away) -> None:
        """Lets what is computed next wait for a copy into memory that may now be anybody's, and frees the place."""
        self.away.pop(key, None)
        self.mover.wait(entry.out if entry.back is None else entry.back)
        self.places.give_back(entry.offset, entry.nbytes)

    def settle(self) -> None:
        """Forgets copies that have ended."""
        self.mover.ended()

    def bring_back(self) -> None:
        """Brings everything back that is alive."""
        with self.lock:
            for entry in list(self.away.values()):
                storage = entry.ref()
                if storage is not None:
                    self.arrive_storages([storage])
            self.mover.settle()

    @property
    def gone(self) -> int:
        """The bytes that are in slow memory alone now."""
        return sum(entry.nbytes for entry in self.away.values() if entry.gone and entry.back is None)


def _storages(values: Sequence[torch.Tensor]) -> Iterator[torch.UntypedStorage]:
    seen = set()
    for value in values:
        storage = value.untyped_storage()
        if storage._cdata not in seen:
            seen.add(storage._cdata)
            yield storage


def reach(value: torch.Tensor) -> int:
    """How far into its storage a tensor reaches, in bytes."""
    if value.numel() == 0:
        return 0
    last = value.storage_offset() + sum((size - 1) * stride for size, stride in zip(value.size(), value.stride()))
    return (last + 1) * value.element_size()

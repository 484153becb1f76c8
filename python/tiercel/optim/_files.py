"""States on a disk, for hosts whose memory is too small for them.

A few buckets' states are in memory at a time: those of one bucket are read while another's are updated and a third's are written
back. The files have no name: they are gone when the process ends, however it ends.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Iterator

import torch

from .._tiercel import Slab
from ._memory import host

#: Sets of buffers: one is read, one updated, one written.
SETS = 3
#: Bytes of a file; a larger bucket has one of its own.
EXTENT = 1 << 30

States = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Place:
    """Where a bucket's states lie."""

    def __init__(self, slab: Slab, offset: int, count: int) -> None:
        self.slab, self.offset, self.count = slab, offset, count
        #: Whether what was written last is there.
        self.written = threading.Event()
        self.written.set()


class Files:
    """States of many buckets in a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.slab, self.used, self.size = None, 0, 0
        self.free: SimpleQueue[torch.Tensor] = SimpleQueue()
        for _ in range(SETS):
            self.free.put(torch.empty(0))

    def place(self, count: int) -> Place:
        """Room for a bucket's states, which are zeros."""
        nbytes = 12 * count
        if self.slab is None or self.used + nbytes > self.size:
            self.size, self.used = max(EXTENT, nbytes), 0
            self.slab = Slab(self.size, self.folder)
        self.used += nbytes
        return Place(self.slab, self.used - nbytes, count)

    def take(self, place: Place) -> tuple[torch.Tensor, States]:
        """Memory, and a bucket's states in it. Waits until memory is free."""
        memory = self.free.get()
        try:
            if memory.numel() < 3 * place.count:
                memory = host(3 * place.count, torch.float32, False)
            place.written.wait()
            place.slab.read(place.offset, memory.data_ptr(), 12 * place.count)
        except BaseException:
            self.free.put(memory)
            raise
        return memory, tuple(memory[: 3 * place.count].view(3, place.count).unbind())

    def put(self, place: Place, memory: torch.Tensor, changed: bool) -> None:
        """Writes states back, and gives their memory up."""
        try:
            if changed:
                place.slab.write(place.offset, memory.data_ptr(), 12 * place.count)
        finally:
            place.written.set()
            self.free.put(memory)

    @contextmanager
    def states(self, place: Place, changed: bool) -> Iterator[States]:
        """A bucket's states for a while."""
        memory, states = self.take(place)
        try:
            yield states
        finally:
            self.put(place, memory, changed)

"""Moves bytes between storages and slow memory: on a GPU with two copy streams, on a processor with plain copies.

A mover knows nothing of who needs what. It takes a storage away or brings it back, tells when a copy has ended, and lets
the program's own stream wait for a copy. Everything on a GPU is ordered by streams and events: the host never waits.
"""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Optional

import torch

from ._tiercel import Slab

#: The address of a storage's bytes, for those who know that they are there.
address_of = torch.UntypedStorage.data_ptr
#: The bytes that a storage has now.
bytes_of = torch.UntypedStorage.nbytes

#: Host memory is pinned in pieces of this size, when they are first used.
PIECE = 64 << 20


class CpuMover:
    """Storages of a processor and slow memory behind them. Copies have ended when they return."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def slab(self, nbytes: int, folder: Optional[str], pinned: bool) -> Slab:
        return Slab(nbytes, folder)

    def out(self, ticket: int, storage: torch.UntypedStorage, slab: Slab, offset: int, nbytes: int, after: list[int]) -> object:
        slab.write(offset, address_of(storage), nbytes)
        return None

    def back(self, ticket: int, storage: torch.UntypedStorage, slab: Slab, offset: int, nbytes: int, after: list[int]) -> object:
        storage.resize_(nbytes)
        slab.read(offset, address_of(storage), nbytes)
        return None

    def keep(self, storage: torch.UntypedStorage, nbytes: int) -> object:
        """A copy of a storage's bytes, apart from all slabs."""
        slab = Slab(nbytes, None)
        slab.write(0, address_of(storage), nbytes)
        return slab, nbytes

    def keep_from(self, slab: Slab, offset: int, nbytes: int) -> object:
        """The same of bytes that lie in a slab."""
        kept = Slab(nbytes, None)
        slab.pass_on(offset, kept, 0, nbytes)
        return kept, nbytes

    def restore(self, storage: torch.UntypedStorage, kept: object) -> None:
        slab, nbytes = kept
        storage.resize_(nbytes)
        slab.read(0, address_of(storage), nbytes)

    def wait(self, ticket: int) -> None:
        pass

    def let(self, event: object) -> None:
        pass

    def has_ended(self, event: object) -> bool:
        return True

    def ended(self) -> list[int]:
        return []

    def settle(self) -> None:
        pass


class CudaMover:
    """Storages of a GPU and host memory behind them, pinned piece by piece; one stream for each direction."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.streams = (torch.cuda.Stream(device), torch.cuda.Stream(device))
        self.events: dict[int, torch.cuda.Event] = {}
        self.flying: deque[int] = deque()
        self.pinned: dict[int, set[int]] = {}
        self.views: dict[int, torch.Tensor] = {}
        self.spare: list[torch.cuda.Event] = []

    def slab(self, nbytes: int, folder: Optional[str], pinned: bool) -> Slab:
        if folder is not None:
            raise ValueError("a file behind a GPU is not supported yet; use host memory")
        slab = Slab(nbytes, None)
        address = slab.address
        memory = (ctypes.c_char * nbytes).from_address(address)
        view = torch.frombuffer(memory, dtype=torch.uint8)
        view._tiercel_slab = slab  # the addresses live as long as the view
        self.views[address] = view
        if pinned:
            self.pinned[address] = set()
        return slab

    def drop(self, slab: Slab) -> None:
        """Gives a slab back that no copy uses any more."""
        torch.cuda.synchronize(self.device)
        address = slab.address
        for piece in self.pinned.pop(address, ()):
            torch.cuda.cudart().cudaHostUnregister(address + piece * PIECE)
        self.views.pop(address, None)

    def _pieces(self, slab: Slab, offset: int, nbytes: int) -> list[tuple[int, int]]:
        """The stretches of a copy that each lie in one pinned piece; pins what is not pinned yet."""
        address = slab.address
        pinned = self.pinned.get(address)
        if pinned is None:
            return [(offset, nbytes)]
        stretches = []
        at, end = offset, offset + nbytes
        while at < end:
            piece = at // PIECE
            if piece not in pinned:
                code = torch.cuda.cudart().cudaHostRegister(address + piece * PIECE, PIECE, 0)
                if int(code) != 0:
                    raise MemoryError(f"{PIECE} bytes of host memory cannot be pinned (error {int(code)}); {len(pinned) * PIECE} are")
                pinned.add(piece)
            until = min(end, (piece + 1) * PIECE)
            stretches.append((at, until - at))
            at = until
        return stretches

    def _copy(self, which: int, ticket: int, storage, slab, offset: int, nbytes: int, after: list[int]) -> torch.cuda.Event:
        stream = self.streams[which]
        compute = torch.cuda.current_stream(self.device)
        begin = self.spare.pop() if self.spare else torch.cuda.Event()
        begin.record(compute)
        stream.wait_event(begin)
        self.spare.append(begin)
        for other in after:
            event = self.events.get(other)
            if event is not None:
                stream.wait_event(event)
        device = torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage, 0, (nbytes,), (1,))
        host = self.views[slab.address]
        with torch.cuda.stream(stream):
            for at, size in self._pieces(slab, offset, nbytes):
                inside = device[at - offset : at - offset + size]
                outside = host[at : at + size]
                if which == 0:
                    outside.copy_(inside, non_blocking=True)
                else:
                    inside.copy_(outside, non_blocking=True)
        event = torch.cuda.Event()
        event.record(stream)
        self.events[ticket] = event
        self.flying.append(ticket)
        return event

    def keep(self, storage, nbytes: int) -> torch.Tensor:
        """A copy of a storage's bytes, apart from all slabs."""
        return torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage, 0, (nbytes,), (1,)).cpu()

    def keep_from(self, slab: Slab, offset: int, nbytes: int) -> torch.Tensor:
        """The same of bytes that lie in a slab."""
        return self.views[slab.address][offset : offset + nbytes].clone()

    def restore(self, storage, kept: torch.Tensor) -> None:
        nbytes = kept.numel()
        storage.resize_(nbytes)
        torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage, 0, (nbytes,), (1,)).copy_(kept)

    def out(self, ticket: int, storage, slab: Slab, offset: int, nbytes: int, after: list[int]) -> torch.cuda.Event:
        return self._copy(0, ticket, storage, slab, offset, nbytes, after)

    def back(self, ticket: int, storage, slab: Slab, offset: int, nbytes: int, after: list[int]) -> torch.cuda.Event:
        storage.resize_(nbytes)
        return self._copy(1, ticket, storage, slab, offset, nbytes, after)

    def wait(self, ticket: int) -> None:
        event = self.events.get(ticket)
        if event is not None:
            torch.cuda.current_stream(self.device).wait_event(event)

    def let(self, event) -> None:
        """Has what runs next on the program's stream wait for an event."""
        if event is not None:
            torch.cuda.current_stream(self.device).wait_event(event)

    def has_ended(self, event) -> bool:
        return event is None or event.query()

    def ended(self) -> list[int]:
        """Copies that have ended since this was last asked, as far as the oldest ones tell."""
        done = []
        while self.flying and self.events[self.flying[0]].query():
            ticket = self.flying.popleft()
            del self.events[ticket]
            done.append(ticket)
        return done

    def settle(self) -> None:
        torch.cuda.synchronize(self.device)


def mover(device: torch.device):
    """The mover for a device."""
    return CudaMover(device) if device.type == "cuda" else CpuMover(device)

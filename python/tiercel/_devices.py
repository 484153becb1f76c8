"""Moves bytes between storages and slow memory: on a GPU with two copy streams, on a processor with plain copies.

A mover knows nothing of who needs what. It takes a storage's bytes away or brings them back, tells when a copy has ended, and lets
the program's own stream wait for a copy. Everything on a GPU is ordered by streams and events: the host never waits.
"""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any, Optional

import torch

from ._arena import is_shortage
from ._tiercel import Slab

#: The address of a storage's bytes, for those who know that they are there.
address_of = torch.UntypedStorage.data_ptr
#: The bytes that a storage has now.
bytes_of = torch.UntypedStorage.nbytes


class CpuMover:
    """Storages of a processor and slow memory behind them. Copies have ended when they return."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def slab(self, nbytes: int, folder: Optional[str], pinned: int = 0) -> Slab:
        return Slab(nbytes, folder)

    def prepare(self, slab: Slab, offset: int, nbytes: int) -> None:
        """A plan is going to use this part of a slab."""

    # --- on demand ---

    def out(self, ticket: int, storage: torch.UntypedStorage, slab: Slab, offset: int, nbytes: int, after: list[int]) -> Any:
        slab.write(offset, address_of(storage), nbytes)
        return None

    def back(self, ticket: int, storage: torch.UntypedStorage, slab: Slab, offset: int, nbytes: int, after: list[int]) -> Any:
        slab.read(offset, address_of(storage), nbytes)
        return None

    def wait(self, ticket: int) -> None:
        pass

    def ended(self) -> list[int]:
        return []

    def has_ended(self, event: Any) -> bool:
        return True

    # --- along a script ---

    def send(self, slot: int, storage: torch.UntypedStorage, slab: Slab, place: int, nbytes: int) -> Any:
        slab.write(place, address_of(storage), nbytes)
        return None

    def fetch(self, slot: int, storage: torch.UntypedStorage, slab: Slab, place: int, nbytes: int, left: Any) -> None:
        slab.read(place, address_of(storage), nbytes)

    def let(self, event: Any) -> None:
        pass

    def wait_for_arrival(self, slot: int) -> None:
        pass

    # --- at once ---

    def put(self, storage: torch.UntypedStorage, slab: Slab, place: int, nbytes: int) -> None:
        """Copies a storage's bytes to slow memory."""
        slab.write(place, address_of(storage), nbytes)

    def get(self, storage: torch.UntypedStorage, slab: Slab, place: int, nbytes: int) -> None:
        """Copies a storage's bytes from slow memory."""
        slab.read(place, address_of(storage), nbytes)

    def keep(self, storage: torch.UntypedStorage, nbytes: int) -> Any:
        """A copy of a storage's bytes, apart from all slabs."""
        kept = Slab(nbytes, None)
        kept.write(0, address_of(storage), nbytes)
        return kept, nbytes

    def keep_from(self, slab: Slab, offset: int, nbytes: int) -> Any:
        """The same of bytes that lie in a slab."""
        kept = Slab(nbytes, None)
        slab.pass_on(offset, kept, 0, nbytes)
        return kept, nbytes

    def put_kept(self, kept: Any, slab: Slab, place: int, nbytes: int) -> None:
        """Copies bytes that were kept apart to slow memory."""
        kept[0].pass_on(0, slab, place, nbytes)

    def restore(self, storage: torch.UntypedStorage, kept: Any) -> None:
        """Copies bytes that were kept apart to a storage that has memory for them."""
        kept[0].read(0, address_of(storage), kept[1])

    def stage(self, storages: list[tuple[torch.UntypedStorage, int]], room: int) -> list[Any]:
        """Copies of many storages' bytes, which are about to lose their memory for a moment."""
        return [self.keep(storage, nbytes) for storage, nbytes in storages]

    def unstage(self, staged: list[Any], at: int, storage: torch.UntypedStorage) -> None:
        """Copies staged bytes to a storage that has memory for them."""
        self.restore(storage, staged[at])

    def put_staged(self, staged: list[Any], at: int, slab: Slab, place: int) -> None:
        """Copies staged bytes to slow memory."""
        self.put_kept(staged[at], slab, place, staged[at][1])

    def pass_on(self, old: Slab, offset: int, slab: Slab, place: int, nbytes: int) -> None:
        """Copies bytes from one slab to another."""
        old.pass_on(offset, slab, place, nbytes)

    def tidy(self) -> None:
        """Memory that nobody has is given back."""

    def settle(self) -> None:
        pass


class HostMemory:
    """Slow memory behind a GPU. It is pinned in pieces, as they are first used; what cannot be pinned is slow, and works."""

    #: The size of a piece. A copy must not cross from one to the next.
    PIECE = 256 << 20

    def __init__(self, nbytes: int, pinned: Optional[int]) -> None:
        """`pinned` bytes at the beginning are pinned at once and others when they are used; with nothing given, none ever are."""
        self.slab = Slab(nbytes, None)
        self.address, self.nbytes = self.slab.address, nbytes
        self.known: set[int] = set()
        self.held: list[int] = []
        self.pins = pinned is not None
        if pinned:
            self.parts(0, pinned)

    def parts(self, offset: int, nbytes: int) -> list[tuple[int, int]]:
        """The parts of a copy, each in one piece: where they begin in it, and how long they are."""
        found, at, end = [], offset, offset + nbytes
        while at < end:
            piece = at // self.PIECE
            until = min(end, (piece + 1) * self.PIECE)
            if self.pins and piece not in self.known:
                self._pin(piece)
            found.append((at - offset, until - at))
            at = until
        return found

    def _pin(self, piece: int) -> None:
        self.known.add(piece)
        address = self.address + piece * self.PIECE
        code = int(torch.cuda.cudart().cudaHostRegister(address, min(self.PIECE, self.nbytes - piece * self.PIECE), 0))
        if code == 0:
            self.held.append(address)

    def __del__(self) -> None:
        if getattr(self, "held", None):
            torch.cuda.synchronize()
            for address in self.held:
                torch.cuda.cudart().cudaHostUnregister(address)


class CudaMover:
    """Storages of a GPU and host memory behind them; one stream for each direction."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.leaving, self.coming = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self.streams = (ctypes.c_void_p(self.leaving.cuda_stream), ctypes.c_void_p(self.coming.cuda_stream))
        self.copy = _copy_function()
        self.now = torch.cuda.Event()
        self.events: dict[int, torch.cuda.Event] = {}
        self.flying: deque[int] = deque()
        #: For each slot of a script, the end of its copy out and of its copy back.
        self.sent: dict[int, torch.cuda.Event] = {}
        self.arrived: dict[int, torch.cuda.Event] = {}

    def slab(self, nbytes: int, folder: Optional[str], pinned: int = 0) -> HostMemory:
        if folder is not None:
            raise ValueError("a file behind a GPU is not supported yet; use host memory")
        return HostMemory(nbytes, pinned)

    def prepare(self, slab: HostMemory, offset: int, nbytes: int) -> None:
        """A plan is going to use this part of a slab: it is pinned before."""
        slab.parts(offset, nbytes)

    def _issue(self, out: bool, here: int, slab: HostMemory, offset: int, nbytes: int, event: torch.cuda.Event) -> None:
        """A copy behind everything that the program's stream has been given so far."""
        stream = self.leaving if out else self.coming
        self.now.record(torch.cuda.current_stream(self.device))
        stream.wait_event(self.now)
        for at, size in slab.parts(offset, nbytes):
            near, far = here + at, slab.address + offset + at
            code = self.copy(far, near, size, 2, self.streams[0]) if out else self.copy(near, far, size, 1, self.streams[1])
            if code != 0:
                raise RuntimeError(f"a copy of {size} bytes {'from' if out else 'to'} {self.device} failed (CUDA error {code})")
        event.record(stream)

    # --- on demand ---

    def _numbered(self, out: bool, ticket: int, storage: torch.UntypedStorage, slab: HostMemory, offset: int, nbytes: int, after: list[int]) -> torch.cuda.Event:
        stream = self.leaving if out else self.coming
        for other in after:
            known = self.events.get(other)
            if known is not None:
                stream.wait_event(known)
        event = torch.cuda.Event()
        self._issue(out, address_of(storage), slab, offset, nbytes, event)
        self.events[ticket] = event
        self.flying.append(ticket)
        return event

    def out(self, ticket: int, storage: torch.UntypedStorage, slab: HostMemory, offset: int, nbytes: int, after: list[int]) -> torch.cuda.Event:
        return self._numbered(True, ticket, storage, slab, offset, nbytes, after)

    def back(self, ticket: int, storage: torch.UntypedStorage, slab: HostMemory, offset: int, nbytes: int, after: list[int]) -> torch.cuda.Event:
        return self._numbered(False, ticket, storage, slab, offset, nbytes, after)

    def wait(self, ticket: int) -> None:
        event = self.events.get(ticket)
        if event is not None:
            torch.cuda.current_stream(self.device).wait_event(event)

    def ended(self) -> list[int]:
        """Copies that have ended since this was last asked, as far as the oldest ones tell."""
        done = []
        while self.flying and self.events[self.flying[0]].query():
            ticket = self.flying.popleft()
            self.events.pop(ticket, None)
            done.append(ticket)
        return done

    def has_ended(self, event: Any) -> bool:
        return event is None or event.query()

    # --- along a script ---

    def send(self, slot: int, storage: torch.UntypedStorage, slab: HostMemory, place: int, nbytes: int) -> torch.cuda.Event:
        event = self.sent.get(slot)
        if event is None:
            event = self.sent[slot] = torch.cuda.Event()
        self._issue(True, address_of(storage), slab, place, nbytes, event)
        return event

    def fetch(self, slot: int, storage: torch.UntypedStorage, slab: HostMemory, place: int, nbytes: int, left: Any) -> None:
        if left is not None:
            self.coming.wait_event(left)
        event = self.arrived.get(slot)
        if event is None:
            event = self.arrived[slot] = torch.cuda.Event()
        self._issue(False, address_of(storage), slab, place, nbytes, event)

    def let(self, event: Any) -> None:
        """Has what runs next on the program's stream wait for an event."""
        if event is not None:
            torch.cuda.current_stream(self.device).wait_event(event)

    def wait_for_arrival(self, slot: int) -> None:
        """Has what runs next on the program's stream wait for a storage to be there."""
        torch.cuda.current_stream(self.device).wait_event(self.arrived[slot])

    # --- at once ---

    def put(self, storage: torch.UntypedStorage, slab: HostMemory, place: int, nbytes: int) -> None:
        """Copies a storage's bytes to slow memory."""
        self._issue(True, address_of(storage), slab, place, nbytes, torch.cuda.Event())
        self.leaving.synchronize()

    def get(self, storage: torch.UntypedStorage, slab: HostMemory, place: int, nbytes: int) -> None:
        """Copies a storage's bytes from slow memory."""
        self._issue(False, address_of(storage), slab, place, nbytes, torch.cuda.Event())
        self.coming.synchronize()

    def keep(self, storage: torch.UntypedStorage, nbytes: int) -> HostMemory:
        """A copy of a storage's bytes, apart from all slabs."""
        kept = HostMemory(nbytes, None)
        self.put(storage, kept, 0, nbytes)
        return kept

    def keep_from(self, slab: HostMemory, offset: int, nbytes: int) -> HostMemory:
        """The same of bytes that lie in a slab."""
        kept = HostMemory(nbytes, None)
        slab.slab.pass_on(offset, kept.slab, 0, nbytes)
        return kept

    def put_kept(self, kept: HostMemory, slab: HostMemory, place: int, nbytes: int) -> None:
        """Copies bytes that were kept apart to slow memory."""
        kept.slab.pass_on(0, slab.slab, place, nbytes)

    def restore(self, storage: torch.UntypedStorage, kept: HostMemory) -> None:
        """Copies bytes that were kept apart to a storage that has memory for them."""
        self.get(storage, kept, 0, kept.nbytes)

    def stage(self, storages: list[tuple[torch.UntypedStorage, int]], room: int) -> list[Any]:
        """Copies of many storages' bytes, which are about to lose their memory for a moment: on the device as far as it has room."""
        staged: list[Any] = []
        count, total = 0, 0
        while count < len(storages) and total + storages[count][1] <= room * 0.9:
            total += storages[count][1]
            count += 1
        # One block, so that the others come to lie side by side.
        try:
            block, at = torch.empty(total, dtype=torch.uint8, device=self.device), 0
        except RuntimeError as error:
            if not is_shortage(error):
                raise
            count = 0
        for storage, nbytes in storages[:count]:
            copy = block[at : at + nbytes]
            staged.append(copy.copy_(torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage, 0, (nbytes,), (1,))))
            at += nbytes
        return staged + [self.keep(storage, nbytes) for storage, nbytes in storages[count:]]

    def unstage(self, staged: list[Any], at: int, storage: torch.UntypedStorage) -> None:
        """Copies staged bytes to a storage that has memory for them."""
        kept = staged[at]
        if isinstance(kept, HostMemory):
            self.restore(storage, kept)
        else:
            torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage, 0, (kept.numel(),), (1,)).copy_(kept)

    def put_staged(self, staged: list[Any], at: int, slab: HostMemory, place: int) -> None:
        """Copies staged bytes to slow memory."""
        kept = staged[at]
        if isinstance(kept, HostMemory):
            self.put_kept(kept, slab, place, kept.nbytes)
        else:
            self._issue(True, kept.data_ptr(), slab, place, kept.numel(), torch.cuda.Event())
            self.leaving.synchronize()

    def pass_on(self, old: HostMemory, offset: int, slab: HostMemory, place: int, nbytes: int) -> None:
        """Copies bytes from one slab to another."""
        old.slab.pass_on(offset, slab.slab, place, nbytes)

    def tidy(self) -> None:
        """Memory that nobody has is given back."""
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()

    def settle(self) -> None:
        torch.cuda.synchronize(self.device)


def _copy_function() -> Any:
    """The runtime's own asynchronous copy, from the library that PyTorch has loaded."""
    major = (torch.version.cuda or "").split(".")[0]
    copy = ctypes.CDLL(f"libcudart.so.{major}").cudaMemcpyAsync
    copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    copy.restype = ctypes.c_int
    return copy


def mover(device: torch.device) -> Any:
    """The mover for a device."""
    return CudaMover(device) if device.type == "cuda" else CpuMover(device)

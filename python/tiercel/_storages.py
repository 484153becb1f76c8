"""The storages of a device: which there are, whether their bytes are there, and how much that is together.

A storage that is large enough is an :class:`Entry`. Its bytes can be taken away, and brought back, under the feet of
PyTorch, which goes on holding the storage. :class:`Storages` counts what is there; it decides nothing.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Callable, Optional

import torch

from . import _graft, _tiercel
from ._arena import is_shortage
from ._devices import address_of, bytes_of
from ._operations import tensors_in
from ._ours import movable

Tensor = torch.Tensor


class Entry:
    """A storage that is large enough to count."""

    __slots__ = ("number", "slot", "ref", "key", "nbytes", "resident", "home", "slab", "leaving", "leaves", "stash", "dropped", "freed", "name", "role", "rank")

    def __init__(self, number: int, nbytes: int) -> None:
        self.number, self.nbytes = number, nbytes
        #: Its place in the known iteration; -1 where it has none.
        self.slot = -1
        self.ref: Any = None
        self.key = 0
        self.resident = True
        #: Where its bytes are when they are away: a tier and an offset, in `slab`.
        self.home: Optional[tuple[int, int]] = None
        self.slab: Any = None
        #: The end of the copy that takes it away, and whether its memory may go then.
        self.leaving: Any = None
        self.leaves = False
        #: Its bytes, kept apart from all slabs.
        self.stash: Any = None
        #: Its bytes have been given up and will be made again.
        self.dropped = False
        #: Its owner has taken its memory, and knows.
        self.freed = False
        self.name, self.role = "", ""
        #: Which parameter of an optimizer's it is, from 1 on: what else is alike may be told by it.
        self.rank = 0

    def __str__(self) -> str:
        return f"a storage of {_tiercel.show_bytes(self.nbytes)}" + (f" ({self.name})" if self.name else "")


class Ref(weakref.ref):
    """A weak reference that knows its entry."""

    __slots__ = ("entry",)
    entry: Entry


class Storages:
    """All entries of a device."""

    def __init__(self, device: torch.device, least: int, capacity: int, mover: Any, arena: Any = None) -> None:
        self.device, self.least, self.capacity, self.mover = device, least, capacity, mover
        #: Who hands out the device's memory, where that is not PyTorch's allocator.
        self.arena = arena
        self.on_gpu = device.type == "cuda"
        self.entries: dict[int, Entry] = {}
        self.by_number: dict[int, Entry] = {}
        #: Entries whose storages died, by number, for those who keep books.
        self.dead: deque[int] = deque()
        #: Entries whose memory goes when the copy that takes them away has ended.
        self.leaving: deque[Entry] = deque()
        #: Entries that no operation of the known iteration wants any more, though the program still holds them.
        self.lingering: deque[Entry] = deque()
        self.live = 0
        self.peak = 0
        self.count = 0
        #: Called with a storage that died while it had a slot.
        self.on_death: Optional[Callable[[Entry], None]] = None
        #: Called to free memory where it is short, more each time.
        self.spare: Optional[Callable[[int], None]] = None
        #: Called to take away so many bytes where more is there than there should be.
        self.press: Optional[Callable[[int], None]] = None
        #: Whether an entry's bytes are still on their way.
        self.is_arriving: Callable[[Entry], bool] = lambda entry: False
        #: Entries that had to step aside, though somebody may want them next.
        self.stashed: list[Entry] = []
        #: What the running operation works on.
        self.in_use: set[Entry] = set()
        #: How often memory was short though it should not have been.
        self.retries = 0
        self._gone = self._forget

    # --- who is there ---

    def known(self, tensor: Tensor) -> Optional[Entry]:
        """The entry of a tensor's storage, where it has one."""
        try:
            return self.entries.get(tensor.untyped_storage()._cdata)
        except (NotImplementedError, RuntimeError):
            return None

    def candidate(self, tensor: Tensor) -> Optional[tuple[torch.UntypedStorage, int]]:
        """The storage of a tensor that has no entry and should, with its size."""
        if tensor.is_cuda != self.on_gpu or type(tensor) not in _PLAIN and not isinstance(tensor, torch.nn.Parameter):
            return None
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return None
        if storage._cdata in self.entries or storage.device.type != self.device.type:
            return None
        nbytes = bytes_of(storage)
        # What somebody else allocated, as a file that is read, cannot be taken away; what is ours in other ways is left alone.
        if nbytes < self.least or not movable(storage):
            return None
        return storage, nbytes

    def register(self, storage: torch.UntypedStorage, nbytes: int) -> Entry:
        """A new entry."""
        self.count += 1
        entry = Entry(self.count, nbytes)
        self.enter(entry, storage)
        return entry

    def enter(self, entry: Entry, storage: torch.UntypedStorage) -> None:
        """A storage that is there is this entry's from now on."""
        key = storage._cdata
        ref = Ref(storage, self._gone)
        ref.entry = entry
        entry.ref, entry.key, entry.resident, entry.dropped = ref, key, True, False
        entry.leaves, entry.leaving, entry.stash, entry.home = False, None, None, None
        self.entries[key] = entry
        self.by_number[entry.number] = entry
        self.live += entry.nbytes
        if self.live > self.peak:
            self.peak = self.live

    def made(self, result: Any) -> list[Entry]:
        """Entries for the new storages of a result."""
        made = []
        for tensor in tensors_in(result):
            found = self.candidate(tensor)
            if found is not None:
                made.append(self.register(*found))
        return made

    def _forget(self, ref: Ref) -> None:
        entry = ref.entry
        if entry.ref is not ref:
            return
        if self.entries.get(entry.key) is entry:
            del self.entries[entry.key]
        self.by_number.pop(entry.number, None)
        if entry.resident:
            entry.resident = False
            self.live -= entry.nbytes
        entry.leaves, entry.ref, entry.key = False, None, 0
        if entry.slot >= 0 and self.on_death is not None:
            self.on_death(entry)
        self.dead.append(entry.number)

    # --- memory ---

    def give(self, entry: Entry, storage: torch.UntypedStorage) -> None:
        """Memory for an entry that is away; its bytes are anything."""
        self.attempt(lambda: storage.resize_(entry.nbytes))
        self.has_memory(entry)

    def expect(self, entry: Entry, place: Optional[int]) -> None:
        """The memory that an entry gets next lies at a place of a plan's, where it has one."""
        if place is not None:
            self.arena.expect([(entry.nbytes, place, 0)], (0, 0))

    def come_back(self) -> None:
        """Entries that had to step aside are there again."""
        while self.stashed:
            self.unstash(self.stashed.pop())

    def lies_at(self, entry: Entry, place: int) -> bool:
        """Whether a storage that is there lies at a place of a plan's."""
        return self.arena.lies_at(address_of(entry.ref()), place)

    def go_to(self, entry: Entry, place: int) -> bool:
        """Moves a storage that is there to a place of a plan's, if nothing lies in it."""
        storage = entry.ref()
        self.expect(entry, place)
        new = self._elsewhere(entry)
        if new is None or not self.arena.lies_at(address_of(new.untyped_storage()), place) or not _graft.can():
            return False
        self._move(storage, new)
        return True

    def _elsewhere(self, entry: Entry) -> Optional[Tensor]:
        """Memory for an entry that has some, if there is any."""
        try:
            return torch.empty(entry.nbytes, dtype=torch.uint8, device=self.device)
        except RuntimeError as error:
            if not is_shortage(error):
                raise
            return None

    def _move(self, storage: torch.UntypedStorage, new: Tensor) -> None:
        """Gives a storage other memory, with its bytes; its own goes with `new`."""
        new.copy_(torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage, 0, (new.numel(),), (1,)))
        _graft.exchange(new.untyped_storage(), storage)

    def clear(self, nbytes: int) -> bool:
        """Makes one free stretch of memory of so many bytes by moving what lies in the way."""
        if self.arena is None or not _graft.can():
            return False
        # Large pieces find other places less often than small ones.
        return any(self._clear(nbytes, share) for share in (1, 2, 4, 8, 16))

    def _clear(self, nbytes: int, share: int) -> bool:
        movable = {}
        for entry in self.by_number.values():
            storage = entry.ref()
            if storage is not None and entry.resident and (entry.leaving is None or self.mover.has_ended(entry.leaving)) and not self.is_arriving(entry):
                movable[address_of(storage)] = entry
        addresses = self.arena.clear(nbytes, share, list(movable))
        try:
            for address in addresses or ():
                entry = movable[address]
                new = self._elsewhere(entry)
                if new is None and entry in self.in_use:
                    return False
                if new is None:
                    entry.stash = self.mover.keep(entry.ref(), entry.nbytes)
                    self.take(entry, entry.ref())
                    self.stashed.append(entry)
                else:
                    self._move(entry.ref(), new)
                    del new
        finally:
            self.arena.cleared()
        return addresses is not None

    def has_memory(self, entry: Entry) -> None:
        """An entry that was away has memory again."""
        entry.resident, entry.leaves, entry.leaving, entry.freed = True, False, None, False
        self.live += entry.nbytes
        if self.live > self.peak:
            self.peak = self.live

    def take(self, entry: Entry, storage: torch.UntypedStorage) -> None:
        """Takes an entry's memory, at once."""
        entry.resident, entry.leaves, entry.leaving = False, False, None
        self.live -= entry.nbytes
        storage.resize_(0)

    def gave_up(self, entry: Entry) -> None:
        """Somebody else has taken an entry's memory."""
        entry.resident, entry.leaves, entry.leaving, entry.freed = False, False, None, True
        self.live -= entry.nbytes

    def may_leave(self, entry: Entry) -> None:
        """An entry's memory may go when the copy that takes it away has ended."""
        entry.leaves = True
        self.leaving.append(entry)

    def _let_leave(self, entry: Entry, wait: bool) -> None:
        storage = entry.ref() if entry.ref is not None else None
        if not entry.leaves or storage is None or not entry.resident:
            return
        if wait:
            self.mover.let(entry.leaving)
        self.take(entry, storage)

    def flush(self) -> None:
        """Takes the memory of those whose copies have ended."""
        while self.leaving and (not self.leaving[0].leaves or self.mover.has_ended(self.leaving[0].leaving)):
            self._let_leave(self.leaving.popleft(), False)

    def flush_all(self) -> None:
        """Takes the memory of all that may leave; what runs next waits for their copies."""
        while self.leaving:
            self._let_leave(self.leaving.popleft(), True)

    def make_room(self, nbytes: int) -> None:
        """Takes away what may leave until there is room for so many bytes, then what lingers."""
        while self.leaving and self.live + nbytes > self.capacity:
            self._let_leave(self.leaving.popleft(), True)
        while self.lingering and self.live + nbytes > self.capacity:
            entry = self.lingering.popleft()
            storage = entry.ref() if entry.ref is not None else None
            if storage is not None and entry.resident:
                entry.stash = self.mover.keep(storage, entry.nbytes)
                self.take(entry, storage)
        if self.press is not None and self.live + nbytes > self.capacity:
            self.press(self.live + nbytes - self.capacity)

    def unstash(self, entry: Entry) -> None:
        """Brings back what was kept apart."""
        storage = entry.ref() if entry.ref is not None else None
        if entry.stash is None or storage is None:
            return
        self.make_room(entry.nbytes)
        self.give(entry, storage)
        self.mover.restore(storage, entry.stash)
        entry.stash = None

    def fetch_apart(self, entry: Entry) -> None:
        """Brings a storage back from its home at once, past everything that was planned."""
        storage = entry.ref() if entry.ref is not None else None
        if entry.stash is not None:
            self.unstash(entry)
        elif storage is not None and not (entry.resident or entry.dropped or entry.freed):
            self.make_room(entry.nbytes)
            self.give(entry, storage)
            self.mover.back(-1, storage, entry.slab, entry.home[1], entry.nbytes, [])
            self.mover.settle()

    def attempt(self, run: Callable[[], Any]) -> Any:
        """Runs something that may find no memory; then what can go goes, more each time, and it runs again."""
        last = 3 if self.arena is None else 5
        wanted = 0
        for attempt in range(last + 1):
            try:
                return run()
            except RuntimeError as error:
                if not is_shortage(error):
                    raise
                if attempt == last:
                    raise torch.OutOfMemoryError(str(error).splitlines()[0]) from None
                self.retries += 1
                before = self.live
                self.flush_all()
                if self.arena is not None and self.arena.wanted() != wanted:
                    # What is free may be enough, in pieces.
                    wanted = self.arena.wanted()
                    if self.clear(wanted):
                        continue
                if attempt > 0 or self.live == before:
                    self.make_room(self.capacity)
                    if self.spare is not None:
                        self.spare(attempt)
                if self.arena is None:
                    torch.cuda.synchronize(self.device)
                    torch.cuda.empty_cache()
        raise AssertionError("unreachable")


_PLAIN = (Tensor, torch.nn.Parameter)

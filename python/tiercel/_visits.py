"""Somebody looks at bytes past all operations: they are brought for a while, and go back to where the plan has them."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterable, Iterator, Optional

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ._devices import bytes_of
from ._operations import tensors_in
from ._storages import Entry, Storages


class Visits:
    """What a runtime does for those who reach for bytes from outside."""

    lock: threading.RLock
    storages: Storages
    entries: dict[int, Entry]
    mover: Any
    demand: Any
    following: Any
    current: Any
    visitors: list[Entry]
    active: bool
    on_gpu: bool
    folder: Optional[str]
    child: Any
    _part: Any

    def visit(self, storage: torch.UntypedStorage) -> None:
        """Brings a storage back for somebody who reads or writes its bytes past all operations."""
        entry = self.entries.get(storage._cdata)
        if entry is None or entry.freed:
            return
        with self.lock, _disable_current_modes():
            if entry.dropped and self.following is not None:
                self._part("somebody looks at bytes that would be made again only later")
            if entry.resident and not entry.leaves and (self.following is None or entry.leaving is None):
                if self.following is not None and entry.slot in self.following.arriving:
                    self.mover.settle()
                return
            if self.demand is not None:
                self.demand.bring(entry)
            elif entry.resident:
                self.mover.settle()
                return
            else:
                stashed = entry.stash is not None
                self.storages.fetch_apart(entry)
                if not stashed:
                    self.visitors.append(entry)
            self.mover.settle()

    @contextlib.contextmanager
    def in_place(self, storages: Iterable[torch.UntypedStorage]) -> Iterator[None]:
        """Holds storages on the device while something runs that is no operation, as a compiled program."""
        with self.lock:
            demand = self.demand
            known = [self.entries[s._cdata] for s in storages if s._cdata in self.entries]
            if demand is None:
                for storage in storages:
                    self.visit(storage)
            elif known:
                # All at once, so that bringing one does not take another away, and until all has run.
                demand.hold(known)
        try:
            yield
        finally:
            if demand is not None and known:
                with self.lock:
                    demand.let_go(demand is self.demand)

    def _see_off(self) -> None:
        """Takes visitors back to where the plan has them, with whatever was written to them."""
        for entry in self.visitors:
            storage = entry.ref() if entry.ref is not None else None
            if storage is not None and entry.resident and self.following is not None:
                self.mover.put(storage, entry.slab, entry.home[1], entry.nbytes)
                self.storages.take(entry, storage)
        self.visitors.clear()

    def forked(self) -> None:
        """This process is a forked child, as a data loader's worker is. What was away in memory is there as it was: it has a copy of the
        books and of slow memory. A file is the parent's, and so is a GPU: nothing moves here, and what is away cannot be had."""
        self.lock = threading.RLock()
        if self.on_gpu or self.folder is not None:
            self.child = self._see_whether_away
            self.active = False

    def _see_whether_away(self, args: tuple, kwargs: dict) -> None:
        for tensor in tensors_in((args, kwargs)):
            entry = self.storages.known(tensor)
            if entry is not None and not entry.resident:
                raise RuntimeError(f"tiercel: a forked process works on {entry} that lies in the parent's slow memory; start workers with "
                                   "multiprocessing_context=\"spawn\", or make what they work on before the limit is set")

    def size_of(self, storage: torch.UntypedStorage) -> Optional[int]:
        """The bytes that a storage has when it is there; `None` where the runtime does not know it."""
        entry = self.entries.get(storage._cdata)
        if entry is None:
            return None
        # Its owner may have taken its memory; then it is not ours that it is away.
        return bytes_of(storage) if entry.resident or entry.freed else entry.nbytes

    def bring_all_back(self) -> None:
        """Brings everything back; used when the limit is lifted."""
        with self.lock, _disable_current_modes():
            self.storages.capacity = 1 << 62
            if self.following is not None:
                self.following.leave()
            for entry in list(self.storages.by_number.values()):
                entry.leaves = False
                self.storages.fetch_apart(entry)
            self.mover.settle()
            self.following, self.current = None, None
            self.active = False

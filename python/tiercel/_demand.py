"""Serves operations as they come, while nothing is known of them: what one needs is brought, what was used longest ago leaves.

The books in Rust decide, with the house's manager and a policy that needs no plan. Beside that each operation can be
recorded, with its time and the memory that it needed.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Optional

import torch

from . import _tiercel
from ._again import repeatable
from ._arena import is_shortage
from ._devices import address_of, bytes_of
from ._operations import Kind, learn_sizes, result_sizes
from ._sequence import Record, Seen, Touched
from ._storages import Entry, Storages

Tensor = torch.Tensor


class Demand:
    """Books over all storages, for operations of which nothing is known."""

    def __init__(self, storages: Storages, machine: str, room: int, slow: int, slab: Any) -> None:
        self.storages, self.mover, self.slab, self.room = storages, storages.mover, slab, room
        self.least, self.on_gpu = storages.least, storages.on_gpu
        self.books = _tiercel.Books.on_demand(machine, [room, slow])
        #: Whether the books are between the beginning and the end of an operation.
        self.busy = False
        #: What operations needed beside their results.
        self.workspaces: dict[Any, int] = {}
        storages.spare = self._spare

    def entry(self, tensor: Tensor) -> Optional[Entry]:
        """The entry of a tensor's storage; one that nobody knows yet is taken up."""
        known = self.storages.known(tensor)
        if known is not None:
            return known
        found = self.storages.candidate(tensor)
        if found is None:
            return None
        entry = self.storages.register(*found)
        if isinstance(tensor, torch.nn.Parameter):
            entry.role = "weight"
        self.do(self.books.adopt(entry.number, entry.nbytes, None))
        return entry

    def adopt_all(self) -> None:
        """Takes up every storage where it is."""
        # What is away has its place; what is there may have to make room; what was kept apart comes back last.
        for entry in sorted(self.storages.by_number.values(), key=lambda e: (e.stash is not None, e.resident)):
            entry.slot = -1
            away = not entry.resident and entry.stash is None
            self.do(self.books.adopt(entry.number, entry.nbytes, entry.home if away else None))
            self.storages.unstash(entry)

    def do(self, tasks: list[tuple]) -> None:
        """Does what the books want done."""
        storages = self.storages
        for kind, ticket, number, from_tier, from_at, to_tier, to_at, nbytes, after in tasks:
            if kind == 1:
                self.mover.wait(ticket)
                continue
            entry = storages.by_number.get(number)
            storage = None if entry is None else entry.ref()
            if kind == 2:
                if storage is not None and entry.resident and not entry.leaves:
                    storages.may_leave(entry)
                    if not self.on_gpu:
                        storages.flush()
            elif kind == 3:
                continue
            elif storage is None:
                self.books.ended([ticket])
            elif to_tier == 0:
                self._back(ticket, entry, storage, from_at, after)
            elif from_tier == 0:
                if entry.stash is not None:
                    # It had to step aside before.
                    self.mover.put_kept(entry.stash, self.slab, to_at, nbytes)
                    entry.home, entry.slab, entry.stash = (to_tier, to_at), self.slab, None
                    self.books.ended([ticket])
                    continue
                if not entry.resident:
                    raise RuntimeError(f"tiercel: {entry} is to leave the device, but is not there")
                if bytes_of(storage) == 0:
                    # Its owner has given its bytes up, as FSDP does, and fills it anew before it is used.
                    self.storages.gave_up(entry)
                    entry.home, entry.slab = (to_tier, to_at), self.slab
                    self.books.ended([ticket])
                    continue
                entry.leaving = self.mover.out(ticket, storage, self.slab, to_at, nbytes, after)
                entry.home, entry.slab = (to_tier, to_at), self.slab
                if entry.leaving is None:
                    self.books.ended([ticket])

    def _back(self, ticket: int, entry: Entry, storage: torch.UntypedStorage, offset: int, after: list[int]) -> None:
        if entry.resident:
            # It was given up, but its memory has not been taken away yet: the bytes are still there.
            entry.leaves = False
            self.books.ended([ticket])
            return
        if bytes_of(storage) >= entry.nbytes:
            # Its owner has filled it.
            self.storages.has_memory(entry)
            self.books.ended([ticket])
            return
        self.storages.make_room(entry.nbytes)
        self.storages.give(entry, storage)
        if self.mover.back(ticket, storage, self.slab, offset, entry.nbytes, after) is None:
            self.books.ended([ticket])

    def bring(self, entry: Entry) -> None:
        """Brings a storage to the device for somebody who reads or writes it past all operations."""
        self._bury()
        self.do(self.books.begin([(entry.number, 2)], []))
        self.do(self.books.end([]))

    def hold(self, entries: list[Entry]) -> None:
        """Brings storages to the device, where they stay until they are let go."""
        self._bury()
        self.do(self.books.begin([(entry.number, 2) for entry in entries], []))
        self.busy = True

    def let_go(self, current: bool) -> None:
        """What was held need not stay; `current` says whether these books still count."""
        self.busy = False
        if current:
            self.do(self.books.end([]))

    def _bury(self, record: Optional[Record] = None) -> None:
        while self.storages.dead:
            number = self.storages.dead.popleft()
            self.books.retire(number)
            if record is not None:
                record.died(number)

    def _spare(self, attempt: int) -> None:
        """Frees memory beyond what the books gave up."""
        if self.busy:
            return
        try:
            self.do(self.books.begin([], [min(self.room // 3, (1 << 30) << attempt)]))
            self.do(self.books.end([]))
        except MemoryError:
            pass
        self.storages.flush_all()

    def serve(self, func: Any, kind: Kind, args: tuple, kwargs: dict, phase: Callable[[], int], record: Optional[Record], timed: bool) -> Any:
        """Runs an operation with everything that it needs in place, and records it where somebody wants that."""
        books = self.books
        touched = Touched(kind, args, kwargs, self.entry)
        self._bury(record)
        ended = self.mover.ended()
        if ended:
            books.ended(ended)
        self.storages.flush()
        self.storages.come_back()
        rows: dict[int, int] = {}
        for entry, written in touched.uses:
            rows[entry.number] = rows.get(entry.number, 0) | (2 if written else 0)
        view = kind.is_view
        born = () if view else result_sizes(func, args, kwargs, self.least)
        spare = self._beside(func, born)
        served = bool(rows or born)
        arena = self.storages.arena if record is not None and born else None
        self.storages.in_use = {entry for entry, _ in touched.uses}
        more: tuple[int, ...] = ()
        run = repeatable(func, self.storages.device, lambda: func(*args, **kwargs)) if self.on_gpu else lambda: func(*args, **kwargs)
        while True:
            if served:
                try:
                    tasks = books.begin(list(rows.items()), list(born + spare + more))
                except MemoryError as error:
                    raise self._too_small(func, touched, born, error) from None
                self.do(tasks)
                self.storages.make_room(sum(born) + sum(spare) + sum(more))
                self.busy = True
            if arena is not None:
                arena.watch()
            clock, before = self._start(view or record is None or not timed)
            try:
                result = self.storages.attempt(run)
                break
            except BaseException as error:
                self.busy = False
                if served:
                    self.do(books.end([]))
                # What is free lies in pieces: more of it has to be.
                more = (sum(more) * 2 or max(born, default=self.room // 16),)
                if not served or self.storages.arena is None or not is_shortage(error) or sum(more) > self.room // 2:
                    raise
        self.busy = False
        made = [] if view else self.storages.made(result)
        clock, workspace = self._stop(clock, before, made)
        if born and clock is not None and self.on_gpu:
            self.workspaces[func, born] = workspace
        if sum(e.nbytes for e in made) > sum(born):
            learn_sizes(func, args, kwargs, tuple(e.nbytes for e in made))
        if served:
            self.do(books.end([(entry.number, entry.nbytes) for entry in made]))
        else:
            for entry in made:
                self.do(books.adopt(entry.number, entry.nbytes, None))
        if record is not None:
            seen = Seen(func, view, touched, tuple(e.number for e in made), tuple(e.nbytes for e in made), phase(), clock, workspace)
            if arena is not None and made:
                seen.later = _later(arena.taken(), made)
            record.add(seen, touched, made)
        return result

    def _beside(self, func: Any, born: tuple) -> tuple[int, ...]:
        """What an operation needs beside its results shows only when it runs; at first as much again is kept free."""
        if not self.on_gpu or not born:
            return ()
        beside = self.workspaces.get((func, born), min(max(born), self.room // 8))
        return (beside,) if beside >= self.least else ()

    def _too_small(self, func: Any, touched: Touched, born: tuple, error: Exception) -> Exception:
        wanted = sum(e.nbytes for e in {e.number: e for e, _ in touched.uses}.values()) + sum(born)
        show = _tiercel.show_bytes
        text = (f"tiercel: {func} works on {show(wanted)} at once; the limit leaves {show(self.room)}. "
                f"A limit of {show(int(wanted * 1.1))} or more, a smaller batch or shorter chunks would help. ({error})")
        return torch.OutOfMemoryError(text) if self.on_gpu else MemoryError(text)

    def _start(self, idle: bool) -> tuple[Any, int]:
        if idle:
            return None, 0
        if not self.on_gpu:
            return time.perf_counter_ns(), 0
        device = self.storages.device
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["current"]
        torch.cuda._sleep(120_000)  # the host gets ahead, so that the time is the operation's alone
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event, before

    def _stop(self, clock: Any, before: int, made: list[Entry]) -> tuple[Any, int]:
        if clock is None:
            return None, 0
        if not self.on_gpu:
            return time.perf_counter_ns() - clock, 0
        device = self.storages.device
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        peak = torch.cuda.memory.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["peak"]
        return (clock, event), max(0, peak - before - sum(e.nbytes for e in made))


def _later(taken: list[tuple[int, int]], made: list[Entry]) -> tuple[int, ...]:
    """For each storage that an operation made, how many pieces of its size it had taken before for its own use."""
    found, ours = [], {address_of(entry.ref()) for entry in made}
    for entry in made:
        address, count = address_of(entry.ref()), 0
        last = max((at for at, (other, _) in enumerate(taken) if other == address), default=0)
        for other, nbytes in taken[:last]:
            count += other not in ours and -(-nbytes // 512) == -(-entry.nbytes // 512)
        found.append(count)
    return tuple(found)


def elapsed(clock: Any) -> float:
    """The nanoseconds that a recorded operation took."""
    if clock is None:
        return 0.0
    return float(clock) if not isinstance(clock, tuple) else clock[0].elapsed_time(clock[1]) * 1e6

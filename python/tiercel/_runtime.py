"""The runtime: serves operations on demand while nothing is known, records what they do, and then follows a plan.

The books in Rust decide; this file sees operations, knows storages, and does what the books say. Every storage of the
device that is large enough is an object there. While a sequence of operations is unknown each one is served as it comes:
what it needs is brought, what was used longest ago leaves. When an iteration has been seen twice, its trace is planned in
the background; from the next iteration on the plan is followed, operation by operation, until something else happens.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from typing import Any, Optional

import torch

from . import _tiercel
from ._again import Note
from ._devices import bytes_of, mover
from ._operations import Kind, kind_of, learn_sizes, pieces, result_sizes, tensors_in
from ._ours import movable
from ._sequence import Play, Seen, Sequence

Tensor = torch.Tensor


class Entry:
    """A storage in the books."""

    __slots__ = ("number", "slot", "ref", "nbytes", "resident", "home", "slab", "leaving", "leaves", "stash", "dropped", "name", "role", "__weakref__")

    def __init__(self, number: int, nbytes: int) -> None:
        self.number, self.nbytes = number, nbytes
        self.slot = -1
        self.ref: Any = None
        self.resident = True
        self.home: Optional[tuple[int, int]] = None
        self.slab: Any = None
        self.leaving: Any = None
        self.leaves = False
        self.stash: Any = None
        self.dropped = False
        self.name, self.role = "", ""


class Runtime:
    """One device with a limit."""

    def __init__(self, device: torch.device, limit: int, slow: int, folder: Optional[str], system: str, machine: str,
                 least: int, seconds: float, verbose: bool) -> None:
        self.device, self.limit, self.slow, self.folder = device, limit, slow, folder
        self.system, self.machine, self.least, self.seconds, self.verbose = system, machine, least, seconds, verbose
        self.on_gpu = device.type == "cuda"
        self.capacity = limit
        self.mover = mover(device)
        self.lock = threading.RLock()
        self.entries: dict[int, Entry] = {}
        self.by_number: dict[int, Entry] = {}
        self.dead: deque[int] = deque()
        self.leaving: deque[Entry] = deque()
        self.lingering: deque[Entry] = deque()
        self.visitors: list[Entry] = []
        self.live = 0
        self.peak = 0
        self.count = 0
        self.slab = self.mover.slab(slow, folder, False)
        self.books = _tiercel.Books.on_demand(machine, [self._room_for_books(), slow])
        self.following: Optional[Sequence] = None
        self.by_slot: list[Optional[Entry]] = []
        self.play: Any = None
        self.notes: dict[int, Note] = {}
        self.held: dict[int, torch.UntypedStorage] = {}
        self.at = 0
        self.seen: Optional[list[Seen]] = []
        self.sizes: dict[int, int] = {}
        self.phase = 0
        self.known: Optional[Sequence] = None
        self.planning: Optional[threading.Thread] = None
        self.planned: Optional[tuple[Sequence, Any]] = None
        self.refused: Optional[str] = None
        self.iteration = 0
        self.began = time.perf_counter()
        self.workspaces: dict[Any, int] = {}
        self.history: list[dict] = []
        self.diverged = 0
        self.misses = 0
        self.active = True
        #: Whether the books are between the beginning and the end of an operation.
        self.busy = False
        self.moved_before = [0, 0]

    def moved(self) -> tuple[int, int]:
        """Bytes fetched and evicted so far."""
        fetched, evicted = self.books.moved()
        return self.moved_before[0] + fetched, self.moved_before[1] + evicted

    def _change_books(self, books: Any) -> None:
        self.moved_before = list(self.moved())
        self.books = books

    # --- room ---

    def _room_for_books(self) -> int:
        """What the books may hand out: the limit, less what is too small for the books and what an allocator loses."""
        if not self.on_gpu:
            return self.limit
        return max(self.least, int(self.limit * 0.94) - (64 << 20))

    def _make_room(self, nbytes: int) -> None:
        """Takes away what the books have given up, until there is physical room for so many bytes; then what no operation of
        the sequence wants any more, though the program still holds it."""
        while self.leaving and self.live + nbytes > self.capacity:
            self._take_away(self.leaving.popleft(), True)
        while self.lingering and self.live + nbytes > self.capacity:
            entry = self.lingering.popleft()
            storage = entry.ref()
            if storage is not None and entry.resident:
                entry.stash = self.mover.keep(storage, entry.nbytes)
                entry.resident = False
                self.live -= entry.nbytes
                storage.resize_(0)

    def _unstash(self, entry: Entry) -> None:
        """Brings back what was kept apart, for somebody who does want it."""
        storage = entry.ref()
        if entry.stash is None or storage is None:
            return
        self._make_room(entry.nbytes)
        self.mover.restore(storage, entry.stash)
        entry.stash, entry.resident = None, True
        self.live += entry.nbytes
        self.peak = max(self.peak, self.live)

    def _flush(self) -> None:
        while self.leaving and (not self.leaving[0].leaves or self.mover.has_ended(self.leaving[0].leaving)):
            self._take_away(self.leaving.popleft(), False)

    def _take_away(self, entry: Entry, wait: bool) -> None:
        storage = entry.ref()
        if not entry.leaves or storage is None or not entry.resident:
            return
        if wait:
            self.mover.let(entry.leaving)
        entry.leaves, entry.resident, entry.leaving = False, False, None
        self.live -= entry.nbytes
        storage.resize_(0)

    # --- storages ---

    def entry(self, tensor: Tensor) -> Optional[Entry]:
        """The entry of a tensor's storage; `None` for what is small, lies elsewhere, or has no plain storage."""
        if tensor.is_cuda != self.on_gpu or tensor.is_sparse or not type(tensor) in _PLAIN:
            if not isinstance(tensor, torch.nn.Parameter) or tensor.is_cuda != self.on_gpu:
                return None
        storage = tensor.untyped_storage()
        known = self.entries.get(storage._cdata)
        if known is not None:
            return known
        nbytes = bytes_of(storage)
        # What somebody else allocated, as a file that is read, cannot be taken away; what is ours in other ways is left alone.
        if nbytes < self.least or storage.device.type != self.device.type or not movable(storage):
            return None
        entry = self._register(storage, nbytes)
        if isinstance(tensor, torch.nn.Parameter):
            entry.role = "weight"
        if self.following is None:
            self._do(self.books.adopt(entry.number, nbytes, None))
        return entry

    def _register(self, storage: torch.UntypedStorage, nbytes: int) -> Entry:
        self.count += 1
        entry = Entry(self.count, nbytes)
        key, owner = storage._cdata, weakref.ref(self)

        def gone(_: Any) -> None:
            runtime = owner()
            if runtime is None:
                return
            if runtime.entries.get(key) is entry:
                del runtime.entries[key]
            runtime.by_number.pop(entry.number, None)
            if entry.resident:
                entry.resident = False
                runtime.live -= entry.nbytes
            entry.leaves = False
            if 0 <= entry.slot < len(runtime.by_slot) and runtime.by_slot[entry.slot] is entry:
                runtime.by_slot[entry.slot] = None
            runtime.dead.append(entry.number)

        entry.ref = weakref.ref(storage, gone)
        self.entries[key] = entry
        self.by_number[entry.number] = entry
        self.sizes[entry.number] = nbytes
        self.live += nbytes
        self.peak = max(self.peak, self.live)
        return entry

    def _made(self, result: Any) -> list[Entry]:
        """Entries for the new storages of a result."""
        made = []
        for tensor in tensors_in(result):
            if tensor.is_cuda != self.on_gpu or tensor.is_sparse:
                continue
            try:
                storage = tensor.untyped_storage()
            except (NotImplementedError, RuntimeError):
                continue
            if storage._cdata in self.entries or storage.device.type != self.device.type:
                continue
            nbytes = bytes_of(storage)
            if nbytes >= self.least and movable(storage):
                made.append(self._register(storage, nbytes))
        return made

    # --- orders ---

    def _do(self, tasks: list[tuple]) -> None:
        for kind, ticket, number, from_tier, from_at, to_tier, to_at, nbytes, after in tasks:
            if kind == 1:
                self.mover.wait(ticket)
                continue
            entry = self._named(number)
            storage = None if entry is None else entry.ref()
            if kind == 2:
                if storage is not None and entry.resident and not entry.leaves:
                    entry.leaves = True
                    self.leaving.append(entry)
                    if not self.on_gpu:
                        self._flush()
                continue
            if kind == 3:
                if storage is not None and entry.resident and number in self.play.dropped:
                    self._drop(entry, storage)
                continue
            if storage is None:
                self.books.ended([ticket])
            elif to_tier == 0:
                self._back(ticket, entry, storage, from_at, after)
            elif from_tier == 0:
                if not entry.resident:
                    raise RuntimeError(f"tiercel: {self._what(entry)} is to leave the device, but is not there")
                entry.leaving = self.mover.out(ticket, storage, self.slab, to_at, nbytes, after)
                entry.home, entry.slab = (to_tier, to_at), self.slab
                if entry.leaving is None:
                    self.books.ended([ticket])

    def _drop(self, entry: Entry, storage: torch.UntypedStorage) -> None:
        """Gives up bytes that will be made again."""
        if entry.leaves and entry.leaving is not None:
            self.mover.let(entry.leaving)
        entry.leaves, entry.leaving, entry.resident, entry.dropped = False, None, False, True
        self.live -= entry.nbytes
        storage.resize_(0)

    def _refill(self, slot: int) -> torch.UntypedStorage:
        """Memory for bytes that are about to be made again."""
        entry = self.by_slot[slot]
        storage = entry.ref()
        if entry.dropped:
            self._make_room(entry.nbytes)
            self._try(lambda: storage.resize_(entry.nbytes))
            entry.dropped, entry.resident = False, True
            self.live += entry.nbytes
            self.peak = max(self.peak, self.live)
        return storage

    def _run_again(self, at: int, group: int) -> None:
        """Plays a kernel of the plan that runs an earlier operation once more."""
        self._do(self.books.begin_step(at))
        self.notes[group].run(lambda slot: self.by_slot[slot].ref(), self._refill)
        self._do(self.books.end_step(at))
        self._let_go(at)

    def _let_go(self, at: int) -> None:
        """A kernel of the plan has ended: what no later one touches need not be held, and lingers where the program holds it."""
        for slot in self.play.last[at]:
            self.held.pop(slot, None)
            entry = self.by_slot[slot]
            if entry is not None and entry.resident:
                self.lingering.append(entry)

    def _back(self, ticket: int, entry: Entry, storage: torch.UntypedStorage, offset: int, after: list[int]) -> None:
        if entry.resident:
            # It was given up, but its memory has not been taken away yet: the bytes are still there.
            entry.leaves = False
            self.books.ended([ticket])
            return
        self._make_room(entry.nbytes)
        event = self._try(lambda: self.mover.back(ticket, storage, self.slab, offset, entry.nbytes, after))
        entry.resident, entry.leaves, entry.leaving = True, False, None
        self.live += entry.nbytes
        self.peak = max(self.peak, self.live)
        if event is None:
            self.books.ended([ticket])

    def _named(self, number: int) -> Optional[Entry]:
        if self.following is not None:
            slot = self.play.tensors[number]
            return self.by_slot[slot] if slot < len(self.by_slot) else None
        return self.by_number.get(number)

    def _what(self, entry: Entry) -> str:
        return f"a storage of {_tiercel.show_bytes(entry.nbytes)}" + (f" ({entry.name})" if entry.name else "")

    def _try(self, run: Any) -> Any:
        """Runs something that may find no memory; then what can go goes, more each time, and it runs again."""
        for attempt in range(4):
            try:
                return run()
            except torch.OutOfMemoryError:
                if attempt == 3:
                    raise
                self.misses += 1
                self._spare(attempt)
        raise AssertionError("unreachable")

    def _spare(self, attempt: int) -> None:
        """Frees memory beyond what the books gave up: first what lingers, then, on demand, what was used longest ago."""
        while self.leaving:
            self._take_away(self.leaving.popleft(), True)
        if attempt > 0:
            self._make_room(self.capacity)
            if self.following is None and not self.busy:
                try:
                    self._do(self.books.begin([], [min(self.limit // 3, (1 << 30) << attempt)]))
                    self._do(self.books.end([]))
                except MemoryError:
                    pass
                while self.leaving:
                    self._take_away(self.leaving.popleft(), True)
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()

    # --- operations ---

    def dispatch(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Runs an operation with everything that it needs in place."""
        kind = kind_of(func)
        with self.lock:
            if kind.lists:
                parts = pieces(kind, args, kwargs, max(self.least * 4, self.limit // 24))
                if len(parts) > 1:
                    results = [self._run(func, kind, a, k) for a, k in parts]
                    if isinstance(results[0], (list, tuple)):
                        return type(results[0])(x for part in results for x in part)
                    return results[0]
            return self._run(func, kind, args, kwargs)

    def _run(self, func: Any, kind: Kind, args: tuple, kwargs: dict) -> Any:
        uses: list[tuple[Entry, bool]] = []
        for at, value in enumerate(args):
            if isinstance(value, (Tensor, list, tuple)):
                written = at in kind.written_at
                for tensor in tensors_in(value):
                    entry = self.entry(tensor)
                    if entry is not None:
                        uses.append((entry, written))
        for name, value in kwargs.items():
            if isinstance(value, (Tensor, list, tuple)):
                written = name in kind.written_as
                for tensor in tensors_in(value):
                    entry = self.entry(tensor)
                    if entry is not None:
                        uses.append((entry, written))
        if self.visitors:
            self._see_off()
        if self.following is not None:
            step = self._expected(func, uses)
            if step is not None:
                return self._follow(step, func, args, kwargs)
            self._part(f"operation {self.at} is {func}")
        return self._serve(func, kind, uses, args, kwargs)

    def _serve(self, func: Any, kind: Kind, uses: list, args: tuple, kwargs: dict) -> Any:
        books = self.books
        while self.dead:
            books.retire(self.dead.popleft())
        ended = self.mover.ended()
        if ended:
            books.ended(ended)
        self._flush()
        rows: dict[int, int] = {}
        for entry, written in uses:
            rows[entry.number] = rows.get(entry.number, 0) | (2 if written else 0)
        view = kind.is_view
        born = () if view else result_sizes(func, args, kwargs, self.least)
        if self.on_gpu and not view and born:
            # What an operation needs beside its results shows only when it runs; at first as much again is kept free.
            beside = self.workspaces.get((func, born), min(max(born), self.limit // 8))
            spare = (beside,) if beside >= self.least else ()
        else:
            spare = ()
        served = bool(rows or born)
        if served:
            try:
                tasks = books.begin(list(rows.items()), list(born + spare))
            except MemoryError as error:
                raise self._too_small(func, uses, born, error) from None
            self._do(tasks)
            self._make_room(sum(born) + sum(spare))
            self.busy = True
        clock, before = self._start(view)
        try:
            result = self._try(lambda: func(*args, **kwargs))
        except BaseException:
            self.busy = False
            if served:
                self._do(books.end([]))
            raise
        self.busy = False
        made = [] if view else self._made(result)
        clock, workspace = self._stop(clock, before, made)
        if born and clock is not None and self.on_gpu:
            self.workspaces[func, born] = workspace
        if sum(e.nbytes for e in made) > sum(born):
            learn_sizes(func, args, kwargs, tuple(e.nbytes for e in made))
        if served:
            self._do(books.end([(entry.number, entry.nbytes) for entry in made]))
        elif made:
            for entry in made:
                self._do(books.adopt(entry.number, entry.nbytes, None))
        if self.seen is not None:
            self.seen.append(Seen(func, view, tuple((e.number, w) for e, w in uses), tuple(e.number for e in made),
                                  tuple(e.nbytes for e in made), self._phase(), clock, workspace))
        return result

    def _too_small(self, func: Any, uses: list, born: tuple, error: Exception) -> Exception:
        wanted = sum(e.nbytes for e in {e.number: e for e, _ in uses}.values()) + sum(born)
        show = _tiercel.show_bytes
        text = (f"tiercel: {func} works on {show(wanted)} at once; the limit leaves {show(self._room_for_books())}. "
                f"A limit of {show(int(wanted * 1.1))} or more, a smaller batch or shorter chunks would help. ({error})")
        return torch.OutOfMemoryError(text) if self.on_gpu else MemoryError(text)

    def _phase(self) -> int:
        if self.phase:
            return self.phase
        return 1 if torch._C._current_graph_task_id() != -1 else 0

    def _start(self, view: bool) -> tuple[Any, int]:
        if self.seen is None or view:
            return None, 0
        if not self.on_gpu:
            return time.perf_counter_ns(), 0
        stream = torch.cuda.current_stream(self.device)
        torch._C._cuda_resetPeakMemoryStats(self.device.index)
        before = torch._C._cuda_memoryStats(self.device.index)["allocated_bytes"]["all"]["current"]
        torch.cuda._sleep(120_000)  # the host gets ahead, so that the time is the operation's alone
        event = torch.cuda.Event(enable_timing=True)
        event.record(stream)
        return event, before

    def _stop(self, clock: Any, before: int, made: list[Entry]) -> tuple[Any, int]:
        if clock is None:
            return None, 0
        if not self.on_gpu:
            return time.perf_counter_ns() - clock, 0
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        peak = torch._C._cuda_memoryStats(self.device.index)["allocated_bytes"]["all"]["peak"]
        return (clock, event), max(0, peak - before - sum(e.nbytes for e in made))

    # --- a known sequence ---

    def _expected(self, func: Any, uses: list) -> Optional[Any]:
        sequence = self.following
        if self.at >= len(sequence.steps):
            return None
        step = sequence.steps[self.at]
        if step.func is not func or step.slots != tuple([e.slot for e, _ in uses]):
            return None
        return step

    def _follow(self, step: Any, func: Any, args: tuple, kwargs: dict) -> Any:
        books = self.books
        if step.group >= 0:
            ended = self.mover.ended()
            if ended:
                books.ended(ended)
            if self.leaving:
                self._flush()
        if self.at == 0:
            self._do(books.begin_iteration())
        self.at += 1
        if step.first:
            for at, group, again in self.play.steps[step.group]:
                if again:
                    self._run_again(at, group)
                else:
                    self._do(books.begin_step(at))
            if step.room:
                self._make_room(step.room)
        result = self._try(lambda: func(*args, **kwargs))
        if step.new:
            made = self._made(result)
            if tuple(e.nbytes for e in made) != step.sizes:
                self._part(f"{func} made other storages than before")
                return result
            for entry, slot in zip(made, step.new):
                entry.slot = slot
                self.by_slot[slot] = entry
                if slot in self.play.held:
                    self.held[slot] = entry.ref()
        if step.last:
            if step.group in self.play.repeated:
                self.notes[step.group] = Note(func, args, kwargs, result, self._slot_of, step.new)
            at = self.play.own[step.group]
            self._do(books.end_step(at))
            self._let_go(at)
        return result

    def _slot_of(self, tensor: Tensor) -> Optional[int]:
        entry = self.entry(tensor)
        return None if entry is None or entry.slot < 0 else entry.slot

    def _make_dropped(self) -> None:
        """Makes what is dropped again, because the sequence that would have done so is left."""
        group = self.following.steps[min(self.at, len(self.following.steps) - 1)].group if self.at else 0
        for later in self.play.steps[max(group, 0):]:
            for _, original, again in later:
                note = self.notes.get(original) if again else None
                wanted = [] if note is None else [f.slot for f in note.results if f is not None]
                if not any(self.by_slot[s] is not None and self.by_slot[s].dropped for s in wanted):
                    continue
                inputs = [slot for slot in self.following.groups[original]["reads"] if self.by_slot[slot] is not None]
                for slot in inputs:
                    self._fetch_apart(self.by_slot[slot])
                note.run(lambda slot: self.by_slot[slot].ref(), self._refill)
        self.held.clear()
        self.notes.clear()

    def _fetch_apart(self, entry: Entry) -> None:
        """Brings a storage back past the books."""
        storage = entry.ref()
        if entry.stash is not None:
            self._unstash(entry)
        elif storage is not None and not entry.resident and not entry.dropped:
            self._make_room(entry.nbytes)
            self.mover.back(-1, storage, entry.slab, entry.home[1], entry.nbytes, [])
            self.mover.settle()
            entry.resident = True
            self.live += entry.nbytes

    def _part(self, why: str) -> None:
        """Something else than the known sequence happens: from here on operations are served as they come."""
        self.diverged += 1
        if self.play.repeated and self.at:
            self._make_dropped()
        self.held.clear()
        self.notes.clear()
        self.following = None
        self.seen = None
        self._serve_all(self.slab)
        if self.verbose:
            print(f"tiercel: the iteration differs from the one that was planned ({why}); serving on demand")

    def _serve_all(self, slab: Any) -> None:
        """New books on demand, with all storages where they are."""
        while self.leaving:
            self._take_away(self.leaving.popleft(), True)
        self.mover.settle()
        self.mover.ended()
        self.dead.clear()
        self._change_books(_tiercel.Books.on_demand(self.machine, [self._room_for_books(), self.slow]))
        self.lingering.clear()
        # What is away has its place; what is there may have to make room; what was kept apart comes back last.
        for entry in sorted(self.by_number.values(), key=lambda e: (e.stash is not None, e.resident)):
            entry.slot = -1
            away = not entry.resident and entry.stash is None
            self._do(self.books.adopt(entry.number, entry.nbytes, entry.home if away else None))
            self._unstash(entry)

    # --- iterations ---

    def boundary(self) -> None:
        """An iteration has ended: the optimizer has stepped."""
        with self.lock:
            self._boundary()

    def _boundary(self) -> None:
        now = time.perf_counter()
        self.iteration += 1
        mode = "planned" if self.following is not None else "on demand"
        self.history.append({"iteration": self.iteration, "seconds": now - self.began, "mode": mode, "peak": self.peak})
        self.began = now
        if self.following is not None:
            if self.at == len(self.following.steps):
                self._do(self.books.end_iteration())
                self.at = 0
                self.notes.clear()
            else:
                self._part(f"it ended after {self.at} of {len(self.following.steps)} operations")
                self.seen = []
            return
        if self.seen is not None:
            self._learn()
        self.seen = []
        if self.planned is not None:
            self._take_up(*self.planned)
            self.planned = None

    def _learn(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize(self.device)
        sequence = Sequence(self.seen, self.sizes, lambda n: n in self.by_number, self._elapsed)
        self.sizes = {n: e.nbytes for n, e in self.by_number.items()}
        known = self.known
        self.known = sequence
        if known is None or known.signature != sequence.signature or self.planning is not None:
            return
        sequence.faster(known)
        if sequence.carried:
            self.refused = f"{sequence.carried} storages are carried from one iteration to the next"
            return
        if self.planned is None and self.refused is None:
            self._plan(sequence)

    def _elapsed(self, clock: Any) -> float:
        if clock is None:
            return 0.0
        return float(clock) if not self.on_gpu else clock[0].elapsed_time(clock[1]) * 1e6

    def _roles(self, number: int) -> tuple[str, str]:
        entry = self.by_number.get(number)
        if entry is None:
            return "t", "activation"
        return entry.name or "t", entry.role or "state"

    def _plan(self, sequence: Sequence) -> None:
        recording = sequence.recording(self._roles, self.least)
        self.recording = recording

        def work() -> None:
            try:
                room = [self._room_for_books(), self.slow]
                self.planned = (sequence, recording.plan(self.machine, room, self.system, True, self.seconds, 0))
            except Exception as error:  # a plan that cannot be had: operations go on being served
                self.refused = str(error)
            finally:
                self.planning = None

        self.planning = threading.Thread(target=work, name="tiercel-plan", daemon=True)
        self.planning.start()

    def _take_up(self, sequence: Sequence, decided: Any) -> None:
        """Follows a plan from here on: brings every storage to where the plan begins."""
        persistent = [(slot, self.by_number.get(n)) for slot, (n, p) in enumerate(zip(sequence.numbers, sequence.persistent)) if p]
        if any(entry is None for _, entry in persistent):
            self.refused = "what outlived iterations is gone"
            return
        predicted, all_fast, bound = decided.times
        peak, fetched, evicted = decided.bytes
        self.prediction = {"seconds": predicted / 1e9, "all_fast": all_fast / 1e9, "bound": None if bound is None else bound / 1e9,
                           "peak": peak, "fetched": fetched, "evicted": evicted}
        origins = decided.origins
        books = decided.open()
        while self.leaving:
            self._take_away(self.leaving.popleft(), True)
        self.mover.settle()
        self.mover.ended()
        self.dead.clear()
        old, new = self.slab, self.mover.slab(self.slow, self.folder, True)
        wanted = [(entry, books.home(slot)) for slot, entry in persistent]
        planned = {id(entry) for entry, _ in wanted}
        self.slab = new
        ticket = -1
        for entry, home in wanted:
            if home is None or home[0] == 0:
                continue
            storage = entry.ref()
            if entry.resident:
                self.mover.out(ticket, storage, new, home[1], entry.nbytes, [])
                self.mover.settle()
                storage.resize_(0)
                entry.resident = False
                self.live -= entry.nbytes
            else:
                old.pass_on(entry.home[1], new, home[1], entry.nbytes)
            entry.home, entry.slab = home, new
            ticket -= 1
        # What the plan does not know of is about to go, as gradients are: it waits where it is in nobody's way.
        self.lingering.clear()
        for entry in list(self.by_number.values()):
            if id(entry) in planned:
                continue
            if entry.resident:
                self.lingering.append(entry)
            elif entry.stash is None:
                entry.stash = self.mover.keep_from(old, entry.home[1], entry.nbytes)
        for entry, home in wanted:
            if home is not None and home[0] == 0 and not entry.resident:
                self._make_room(entry.nbytes)
                storage = entry.ref()
                self.mover.back(ticket, storage, old, entry.home[1], entry.nbytes, [])
                self.mover.settle()
                entry.resident = True
                self.live += entry.nbytes
                ticket -= 1
        self.mover.ended()
        self._change_books(books)
        self.following = sequence
        self.play = Play(sequence, origins)
        self.notes.clear()
        self.held.clear()
        self.by_slot = [None] * len(sequence.numbers)
        for slot, entry in persistent:
            entry.slot = slot
            self.by_slot[slot] = entry
        self.at = 0
        self.seen = None
        if hasattr(self.mover, "drop"):
            self.mover.drop(old)
        if self.verbose:
            ratio = predicted / max(1, all_fast)
            print(f"tiercel: plan: {_tiercel.show_bytes(self.limit)} of {_tiercel.show_bytes(peak)}, predicted {ratio:.2f}x")

    # --- somebody looks at the bytes from outside ---

    def visit(self, storage: torch.UntypedStorage) -> None:
        """Brings a storage back for somebody who reads or writes its bytes past all operations."""
        entry = self.entries.get(storage._cdata)
        if entry is None:
            return
        with self.lock:
            if entry.resident and not entry.leaves:
                return
            if self.following is None:
                while self.dead:
                    self.books.retire(self.dead.popleft())
                self._do(self.books.begin([(entry.number, 2)], []))
                self._do(self.books.end([]))
            elif entry.resident:
                self.mover.let(entry.leaving)
                return
            elif entry.stash is not None:
                self._unstash(entry)
            else:
                self._make_room(entry.nbytes)
                self.mover.back(-1, storage, entry.slab, entry.home[1], entry.nbytes, [])
                entry.resident = True
                self.live += entry.nbytes
                self.visitors.append(entry)
            self.mover.settle()

    def _see_off(self) -> None:
        """Takes visitors back to where the books have them, with whatever was written to them."""
        for entry in self.visitors:
            storage = entry.ref()
            if storage is not None and entry.resident:
                self.mover.out(-1, storage, entry.slab, entry.home[1], entry.nbytes, [])
                self.mover.settle()
                storage.resize_(0)
                entry.resident = False
                self.live -= entry.nbytes
        self.visitors.clear()

    def size_of(self, storage: torch.UntypedStorage) -> Optional[int]:
        """The bytes that a storage has when it is there; `None` where the runtime does not know it."""
        entry = self.entries.get(storage._cdata)
        return None if entry is None else entry.nbytes

    def bring_all_back(self) -> None:
        """Brings everything back; used when the limit is lifted."""
        with self.lock:
            for entry in list(self.by_number.values()):
                storage = entry.ref()
                if storage is None:
                    continue
                entry.leaves = False
                self._unstash(entry)
                if not entry.resident:
                    self.mover.back(-1, storage, entry.slab, entry.home[1], entry.nbytes, [])
                    entry.resident = True
            self.mover.settle()
            self.active = False


_PLAIN = (Tensor, torch.nn.Parameter)

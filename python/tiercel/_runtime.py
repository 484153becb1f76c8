"""The runtime: serves operations on demand while nothing is known, records what they do, and then follows a plan.

While a sequence of operations is unknown each one is served as it comes (`_demand.py`). When an iteration has been seen twice,
its trace is planned in the background; from the next iteration on the plan's script is followed, operation by operation
(`_following.py`), until something else happens. Plans are kept: which iteration comes next is guessed from the last one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Iterable, Iterator, Optional

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass_type

from . import _tiercel
from ._demand import Demand, elapsed
from ._devices import mover
from ._following import Following
from ._operations import Kind, cut, kind_of, pieces, result_sizes
from ._room import SHARE, usable
from ._script import Script, of_books, of_schedule
from ._sequence import Seen, Sequence, Touched
from ._storages import Entry, Storages
from ._timing import Clock

Tensor = torch.Tensor

#: A plan is made anew where kernels turn out to take so much less than they seemed to.
_OTHER = 0.02
#: The iterations of a plan in which kernels are timed.
_TIMED = (2, 4)
#: After so many iterations in which memory was short a plan is made anew, with so much of its memory, and no less than this of all.
_OFTEN, _NARROWER, _LEAST = 2, 0.96, 0.6
#: A plan that failed so often in a row is left for twice as many iterations each time.
_FAILURES = 2


class Known:
    """An iteration that has a plan."""

    def __init__(self, sequence: Sequence, script: Script, prediction: dict) -> None:
        self.sequence, self.script, self.prediction = sequence, script, prediction
        self.slab: Any = None
        #: How often it has been followed to its end, how often in a row it was not, and until when it rests.
        self.followed = 0
        self.failures = 0
        self.rests = 0


class Runtime:
    """One device with a limit."""

    def __init__(self, device: torch.device, limit: int, slow: int, folder: Optional[str], system: str, machine: str,
                 least: int, seconds: float, verbose: bool) -> None:
        self.device, self.limit, self.slow, self.folder = device, limit, slow, folder
        self.system, self.machine, self.least, self.seconds, self.verbose = system, machine, least, seconds, verbose
        self.on_gpu = device.type == "cuda"
        self.mover = mover(device)
        self.lock = threading.RLock()
        self.storages = Storages(device, least, limit, self.mover)
        self.entries = self.storages.entries
        self.slab = self.mover.slab(slow, folder, 0)
        self.demand: Optional[Demand] = None
        self.following: Optional[Following] = None
        self.plans: dict[int, Known] = {}
        self.current: Optional[Known] = None
        self.seen: Optional[list[Seen]] = []
        self.sizes: dict[int, int] = {}
        self.phase = 0
        #: Recorded iterations by signature; which one followed on which; the last.
        self.recorded: dict[int, Sequence] = {}
        self.successor: dict[Optional[int], int] = {}
        self.last: Optional[int] = None
        self.planning: Optional[threading.Thread] = None
        self.planned: Optional[Known] = None
        self.refused: Optional[str] = None
        self.hopeless: set[int] = set()
        self.recording: Any = None
        self.prediction: Optional[dict] = None
        #: The part of the limit that plans may use; less where an allocator loses more to pieces.
        self.share = SHARE
        #: Iterations in which memory was short though the plan fits.
        self.short = 0
        self.retries_before = 0
        self.iteration = 0
        self.began = time.perf_counter()
        self.history: list[dict] = []
        self.diverged = 0
        self.active = True
        self.visitors: list[Entry] = []
        self.moved_before = [0, 0]
        self._serve_all()

    @property
    def misses(self) -> int:
        """How often memory was short though it should not have been."""
        return self.storages.retries

    @property
    def live(self) -> int:
        """The bytes of storages that are there now."""
        return self.storages.live

    @property
    def peak(self) -> int:
        """The most that there were."""
        return self.storages.peak

    def moved(self) -> tuple[int, int]:
        """Bytes fetched and evicted so far."""
        now = self.following.moved if self.following is not None else self.demand.books.moved() if self.demand is not None else (0, 0)
        return self.moved_before[0] + now[0], self.moved_before[1] + now[1]

    def room(self) -> int:
        """What plans may use: the limit, less what is too small to count and what an allocator loses."""
        return max(self.least, usable(self.limit, self.on_gpu, self.share))

    # --- operations ---

    def dispatch(self, func: Any, types: Any, args: tuple, kwargs: dict) -> Any:
        """Runs an operation with everything that it needs in place."""
        with self.lock:
            following = self.following
            if following is not None and not self.visitors and not types:
                step = following.expects(func, args, kwargs)
                if step is not None and step.cuts is None:
                    result = following.run(step, func, args, kwargs)
                    if following.lost:
                        self._part(f"{func} made other storages than before")
                    return result
            for kind in types:
                if issubclass(kind, FakeTensor):
                    return func(*args, **kwargs)
                if is_traceable_wrapper_subclass_type(kind):
                    return NotImplemented
            return self._otherwise(func, args, kwargs)

    def _otherwise(self, func: Any, args: tuple, kwargs: dict) -> Any:
        if self.visitors:
            self._see_off()
        kind = kind_of(func)
        if not kind.lists:
            return self._run(func, kind, args, kwargs)
        following = self.following
        step = following.expects_first(func, args, kwargs) if following is not None else None
        if step is not None:
            parts = cut(args, kwargs, step.cuts)
        else:
            parts = pieces(kind, args, kwargs, max(self.least * 4, self.limit // 24))
        if len(parts) == 1:
            return self._run(func, kind, args, kwargs)
        first, results = len(self.seen) if self.seen is not None else 0, []
        for a, k in parts:
            results.append(self._run(func, kind, a, k))
        if self.seen is not None and first < len(self.seen):
            self.seen[first].cuts = tuple(len(a[0]) for a, _ in parts)
        if isinstance(results[0], (list, tuple)):
            return type(results[0])(x for part in results for x in part)
        return results[0]

    def _run(self, func: Any, kind: Kind, args: tuple, kwargs: dict) -> Any:
        following = self.following
        if following is not None:
            step = following.expects(func, args, kwargs) or following.bind(func, args, kwargs)
            if step is not None:
                result = following.run(step, func, args, kwargs)
                if following.lost:
                    self._part(f"{func} made other storages than before")
                return result
            if self._fits_in(func, kind, args, kwargs):
                return func(*args, **kwargs)
            self._part(f"operation {following.at} is {func}")
        assert self.demand is not None
        return self.demand.serve(func, kind, args, kwargs, self._phase, self.seen)

    def _fits_in(self, func: Any, kind: Kind, args: tuple, kwargs: dict) -> bool:
        """Whether an operation that the plan does not know can run in between, as one that reads a loss: it makes nothing large. What
        it needs is there then."""
        touched = Touched(kind, args, kwargs, self.storages.known)
        if any(entry.dropped or entry.slot < 0 for entry, _ in touched.uses):
            return False
        if not kind.is_view and result_sizes(func, args, kwargs, self.least):
            return False
        assert self.following is not None
        for entry, _ in touched.uses if not kind.is_view else ():
            if not entry.resident:
                self.storages.fetch_apart(entry)
                self.visitors.append(entry)
            elif entry.slot in self.following.arriving:
                self.mover.settle()
        return True

    def entry(self, tensor: Tensor) -> Optional[Entry]:
        """The entry of a tensor's storage; `None` for what is small, lies elsewhere, or has no plain storage."""
        return self.demand.entry(tensor) if self.demand is not None else self.storages.known(tensor)

    def _phase(self) -> int:
        if self.phase:
            return self.phase
        return 1 if torch._C._current_graph_task_id() != -1 else 0

    # --- from one way of serving to the other ---

    def _part(self, why: str) -> None:
        """Something else than the known sequence happens: from here on operations are served as they come."""
        self.diverged += 1
        assert self.following is not None and self.current is not None
        self.current.failures += 1
        if self.current.failures >= _FAILURES:
            self.current.rests = 1 << min(self.current.failures, 10)
        self.following.leave()
        self.seen = None
        self._serve_all()
        if self.verbose:
            print(f"tiercel: the iteration differs from the one that was planned ({why}); serving on demand")

    def _serve_all(self) -> None:
        """New books on demand, with all storages where they are."""
        self.storages.flush_all()
        self.mover.settle()
        self.mover.ended()
        self.storages.dead.clear()
        self.storages.lingering.clear()
        self.moved_before = list(self.moved())
        if self.current is not None:
            self.slab = self.current.slab
        self.following, self.current = None, None
        self.demand = Demand(self.storages, self.machine, self.room(), self.slow, self.slab)
        self.demand.adopt_all()

    def _follow(self, known: Known) -> None:
        """Follows a plan from here on: brings every storage to where the plan begins."""
        if known is self.current:
            return
        if self.following is not None:
            self._serve_nothing()
        sequence, script, storages = known.sequence, known.script, self.storages
        kept = []
        for slot, (number, stays) in enumerate(zip(sequence.numbers, sequence.persistent)):
            entry = storages.by_number.get(number) if stays else None
            # One that is gone by now has been followed by another, which will show itself.
            if entry is not None and entry.nbytes == sequence.bytes[slot]:
                kept.append((slot, entry))
        storages.flush_all()
        self.mover.settle()
        self.mover.ended()
        storages.dead.clear()
        self.moved_before = list(self.moved())
        self._arrange(known, kept)
        self.demand, self.current, self.seen = None, known, None
        self.slab = known.slab
        self.following = Following(storages, sequence, script, known.slab)
        for slot, entry in kept:
            self.following.adopt(slot, entry)
        self.prediction = known.prediction
        if self.verbose:
            p = known.prediction
            print(f"tiercel: plan: {_tiercel.show_bytes(self.limit)} of {_tiercel.show_bytes(p['peak'])}, predicted {p['seconds'] / max(p['all_fast'], 1e-9):.2f}x")

    def _arrange(self, known: Known, kept: list[tuple[int, Entry]]) -> None:
        """Every storage goes to where the plan begins."""
        script, storages = known.script, self.storages
        planned = {id(entry) for _, entry in kept}
        storages.lingering.clear()
        for entry in list(storages.by_number.values()):
            entry.slot = -1
            if id(entry) in planned:
                continue
            # What the plan does not know of, as gradients are, is about to go.
            if entry.resident:
                storages.lingering.append(entry)
            elif entry.stash is None and entry.home is not None:
                entry.stash = self.mover.keep_from(entry.slab, entry.home[1], entry.nbytes)
        # What is there is taken up and put down again in order, so that memory is not in pieces.
        there = [entry for _, entry in kept if entry.resident]
        staged = self.mover.stage([(entry.ref(), entry.nbytes) for entry in there], storages.capacity - storages.live)
        order = {id(entry): at for at, entry in enumerate(there)}
        for entry in there:
            storages.take(entry, entry.ref())
        for slot, entry in kept:
            # Places may be taken by others: what has to change its place in the same slab is kept apart.
            if id(entry) not in order and entry.stash is None and entry.slab is known.slab and entry.home[1] != script.places.get(slot):
                entry.stash = self.mover.keep_from(entry.slab, entry.home[1], entry.nbytes)
        self.mover.tidy()
        for slot, entry in sorted(kept, key=lambda pair: -pair[1].nbytes):
            self._place(known, slot, entry, staged, order.get(id(entry), -1))

    def _place(self, known: Known, slot: int, entry: Entry, staged: Any, at: int) -> None:
        """Brings one storage from where it was put aside to where the plan begins."""
        script, slab, mover_ = known.script, known.slab, self.mover
        place, away = script.places.get(slot), slot in script.away
        if not away:
            self.storages.make_room(entry.nbytes)
            self.storages.give(entry, entry.ref())
        if at >= 0:
            if not away:
                mover_.unstage(staged, at, entry.ref())
            if place is not None and (away or script.lazy):
                mover_.put_staged(staged, at, slab, place)
        elif entry.stash is not None:
            if not away:
                mover_.restore(entry.ref(), entry.stash)
            if place is not None:
                mover_.put_kept(entry.stash, slab, place, entry.nbytes)
        elif not away:
            mover_.get(entry.ref(), entry.slab, entry.home[1], entry.nbytes)
            if place is not None and script.lazy:
                mover_.put(entry.ref(), slab, place, entry.nbytes)
        elif entry.slab is not slab:
            mover_.pass_on(entry.slab, entry.home[1], slab, place, entry.nbytes)
        entry.stash = None
        if place is not None:
            entry.home, entry.slab = (1, place), slab

    # --- iterations ---

    def boundary(self) -> None:
        """An iteration has ended: the optimizer has stepped."""
        with self.lock, _disable_current_modes():
            self._boundary()

    def _boundary(self) -> None:
        now = time.perf_counter()
        self.iteration += 1
        mode = "planned" if self.following is not None else "on demand"
        self.history.append({"iteration": self.iteration, "seconds": now - self.began, "mode": mode, "peak": self.peak})
        self.began = now
        signature: Optional[int] = None
        if self.following is not None:
            assert self.current is not None
            if self.following.ended():
                signature = self.current.sequence.signature
                self.current.followed += 1
                self.current.failures = 0
                self._time_kernels(self.current)
            else:
                self._part(f"it ended after {self.following.at} of {self.following.count} operations")
        elif self.seen is not None:
            signature = self._learn()
        if signature is not None:
            self.successor[self.last] = signature
            self.last = signature
        self._choose(signature)

    def _choose(self, signature: Optional[int]) -> None:
        """What is done in the iteration that begins."""
        if self.planned is not None:
            known, self.planned = self.planned, None
            before = self.plans.get(known.sequence.signature)
            self.plans[known.sequence.signature] = known
            if before is not None and before is self.current:
                # The same iteration with a better plan.
                self._serve_nothing()
        next_ = self.successor.get(signature if signature is not None else self.last, self.last)
        known = self.plans.get(next_) if next_ is not None else None
        if known is not None and known.rests > 0:
            known.rests -= 1
            known = None
        if known is not None:
            self._follow(known)
        elif self.following is not None:
            self.following.leave()
            self._serve_all()
        if self.following is None:
            self.seen = []

    def _serve_nothing(self) -> None:
        """Between two plans: nothing is followed, and nothing is served."""
        assert self.following is not None
        self.following.leave()
        self.moved_before = list(self.moved())
        self.following, self.current = None, None

    def _time_kernels(self, known: Known) -> None:
        """Kernels are timed while a plan is followed; where they take less than it seemed, the plan is made anew."""
        following = self.following
        assert following is not None
        short = following.shortages + self.storages.retries - self.retries_before
        following.shortages = 0
        if short and known.followed > 1:
            self.short += 1
        if self.short >= _OFTEN and self.planning is None and self.planned is None:
            # Pieces of free memory that nobody can use cost more than was thought: plans make do with less.
            self.short = 0
            self.share = max(_LEAST, self.share * _NARROWER)
            self._plan(known.sequence)
        elif following.clock is not None:
            before = sum(group["nanos"] for group in known.sequence.groups)
            following.clock.tell(known.sequence.groups)
            following.clock = None
            after = sum(group["nanos"] for group in known.sequence.groups)
            if after < before * (1.0 - _OTHER) and self.planning is None:
                self._plan(known.sequence)
        elif known.followed in _TIMED and self.planning is None:
            following.clock = Clock(self.device)
        self.retries_before = self.storages.retries

    def _learn(self) -> int:
        if self.on_gpu:
            torch.cuda.synchronize(self.device)
        assert self.seen is not None
        by_number = self.storages.by_number
        self.sizes.update((n, e.nbytes) for n, e in by_number.items())
        for op in self.seen:
            self.sizes.update(zip(op.made, op.sizes))
        sequence = Sequence(self.seen, self.sizes, elapsed)
        self.sizes = {n: e.nbytes for n, e in by_number.items()}
        known = self.recorded.pop(sequence.signature, None)
        self.recorded[sequence.signature] = sequence
        while len(self.recorded) > 16:
            del self.recorded[next(iter(self.recorded))]
        if known is not None and self.planning is None and self.planned is None and sequence.signature not in self.plans:
            sequence.faster(known)
            if sequence.signature not in self.hopeless:
                self._plan(sequence)
        return sequence.signature

    def _roles(self, number: int) -> tuple[str, str]:
        entry = self.storages.by_number.get(number)
        if entry is None:
            return "t", "activation"
        return entry.name or "t", entry.role or "state"

    def _plan(self, sequence: Sequence) -> None:
        recording = sequence.recording(self._roles, self.least)
        self.recording = recording
        room = self.room()

        def work() -> None:
            try:
                decided = recording.plan(self.machine, [room, self.slow], self.system, True, self.seconds, 0)
                prediction = _prediction(decided)
                script = _script_of(sequence, decided)
                if script is None:
                    raise RuntimeError(f"{self.system} does not come to repeat itself")
                known = Known(sequence, script, prediction)
                known.slab = self.mover.slab(max(script.nbytes, self.slow), self.folder, script.nbytes)
                self.planned, self.refused = known, None
            except Exception as error:  # a plan that cannot be had: operations go on being served
                self.refused = f"no plan: {error}"
                self.hopeless.add(sequence.signature)
            finally:
                self.planning = None

        self.planning = threading.Thread(target=work, name="tiercel-plan", daemon=True)
        self.planning.start()

    # --- somebody looks at the bytes from outside ---

    def visit(self, storage: torch.UntypedStorage) -> None:
        """Brings a storage back for somebody who reads or writes its bytes past all operations."""
        entry = self.entries.get(storage._cdata)
        if entry is None:
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

    def size_of(self, storage: torch.UntypedStorage) -> Optional[int]:
        """The bytes that a storage has when it is there; `None` where the runtime does not know it."""
        entry = self.entries.get(storage._cdata)
        return None if entry is None else entry.nbytes

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


def _script_of(sequence: Sequence, decided: Any) -> Optional[Script]:
    schedule = decided.schedule
    if schedule is not None:
        return of_schedule(sequence.groups, sequence.bytes, sequence.persistent, schedule)
    return of_books(sequence.groups, sequence.bytes, sequence.persistent, decided.open())


def _prediction(decided: Any) -> dict:
    predicted, all_fast, bound = decided.times
    peak, fetched, evicted = decided.bytes
    return {"seconds": predicted / 1e9, "all_fast": all_fast / 1e9, "bound": None if bound is None else bound / 1e9,
            "peak": peak, "fetched": fetched, "evicted": evicted}

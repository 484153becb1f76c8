"""The runtime: serves operations on demand while nothing is known, records what they do, and then follows a plan.

While a sequence of operations is unknown each one is served as it comes (`_demand.py`). When an iteration has been seen twice,
its trace is planned in the background (`_plans.py`); from the next iteration on the plan's script is followed, operation by operation
(`_following.py`). Plans are kept, one for each path that the program takes. Which path comes next is guessed from the last ones and from the
first shapes; where something else happens, the plan of another path that began alike goes on (`_switch.py`), and operations are served on
demand where there is none.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Optional

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass_type

from . import _tiercel
from ._arena import SMALL
from ._demand import Demand, elapsed
from ._devices import mover
from ._following import Following
from ._learned import Learned
from ._notices import Notices
from ._operations import Kind, cut, kind_of, pieces, result_sizes
from ._plans import Known, Plans
from ._room import usable
from ._sequence import Record, Seen, Sequence, Touched
from ._storages import Entry, Storages
from ._switch import arrange, follow_from
from ._visits import Visits

Tensor = torch.Tensor

#: Operations at the beginning of an iteration whose shapes may tell what comes, and after which of them that is asked.
_EARLY = 32
_ASKED = frozenset((1, 2, 4, 8, 16, 32))
#: The iterations that are remembered.
_HISTORY = 20_000
#: So often in an iteration a plan for other sizes is looked for.
_SIZES = 16
#: After so many iterations in a row that nobody had seen before, only what is seen again is looked at closely.
_NEW = 8


class Runtime(Visits):
    """One device with a limit."""

    def __init__(self, device: torch.device, limit: int, slow: int, folder: Optional[str], system: str, machine: str,
                 least: int, seconds: float, verbose: bool, learned: Learned, arena: Any = None) -> None:
        self.device, self.limit, self.slow, self.folder = device, limit, slow, folder
        self.system, self.machine, self.least, self.seconds, self.verbose = system, machine, least, seconds, verbose
        self.on_gpu = device.type == "cuda"
        self.mover = mover(device)
        self.lock = threading.RLock()
        self.storages = Storages(device, least, limit, self.mover, arena)
        self.entries = self.storages.entries
        self.slab = self.mover.slab(slow, folder, 0)
        self.demand: Optional[Demand] = None
        self.following: Optional[Following] = None
        self.paths = _tiercel.Paths()
        self.plans = Plans(self.storages, self.paths, self.slab, system, machine, seconds, slow)
        self.plans.room = self.room
        self.current: Optional[Known] = None
        #: The operations of the iteration under way while they are served on demand.
        self.record: Optional[Record] = Record()
        #: While a plan is followed, operations since its last one that are not the plan's.
        self.apart: Optional[Record] = None
        self.phase = 0
        #: Operations whose shapes are looked at still, and what they were; how often other sizes were looked for.
        self.early, self.shapes, self.sized = _EARLY, 0, 0
        #: Paths whose plans have been left in this iteration.
        self.parted: set[int] = set()
        #: Whether the iteration was begun with a plan, and whether another one went on.
        self.begun, self.turned = False, False
        #: The times of the iteration's operations are worth having.
        self.timed = True
        self.prediction: Optional[dict] = None
        self.iteration = 0
        self.began = time.perf_counter()
        self.history: list[dict] = []
        self.diverged = 0
        self.active = True
        #: Ctrl-C that came in the midst of an operation; in a forked child, what looks at an operation's arguments instead of the runtime.
        self.interrupted: Any = None
        self.child: Any = None
        self.visitors: list[Entry] = []
        self.moved_before = [0, 0]
        self.notices = Notices()
        self.learned = learned
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
        if self.storages.arena is not None and self.on_gpu:
            room = self.limit - max(SMALL, int(self.storages.arena.smalls() * 1.1))
            return max(self.least, int(min(self.storages.arena.plannable, room) * self.plans.share))
        return max(self.least, usable(self.limit, self.on_gpu, self.plans.share))

    @property
    def planning(self) -> Optional[threading.Thread]:
        """The thread that makes a plan, while one is made."""
        return self.plans.planning

    @property
    def planned(self) -> Optional[Known]:
        """The plan that has been made and is not followed yet."""
        return self.plans.planned

    @property
    def refused(self) -> Optional[str]:
        """Why there is no plan."""
        return self.plans.refused

    @property
    def recording(self) -> Any:
        """The iteration that was last planned."""
        return self.plans.recording

    # --- operations ---

    def dispatch(self, func: Any, types: Any, args: tuple, kwargs: dict) -> Any:
        """Runs an operation with everything that it needs in place."""
        if self.child is not None:
            self.child(args, kwargs)
            return func(*args, **kwargs)
        with self.lock:
            result = self._dispatch(func, types, args, kwargs)
        if self.interrupted is not None and not self.lock._is_owned():  # type: ignore[attr-defined]
            self.interrupted.raise_()
        return result

    def _dispatch(self, func: Any, types: Any, args: tuple, kwargs: dict) -> Any:
        if self.early and not types:
            self._look(args)
        following = self.following
        if following is not None and not self.visitors and not types:
            step = following.expects(func, args, kwargs)
            if step is not None and step.cuts is None and not self.current.doubted and not (step.new and self.current.leaf in self.plans.elastic):
                result = following.run(step, func, args, kwargs)
                if self.apart is not None:
                    self.apart = None
                if following.lost:
                    self._lost(func)
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
        record, results = self.record, []
        first = len(record.seen) if record is not None else 0
        for a, k in parts:
            results.append(self._run(func, kind, a, k))
        if record is not None and record is self.record and first < len(record.seen):
            record.seen[first].cuts = tuple(len(a[0]) for a, _ in parts)
        if isinstance(results[0], (list, tuple)):
            return type(results[0])(x for part in results for x in part)
        return results[0]

    def _run(self, func: Any, kind: Kind, args: tuple, kwargs: dict) -> Any:
        if self.following is not None:
            result = self._follow_on(func, kind, args, kwargs)
            if result is not NotImplemented:
                return result
        assert self.demand is not None
        record = self.record
        result = self.demand.serve(func, kind, args, kwargs, self._phase, record, self.timed or self.paths.is_known)
        if record is not None:
            self._recorded(record)
        return result

    def _follow_on(self, func: Any, kind: Kind, args: tuple, kwargs: dict) -> Any:
        """Runs an operation while a plan is followed; where that ends with it, nothing is run."""
        following = self.following
        assert following is not None
        step = following.expects(func, args, kwargs) or following.bind(func, args, kwargs)
        if step is not None and self.current is not None and self.current.doubted and not self._is_as_told(step, kind, args, kwargs):
            self._part(f"operation {following.at} is not as the plan's file says")
            return NotImplemented
        if step is not None and step.new and not self._has_sizes(step, func, args, kwargs):
            step = None
        elif step is None:
            touched = Touched(kind, args, kwargs, self.storages.known)
            if not self._turn(func, touched):
                if self._fits_in(func, kind, touched, args, kwargs):
                    assert self.apart is not None
                    self.apart.add(Seen(func, kind.is_view, touched, (), (), self._phase(), None, 0), touched, [])
                    return func(*args, **kwargs)
                self._part(f"operation {following.at} is {func}")
                return NotImplemented
        if self.following is not following:
            following = self.following
            step = None if following is None else following.expects(func, args, kwargs) or following.bind(func, args, kwargs)
            if following is not None and step is None:
                self._part(f"operation {following.at} is {func}")
        if step is None or following is None:
            return NotImplemented
        result = following.run(step, func, args, kwargs)
        self.apart = None
        if following.lost:
            self._lost(func)
        return result

    def _fits_in(self, func: Any, kind: Kind, touched: Touched, args: tuple, kwargs: dict) -> bool:
        """Whether an operation that the plan does not know can run in between, as one that reads a loss: it makes nothing large. What
        it needs is there then."""
        if any(entry.dropped or entry.slot < 0 for entry, _ in touched.uses):
            return False
        if not kind.is_view and result_sizes(func, args, kwargs, self.least):
            return False
        assert self.following is not None
        for entry, _ in touched.uses:
            if not entry.resident:
                stashed = entry.stash is not None
                self.storages.fetch_apart(entry)
                if not stashed:
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
        following, current = self.following, self.current
        assert following is not None and current is not None
        current.failed()
        self.parted.add(current.leaf)
        record = self.apart if self.apart is not None else Record.of(following)
        if following.strange:
            step = following.steps[following.at - 1]
            record.count = step.count + sum(slot >= step.count for slot in set(step.slots))
            record.made(following.strange)
        self.paths.turn(current.leaf, following.at, record.symbols)
        following.leave()
        record.fill(following)
        self.apart = None
        self._serve_all()
        self.record = record
        if self.verbose:
            print(f"tiercel: the iteration differs from the one that was planned ({why}); serving on demand")

    def _lost(self, func: Any) -> None:
        """An operation of the plan made something else than before."""
        following, current = self.following, self.current
        assert following is not None and current is not None
        if following.lost == 2:
            self.plans.elastic.add(current.leaf)
            known = self.plans.variant(current.leaf, following.sizes())
            if known is not None and known is not current:
                following.lost = 0
                self._switch(known, following.at)
                return
        self._part(f"{func} made other storages than before")

    def _has_sizes(self, step: Any, func: Any, args: tuple, kwargs: dict) -> bool:
        """Whether the plan serves what an operation is going to make; another one of the same path may."""
        following, current = self.following, self.current
        assert following is not None and current is not None
        # A file may say anything of what an operation makes.
        if current.leaf not in self.plans.elastic and not current.doubted or step.cuts is not None:
            return True
        sizes = result_sizes(func, args, kwargs, self.least)
        if sizes == step.sizes or len(sizes) != len(step.sizes):
            return True
        larger = any(a > b for a, b in zip(sizes, step.sizes))
        if self.sized >= _SIZES and not larger:
            return True
        self.sized += 1
        known = self.plans.variant(current.leaf, {**following.sizes(), **dict(zip(step.new, sizes))})
        if known is current:
            return True
        if known is not None:
            self._switch(known, following.at)
        elif larger:
            self._part(f"{func} makes larger storages than any plan knows")
        return known is None and not larger

    def _is_as_told(self, step: Any, kind: Kind, args: tuple, kwargs: dict) -> bool:
        """Whether an operation touches what a plan that was read from a file says, and nothing else."""
        touched = Touched(kind, args, kwargs, self.storages.known)
        return (tuple(entry.slot for entry, _ in touched.uses) == step.slots and tuple(written for _, written in touched.uses) == tuple(step.written)
                and touched.generator == step.once)

    def _turn(self, func: Any, touched: Touched) -> bool:
        """Something else than the plan's next operation comes: whether the plan of another path goes on that began alike."""
        following, current = self.following, self.current
        assert following is not None and current is not None
        if self.apart is None:
            self.apart = Record.of(following)
        symbols = self.apart.symbols
        leaf = self.paths.turn(current.leaf, following.at, [*symbols, self.apart.peek(func, touched)])
        return leaf is not None and leaf != current.leaf and self._go_on_as(leaf, following.at + len(symbols))

    def _go_on_as(self, leaf: int, at: int) -> bool:
        """Goes on with a path's plan, if it has one that serves the sizes so far."""
        sizes = self.following.sizes() if self.following is not None else self._sizes_so_far()
        known = self.plans.variant(leaf, sizes)
        if known is None or leaf in self.parted or at >= len(known.sequence.steps):
            return False
        self._switch(known, at)
        return True

    def _sizes_so_far(self) -> dict[int, int]:
        assert self.record is not None
        by_number = self.storages.by_number
        return {slot: by_number[number].nbytes for number, slot in self.record.slots.items() if number in by_number}

    def _switch(self, known: Known, at: int) -> None:
        """Follows a plan from its step `at` on."""
        by_number, by_slot = self.storages.by_number, {}
        following = self.following
        if following is not None:
            count = following.steps[following.at].count if following.at < following.count else len(following.by_slot)
            by_slot = {slot: entry for slot, entry in enumerate(following.by_slot[:count]) if entry is not None}
            following.leave()
        else:
            assert self.record is not None
            by_slot = {slot: by_number[number] for number, slot in self.record.slots.items() if number in by_number}
        self._settle()
        self.demand, self.current, self.record, self.apart = None, known, None, None
        self.following = follow_from(self, known, at, by_slot)
        self.prediction = known.prediction
        self.turned = self.turned or at > 0
        if self.verbose and at:
            print(f"tiercel: another path from operation {at} on; its plan goes on")

    def _look(self, args: tuple) -> None:
        """The first shapes of an iteration often tell which path it takes."""
        self.early -= 1
        self.shapes = hash((self.shapes, *(tuple(t.shape) for t in args if isinstance(t, Tensor)))) & 0xFFFF_FFFF_FFFF_FFFF
        done = _EARLY - self.early
        if done not in _ASKED:
            return
        leaf = self.paths.shape(self.shapes)
        if leaf is None or self.visitors or self.current is not None and self.current.leaf == leaf:
            return
        known = self.plans.variant(leaf)
        if known is None:
            return
        if self.following is not None:
            if self.apart is not None or self.following.at == 0:
                return
            at, count = self.following.at, self.following.steps[self.following.at].count if self.following.at < self.following.count else -1
            alike = known.sequence.symbols[:at] == self.current.sequence.symbols[:at]
        elif self.record is not None:
            at, count = len(self.record.seen), self.record.count
            alike = known.sequence.symbols[:at] == [seen.symbol for seen in self.record.seen]
        else:
            return
        if at and alike and at < len(known.sequence.steps) and known.sequence.steps[at].count == count:
            self._go_on_as(leaf, at)

    def _recorded(self, record: Record) -> None:
        """An operation was served on demand: it may be known now which path this is."""
        leaf = self.paths.step(record.seen[-1].symbol)
        if len(record.seen) >= Record.LONGEST:
            self.record = None
        elif leaf is not None and not self.visitors:
            known = self.plans.variant(leaf, self._sizes_so_far())
            at = len(record.seen)
            if known is not None and at < len(known.sequence.steps) and known.sequence.steps[at].count == record.count:
                self._go_on_as(leaf, at)

    def _settle(self) -> None:
        """Copies under way end, and what may leave leaves; whoever visits stays."""
        self.visitors.clear()
        self.storages.flush_all()
        self.mover.settle()
        self.mover.ended()
        self.storages.dead.clear()
        self.storages.lingering.clear()
        self.moved_before = list(self.moved())

    def _serve_all(self) -> None:
        """New books on demand, with all storages where they are."""
        self._settle()
        self.following, self.current = None, None
        self.demand = Demand(self.storages, self.machine, self.room(), self.slow, self.slab)
        self.demand.adopt_all()

    def _follow(self, known: Known) -> None:
        """Follows a plan from here on: brings every storage to where the plan begins."""
        if known is self.current:
            return
        if self.following is not None:
            # From one plan to another: only what differs moves.
            self._switch(known, 0)
            return
        sequence, script, storages = known.sequence, known.script, self.storages
        kept = []
        for slot, (number, stays) in enumerate(zip(self.plans.numbers_of(sequence), sequence.persistent)):
            entry = storages.by_number.get(number) if stays else None
            # One that is gone by now has been followed by another, which will show itself.
            if entry is not None and entry.nbytes == sequence.bytes[slot]:
                kept.append((slot, entry))
        self._settle()
        arrange(self, known, kept)
        self.demand, self.current, self.record = None, known, None
        self.following = Following(storages, sequence, script, self.slab)
        self.following.on_adopt = self.plans.is_now
        for slot, entry in kept:
            self.following.adopt(slot, entry)
        self.prediction = known.prediction
        if self.verbose:
            p = known.prediction
            print(f"tiercel: plan: {_tiercel.show_bytes(self.limit)} of {_tiercel.show_bytes(p['peak'])}, predicted {p['seconds'] / max(p['all_fast'], 1e-9):.2f}x")

    # --- iterations ---

    def boundary(self, optimizer: torch.optim.Optimizer) -> None:
        """An iteration has ended: the optimizer has stepped."""
        with self.lock, _disable_current_modes():
            self._boundary(optimizer)

    def _boundary(self, optimizer: torch.optim.Optimizer) -> None:
        now = time.perf_counter()
        self.iteration += 1
        took = now - self.began
        mode = "planned" if self.following is not None else "on demand"
        self.history.append({"iteration": self.iteration, "seconds": took, "mode": mode, "peak": self.peak})
        if len(self.history) > _HISTORY:
            del self.history[: _HISTORY // 2]
        self.began = now
        following, known = self.following, self.current
        sizes = following.actual() if following is not None and following.scaled else None
        if following is not None and known is not None and following.ended():
            way = 2 if self.turned or not self.begun else 1
            if not self.paths.again(known.leaf, way, took * 1e9):
                self.plans.drop(known.leaf)  # its path was forgotten meanwhile
            known.followed += 1
            known.failures = 0
            if not self.turned:
                known.doubted = False
            self.plans.served(known)
            if sizes is not None:
                following.clock = None
                self.plans.smaller(known, sizes)
            self.plans.time_kernels(known, following)
        else:
            if following is not None:
                self._part(f"it ended after {following.at} of {following.count} operations")
            self._learn(took * 1e9)
        if self.iteration == 1:
            self.learned.first(self, optimizer)
        self._choose()

    def _choose(self) -> None:
        """What is done in the iteration that begins."""
        made, before = self.plans.take_up(), self.current
        if made is not None and before is not None and before not in self.plans.by_leaf.get(before.leaf, ()):
            # The same iteration with a better plan.
            self._serve_nothing()
        said = self.paths.begin()
        known = None if said is None else self.plans.variant(said[0])
        if known is not None and known.rests > 0:
            known.rests -= 1
            known = None
        if known is not None:
            self._follow(known)
            self.paths.begun(known.leaf)
        elif self.following is not None:
            self.following.leave()
            self._serve_all()
        elif self.demand is None:
            self._serve_all()
        self.begun, self.turned = known is not None, False
        self.parted.clear()
        self.record = Record() if self.following is None else None
        self.apart = None
        self.early, self.shapes, self.sized = _EARLY, 0, 0
        self.timed = self.paths.new_in_a_row < _NEW
        self.notices.look(self)

    def _serve_nothing(self) -> None:
        """Between two plans: nothing is followed, and nothing is served."""
        assert self.following is not None
        self.following.leave()
        self.moved_before = list(self.moved())
        self.following, self.current = None, None

    def _learn(self, nanos: float) -> None:
        """An iteration that was served on demand, at least at its end, has ended."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)
        record = self.record
        leaf, repeated, gone = self.paths.end(3 if self.begun else 0, nanos)
        for other in gone:
            self.plans.drop(other)
        if record is not None and leaf is not None and record.seen and (self.timed or repeated):
            self.plans.learn(leaf, Sequence(record.seen, record.sizes, elapsed, record.deaths), repeated)

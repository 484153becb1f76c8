"""The plans of a program, by path: made in the background when a path has come twice, kept in bounded memory, made anew where
kernels take less than it seemed.

A path may come with storages of other sizes, as sentences of other lengths do. A plan serves every iteration of its path whose
storages are no larger than its own; of those that do, the smallest is taken. Iterations in which about as much comes and goes share one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Iterable, Iterator, Optional

from . import _tiercel
from ._room import PLACED, SHARE
from ._script import Script, fold, fold_places, of_books, of_schedule
from ._sequence import WITHIN, Sequence
from ._storages import Entry, Storages
from ._timing import Clock

#: A plan is made anew where kernels turn out to take so much less than they seemed to.
_OTHER = 0.02
#: The iterations of a plan in which kernels are timed.
_TIMED = (2, 4)
#: After so many iterations in which memory was short a plan is made anew, with so much of its memory, and no less than this of all.
_OFTEN, _NARROWER, _LEAST = 2, 0.96, 0.6
#: A plan that failed so often in a row is left for twice as many iterations each time.
_FAILURES = 2
#: Recorded iterations that are kept, and the operations of all plans together (some 1 KiB each).
_RECORDED, _STEPS = 32, 1 << 17


class Homes:
    """Places in slow memory of what outlives iterations: the same in every plan, from the end of slow memory downwards, so that a
    change of plans moves nothing that lies there. What lives within an iteration lies below, in the plan's own order."""

    def __init__(self, nbytes: int) -> None:
        self.places: dict[int, int] = {}
        self.lengths: dict[int, int] = {}
        self.free: dict[int, list[int]] = {}
        self.bottom = nbytes

    def of(self, number: int, nbytes: int) -> int:
        """The place of a storage."""
        place = self.places.get(number)
        if place is None or self.lengths[number] < nbytes:
            length = self.lengths[number] = -(-nbytes // 4096) * 4096
            free = self.free.get(length)
            if free:
                place = free.pop()
            else:
                self.bottom -= length
                place = self.bottom
            self.places[number] = place
        return place

    def keep(self, alive: Iterable[int], used: set[int]) -> None:
        """Places of storages that are gone, and that no plan uses, are free again."""
        alive = set(alive)
        gone = [number for number, place in self.places.items() if number not in alive and place not in used]
        for number in gone:
            place, length = self.places.pop(number), self.lengths.pop(number)
            if place not in self.places.values():
                self.free.setdefault(length, []).append(place)

    def is_home(self, entry: Entry) -> bool:
        """Whether a storage's bytes lie at its own place."""
        return entry.home is not None and self.places.get(entry.number) == entry.home[1]


class Known:
    """An iteration that has a plan."""

    def __init__(self, leaf: int, sequence: Sequence, script: Script, prediction: dict) -> None:
        self.leaf, self.sequence, self.script, self.prediction = leaf, sequence, script, prediction
        #: How often it has been followed to its end, how often in a row it was not, and until when it rests.
        self.followed = 0
        self.failures = 0
        self.rests = 0
        #: It comes from a file: in its first iteration every operation is looked at in full.
        self.doubted = False

    def failed(self) -> None:
        """Something else came that no plan knows."""
        self.failures += 1
        if self.failures >= _FAILURES:
            self.rests = 1 << min(self.failures, 10)


class Plans:
    """All plans of a runtime."""

    def __init__(self, storages: Storages, paths: Any, slab: Any, system: str, machine: str, seconds: float, slow: int) -> None:
        self.storages, self.paths, self.slab = storages, paths, slab
        self.system, self.machine, self.seconds, self.slow = system, machine, seconds, slow
        self.homes = Homes(slow)
        self.aliases: dict[int, int] = {}
        self.by_leaf: OrderedDict[int, list[Known]] = OrderedDict()
        self.recorded: OrderedDict[tuple[int, int], Sequence] = OrderedDict()
        self.hopeless: set[tuple[int, int]] = set()
        #: Paths that came with storages of different sizes.
        self.elastic: set[int] = set()
        self.planning: Optional[threading.Thread] = None
        self.planned: Optional[Known] = None
        self.refused: Optional[str] = None
        self.recording: Any = None
        #: The part of the limit that plans may use; less where an allocator loses more to pieces.
        self.arena = storages.arena
        self.share = SHARE if self.arena is None else PLACED
        #: Iterations in which memory was short though the plan fits.
        self.short = 0
        self.retries_before = 0
        #: The room that plans may use, as the runtime says it.
        self.room: Any = None

    def all(self) -> Iterator[Known]:
        """Every plan."""
        for plans in self.by_leaf.values():
            yield from plans

    def variant(self, leaf: int, sizes: Optional[dict[int, int]] = None) -> Optional[Known]:
        """The plan of a path for storages of these sizes: the smallest that serves them, or the one that served last."""
        plans = self.by_leaf.get(leaf)
        if not plans:
            return None
        self.by_leaf.move_to_end(leaf)
        if not sizes:
            return plans[-1]
        serving = [known for known in plans if known.sequence.covers(sizes)]
        return min(serving, key=lambda known: known.sequence.total, default=None)

    def numbers_of(self, sequence: Sequence) -> list[int]:
        """The storages of a recorded iteration; those that another process named as they turned out to be."""
        return [self.aliases.get(number, number) for number in sequence.numbers]

    def is_now(self, foreign: int, number: int) -> None:
        """A storage that another process knew under one number has another here. Its place is the same in every plan."""
        self.aliases[foreign] = number
        place = self.homes.places.get(foreign)
        if place is not None and number not in self.homes.places:
            self.homes.places[number], self.homes.lengths[number] = place, self.homes.lengths[foreign]

    def served(self, known: Known) -> None:
        """This plan was followed to its end: it is the first guess when its path comes again."""
        plans = self.by_leaf.get(known.leaf)
        if plans is not None and plans[-1] is not known and known in plans:
            plans.remove(known)
            plans.append(known)

    def drop(self, leaf: int) -> None:
        """A path was forgotten."""
        self.by_leaf.pop(leaf, None)
        for key in [key for key in self.recorded if key[0] == leaf]:
            del self.recorded[key]
        self.hopeless = {key for key in self.hopeless if key[0] != leaf}
        self.elastic.discard(leaf)

    def forget(self) -> None:
        """Nothing that was known holds any more."""
        for leaf in list(self.by_leaf):
            self.paths.mark(leaf, False)
        for known in (self.by_leaf, self.recorded, self.hopeless):
            known.clear()  # type: ignore[attr-defined]
        self.planned = self.refused = None

    # --- planning ---

    def learn(self, leaf: int, sequence: Sequence, repeated: bool) -> None:
        """An iteration was recorded; it is planned when its path came before."""
        key = leaf, sequence.bucket
        before = self.recorded.pop(key, None)
        if any(known.sequence.bytes != sequence.bytes for known in self.by_leaf.get(leaf, ())) or before is not None and before.bytes != sequence.bytes:
            self.elastic.add(leaf)
        if before is not None:
            sequence.faster(before)
        self.recorded[key] = sequence
        while len(self.recorded) > _RECORDED:
            self.recorded.popitem(last=False)
        if self.planning is not None or self.planned is not None or key in self.hopeless or not (before is not None or repeated):
            return
        fitting = self.variant(leaf, dict(enumerate(sequence.bytes)))
        if fitting is None or fitting.sequence.total > sequence.total * WITHIN:
            self.plan(leaf, sequence)

    def plan(self, leaf: int, sequence: Sequence) -> None:
        """Has a plan made in the background."""
        recording = sequence.recording(self._roles, self.storages.least, 1 if self.arena is None else self.arena.GRAIN)
        if self.recording is None:
            self.recording = recording
        room, mover = self.room(), self.storages.mover

        def work() -> None:
            try:
                decided = recording.plan(self.machine, [room, self.slow], self.system, True, self.arena is not None, self.seconds, 0)
                self.recording = recording
                prediction = _prediction(decided)
                script = self._script(sequence, decided)
                if script is None:
                    raise RuntimeError(f"{self.system} does not come to repeat itself")
                for place, nbytes in script.ranges:
                    mover.prepare(self.slab, place, nbytes)
                self.planned, self.refused = Known(leaf, sequence, script, prediction), None
            except Exception as error:  # a plan that cannot be had: operations go on being served
                self.refused = f"no plan: {error}"
                self.hopeless.add((leaf, sequence.bucket))
            finally:
                self.planning = None

        self.planning = threading.Thread(target=work, name="tiercel-plan", daemon=True)
        self.planning.start()

    def _script(self, sequence: Sequence, decided: Any) -> Optional[Script]:
        schedule = decided.schedule
        home = self.home_of(sequence)
        if schedule is not None:
            kernels = sequence.kernels()
            acts = fold(kernels, len(sequence.groups), schedule)
            script: Optional[Script] = of_schedule(sequence.groups, sequence.bytes, sequence.persistent, acts, home)
            places = fold_places(kernels, len(sequence.groups), decided.places)
            if script is not None and places is not None:
                script.lie(sequence.groups, sequence.bytes, places, sequence.later)
        else:
            script = of_books(sequence.groups, sequence.kernels(), sequence.bytes, sequence.persistent, decided.open(), home)
        if script is not None and max([script.nbytes, *(known.script.nbytes for known in self.all())]) > self.homes.bottom:
            raise MemoryError(f"slow memory of {_tiercel.show_bytes(self.slow)} is too small for it")
        return script

    def home_of(self, sequence: Sequence) -> Any:
        """The place in slow memory of what outlives an iteration, by its slot."""
        return lambda slot: self.homes.of(sequence.numbers[slot], sequence.bytes[slot])

    def recorded_again(self, known: Known) -> Any:
        """The iteration of a plan that another process made, with a plan of this one to be shown."""
        recording = known.sequence.recording(self._roles, self.storages.least)
        recording.plan(self.machine, [self.room(), self.slow], self.system, True, False, self.seconds, 0)
        self.recording = recording
        return recording

    def _roles(self, number: int) -> tuple[str, str]:
        entry = self.storages.by_number.get(number)
        if entry is None:
            return "t", "activation"
        return entry.name or "t", entry.role or "state"

    def take_up(self) -> Optional[Known]:
        """The plan that has been made, if one has; plans that were not used for longest make room."""
        known, self.planned = self.planned, None
        if known is None:
            return None
        plans = self.by_leaf.setdefault(known.leaf, [])
        plans[:] = [other for other in plans if other.sequence.bucket != known.sequence.bucket] + [known]
        self.by_leaf.move_to_end(known.leaf)
        self.paths.mark(known.leaf, True)
        for other in self.all():
            # What parted from a plan may have been this path.
            other.failures = other.rests = 0
        self.homes.keep(list(self.storages.by_number), {place for other in self.all() for place in other.script.places.values()})
        while len(self.by_leaf) > 1 and sum(len(other.sequence.steps) for other in self.all()) > _STEPS:
            leaf, _ = self.by_leaf.popitem(last=False)
            self.paths.mark(leaf, False)
        return known

    # --- while a plan is followed ---

    def time_kernels(self, known: Known, following: Any) -> None:
        """Kernels are timed while a plan is followed; where they take less than it seemed, the plan is made anew."""
        short = following.shortages + self.storages.retries - self.retries_before
        following.shortages = 0
        if short and known.followed > 1:
            self.short += 1
        if self.short >= _OFTEN and self.planning is None and self.planned is None:
            # Pieces of free memory that nobody can use cost more than was thought: plans make do with less.
            self.short = 0
            self.share = max(_LEAST, self.share * _NARROWER)
            self.plan(known.leaf, known.sequence)
        elif following.clock is not None:
            before = sum(group["nanos"] for group in known.sequence.groups)
            following.clock.tell(known.sequence.groups)
            following.clock = None
            after = sum(group["nanos"] for group in known.sequence.groups)
            if after < before * (1.0 - _OTHER) and self.planning is None:
                self.plan(known.leaf, known.sequence)
        elif known.followed in _TIMED and self.planning is None:
            following.clock = Clock(self.storages.device)
        self.retries_before = self.storages.retries

    def smaller(self, known: Known, sizes: list[int]) -> None:
        """A plan served an iteration over smaller storages: where these are much smaller, they get a plan of their own."""
        sequence = known.sequence
        total = sum(n for n, stays in zip(sizes, sequence.persistent) if not stays)
        if total * WITHIN < sequence.total and self.planning is None and self.planned is None:
            self.elastic.add(known.leaf)
            self.learn(known.leaf, sequence.scaled(sizes), True)


def _prediction(decided: Any) -> dict:
    predicted, all_fast, bound = decided.times
    peak, fetched, evicted = decided.bytes
    return {"seconds": predicted / 1e9, "all_fast": all_fast / 1e9, "bound": None if bound is None else bound / 1e9,
            "peak": peak, "fetched": fetched, "evicted": evicted}

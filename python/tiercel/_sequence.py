"""An iteration as it was seen, operation by operation, and the trace that the planner gets of it.

Storages are named by the order in which they first appear, and an operation is a symbol: what it is, which storages it works on and
how many there were before it, without sizes. So two iterations that do the same have the same symbols, in every process. An
operation that only looks at a tensor in another way belongs to the next one that computes; such a group is one kernel.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
from typing import Any, Callable, Optional

import torch

from ._operations import Kind, tensors_in
from ._tiercel import Recording

Tensor = torch.Tensor


#: Sizes within this factor are in one bucket: a plan serves all of it.
WITHIN = 1.25
_stable: dict[Any, int] = {}
#: Names for storages that are gone.
_gone = itertools.count(1)


def _number(thing: Any) -> int:
    """A number for an operation or for places among arguments that is the same in every process."""
    known = _stable.get(thing)
    if known is None:
        digest = hashlib.blake2b(str(thing).encode(), digest_size=7).digest()
        known = _stable[thing] = int.from_bytes(digest, "little")
    return known


class Seen:
    """One operation as it ran."""

    __slots__ = ("symbol", "func", "view", "uses", "where", "small", "length", "cuts", "made", "sizes", "phase", "clock", "workspace", "once", "later")

    def __init__(self, func: Any, view: bool, touched: "Touched", made: tuple, sizes: tuple, phase: int, clock: Any, workspace: int) -> None:
        self.symbol = 0
        self.func, self.view, self.made, self.sizes = func, view, made, sizes
        self.uses = tuple((e.number, w) for e, w in touched.uses)
        self.where, self.small, self.length = tuple(touched.where), tuple(touched.small), touched.length
        self.cuts: Optional[tuple] = None
        self.phase, self.clock, self.workspace = phase, clock, workspace
        #: It draws from a generator of the program's own, which nobody can put back.
        self.once = touched.generator
        #: For what it made, how many pieces of that size it had taken before for its own use.
        self.later: tuple = ()

    @classmethod
    def again(cls, step: "Step", symbol: int, numbers: Callable[[int], int], sizes: tuple, group: Optional[dict]) -> "Seen":
        """What a step of a known iteration was, with the storages of this one."""
        seen = cls.__new__(cls)
        seen.symbol, seen.func, seen.view = symbol, step.func, step.view
        seen.uses = tuple((numbers(slot), written) for slot, written in zip(step.slots, step.written))
        seen.made, seen.sizes = tuple(numbers(slot) for slot in step.new), sizes
        seen.later = ()
        seen.where, seen.small, seen.length, seen.cuts, seen.once = step.where, step.small, step.length, step.cuts, step.once
        # The group's time and workspace count once, with the operation that ends it.
        last = group is not None and step.last
        seen.phase = group["phase"] if group is not None else 0
        seen.clock, seen.workspace = (group["nanos"], group["workspace"]) if last and group is not None else (None, 0)
        return seen


class Record:
    """The iteration under way: its storages by the order in which they first appeared, and its operations."""

    #: Of a longer iteration nothing is recorded.
    LONGEST = 1 << 17

    def __init__(self) -> None:
        self.slots: dict[int, int] = {}
        self.count = 0
        self.seen: list[Seen] = []
        #: The symbols since the record was begun, and the sizes of all storages.
        self.symbols: list[int] = []
        self.sizes: dict[int, int] = {}
        #: Storages that are gone, with the number of operations that had run by then.
        self.deaths: dict[int, int] = {}

    @classmethod
    def of(cls, following: Any) -> "Record":
        """The same while a plan is followed: what its steps so far have been."""
        record = cls()
        steps = following.steps
        record.count = steps[following.at].count if following.at < len(steps) else len(following.by_slot)
        for slot in range(record.count):
            entry = following.by_slot[slot]
            if entry is not None and entry.ref is not None:
                record.slots[entry.number] = slot
        return record

    def fill(self, following: Any) -> None:
        """Puts what a plan's steps so far have been before what came after them."""
        sequence, by_slot = following.sequence, following.by_slot
        live = {slot: number for number, slot in self.slots.items()}

        def number(slot: int) -> int:
            known = live.get(slot)
            if known is None:
                # What is gone needs a name that nobody else has.
                known = live[slot] = -next(_gone)
            return known

        def size(slot: int) -> int:
            return by_slot[slot].nbytes if by_slot[slot] is not None else sequence.bytes[slot]

        before = []
        for step, symbol in zip(sequence.steps[: following.at], sequence.symbols):
            group = sequence.groups[step.group] if step.group >= 0 else None
            before.append(Seen.again(step, symbol, number, tuple(size(slot) for slot in step.new), group))
            self.sizes.update((number(slot), size(slot)) for slot in (*step.slots, *step.new))
        if following.strange and before:
            # The last one made other storages than were expected.
            before[-1].made = tuple(entry.number for entry in following.strange)
            before[-1].sizes = tuple(entry.nbytes for entry in following.strange)
            self.sizes.update(zip(before[-1].made, before[-1].sizes))
        self.seen[:0] = before
        # When those of before died is not known.
        self.deaths.clear()

    def peek(self, func: Any, touched: "Touched") -> int:
        """What an operation would be among those of the iteration."""
        slots, fresh, used = self.slots, {}, []
        for entry, _ in touched.uses:
            slot = slots.get(entry.number)
            if slot is None:
                slot = fresh.setdefault(entry.number, self.count + len(fresh))
            # A layer that is left out for another one like it shows in the parameters alone.
            used.append((slot, entry.rank))
        return hash((_number(func), _number(tuple(touched.where)), touched.length, self.count, tuple(used))) & 0xFFFF_FFFF_FFFF_FFFF

    def add(self, seen: Seen, touched: "Touched", made: list[Any]) -> None:
        """An operation has run and has made these storages."""
        seen.symbol = self.peek(seen.func, touched)
        self.symbols.append(seen.symbol)
        self.seen.append(seen)
        for entry, _ in touched.uses:
            if entry.number not in self.slots:
                self.slots[entry.number] = self.count
                self.sizes[entry.number] = entry.nbytes
                self.count += 1
        self.sizes.update(zip(seen.made, seen.sizes))
        self.made(made)

    def died(self, number: int) -> None:
        """The program has let go of a storage."""
        self.deaths[number] = len(self.seen)

    def made(self, entries: list[Any]) -> None:
        """These storages are new in the iteration."""
        for entry in entries:
            self.slots[entry.number] = self.count
            self.count += 1


class Touched:
    """The storages that an operation touches, and where among its arguments they are."""

    __slots__ = ("uses", "where", "small", "length", "generator")

    def __init__(self, kind: Kind, args: tuple, kwargs: dict, entry_of: Callable[[Tensor], Any]) -> None:
        self.uses: list[tuple[Any, bool]] = []
        #: For each use, the argument: its position or name, and the position in a list, or -1; nothing where it lies deeper.
        self.where: list[Optional[tuple]] = []
        #: Arguments that are tensors too small to count.
        self.small: list[int] = []
        self.length = len(args[0]) if kind.lists and args and isinstance(args[0], (list, tuple)) else 0
        self.generator = any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values()))
        for at, value in enumerate(args):
            if isinstance(value, Tensor):
                self._note(at, -1, value, at in kind.written_at, entry_of)
            elif isinstance(value, (list, tuple)):
                self._list(at, value, at in kind.written_at, entry_of)
        for name, value in kwargs.items():
            if isinstance(value, Tensor):
                self._note(name, -1, value, name in kind.written_as, entry_of)
            elif isinstance(value, (list, tuple)):
                self._list(None, value, name in kind.written_as, entry_of)

    def _note(self, at: Any, inner: int, tensor: Tensor, written: bool, entry_of: Callable[[Tensor], Any]) -> None:
        entry = entry_of(tensor)
        if entry is not None:
            self.uses.append((entry, written))
            self.where.append(None if at is None else (at, inner))
        elif isinstance(at, int) and inner < 0 and not tensor.is_sparse:
            self.small.append(at)

    def _list(self, at: Optional[int], values: Any, written: bool, entry_of: Callable[[Tensor], Any]) -> None:
        for inner, value in enumerate(values):
            if isinstance(value, Tensor):
                self._note(at, inner, value, written, entry_of)
            else:
                for tensor in tensors_in(value):
                    self._note(None, -1, tensor, written, entry_of)


class Step:
    """One operation of a known sequence: what it must be, where its group begins and ends, and what is done around it."""

    __slots__ = ("func", "call", "view", "slots", "written", "new", "sizes", "group", "first", "last", "room", "where", "flat", "nested", "named", "small",
                 "length", "cuts", "once", "count", "before", "after", "note", "lies", "random")

    def __init__(self, op: Seen, slots: tuple, new: tuple, count: int) -> None:
        self.func, self.slots, self.new, self.sizes = op.func, slots, new, op.sizes
        self.view, self.where, self.once = op.view, op.where, op.once
        self.written = tuple(written for _, written in op.uses)
        #: How many storages there were before it.
        self.count = count
        #: The operation without the Python function around it.
        self.call = getattr(op.func, "_op", op.func)
        self.group, self.first, self.last = -1, False, False
        self.small, self.length = op.small, op.length
        #: Where a long list is cut, at the first of its pieces.
        self.cuts = op.cuts
        self.find()

    def find(self) -> None:
        """What following is quicker with."""
        self.room = 0
        places = [(where, slot) for where, slot in zip(self.where, self.slots) if where is not None]
        #: Where its storages are among its arguments: alone, in a list, by name; and arguments that are too small to count.
        self.flat = tuple((at, slot) for (at, inner), slot in places if isinstance(at, int) and inner < 0)
        self.nested = tuple((at, inner, slot) for (at, inner), slot in places if isinstance(at, int) and inner >= 0)
        self.named = tuple((at, slot) for (at, inner), slot in places if isinstance(at, str))
        self.before: Optional[tuple] = None
        self.after: Optional[tuple] = None
        self.note: Any = None
        #: Where what it makes lies on the device, if the plan says.
        self.lies: Any = None
        #: The generator that it draws from, to put it back where an operation has to begin anew.
        self.random: Any = None


class Sequence:
    """A recorded iteration: its steps, its storages and its groups."""

    def __init__(self, seen: list[Seen], sizes: dict[int, int], elapsed: Callable[[Any], float], deaths: dict[int, int]) -> None:
        slots: dict[int, int] = {}
        made: set[int] = set()
        self.steps: list[Step] = []
        self.groups: list[dict] = []
        self.bytes: list[int] = []
        self.numbers: list[int] = []

        def slot(number: int) -> int:
            known = slots.get(number)
            if known is None:
                known = slots[number] = len(self.bytes)
                self.bytes.append(sizes[number])
                self.numbers.append(number)
            return known

        opened: Optional[int] = None
        group: dict = {}
        for op in seen:
            count = len(self.bytes)
            used = tuple(slot(n) for n, _ in op.uses)
            new = tuple(slot(n) for n in op.made)
            made.update(op.made)
            step = Step(op, used, new, count)
            self.steps.append(step)
            if not used and not new:
                continue
            if opened is None:
                opened = len(self.groups)
                group = {"op": "", "phase": op.phase, "reads": [], "writes": [], "nanos": 0.0, "workspace": 0, "room": 0, "once": False}
                self.groups.append(group)
                step.first = True
            step.group = opened
            fresh = set(group["writes"]) - set(group["reads"])
            for number, written in op.uses:
                at = slots[number]
                if at not in fresh and at not in group["reads"]:
                    group["reads"].append(at)
                if written and at not in group["writes"]:
                    group["writes"].append(at)
            group["writes"].extend(n for n in new if n not in group["writes"])
            group["nanos"] += elapsed(op.clock)
            group["workspace"] = max(group["workspace"], op.workspace)
            group["once"] = group["once"] or op.once
            if not op.view:
                group["op"] = str(op.func).removeprefix("aten.").removesuffix(".default")
                step.last = True
                opened = None
        if opened is not None:
            # Views at the end that nothing computes on: the last operation closes their group.
            last = next(s for s in reversed(self.steps) if s.group == opened)
            last.last = True
            group["op"] = "view"
        #: What comes from before the iteration; it stays, or another takes its place before the next one.
        self.persistent = [n not in made for n in self.numbers]
        self.symbols = [op.symbol for op in seen]
        #: Storages that the program holds beyond the last operation that touches them, by the group before which they are gone.
        self.holds = self._held(slots, deaths)
        #: Storages before which the operation that makes them takes pieces of their size for its own use, and how many.
        self.later = {slots[number]: count for op in seen for number, count in zip(op.made, op.later) if count}
        self._measure()

    def _held(self, slots: dict[int, int], deaths: dict[int, int]) -> dict[int, list[int]]:
        count = len(self.groups)
        last = [-1] * len(self.bytes)
        for at, group in enumerate(self.groups):
            for slot in (*group["reads"], *group["writes"]):
                last[slot] = at
        # For each operation, the group that runs when it does, or next.
        at, groups = count, [count] * (len(self.steps) + 1)
        for index in range(len(self.steps) - 1, -1, -1):
            at = self.steps[index].group if self.steps[index].group >= 0 else at
            groups[index] = at
        holds: dict[int, list[int]] = {}
        for number, slot in slots.items():
            if self.persistent[slot] or last[slot] < 0 or not deaths:
                continue
            gone = groups[deaths[number]] if number in deaths else count
            if gone > last[slot] + 1:
                holds.setdefault(gone, []).append(slot)
        return holds

    def kernels(self) -> list[Optional[int]]:
        """The kernels of the trace: groups of operations by number, and before some, one for each storage that the program holds until
        then. (One for all would have all of them be there together.)"""
        found: list[Optional[int]] = []
        for at in range(len(self.groups) + 1):
            found += [None] * len(self.holds.get(at, ()))
            if at < len(self.groups):
                found.append(at)
        return found

    def _measure(self) -> None:
        """What follows from the sizes of the storages."""
        for group in self.groups:
            group["room"] = 0
        for step in self.steps:
            step.sizes = tuple(self.bytes[slot] for slot in step.new)
            if step.group >= 0:
                self.groups[step.group]["room"] += sum(step.sizes)
        for step in self.steps:
            # The first step makes room; the last one looks again, as a plan may be entered between them.
            if step.first or step.last:
                step.room = self.groups[step.group]["room"] + self.groups[step.group]["workspace"]
        self.total = sum(n for n, stays in zip(self.bytes, self.persistent) if not stays)
        #: Iterations in which as much comes and goes are in one bucket.
        self.bucket = int(math.log(max(self.total, 1)) / math.log(WITHIN))

    def covers(self, sizes: dict[int, int]) -> bool:
        """Whether a plan for this iteration serves one whose storages have these sizes so far."""
        return all(nbytes <= self.bytes[slot] for slot, nbytes in sizes.items())

    def faster(self, other: "Sequence") -> None:
        """Takes the shorter times of another recording of the same iteration; where sizes differ, the larger of both and their times."""
        same = self.bytes == other.bytes
        for mine, theirs in zip(self.groups, other.groups):
            mine["nanos"] = (min if same else max)(mine["nanos"], theirs["nanos"])
            mine["workspace"] = max(mine["workspace"], theirs["workspace"])
        if not same:
            self.bytes = [max(a, b) for a, b in zip(self.bytes, other.bytes)]
            self._measure()

    def scaled(self, sizes: list[int]) -> "Sequence":
        """The same iteration over storages of other sizes; its times go with the bytes that operations touch."""
        other = copy.copy(self)
        other.steps = [copy.copy(step) for step in self.steps]
        other.bytes, other.numbers = list(sizes), list(self.numbers)
        other.groups = []
        for group in self.groups:
            touched = {*group["reads"], *group["writes"]}
            share = sum(sizes[slot] for slot in touched) / max(1, sum(self.bytes[slot] for slot in touched))
            other.groups.append({**group, "nanos": group["nanos"] * share})
        other._measure()
        return other

    def recording(self, roles: Callable[[int], tuple[str, str]], least: int, grain: int = 1) -> Recording:
        """The iteration as the planner wants it; `roles` gives a storage's name and role. Sizes are multiples of `grain`."""
        recording = Recording()
        for number, nbytes, stays in zip(self.numbers, self.bytes, self.persistent):
            name, role = roles(number)
            recording.storage(name, -(-nbytes // grain) * grain, role, stays)
        held = iter([slot for at in sorted(self.holds) for slot in self.holds[at]])
        for kernel in self.kernels():
            if kernel is None:
                recording.operation("held", "update", 2, [next(held)], [], 0, 1, True)
                continue
            group = self.groups[kernel]
            workspace = -(-group["workspace"] // grain) * grain if group["workspace"] >= least else 0
            layer = ("forward", "backward", "update")[group["phase"]]
            recording.operation(
                group["op"], layer, group["phase"], group["reads"], group["writes"], workspace, max(1, int(group["nanos"])), group["once"],
            )
        return recording

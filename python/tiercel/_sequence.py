"""An iteration as it was seen, operation by operation, and the trace that the planner gets of it.

Storages are named by the order in which they first appear, so two iterations that do the same have the same signature. An
operation that only looks at a tensor in another way belongs to the next one that computes; such a group is one kernel.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch

from ._operations import Kind, tensors_in
from ._tiercel import Recording

Tensor = torch.Tensor


class Seen:
    """One operation as it ran."""

    __slots__ = ("func", "view", "uses", "where", "small", "length", "cuts", "made", "sizes", "phase", "clock", "workspace", "once")

    def __init__(self, func: Any, view: bool, touched: "Touched", made: tuple, sizes: tuple, phase: int, clock: Any, workspace: int) -> None:
        self.func, self.view, self.made, self.sizes = func, view, made, sizes
        self.uses = tuple((e.number, w) for e, w in touched.uses)
        self.where, self.small, self.length = tuple(touched.where), tuple(touched.small), touched.length
        self.cuts: Optional[tuple] = None
        self.phase, self.clock, self.workspace = phase, clock, workspace
        #: It draws from a generator of the program's own, which nobody can put back.
        self.once = touched.generator


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

    __slots__ = ("func", "call", "slots", "new", "sizes", "group", "first", "last", "room", "flat", "nested", "named", "small", "length", "cuts", "before", "after", "note")

    def __init__(self, op: Seen, slots: tuple, new: tuple) -> None:
        self.func, self.slots, self.new, self.sizes = op.func, slots, new, op.sizes
        #: The operation without the Python function around it.
        self.call = getattr(op.func, "_op", op.func)
        self.group, self.first, self.last, self.room = -1, False, False, 0
        places = [(where, slot) for where, slot in zip(op.where, slots) if where is not None]
        #: Where its storages are among its arguments: alone, in a list, by name; and arguments that are too small to count.
        self.flat = tuple((at, slot) for (at, inner), slot in places if isinstance(at, int) and inner < 0)
        self.nested = tuple((at, inner, slot) for (at, inner), slot in places if isinstance(at, int) and inner >= 0)
        self.named = tuple((at, slot) for (at, inner), slot in places if isinstance(at, str))
        self.small, self.length = op.small, op.length
        #: Where a long list is cut, at the first of its pieces.
        self.cuts = op.cuts
        self.before: Optional[tuple] = None
        self.after: Optional[tuple] = None
        self.note: Any = None


class Sequence:
    """A recorded iteration: its steps, its storages and its groups."""

    def __init__(self, seen: list[Seen], sizes: dict[int, int], elapsed: Callable[[Any], float]) -> None:
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
            used = tuple(slot(n) for n, _ in op.uses)
            new = tuple(slot(n) for n in op.made)
            made.update(op.made)
            step = Step(op, used, new)
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
            group["room"] += sum(op.sizes)
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
        for step in self.steps:
            if step.first:
                step.room = self.groups[step.group]["room"] + self.groups[step.group]["workspace"]
        #: What comes from before the iteration; it stays, or another takes its place before the next one.
        self.persistent = [n not in made for n in self.numbers]
        self.signature = hash(tuple((id(s.func), s.slots, s.new, s.sizes) for s in self.steps))

    def faster(self, other: "Sequence") -> None:
        """Takes the shorter times of another recording of the same iteration."""
        for mine, theirs in zip(self.groups, other.groups):
            mine["nanos"] = min(mine["nanos"], theirs["nanos"])
            mine["workspace"] = max(mine["workspace"], theirs["workspace"])

    def recording(self, roles: Callable[[int], tuple[str, str]], least: int) -> Recording:
        """The iteration as the planner wants it; `roles` gives a storage's name and role."""
        recording = Recording()
        for number, nbytes, stays in zip(self.numbers, self.bytes, self.persistent):
            name, role = roles(number)
            recording.storage(name, nbytes, role, stays)
        for group in self.groups:
            workspace = group["workspace"] if group["workspace"] >= least else 0
            layer = ("forward", "backward", "update")[group["phase"]]
            recording.operation(
                group["op"], layer, group["phase"], group["reads"], group["writes"], workspace, max(1, int(group["nanos"])), group["once"],
            )
        return recording

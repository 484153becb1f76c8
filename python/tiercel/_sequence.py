"""An iteration as it was seen, operation by operation, and the trace that the planner gets of it.

Storages are named by the order in which they first appear, so two iterations that do the same have the same signature. An
operation that only looks at a tensor in another way belongs to the next one that computes; such a group is one kernel.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from ._tiercel import Recording


class Seen:
    """One operation as it ran."""

    __slots__ = ("func", "view", "uses", "made", "sizes", "phase", "clock", "workspace")

    def __init__(self, func: Any, view: bool, uses: tuple, made: tuple, sizes: tuple, phase: int, clock: Any, workspace: int) -> None:
        self.func, self.view, self.uses, self.made, self.sizes = func, view, uses, made, sizes
        self.phase, self.clock, self.workspace = phase, clock, workspace


class Step:
    """One operation of a known sequence: what it must be, and where its group begins and ends."""

    __slots__ = ("func", "slots", "new", "sizes", "group", "first", "last", "room")

    def __init__(self, func: Any, slots: tuple, new: tuple, sizes: tuple) -> None:
        self.func, self.slots, self.new, self.sizes = func, slots, new, sizes
        self.group, self.first, self.last, self.room = -1, False, False, 0


class Sequence:
    """A recorded iteration: its steps, its storages and its groups."""

    def __init__(self, seen: list[Seen], sizes: dict[int, int], alive: Callable[[int], bool], elapsed: Callable[[Any], float]) -> None:
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
            step = Step(op.func, used, new, op.sizes)
            self.steps.append(step)
            if not used and not new:
                continue
            if opened is None:
                opened = len(self.groups)
                group = {"op": "", "phase": op.phase, "reads": [], "writes": [], "nanos": 0.0, "workspace": 0, "room": 0}
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
        self.persistent = [n not in made and alive(n) for n in self.numbers]
        #: Storages that come from before the iteration and die in it: what is carried over cannot be followed yet.
        self.carried = sum(1 for n, stays in zip(self.numbers, self.persistent) if n not in made and not stays)
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
                group["op"], layer, group["phase"], group["reads"], group["writes"], workspace, max(1, int(group["nanos"])), len(group["writes"]) > 1,
            )
        return recording


class Play:
    """How a plan plays a recorded sequence: its kernels, some of which run an earlier operation once more."""

    def __init__(self, sequence: Sequence, origins: Optional[tuple]) -> None:
        count = len(sequence.bytes)
        groups = sequence.groups
        if origins is None:
            kernels = [(at, at, False) for at in range(len(groups))]
            self.tensors = list(range(count + len(groups)))
        else:
            kernels, self.tensors = origins
        #: For each group, the kernels that are played at its beginning: position, group, and whether once more.
        self.steps: list[list[tuple[int, int, bool]]] = [[] for _ in groups]
        #: For each group, its own kernel.
        self.own = [0] * len(groups)
        self.repeated = {kernel for kernel, _, again in kernels if again}
        touched: dict[int, int] = {}
        #: The storages that some kernel that runs again needs: they are held, though the program may let them go.
        self.held: set[int] = set()
        for at, (kernel, step, again) in enumerate(kernels):
            self.steps[step].append((at, kernel, again))
            if not again:
                self.own[step] = at
            slots = (*groups[kernel]["reads"], *groups[kernel]["writes"])
            touched.update((slot, at) for slot in slots)
            if again:
                self.held.update(slots)
        #: For each kernel, the storages that no later one touches and that do not outlive the iteration.
        self.last: list[list[int]] = [[] for _ in kernels]
        for slot, at in touched.items():
            if not sequence.persistent[slot]:
                self.last[at].append(slot)
        #: Tensors of the plan whose bytes are made again later: all but the last with the same storage.
        latest: dict[int, int] = {slot: tensor for tensor, slot in enumerate(self.tensors)}
        self.dropped = {tensor for tensor, slot in enumerate(self.tensors) if latest[slot] != tensor and slot < count}

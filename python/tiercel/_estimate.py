"""What a training step will need and how long it will take, before it runs and without a GPU.

A dry run (``_dry.py``) gives the step's operations and storages; a machine file says how long operations take; the planner of
the runtime plans the same trace for one limit after the other. Nothing here is measured.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from typing import Any, Callable, NamedTuple, Optional, Union

from . import _tiercel
from ._dry import Step, dry_run
from ._room import limit_for, usable

Size = Union[str, int]
_show = _tiercel.show_bytes
_MANY = {"activation": "activations", "gradient": "gradients", "state": "states", "weight": "weights"}


class Point(NamedTuple):
    """A limit of memory, and what a step under it is expected to take."""

    limit: int
    seconds: float
    slowdown: float
    fetched: int
    evicted: int
    moved: int
    again: int
    recording: Any


class Batches(NamedTuple):
    """The largest batch: with nothing moved, within the share of all-fast speed that was asked for, and with a plan at all."""

    plain: int
    within: int
    at_all: int


def _times(machine: str, step: Step) -> list[int]:
    return _tiercel.kernel_times(machine, [tuple(call)[:7] for call in step.calls])


class Estimate:
    """What was found: print it, take :meth:`json`, or write a :meth:`page`."""

    def __init__(self, step: Step, pieces: Step, name: str, machine: str, limit: int, slow: int, least: int, seconds: float,
                 within: float, seed: int) -> None:
        self.name, self._text, self.limit, self.within = name, machine, limit, within
        self.machine, self.source, _, _ = _tiercel.machine_facts(machine)
        self.device, self.peak, self.kinds = step.device, step.peak, step.kinds
        self.operations, self.flops = len(step.calls), sum(call.flops for call in step.calls)
        self._pieces, self._slow, self._least, self._seconds, self._seed = pieces, slow, least, seconds, seed
        #: The time of a step with nothing moved.
        self.seconds = sum(_times(machine, step)) / 1e9
        self._times = _times(machine, pieces)
        self._recording, kernels = pieces.recording(self._times, least)
        wanted = [(sum(pieces.sizes[s] for s in {*k["reads"], *k["writes"]}), k["op"]) for k in kernels]
        self._largest, self.largest_operation = max(wanted, default=(0, ""))
        #: Below this limit an operation's own operands do not fit.
        self.impossible_below = limit_for(self._largest, self.device != "cpu")
        self.points: list[Point] = []
        self.refused: dict[int, str] = {}
        #: The least limit that was found within the share of all-fast speed that was asked for, and the least with a plan.
        self.enough: Optional[Point] = None
        self.least: Optional[Point] = None
        self.largest_batch: Optional[Batches] = None

    # --- planning ---

    def at(self, limit: Size) -> Optional[Point]:
        """What a step takes under a limit; `None` where no plan is found for it in the time that planning is given."""
        nbytes = limit if isinstance(limit, int) else _tiercel.parse_bytes(limit)
        known = next((point for point in self.points if point.limit == nbytes), None)
        if known is not None or nbytes in self.refused:
            return known
        recording, _ = self._pieces.recording(self._times, self._least)
        try:
            plan = recording.plan(self._text, [usable(nbytes, self.device != "cpu"), self._slow], "tiercel", True, False, self._seconds, self._seed)
        except RuntimeError as error:
            self.refused[nbytes] = str(error)
            return None
        predicted, all_fast, _ = plan.times
        _, fetched, evicted = plan.bytes
        moved, again = plan.changes or (0, 0)
        point = Point(nbytes, predicted / 1e9, predicted / max(1, all_fast), fetched, evicted, moved, again, recording)
        self.points = sorted([*self.points, point], key=lambda p: p.limit)
        return point

    def _between(self, low: int, high: Point, good: Callable[[Point], bool]) -> Point:
        """The least limit above `low` that is good, to a fiftieth of the peak."""
        while high.limit - low > max(1, self.peak // 50):
            middle = (low + high.limit) // 2
            point = self.at(middle)
            low, high = (low, point) if point is not None and good(point) else (middle, high)
        return high

    def curve(self, shares: tuple[float, ...]) -> None:
        """Plans for these shares of the peak, then looks for the least limits between them."""
        whole = limit_for(self.peak, self.device != "cpu")
        for share in shares:
            limit = int(whole * share)
            if limit >= self.impossible_below:
                self.at(limit)
        quick = [point for point in self.points if point.slowdown <= 1 + self.within]
        if quick:
            slower = [p.limit for p in self.points if p.slowdown > 1 + self.within and p.limit < quick[0].limit]
            low = max([*slower, *(limit for limit in self.refused if limit < quick[0].limit), self.impossible_below - 1])
            self.enough = self._between(low, quick[0], lambda point: point.slowdown <= 1 + self.within)
        if self.points:
            low = max([*(limit for limit in self.refused if limit < self.points[0].limit), self.impossible_below - 1])
            self.least = self._between(low, self.points[0], lambda point: True)

    # --- what was found ---

    def json(self) -> dict[str, Any]:
        """Everything as plain data; names are those of ``docs/json.md`` where it has them."""
        point = lambda p: None if p is None else {
            "fast_bytes": p.limit, "iteration_ns": round(p.seconds * 1e9), "slowdown": p.slowdown, "fetched_bytes": p.fetched,
            "evicted_bytes": p.evicted, "moves": p.moved, "recomputed": p.again}
        return {
            "net": self.name, "machine": self.machine, "source": self.source, "measured": False, "device": self.device,
            "peak_bytes": self.peak, "peak_by_role": self.kinds, "operations": self.operations, "flops": self.flops,
            "fast_only_ns": round(self.seconds * 1e9), "limit_bytes": self.limit, "within": self.within, "enough": point(self.enough),
            "least": point(self.least), "impossible_below_bytes": self.impossible_below, "largest_operation": self.largest_operation,
            "curve": [point(p) for p in self.points], "largest_batch": None if self.largest_batch is None else self.largest_batch._asdict(),
        }

    def _lines(self) -> list[tuple[str, str]]:
        percent = f"{self.within * 100:g} %"
        parts = sorted(self.kinds.items(), key=lambda item: -item[1])
        of = ", ".join(f"{_show(n)} of {_MANY.get(role, role)}" for role, n in parts if n * 100 > self.peak)
        rows = [("peak", f"{_show(self.peak)} with nothing moved: {of}"),
                ("step", f"{_time(self.seconds)} with nothing moved; {self.operations:,} operations, {self.flops / 1e12:.3g} TFLOP")]
        if self.enough is not None:
            rows.append((f"within {percent}", f"from {_show(self.enough.limit)} on"))
        elif self.points:
            rows.append((f"within {percent}", f"not found, not even with {_show(self.points[-1].limit)}"))
        if self.least is not None:
            rows.append(("least", f"{_show(self.least.limit)} has a plan ({self.least.slowdown:.2f} times as long)"))
        rows.append(("impossible", f"below {_show(self.impossible_below)}: {self.largest_operation} works on {_show(self._largest)} at once"))
        if self.largest_batch is not None:
            b = self.largest_batch
            rows.append(("largest batch", f"{b.plain} in {_show(self.limit)} with nothing moved, {b.within} within {percent}, {b.at_all} with a plan at all"))
        if self.device == "cpu":
            rows.append(("note", "the step runs on tensors of the processor: so do its operations"))
        return rows

    def __str__(self) -> str:
        rows = [f"{self.name} on {self.machine}, estimated", ""]
        rows += [f"  {name:<14} {text}" for name, text in self._lines()]
        if self.points:
            rows += ["", "       limit  of peak        step  slowdown          in         out   moves   again"]
            rows += [f"  {_show(p.limit):>10}  {p.limit * 100 / max(1, self.peak):5.0f} %  {_time(p.seconds):>10}  {p.slowdown:7.2f}×"
                     f"  {_show(p.fetched):>10}  {_show(p.evicted):>10}  {p.moved:6}  {p.again:6}" for p in self.points]
        return "\n".join(rows)

    def page(self, path: Union[str, os.PathLike]) -> None:
        """Writes a page with the curve, and the iteration under the least limit that is enough as it is expected to go."""
        drawn = self.enough or self.least
        limits = [(p.limit, round(p.seconds * 1e9), p.fetched, p.evicted) for p in self.points]
        notes = [f"{name}: {text}" for name, text in self._lines()]
        _tiercel.estimate_page(os.fspath(path), self.name, self.machine, self.peak, round(self.seconds * 1e9), limits, notes,
                               None if drawn is None else drawn.recording)

    def trace(self, path: Union[str, os.PathLike]) -> None:
        """Writes the step as a trace that ``tiercel plan`` reads, with the estimated times of its operations."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._recording.text(self.name))


def estimate(make: Callable[..., Any], machine: str = "h200", *, batch: Optional[int] = None, limit: Optional[Size] = None,
             slow: Optional[Size] = None, name: Optional[str] = None, shares: tuple[float, ...] = (1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.2),
             within: float = 0.05, seconds: float = 2.0, least: Size = "1MiB", seed: int = 0) -> Estimate:
    """Says what a training step needs and how long it takes on a machine, without a GPU and without running it.

    ``make`` builds model and optimizer and returns the step, a function without arguments that does forward, backward and update;
    nothing is allocated, whatever its size. A step whose model exists already will do as well. With ``batch``, ``make`` is a
    function of the batch, and the largest one that fits is looked for.

    ``machine`` is a machine that ``tiercel list`` names, or the text of a machine file. ``seconds`` is what planning may take for each
    limit.

    >>> import torch, tiercel
    >>> def make():
    ...     model = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 10)).to("cuda")
    ...     optimizer = torch.optim.SGD(model.parameters(), 0.1)
    ...     def step():
    ...         optimizer.zero_grad()
    ...         model(torch.randn(1024, 4096, device="cuda")).sum().backward()
    ...         optimizer.step()
    ...     return step
    >>> e = tiercel.estimate(make, "rtx4090", shares=())
    >>> e.machine, e.peak > 2 * 4096 * 4096 * 4
    ('rtx4090', True)
    """
    session = sys.modules.get("tiercel._session")
    if session is not None and session.current() is not None:
        raise RuntimeError("tiercel: a limit is in force; estimates are made before it is set, or after tiercel.unlimit()")
    title, _, fast_bytes, slow_bytes = _tiercel.machine_facts(machine)
    there = fast_bytes if limit is None else _amount(limit)
    behind = slow_bytes if slow is None else _amount(slow)
    smallest = _amount(least)
    name = name or getattr(make, "__qualname__", type(make).__name__).removesuffix(".<locals>.make")

    def one(size: Optional[int]) -> Estimate:
        whole, pieces = dry_run(make if size is None else (lambda: make(size)), title, there)
        called = name if size is None else f"{name}, batch {size}"
        return Estimate(whole, pieces, called, machine, there, behind, smallest, seconds, within, seed)

    if batch is None and _wants(make):
        raise TypeError("tiercel.estimate: this function takes an argument; give batch=… if it is the batch")
    found = one(batch)
    found.curve(shares)
    if batch is not None:
        found.largest_batch = _largest(one, batch, there, within)
    return found


def _wants(make: Callable[..., Any]) -> bool:
    """Whether a function cannot be called without an argument."""
    try:
        inspect.signature(make).bind()
    except TypeError:
        return True
    except ValueError:
        pass
    return False


def _largest(one: Callable[[int], Estimate], batch: int, limit: int, within: float) -> Batches:
    """The largest batches; more of one is taken to need more of everything."""
    known: dict[int, Estimate] = {}

    def at(size: int) -> Estimate:
        if size not in known:
            known[size] = one(size)
        return known[size]

    def plain(size: int) -> bool:
        found = at(size)
        return found.peak <= usable(limit, found.device != "cpu")

    def planned(size: int, most: float) -> bool:
        if plain(size):
            return True
        found = at(size)
        point = found.at(limit) if limit >= found.impossible_below else None
        return point is not None and point.slowdown <= most

    first = _last(plain, batch)
    second = max(first, _last(lambda size: planned(size, 1 + within), max(1, first)))
    return Batches(first, second, max(second, _last(lambda size: planned(size, float("inf")), max(1, second))))


def _last(good: Callable[[int], bool], start: int) -> int:
    """The last of the numbers from 1 on that is good, to a part in 32: doubled until it is not, then halved between; 0 where
    none is."""
    low, high = 0, start
    while high <= start * 1024 and good(high):
        low, high = high, high * 2
    while high - low > max(1, low // 32):
        middle = (low + high) // 2
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


def _amount(value: Size) -> int:
    return value if isinstance(value, int) else _tiercel.parse_bytes(value)


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def text(found: Estimate) -> str:
    """The estimate as a JSON document."""
    return json.dumps(found.json(), indent=2)

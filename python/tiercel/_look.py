"""What a session shows of itself: the figures of its plan, a line of progress, and the house's page.

Step times are measured. What happens inside a step is the plan as it is simulated, and pages say so: on a device copies and kernels
are not watched one by one.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import Any, NamedTuple, Optional, Union

from torch.optim.optimizer import register_optimizer_step_post_hook

from . import _notices
from ._tiercel import show_bytes

Path = Union[str, os.PathLike]
#: Seconds between lines of progress while nothing changes.
_EVERY = 30.0


class Plan(NamedTuple):
    """The figures of the plan that is followed. Times are seconds; `measured` is the median of the iterations that followed it."""

    limit: int
    peak: int
    seconds: float
    all_fast: float
    bound: Optional[float]
    fetched: int
    evicted: int
    iterations: int
    measured: Optional[float]

    @property
    def slowdown(self) -> float:
        """How much longer a step is expected to take than with everything fast."""
        return self.seconds / max(self.all_fast, 1e-12)

    @property
    def measured_slowdown(self) -> Optional[float]:
        """The same as it was measured, against the sum of the recorded operations."""
        return None if self.measured is None else self.measured / max(self.all_fast, 1e-12)


def steps(runtime: Any) -> tuple[list[float], list[float]]:
    """The seconds of the iterations that followed a plan, and of those that were served on demand.

    The first of either kind is left out: memory is pinned and storages are brought to where a plan begins while it runs.
    """
    planned: list[float] = []
    demand: list[float] = []
    last = None
    for one in runtime.history:
        if one["mode"] == last:
            (planned if one["mode"] == "planned" else demand).append(one["seconds"])
        last = one["mode"]
    return planned, demand


def plan(runtime: Any, limit: int) -> Optional[Plan]:
    """The figures of the last plan; `None` where there is none."""
    prediction = getattr(runtime, "prediction", None)
    if prediction is None:
        return None
    planned, _ = steps(runtime)
    return Plan(limit, prediction["peak"], prediction["seconds"], prediction["all_fast"], prediction["bound"], prediction["fetched"],
                prediction["evicted"], len(planned), statistics.median(planned) if planned else None)


def line(runtime: Any, limit: int) -> str:
    """How things stand, in a line."""
    found = plan(runtime, limit)
    if found is None or runtime.following is None:
        seconds = [one["seconds"] for one in runtime.history[-1:]]
        took = f", the last step took {seconds[0]:.3g} s" if seconds else ""
        state = "planning" if runtime.planning is not None else "on demand"
        return f"{state}: {show_bytes(limit)}, {runtime.iteration} steps{took}"
    measured = found.measured_slowdown
    behind = "" if measured is None else f", measured {measured:.2f}x"
    return f"plan: {show_bytes(limit).rsplit(' ', 1)[0] if _same(limit, found.peak) else show_bytes(limit)} of {show_bytes(found.peak)}, predicted {found.slowdown:.2f}x{behind}"


def _same(a: int, b: int) -> bool:
    """Whether two amounts are written in the same unit."""
    return show_bytes(a).rsplit(" ", 1)[-1] == show_bytes(b).rsplit(" ", 1)[-1]


class Progress:
    """Prints a line when the plan changes, and now and then."""

    def __init__(self, session: Any) -> None:
        self.session, self.state, self.printed = session, "", 0.0
        self.handle = register_optimizer_step_post_hook(self._after)

    def _after(self, optimizer: Any, args: tuple, kwargs: dict) -> None:
        text = self.session.progress()
        state, now = text.split(", measured")[0].split(", the last")[0].split(",")[0], time.monotonic()
        if state != self.state or now - self.printed >= _EVERY:
            self.state, self.printed = state, now
            print(f"tiercel: {text}", file=sys.stderr, flush=True)

    def remove(self) -> None:
        self.handle.remove()


def recording(runtime: Any) -> Any:
    """The recorded iteration, or why there is none."""
    found = getattr(runtime, "recording", None)
    if found is None and getattr(runtime, "current", None) is not None:
        found = runtime.plans.recorded_again(runtime.current)
    if found is None:
        why = getattr(runtime, "refused", None) or "two equal iterations have not been seen yet"
        raise RuntimeError(f"tiercel: no iteration has been recorded yet: {why}")
    return found


def report(runtime: Any, path: Path, title: str, device: str) -> None:
    """Writes the page of the plan: what is expected, and the steps that were measured."""
    if runtime.current is None and runtime.planning is not None:
        runtime.planning.join()  # its first plan is being made
    planned, demand = steps(runtime)
    nanos = lambda seconds: [round(s * 1e9) for s in seconds]
    recording(runtime).report(os.fspath(path), title, device, nanos(planned), nanos(demand), runtime.peak, _notices.notes(runtime))

"""Times the kernels of an iteration while a plan is followed.

On a GPU there is an event behind each group of operations, and one before it where the plan had something done first: what lies
between is the group's own time, waits left out. No host waits for anything meanwhile.
"""

from __future__ import annotations

import time
from typing import Any, Optional

import torch


class Clock:
    """The times of one iteration."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.on_gpu = device, device.type == "cuda"
        self.marks: list[tuple[int, Any, Any]] = []
        self.before: Optional[Any] = None

    def _now(self) -> Any:
        if not self.on_gpu:
            return time.perf_counter_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def begin(self) -> None:
        """Something was done before a group of operations, which begins now."""
        self.before = self._now()

    def end(self, group: int) -> None:
        """A group of operations has been issued."""
        now = self._now()
        if self.before is not None:
            self.marks.append((group, self.before, now))
        self.before = now

    def tell(self, groups: list[dict]) -> None:
        """Gives groups their times, where these are shorter than those that were known."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)
        for group, before, after in self.marks:
            nanos = before.elapsed_time(after) * 1e6 if self.on_gpu else float(after - before)
            groups[group]["nanos"] = max(1.0, min(groups[group]["nanos"], nanos))

"""Where an optimizer's time goes: seconds by name, added up until somebody asks.

Threads share one clock, so names say who spends the time; what runs beside something else is counted whole.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Iterator


class Clock:
    """Seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Counts a block."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def taken(self) -> dict[str, float]:
        """What was counted since this was last asked."""
        taken, self.seconds = self.seconds, {}
        return taken

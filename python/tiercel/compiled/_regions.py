"""What happens around a compiled program while it runs.

Compiled programs reach for memory past all operations: their kernels are given addresses. So what such a program is given is
brought back before it runs, and while it runs nobody else's operations are served: those that it calls itself need no look.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, Optional

import torch
from torch._inductor.output_code import CompiledFxGraph
from torch.utils._python_dispatch import _disable_current_modes

from ._line import Line

_current: Callable[[], Optional["Regions"]] = lambda: None
_plain = CompiledFxGraph.__call__


def _call(self: CompiledFxGraph, inputs: Any) -> Any:
    regions = _current()
    return _plain(self, inputs) if regions is None else regions.run(self, inputs)


class Regions:
    """Runs compiled programs for a session."""

    def __init__(self, session: Any, line: Line) -> None:
        self.session, self.line = session, line
        self.runs = 0
        #: How many decisions belong to programs that have run; a program that runs first is what was compiled last.
        self.compiled = 0
        #: Which decision a program was compiled for, once it has run.
        self.numbers: dict[int, int] = {}

    def enter(self) -> None:
        """From here on every compiled program runs through this."""
        global _current
        _current = lambda: self
        CompiledFxGraph.__call__ = _call  # type: ignore[method-assign]

    def leave(self) -> None:
        """Programs run by themselves again."""
        global _current
        _current = lambda: None
        CompiledFxGraph.__call__ = _plain  # type: ignore[method-assign]

    def run(self, program: CompiledFxGraph, inputs: Any) -> Any:
        """Runs a program with what it is given in place."""
        self.runs += 1
        with _disable_current_modes():
            number = self.numbers.get(id(program))
            if number is None and len(self.line.decisions) > self.compiled:
                number = self.compiled = len(self.line.decisions)
                number -= 1
            kept = self.line.before(inputs, number)
            before = len(self.line.runs)
            with self._in_place(inputs):
                result = _plain(program, inputs)
            if len(self.line.runs) > before:
                self.numbers[id(program)] = self.line.runs[-1][0]
            elif kept is not None:
                self.numbers[id(program)] = kept.program
            self.line.after(kept)
            return result

    @contextlib.contextmanager
    def _in_place(self, inputs: Any) -> Iterator[None]:
        """Holds the storages of inputs in fast memory."""
        runtime = self.session._runtime
        if runtime is None or not runtime.active or not runtime.entries:
            yield
            return
        storages = {v.untyped_storage() for v in inputs if isinstance(v, torch.Tensor) and v.device.type == runtime.device.type}
        with runtime.in_place(storages):
            yield

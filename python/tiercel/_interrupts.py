"""Ctrl-C comes between operations, never in the midst of one: the books would say something else than the memory."""

from __future__ import annotations

import signal
import threading
from typing import Any

from ._storages import Storages


def _buries(frame: Any) -> bool:
    """Whether a storage has just died and is being taken off the books: what is raised there nobody hears of, and the rest is not done."""
    while frame is not None:
        if frame.f_code is Storages._forget.__code__:
            return True
        frame = frame.f_back
    return False


class Interrupts:
    """Stands before the program's own handler of SIGINT while a session is open."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self.before: Any = None
        self.installed = False
        if threading.current_thread() is threading.main_thread():
            self.before = signal.getsignal(signal.SIGINT)
            if callable(self.before):
                signal.signal(signal.SIGINT, self._handle)
                self.installed = True

    def _handle(self, number: int, frame: Any) -> None:
        runtime = self.runtime
        if runtime.active and (runtime.lock._is_owned() or _buries(frame)):
            # The runtime is at work in this thread: it says so as soon as it has done.
            runtime.interrupted = self
        else:
            self.before(number, frame)

    def raise_(self) -> None:
        """The operation is over: the program's handler has its turn, in the thread that it belongs to."""
        if threading.current_thread() is not threading.main_thread():
            return
        self.runtime.interrupted = None
        self.before(signal.SIGINT, None)

    def remove(self) -> None:
        """Puts the program's handler back, unless it has set another one meanwhile."""
        if self.installed and signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, self.before)

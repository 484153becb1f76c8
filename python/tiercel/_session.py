"""What users call: a limit for the process, or a session for a block."""

from __future__ import annotations

import atexit
import os
from typing import Any, Optional, Union

import torch

from . import _arena, _learned, _look, _notices, _patches, _tiercel, compiled
from ._machines import machine_for
from ._mode import Watch
from ._optimizers import Optimizers
from ._interrupts import Interrupts
from ._pin import Pins
from ._room import usable
from ._runtime import Runtime

Size = Union[str, int]
_active: Optional["Session"] = None

#: The machine file of a processor with memory behind it, where copies are plain copies.
_HOST = """
name = "host"
source = "assumed: a processor's memory and slower memory behind it"
[compute]
threads = 1
gflops = 50.0
[[tier]]
name = "fast"
capacity = "1 GiB"
read = "20 GB/s"
write = "20 GB/s"
latency = "100 ns"
[[tier]]
name = "slow"
capacity = "1 GiB"
read = "2 GB/s"
write = "2 GB/s"
latency = "10 us"
computable = false
rows = true
[[link]]
from = "fast"
to = "slow"
latency = "10 us"
threads = 1
bandwidth = { 1 = "2 GB/s" }
[[link]]
from = "slow"
to = "fast"
latency = "10 us"
threads = 1
bandwidth = { 1 = "2 GB/s" }
"""


def current() -> Optional[Runtime]:
    """The runtime that is active."""
    return None if _active is None else _active._runtime


class Session:
    """Keeps what happens inside it to a limit of the device's memory.

    ``fast`` is the limit, such as ``"12GiB"``. ``slow`` is how much lies behind it: an amount of host memory, or, for
    tensors of the processor, ``"file:/folder"`` with an amount in ``slow_bytes``. ``system`` is any system that ``tiercel
    list`` names. ``device`` is the GPU where there is one. ``machine`` is the name of a machine that ships or the text of a machine
    file; the file of the GPU that is present unless it is given. With ``progress`` a line is printed when the plan changes and
    twice a minute. What is learned of a program is kept in ``~/.cache/tiercel/learned`` for the next time, or in the file that
    ``learned`` names; ``learned=False`` keeps nothing.

    >>> import torch, tiercel
    >>> with tiercel.Session("8MiB", "64MiB", device="cpu", learned=False) as s:
    ...     model = torch.nn.Linear(512, 512)
    ...     optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    ...     for _ in range(3):
    ...         model(torch.randn(256, 512)).square().mean().backward()
    ...         optimizer.step()
    ...         optimizer.zero_grad()
    ...     s.status["iterations"], s.status["peak"] <= 8 << 20
    (3, True)
    """

    def __init__(self, fast: Size, slow: Optional[Size] = None, *, device: Optional[Union[str, torch.device]] = None,
                 system: str = "tiercel", slow_bytes: Optional[Size] = None, machine: Optional[str] = None,
                 least: Optional[Size] = None, seconds: float = 5.0, verbose: bool = False,
                 progress: bool = False, learned: Union[bool, str, os.PathLike] = True) -> None:
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(device)
        if self.device.type == "cuda":
            _arena.replace()
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        if self.device.type not in ("cuda", "cpu"):
            raise ValueError(f"tiercel works on cuda and cpu devices, not on {self.device}")
        self.limit = _amount(fast, "fast")
        folder = None
        if isinstance(slow, str) and slow.startswith("file:"):
            folder, slow = slow[5:], slow_bytes
            if not os.path.isdir(folder):
                raise FileNotFoundError(f"slow memory in {folder}: there is no such folder")
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.slow = int(total * 0.8) if slow is None else _amount(slow, "slow")
        if folder is None and self.slow > total:
            raise ValueError(f"slow memory of {_tiercel.show_bytes(self.slow)} wanted; the host has {_tiercel.show_bytes(total)}")
        if self.device.type == "cuda":
            there = torch.cuda.get_device_properties(self.device).total_memory
            if self.limit > there:
                raise ValueError(f"a limit of {_tiercel.show_bytes(self.limit)} wanted; {self.device} has {_tiercel.show_bytes(there)}")
        self.least = _amount(least, "least") if least is not None else (1 << 20 if self.device.type == "cuda" else 1 << 16)
        if usable(self.limit, self.device.type == "cuda") < 4 * self.least:
            raise ValueError(f"a limit of {_tiercel.show_bytes(self.limit)} leaves nothing to work with: storages of {_tiercel.show_bytes(self.least)} or more are "
                             "moved, and what is smaller stays; set a larger limit")
        self.machine = machine or ("" if self.device.type == "cuda" else _HOST)
        self._folder, self._system, self._seconds, self._verbose = folder, system, seconds, verbose
        self._runtime: Optional[Runtime] = None
        self._watch: Optional[Watch] = None
        self._optimizers: Optional[Optimizers] = None
        self._compiled: Any = None
        self._pins: Optional[Pins] = None
        self._wants_progress = progress
        self._learned = _learned.Learned(learned)
        self._progress: Optional[_look.Progress] = None

    def __enter__(self) -> "Session":
        global _active
        arena = None
        if _active is not None:
            raise RuntimeError("tiercel: a limit is in force already; lift it with tiercel.unlimit() or leave its session first")
        if self.device.type == "cuda":
            torch.cuda.init()
            held = torch.cuda.memory_allocated(self.device)
            if held > self.limit:
                raise ValueError(f"tiercel: {_tiercel.show_bytes(held)} are in use on {self.device} already, more than the limit of "
                                 f"{_tiercel.show_bytes(self.limit)}; set the limit before the model is made")
            whole = torch.cuda.get_device_properties(self.device).total_memory
            self.machine = self.machine or machine_for(self.device)
            torch.cuda.empty_cache()
            arena = _arena.open(self.device, self.limit, self.least)
        if self.device.type == "cuda" and arena is None:
            # Pieces of freed memory can be put together again, so that the limit is not lost to fragments.
            _settle_allocator("expandable_segments:True,large_segment_size_mb:12", "expandable_segments:True")
            torch.cuda.set_per_process_memory_fraction(min(1.0, self.limit / whole), self.device)
        self._runtime = Runtime(self.device, self.limit, self.slow, self._folder, self._system, self.machine, self.least,
                                self._seconds, self._verbose, self._learned, arena)
        _patches.install(current)
        self._optimizers = Optimizers(current)
        self._watch = Watch(self._runtime)
        self._watch.__enter__()
        _active = self
        atexit.register(self._keep)
        self._interrupts = Interrupts(self._runtime)
        self._end_compiled = compiled.when_used(self)
        if self._wants_progress:
            self._progress = _look.Progress(self)
        return self

    def __exit__(self, *error: Any) -> None:
        global _active
        self._keep()
        self._interrupts.remove()
        assert self._watch is not None and self._runtime is not None and self._optimizers is not None
        self._watch.__exit__(None, None, None)
        self._optimizers.remove()
        self._end_compiled()
        if self._progress is not None:
            self._progress.remove()
        if self.device.type == "cuda" and self._runtime.storages.arena is None:
            torch.cuda.set_per_process_memory_fraction(1.0, self.device)
        _arena.loosen()
        self._runtime.bring_all_back()
        _active = None

    def _keep(self) -> None:
        """Keeps what has been learned, when the session or the process ends."""
        atexit.unregister(self._keep)
        if self._runtime is not None and self._runtime.active:
            self._learned.save(self._runtime)

    @property
    def status(self) -> dict:
        """Where things stand: what is done now, why no plan is followed where none is, and what was measured."""
        runtime = self._runtime
        if runtime is None:
            return {"state": "closed"}
        state = "following a plan" if runtime.following is not None else "serving on demand"
        prediction = getattr(runtime, "prediction", None)
        return {"state": state, "refused": runtime.refused, "iterations": runtime.iteration, "diverged": runtime.diverged,
                "limit": self.limit, "live": runtime.live + self._pinned, "peak": runtime.peak + self._pinned, "prediction": prediction,
                "history": list(runtime.history), "moved": runtime.moved(), "retries": runtime.misses,
                "paths": _notices.paths(runtime), "learned": self._learned.said,
                "compiled": None if self._compiled is None else self._compiled.status}

    def wait_for_plan(self, seconds: float = 60.0) -> bool:
        """Waits until the plan that is being made is ready, for tests and benchmarks; it is followed from the next iteration."""
        runtime = self._runtime
        planning = None if runtime is None else runtime.planning
        if planning is not None:
            planning.join(seconds)
        return runtime is not None and runtime.planned is not None

    @property
    def _pinned(self) -> int:
        return 0 if self._pins is None else self._pins.nbytes

    @property
    def plan(self) -> Optional[_look.Plan]:
        """The figures of the plan that is followed, with what was measured; `None` before there is one."""
        return None if self._runtime is None else _look.plan(self._runtime, self.limit)

    def progress(self) -> str:
        """How things stand, in a line, such as ``plan: 9.1 of 12 GiB, predicted 1.06x, measured 1.08x``."""
        return "closed" if self._runtime is None else _look.line(self._runtime, self.limit)

    def pin(self, tensor: torch.Tensor) -> int:
        """Keeps a tensor's storage on the device for as long as it lives; the bytes that this takes from the limit."""
        if self._runtime is None or not self._runtime.active:
            raise RuntimeError("tiercel: this session is not open; tensors are pinned inside it")
        if self._pins is None:
            self._pins = Pins(self._runtime)
        return self._pins.add(tensor)

    def trace(self, path: _look.Path) -> None:
        """Writes the recorded iteration as a trace that ``tiercel plan`` and ``tiercel compare`` read."""
        text = _look.recording(self._runtime).text("recorded")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def report(self, path: _look.Path, title: str = "a training step") -> None:
        """Writes the house's page: the plan's iteration as it is expected to go, with the steps that were measured beside it.

        It has a timeline, a map of the memory, and where operations wait for which tensors. The plan is simulated with the times of the
        recorded operations, and the page says so; step times are measured.
        """
        _look.report(self._runtime, path, title, str(self.device))

    def events(self, path: _look.Path) -> None:
        """Writes what the plan's iteration is expected to do as a file of events, which ``tiercel report`` reads."""
        _look.recording(self._runtime).show("events", os.fspath(path), "a training step")

    def perfetto(self, path: _look.Path) -> None:
        """Writes the same as a trace for ui.perfetto.dev."""
        _look.recording(self._runtime).show("perfetto", os.fspath(path), "a training step")


def _settle_allocator(*settings: str) -> None:
    """Gives the allocator the first of some settings that it takes; smaller segments lose less where memory is in pieces."""
    for setting in settings:
        try:
            torch._C._accelerator_setAllocatorSettings(setting)
            return
        except (RuntimeError, ValueError):
            continue


def limit(fast: Size, slow: Optional[Size] = None, **more: Any) -> Session:
    """Keeps this process to so much of the device's memory from here on; see :class:`Session` for what can be said.

    >>> import tiercel
    >>> session = tiercel.limit("8MiB", "64MiB", device="cpu")
    >>> print(tiercel.explain().splitlines()[0])
    The limit is 8 MiB on cpu; 0 B are there now, 0 B at the most so far.
    >>> tiercel.unlimit()
    """
    return Session(fast, slow, **more).__enter__()


def unlimit() -> None:
    """Lifts the limit: everything is brought back to the device.

    >>> import tiercel
    >>> tiercel.unlimit()  # where there is none, nothing happens
    """
    if _active is not None:
        _active.__exit__(None, None, None)


def explain() -> str:
    """Says in words what is where and why.

    >>> import tiercel
    >>> tiercel.explain()
    'No limit is in force: tiercel.limit("12GiB") sets one.'
    """
    if _active is None:
        return "No limit is in force: tiercel.limit(\"12GiB\") sets one."
    status, show = _active.status, _tiercel.show_bytes
    lines = [f"The limit is {show(status['limit'])} on {_active.device}; {show(status['live'])} are there now, "
             f"{show(status['peak'])} at the most so far."]
    if status["state"] == "following a plan":
        p = status["prediction"]
        lines.append(f"The iteration is known and a plan is followed: it wants {show(p['peak'])}, and moves {show(p['fetched'])} in and "
                     f"{show(p['evicted'])} out; predicted {p['seconds'] / max(p['all_fast'], 1e-9):.2f} times as long as with all memory fast.")
    else:
        why = status["refused"] or "two equal iterations have not been seen yet"
        lines.append(f"Operations are served as they come ({why}): what one needs is brought, what was used longest ago leaves.")
    if status["diverged"]:
        lines.append(f"{status['diverged']} times an iteration differed from the plan's.")
    lines += _notices.words(_active._runtime)
    fetched, evicted = status["moved"]
    lines.append(f"Moved so far: {show(fetched)} in, {show(evicted)} out.")
    return "\n".join(lines)


def _amount(value: Size, what: str) -> int:
    nbytes = value if isinstance(value, int) else _tiercel.parse_bytes(value)
    if nbytes <= 0:
        raise ValueError(f"{what}: {value!r} is no amount of memory such as \"12GiB\"")
    return nbytes

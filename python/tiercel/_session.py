"""What users call: a limit for the process, or a session for a block."""

from __future__ import annotations

import os
from typing import Any, Optional, Union

import torch

from . import _patches, _tiercel, compiled
from ._mode import Watch
from ._optimizers import Optimizers
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
    list`` names. ``device`` is the GPU where there is one.
    """

    def __init__(self, fast: Size, slow: Optional[Size] = None, *, device: Optional[Union[str, torch.device]] = None,
                 system: str = "tiercel", slow_bytes: Optional[Size] = None, machine: Optional[str] = None,
                 least: Optional[Size] = None, seconds: float = 5.0, verbose: bool = False) -> None:
        if device is None:
            device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
        self.device = torch.device(device)
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
        self.machine = machine or ("h200" if self.device.type == "cuda" else _HOST)
        self._folder, self._system, self._seconds, self._verbose = folder, system, seconds, verbose
        self._runtime: Optional[Runtime] = None
        self._watch: Optional[Watch] = None
        self._optimizers: Optional[Optimizers] = None
        self._compiled: Any = None

    def __enter__(self) -> "Session":
        global _active
        if _active is not None:
            raise RuntimeError("tiercel: a limit is in force already; lift it with tiercel.unlimit() or leave its session first")
        if self.device.type == "cuda":
            torch.cuda.init()
            held = torch.cuda.memory_allocated(self.device)
            if held > self.limit:
                raise ValueError(f"tiercel: {_tiercel.show_bytes(held)} are in use on {self.device} already, more than the limit of "
                                 f"{_tiercel.show_bytes(self.limit)}; set the limit before the model is made")
            whole = torch.cuda.get_device_properties(self.device).total_memory
            torch.cuda.empty_cache()
            # Pieces of freed memory can be put together again, so that the limit is not lost to fragments.
            _settle_allocator("expandable_segments:True,large_segment_size_mb:12", "expandable_segments:True")
            torch.cuda.set_per_process_memory_fraction(min(1.0, self.limit / whole), self.device)
        self._runtime = Runtime(self.device, self.limit, self.slow, self._folder, self._system, self.machine, self.least,
                                self._seconds, self._verbose)
        _patches.install(current)
        self._optimizers = Optimizers(current)
        self._watch = Watch(self._runtime)
        self._watch.__enter__()
        _active = self
        self._end_compiled = compiled.when_used(self)
        return self

    def __exit__(self, *error: Any) -> None:
        global _active
        assert self._watch is not None and self._runtime is not None and self._optimizers is not None
        self._watch.__exit__(None, None, None)
        self._optimizers.remove()
        self._end_compiled()
        if self.device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(1.0, self.device)
        self._runtime.bring_all_back()
        _active = None

    @property
    def status(self) -> dict:
        """Where things stand: what is done now, why no plan is followed where none is, and what was measured."""
        runtime = self._runtime
        if runtime is None:
            return {"state": "closed"}
        state = "following a plan" if runtime.following is not None else "serving on demand"
        prediction = getattr(runtime, "prediction", None)
        return {"state": state, "refused": runtime.refused, "iterations": runtime.iteration, "diverged": runtime.diverged,
                "limit": runtime.limit, "live": runtime.live, "peak": runtime.peak, "prediction": prediction,
                "history": list(runtime.history), "moved": runtime.moved(), "retries": runtime.misses,
                "compiled": None if self._compiled is None else self._compiled.status}

    def wait_for_plan(self, seconds: float = 60.0) -> bool:
        """Waits until the plan that is being made is ready, for tests and benchmarks; it is followed from the next iteration."""
        runtime = self._runtime
        planning = None if runtime is None else runtime.planning
        if planning is not None:
            planning.join(seconds)
        return runtime is not None and runtime.planned is not None

    def pin(self, tensor: torch.Tensor) -> None:
        """Keeps a tensor on the device from now on."""
        if self._runtime is None:
            raise RuntimeError("tiercel: the session has not been entered")
        self._runtime.pin(tensor)

    def trace(self, path: str) -> None:
        """Writes the recorded iteration as a trace that ``tiercel plan`` and ``tiercel compare`` read."""
        recording = getattr(self._runtime, "recording", None)
        if recording is None:
            raise RuntimeError("tiercel: no iteration has been recorded yet; two equal ones are wanted")
        with open(path, "w", encoding="utf-8") as file:
            file.write(recording.text("recorded"))


def _settle_allocator(*settings: str) -> None:
    """Gives the allocator the first of some settings that it takes; smaller segments lose less where memory is in pieces."""
    for setting in settings:
        try:
            torch._C._accelerator_setAllocatorSettings(setting)
            return
        except (RuntimeError, ValueError):
            continue


def limit(fast: Size, slow: Optional[Size] = None, **more: Any) -> Session:
    """Keeps this process to so much of the device's memory from here on; see :class:`Session` for what can be said."""
    return Session(fast, slow, **more).__enter__()


def unlimit() -> None:
    """Lifts the limit: everything is brought back to the device."""
    if _active is not None:
        _active.__exit__(None, None, None)


def explain() -> str:
    """Says in words what is where and why."""
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
    fetched, evicted = status["moved"]
    lines.append(f"Moved so far: {show(fetched)} in, {show(evicted)} out.")
    return "\n".join(lines)


def _amount(value: Size, what: str) -> int:
    nbytes = value if isinstance(value, int) else _tiercel.parse_bytes(value)
    if nbytes <= 0:
        raise ValueError(f"{what}: {value!r} is no amount of memory such as \"12GiB\"")
    return nbytes

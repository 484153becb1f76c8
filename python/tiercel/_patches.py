"""The few places where PyTorch reaches for bytes without an operation: they bring the storage back first.

Saving, copying and printing go past the dispatcher in these calls alone. Each is wrapped once, and asks the runtime
only while there is one.
"""

from __future__ import annotations

import functools
import os
import threading
from typing import Any, Callable, Optional

import torch

_current: Callable[[], Optional[Any]] = lambda: None
_done = False


def install(current: Callable[[], Optional[Any]]) -> None:
    """Wraps the calls; `current` gives the runtime that is active."""
    global _current, _done
    _current = current
    if _done:
        return
    _done = True
    for name in ("data_ptr", "clone", "cpu", "tolist", "_write_file", "__deepcopy__", "copy_", "__getitem__", "__setitem__",
                 "_share_fd_cpu_", "_share_filename_cpu_", "share_memory_", "pin_memory", "cuda", "to"):
        if hasattr(torch.UntypedStorage, name):
            _wrap_storage(name)
    for name in ("nbytes", "size", "__len__"):
        _wrap_size(name)
    _wrap_tensor("data_ptr")
    _wrap_tensor("numpy")
    _wrap_tensor("__array__")
    _wrap_tensor("__dlpack__")
    _wrap_tensor("share_memory_")
    _wrap_threads()
    os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    """A forked child, such as a data loader's worker, works on copies of its own."""
    runtime = _current()
    if runtime is not None and runtime.active:
        runtime.forked()


def _wrap_storage(name: str) -> None:
    original = getattr(torch.UntypedStorage, name)

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        runtime = _current()
        if runtime is not None and runtime.active:
            runtime.visit(self)
            for other in args:
                if isinstance(other, torch.UntypedStorage):
                    runtime.visit(other)
        return original(self, *args, **kwargs)

    setattr(torch.UntypedStorage, name, wrapped)


def _wrap_size(name: str) -> None:
    original = getattr(torch.UntypedStorage, name)

    @functools.wraps(original)
    def wrapped(self: Any) -> int:
        runtime = _current()
        known = runtime.size_of(self) if runtime is not None and runtime.active else None
        if known is None:
            return original(self)
        if self.device.type == "cpu":
            # Whoever asks may read the bytes next without another word, as torch.save does.
            runtime.visit(self)
        return known

    setattr(torch.UntypedStorage, name, wrapped)


def _wrap_tensor(name: str) -> None:
    original = getattr(torch.Tensor, name)

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        runtime = _current()
        if runtime is not None and runtime.active and runtime.entries:
            try:
                storage = self.untyped_storage()
            except (NotImplementedError, RuntimeError):
                storage = None
            if storage is not None:
                runtime.visit(storage)
        return original(self, *args, **kwargs)

    setattr(torch.Tensor, name, wrapped)


def _wrap_threads() -> None:
    original = threading.Thread.run

    @functools.wraps(original)
    def run(self: threading.Thread) -> None:
        runtime = _current()
        if runtime is None or not runtime.active or self.name == "tiercel-plan":
            return original(self)
        from ._mode import Watch

        with Watch(runtime):
            return original(self)

    threading.Thread.run = run  # type: ignore[method-assign]

"""Pinned tensors: storages that never leave the device.

A pinned storage is to the books like one that is too small for them: they do not know of it, and have its bytes less to hand
out. So every system that decides under a limit leaves it alone, on demand and in plans.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ._tiercel import show_bytes


class Pins:
    """The pinned storages of a runtime."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self.held: dict[int, Any] = {}
        self.nbytes = 0
        storages = runtime.storages
        self._candidate = storages.candidate
        # Whoever looks for new storages does not find these, from the first pin on.
        storages.candidate = lambda tensor: None if self._is(tensor) else self._candidate(tensor)

    def _is(self, tensor: torch.Tensor) -> bool:
        try:
            return tensor.untyped_storage()._cdata in self.held
        except (NotImplementedError, RuntimeError):
            return False

    def add(self, tensor: torch.Tensor) -> int:
        """Pins a tensor's storage; the bytes that it takes from the limit."""
        runtime = self.runtime
        if runtime.planning is not None:
            runtime.planning.join()
        with runtime.lock, _disable_current_modes():
            entry = runtime.entry(tensor)
            if entry is None and runtime.following is not None and not self._is(tensor) and self._candidate(tensor) is not None:
                runtime._part("a tensor was pinned")
                entry = runtime.entry(tensor)
            if entry is None:
                return 0
            if runtime.room() - entry.nbytes < runtime.least:
                raise MemoryError(f"tiercel: pinning {show_bytes(entry.nbytes)} leaves nothing of the limit of {show_bytes(runtime.limit)}")
            if runtime.following is not None:
                runtime._part("a tensor was pinned")
            storage = tensor.untyped_storage()
            runtime.visit(storage)
            self._take_out(entry, storage)
            self._forget_plans()
            runtime._serve_all()
            return entry.nbytes

    def _take_out(self, entry: Any, storage: torch.UntypedStorage) -> None:
        storages, key, nbytes = self.runtime.storages, storage._cdata, entry.nbytes
        self.runtime.demand.books.retire(entry.number)
        del storages.entries[key]
        storages.by_number.pop(entry.number, None)
        entry.ref, entry.resident, entry.leaves = None, False, False
        storages.live -= nbytes
        self._room(-nbytes)
        owner = weakref.ref(self)

        def gone(_: Any) -> None:
            pins = owner()
            if pins is not None and pins.held.pop(key, None) is not None:
                pins._room(nbytes)

        self.held[key] = weakref.ref(storage, gone)

    def _forget_plans(self) -> None:
        """What was known of iterations is no longer so: they are recorded again."""
        runtime = self.runtime
        runtime.plans.forget()
        runtime.record = None

    def _room(self, change: int) -> None:
        self.runtime.limit += change
        self.runtime.storages.capacity += change
        self.nbytes -= change

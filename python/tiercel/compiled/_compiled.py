"""What a session sets up for compiled programs, and takes down again."""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch._dynamo
import torch._inductor.config as config

from .. import _tiercel
from . import _operators
from ._line import Line
from ._operators import MakeChanges
from ._partition import Partitioner
from ._regions import Regions
from ._room import Room
from ._store import Store

_active: Optional["Compiled"] = None


class Compiled:
    """Compiled programs of one session."""

    def __init__(self, session: Any) -> None:
        self.session = session
        room = Room(session.device, session.limit)
        machine = _tiercel.machine_text(session.machine, [session.limit, session.slow])
        self.line = Line(room, machine, session.slow, session.least, lambda: self.store)
        self.partitioner = Partitioner(room, self.line, machine, session.slow, session.least, 60.0, session._verbose)
        self.regions = Regions(session, self.line)
        self._store: Optional[Store] = None
        self._before: dict[str, Any] = {}

    @property
    def store(self) -> Store:
        """The store, made when the first value leaves."""
        if self._store is None:
            self._store = Store(self.session.device, self.session.slow, self.session._folder)
        return self._store

    def enter(self) -> None:
        """From here on programs are compiled for the limit."""
        global _active
        _active = self
        _operators.serve(lambda: None if _active is None else _active.store, lambda: None if _active is None else _active.line)
        if config.custom_partitioner_fn is None:
            self._set("custom_partitioner_fn", self.partitioner)
            self._set("post_grad_custom_post_pass", MakeChanges(config.post_grad_custom_post_pass))
            # The plan's order is the order: operators between kernels must not be put elsewhere.
            self._set("reorder_for_peak_memory", False)
            self._set("reorder_for_locality", False)
        else:
            self.partitioner.refused = "torch._inductor.config.custom_partitioner_fn is somebody else's"
        torch._dynamo.reset()  # what was compiled before knows nothing of the limit
        self.regions.enter()

    def _set(self, name: str, value: Any) -> None:
        self._before[name] = getattr(config, name)
        setattr(config, name, value)

    def leave(self) -> None:
        """Brings back what is away, and leaves compilation as it was."""
        global _active
        self.regions.leave()
        if self._store is not None:
            self._store.bring_back()
        _active = None
        for name, value in self._before.items():
            setattr(config, name, value)
        if self.partitioner.decisions:
            torch._dynamo.reset()  # what was compiled for the limit is not kept without it

    @property
    def status(self) -> dict:
        """What was decided and done for compiled programs."""
        decisions, store = self.partitioner.decisions, self._store
        return {
            "programs": len(decisions), "refused": self.partitioner.refused,
            "moves": sum(len(d.moves) for d in decisions), "again": sum(len(d.again) for d in decisions),
            "fits": all(d.fits for d in decisions),
            "predicted": [(d.seconds, d.all_fast, d.bound) for d in decisions],
            "wanted": [(d.peak, d.room) for d in decisions],
            "left": 0 if store is None else store.left, "came": 0 if store is None else store.came,
            "evicted": self.line.evicted, "planned": self.line.planned,
            "shared": 0 if store is None else store.shared, "away": 0 if store is None else store.places.most,
        }

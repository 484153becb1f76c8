"""Buckets: neighbouring parameters of one group, laid out one after the other, that travel and are updated together.

A bucket's states lie on the host and are updated by the processor (`host`), lie there and are streamed through the GPU (`streamed`),
stay on the GPU (`gpu`), or lie in a file and are the processor's (`file`). With several ranks every rank owns one part of each bucket (ZeRO, stage 2) and keeps the states of that part alone.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Any, Iterator, Optional

import torch

from .._ours import zeros
from .._tiercel import Updater
from ._files import Files, States
from ._memory import host, numbers

#: Parameters start at multiples of this many numbers, so that no two share a line of memory.
ALIGN = 16


class Slot:
    """A parameter and its place in a bucket."""

    def __init__(self, parameter: torch.Tensor, start: int) -> None:
        self.parameter = parameter
        self.start = start
        self.count = parameter.numel()
        self.step = 0
        #: Whether a gradient has come since gradients were last cleared.
        self.has = False
        #: Whether one has come in this backward pass.
        self.here = False
        #: The parameter's version when we last wrote it: another one means that somebody else has.
        self.version = parameter._version
        self.handle: Any = None


class Bucket:
    """Some parameters, and this rank's part of their states."""

    def __init__(
        self, group: dict, parameters: list[torch.Tensor], nbytes: int, rank: int, ranks: int, number: int, place: str, files: Optional[Files], late: bool
    ) -> None:
        self.group = group
        #: Its place in the order of the model, and where its states are.
        self.number, self.place = number, place
        self.slots: list[Slot] = []
        at = 0
        for parameter in parameters:
            self.slots.append(Slot(parameter, at))
            at += -(-parameter.numel() // ALIGN) * ALIGN
        self.device = parameters[0].device
        self.dtype = parameters[0].dtype
        self.part = -(-at // (ranks * ALIGN)) * ALIGN
        self.total = self.part * ranks
        self.start = self.part * rank
        #: How many numbers most buckets are meant to have.
        self.usual = nbytes // self.dtype.itemsize
        self.pinned = pinned = self.device.type == "cuda"
        self.files = files if place == "file" else None
        self.at = None if self.files is None else self.files.place(self.part)
        self.held: Optional[States] = None
        if self.at is None:
            self.held = tuple(self._make(torch.float32, place == "streamed") for _ in range(3))
        #: Gradients as they come, in the parameters' numbers; and their sums where more than one backward pass was made.
        self.arrived = self._make(self.dtype, pinned)
        #: Memory of gradients that were handed over before, as they come and as sums.
        self.spares: list[Optional[torch.Tensor]] = [None, None]
        self.sums: Optional[torch.Tensor] = None
        #: New parameters on their way back, where they go another way than their masters, or later.
        itself = place in ("gpu", "streamed") or (place == "host" and self.dtype == torch.float32 and not pinned)
        self.out = None if itself else host(self.part, self.dtype, pinned)
        if late:
            self.may_be_late()
        #: The event after which streamed states are back.
        self.states_back: Any = None
        #: Backward passes whose gradients are in `gradient`.
        self.passes = 0
        self.gradient = self.arrived
        #: A flat copy on the parameters' device, while gradients of this bucket are made.
        self.stage: Optional[torch.Tensor] = None
        self.waiting = 0
        #: Whether its update has begun in this backward pass.
        self.begun = False
        #: Whether the last update has returned.
        self.there = threading.Event()
        self.there.set()
        self.reset()
        with self.states(changed=True) as (master, _, _):
            for slot in self.slots:
                self.read_master(slot, master, False, through=self.arrived if pinned and place != "gpu" else None)

    def _make(self, dtype: torch.dtype, pinned: bool) -> torch.Tensor:
        """Zeros for this rank's part, where the states are."""
        if self.place == "gpu":
            return zeros(self.part, dtype, self.device)
        return host(self.part, dtype, pinned and self.pinned)

    def may_be_late(self) -> None:
        """Updates are delayed: new parameters that were written where they are made wait on the host."""
        if self.place == "streamed" and self.pinned and self.out is None:
            self.out = host(self.part, self.dtype, True)

    def move_to_gpu(self) -> None:
        """States and gradients that lie on the host move to the GPU, where there is room now."""
        self.place, self.out, self.spares = "gpu", None, [None, None]
        summed = self.gradient is self.sums
        moved = lambda x: zeros(x.numel(), x.dtype, self.device).copy_(x)
        self.held = tuple(moved(x) for x in self.held)
        self.arrived, self.sums = moved(self.arrived), None if self.sums is None else moved(self.sums)
        self.gradient = self.sums if summed and self.sums is not None else self.arrived

    def reset(self) -> None:
        """A backward pass may begin."""
        self.waiting = sum(slot.handle is not None and slot.parameter.requires_grad for slot in self.slots)

    def inside(self, slot: Slot) -> Optional[tuple[slice, slice]]:
        """Where a parameter lies in this rank's part, and what of the flat parameter that is."""
        begin, end = max(slot.start, self.start), min(slot.start + slot.count, self.start + self.part)
        if begin >= end:
            return None
        return slice(begin - self.start, end - self.start), slice(begin - slot.start, end - slot.start)

    @contextmanager
    def states(self, changed: bool) -> Iterator[States]:
        """Master and moments for a while, wherever they are; what is `changed` is kept."""
        if self.files is None:
            yield self.held
        else:
            with self.files.states(self.at, changed) as states:
                yield states

    def read_master(self, slot: Slot, whole: torch.Tensor, only_changed: bool, through: Optional[torch.Tensor] = None) -> None:
        """Takes a parameter's values for the master's; with `only_changed` just where they are not its own rounded. Pinned
        memory that nobody uses makes the way several times as fast."""
        where = self.inside(slot)
        if where is None:
            return
        mine, theirs = where
        master = whole[mine]
        values = slot.parameter.detach().reshape(-1)[theirs]
        values = values.to(master.device) if through is None else through[mine].copy_(values)
        if only_changed:
            master.copy_(torch.where(master.to(self.dtype) == values, master, values.float()))
        else:
            master.copy_(values)

    def flat(self, stage: torch.Tensor, slot: Slot) -> torch.Tensor:
        """A parameter's place in a flat copy, in its shape."""
        return stage[slot.start : slot.start + slot.count].view(slot.parameter.shape)

    def mine(self, stage: torch.Tensor) -> torch.Tensor:
        """This rank's part of a flat copy."""
        return stage[self.start : self.start + self.part]

    def promote(self) -> None:
        """From here on gradients are summed in 32 bits."""
        if self.sums is None:
            self.sums = self.arrived if self.dtype == torch.float32 and not self.pinned else self._make(torch.float32, False)
        if self.sums is not self.gradient:
            if self.passes > 0:
                self.sums.copy_(self.gradient)
            self.gradient = self.sums

    def land(self, source: torch.Tensor) -> None:
        """This rank's gradients of one backward pass have come."""
        if self.passes == 0:
            # Where sums were wanted once they will be again: a second pass then need not wait for the first.
            self.gradient = self.arrived if self.sums is None else self.sums
            if source is not self.gradient:
                self.gradient.copy_(source)
        else:
            self.promote()
            self.gradient.add_(source)
        self.passes += 1

    def runs(self) -> list[tuple[int, int, int]]:
        """Stretches of this rank's part whose parameters take the same step now: start, count, step."""
        found: list[tuple[int, int, int]] = []
        for slot in self.slots:
            where = self.inside(slot) if slot.has else None
            if where is None:
                continue
            begin, end = where[0].start, where[0].stop
            if found and found[-1][2] == slot.step + 1 and begin - found[-1][0] - found[-1][1] < ALIGN:
                found[-1] = (found[-1][0], end - found[-1][0], slot.step + 1)
            else:
                found.append((begin, end - begin, slot.step + 1))
        return found

    def begin(self, updater: Updater, job: Any, states: States) -> None:
        """The pass over memory begins. In the end the new parameters are in `out`, or in the master where that is what goes back."""
        master, first, second = states
        arrays = (master.data_ptr(), (first.data_ptr(), second.data_ptr()), numbers(job.gradient), numbers(self.out))
        updater.begin(self.number, self.number, job.hyper.numbering(), job.runs, job.factors, *arrays, self.part)

    def squares(self, updater: Updater) -> float:
        """The sum of the squares of the gradients, added in 64 bits."""
        if self.gradient.is_cuda:
            return torch.linalg.vector_norm(self.gradient, dtype=torch.float64).square().item()
        return updater.sum_of_squares(numbers(self.gradient), self.part)

    def hand_over(self) -> torch.Tensor:
        """Gives this step's gradients away; the next ones come to other memory."""
        gradient = self.gradient
        if gradient is self.arrived:
            fresh = host(self.part, self.dtype, self.pinned) if self.spares[0] is None else self.spares[0]
            self.spares[0] = gradient
            self.sums = fresh if self.sums is gradient else self.sums
            self.arrived = fresh
        else:
            fresh = host(self.part, torch.float32, False) if self.spares[1] is None else self.spares[1]
            self.spares[1] = gradient
            self.sums = fresh
        self.gradient = self.arrived
        self.clear()
        return gradient

    def clear(self) -> None:
        """Gradients are gone."""
        self.passes = 0
        for slot in self.slots:
            slot.has = False


def layout(parameters: list[torch.Tensor], nbytes: int) -> list[list[torch.Tensor]]:
    """Parameters of buckets of about `nbytes`, in their order, which is about the order of the forward pass."""
    runs: list[list[torch.Tensor]] = []
    size = 0
    for parameter in parameters:
        more = parameter.numel() * parameter.element_size()
        last = runs[-1][0] if runs else None
        if last is None or size + more > nbytes or (parameter.dtype, parameter.device) != (last.dtype, last.device):
            runs.append([])
            size = 0
        runs[-1].append(parameter)
        size += more
    return runs

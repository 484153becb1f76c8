"""How gradients get to the host and parameters back: plain copies on a processor; streams and events on a GPU.

Everything on a GPU is ordered by events: the device's own work waits for copies, and the host waits for gradients alone,
before it uses them. Events that the host waits for let its core sleep meanwhile: the update wants all cores.
"""

from __future__ import annotations

from typing import Any, Optional

import torch

from .._ours import zeros
from ._buckets import Bucket, Slot
from ._streams import Ring, whole

#: Flat copies of gradients on a device at a time: one being filled, the others on their way.
STAGES = 4


class Here:
    """Parameters in host memory."""

    def __init__(self) -> None:
        self.stages: dict[tuple[int, torch.dtype], list[torch.Tensor]] = {}

    def stage(self, bucket: Bucket) -> torch.Tensor:
        """A flat copy's memory, of zeros."""
        free = self.stages.get((bucket.total, bucket.dtype))
        return free.pop().zero_() if free else zeros(bucket.total, bucket.dtype, bucket.device)

    def free(self, bucket: Bucket) -> None:
        """It is not needed any more."""
        if bucket.stage is not None:
            self.stages.setdefault((bucket.total, bucket.dtype), []).append(bucket.stage)

    def out(self, bucket: Bucket, source: torch.Tensor) -> None:
        """Gradients go to the host."""
        bucket.land(source)

    def settle(self, bucket: Bucket) -> None:
        """They are there."""

    def resident(self, job: Any) -> None:
        """Updates a bucket whose states are where the parameters are."""
        whole(job)

    def stream(self, job: Any) -> None:
        """Updates a bucket whose states lie on the host where the parameters are."""
        whole(job)

    def states(self, bucket: Bucket) -> None:
        """States may be read by the host."""

    def before(self, bucket: Bucket) -> None:
        """What goes back may be written over."""

    def moment(self) -> Any:
        """Now, for copies that are begun later and may not overtake the model's work."""

    def let(self, bucket: Bucket) -> None:
        """What runs next finds this bucket's new parameters."""

    def back(self, bucket: Bucket, changed: Optional[list[Slot]], moment: Any = None) -> torch.Tensor:
        """Parameters go to the model, or, without a list, this rank's part to the device."""
        values = bucket.held[0] if bucket.out is None else bucket.out
        for slot in changed or ():
            where = bucket.inside(slot)
            if where is not None:
                slot.parameter.copy_(values[where[0]].view(slot.parameter.shape))
        return values

    def arrive(self) -> None:
        """What runs next finds the new parameters."""


class Device:
    """Parameters in a GPU's memory; one stream for each direction."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.outward, self.inward = torch.cuda.Stream(device), torch.cuda.Stream(device)
        #: Free flat copies with the event after which they are; how many there are in all of each size.
        self.stages: dict[tuple[int, torch.dtype], list[tuple[torch.Tensor, Any]]] = {}
        self.made: dict[tuple[int, torch.dtype], int] = {}
        self.landing: dict[int, Any] = {}
        self.returning: dict[int, Any] = {}
        self.last: Any = None
        self.ring: Optional[Ring] = None

    def _key(self, bucket: Bucket) -> tuple[int, torch.dtype]:
        """Flat copies of one size serve all buckets that are not larger than most are meant to be."""
        return max(bucket.total, bucket.usual), bucket.dtype

    def stage(self, bucket: Bucket) -> torch.Tensor:
        key = self._key(bucket)
        free, made = self.stages.setdefault(key, []), self.made.get(key, 0)
        compute = torch.cuda.current_stream(self.device)
        if free and (made >= STAGES or free[0][1].query()):
            memory, event = free.pop(0)
            compute.wait_event(event)
            return memory[: bucket.total].zero_()
        self.made[key] = made + 1
        return zeros(key[0], bucket.dtype, self.device)[: bucket.total]

    def free(self, bucket: Bucket) -> None:
        if bucket.stage is not None:
            # Whatever uses it has been queued on one of these streams; a third waits for both.
            event = torch.cuda.Event()
            compute = torch.cuda.current_stream(self.device)
            self.outward.wait_stream(compute)
            event.record(self.outward)
            key = self._key(bucket)
            self.stages.setdefault(key, []).append((bucket.stage.as_strided((key[0],), (1,), 0), event))

    def out(self, bucket: Bucket, source: torch.Tensor) -> None:
        if bucket.place == "gpu":
            return bucket.land(source)
        self.settle(bucket)
        if bucket.states_back is not None:
            self.outward.wait_event(bucket.states_back)  # which is after gradients went through the GPU
        if bucket.passes:
            bucket.promote()  # the memory that gradients come to is about to be written over
        self.outward.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.outward):
            bucket.arrived.copy_(source, non_blocking=True)
            event = torch.cuda.Event(blocking=True)
            event.record(self.outward)
        self.landing[id(bucket)] = event

    def settle(self, bucket: Bucket) -> None:
        event = self.landing.pop(id(bucket), None)
        if event is not None:
            event.synchronize()
            bucket.land(bucket.arrived)

    def resident(self, job: Any) -> None:
        whole(job)

    def stream(self, job: Any) -> None:
        if self.ring is None:
            self.ring = Ring(self.device)
        key = id(job.bucket)
        there = self.ring.update(job, self.returning.get(key))
        if not job.late:
            self.returning[key] = there

    def states(self, bucket: Bucket) -> None:
        if bucket.states_back is not None:
            bucket.states_back.synchronize()

    def before(self, bucket: Bucket) -> None:
        event = self.returning.get(id(bucket))
        if event is not None:
            event.synchronize()

    def moment(self) -> Any:
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device))
        return event

    def let(self, bucket: Bucket) -> None:
        event = self.returning.get(id(bucket))
        if event is not None:
            torch.cuda.current_stream(self.device).wait_event(event)

    def back(self, bucket: Bucket, changed: Optional[list[Slot]], moment: Any = None) -> torch.Tensor:
        if bucket.place == "gpu":
            for slot in changed or ():
                slot.parameter.copy_(bucket.held[0][bucket.inside(slot)[0]].view(slot.parameter.shape))
            return bucket.held[0]
        # The model's own work on the old parameters comes first, and what was streamed is to be there.
        self.inward.wait_event(self.moment() if moment is None else moment)
        if bucket.states_back is not None:
            self.inward.wait_event(bucket.states_back)
        with torch.cuda.stream(self.inward):
            for slot in changed or ():
                where = bucket.inside(slot)
                if where is not None:
                    values = bucket.out[where[0]].view(slot.parameter.shape)
                    slot.parameter.copy_(values, non_blocking=True)
            mine = bucket.out
            if changed is None:
                mine = bucket.out.to(self.device, non_blocking=True)
            self.last = torch.cuda.Event(blocking=True)
            self.last.record(self.inward)
        self.returning[id(bucket)] = self.last
        if changed is None:
            torch.cuda.current_stream(self.device).wait_event(self.last)
            mine.record_stream(torch.cuda.current_stream(self.device))
        return mine

    def arrive(self) -> None:
        compute = torch.cuda.current_stream(self.device)
        if self.last is not None:
            compute.wait_event(self.last)
        if self.ring is not None:
            compute.wait_stream(self.ring.work)


def road(device: torch.device) -> Here | Device:
    """The way to and from a device."""
    return Device(device) if device.type == "cuda" else Here()

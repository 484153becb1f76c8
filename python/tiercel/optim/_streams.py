"""States that go through a GPU: in by one stream, updated on a second, out by a third, a few pieces at a time.

A direction of the link carries 12 bytes a parameter, which is less than the 28 that a processor reads and writes in its memory;
where the link is fast that is worth while beside the processor's own work.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Iterator

import torch

from .._ours import zeros
from ._arithmetic import update
from ._buckets import Bucket

#: Numbers in a piece, and pieces at a time: one comes, one is updated, one goes.
PIECE, PIECES = 8 << 20, 3
#: Bytes on the GPU for all of this: master, moments and gradient, new states, and the gradient in 32 bits.
ROOM = PIECE * PIECES * (16 + 12 + 4)


def whole(job: Any) -> None:
    """Updates a bucket whose states can be reached as they are, and its parameters."""
    bucket: Bucket = job.bucket
    gradient = bucket.gradient if job.gradient is None else job.gradient
    for at, count, step in pieces(job):
        part = slice(at, at + count)
        old = tuple(array[part] for array in bucket.held)
        new = update(old, gradient[part], job.hyper, step, job.factors)
        for target, made in zip(old, new):
            if target is not made:
                target.copy_(made)
        if not job.late:
            write(job, at, old[0])


def pieces(job: Any) -> Iterator[tuple[int, int, int]]:
    """What is updated at a time: where it begins, how many numbers, and the step."""
    for start, count, step in job.runs:
        for at in range(start, start + count, PIECE):
            yield at, min(PIECE, start + count - at), step


def write(job: Any, start: int, master: torch.Tensor) -> None:
    """New parameters from a stretch of masters that begins at a place of the bucket's part."""
    for slot in job.changed:
        where = job.bucket.inside(slot)
        begin, end = max(where[0].start, start), min(where[0].stop, start + master.numel())
        if begin < end:
            flat = slot.parameter.view(-1)[where[1]]
            flat[begin - where[0].start : end - where[0].start].copy_(master[begin - start : end - start])


class Ring:
    """Memory for a few pieces, used in turn."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.into, self.work, self.out = (torch.cuda.Stream(device) for _ in range(3))
        with torch.cuda.stream(self.into):
            memory = [zeros(4 * PIECE, torch.float32, device).view(4, PIECE) for _ in range(PIECES)]
        #: Memory, the event after which it is free, and what was made from it, which must stay until then.
        self.free: deque[tuple[torch.Tensor, Any, Any]] = deque((piece, None, None) for piece in memory)

    def update(self, job: Any, before: Any) -> Any:
        """Streams a bucket's states through, and returns the event after which its parameters are new. Those of an update that is late
        go to the host, once those that went before it have left there."""
        bucket: Bucket = job.bucket
        if bucket.states_back is not None:
            self.into.wait_event(bucket.states_back)
        if job.late and before is not None:
            self.out.wait_event(before)  # the last new parameters have left the host
        self.work.wait_event(job.moment)  # the model's own work on the old parameters
        there = None
        for at, count, step in pieces(job):
            there = self._piece(job, at, count, step)
        return there

    def _piece(self, job: Any, at: int, count: int, step: int) -> Any:
        bucket, part = job.bucket, slice(at, at + count)
        memory, free, made = self.free.popleft()
        if free is not None:
            free.synchronize()  # so that the host is never far ahead, and buckets that come later may go first
        del made
        states = memory[0, :count], memory[1, :count], memory[2, :count]
        homes = tuple(array[part] for array in bucket.held)
        gradient = memory[3].view(job.gradient.dtype)[:count]
        with torch.cuda.stream(self.into):
            for target, source in zip((*states, gradient), (*homes, job.gradient[part])):
                target.copy_(source, non_blocking=True)
            came = torch.cuda.Event()
            came.record(self.into)
        with torch.cuda.stream(self.work):
            self.work.wait_event(came)
            new = update(states, gradient, job.hyper, step, job.factors)
            if job.late:
                new = (*new, new[0].to(bucket.dtype))
                homes = (*homes, bucket.out[part])
            else:
                write(job, at, new[0])
            there = torch.cuda.Event(blocking=True)
            there.record(self.work)
        with torch.cuda.stream(self.out):
            self.out.wait_event(there)
            for target, source in zip(homes, new):
                target.copy_(source, non_blocking=True)
            back = torch.cuda.Event(blocking=True)
            back.record(self.out)
        bucket.states_back = back
        self.free.append((memory, back, new))
        return there

"""Updates beside the model's work: gradients are awaited, buckets updated where their states are, parameters sent back.

Threads that do little but wait: one feeds buckets whose gradients have come to whoever updates them, one sends back what the processor
has updated, in the order in which it ends, one has states streamed through the GPU, and one writes those that lie in a file. The passes over memory themselves are
handed to a queue that is no Python (``crates/optim/src/queue.rs``), so they follow on each other whatever the program does.
Of the buckets that wait the first of the model goes first, because the next forward pass wants it first.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Optional

import torch

from .._tiercel import Updater
from ._arithmetic import Hyper
from ._buckets import Bucket, Slot
from ._clock import Clock


class Job:
    """A bucket's update."""

    def __init__(self, bucket: Bucket, hyper: Hyper, factors: tuple[float, float], moment: Any, late: bool = False) -> None:
        self.bucket, self.hyper, self.factors, self.moment = bucket, hyper, factors, moment
        self.changed: list[Slot] = [slot for slot in bucket.slots if slot.has]
        self.runs = bucket.runs()
        #: The gradient; without one it is the bucket's when it has come.
        self.gradient: Optional[torch.Tensor] = None
        #: Whether the parameters are sent back by somebody else, later.
        self.late = late
        #: Memory of states that lie in a file.
        self.memory: Optional[torch.Tensor] = None
        self.done = threading.Event()
        for slot in self.changed:
            slot.step += 1
        if not late:
            bucket.there.clear()

    def ended(self) -> None:
        """The parameters are on their way, and their memory may be used."""
        for slot in self.changed:
            slot.version = slot.parameter._version
        self.bucket.there.set()

    def __lt__(self, other: "Job") -> bool:
        return self.bucket.number < other.bucket.number


class Updates:
    """All updates of an optimizer that have begun."""

    def __init__(self, updater: Updater, clock: Clock, roads: dict) -> None:
        self.updater, self.clock, self.roads = updater, clock, roads
        self.threads: dict[str, ThreadPoolExecutor] = {}
        self.pending: deque[Future] = deque()
        self.feeding: deque[Future] = deque()
        self.jobs: dict[int, Job] = {}
        self.streamed: list[Job] = []
        self.lock = threading.Lock()

    def _hand(self, thread: str, run: Callable[..., None], *arguments: Any) -> Future:
        """Has one of the threads do something."""
        pool = self.threads.get(thread)
        if pool is None:
            pool = self.threads[thread] = ThreadPoolExecutor(1, f"tiercel-{thread}")

        def safely() -> None:
            try:
                with torch.no_grad():
                    run(*arguments)
            except BaseException:
                for job in list(self.jobs.values()):
                    job.bucket.there.set()  # who waits finds the error at the next step
                    job.done.set()
                    if job.memory is not None:
                        job.bucket.files.put(job.bucket.at, job.memory, False)
                raise

        future = pool.submit(safely)
        self.pending.append(future)
        return future

    def begin(self, job: Job) -> None:
        """A bucket whose gradients are there, or on their way, is updated."""
        self.jobs[job.bucket.number] = job
        if job.bucket.place == "gpu":
            with torch.no_grad():
                self.roads[job.bucket.device].resident(job)
            self._ended(job)
        else:
            self.feeding.append(self._hand("feeding", self._feed, job))

    def _feed(self, job: Job) -> None:
        bucket = job.bucket
        way = self.roads[bucket.device]
        if job.gradient is None:
            way.settle(bucket)
            job.gradient = bucket.gradient
        if bucket.place == "streamed":
            with self.lock:
                heapq.heappush(self.streamed, job)
            self._hand("streaming", self._stream)
        else:
            way.before(bucket)
            states = bucket.held
            if states is None:
                with self.clock.of("reading states, beside"):
                    job.memory, states = bucket.files.take(bucket.at)
                bucket.at.written.clear()
            bucket.begin(self.updater, job, states)
            self._hand("returning", self._bring)

    def _stream(self) -> None:
        """One bucket's states go through the GPU."""
        with self.lock:
            job = heapq.heappop(self.streamed)
        with self.clock.of("streaming states, beside"):
            self.roads[job.bucket.device].stream(job)
        self._ended(job)

    def _bring(self) -> None:
        """The next bucket that the processor has updated is sent back."""
        number = self.updater.ended()
        job = self.jobs[number]
        bucket = job.bucket
        if not job.late:
            with self.clock.of("sending parameters back, beside"):
                self.roads[bucket.device].back(bucket, job.changed, job.moment)
        if job.memory is not None:
            self._hand("writing", self._write, bucket, job.memory)
        self._ended(job)

    def _write(self, bucket: Bucket, memory: torch.Tensor) -> None:
        with self.clock.of("writing states, beside"):
            bucket.files.put(bucket.at, memory, True)

    def _ended(self, job: Job) -> None:
        if not job.late:
            job.ended()
        self.jobs.pop(job.bucket.number, None)
        job.done.set()

    @property
    def running(self) -> bool:
        """Whether updates have begun that nobody has waited for."""
        return bool(self.pending)

    def fed(self) -> None:
        """Waits until all gradients of what has begun have come."""
        while self.feeding:
            self.feeding.popleft().result()

    def finish(self) -> None:
        """Waits until all that has begun has ended."""
        self.feeding.clear()
        failed: Optional[BaseException] = None
        while self.pending:
            error = self.pending.popleft().exception()
            failed = failed or error
        if failed is not None:
            self.jobs.clear()
            raise failed

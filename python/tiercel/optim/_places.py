"""Which buckets' states stay on the GPU, which are streamed through it, and which the processor updates.

Measured once: what all threads update while the link is busy in both directions, and what the link then carries. How many
parameters go which way is solved for in ``crates/optim/src/split.rs``. The first buckets stay, because their gradients come last and
their parameters are wanted first; the others take turns, so that both ways end together wherever the step ends.
"""

from __future__ import annotations

import time
from typing import Any, Optional

import torch

from .._tiercel import Numbering, Updater, parse_bytes, split_states
from ._memory import host, numbers
from ._streams import ROOM

#: Parameters of the trial, and how long it takes at least.
TRIAL, SECONDS = 1 << 26, 0.25
#: Numbers of 32 bits that are copied at a time, copies that wait in each direction so that the link is never idle, and how many
#: there is host memory for in each: far more than a processor's cache holds, which copies would not leave otherwise.
COPY, AHEAD, APART = 4 << 20, 40, 16
#: Memory of the GPU that ``"auto"`` leaves free.
SPARE = 3 << 30


class Plan:
    """Chooses places."""

    def __init__(self, gpu_bytes: int | str | None, updater: Updater, usual: str) -> None:
        self.usual = usual
        self.auto = gpu_bytes == "auto"
        self.room = ROOM if self.auto else parse_bytes(gpu_bytes) if isinstance(gpu_bytes, str) else gpu_bytes
        self.updater = updater
        self.steps = 0
        #: Bytes a second of host memory and of the link inward and outward.
        self.rates: Optional[tuple[float, float, float]] = None

    def places(self, runs: list[list[torch.Tensor]]) -> list[str]:
        """A place for each bucket."""
        counts = [sum(p.numel() for p in run) for run in runs]
        device = runs[0][0].device
        if self.room is None or device.type != "cuda":
            return [self.usual] * len(runs)
        if self.rates is None:
            self.rates = measure(device, self.updater)
        width = runs[0][0].element_size()
        streams = self.room >= ROOM
        room = self.room - (ROOM if streams else 0)
        gpu, streamed, _, _ = split_states(float(sum(counts)), float(width), float(room), self.rates)
        fit = [all(p.is_contiguous() for p in run) for run in runs]
        places = share(counts, fit, room, 12 + width, streamed / (1.0 - gpu) if streams and gpu < 1.0 else 0.0)
        self.room -= sum((12 + width) * count for count, place in zip(counts, places) if place == "gpu")
        return places

    def stepped(self, optimizer: Any) -> None:
        """After two steps the memory that a program needs is known: with ``"auto"`` states move into what is free."""
        self.steps += 1
        if not self.auto or self.steps != 2:
            return
        optimizer._updates_ended()
        for device in optimizer._roads:
            if device.type == "cuda":
                torch.cuda.synchronize(device)
                room = torch.cuda.mem_get_info(device)[0] - SPARE
                for bucket in optimizer._buckets:
                    size = bucket.part * (12 + bucket.dtype.itemsize)
                    if bucket.device == device and bucket.place != "gpu" and all(s.parameter.is_contiguous() for s in bucket.slots):
                        if size > room:
                            break
                        bucket.move_to_gpu()
                        room -= size


def share(counts: list[int], fit: list[bool], room: int, each: int, part: float) -> list[str]:
    """Places for buckets of so many parameters: from the first on they stay while there is room, and of the rest this part is
    streamed, evenly spread. Those that do not fit the GPU's arithmetic are the processor's."""
    places, due = [], 0.0
    staying = True
    for count, fits in zip(counts, fit):
        staying = staying and count * each <= room
        if not fits:
            places.append("host")
        elif staying:
            room -= count * each
            places.append("gpu")
        else:
            due += part * count
            places.append("streamed" if due >= count / 2 else "host")
            due -= count if places[-1] == "streamed" else 0
    return places


def measure(device: torch.device, updater: Updater) -> tuple[float, float, float]:
    """Bytes a second of host memory in updates, of the link inward and of the link outward, all three at work."""
    states = [host(TRIAL, torch.float32, False) for _ in range(3)]
    pinned = [host(COPY * APART, torch.float32, True).view(APART, COPY) for _ in range(2)]
    here = [torch.empty(COPY, dtype=torch.float32, device=device) for _ in range(2)]
    gradient = host(TRIAL, torch.bfloat16, False)
    out = host(TRIAL, torch.bfloat16, False)
    still = Numbering.adam(0.0, (0.9, 0.999), 1e-8, 0.0, True, False)
    arrays = states[0].data_ptr(), (states[1].data_ptr(), states[2].data_ptr()), numbers(gradient), numbers(out), TRIAL
    updater.update(still, [(0, TRIAL, 1)], (1.0, 1.0), *arrays)  # wakes the threads
    streams = [torch.cuda.Stream(device) for _ in range(2)]
    marks: list[list[Any]] = [[], []]
    passes, began = 0, time.perf_counter()
    while (taken := time.perf_counter() - began) < SECONDS or passes < 3:
        updater.begin(0, 0, still, [(0, TRIAL, 1)], (1.0, 1.0), *arrays)
        for way, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                while len(marks[way]) < AHEAD or marks[way][-AHEAD].query():
                    there = pinned[way][len(marks[way]) % APART]
                    source, target = (there, here[0]) if way == 0 else (here[1], there)
                    target.copy_(source, non_blocking=True)
                    mark = torch.cuda.Event(enable_timing=True)
                    mark.record(stream)
                    marks[way].append(mark)
        updater.ended()
        passes += 1
    torch.cuda.synchronize(device)
    link = []
    for found in marks:
        seconds = found[0].elapsed_time(found[-1]) / 1e3
        link.append(COPY * 4 * (len(found) - 1) / seconds)
    return TRIAL * 28 * passes / taken, link[0], link[1]

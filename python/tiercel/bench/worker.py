"""One way of training one model, in a process of its own, a turn of some steps at a time. `__main__.py` calls the turns.

Each line on standard input is a number of steps to take; each line on standard output is what came of it, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch

import tiercel
from . import models


def main() -> None:
    name, way, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    torch.manual_seed(0)
    session = None
    if way.startswith("limit:"):
        _, limit, system = way.split(":")
        session = tiercel.Session(int(limit), system=system, seconds=seconds).__enter__()
    step = models.ALL[name]("full" if way == "checkpointed" else "none")
    began = time.perf_counter()
    losses = [step() for _ in range(3)]
    if session is not None:
        for _ in range(16):
            session.wait_for_plan(60)
            losses.append(step())
            steps = session.status["history"]
            if len(steps) >= 9 and all(one["mode"] == "planned" for one in steps[-4:]) and not session.wait_for_plan(60):
                break
    torch.cuda.synchronize()
    learnt = time.perf_counter() - began
    first = [loss.item() for loss in losses[:6]]
    while len(first) < 6:
        first.append(step().item())
    step()
    torch.cuda.synchronize()
    say({"learnt": learnt, "losses": first})
    for line in sys.stdin:
        say(turn(step, int(line), session))


def turn(step: Any, steps: int, session: Any) -> dict[str, Any]:
    """Some steps, each from the end of the one before to its own."""
    times = []
    for _ in range(steps):
        began = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    row: dict[str, Any] = {"times": times, "reserved": torch.cuda.max_memory_reserved(), "allocated": torch.cuda.max_memory_allocated()}
    if session is not None:
        status = session.status
        row |= {k: status[k] for k in ("state", "refused", "prediction", "diverged", "moved", "retries", "limit", "peak")}
    return row


def say(row: dict[str, Any]) -> None:
    """One line for whoever calls the turns."""
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, MemoryError) as error:
        say({"error": str(error)[:600]})

"""Compiled models: plain, with PyTorch's own means, and under limits. A row says what a step took and what PyTorch had reserved.

    python -m tiercel.bench.compiled --models gpt2 --limits 17.3GiB,11.2GiB --rivals --minutes 8

Rows that would begin behind so many minutes are left out, with a word. The same rows are part of ``python -m tiercel.bench --compile``.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
import traceback
from typing import Any, Optional

import torch

import tiercel

from . import models


def measure(name: str, limit: Optional[int], steps: int, *, checkpoint: str = "none", budget: float = 1.0, verbose: bool = False) -> dict[str, Any]:
    """One row: the median step, peaks, and the losses of the first steps."""
    import torch._dynamo
    import torch._functorch.config as functorch

    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    functorch.activation_memory_budget = budget
    session = None if limit is None else tiercel.Session(limit, verbose=verbose).__enter__()
    what = "checkpointed" if checkpoint == "full" else f"budget {budget}" if budget < 1 else "plain" if limit is None else f"tiercel in {tiercel.show_bytes(limit)}"
    row: dict[str, Any] = {"model": name, "what": what, "limit": limit}
    step = None
    try:
        began = time.perf_counter()
        step = models.ALL[name](checkpoint, compiled=True)
        losses = [step() for _ in range(3)]
        torch.cuda.synchronize()
        row["compile"] = time.perf_counter() - began
        first = torch.cuda.max_memory_reserved()
        if session is not None:
            session.wait_for_plan(60)
        losses += [step() for _ in range(3)]
        torch.cuda.synchronize()
        row["reserved_before"] = max(first, torch.cuda.max_memory_reserved())
        torch.cuda.reset_peak_memory_stats()
        times = []
        for _ in range(steps):
            began = time.perf_counter()
            losses.append(step())
            torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        row |= {"step": statistics.median(times), "times": times, "allocated": torch.cuda.max_memory_allocated(),
                "reserved": torch.cuda.max_memory_reserved(), "losses": [x.item() for x in losses[:8]]}
        if session is not None:
            row["status"] = {k: v for k, v in session.status.items() if k != "history"}
    except Exception as error:
        row["error"] = str(error)[:300]
        print(traceback.format_exc()[-6000:], file=sys.stderr)
        if session is not None:
            print({k: v for k, v in session.status.items() if k != "history"}, file=sys.stderr, flush=True)
    finally:
        functorch.activation_memory_budget = 1.0
        step = None
        gc.collect()
        if session is not None:
            session.__exit__(None, None, None)
    return row


def show(row: dict[str, Any], plain: Optional[float]) -> None:
    """One line of the table."""
    if "error" in row:
        print(f"{row['model']:10} {row['what']:26} {row['error']}", flush=True)
        return
    ratio = "" if plain is None else f" {row['step'] / plain:6.3f}x"
    line = (f"{row['model']:10} {row['what']:26} {row['step'] * 1e3:8.1f} ms{ratio}  reserved {row['reserved'] / 2**30:6.2f} GiB, allocated "
            f"{row['allocated'] / 2**30:6.2f}, first steps {row['reserved_before'] / 2**30:6.2f}, compiled in {row['compile']:.0f} s, losses "
            + " ".join(f"{x:.5f}" for x in row["losses"][:4]))
    print(line, flush=True)
    if "status" in row:
        print("    ", json.dumps(row["status"], default=str), flush=True)


def rows(name: str, limits: list[int], steps: int, plain_too: bool, rivals: bool, until: float, verbose: bool) -> list[dict[str, Any]]:
    """All rows of one model; what begins too late is left out."""
    wanted: list[dict[str, Any]] = [{"limit": None}] if plain_too else []
    wanted += [{"limit": limit, "verbose": verbose} for limit in limits]
    if rivals:
        wanted += [{"limit": None, "checkpoint": "full"}, {"limit": None, "budget": 0.5}]
    done: list[dict[str, Any]] = []
    plain: Optional[float] = None
    for more in wanted:
        if time.perf_counter() > until:
            print(f"{name:10} {more} is left out: the time is over", flush=True)
            continue
        row = measure(name, steps=steps, **more)
        plain = plain or (row.get("step") if plain_too else None)
        show(row, plain)
        done.append(row)
    return done


def table(names: list[str], limits: list[str], steps: int, repeat: int, verbose: bool) -> list[dict[str, Any]]:
    """All rows of all models, repetitions in turns; limits are amounts, or shares of what the plain row reserved."""
    done: list[dict[str, Any]] = []
    reserved: dict[str, int] = {}
    for repetition in range(repeat):
        for name in names:
            plain = measure(name, None, steps)
            show(plain, plain.get("step"))
            done.append(plain | {"repetition": repetition})
            if "error" in plain:
                continue
            whole = reserved.setdefault(name, plain["reserved"])
            rest: list[dict[str, Any]] = [{"limit": None, "checkpoint": "full"}, {"limit": None, "budget": 0.5}]
            for text in limits:
                amount = int(whole * float(text[:-1]) / 100) if text.endswith("%") else tiercel.parse_bytes(text)
                rest.append({"limit": amount, "verbose": verbose})
            for more in rest:
                row = measure(name, steps=steps, **more)
                show(row, plain["step"])
                done.append(row | {"repetition": repetition})
    return done


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tiercel.bench.compiled", description=__doc__)
    parser.add_argument("--models", default="gpt2")
    parser.add_argument("--limits", default="17.3GiB,11.2GiB", help="amounts; for several models, theirs are separated by /")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--no-plain", action="store_true", help="leaves the plain row out")
    parser.add_argument("--rivals", action="store_true", help="also checkpointing of every block, and an activation_memory_budget of 0.5")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--json")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("tiercel.bench.compiled wants a GPU; there is none")
    until = time.perf_counter() + args.minutes * 60
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    done = []
    names = args.models.split(",")
    shares = args.limits.split("/")
    for repetition in range(args.repeat):
        for at, name in enumerate(names):
            limits = [tiercel.parse_bytes(text) for text in shares[min(at, len(shares) - 1)].split(",") if text]
            done += [row | {"repetition": repetition} for row in rows(name, limits, args.steps, not args.no_plain, args.rivals, until, args.verbose)]
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": done}, file, indent=1, default=str)


if __name__ == "__main__":
    main()

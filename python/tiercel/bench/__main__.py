"""Trains real models plain, checkpointed, and under limits, and prints a table of step times and peaks.

    python -m tiercel.bench --models gpt2,resnet152 --limits 80%,50%,30% --steps 5 --repeat 3 --json figures.json

Every figure is measured on the GPU at hand. Repetitions take turns, and the median counts.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from typing import Any, Optional

import torch

import tiercel
from . import models


def measure(name: str, limit: Optional[int], steps: int, checkpoint: str, system: str, seconds: float, verbose: bool = False) -> dict[str, Any]:
    """One run: the median step, the peak that PyTorch reserved, the loss after a fixed number of steps."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    session = None if limit is None else tiercel.Session(limit, system=system, seconds=seconds).__enter__()
    reserved = 0
    out: dict[str, Any] = {"model": name, "limit": limit, "checkpoint": checkpoint, "system": system if limit else None}
    try:
        step = models.ALL[name](checkpoint)
        losses = []
        learning = 0
        while learning < (3 if session is None else 12):
            losses.append(step())
            torch.cuda.synchronize()
            reserved = max(reserved, torch.cuda.max_memory_reserved())
            learning += 1
            if session is not None and verbose:
                last = session.status["history"][-1]
                print(f"  step {learning}: {last['seconds']:.2f} s, {last['mode']}, at most {tiercel.show_bytes(last['peak'])}", file=sys.stderr, flush=True)
            if session is not None:
                session.wait_for_plan(120)
                if session.status["state"] == "following a plan" and learning >= 6:
                    break
        losses.append(step())
        torch.cuda.synchronize()
        times = []
        for _ in range(steps):
            began = time.perf_counter()
            losses.append(step())
            torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        reserved = max(reserved, torch.cuda.max_memory_reserved())
        status = session.status if session is not None else {}
        out |= {"step": statistics.median(times), "times": times, "reserved": reserved, "losses": [x.item() for x in losses[:6]]}
        if session is not None:
            out |= {k: status[k] for k in ("state", "refused", "prediction", "diverged", "moved", "retries", "history")}
            out["peak"] = status["peak"]
        else:
            out["peak"] = torch.cuda.max_memory_allocated()
    except (RuntimeError, MemoryError) as error:
        out["error"] = str(error)[:400]
    finally:
        if session is not None:
            step = None
            gc.collect()
            session.__exit__(None, None, None)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tiercel.bench", description=__doc__)
    parser.add_argument("--models", default="gpt2,resnet152,llama", help="which, of " + ", ".join(models.ALL))
    parser.add_argument("--limits", default="80%,50%,30%", help="shares of the plain run's reserved peak, or amounts such as 12GiB")
    parser.add_argument("--systems", default="tiercel", help="systems to follow, as tiercel list names them")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="time to plan in")
    parser.add_argument("--checkpoint", action="store_true", help="also PyTorch's own checkpointing of every block")
    parser.add_argument("--compile", action="store_true", help="compiled models instead: plain, checkpointed, with an activation_memory_budget of 0.5, and under the limits")
    parser.add_argument("--verbose", action="store_true", help="says what every step of a limited run took")
    parser.add_argument("--json", help="writes all figures to this file")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("tiercel.bench wants a GPU; there is none")
    rows: list[dict[str, Any]] = []
    if args.compile:
        from . import compiled

        rows = compiled.table(args.models.split(","), args.limits.split(","), args.steps, args.repeat, args.verbose)
    for name in () if args.compile else args.models.split(","):
        plain_reserved = None
        for repetition in range(args.repeat):
            plain = measure(name, None, args.steps, "none", "", 0)
            rows.append(plain | {"repetition": repetition})
            show(plain, plain)
            if "error" in plain:
                break
            plain_reserved = plain_reserved or plain["reserved"]
            if args.checkpoint:
                row = measure(name, None, args.steps, "full", "", 0)
                rows.append(row | {"repetition": repetition})
                show(row, plain)
            for text in args.limits.split(","):
                limit = int(plain_reserved * float(text[:-1]) / 100) if text.endswith("%") else tiercel.parse_bytes(text)
                for system in args.systems.split(","):
                    row = measure(name, limit, args.steps, "none", system, args.seconds, args.verbose)
                    row["same_losses"] = row.get("losses") == plain["losses"][: len(row.get("losses", []))]
                    rows.append(row | {"repetition": repetition})
                    show(row, plain)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}, file, indent=1)


def show(row: dict[str, Any], plain: dict[str, Any]) -> None:
    """One line of the table."""
    what = "checkpointed" if row["checkpoint"] == "full" else "plain" if row["limit"] is None else f"{row['system']} in {tiercel.show_bytes(row['limit'])}"
    if "error" in row:
        print(f"{row['model']:10} {what:36} {row['error']}", flush=True)
        return
    line = f"{row['model']:10} {what:36} {row['step'] * 1e3:8.1f} ms {row['step'] / plain['step']:6.3f}x  reserved {row['reserved'] / 2**30:6.2f} GiB"
    if row["limit"] is not None:
        p = row.get("prediction")
        predicted = f"predicted {p['seconds'] * 1e3:.1f} ms" if p else str(row.get("refused"))
        line += f"  {row['state']}, {predicted}, same losses {row.get('same_losses')}, retries {row['retries']}, diverged {row['diverged']}"
    print(line, flush=True)


if __name__ == "__main__":
    main()

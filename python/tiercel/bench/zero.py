"""Steps of a large GPT with its optimizer states on the GPU and on the host, in several ways, and prints a table.

    python -m tiercel.bench.zero --model small --check      # 0.4 B parameters: losses too, in a minute
    python -m tiercel.bench.zero --model large              # 4.31 B parameters: wants 100 GiB of host memory
    python -m tiercel.bench.zero --model 7b --ways planned --batches 4 --gpu-limit 32GiB

Each way is a process of its own, because the host has the states of one way at a time. Batches take turns within it. A step is
timed on the GPU, from the end of a step to the end of the next. What fails says why, and the others go on.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import traceback
from typing import Any, Callable

import torch
import torch.nn.functional as F

import tiercel
from .zero_ways import WAYS, Gpt

#: Layers, width, heads, length, words.
MODELS = {"tiny": (2, 64, 4, 32, 101), "small": (24, 1024, 16, 1024, 50257), "medium": (40, 1600, 25, 1024, 50257),
          "large": (64, 2304, 18, 1024, 50257), "7b": (88, 2560, 20, 1024, 50257)}
MARK = "figures: "


class Marks:
    """Moments at the ends of steps."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.marks: list[Any] = []

    def mark(self) -> None:
        if self.cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())

    def between(self) -> list[float]:
        """Seconds between one and the next."""
        pairs = list(zip(self.marks, self.marks[1:]))
        return [a.elapsed_time(b) / 1e3 for a, b in pairs] if self.cuda else [b - a for a, b in pairs]


def run(options: argparse.Namespace) -> dict[str, Any]:
    """One way, in this process."""
    device = torch.device(options.device)
    cuda = device.type == "cuda"
    out: dict[str, Any] = {"way": options.way, "batches": {}}
    if options.gpu_limit:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, tiercel.parse_bytes(options.gpu_limit) / total))
    layers, width, heads, length, words = MODELS[options.model]
    torch.manual_seed(0)
    began = time.perf_counter()
    with device:
        model = Gpt(layers, width, heads, length, words).to(torch.bfloat16)
    out["parameters"] = sum(p.numel() for p in model.parameters())
    tuning = {"threads": options.threads, "bucket_bytes": options.bucket and tiercel.parse_bytes(options.bucket)}
    way = WAYS[options.way](model, {name: value for name, value in tuning.items() if value})
    if cuda:
        torch.cuda.synchronize()
    out["made_in"] = time.perf_counter() - began
    seed = 0

    def step(batch: int) -> torch.Tensor:
        nonlocal seed
        seed += 1
        tokens = torch.randint(0, words, (batch, length + 1), generator=torch.Generator().manual_seed(seed)).to(device)
        loss = F.cross_entropy(model(tokens[:, :-1]).float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        way.step()
        return loss.detach()

    batches = [int(batch) for batch in options.batches.split(",")]
    if options.check:
        # One batch again and again is learned by heart, so that a wrong update shows.
        losses = []
        for _ in range(options.check):
            seed = 0
            losses.append(step(batches[0]))
        out["losses"] = [loss.item() for loss in losses]
        say(options, f"losses {' '.join(f'{loss:.4f}' for loss in out['losses'])}")
    for _ in range(options.rounds):
        for batch in batches:
            window(options, out, way, step, batch, device)
    way.finish()
    out["about"] = way.about() if hasattr(way, "about") else None
    out["host"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return out


def window(options: argparse.Namespace, out: dict, way: Any, step: Callable, batch: int, device: torch.device) -> None:
    """Some steps of one batch."""
    if device.type == "cuda":
        way.finish()
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    step(batch)
    way.finish()
    step(batch)
    marks = Marks(device)
    marks.mark()
    way.times()
    began = time.perf_counter()
    for _ in range(options.steps):
        step(batch)
        marks.mark()
    wall = time.perf_counter() - began
    if device.type == "cuda":
        torch.cuda.synchronize()
    row = out["batches"].setdefault(str(batch), {"steps": [], "reserved": 0, "times": {}})
    row["steps"] += marks.between()
    row["times"] = {name: seconds / options.steps for name, seconds in way.times().items()} | {"host, a step": wall / options.steps}
    if device.type == "cuda":
        row["reserved"] = max(row["reserved"], torch.cuda.max_memory_reserved())
    say(options, f"batch {batch}: {statistics.median(row['steps']):.4f} s")


def say(options: argparse.Namespace, what: str) -> None:
    print(f"  {time.perf_counter() - options.began:6.1f} s  {options.way:8} {what}", file=sys.stderr, flush=True)


def all_ways(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every way in a process of its own."""
    rows = []
    command = [sys.executable, "-m", "tiercel.bench.zero", "--model", options.model, "--batches", options.batches, "--steps", str(options.steps),
               "--rounds", str(options.rounds), "--check", str(options.check), "--device", options.device]
    command += ["--threads", str(options.threads)] if options.threads else []
    command += ["--bucket", options.bucket] if options.bucket else []
    command += ["--gpu-limit", options.gpu_limit] if options.gpu_limit else []
    for way in options.ways.split(","):
        if time.perf_counter() - options.began > options.seconds:
            rows.append({"way": way, "error": f"not begun: {options.seconds:.0f} s are over"})
            continue
        left = max(5.0, options.seconds - (time.perf_counter() - options.began))
        try:
            done = subprocess.run([*command, "--way", way], stdout=subprocess.PIPE, text=True, timeout=left, env=os.environ)
            line = next((line for line in done.stdout.splitlines() if line.startswith(MARK)), None)
            rows.append(json.loads(line[len(MARK) :]) if line else {"way": way, "error": f"ended with {done.returncode}"})
        except subprocess.TimeoutExpired:
            rows.append({"way": way, "error": f"not done after {left:.0f} s"})
    return rows


def table(rows: list[dict[str, Any]]) -> None:
    """What came out."""
    first = next((row for row in rows if row["way"] == "gpu" and "error" not in row), None)
    for row in rows:
        if "error" in row:
            print(f"{row['way']:10} {row['error']}")
            continue
        print(f"{row['way']:10} {row['parameters'] / 1e9:.3f} B parameters, host {row['host'] / 2**30:.1f} GiB, made in {row['made_in']:.1f} s")
        if row.get("about"):
            print(f"           {row['about']}")
        if first and row.get("losses"):
            off = max(abs(a - b) / abs(b) for a, b in zip(row["losses"], first["losses"]))
            print(f"           losses {row['losses'][0]:.4f} to {row['losses'][-1]:.4f}, at most {off:.2%} from those all on the GPU")
        for batch, figures in row["batches"].items():
            steps = figures["steps"]
            middle = statistics.median(steps)
            whole = statistics.median(first["batches"][batch]["steps"]) if first else float("nan")
            print(f"           batch {batch:>3}: {middle:.4f} s ({min(steps):.4f} to {max(steps):.4f}, {len(steps)}), {middle / whole:.3f} of all on the GPU, "
                  f"{figures['reserved'] / 2**30:.1f} GiB reserved")
            parts = ", ".join(f"{name} {seconds:.3f}" for name, seconds in figures["times"].items() if seconds > 5e-4)
            print(f"                      {parts}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tiercel.bench.zero", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="large", choices=MODELS)
    parser.add_argument("--ways", default=",".join(WAYS), help="which, of " + ", ".join(WAYS))
    parser.add_argument("--batches", default="4,8,32")
    parser.add_argument("--steps", type=int, default=4, help="steps of a batch in a row, after two that are not counted")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--check", type=int, nargs="?", const=6, default=0, help="first so many steps on one batch, whose losses are compared")
    parser.add_argument("--threads", type=int, help="of the update")
    parser.add_argument("--bucket", help="an amount such as 64MiB that travels together, 32MiB unless given")
    parser.add_argument("--gpu-limit", help="an amount such as 32GiB, beyond which memory of the GPU is refused")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=560.0, help="after which no way is begun, and what runs is ended")
    parser.add_argument("--json", help="writes all figures to this file")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.began = time.perf_counter()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("tiercel.bench.zero wants a GPU; there is none")
    if options.way:
        try:
            figures = run(options)
        except Exception as error:  # said, and the other ways go on
            traceback.print_exc()
            figures = {"way": options.way, "error": f"{type(error).__name__}: {error}"[:300]}
        print(MARK + json.dumps(figures), flush=True)
        return
    rows = all_ways(options)
    if options.device == "cuda":
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {os.cpu_count()} cores")
    table(rows)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()

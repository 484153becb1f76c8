"""Trains real models plain, checkpointed, and under limits, and prints a table of step times and peaks.

    python -m tiercel.bench --models gpt2,resnet152 --limits 80%,50%,30% --turns 3 --steps 5 --json figures.json

Every figure is measured on the GPU at hand. Each way is a process of its own; plain training and one other way take turns, some
steps each, and the ratio is that of the medians of all turns. Limits are of what plain training reserves at its peak.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from typing import Any, Optional

import torch

import tiercel
from . import models


class Way:
    """A process that trains one model in one way."""

    def __init__(self, model: str, way: str, seconds: float) -> None:
        self.model, self.way = model, way
        command = [sys.executable, "-m", "tiercel.bench.worker", model, way, str(seconds)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.times: list[float] = []
        self.last: dict[str, Any] = {}
        self.first = self._hear()

    def _hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        row = json.loads(line) if line else {"error": "the process ended"}
        self.last |= row
        return row

    def turn(self, steps: int) -> None:
        """Some steps."""
        if "error" in self.last:
            return
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        self.times += self._hear().get("times", [])

    def end(self) -> None:
        """The process ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def row(self, plain: Optional["Way"]) -> dict[str, Any]:
        """What came of it."""
        row = {"model": self.model, "way": self.way, **self.last, "times": self.times}
        if self.times:
            row["step"] = statistics.median(self.times)
        if plain is not None and self.times and plain.times:
            row["plain_step"] = statistics.median(plain.times)
            row["ratio"] = row["step"] / row["plain_step"]
            row["same_losses"] = self.first.get("losses") == plain.first.get("losses")
        return row


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tiercel.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gpt2,resnet152,llama", help="which, of " + ", ".join(models.ALL))
    parser.add_argument("--limits", default="80%,50%,30%", help="shares of the plain run's reserved peak, or amounts such as 12GiB")
    parser.add_argument("--systems", default="tiercel", help="systems to follow, as tiercel list names them")
    parser.add_argument("--steps", type=int, default=5, help="steps a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="time to plan in")
    parser.add_argument("--no-checkpoint", action="store_true", help="leaves PyTorch's own checkpointing of every block out")
    parser.add_argument("--compile", action="store_true", help="compiled models instead: plain, checkpointed, with an activation_memory_budget of 0.5, and under the limits")
    parser.add_argument("--json", help="writes all figures to this file")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("tiercel.bench wants a GPU; there is none")
    rows: list[dict[str, Any]] = []
    if args.compile:
        from . import compiled

        rows = compiled.table(args.models.split(","), args.limits.split(","), args.steps, args.turns, False)
        keep(args.json, rows)
    for name in () if args.compile else args.models.split(","):
        plain = Way(name, "plain", 0)
        plain.turn(args.steps)
        if "error" in plain.last:
            print(f"{name}: {plain.last['error']}", flush=True)
            continue
        show(plain.row(None))
        ways = [] if args.no_checkpoint else ["checkpointed"]
        for text in args.limits.split(","):
            limit = int(plain.last["reserved"] * float(text[:-1]) / 100) if text.endswith("%") else tiercel.parse_bytes(text)
            ways += [f"limit:{limit}:{system}" for system in args.systems.split(",")]
        for text in ways:
            way = Way(name, text, args.seconds)
            for _ in range(args.turns):
                plain.turn(args.steps)
                way.turn(args.steps)
            rows.append(way.row(plain))
            show(rows[-1])
            way.end()
        plain.end()
        rows.append(plain.row(None))
        keep(args.json, rows)


def keep(path: Optional[str], rows: list[dict[str, Any]]) -> None:
    """All figures so far, in a file."""
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}, file, indent=1)


def show(row: dict[str, Any]) -> None:
    """One line of the table."""
    way = row["way"]
    if way.startswith("limit:"):
        _, limit, system = way.split(":")
        way = f"{system} in {tiercel.show_bytes(int(limit))}"
    if "step" not in row:
        print(f"{row['model']:10} {way:28} {row.get('error')}", flush=True)
        return
    line = f"{row['model']:10} {way:28} {row['step'] * 1e3:8.1f} ms"
    if "ratio" in row:
        line += f" {row['ratio']:6.3f}x of {row['plain_step'] * 1e3:.1f} ms"
    line += f"  reserved {row['reserved'] / 2**30:6.2f} GiB"
    if "state" in row:
        p = row.get("prediction")
        predicted = f"predicted {p['seconds'] * 1e3:.1f} ms, bound {(p['bound'] or 0) * 1e3:.1f}" if p else str(row.get("refused"))
        line += f"  {row['state']}, {predicted}, same losses {row.get('same_losses')}, retries {row['retries']}, diverged {row['diverged']}, learnt in {row['learnt']:.0f} s"
    print(line, flush=True)


if __name__ == "__main__":
    main()

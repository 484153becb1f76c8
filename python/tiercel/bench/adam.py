"""``python -m tiercel.bench.adam``: the update on the processor beside ``torch.optim.AdamW`` and beside a plain copy.

All take turns on the same threads, and the best and the middle of each count: machines are shared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch

from .._tiercel import Numbering, Updater
from ..optim._memory import host, numbers

#: After a call torch's threads go on spinning for some milliseconds: whoever comes next would have fewer cores.
PAUSE = 0.03


def _torch(p: torch.Tensor, g: torch.Tensor, **more: object):
    parameter = torch.nn.Parameter(p)
    parameter.grad = g
    return torch.optim.AdamW([parameter], **more).step


def _ours(count: int, g: torch.Tensor, out: torch.Tensor | None, updater: Updater):
    p, m, v = (host(count, torch.float32, False) for _ in range(3))
    rule = Numbering.adam(1e-3, (0.9, 0.999), 1e-8, 1e-2, True, False)
    step = 0

    def run() -> None:
        nonlocal step
        step += 1
        kept = (p, m, v)
        updater.update(
            rule, [(0, count, step)], (1.0, 1.0), kept[0].data_ptr(), (m.data_ptr(), v.data_ptr()), numbers(g), numbers(out), count
        )

    return run


def compare(count: int, threads: int, seconds: float) -> dict:
    """Times of one step over so many parameters, in seconds: the best and the middle."""
    torch.set_num_threads(threads)
    updater = Updater(threads)
    g = host(count, torch.float32, False)
    g.copy_(torch.randn(1024).repeat(count // 1024 + 1)[:count])
    g16, out = host(count, torch.bfloat16, False), host(count, torch.bfloat16, False)
    g16.copy_(g)
    target = host(count, torch.float32, False)
    blank = lambda: host(count, torch.float32, False)
    ways = {
        "copy": lambda: target.copy_(g),
        "ours, 32 bits": _ours(count, g, None, updater),
        "ours, bf16 to bf16": _ours(count, g16, out, updater),
        "torch fused": _torch(blank(), g, fused=True),
        "torch foreach=False": _torch(blank(), g, foreach=False),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 4 or time.perf_counter() < end:
        for name, run in ways.items():
            time.sleep(PAUSE)
            begin = time.perf_counter()
            run()
            if rounds:
                times[name].append(time.perf_counter() - begin)
        rounds += 1
    return {name: (min(all_), statistics.median(all_)) for name, all_ in times.items()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--most", type=float, default=1e8)
    arguments.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments.add_argument("--seconds", type=float, default=5.0)
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    rows = []
    for count in (10**6, 10**7, 3 * 10**7, 10**8):
        if count > options.most:
            break
        times = compare(count, options.threads, options.seconds)
        rows.append({"parameters": count, "threads": options.threads, "seconds": times})
        if options.json:
            continue
        copied = [8 * count / time_ for time_ in times["copy"]]
        print(f"{count:,} parameters, {options.threads} threads; best and middle; the copy {copied[0] / 1e9:.1f} and {copied[1] / 1e9:.1f} GB/s")
        for name, pair in times.items():
            if name == "copy":
                continue
            fused = times["torch fused"]
            share = [28 * count / time_ / speed for time_, speed in zip(pair, copied)]
            line = f"  {name:<20} {pair[0] * 1e3:9.2f} {pair[1] * 1e3:9.2f} ms"
            line += f"   torch fused takes {fused[0] / pair[0]:.2f} and {fused[1] / pair[1]:.2f} times as long"
            print(line + (f"   {share[0]:.0%} and {share[1]:.0%} of the copy" if name.startswith("ours") else ""))
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()

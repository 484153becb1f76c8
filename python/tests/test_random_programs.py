"""Generated programs under random limits: the same bits as without, and nothing is left behind.

``python test_random_programs.py 1000000`` plays so many operations; the test plays fewer.
"""

import gc
import random
import resource
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

import tiercel


class Program:
    """A network, an optimizer and a loop that follow from a number."""

    def __init__(self, seed):
        self.chooser = random.Random(seed)
        self.seed = seed

    def layer(self, width):
        chooser = self.chooser
        kind = chooser.choice(["linear", "norm", "wide", "conv", "attention", "gated"])
        if kind == "linear":
            return nn.Linear(width, width)
        if kind == "norm":
            return nn.LayerNorm(width) if chooser.random() < 0.5 else nn.BatchNorm1d(width)
        if kind == "wide":
            return nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Dropout(0.2), nn.Linear(3 * width, width))
        if kind == "conv":
            return nn.Sequential(nn.Unflatten(1, (4, width // 4)), nn.Conv1d(4, 4, 3, padding=1), nn.ReLU(inplace=True), nn.Flatten(1))
        if kind == "attention":
            class Attention(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.inner = nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True)

                def forward(self, x):
                    y = x.unflatten(0, (-1, 8))
                    return self.inner(y, y, y, need_weights=False)[0].flatten(0, 1)

            return Attention()

        class Gated(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate, self.value = nn.Linear(width, width), nn.Linear(width, width)

            def forward(self, x):
                return torch.sigmoid(self.gate(x)) * self.value(x)

        return Gated()

    def make(self):
        self.chooser.seed(self.seed)
        torch.manual_seed(self.seed)
        width = self.chooser.choice([32, 48, 64])
        self.layers = nn.ModuleList(self.layer(width) for _ in range(self.chooser.randint(3, 8)))
        self.out = nn.Linear(width, 10)
        parameters = [*self.layers.parameters(), *self.out.parameters()]
        kind = self.chooser.choice(["SGD", "AdamW", "Adam", "RMSprop"])
        how = self.chooser.choice([{"foreach": True}, {"foreach": False}])
        self.opt = getattr(torch.optim, kind)(parameters, 1e-3, **how)
        self.width, self.rows = width, self.chooser.choice([64, 128, 192])
        #: How often layers are left out, rows are fewer, and a weight is looked at.
        self.skips, self.shorter, self.looks = (self.chooser.choice([0, 0, 0.3]) for _ in range(3))
        self.clips, self.passes = self.chooser.random() < 0.3, self.chooser.choice([1, 1, 2])
        return parameters

    def run(self, steps, s=None):
        parameters = self.make()
        losses = []
        for _ in range(steps):
            for _ in range(self.passes):
                rows = self.rows // 2 if self.chooser.random() < self.shorter else self.rows
                x = torch.randn(rows, self.width)
                for layer in self.layers:
                    if self.chooser.random() >= self.skips:
                        x = x + layer(x)
                loss = F.cross_entropy(self.out(x), torch.arange(rows) % 10)
                loss.backward()
            if self.clips:
                torch.nn.utils.clip_grad_norm_(parameters, 0.5)
            self.opt.step()
            self.opt.zero_grad(set_to_none=self.chooser.random() < 0.9)
            losses.append(loss.item())
            if self.chooser.random() < self.looks:
                losses.append(parameters[0].detach().abs().max().item())
            if s is not None:
                s.wait_for_plan(10)
        return losses, [p.detach().clone() for p in parameters]


def same(a, b):
    def alike(x, y):
        return x == y or x != x and y != y

    return len(a[0]) == len(b[0]) and all(map(alike, a[0], b[0])) and all(torch.equal(torch.nan_to_num(x), torch.nan_to_num(y)) for x, y in zip(a[1], b[1]))


def play(operations, first=0, talk=False):
    """Programs one after the other until so many operations have run under limits."""
    done, seed, counted = 0, first, {"programs": 0, "planned": 0, "refused": 0, "moved": 0}
    resident = []
    while done < operations:
        seed += 1
        chooser = random.Random(seed)
        steps = chooser.randint(6, 14)
        plain = Program(seed).run(steps)
        with tiercel.Session("1GiB", "1GiB", device="cpu", least="2KiB", learned=False) as s:
            Program(seed).run(2)
            peak = s.status["peak"]
        limit = int(peak * chooser.uniform(0.35, 1.1))
        try:
            with tiercel.Session(limit, "256MiB", device="cpu", least="2KiB", learned=False, seconds=0.1,
                                 system=chooser.choice(["tiercel", "tiercel", "tiercel", "autotm-async", "cachedarrays-lmp"])) as s:
                runtime = s._runtime
                original = runtime._dispatch

                def count(*args, original=original):
                    nonlocal done
                    done += 1
                    return original(*args)

                runtime._dispatch = count
                result = Program(seed).run(steps, s)
                status = s.status
                assert status["peak"] <= limit, (seed, status["peak"], limit)
                counted["planned"] += any(one["mode"] == "planned" for one in status["history"])
                counted["moved"] += sum(status["moved"])
                del runtime._dispatch, original, count, runtime
            assert same(plain, result), f"program {seed} differs under {limit} of {peak} bytes"
        except MemoryError as error:
            assert "works on" in str(error), error
            counted["refused"] += 1
        counted["programs"] += 1
        del s, plain
        if seed % 20 == 0:
            gc.collect()
            resident.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
            if talk:
                print(f"{done} operations, {counted}, at most {resident[-1]} MiB so far", flush=True)
    return done, counted, resident


def test_generated_programs():
    done, counted, _ = play(40_000)
    assert counted["planned"] >= 5 and counted["moved"] > 0 and counted["refused"] < counted["programs"] // 2, counted


def test_nothing_is_left_behind():
    """Sessions that have ended hold no storages, and the same program again takes no more memory."""
    def objects():
        gc.collect()
        return sum(isinstance(thing, torch.UntypedStorage) or str(type(thing).__module__).startswith("tiercel") for thing in gc.get_objects())

    def once():
        with tiercel.Session("700KiB", "256MiB", device="cpu", least="2KiB", learned=False, seconds=0.1) as s:
            Program(4).run(8, s)

    once()
    before = objects()
    for _ in range(5):
        once()
    assert objects() <= before + 8, (before, objects())


if __name__ == "__main__":
    done, counted, resident = play(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0, True)
    print(f"{done} operations: the same bits; {counted}; resident at most {resident[len(resident) // 2] if resident else 0} MiB half-way, {resident[-1] if resident else 0} MiB at the end")

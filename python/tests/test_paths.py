"""Programs whose iterations differ: the same bits as without a limit, plans for each path, and what is said of them."""

import random

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import tiercel
from loops import end_of_step
from test_eager import Block


class Exits(nn.Module):
    """Stops after some of its blocks: easy samples are done early."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(64) for _ in range(5))
        self.heads = nn.ModuleList(nn.Linear(64, 10) for _ in range(5))

    def forward(self, x, way):
        for block in self.blocks[: way + 1]:
            x = block(x)
        return self.heads[way](x)


class Skips(nn.Module):
    """Leaves out two of its blocks."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(64) for _ in range(5))
        self.out = nn.Linear(64, 10)

    def forward(self, x, way):
        for at, block in enumerate(self.blocks):
            if at != way and at != (way + 2) % 5:
                x = block(x)
        return self.out(x)


class Experts(nn.Module):
    """Words go to experts by what a router says; experts that nobody wants are not run."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(64, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(4))
        self.out = nn.Linear(64, 10)

    def forward(self, x, way):
        gates = self.router(x).softmax(-1)
        rows = torch.arange(x.shape[0]) * 4 // x.shape[0]
        chosen = torch.where(rows % 2 == 0, way % 4, (way + way // 4) % 4)
        out = torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            mine = (chosen == at).nonzero().flatten()
            if mine.numel():
                out = out.index_add(0, mine, expert(x[mine]) * gates[mine, at : at + 1])
        return self.out(x + out)


class Tree(nn.Module):
    """A Tree-LSTM cell that follows a tree of one of some forms."""

    FORMS = [((0, 1), (2, 3)), (0, (1, (2, 3))), ((0, 1), 2), (((0, 1), 2), 3), (0, 1)]

    def __init__(self):
        super().__init__()
        self.leaf = nn.Linear(64, 128)
        self.cell = nn.Linear(128, 5 * 64)
        self.out = nn.Linear(64, 10)

    def node(self, tree, x):
        if isinstance(tree, int):
            h, c = self.leaf(torch.roll(x, tree, 1)).chunk(2, 1)
            return torch.tanh(h), c
        (hl, cl), (hr, cr) = self.node(tree[0], x), self.node(tree[1], x)
        i, l, r, o, g = self.cell(torch.cat([hl, hr], 1)).chunk(5, 1)
        c = torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(l) * cl + torch.sigmoid(r) * cr
        return torch.sigmoid(o) * torch.tanh(c), c

    def forward(self, x, way):
        return self.out(self.node(self.FORMS[way % 5], x)[0])


class Words(nn.Module):
    """An LSTM, cell by cell, over sentences of different lengths."""

    LENGTHS = (6, 9, 12)

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(16, 64)
        self.out = nn.Linear(64, 10)

    def forward(self, x, way):
        steps = x.view(x.shape[0], 4, 16)
        h = c = torch.zeros(x.shape[0], 64)
        for at in range(self.LENGTHS[way % 3]):
            h, c = self.cell(steps[:, at % 4], (h, c))
        return self.out(h)


class Sentences(nn.Module):
    """A small BERT over sentences of different lengths: the operations are the same, the sizes are not."""

    LENGTHS = (8, 11, 16, 21, 30)

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.1)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(64, 10)

    def forward(self, x, way):
        words = x[:32].unsqueeze(1).repeat(1, self.LENGTHS[way % 5], 1)
        return self.out(self.layers(words).mean(1))


WORKLOADS = {"early-exit": Exits, "layer-skip": Skips, "moe": Experts, "tree-lstm": Tree, "var-lstm": Words, "var-bert": Sentences}


def train(kind, steps, ways, s=None, rows=256):
    """A short training along given ways; everything follows from the seed."""
    torch.manual_seed(4)
    model = kind()
    opt = torch.optim.AdamW(model.parameters(), 1e-3, foreach=False)
    losses = []
    for step in range(steps):
        out = model(torch.randn(rows, 64), ways[step])
        loss = F.cross_entropy(out, torch.arange(out.shape[0]) % 10)
        end_of_step(loss, opt, losses, s)
    return losses, [p.detach().clone() for p in model.parameters()]


def ways_of(steps, kinds=5, seed=1):
    """Ways as samples take them, some more often than others."""
    chooser = random.Random(seed)
    return [chooser.choices(range(kinds), [8, 4, 3, 2, 2][:kinds])[0] for _ in range(steps)]


def limited(kind, ways, share, seconds=0.3, **more):
    with tiercel.Session("64MiB", "256MiB", device="cpu", least="2KiB", learned=False) as s:
        train(kind, 3, ways)
        peak = s.status["peak"]
    with tiercel.Session(int(peak * share), "256MiB", device="cpu", least="2KiB", seconds=seconds, **{"learned": False, **more}) as s:
        result = train(kind, len(ways), ways, s)
        return result, s.status, int(peak * share), tiercel.explain()


def same(a, b):
    return a[0] == b[0] and all(torch.equal(x, y) for x, y in zip(a[1], b[1]))


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_same_bits_whatever_way_a_sample_goes(name):
    ways = ways_of(40)
    plain = train(WORKLOADS[name], 40, ways)
    result, status, allowed, words = limited(WORKLOADS[name], ways, 0.6)
    assert same(plain, result)
    assert status["peak"] <= allowed, "never more than the limit"
    assert sum(status["moved"]) > 0, "the limit binds"
    paths = status["paths"]
    assert paths["count"] == 40 and paths["hits"] + paths["turned"] > 0, paths
    if name == "var-bert":
        assert paths["plans"] >= 2, "plans for other sizes"
    else:
        assert paths["known"] >= 3 and paths["planned"] >= 2, paths
        assert "paths" in words


@pytest.mark.parametrize("system", ["cachedarrays-lmp", "autotm-async", "capuchin"])
def test_other_systems_go_from_path_to_path(system):
    ways = ways_of(30, 3)
    plain = train(Exits, 30, ways)
    result, status, allowed, _ = limited(Exits, ways, 0.6, system=system)
    assert same(plain, result)
    assert status["peak"] <= allowed


def test_a_path_is_recognised_in_its_midst():
    """Once all ways have plans, an iteration that goes another way than was thought goes on with that way's plan."""
    ways = [0, 0, 0, 0, 0] + [way for way in range(5) for _ in range(4)] + ways_of(30, seed=7)
    plain = train(Exits, len(ways), ways)
    result, status, allowed, words = limited(Exits, ways, 0.6)
    assert same(plain, result)
    modes = [one["mode"] for one in status["history"]][-25:]
    assert modes.count("planned") >= 20, (modes, status["paths"])
    assert status["paths"]["turned"] >= 5
    assert status["peak"] <= allowed
    assert "went on with another one" in words


def test_a_way_that_shapes_tell_is_foreseen():
    """The batch's size says which way its samples go: after a while the right plan is there before the ways part."""
    def run(s=None):
        torch.manual_seed(4)
        model = Exits()
        opt = torch.optim.AdamW(model.parameters(), 1e-3, foreach=False)
        losses, turned = [], []
        for step, way in enumerate([0, 0, 1, 1, 2, 2] * 2 + ways_of(40, 3)):
            x = torch.randn(256, 64)[: 256 - way]
            losses.append(F.cross_entropy(model(x, way), torch.arange(256 - way) % 10))
            losses[-1].backward()
            opt.step()
            opt.zero_grad()
            if s is not None:
                s.wait_for_plan(30)
        return [loss.item() for loss in losses]

    plain = run()
    with tiercel.Session("1400KiB", "64MiB", device="cpu", least="2KiB", seconds=0.3, learned=False) as s:
        result = run(s)
        modes = [one["mode"] for one in s.status["history"]]
        assert modes[-15:].count("planned") >= 13, (modes, s.status["paths"])
        assert s.status["peak"] <= 1400 << 10
    assert result == plain


def test_a_program_that_never_repeats_is_served_and_bounded(caplog):
    """No iteration is like another: nothing is planned, little is kept, and it is said once."""
    def run(s=None):
        torch.manual_seed(4)
        model = nn.ModuleList(Block(64) for _ in range(12))
        opt = torch.optim.SGD(model.parameters(), 1e-3, foreach=False)
        losses = []
        for step in range(1, 40):
            x = torch.randn(64, 64)
            for at in range(8):
                # No two steps have the same binary digits.
                x = model[at](x) if step >> at & 1 else x + 1
            loss = x.square().mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            losses.append(loss.item())
        return losses

    plain = run()
    with tiercel.Session("700KiB", "64MiB", device="cpu", least="2KiB", seconds=0.3, learned=False) as s:
        assert run(s) == plain
        status, runtime = s.status, s._runtime
        assert status["paths"]["plans"] == 0 and status["paths"]["known"] == 39
        assert len(runtime.plans.recorded) <= 32
        assert not runtime.timed, "what is new is not looked at closely any more"
        assert status["paths"]["most_bytes"] < 32 << 20
    said = [record.message for record in caplog.records if "no iteration repeats" in record.message]
    assert len(said) == 1


def test_differing_iterations_are_noticed_once(caplog, tmp_path):
    with tiercel.Session("1400KiB", "64MiB", device="cpu", least="2KiB", seconds=0.3, learned=False) as s:
        train(Exits, 24, [0, 1] * 12, s)
        s.report(tmp_path / "report.html")
        paths = s.status["paths"]
    assert sum("iterations differ" in record.message for record in caplog.records) == 1
    page = (tmp_path / "report.html").read_text()
    assert "Paths" in page and "went on with another plan" in page
    assert paths["hits"] >= 8, paths


def test_views_and_numbers_that_change_are_made_again_as_they_are_now(monkeypatch):
    """An operation that runs again sees this iteration's numbers and this iteration's part of a tensor, though its sizes never change."""
    from tiercel import _plans, _runtime
    from test_following import _slow_machine

    monkeypatch.setattr(_runtime, "elapsed", lambda clock: 1000.0)
    monkeypatch.setattr(_plans, "_TIMED", ())

    def run(s=None):
        torch.manual_seed(2)
        model = nn.Sequential(*[nn.Linear(64, 512) if at % 2 == 0 else nn.Linear(512, 64) for at in range(8)])
        opt = torch.optim.SGD(model.parameters(), 0.01)
        losses = []
        for step in range(9):
            x = torch.randn(256, 64)[step * 7 : step * 7 + 128]
            for at, layer in enumerate(model):
                x = layer(x)
                x = F.gelu(x * (1.0 + 0.1 * step)) if at % 2 == 0 else x
            loss = x.square().mean()
            end_of_step(loss, opt, losses, s)
            if s is not None:
                following.append(s._runtime.following)
        return losses, [p.detach().clone() for p in model.parameters()]

    following: list = []
    plain = run()
    with tiercel.Session("2200KiB", "64MiB", device="cpu", least="2KiB", seconds=3.0, machine=_slow_machine(), learned=False) as s:
        result = run(s)
        assert following[-1] is not None, s.status
        assert any(step.note is not None for step in following[-1].steps), "something runs again"
    assert same(plain, result)

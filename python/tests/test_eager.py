"""Eager training under a limit gives the same bits as without one, on tensors of the processor."""

import copy
import io

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import tiercel


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + F.dropout(self.down(F.gelu(self.up(self.norm(x)))), 0.1, self.training)


def mlp():
    return nn.Sequential(*[Block(64) for _ in range(4)], nn.Linear(64, 10)), lambda: torch.randn(256, 64)


def convolutions():
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )
    return model, lambda: torch.randn(16, 3, 16, 16)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(32, 64, 2)
        self.out = nn.Linear(64, 10)

    def forward(self, x):
        return self.out(self.lstm(x)[0][-1])


def recurrent():
    return Recurrent(), lambda: torch.randn(24, 64, 32)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.1), 2)
        self.out = nn.Linear(64, 10)

    def forward(self, x):
        return self.out(self.layers(x).mean(1))


def attention():
    return Attention(), lambda: torch.randn(16, 32, 64)


MODELS = {"mlp": mlp, "convolutions": convolutions, "recurrent": recurrent, "attention": attention}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-3),
    "foreach": lambda p: torch.optim.AdamW(p, 1e-3, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, 1e-3, fused=True),
}


def train(make, optimizer, steps, accumulate=1, clip=None):
    """Losses and final parameters of a short training; everything follows from the seed."""
    torch.manual_seed(1)
    model, data = make()
    opt = OPTIMIZERS[optimizer](model.parameters())
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        for _ in range(accumulate):
            out = model(data())
            loss = F.cross_entropy(out, torch.arange(out.shape[0]) % 10)
            loss.backward()
            losses.append(loss.item())
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        opt.step()
    return losses, [p.detach().clone() for p in model.parameters()] + [b.clone() for b in model.buffers()], model, opt


def same(a, b):
    return a[0] == b[0] and all(torch.equal(x, y) for x, y in zip(a[1], b[1]))


def limited(peak_share, make, optimizer, steps=6, system="autotm-async", **more):
    with tiercel.Session("64MiB", "256MiB", device="cpu", least="2KiB") as s:
        train(make, optimizer, 2)
        peak = s.status["peak"]
    with tiercel.Session(max(1 << 16, int(peak * peak_share)), "256MiB", device="cpu", least="2KiB", system=system, seconds=0.5) as s:
        torch.manual_seed(1)
        result = train(make, optimizer, steps, **more)
        status = s.status
    return result, status, int(peak * peak_share)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_same_bits(model, optimizer):
    plain = train(MODELS[model], optimizer, 6)
    result, status, allowed = limited(0.6, MODELS[model], optimizer)
    assert same(plain, result)
    assert status["peak"] <= allowed, "never more than the limit"
    assert sum(status["moved"]) > 0, "the limit binds"


@pytest.mark.parametrize("system", ["autotm-sync", "cachedarrays-lmp", "sentinel", "capuchin", "vdnn", "tiercel"])
def test_systems_by_name(system):
    plain = train(mlp, "fused", 8)
    result, status, allowed = limited(0.6, mlp, "fused", 8, system)
    assert same(plain, result)
    assert status["peak"] <= allowed


def test_accumulation_and_clipping():
    plain = train(mlp, "adamw", 5, accumulate=3, clip=0.5)
    result, status, _ = limited(0.6, mlp, "adamw", 5, accumulate=3, clip=0.5)
    assert same(plain, result)


def run_planned(s, model, opt, data, steps):
    """Trains until a plan is followed, and some steps more."""
    losses = []
    for step in range(steps):
        opt.zero_grad()
        loss = F.cross_entropy(model(data()), torch.arange(256) % 10)
        loss.backward()
        opt.step()
        losses.append(loss.item())
        s.wait_for_plan(30)
    return losses


def test_a_plan_is_followed_and_left_without_harm():
    def program(session):
        torch.manual_seed(3)
        model, data = mlp()
        opt = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
        losses = run_planned(session, model, opt, data, 6) if session else run_planned(Idle(), model, opt, data, 6)
        followed = session.status["state"] if session else ""
        model.eval()
        with torch.no_grad():
            losses.append(model(data()).sum().item())  # something that no plan knows
        model.train()
        losses += run_planned(session or Idle(), model, opt, data, 5)
        return losses, followed, model

    plain, _, _ = program(None)
    with tiercel.Session("1400KiB", "64MiB", device="cpu", least="2KiB", seconds=0.5) as s:
        result, followed, model = program(s)
        assert followed == "following a plan", s.status
        assert s.status["diverged"] >= 1
        assert s.status["state"] == "following a plan", "the known iteration is planned again"
        assert s.status["peak"] <= 1400 << 10
    assert result == plain


class Idle:
    def wait_for_plan(self, seconds):
        return False


def test_plain_pytorch_stays_plain(tmp_path):
    torch.manual_seed(5)
    with tiercel.Session("1400KiB", "64MiB", device="cpu", least="2KiB", seconds=0.5) as s:
        model, data = mlp()
        opt = torch.optim.AdamW(model.parameters(), 1e-3)
        run_planned(s, model, opt, data, 6)
        twin = copy.deepcopy(model)
        torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, tmp_path / "c.pt")
        repr(next(model.parameters()))
        array = next(model.parameters()).detach().numpy().copy()
        run_planned(s, model, opt, data, 1)
        back = torch.load(tmp_path / "c.pt", weights_only=True)
        for (name, a), b in zip(back["model"].items(), twin.state_dict().values()):
            assert torch.equal(a, b), name
        assert (next(iter(back["model"].values())).numpy() == array).all()
        fresh, _ = mlp()
        fresh.load_state_dict(back["model"])
        opt.load_state_dict(back["opt"])
        run_planned(s, model, opt, data, 3)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    assert all(p.untyped_storage().nbytes() > 0 for p in model.parameters())


def test_what_does_not_fit_says_so():
    with tiercel.Session("64KiB", "64MiB", device="cpu", least="2KiB"):
        with pytest.raises(MemoryError, match="works on .* at once; the limit leaves"):
            torch.randn(200, 200) @ torch.randn(200, 200)
        assert torch.ones(10).sum() == 10


def test_bad_use():
    with pytest.raises(ValueError, match="no amount of memory"):
        tiercel.Session("12 parsecs", device="cpu")
    with pytest.raises(FileNotFoundError):
        tiercel.Session("1MiB", "file:/no/such/folder", slow_bytes="1MiB", device="cpu")
    with tiercel.Session("1MiB", "1MiB", device="cpu"):
        with pytest.raises(RuntimeError, match="in force already"):
            tiercel.limit("1MiB", device="cpu")
    assert "No limit" in tiercel.explain()


def test_a_file_behind_memory(tmp_path):
    plain = train(mlp, "fused", 5)
    with tiercel.Session("1200KiB", f"file:{tmp_path}", slow_bytes="64MiB", device="cpu", least="2KiB", seconds=0.5) as s:
        result = train(mlp, "fused", 5)
        assert sum(s.status["moved"]) > 0
        assert "served as they come" in tiercel.explain() or "plan is followed" in tiercel.explain()
    assert same(plain, result)


def test_an_exception_in_the_middle_of_a_step():
    with tiercel.Session("1400KiB", "64MiB", device="cpu", least="2KiB", seconds=0.5) as s:
        torch.manual_seed(3)
        model, data = mlp()
        opt = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
        run_planned(s, model, opt, data, 5)
        loss = F.cross_entropy(model(data()), torch.arange(256) % 10)
        with pytest.raises(RuntimeError):
            loss.backward(torch.ones(3))
        del loss
        assert len(run_planned(s, model, opt, data, 5)) == 5

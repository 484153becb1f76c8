"""What happens around a plan that is followed: looks at a loss, iterations that take turns, tensors that stay, memory handed over."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import tiercel
from tiercel import _graft, _plans, _runtime
from tiercel._devices import bytes_of

from loops import end_of_step
from test_eager import Block, mlp, same


def session(limit="1400KiB", seconds=0.5, **more):
    return tiercel.Session(limit, "64MiB", device="cpu", least="2KiB", seconds=seconds, **more)


def train(steps, look=None, s=None):
    torch.manual_seed(3)
    model, data = mlp()
    opt = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    losses = []
    for step in range(steps):
        loss = F.cross_entropy(model(data()), torch.arange(256) % 10)
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss.detach())
        if look is not None:
            look(model, losses)
        if s is not None:
            s.wait_for_plan(30)
    return losses, model


def test_a_loss_may_be_read_between_iterations():
    read = []
    plain, _ = train(8)
    with session() as s:
        losses, _ = train(8, lambda model, losses: read.append(losses[-1].item()), s)
        assert s.status["state"] == "following a plan", s.status
        assert s.status["diverged"] == 0
    assert read == [loss.item() for loss in plain] == [loss.item() for loss in losses]


def test_a_weight_may_be_looked_at_and_changed_between_iterations():
    def look(model, losses):
        with torch.no_grad():
            largest.append(model[2].up.weight.abs().max().item())
            model[2].up.weight.mul_(0.99)

    largest: list[float] = []
    plain, model = train(8, look)
    alone, largest = largest, []
    with session() as s:
        losses, limited = train(8, look, s)
        assert s.status["diverged"] == 0
    assert largest == alone
    assert [l.item() for l in plain] == [l.item() for l in losses]
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), limited.parameters()))


def adversaries(steps, s=None):
    """Two networks that are trained in turns, as a generator and its critic are."""
    torch.manual_seed(1)
    maker, critic = nn.Sequential(Block(64), Block(64)), nn.Sequential(Block(64), nn.Linear(64, 1))
    first, second = (torch.optim.Adam(m.parameters(), 1e-3) for m in (maker, critic))
    losses = []
    for _ in range(steps):
        noise = torch.randn(256, 64)
        loss = (critic(torch.randn(256, 64)) - critic(maker(noise).detach())).mean()
        second.zero_grad()
        loss.backward()
        second.step()
        losses.append(loss.item())
        if s is not None:
            s.wait_for_plan(30)
        loss = critic(maker(noise)).mean()
        first.zero_grad()
        loss.backward()
        first.step()
        losses.append(loss.item())
        if s is not None:
            s.wait_for_plan(30)
    return losses


def test_iterations_that_take_turns_each_have_their_plan():
    plain = adversaries(9)
    with session("1100KiB") as s:
        losses = adversaries(9, s)
        modes = [one["mode"] for one in s.status["history"]]
        assert modes[-2:] == ["planned", "planned"], modes
        assert s.status["peak"] <= 1100 << 10
    assert losses == plain


def test_what_is_pinned_stays():
    with session() as s:
        def look(model, losses):
            weight = model[1].down.weight
            if len(losses) == 1:
                s.pin(weight)
            there.append(bytes_of(weight.untyped_storage()) > 0)

        there: list[bool] = []
        losses, _ = train(8, look, s)
    plain, _ = train(8)
    assert all(there[1:])
    assert [l.item() for l in losses] == [l.item() for l in plain]


def test_memory_is_handed_over():
    assert _graft.can(), "this version of PyTorch keeps a storage's memory elsewhere; bytes are copied instead"
    full, empty = torch.randn(1000), torch.randn(1000)
    view, wanted = empty[10:20], full.clone()
    empty.untyped_storage().resize_(0)
    address = full.data_ptr()
    _graft.hand_over(full.untyped_storage(), empty.untyped_storage())
    assert empty.data_ptr() == address and full.untyped_storage().nbytes() == 0
    del full
    assert torch.equal(empty, wanted) and torch.equal(view, wanted[10:20])


@pytest.mark.parametrize("handed", [True, False])
def test_random_operations_run_again_with_the_same_bits(handed, monkeypatch):
    """So little memory that nearly all has to be made again, dropout included; with and without memory that is handed over."""
    monkeypatch.setattr(_graft, "can", lambda: handed)
    # Operations that take no time to speak of, and copies that take long: plans do not depend on how busy the machine is.
    monkeypatch.setattr(_runtime, "elapsed", lambda clock: 1000.0)
    monkeypatch.setattr(_plans, "_TIMED", ())

    class Costly(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(64, 512), nn.Linear(512, 64)

        def forward(self, x):
            return x + self.b(F.dropout(F.gelu(self.a(x)), 0.3))

    def run(s=None):
        torch.manual_seed(2)
        model = nn.Sequential(*[Costly() for _ in range(4)])
        opt = torch.optim.SGD(model.parameters(), 0.01)
        losses = []
        for _ in range(7):
            loss = model(torch.randn(128, 64)).square().mean()
            end_of_step(loss, opt, losses, s)
            if s is not None:
                followed.append(s._runtime.following)
        return losses, [p.detach().clone() for p in model.parameters()]

    followed: list = []
    plain = run()
    slow = _slow_machine()
    with session("2200KiB", seconds=3.0, machine=slow) as s:
        result = run(s)
        assert followed[-1] is not None, s.status
        again = {str(step.func) for step in followed[-1].steps if step.note is not None}
        assert s.status["peak"] <= 2200 << 10
    assert any("bernoulli" in name for name in again), again
    assert plain[0] == result[0]
    assert all(torch.equal(a, b) for a, b in zip(plain[1], result[1]))


def _slow_machine():
    """Slow memory that is so slow that making things again is always cheaper."""
    from tiercel._session import _HOST

    return _HOST.replace("2 GB/s", "20 MB/s")

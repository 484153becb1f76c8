"""Compiled training under a limit: what is saved for the backward pass stays, moves or is made again, and results stay."""

import shutil

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import tiercel

pytestmark = pytest.mark.skipif(shutil.which("g++") is None and shutil.which("gcc") is None, reason="Inductor wants a C++ compiler")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + F.dropout(self.down(F.gelu(self.up(self.norm(x)))), 0.1, self.training)


class Chain(nn.Module):
    """Blocks in a row; between the halves the compiler may be interrupted."""

    def __init__(self, broken=False, count=6, width=64):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(count))
        self.out = nn.Linear(width, 10)
        self.broken = broken

    def forward(self, x):
        half = len(self.blocks) // 2
        for block in self.blocks[:half]:
            x = block(x)
        if self.broken:
            torch._dynamo.graph_break()
        for block in self.blocks[half:]:
            x = block(x)
        return self.out(x)


class Attention(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, 128, batch_first=True, dropout=0.1), 3)
        self.out = nn.Linear(width, 10)

    def forward(self, x):
        return self.out(self.layers(x).mean(1))


def convolutions():
    def stage(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())

    return nn.Sequential(stage(3, 16), stage(16, 16), nn.MaxPool2d(2), stage(16, 32), stage(32, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def whole(model):
    return torch.compile(model)


def blocks(model):
    for at, block in enumerate(model.blocks):
        model.blocks[at] = torch.compile(block)
    return model


CASES = {
    "mlp": (lambda: Chain(), lambda: torch.randn(512, 64), whole),
    "convolutions": (convolutions, lambda: torch.randn(16, 3, 32, 32), whole),
    "attention": (lambda: Attention(), lambda: torch.randn(16, 32, 64), whole),
    "blocks": (lambda: Chain(), lambda: torch.randn(512, 64), blocks),
    "broken": (lambda: Chain(broken=True), lambda: torch.randn(512, 64), whole),
}


def saved_bytes(loss):
    """The bytes of what autograd holds for the backward pass, parameters aside, as they are in memory now."""
    found, open_, seen = {}, [loss.grad_fn], set()
    while open_:
        node = open_.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        open_ += [f for f, _ in node.next_functions]
        for tensor in getattr(node, "saved_tensors", ()) or ():
            if tensor is not None and not isinstance(tensor, nn.Parameter):
                storage = tensor.untyped_storage()
                found[storage._cdata] = len(bytes_there(storage))
    return sum(found.values())


def bytes_there(storage):
    from tiercel._devices import bytes_of

    return range(bytes_of(storage))


def train(case, limit=None, steps=4, seed=1, optimizer=lambda p: torch.optim.AdamW(p, 1e-3), **more):
    """Losses, parameters, gradients of the last step, the most that was saved, and what the session says."""
    make, data, compiled = CASES[case] if isinstance(case, str) else case
    torch._dynamo.reset()
    session = None if limit is None else tiercel.Session(limit, "256MiB", device="cpu", least="2KiB", **more).__enter__()
    try:
        torch.manual_seed(seed)
        model = make()
        run = compiled(model)
        opt = optimizer(model.parameters())
        losses, most = [], 0
        for _ in range(steps):
            opt.zero_grad()
            out = run(data())
            loss = F.cross_entropy(out, torch.arange(out.shape[0]) % 10)
            most = max(most, saved_bytes(loss))
            loss.backward()
            opt.step()
            losses.append(loss.item())
        status = None if session is None else session.status["compiled"]
    finally:
        if session is not None:
            session.__exit__(None, None, None)
    return losses, [p.detach().clone() for p in model.parameters()], [p.grad.clone() for p in model.parameters()], most, status


def close(a, b):
    assert a[0] == pytest.approx(b[0], rel=1e-4)
    for one, other in zip(a[1] + a[2], b[1] + b[2]):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def same(a, b):
    return a[0] == b[0] and all(torch.equal(x, y) for x, y in zip(a[1] + a[2], b[1] + b[2]))


#: For each case a limit below which something has to go, and one that is tighter.
LIMITS = {"mlp": ("6MiB", "4MiB"), "convolutions": ("5MiB", "4608KiB"), "attention": ("4MiB", "3MiB"), "blocks": ("6MiB", "5MiB"), "broken": ("6MiB", "4608KiB")}


@pytest.mark.parametrize("case", CASES)
def test_less_is_saved_and_results_stay(case):
    plain = train(case)
    assert plain[4] is None
    for limit in LIMITS[case]:
        result = train(case, limit)
        status = result[4]
        assert status["refused"] is None and status["fits"], status
        close(plain, result)
        assert result[3] < 0.85 * plain[3], (limit, result[3], plain[3], status)
        assert status["left"] > 0 and status["came"] == status["left"], "what moved came back"
    assert same(result, train(case, limit)), "the same bits every time"


def test_values_move_and_are_made_again():
    status = train("mlp", "4MiB")[4]
    assert status["moves"] > 0 and status["again"] > 0, status
    seconds, all_fast, bound = status["predicted"][0]
    assert bound <= seconds and seconds < 2 * all_fast


def test_programs_in_a_row_are_planned_when_a_step_has_been_seen():
    status = train("blocks", "5MiB")[4]
    assert status["moves"] == 0 and status["evicted"] > 0, "whole programs' values leave"
    assert status["planned"] is not None


def test_nothing_changes_where_all_fits():
    import torch._inductor.config as config

    before = (config.custom_partitioner_fn, config.reorder_for_peak_memory, config.reorder_for_locality)
    plain, result = train("mlp"), train("mlp", "64MiB")
    assert same(plain, result)
    assert result[4]["moves"] == 0 and result[4]["again"] == 0 and result[4]["left"] == 0
    assert (config.custom_partitioner_fn, config.reorder_for_peak_memory, config.reorder_for_locality) == before


def test_a_step_without_its_backward_pass():
    torch._dynamo.reset()
    with tiercel.Session("6MiB", "64MiB", device="cpu", least="2KiB") as s:
        torch.manual_seed(1)
        model = Chain()
        run = torch.compile(model)
        out = run(torch.randn(512, 64))
        places = s._compiled.store.places
        assert places.used > 0, "values are away"
        del out
        assert places.used == 0, "and their places are free when nobody wants them"
        for _ in range(2):
            run(torch.randn(512, 64)).sum().backward()
        assert places.used == 0


def test_a_backward_pass_that_runs_twice():
    import torch._functorch.config as functorch

    torch._dynamo.reset()
    with functorch.patch(donated_buffer=False), tiercel.Session("6MiB", "64MiB", device="cpu", least="2KiB") as s:
        torch.manual_seed(1)
        model = Chain()
        out = torch.compile(model)(torch.randn(512, 64)).sum()
        out.backward(retain_graph=True)
        once = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        out.backward()
        assert s.status["compiled"]["moves"] > 0
        assert all(torch.equal(a, p.grad) for a, p in zip(once, model.parameters()))


def test_the_session_ends_while_values_are_away():
    torch._dynamo.reset()
    torch.manual_seed(1)
    with tiercel.Session("6MiB", "64MiB", device="cpu", least="2KiB"):
        model = Chain()
        torch.manual_seed(2)
        loss = torch.compile(model)(torch.randn(512, 64)).sum()
    loss.backward()
    inside = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    torch.manual_seed(2)
    torch.compile(model)(torch.randn(512, 64)).sum().backward()
    for one, other in zip(inside, model.parameters()):
        torch.testing.assert_close(one, other.grad, rtol=1e-3, atol=1e-3)


def test_what_the_eager_runtime_took_away_is_there_when_a_program_runs():
    def program(limit):
        torch._dynamo.reset()
        session = None if limit is None else tiercel.Session(limit, "64MiB", device="cpu", least="2KiB").__enter__()
        torch.manual_seed(1)
        model = Chain(count=2, width=128)
        run = torch.compile(model)
        opt = torch.optim.AdamW(model.parameters(), 1e-3)
        losses = []
        for _ in range(3):
            loss = run(torch.randn(64, 128)).square().mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            losses.append(loss.item())
            torch.ones(500_000).add_(1)  # something eager that wants much
        moved = None if session is None else sum(session.status["moved"])
        if session is not None:
            session.__exit__(None, None, None)
        return losses, moved

    plain, _ = program(None)
    result, moved = program("5MiB")
    assert moved > 0, "the eager runtime took storages away"
    assert result == pytest.approx(plain, rel=1e-4)


def test_where_no_plan_fits_that_is_said():
    plain, result = train("mlp", steps=2), train("mlp", "3MiB", steps=2)
    assert not result[4]["fits"]
    close(plain, result)

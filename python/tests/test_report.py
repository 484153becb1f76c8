"""What a session shows of itself: its plan's figures, progress, pages, events; and pinned tensors."""

import json

import pytest
import torch
import torch.nn.functional as F

import tiercel
from test_eager import OPTIMIZERS, mlp, run_planned, same, train


def planned(session, steps=6):
    torch.manual_seed(3)
    model, data = mlp()
    opt = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    run_planned(session, model, opt, data, steps)
    return model, opt, data


def test_what_a_session_shows(tmp_path, capsys):
    with tiercel.Session("1400KiB", "64MiB", device="cpu", least="2KiB", seconds=0.5, progress=True) as s:
        assert s.plan is None and s.progress().startswith("on demand: 1.37 MiB, 0 steps")
        with pytest.raises(RuntimeError, match="no iteration has been recorded yet"):
            s.report(tmp_path / "report.html")
        planned(s, 9)
        assert s.status["state"] == "following a plan", s.status
        plan = s.plan
        assert plan.limit == 1400 << 10 and plan.peak > plan.limit and plan.slowdown >= 0.99
        assert plan.iterations > 1 and plan.measured > 0 and plan.measured_slowdown > 0
        line = s.progress()
        assert line.startswith("plan: 1.37 of ") and "predicted " in line and "measured " in line
        s.report(tmp_path / "report.html", "blocks")
        s.events(tmp_path / "events.jsonl")
        s.perfetto(tmp_path / "trace.json")
        s.trace(tmp_path / "step.trace")
    page = (tmp_path / "report.html").read_text()
    for word in ("<h1>blocks</h1>", "tiercel, predicted", "tiercel, measured", "served on demand, measured", "What ran when", "What lay where",
                 "Predicted: this is the plan", "Some times are measured, some simulated"):
        assert word in page, word
    events = (tmp_path / "events.jsonl").read_text().splitlines()
    header = json.loads(events[0])
    assert "sim" in events[0] and len(events) > 100 and header
    json.loads((tmp_path / "trace.json").read_text())
    printed = capsys.readouterr().err
    assert "tiercel: on demand" in printed and "tiercel: plan: 1.37 of" in printed
    assert printed.count("\n") < 20, "a line when something changes, not each step"
    with pytest.raises(OSError):
        s.report("/no/such/folder/report.html")


def test_systems_that_do_not_plan_can_be_shown(tmp_path):
    with tiercel.Session("1400KiB", "64MiB", device="cpu", least="2KiB", seconds=0.5, system="cachedarrays-lmp") as s:
        planned(s)
        s.report(tmp_path / "report.html")
    assert "cachedarrays-lmp, predicted" in (tmp_path / "report.html").read_text()


def test_a_pinned_tensor_stays():
    def program(pin):
        torch.manual_seed(1)
        model, data = mlp()
        opt = OPTIMIZERS["fused"](model.parameters())
        losses = []
        for step in range(9):
            if step == 4 and pin:
                taken = pin(model[0].up.weight)
                assert taken == 64 * 256 * 4
                assert pin(model[0].up.weight) == 0, "it is pinned already"
            opt.zero_grad()
            loss = F.cross_entropy(model(data()), torch.arange(256) % 10)
            loss.backward()
            opt.step()
            losses.append(loss.item())
            if pin:
                assert step < 4 or model[0].up.weight.untyped_storage()._cdata
        return losses, [p.detach().clone() for p in model.parameters()]

    plain = program(None)
    with tiercel.Session("1500KiB", "64MiB", device="cpu", least="2KiB", seconds=0.5) as s:
        resident = []

        def pin(tensor):
            nbytes = s.pin(tensor)
            key = tensor.untyped_storage()._cdata
            resident.append(key not in s._runtime.entries)
            return nbytes

        result = program(pin)
        assert all(resident), "the books do not know of it"
        assert s.status["limit"] == 1500 << 10 and s.status["peak"] <= 1500 << 10
    assert result[0] == plain[0] and all(torch.equal(a, b) for a, b in zip(plain[1], result[1]))


def test_a_pinned_tensor_gives_its_room_back_when_it_dies():
    with tiercel.Session("1MiB", "64MiB", device="cpu", least="2KiB") as s:
        tensor = torch.ones(1 << 16)
        assert s.pin(tensor) == 1 << 18
        assert s._runtime.limit == (1 << 20) - (1 << 18)
        with pytest.raises(MemoryError, match="leaves nothing"):
            s.pin(torch.ones((768 << 10) // 4))
        assert s.pin(torch.ones(4)) == 0, "what is small stays anyway"
        del tensor
        assert s._runtime.limit == 1 << 20
    with pytest.raises(RuntimeError, match="not open"):
        s.pin(torch.ones(4))


def test_training_while_following_a_plan_can_be_pinned():
    with tiercel.Session("1500KiB", "64MiB", device="cpu", least="2KiB", seconds=0.5) as s:
        model, opt, data = planned(s)
        followed = s.status["state"] == "following a plan"
        s.pin(model[1].down.weight)
        assert s.status["state"] == "serving on demand"
        run_planned(s, model, opt, data, 6)
        assert not followed or s.status["state"] == "following a plan", s.status
    assert same(train(mlp, "fused", 1), train(mlp, "fused", 1))

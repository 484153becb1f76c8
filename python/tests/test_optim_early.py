"""Updates that begin in the backward pass, and states that are divided among places: same bits as AdamW, and clear refusals."""

import copy
import os
import subprocess
import sys

import pytest
import torch
import torch.nn as nn

import tiercel
from tiercel._tiercel import split_states
from tiercel.optim import OffloadAdamW, _places
from test_optim import SMALL, Attending, Net, exact_roots, loss_of, same  # noqa: F401


def pair(dtype=torch.float32, kind=Net, groups=False, overlap=False, **more):
    torch.manual_seed(1)
    ours = kind().to(dtype)
    theirs = copy.deepcopy(ours)
    if kind is Net:
        theirs.head.weight = theirs.table.weight

    def of(model):
        if not groups:
            return model.parameters()
        return [dict(params=[p for p in model.parameters() if p.ndim > 1]), dict(params=[p for p in model.parameters() if p.ndim < 2], lr=3e-3)]

    a = OffloadAdamW(of(ours), lr=1e-2, bucket_bytes=SMALL, overlap=ours if overlap else None, **more)
    b = torch.optim.AdamW(of(theirs), lr=1e-2, foreach=False)
    return ours, theirs, a, b


@pytest.fixture
def mixed(monkeypatch):
    """Places in turn, as a plan may choose them on a GPU."""
    monkeypatch.setattr(_places.Plan, "places", lambda self, runs: [("gpu", "streamed", "host")[i % 3] for i in range(len(runs))])


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("kind", [Net, Attending])
def test_updates_that_begin_in_the_backward_pass_have_the_same_bits(kind, overlap):
    ours, theirs, a, b = pair(kind=kind, groups=True, overlap=overlap, early=True)
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(o, 10) for o in (a, b)]
    for step in range(9):
        rare = step % 4 == 1
        if step % 3 == 2:
            with a.hold():
                loss_of(ours, 50 + step).backward()
            loss_of(theirs, 50 + step).backward()
        x, y = loss_of(ours, step, rare), loss_of(theirs, step, rare)
        assert torch.equal(x, y), step
        x.backward(), y.backward()
        if not overlap and step % 3 != 2:
            begun = [bucket for bucket in a._buckets if bucket.begun]
            assert len(begun) > len(a._buckets) // 2, "updates have begun before the step"
        a.step(), b.step()
        if step % 2:
            a.zero_grad()
        else:
            ours.zero_grad()
        b.zero_grad()
        [s.step() for s in schedules]
    for name, value in ours.state_dict().items():
        assert torch.equal(value, theirs.state_dict()[name]), name


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_places_change_no_bit(mixed, early, dtype):
    ours, theirs, a, _ = pair(dtype, early=early)
    assert {bucket.place for bucket in a._buckets} == {"gpu", "streamed", "host"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_places.Plan, "places", lambda self, runs: ["host"] * len(runs))
        b = OffloadAdamW(theirs.parameters(), lr=1e-2, bucket_bytes=SMALL)
    for step in range(7):
        for micro in range(1 + (step == 3)):
            if early and step == 3 and micro == 0:
                with a.hold():
                    loss_of(ours, 70 + step).backward()
                loss_of(theirs, 70 + step).backward()
            else:
                loss_of(ours, step + 70 * (1 - micro) * (step == 3), step == 2).backward()
                loss_of(theirs, step + 70 * (1 - micro) * (step == 3), step == 2).backward()
        if not early:
            assert a.clip_grad_norm_(0.5).item() == b.clip_grad_norm_(0.5).item()
        a.step(), b.step(), a.zero_grad(), b.zero_grad()
        same(ours, theirs)
    mine, other = a.state_dict()["state"], b.state_dict()["state"]
    for index, entry in other.items():
        for name, value in entry.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(mine[index][name])), (index, name)
    # A state goes from one split to the other, and on from there.
    b.load_state_dict(a.state_dict())
    a.load_state_dict(copy.deepcopy(b.state_dict()))
    loss_of(ours, 20).backward(), loss_of(theirs, 20).backward()
    a.step(), b.step()
    same(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("more", [{}, dict(early=True, overlap=True), dict(delayed_after=1), dict(overlap=True)])
def test_states_in_a_file_change_no_bit(tmp_path, more, dtype):
    ours, theirs, a, _ = pair(dtype, states=f"file:{tmp_path}", **more)
    late = {"delayed_after": 1} if "delayed_after" in more else {}
    b = OffloadAdamW(theirs.parameters(), lr=1e-2, bucket_bytes=SMALL, **late)
    assert all(bucket.held is None for bucket in a._buckets) and len(a._buckets) > 3
    assert not list(tmp_path.iterdir()), "the file has no name"
    for step in range(6):
        if step == 3:
            # Another optimizer goes on from its state.
            state, weights = copy.deepcopy(a.state_dict()), copy.deepcopy(ours.state_dict())
            a = OffloadAdamW(ours.parameters(), lr=0.5, bucket_bytes=999, states=f"file:{tmp_path}", early="early" in more, **late)
            a.load_state_dict(state)
            ours.load_state_dict(weights)
        x, y = loss_of(ours, step, step == 2), loss_of(theirs, step, step == 2)
        assert torch.equal(x, y), step
        x.backward(), y.backward()
        if "early" not in more:
            assert a.clip_grad_norm_(0.5).item() == b.clip_grad_norm_(0.5).item()
        a.step(), b.step(), a.zero_grad(), b.zero_grad()
    a.synchronize(), b.synchronize()
    same(ours, theirs)
    assert a._files.free.qsize() == 3, "all memory has come back"


def test_a_folder_that_has_no_room_is_an_error_at_the_start(tmp_path):
    with pytest.raises(OSError, match="bytes wanted|No such file"):
        OffloadAdamW([nn.Parameter(torch.ones(100))], states=f"file:{tmp_path}/nowhere")
    with pytest.raises(ValueError, match="states"):
        OffloadAdamW([nn.Parameter(torch.ones(100))], states=str(tmp_path))
    with pytest.raises(ValueError, match="gpu_bytes"):
        OffloadAdamW([nn.Parameter(torch.ones(100))], states=f"file:{tmp_path}", gpu_bytes=0)


def test_states_move_where_there_is_room(mixed):
    ours, theirs, a, b = pair()
    for step in range(5):
        if step == 2:
            for bucket in a._buckets:
                bucket.move_to_gpu()
        loss_of(ours, step).backward(), loss_of(theirs, step).backward()
        a.step(), b.step(), a.zero_grad(), b.zero_grad()
        same(ours, theirs)


@pytest.mark.parametrize("more", [dict(maximize=True), dict(weight_decay=0.2, decoupled=False), dict(betas=(0.3, 0.9), eps=1e-6)])
def test_the_device_s_arithmetic_has_the_bits_of_the_pass(more, monkeypatch):
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(5_001)) for _ in range(2)]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    a = OffloadAdamW(theirs, lr=1e-2, **more)
    monkeypatch.setattr(_places.Plan, "places", lambda self, runs: ["streamed"] * len(runs))
    b = OffloadAdamW(ours, lr=1e-2, **more)
    for _ in range(6):
        for p, q in zip(ours, theirs):
            p.grad = torch.randn(5_001)
            q.grad = p.grad.clone()
        a.step(), b.step(), a.zero_grad(), b.zero_grad()
        assert all(torch.equal(p, q) for p, q in zip(ours, theirs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("overlap", [False, True])
def test_a_delayed_update_wherever_the_states_are(mixed, overlap, dtype):
    ours, theirs, a, _ = pair(dtype, delayed_after=2, overlap=overlap)
    assert {bucket.place for bucket in a._buckets} == {"gpu", "streamed", "host"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_places.Plan, "places", lambda self, runs: ["host"] * len(runs))
        b = OffloadAdamW(theirs.parameters(), lr=1e-2, bucket_bytes=SMALL, delayed_after=2)
    for step in range(6):
        x, y = loss_of(ours, step), loss_of(theirs, step)
        assert torch.equal(x, y), step
        x.backward(), y.backward()
        a.step(), b.step(), a.zero_grad(), b.zero_grad()
    a.synchronize(), b.synchronize()
    same(ours, theirs)


def test_what_early_updates_cannot_do_is_refused():
    model, _, a, _ = pair(early=True)
    with pytest.raises(RuntimeError, match="cannot be clipped"):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss_of(model, 0)).backward()
    with pytest.raises(RuntimeError, match="cannot be scaled"):
        scaler.step(a)
    model, _, a, _ = pair(early=True)
    loss_of(model, 0).backward()
    with pytest.raises(RuntimeError, match="hold"):
        loss_of(model, 1).backward()
    model, _, a, _ = pair(early=True)
    loss_of(model, 0).backward()
    for refused in (a.zero_grad, model.zero_grad, a.state_dict):
        with pytest.raises(RuntimeError, match="updates have begun"):
            refused()
    a.param_groups[0]["lr"] = 5.0
    with pytest.raises(RuntimeError, match="learning rate"):
        a.step()
    with pytest.raises(ValueError, match="delayed"):
        OffloadAdamW(model.parameters(), delayed_after=1, early=True)


def test_an_update_that_fails_is_an_error_at_the_step(monkeypatch):
    model, _, a, _ = pair(early=True, overlap=True)
    monkeypatch.setattr(a._roads[torch.device("cpu")], "back", lambda *rest: (_ for _ in ()).throw(OSError("no way back")))
    loss_of(model, 0).backward()
    a.step()
    with pytest.raises(OSError, match="no way back"):
        a.synchronize()


def test_places_follow_the_rates():
    gpu, streamed, host, seconds = split_states(4e9, 2.0, 14e9, (119e9, 55e9, 55e9))
    assert gpu == pytest.approx(0.25) and 0.3 < streamed < host and seconds < 0.75 * 28 * 4e9 / 119e9
    counts = [100] * 40
    places = _places.share(counts, [True] * 39 + [False], 10_000, 14, 0.5)
    assert places[:7] == ["gpu"] * 7 and "gpu" not in places[7:] and places[-1] == "host"
    assert places.count("streamed") == 16
    assert _places.share(counts, [True] * 40, 0, 14, 0.0) == ["host"] * 40


@pytest.mark.parametrize("more", [{}, dict(early=True), dict(delayed_after=2)])
def test_a_session_leaves_the_optimizer_s_memory_alone(mixed, more):
    """Half of the parameters' bytes are fast, and the states are neither moved nor counted."""
    def model():
        torch.manual_seed(0)
        return nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(12)])

    x = torch.randn(32, 256, generator=torch.Generator().manual_seed(3))

    def train(model):
        places = {} if "delayed_after" not in more else {"bucket_bytes": 1 << 30}
        optimizer = OffloadAdamW(model.parameters(), lr=1e-3, **{"bucket_bytes": 1 << 19, **places, **more})
        losses = []
        for _ in range(6):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step(), optimizer.zero_grad()
            losses.append(loss.item())
        optimizer.synchronize()
        return losses, optimizer

    with pytest.MonkeyPatch.context() as patch:
        if "delayed_after" in more:
            patch.setattr(_places.Plan, "places", lambda self, runs: ["host"] * len(runs))
        plain, _ = train(model())
        with tiercel.Session(fast="2600KiB" if "delayed_after" not in more else "5MiB", device="cpu") as session:
            limited, optimizer = train(model())
            held = [t for b in optimizer._buckets for t in (*b.held, b.arrived)]
            # Keys alone: a storage in a session is not to be shown element by element.
            assert not {tensor.untyped_storage()._cdata for tensor in held} & set(session._runtime.entries)
            assert session.status["peak"] < (3 << 20 if "delayed_after" not in more else 6 << 20)
    assert limited == plain


def test_the_benchmark_runs_and_says_what_failed():
    command = [sys.executable, "-m", "tiercel.bench.zero", "--model", "tiny", "--device", "cpu", "--batches", "2", "--steps", "1", "--rounds", "1"]
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    done = subprocess.run([*command, "--check", "2", "--ways", "gpu,early"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and done.stdout.count("batch   2") == 2 and "from those all on the GPU" in done.stdout, done
    failed = subprocess.run([*command, "--ways", "early", "--seconds", "0"], capture_output=True, text=True, env=environment)
    assert "not begun" in failed.stdout, failed

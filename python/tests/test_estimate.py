"""Estimates: a dry run sees what a real one does, and what is said of a step follows from it. Tensors of the processor, and
tensors of a GPU that is not there."""

import doctest
import json
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import tiercel
from tiercel import _machines, _tiercel
from tiercel._dry import dry_run
from tiercel._estimate import _last


AVAILABLE = torch.cuda.is_available()


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + F.dropout(self.down(F.gelu(self.up(self.norm(x)))), 0.1, self.training)


def training(device, optimizer="adamw", width=256, layers=4, rows=512, autocast=False, again=False, read=False):
    """A step, as a user writes it."""
    model = nn.Sequential(*[Block(width) for _ in range(layers)], nn.Linear(width, 10)).to(device)
    made = {"adamw": lambda p: torch.optim.AdamW(p, 1e-3), "fused": lambda p: torch.optim.AdamW(p, 1e-3, fused=True),
            "foreach": lambda p: torch.optim.AdamW(p, 1e-3, foreach=True), "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)}
    opt = made[optimizer](model.parameters())

    def forward(x):
        for layer in model:
            x = checkpoint(layer, x, use_reentrant=False) if again else layer(x)
        return x

    def step():
        opt.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            loss = F.cross_entropy(forward(torch.randn(rows, width, device=device)), torch.arange(rows, device=device) % 10)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        return loss.item() if read else loss.detach()

    return step


class Real(TorchDispatchMode):
    """The operations of a real step, and how many bytes live at once."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("optimizer", ["adamw", "fused", "foreach", "sgd"])
def test_a_dry_run_does_the_same_operations_as_a_real_one(optimizer):
    step = training("cpu", optimizer)
    step()
    with Real() as real:
        step()
    dry, _ = dry_run(lambda: training("cpu", optimizer), "h200", 1 << 34)
    assert [str(seen[0]) for seen in dry.seen] == real.names


def test_the_peak_is_what_lives_at_once():
    rows, width = 4096, 512

    def make():
        weight = torch.zeros(width, width, requires_grad=True, device="cuda")

        def step():
            weight.grad = None
            x = torch.ones(rows, width, device="cuda")
            y = torch.relu(x @ weight)
            y.sum().backward()

        return step

    dry, _ = dry_run(make, "h200", 1 << 34)
    large, small = rows * width * 4, width * width * 4
    # At the end of the backward pass of relu: x, the result of relu, its gradient that sum expands to, and the gradient of the product;
    # the product itself has gone. The gradient of a sum is one number seen many times.
    assert dry.device == "cuda"
    assert 3 * large + small <= dry.peak <= 3 * large + 2 * small + 8192
    assert dry.kinds["activation"] >= 3 * large


@pytest.mark.parametrize("how", [{}, {"autocast": True}, {"again": True}, {"autocast": True, "again": True}, {"read": True}])
def test_programs_for_a_gpu_run_dry_where_there_is_none(how):
    dry, pieces = dry_run(lambda: training("cuda", **how), "h200", 1 << 34)
    assert dry.device == "cuda" and dry.peak > 0
    names = [call.op for call in dry.calls]
    assert "native_dropout" in names, "as on a GPU, where one kernel does it"
    assert any(name.startswith("_foreach") for name in names), "and optimizers work on lists"
    forward = sum(1 for seen in dry.seen if seen[4] == 0 and str(seen[0]) == "aten.addmm.default")
    every = sum(1 for call in dry.calls if call.op == "addmm")
    assert every == forward or how.get("again") and forward < every <= 2 * forward, "checkpointed layers run twice"
    formats = {call.format for call in dry.calls if call.op == "addmm"}
    assert formats == ({"half"} if how.get("autocast") else {"f32"})
    # In pieces optimizers never touch everything at once.
    assert pieces.peak <= dry.peak
    assert torch.cuda.is_available() == AVAILABLE, "what was pretended is over"
    (torch.ones(2, requires_grad=True) * 2).sum().backward()


def test_attention_keeps_no_matrix_of_weights():
    def make():
        x = torch.zeros(4, 8, 1024, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        mask = torch.ones(1, 1, 1024, 1024, dtype=torch.bool, device="cuda")

        def step():
            y = F.scaled_dot_product_attention(x, x, x, is_causal=True, dropout_p=0.1)
            z = F.scaled_dot_product_attention(y, x[:, :2], x[:, :2], enable_gqa=True)
            w = F.scaled_dot_product_attention(z, x, x, attn_mask=mask)
            w.sum().backward()

        return step

    if torch.cuda.is_available():
        pytest.skip("PyTorch itself chooses")
    dry, _ = dry_run(make, "h200", 1 << 34)
    assert sum("attention" in call.op and call.flops > 0 for call in dry.calls) == 6
    assert all(b.nbytes < 4 * 8 * 1024 * 1024 * 2 for b in dry.storages if "softmax" in b.name)
    assert F.scaled_dot_product_attention is torch._C._nn.scaled_dot_product_attention


def test_a_model_that_exists_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(256, 256), nn.BatchNorm1d(256), nn.Linear(256, 10))
    opt = torch.optim.AdamW(model.parameters(), 1e-3)

    def step():
        opt.zero_grad()
        model(torch.randn(64, 256)).sum().backward()
        opt.step()

    torch.manual_seed(1)
    step()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    grads = [p.grad.clone() for p in model.parameters()]
    states = {key: value.clone() for p in model.parameters() for key, value in opt.state[p].items()}
    dry, _ = dry_run(step, "h200", 1 << 34)
    assert dry.device == "cpu" and dry.kinds["weight"] == sum(p.numel() * 4 for p in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(type(p.grad) is torch.Tensor and torch.equal(p.grad, g) for p, g in zip(model.parameters(), grads))
    assert all(torch.equal(states[key], value) for key, value in opt.state[list(model.parameters())[-1]].items() if value.shape == states[key].shape)
    step()
    assert all(type(p.grad) is torch.Tensor for p in model.parameters())


def test_what_only_data_knows_is_guessed_or_refused():
    def make():
        x = torch.randn(64, 64, device="cuda")

        def step():
            picked = x[x > 0]
            assert picked.shape == (64 * 64,), "as much as there can be"
            return float(picked.sum()) + len(torch.nonzero(x))

        return step

    dry_run(make, "h200", 1 << 34)
    with pytest.raises(RuntimeError, match="aten._unique2.default makes what only the data knows"):
        dry_run(lambda: (lambda: torch.unique(torch.randn(64, device="cuda"))), "h200", 1 << 34)
    with pytest.raises(RuntimeError, match="ran no operation"):
        dry_run(lambda: None, "h200", 1 << 34)


@pytest.fixture(scope="module")
def found():
    return tiercel.estimate(lambda: training("cuda", rows=8192), "rtx4090", name="blocks", shares=(1.0, 0.7, 0.5), seconds=0.5)


def test_an_estimate(found, tmp_path):
    assert found.machine == "rtx4090" and "Vendor's figures" in found.source
    assert 0 < found.impossible_below < found.peak
    assert [p.slowdown >= 0.999 for p in found.points] == [True] * len(found.points)
    slowdowns = [p.slowdown for p in found.points]
    assert all(abs(p.seconds / p.slowdown / found.seconds - 1) < 0.05 for p in found.points), "no operation's time is lost"
    assert slowdowns[-1] <= slowdowns[0] * 1.01, "more memory helps"
    if found.enough is not None:
        assert found.enough.slowdown <= 1.05 and found.enough.limit <= found.points[-1].limit
    assert found.least is not None and found.least.limit >= found.impossible_below
    text = str(found)
    assert "blocks on rtx4090, estimated" in text and "with nothing moved" in text and "of peak" in text
    document = found.json()
    assert json.loads(json.dumps(document)) == document
    assert document["measured"] is False and document["peak_bytes"] == found.peak and len(document["curve"]) == len(found.points)
    found.page(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Iteration time against fast memory" in page and "All times are simulated" in page and "What ran when" in page
    assert "down:addmm" in page, "tensors bear the names of modules"
    found.trace(tmp_path / "step.trace")
    assert (tmp_path / "step.trace").read_text().startswith("tiercel-trace 1")


def test_limits_that_cannot_be(found):
    assert found.at(1 << 20) is None and found.refused[1 << 20]
    assert found.at("1MiB") is None


def test_a_limit_must_not_be_in_force():
    with tiercel.Session("64MiB", "64MiB", device="cpu"):
        with pytest.raises(RuntimeError, match="a limit is in force"):
            tiercel.estimate(lambda: training("cpu"))


def test_the_largest_batch():
    asked = []

    def make(batch):
        asked.append(batch)
        return training("cuda", rows=batch * 1024, layers=2)

    found = tiercel.estimate(make, "rtx4090", batch=2, limit="256MiB", shares=(), seconds=0.3)
    plain, within, at_all = found.largest_batch
    assert 1 <= plain <= within <= at_all and len(asked) > 3
    # 2 layers keep about 14 of 256 x 4 bytes a row.
    assert "largest batch" in str(found)
    with pytest.raises(TypeError, match="give batch="):
        tiercel.estimate(make, "rtx4090")


def test_the_last_that_is_good():
    assert _last(lambda n: n <= 37, 1) in (36, 37)
    assert _last(lambda n: n <= 37, 64) in (36, 37)
    assert _last(lambda n: False, 8) == 0
    assert _last(lambda n: n <= 1000, 8) >= 970


def test_times_follow_the_machine():
    call = ("mm", "half", 2 * 4096**3, 2 * 4096**2 * 2, 4096**2 * 2, False, False)
    fast, slow = (_tiercel.kernel_times(name, [call])[0] for name in ("h100", "rtx3090"))
    assert slow > 5 * fast
    with pytest.raises(ValueError, match="quantum-foam"):
        _tiercel.kernel_times("quantum-foam", [call])


def test_the_gpu_that_is_present_has_a_file():
    names = {"NVIDIA H200": "h200", "NVIDIA H100 80GB HBM3": "h100", "NVIDIA A100-SXM4-80GB": "a100-80gb", "NVIDIA GeForce RTX 3090": "rtx3090",
             "NVIDIA GeForce RTX 4090": "rtx4090", "NVIDIA GeForce RTX 5090": "rtx5090", "NVIDIA L40S": "l40s", "NVIDIA A10G": "a10g"}
    for name, machine in names.items():
        assert _machines.shipped(name, 85 << 30) == machine
        assert machine in _tiercel.machine_names()
    assert _machines.shipped("NVIDIA A100-SXM4-40GB", 42 << 30) == "a100-40gb"
    for other in ("NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA H100 PCIe", "NVIDIA RTX 6000 Ada Generation", "NVIDIA GeForce RTX 3090 Ti"):
        assert _machines.shipped(other, 24 << 30) is None
    text = _machines.file("NVIDIA GeForce RTX 4070", 12 << 30, 46, 480e9, 25e9, 24e9, 29e12)
    name, source, fast, _ = _tiercel.machine_facts(text)
    assert name == "nvidia-geforce-rtx-4070" and fast == 12 << 30 and "Measured when the session began" in source


PROGRAM = """
import torch
def make(batch=4):
    model = torch.nn.Linear(1024, 1024, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    def step():
        optimizer.zero_grad()
        model(torch.randn(batch * 1024, 1024, device="cuda")).sum().backward()
        optimizer.step()
    return step
"""


def run(*arguments, cwd):
    command = [sys.executable, "-m", "tiercel.estimate", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


def test_the_command_line(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run("program:make", "--machine", "l40s", "--seconds", "0.2", "--json", "--page", "page.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["machine"] == "l40s" and (tmp_path / "page.html").exists()
    done = run("program.py:make", "--batch", "8", "--trace", "step.trace", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "33554432" in (tmp_path / "step.trace").read_text(), "8 x 1024 rows of 1024"
    for wrong, word in (("program", "module:function"), ("nowhere:make", "no module `nowhere`"), ("program:nothing", "no function `nothing`")):
        done = run(wrong, cwd=tmp_path)
        assert done.returncode != 0 and word in done.stderr and "Traceback" not in done.stderr
    done = run("program:make", "--machine", "quantum-foam", cwd=tmp_path)
    assert done.returncode != 0 and "quantum-foam" in done.stderr and "Traceback" not in done.stderr


def test_examples_in_the_documentation_run():
    from tiercel import _estimate

    failed, tried = doctest.testmod(_estimate)
    assert tried > 0 and failed == 0


def test_the_example_of_the_page_runs_when_pasted(tmp_path, monkeypatch, capsys):
    page = pathlib.Path(__file__).resolve().parents[2] / "docs" / "pytorch.md"
    if not page.exists():
        pytest.skip("the documentation is not beside the tests")
    block = page.read_text().split("## Before the run")[1].split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs/pytorch.md", "exec"), {})
    assert "on rtx4090, estimated" in capsys.readouterr().out
    assert {"estimate.html", "step.trace"} <= {path.name for path in tmp_path.iterdir()}


def test_the_module_is_the_function():
    import importlib

    module = importlib.import_module("tiercel.estimate")
    assert callable(module) and module(lambda: training("cpu"), shares=()).peak > 0

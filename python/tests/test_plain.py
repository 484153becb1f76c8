"""Plain PyTorch stays plain under a limit: hooks, accumulation, precision, checkpointing, loops of others, interruptions, several ranks.

Run with arguments, this file is one rank of a group.
"""

import copy
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import tiercel
from loops import end_of_step
from test_eager import Block

HERE = Path(__file__)
LIMIT = 1400 << 10


def session(limit=LIMIT, **more):
    return tiercel.Session(limit, "256MiB", device="cpu", **{"least": "2KiB", "seconds": 0.3, "learned": False, **more})


class Model(nn.Module):
    """Some blocks, of which some may be made again by PyTorch itself."""

    def __init__(self, again=None):
        super().__init__()
        self.blocks = nn.ModuleList(Block(64) for _ in range(4))
        self.out = nn.Linear(64, 10)
        self.again = again

    def forward(self, x):
        for block in self.blocks:
            x = block(x) if self.again is None else checkpoint(block, x, use_reentrant=self.again)
        return self.out(x)


def train(steps=7, make=Model, s=None, rows=256, step_of=None, optimizer=None):
    """Losses and parameters of a training that follows from its seed."""
    torch.manual_seed(6)
    model = make()
    opt = (optimizer or (lambda p: torch.optim.AdamW(p, 1e-3)))(model.parameters())
    losses = []
    for step in range(steps):
        if step_of is None:
            loss = F.cross_entropy(model(torch.randn(rows, 64, requires_grad=True)), torch.arange(rows) % 10)
            loss.backward()
            opt.step()
            opt.zero_grad()
        else:
            loss = step_of(model, opt, step)
        losses.append(float(loss))
        if s is not None:
            s.wait_for_plan(30)
    return losses, [p.detach().clone() for p in model.parameters()]


def same(a, b):
    return a[0] == b[0] and all(torch.equal(x, y) for x, y in zip(a[1], b[1]))


def both(limit=LIMIT, **how):
    """The same training without and with a limit."""
    plain = train(**how)
    with session(limit) as s:
        result = train(s=s, **how)
        assert s.status["peak"] <= limit and sum(s.status["moved"]) > 0
    assert same(plain, result)


@pytest.mark.parametrize("again", [True, False])
def test_checkpoints_of_pytorch(again):
    both(900 << 10, make=lambda: Model(again))


def test_accumulation_with_clipping_and_evaluation_between():
    def step(model, opt, at):
        for _ in range(1 + at % 2):
            loss = F.cross_entropy(model(torch.randn(256, 64)), torch.arange(256) % 10)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        opt.step()
        opt.zero_grad()
        model.eval()
        with torch.no_grad():
            seen = F.cross_entropy(model(torch.ones(128, 64)), torch.arange(128) % 10)
        model.train()
        return loss.item() + seen.item()

    both(step_of=step, steps=10)


def test_gradients_that_stay():
    def step(model, opt, at):
        opt.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(torch.randn(256, 64)), torch.arange(256) % 10)
        loss.backward()
        opt.step()
        return loss.detach()

    both(1600 << 10, step_of=step)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "RMSprop", "Adagrad", "NAdam", "Adafactor"])
def test_optimizers(kind):
    both(optimizer=lambda p: getattr(torch.optim, kind)(p, 1e-3))


def test_hooks_see_and_change():
    seen = []

    def make():
        model = Model()
        seen.clear()
        model.blocks[1].register_forward_hook(lambda m, args, out: out * 0.5)
        model.blocks[2].register_full_backward_hook(lambda m, before, after: (before[0] * 0.9,))
        model.out.weight.register_hook(lambda g: seen.append(float(g.abs().sum())) or g * 2)
        model.blocks[0].up.weight.register_post_accumulate_grad_hook(lambda p: seen.append(float(p.grad.norm())))
        return model

    plain = train(make=make)
    alone = list(seen)
    with session() as s:
        assert same(plain, train(make=make, s=s))
    assert seen == alone and len(seen) == 14


def test_custom_functions_and_double_backward():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x ** 3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x * x

    def step(model, opt, at):
        x = torch.randn(128, 64, requires_grad=True)
        out = Cube.apply(model(x)).square().mean()
        (g,) = torch.autograd.grad(out, x, create_graph=True)
        loss = out + g.square().sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss.detach()

    both(step_of=step)


def test_saved_and_gone_on_with(tmp_path):
    """What is saved in the midst of a limited training goes on without a limit as the plain one does, and the other way round."""
    def part(path, begin, s=None, save=None):
        torch.manual_seed(6)
        model, opt = Model(), None
        opt = torch.optim.AdamW(model.parameters(), 1e-3)
        if begin:
            kept = torch.load(path, weights_only=True)
            model.load_state_dict(kept["model"])
            opt.load_state_dict(kept["opt"])
        torch.manual_seed(10 + begin)
        for _ in range(5):
            F.cross_entropy(model(torch.randn(256, 64)), torch.arange(256) % 10).backward()
            opt.step()
            opt.zero_grad()
            if s is not None:
                s.wait_for_plan(30)
        if save:
            torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, save)
        twin = copy.deepcopy(model)
        return [p.detach().clone() for p in twin.parameters()]

    part(None, 0, save=tmp_path / "a")
    plain = part(tmp_path / "a", 1)
    with session() as s:
        part(None, 0, s, tmp_path / "b")
    ends = [part(tmp_path / "b", 1)]
    with session() as s:
        ends.append(part(tmp_path / "a", 1, s))
    for end in ends:
        assert all(torch.equal(x, y) for x, y in zip(plain, end))


def test_an_interrupt_leaves_everything_whole():
    """Ctrl-C at many moments, among them in the midst of the books: what was trained can be saved, and training goes on."""
    plain = train(3)
    with session() as s:
        torch.manual_seed(6)
        model = Model()
        opt = torch.optim.AdamW(model.parameters(), 1e-3)
        stopped = 0
        # One whole step: an Adam whose states are half made cannot go on, with Tiercel or without.
        F.cross_entropy(model(torch.randn(256, 64)), torch.arange(256) % 10).backward()
        opt.step()
        opt.zero_grad()
        for at in range(60):
            timer = threading.Timer(0.002 + 0.0007 * at, lambda: os.kill(os.getpid(), signal.SIGINT))
            timer.start()
            try:
                while timer.is_alive():
                    F.cross_entropy(model(torch.randn(256, 64)), torch.arange(256) % 10).backward()
                    opt.step()
                    opt.zero_grad()
                timer.join()
                model(torch.randn(256, 64))  # one that came in the midst of the last operation is handed on now
            except KeyboardInterrupt:
                stopped += 1
            opt.zero_grad()
            if at % 10 == 0:
                assert all(torch.isfinite(p).all() for p in model.state_dict().values())
            assert s.status["live"] <= LIMIT
        assert stopped > 20, stopped
        assert same(plain, train(3, s=s)), "nothing of it is left"


def test_exceptions_at_every_operation():
    """An operation that fails, wherever in a plan: the next step is as ever."""
    class Fails(torch.overrides.TorchFunctionMode):
        def __init__(self, at):
            super().__init__()
            self.left = at

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.left -= 1
            if self.left == 0:
                raise RuntimeError("on purpose")
            return func(*args, **(kwargs or {}))

    def program(s=None):
        torch.manual_seed(6)
        model = Model()
        opt = torch.optim.AdamW(model.parameters(), 1e-3)
        losses = []
        for at in range(20):
            try:
                with Fails(3 * at + 1 if at % 2 else 0):
                    loss = F.cross_entropy(model(torch.randn(256, 64)), torch.arange(256) % 10)
                    loss.backward()
                opt.step()
            except RuntimeError as error:
                assert "on purpose" in str(error)
            opt.zero_grad()
            losses.append(loss.item())
            if s is not None:
                s.wait_for_plan(30)
        return losses, [p.detach().clone() for p in model.parameters()]

    plain = program()
    with session() as s:
        assert same(plain, program(s))


def test_threads_of_the_program():
    """Two threads that train two models in one session."""
    def work(at, out):
        g = torch.Generator().manual_seed(at)
        torch.manual_seed(0)
        model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape, generator=g) * 0.1)
        opt = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(5):
            loss = model(torch.randn(128, 64, generator=g)).square().mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            out.append(loss.item())

    def run():
        outs = [[], []]
        threads = [threading.Thread(target=work, args=(at, out)) for at, out in enumerate(outs)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        return outs

    plain = run()
    with session(512 << 10) as s:
        assert run() == plain
        assert s.status["peak"] <= 512 << 10


@pytest.mark.parametrize("slow", ["256MiB", "file"])
def test_workers_of_a_data_loader(slow, tmp_path):
    """Forked workers read a data set part of which is away."""
    from torch.utils.data import DataLoader, TensorDataset

    def run(workers, s=None):
        torch.manual_seed(6)
        data = TensorDataset(torch.randn(512, 64), torch.arange(512) % 10)
        model = Model()
        opt = torch.optim.AdamW(model.parameters(), 1e-3)
        losses = []
        for _ in range(3):
            for x, y in DataLoader(data, batch_size=256, num_workers=workers, multiprocessing_context="fork" if workers else None):
                loss = F.cross_entropy(model(x), y)
                end_of_step(loss, opt, losses, s)
        return losses

    plain = run(0)
    if slow == "file":
        with tiercel.Session(LIMIT, f"file:{tmp_path}", slow_bytes="64MiB", device="cpu", least="2KiB", learned=False) as s:
            try:
                assert run(2, s) == plain
            except RuntimeError as error:
                assert "forked" in str(error)
        return
    with session() as s:
        assert run(0, s) == plain
        assert run(2, s) == plain


def test_a_second_limit_and_what_leaves_nothing():
    with session():
        with pytest.raises(RuntimeError, match="in force already"):
            tiercel.limit("1MiB", device="cpu")
        with pytest.raises(RuntimeError, match="in force already"):
            session().__enter__()
    with pytest.raises(ValueError, match="leaves nothing"):
        tiercel.Session("100KiB", device="cpu", least="64KiB")


def test_a_gpu_that_is_full(monkeypatch):
    """No GPU is needed to say that there is too much on it."""
    class Card:
        total_memory = 80 << 30

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Card)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 20 << 30)
    with pytest.raises(ValueError, match="20 GiB are in use .* set the limit before the model is made"):
        tiercel.Session("12GiB", "1GiB", device="cuda:0").__enter__()
    with pytest.raises(ValueError, match="a limit of 100 GiB wanted"):
        tiercel.Session("100GiB", "1GiB", device="cuda:0")
    assert "No limit" in tiercel.explain()


def test_a_pytorch_that_is_too_old(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text('__version__ = "2.4.1+cu121"\n')
    code = "import tiercel\ntry:\n    tiercel.limit('1GiB')\nexcept ImportError as error:\n    print(error)"
    said = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert said.stdout.startswith("tiercel needs PyTorch 2.11 or newer; 2.4.1+cu121 is installed"), said


def test_half_precision():
    """Autocast with bfloat16, in a process of its own: some processors announce instructions that they do not have."""
    code = f"""
import sys; sys.path.insert(0, {str(HERE.parent)!r})
import torch, torch.nn.functional as F
from test_plain import both
def step(model, opt, at):
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.cross_entropy(model(torch.randn(256, 64)).float(), torch.arange(256) % 10)
    loss.backward(); opt.step(); opt.zero_grad()
    return loss.detach()
both(1100 << 10, step_of=step, steps=8)
"""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": os.environ.get("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, cwd=HERE.parent)


def test_a_trainer_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, at):
            ids = torch.randint(0, 200, (32,), generator=torch.Generator().manual_seed(at))
            return {"input_ids": ids, "labels": ids}

    def run():
        transformers.set_seed(1)
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=200, n_embd=64, n_layer=2, n_head=4, n_positions=64))
        arguments = transformers.TrainingArguments(str(tmp_path), max_steps=8, per_device_train_batch_size=8, gradient_accumulation_steps=1, report_to=[],
                                                   save_strategy="no", logging_steps=2, use_cpu=True, disable_tqdm=True)
        transformers.Trainer(model=model, args=arguments, train_dataset=Data()).train()
        return [p.detach().clone() for p in model.parameters()]

    plain = run()
    with session(1800 << 10) as s:
        limited = run()
        assert s.status["peak"] <= 1800 << 10 and sum(s.status["moved"]) > 0
        assert s.status["iterations"] == 8
    assert all(torch.equal(a, b) for a, b in zip(plain, limited))


def test_a_loop_of_lightning():
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, batch, at):
            loss = F.cross_entropy(self.model(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, at):
            self.log("seen", F.cross_entropy(self.model(batch[0]), batch[1]))

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-3)

    def run():
        lightning.seed_everything(1)
        data = torch.utils.data.TensorDataset(torch.randn(1024, 64), torch.arange(1024) % 10)
        loader = torch.utils.data.DataLoader(data, batch_size=256)
        module = Module()
        lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                          enable_model_summary=False, num_sanity_val_steps=0).fit(module, loader, loader)
        return [p.detach().clone() for p in module.parameters()]

    plain = run()
    with session() as s:
        limited = run()
        assert s.status["iterations"] == 8 and s.status["peak"] <= LIMIT
    assert all(torch.equal(a, b) for a, b in zip(plain, limited))


@pytest.mark.parametrize("kind", ["ddp"])
def test_two_ranks(kind, tmp_path):
    """Two processes over gloo end with the same bits with and without a limit in each."""
    for limited in ("plain", "limited"):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29600 + os.getpid() % 300)}
        ranks = [subprocess.Popen([sys.executable, str(HERE), kind, limited, str(rank), str(tmp_path)], env=environment, cwd=HERE.parent) for rank in range(2)]
        assert [rank.wait(240) for rank in ranks] == [0, 0]
    for rank in range(2):
        plain, limited = (torch.load(tmp_path / f"{way}-{rank}", weights_only=True) for way in ("plain", "limited"))
        assert plain["losses"] == limited["losses"] and len(plain["losses"]) == 6
        assert all(torch.equal(a, b) for a, b in zip(plain["parameters"], limited["parameters"]))
        assert limited["moved"] > 0 and limited["peak"] <= limited["limit"]


def _rank(kind, way, rank, folder):
    import torch.distributed as dist

    dist.init_process_group("gloo", rank=rank, world_size=2)
    limit = 2 << 20 if kind == "ddp" else 1600 << 10
    s = session(limit) if way == "limited" else None
    if s is not None:
        s.__enter__()
    torch.manual_seed(1)
    model = Model()
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (2,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    torch.manual_seed(100 + rank)
    for _ in range(6):
        loss = F.cross_entropy(model(torch.randn(256, 64)), torch.arange(256) % 10)
        end_of_step(loss, opt, losses, s)
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in model.parameters()]
    kept = {"losses": losses, "parameters": [p.detach().clone() for p in whole]}
    if s is not None:
        kept.update(moved=sum(s.status["moved"]), peak=s.status["peak"], limit=limit)
        s.__exit__(None, None, None)
    torch.save(kept, Path(folder) / f"{way}-{rank}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    _rank(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])

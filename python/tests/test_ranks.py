"""Several ranks that share the states (ZeRO-2), over gloo on tensors of the processor. Run with arguments, this file is one rank."""

import copy
import datetime
import os
import signal
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

HERE = Path(__file__)
SMALL = 4096
DEVICE = torch.device("cpu")


class Net(nn.Module):
    def __init__(self, width=37):
        super().__init__()
        self.table = nn.Embedding(50, width)
        self.up = nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)
        self.rare = nn.Linear(width, width)
        self.head = nn.Linear(width, 50, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x, rare=False):
        x = self.table(x)
        x = x + self.down(F.gelu(self.up(x)))
        return self.head(self.rare(x) if rare else x)


def fresh():
    torch.manual_seed(1)
    return Net()


def loss_of(model, step, rank, rare=False):
    g = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randint(0, 50, (8, 12), generator=g)
    return F.cross_entropy(model(x, rare).flatten(0, 1), torch.randint(0, 50, (96,), generator=g))


def passes(step, ranks):
    """Two ranks do not accumulate: DDP would round otherwise, because it averages what it has accumulated once more."""
    return 1 + step % 2 if ranks > 2 else 1


def exact_roots():
    """See `test_optim.py`."""
    root = torch.Tensor.sqrt
    torch.Tensor.sqrt = lambda x: root(x.double()).to(x.dtype)


def start(mode, ranks, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    command = lambda rank: [sys.executable, str(HERE), mode, str(rank), str(ranks), str(folder)]
    return [subprocess.Popen(command(rank), env=environment, stderr=subprocess.PIPE, text=True) for rank in range(ranks)]


def together(mode, ranks, folder):
    folder.mkdir(exist_ok=True)
    processes = start(mode, ranks, folder)
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert all(process.returncode == 0 for process in processes), "\n".join(errors)
    return [torch.load(folder / f"{rank}.pt") for rank in range(ranks)]


def equal(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def check(ranks, folder):
    results = together("train", ranks, folder)
    for result in results:
        assert equal(result["ours"], results[0]["ours"]), "all ranks have the same parameters"
        assert equal(result["ours"], result["plain"]), "and those of a run without offload"
        if ranks == 2:
            assert equal(result["ours"], result["ddp"]), "which are those of DDP and torch's AdamW"
    # One process with all the data.
    exact_roots_here = torch.Tensor.sqrt
    try:
        exact_roots()
        model = fresh()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-6, foreach=False)
        for step in range(6):
            for micro in range(passes(step, ranks)):
                rare = lambda rank: step % 3 == 1 and rank == 0
                sum(loss_of(model, step + 50 * micro, rank, rare(rank)) for rank in range(ranks)).div(ranks).backward()
            optimizer.step(), optimizer.zero_grad()
    finally:
        torch.Tensor.sqrt = exact_roots_here
    for name, value in model.state_dict().items():
        torch.testing.assert_close(results[0]["ours"][name], value, rtol=2e-4, atol=2e-5)
    return results


def test_two_ranks(tmp_path):
    check(2, tmp_path)


def test_four_ranks_and_another_number_of_them_later(tmp_path):
    four = check(4, tmp_path / "four")[0]
    # The whole state goes on in two ranks, and is the same there.
    for name in ("model", "state"):
        torch.save(four[name], tmp_path / f"{name}.pt")
    two = together("resume", 2, tmp_path)[0]
    assert two["state"]["state"].keys() == four["state"]["state"].keys()
    for index, entry in four["state"]["state"].items():
        assert all(torch.equal(torch.as_tensor(entry[key]), torch.as_tensor(two["state"]["state"][index][key])) for key in entry)
    # And a plain AdamW goes on from there as the two do, to rounding.
    model = fresh()
    model.load_state_dict(four["model"])
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    optimizer.load_state_dict(four["state"])
    for step in range(6, 9):
        sum(loss_of(model, step, rank) for rank in range(2)).div(2).backward()
        optimizer.step(), optimizer.zero_grad()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(two["ours"][name], value, rtol=2e-4, atol=2e-5)


def test_torch_distributed_checkpoint_with_another_number_of_ranks(tmp_path):
    import torch.distributed.checkpoint as dcp

    import tiercel

    four = together("write", 4, tmp_path)[0]
    two = together("read", 2, tmp_path)[0]
    for index, entry in four["state"]["state"].items():
        for key in entry:
            assert torch.equal(torch.as_tensor(entry[key]), torch.as_tensor(two["state"]["state"][index][key])), (index, key)
    # One process without a group reads it too, and goes on as the two do.
    model = fresh()
    model.load_state_dict(four["model"])
    optimizer = tiercel.optim.OffloadAdamW(model.parameters(), lr=0.5, bucket_bytes=2222)
    state = {"optimizer": tiercel.optim.Sharded(optimizer)}
    dcp.load(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    assert optimizer.param_groups[0]["lr"] == 1e-2
    sum(loss_of(model, 9, rank) for rank in range(2)).div(2).backward()
    optimizer.step()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(two["ours"][name], value, rtol=2e-4, atol=2e-5)


def test_a_killed_rank_ends_the_others(tmp_path):
    processes = start("die", 4, tmp_path)
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert processes[2].returncode == -signal.SIGKILL
    for rank in (0, 1, 3):
        assert processes[rank].returncode not in (0, None), errors[rank]
        assert f"tiercel: rank {rank} of 4 lost the others" in errors[rank], errors[rank]
    whole = torch.load(tmp_path / "checkpoint.pt")
    assert whole["step"] == 3 and len(whole["optimizer"]["state"]) > 0


# A rank


def train(rank, ranks, folder):
    from torch.nn.parallel import DistributedDataParallel

    from tiercel.optim import OffloadAdamW

    exact_roots()
    ours, plain, ddp = fresh(), fresh(), DistributedDataParallel(fresh(), find_unused_parameters=True)
    if rank > 0:
        with torch.no_grad():
            [p.add_(1.0) for p in ours.parameters()]  # the first rank's parameters are everybody's
    a = OffloadAdamW(ours.parameters(), lr=1e-2, eps=1e-6, process_group=True, bucket_bytes=SMALL)
    assert sum(b.held[0].numel() for b in a._buckets) <= sum(p.numel() for p in ours.parameters()) / ranks + 16 * 40
    b = torch.optim.AdamW(plain.parameters(), lr=1e-2, eps=1e-6, foreach=False)
    c = torch.optim.AdamW(ddp.parameters(), lr=1e-2, eps=1e-6, foreach=False)
    twin = dict(zip(ours.parameters(), plain.parameters()))
    for step in range(6):
        rare = step % 3 == 1 and rank == 0
        for micro in range(passes(step, ranks)):
            loss_of(ours, step + 50 * micro, rank, rare).backward()
            before = {p: None if p.grad is None else p.grad.clone() for p in plain.parameters()}
            plain.zero_grad()
            loss_of(plain, step + 50 * micro, rank, rare).backward()
            # The same collective call on the same layout, and nothing else of ours.
            for bucket in reversed(a._buckets):
                flat = torch.zeros(bucket.total)
                for slot in bucket.slots:
                    if twin[slot.parameter].grad is not None:
                        bucket.flat(flat, slot).copy_(twin[slot.parameter].grad)
                dist.all_reduce(flat.div_(ranks))
                for slot in bucket.slots:
                    p, g = twin[slot.parameter], bucket.flat(flat, slot).clone()
                    if step % 3 == 1 or p is not plain.rare.weight and p is not plain.rare.bias:
                        p.grad = g if before[p] is None else before[p] + g
            loss_of(ddp, step + 50 * micro, rank, rare).backward()
        a.step(), b.step(), c.step()
        a.zero_grad(), b.zero_grad(), c.zero_grad()
    state = a.state_dict()
    model = copy.deepcopy(ours.state_dict())
    return {"ours": model, "plain": plain.state_dict(), "ddp": ddp.module.state_dict(), "state": state, "model": model}


def resume(rank, ranks, folder):
    from tiercel.optim import OffloadAdamW

    model = fresh()
    model.load_state_dict(torch.load(folder / "model.pt"))
    optimizer = OffloadAdamW(model.parameters(), process_group=True, bucket_bytes=3333)
    optimizer.load_state_dict(torch.load(folder / "state.pt"))
    state = optimizer.state_dict()
    part = optimizer.state_dict(sharded=True)
    optimizer.load_state_dict(part)
    for step in range(6, 9):
        loss_of(model, step, rank).backward()
        optimizer.step(), optimizer.zero_grad()
    return {"ours": model.state_dict(), "state": state}


def write(rank, ranks, folder):
    import torch.distributed.checkpoint as dcp

    from tiercel.optim import OffloadAdamW, Sharded

    model = fresh()
    optimizer = OffloadAdamW(model.parameters(), lr=1e-2, process_group=True, bucket_bytes=SMALL)
    for step in range(3):
        loss_of(model, step, rank).backward()
        optimizer.step(), optimizer.zero_grad()
    dcp.save({"optimizer": Sharded(optimizer)}, checkpoint_id=folder / "dcp")
    return {"state": optimizer.state_dict(), "model": model.state_dict()}


def read(rank, ranks, folder):
    import torch.distributed.checkpoint as dcp

    from tiercel.optim import OffloadAdamW, Sharded

    model = fresh()
    optimizer = OffloadAdamW(model.parameters(), lr=0.5, process_group=True, bucket_bytes=3333)
    model.load_state_dict(torch.load(folder / "0.pt")["model"])
    dcp.load({"optimizer": Sharded(optimizer)}, checkpoint_id=folder / "dcp")
    state = optimizer.state_dict()
    loss_of(model, 9, rank).backward()
    optimizer.step(), optimizer.zero_grad()
    return {"state": state, "ours": model.state_dict()}


def die(rank, ranks, folder):
    from tiercel.optim import OffloadAdamW, save

    model = fresh()
    optimizer = OffloadAdamW(model.parameters(), lr=1e-2, process_group=True, bucket_bytes=SMALL)
    for step in range(100):
        if step == 3:
            state = optimizer.state_dict()
            if rank == 0:
                save({"step": step, "model": model.state_dict(), "optimizer": state}, folder / "checkpoint.pt")
            dist.barrier()
        loss = loss_of(model, step, rank)
        if step == 5 and rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        optimizer.step(), optimizer.zero_grad()


if __name__ == "__main__":
    mode, rank, ranks, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet-{mode}", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=120)
    )
    result = {"train": train, "resume": resume, "die": die, "write": write, "read": read}[mode](rank, ranks, folder)
    if result is not None:
        torch.save(result, folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()

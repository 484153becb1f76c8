"""Several ranks: gradients go to the rank that owns them, parameters come back from there (section 5.4.2).

Any backend of torch.distributed will do. Every rank makes the same calls in the same order, whatever its model used.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch


class Alone:
    """No other ranks."""

    rank, ranks = 0, 1

    def total(self, values: list[float]) -> list[float]:
        return values

    def most(self, flags: list[int], device: torch.device) -> list[int]:
        return flags


class Ranks:
    """A process group."""

    def __init__(self, group: Any) -> None:
        import torch.distributed as dist

        self.dist, self.group = dist, group
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        #: gloo has no reduce-scatter of its own: there all ranks get the sum and keep their part.
        self.scatters = dist.get_backend(group) != "gloo"
        self.what = "beginning"

    def call(self, what: str, run: Callable[[], Any]) -> Any:
        """One collective call. What went wrong is said in words that name the rank and the moment."""
        try:
            return run()
        except Exception as error:
            raise RuntimeError(
                f"tiercel: rank {self.rank} of {self.ranks} lost the others while {what}: a rank has ended or does not answer. "
                f"This rank's training cannot go on; begin again from the last checkpoint. ({type(error).__name__}: {error})"
            ) from error

    def reduce(self, stage: torch.Tensor, mine: torch.Tensor) -> Optional[Any]:
        """Begins to average a bucket of gradients over all ranks; each needs just its part. Returns what to wait for."""
        stage.div_(self.ranks)

        def begin() -> Any:
            if self.scatters:
                return self.dist.reduce_scatter_tensor(mine, stage, group=self.group, async_op=True)
            return self.dist.all_reduce(stage, group=self.group, async_op=True)

        return self.call("reducing gradients", begin)

    def wait(self, work: Any, what: str) -> None:
        self.call(what, work.wait)

    def gather(self, full: torch.Tensor, mine: torch.Tensor) -> None:
        """Every rank's part, one after the other."""
        self.call("gathering parameters", lambda: self.dist.all_gather_into_tensor(full, mine, group=self.group))

    def global_rank(self, rank: int) -> int:
        """A rank's number among all processes."""
        return rank if self.group is None else self.dist.get_global_rank(self.group, rank)

    def total(self, values: list[float]) -> list[float]:
        """Sums over all ranks."""
        tensor = torch.tensor(values, dtype=torch.float64, device=self._device())
        self.call("adding up", lambda: self.dist.all_reduce(tensor, group=self.group))
        return tensor.tolist()

    def most(self, flags: list[int], device: torch.device) -> list[int]:
        """The largest of all ranks' numbers, one by one."""
        tensor = torch.tensor(flags, dtype=torch.int32, device=self._device())
        call = lambda: self.dist.all_reduce(tensor, op=self.dist.ReduceOp.MAX, group=self.group)
        self.call("agreeing on which parameters were used", call)
        return tensor.tolist()

    def _device(self) -> torch.device:
        nccl = self.dist.get_backend(self.group) == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")

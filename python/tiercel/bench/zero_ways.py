"""Ways to train one model in mixed precision whose optimizer states may be too large for a GPU, for ``tiercel.bench.zero``.

Each way takes a model of 16 bits, and ``step()`` follows its backward pass. ``gpu`` and ``parts`` are PyTorch alone: all states
on the GPU; and ZeRO-Offload put together from torch's own parts. The others are ``tiercel.optim.OffloadAdamW``.
"""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from ..optim import OffloadAdamW
from ..optim._arithmetic import how
from ..optim._memory import host

RATE = 1e-4


class Block(nn.Module):
    """A transformer's block, norms first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.mix(self.before(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.between(x)), approximate="tanh"))


class Gpt(nn.Module):
    """Words and places in, words out; every block is checkpointed."""

    def __init__(self, layers: int, width: int, heads: int, length: int, words: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x))


class OnGpu:
    """Masters and moments of 32 bits beside the model, fused AdamW, a block's worth of gradients in 32 bits at a time."""

    def __init__(self, model: Gpt) -> None:
        ends = [p for name, p in model.named_parameters() if not name.startswith("blocks.")]
        self.pieces = []
        for parameters in [ends, *(list(block.parameters()) for block in model.blocks)]:
            masters = [nn.Parameter(p.detach().float()) for p in parameters]
            self.pieces.append((parameters, masters, torch.optim.AdamW(masters, lr=RATE, fused=True)))

    @torch.no_grad()
    def step(self) -> None:
        for parameters, masters, optimizer in self.pieces:
            for parameter, master in zip(parameters, masters):
                master.grad, parameter.grad = parameter.grad.float(), None
            optimizer.step()
            torch._foreach_copy_(parameters, masters)
            optimizer.zero_grad()

    def finish(self) -> None:
        pass

    def times(self) -> dict[str, float]:
        return {}


class Parts:
    """Torch's parts: gradients to pinned memory in hooks, fused AdamW on all cores, copies back. Pinned memory has exact size."""

    def __init__(self, model: Gpt) -> None:
        self.parameters = list(model.parameters())
        self.cuda = self.parameters[0].is_cuda
        self.masters = [nn.Parameter(p.detach().to("cpu", torch.float32)) for p in self.parameters]
        self.optimizer = torch.optim.AdamW(self.masters, lr=RATE, fused=True)
        self.stream = torch.cuda.Stream() if self.cuda else None
        self.pinned = {}
        self.seconds: dict[str, float] = {}
        for parameter in self.parameters:
            self.pinned[parameter] = host(parameter.numel(), parameter.dtype, self.cuda).view(parameter.shape)
            parameter.register_post_accumulate_grad_hook(self.leave)

    def leave(self, parameter: torch.Tensor) -> None:
        gradient, parameter.grad = parameter.grad, None
        if self.stream is None:
            self.pinned[parameter].copy_(gradient)
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.pinned[parameter].copy_(gradient, non_blocking=True)
        gradient.record_stream(self.stream)

    @torch.no_grad()
    def step(self) -> None:
        if self.cuda:
            self.stream.synchronize()
        began = time.perf_counter()
        for parameter, master in zip(self.parameters, self.masters):
            master.grad = self.pinned[parameter].float() if master.grad is None else master.grad.copy_(self.pinned[parameter])
        began = self.counted("gradients to 32 bits", began)
        self.optimizer.step()
        began = self.counted("updating", began)
        torch._foreach_copy_([self.pinned[p] for p in self.parameters], self.masters)
        began = self.counted("to 16 bits", began)
        for parameter in self.parameters:
            parameter.copy_(self.pinned[parameter], non_blocking=True)
        if self.cuda:
            torch.cuda.current_stream().synchronize()
        self.counted("sending parameters back", began)

    def counted(self, name: str, began: float) -> float:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - began
        return now

    def finish(self) -> None:
        pass

    def times(self) -> dict[str, float]:
        taken, self.seconds = self.seconds, {}
        return taken


class Ours:
    """``OffloadAdamW`` with some of its options."""

    def __init__(self, model: Gpt, tuning: dict[str, Any], **options: Any) -> None:
        if options.pop("beside", False):
            options["overlap"] = model
        self.optimizer = OffloadAdamW(model.parameters(), lr=RATE, **tuning, **options)

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def finish(self) -> None:
        self.optimizer.synchronize()

    def times(self) -> dict[str, float]:
        return self.optimizer.times()

    def about(self) -> dict[str, Any]:
        """Where the states went, and why."""
        parts: dict[str, int] = {}
        for bucket in self.optimizer._buckets:
            parts[bucket.place] = parts.get(bucket.place, 0) + bucket.part
        rates = self.optimizer._plan.rates
        return {"parameters": parts, "GB/s": rates and [rate / 1e9 for rate in rates], "on the GPU by": how(self.optimizer._buckets[0].device)}


#: The ways by name.
WAYS: dict[str, Any] = {
    "gpu": lambda model, tuning: OnGpu(model),
    "parts": lambda model, tuning: Parts(model),
    "exact": lambda model, tuning: Ours(model, tuning),
    "overlap": lambda model, tuning: Ours(model, tuning, beside=True),
    "early": lambda model, tuning: Ours(model, tuning, beside=True, early=True),
    "planned": lambda model, tuning: Ours(model, tuning, beside=True, early=True, gpu_bytes="1GiB"),
    "planned-12g": lambda model, tuning: Ours(model, tuning, beside=True, early=True, gpu_bytes="12GiB"),
    "planned-late": lambda model, tuning: Ours(model, tuning, beside=True, gpu_bytes="1GiB"),
    "auto": lambda model, tuning: Ours(model, tuning, beside=True, early=True, gpu_bytes="auto"),
    "delayed-planned": lambda model, tuning: Ours(model, tuning, beside=True, delayed_after=2, gpu_bytes="1GiB"),
    "delayed": lambda model, tuning: Ours(model, tuning, beside=True, delayed_after=2),
}

"""``python -m tiercel.bench.text BOOK``: a small GPT learns a text, with updates in time and with updates a step late.

What a delayed update costs in loss after the same number of steps (section 5.6.2, convergence), on a processor.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from ..optim import OffloadAdamW

LENGTH = 64


class Gpt(nn.Module):
    """Two blocks over letters."""

    def __init__(self, letters: int, width: int = 128, blocks: int = 2) -> None:
        super().__init__()
        self.table = nn.Embedding(letters, width)
        self.places = nn.Embedding(LENGTH, width)
        layer = lambda: nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.ModuleList(layer() for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, letters, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.table(x) + self.places.weight
        for block in self.blocks:
            y = block(y, src_mask=self.mask, is_causal=True)
        return self.head(self.norm(y))


def learn(text: torch.Tensor, letters: int, steps: int, delayed: int | None, seed: int, rate: float) -> dict:
    """Trains, and says how well the last tenth of the text, which it has not seen, is known."""
    torch.manual_seed(seed)
    model = Gpt(letters)
    optimizer = OffloadAdamW(model.parameters(), lr=rate, delayed_after=delayed)
    split = len(text) * 9 // 10
    random = torch.Generator().manual_seed(seed)

    def batch(low: int, high: int, count: int) -> torch.Tensor:
        starts = torch.randint(low, high - LENGTH - 1, (count,), generator=random)
        return torch.stack([text[start : start + LENGTH + 1] for start in starts.tolist()])

    def loss_of(rows: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    losses = []
    begin = time.perf_counter()
    for _ in range(steps):
        loss = loss_of(batch(0, split, 16))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    seconds = time.perf_counter() - begin
    optimizer.synchronize()
    random.manual_seed(12345)
    with torch.no_grad():
        unseen = sum(loss_of(batch(split, len(text), 64)).item() for _ in range(16)) / 16
    return {"last_50": sum(losses[-50:]) / len(losses[-50:]), "unseen": unseen, "seconds": seconds}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("book")
    arguments.add_argument("--steps", type=int, default=1000)
    arguments.add_argument("--delayed-after", type=int, default=40)
    arguments.add_argument("--rate", type=float, default=1e-3, help="the learning rate")
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    with open(options.book, encoding="utf-8", errors="replace") as file:
        book = file.read()
    known = sorted(set(book))
    number = {letter: index for index, letter in enumerate(known)}
    text = torch.tensor([number[letter] for letter in book])
    exact = learn(text, len(known), options.steps, None, options.seed, options.rate)
    late = learn(text, len(known), options.steps, options.delayed_after, options.seed, options.rate)
    print(json.dumps({"letters": len(text), "in_time": exact, "delayed": late}))
    for name in ("last_50", "unseen"):
        print(f"{name}: {exact[name]:.4f} in time, {late[name]:.4f} a step late: {late[name] / exact[name] - 1:+.2%}")


if __name__ == "__main__":
    main()

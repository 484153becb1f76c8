"""AdamW on a device, with the bits of the processor's pass (``crates/optim/src/rule.rs``): the same operations, rounded alike.

On a GPU one kernel does all of it, compiled when first used. Each multiplication and addition in it is named with its rounding, so
that a compiler fuses none of its own accord. Where that kernel cannot be had, or its bits on random numbers are not those of
torch's single operations, the latter are used: slower, same bits.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch

from .._tiercel import Numbering


class Hyper(NamedTuple):
    """A parameter group's numbers."""

    rate: float
    betas: tuple[float, float]
    epsilon: float
    decay: float
    decoupled: bool
    maximize: bool

    def numbering(self) -> Numbering:
        """The same for the processor."""
        return Numbering.adam(self.rate, self.betas, self.epsilon, self.decay, self.decoupled, self.maximize)

    def factors(self, step: int) -> dict[str, float]:
        """The factors of one step, computed in 64 bits; a tensor of 32 rounds them."""
        first, second = self.betas
        return dict(
            shrink=1.0 - self.rate * self.decay if self.decoupled else 1.0,
            decay=0.0 if self.decoupled else self.decay,
            weight=1.0 - first,
            keep=second,
            new=1.0 - second,
            correction=math.pow(1.0 - math.pow(second, step), 0.5),
            epsilon=self.epsilon,
            rate=-(self.rate / (1.0 - math.pow(first, step))),
        )


KERNEL = """
template <typename T> void adam(T p, T m, T v, T g, T shrink, T decay, T weight, T keep, T fresh, T correction, T epsilon, T rate,
                                T& q, T& n, T& w) {
    if (decay != 0.0f) { g = __fmaf_rn(decay, p, g); } else { q = p = __fmul_rn(p, shrink); }
    float d = __fsub_rn(g, m);
    n = fabsf(weight) < 0.5f ? __fmaf_rn(weight, d, m) : __fmaf_rn(__fsub_rn(weight, 1.0f), d, g);
    w = __fmaf_rn(__fmul_rn(fresh, g), g, __fmul_rn(v, keep));
    float below = __fadd_rn(__fdiv_rn(__fsqrt_rn(w), correction), epsilon);
    q = __fadd_rn(p, __fdiv_rn(__fmul_rn(rate, n), below));
}
"""


def single(states: tuple, g: torch.Tensor, hyper: Hyper, step: int) -> tuple:
    """Torch's operations one by one, in place. A scalar of the host would be divided by as a product with its inverse on a GPU; a
    tensor is not."""
    p, m, v = states
    f = hyper.factors(step)
    if f["decay"] != 0.0:
        g = torch.add(g, p, alpha=f["decay"])
    else:
        p.mul_(f["shrink"])
    m.lerp_(g, f["weight"])
    v.mul_(f["keep"]).addcmul_(g * f["new"], g)
    below = v.sqrt().div_(torch.full((), f["correction"], dtype=torch.float32, device=v.device)).add_(f["epsilon"])
    p.add_(m.mul(f["rate"]).div_(below))
    return p, m, v


@functools.lru_cache(maxsize=None)
def _kernel(device: torch.device) -> Any:
    """The compiled kernel, where its bits are those of single operations."""
    try:
        names = Hyper(1e-3, (0.9, 0.999), 1e-8, 0.01, True, False).factors(1)
        renamed = {"fresh" if name == "new" else name: value for name, value in names.items()}
        made = torch.cuda.jiterator._create_multi_output_jit_fn(KERNEL, num_outputs=3, **renamed)

        def run(states: tuple, g: torch.Tensor, hyper: Hyper, step: int) -> tuple:
            f = hyper.factors(step)
            f["fresh"] = f.pop("new")
            return made(*states, g, **f)

        for hyper in (Hyper(1e-2, (0.9, 0.999), 1e-8, 0.1, True, False), Hyper(1e-3, (0.3, 0.9), 1e-6, 0.1, False, False)):
            seeded = torch.Generator(device).manual_seed(1)
            p, m, v, g = (torch.randn(1 << 16, device=device, generator=seeded) for _ in range(4))
            v.square_()
            ours = run((p, m, v), g, hyper, 3)
            if not all(torch.equal(a, b) for a, b in zip(ours, single((p.clone(), m.clone(), v.clone()), g, hyper, 3))):
                return None
        return run
    except Exception:  # whatever a compiler has to say: there is another way
        return None


def how(device: torch.device) -> str:
    """How updates on a device are computed."""
    return "one kernel" if device.type == "cuda" and _kernel(device) is not None else "single operations"


def update(states: tuple, gradient: torch.Tensor, hyper: Hyper, step: int, factors: tuple[float, float]) -> tuple:
    """Master and moments of 32 bits after a step: the tensors themselves changed, or new ones in their place."""
    g = gradient.float()
    for factor in factors:
        g = g if factor == 1.0 else g * factor
    g = -g if hyper.maximize else g
    made = _kernel(g.device) if g.is_cuda else None
    return (made or single)(states, g, hyper, step)

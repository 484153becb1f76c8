"""Gradients between the backward pass that makes them and the step that uses them.

They are laid into a flat copy of their bucket, which leaves for the host when it is full, and are summed there over backward passes and ranks.
Clipping and loss scaling do not touch them: they set factors that the update multiplies with.
"""

from __future__ import annotations

import math
from typing import Any, Iterable, Optional

import torch
from torch.autograd import Variable
from torch.optim import Optimizer

from ._buckets import Bucket


class Gradients(Optimizer):
    """The part of ``OffloadAdamW`` that has to do with gradients."""

    _buckets: list[Bucket]

    # On their way

    @torch.no_grad()
    def _arrived(self, parameter: torch.Tensor) -> None:
        """A gradient is there: it leaves with its bucket."""
        bucket, slot = self._slots[parameter]
        if self._early and not self._held and self._open is None:
            self._begin_early()
        if bucket.begun:
            raise RuntimeError(
                "OffloadAdamW(early=True): another gradient came for a parameter whose update has begun; with more than one backward "
                "pass in a step, all but the last go into `with optimizer.hold():`"
            )
        bucket.there.wait()
        gradient, parameter.grad = parameter.grad, None
        if gradient is None:
            return
        if gradient.is_sparse:
            raise RuntimeError("OffloadAdamW does not take sparse gradients")
        if slot.here:
            self._flush()  # a second backward pass within this one
        if bucket.stage is None:
            bucket.stage = self._roads[bucket.device].stage(bucket)
        bucket.flat(bucket.stage, slot).copy_(gradient)
        slot.here = True
        bucket.waiting -= 1
        if not self._listening:
            try:
                Variable._execution_engine.queue_callback(self._ended)
                self._listening = True
            except RuntimeError:
                pass  # not in a backward pass: `step` looks after it
        if bucket.waiting == 0 and self._ranks.ranks == 1:
            self._depart(bucket)
        elif self._ranks.ranks > 1:
            self._depart_in_order()

    def _ended(self) -> None:
        """The backward pass has ended."""
        self._listening = False
        if self._open is None:  # otherwise `step` sees to what has not left, because more may come
            with torch.no_grad():
                self._flush()

    def _depart_in_order(self) -> None:
        """Ranks must reduce the same buckets in the same order: the last parameters first, as gradients come."""
        for bucket in reversed(self._buckets):
            if bucket in (other for other, _ in self._flying):
                continue
            if bucket.waiting > 0 or bucket.stage is None:
                return
            self._depart(bucket)

    def _depart(self, bucket: Bucket) -> None:
        """A bucket leaves, whether or not all of its gradients are there."""
        way = self._roads[bucket.device]
        self._squares = None
        if self._ranks.ranks > 1:
            stage = bucket.stage if bucket.stage is not None else way.stage(bucket)
            bucket.stage = stage
            self._flying.append((bucket, self._ranks.reduce(stage, bucket.mine(stage))))
        else:
            self._bake()
            way.out(bucket, bucket.mine(bucket.stage))
            self._left(bucket)

    def _left(self, bucket: Bucket) -> None:
        self._roads[bucket.device].free(bucket)
        bucket.stage = None
        for slot in bucket.slots:
            slot.has, slot.here = slot.has or slot.here, False
        bucket.reset()
        if self._open is not None:
            self._update_early(bucket)

    def _flush(self) -> None:
        """All gradients of this backward pass leave."""
        if self._ranks.ranks == 1:
            for bucket in self._buckets:
                if bucket.stage is not None:
                    self._depart(bucket)
            return
        for bucket in reversed(self._buckets):
            if not any(bucket is other for other, _ in self._flying):
                self._depart(bucket)
        flags = [int(slot.here) for bucket in self._buckets for slot in bucket.slots]
        used = iter(self._ranks.most(flags, self._buckets[0].device) if flags else [])
        for bucket in self._buckets:
            for slot in bucket.slots:
                slot.here = bool(next(used))
        for bucket, work in self._flying:
            self._ranks.wait(work, "reducing gradients")
            if any(slot.here for slot in bucket.slots):
                self._bake()
                self._roads[bucket.device].out(bucket, bucket.mine(bucket.stage))
            self._left(bucket)
        self._flying.clear()

    def _bake(self) -> None:
        """Gradients that were scaled are so for good when more are added."""
        if self._factors != [1.0, 1.0]:
            for other in self._buckets:
                if other.passes:
                    self._roads[other.device].settle(other)
                    other.promote()
                    for factor in self._factors:
                        other.gradient.mul_(factor)
            self._factors = [1.0, 1.0]
            self._squares = None

    def _all_here(self) -> None:
        """Waits until all gradients are on the host, those that somebody put into ``grad`` included."""
        if self._open is None and self._delayed_after is None:
            self._updates_ended()
        self._adopt()
        self._listening = False
        with torch.no_grad():
            by_hand = False
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None and parameter in self._slots:
                        self._arrived(parameter)
                        by_hand = True
            if by_hand or (self._ranks.ranks == 1 and any(bucket.stage is not None for bucket in self._buckets)):
                self._flush()
        with self._clock.of("waiting for gradients"):
            if self._open is not None:
                self._updates.fed()
            else:
                for bucket in self._buckets:
                    self._roads[bucket.device].settle(bucket)

    def grad(self, parameter: torch.Tensor) -> Optional[torch.Tensor]:
        """A parameter's gradient as it is on the host, in 32 bits; with several ranks, where it is this rank's."""
        self._all_here()
        bucket, slot = self._slots[parameter]
        if not slot.has:
            return None
        mine, theirs = bucket.inside(slot) or (slice(0, 0), slice(0, 0))
        whole = torch.zeros(slot.count)
        whole[theirs] = bucket.gradient[mine].float()
        for factor in self._factors:
            whole.mul_(factor)
        return whole.view(parameter.shape)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets all gradients."""
        self._not_open("forget gradients")
        if self._waits is None or not self._updates.running:
            self._all_here()  # otherwise the step has seen to it, and the update goes on beside what comes next
        super().zero_grad(set_to_none=True)
        for bucket in self._buckets:
            bucket.clear()
            bucket.reset()
        self._factors = [1.0, 1.0]
        self._squares = None

    @torch.no_grad()
    def _forget(self, parameters: Iterable[torch.Tensor]) -> None:
        """Forgets the gradients of some parameters."""
        chosen = {parameter for parameter in parameters if parameter in self._slots}
        self._not_open("forget gradients")
        if len(chosen) == len(self._slots):
            return self.zero_grad()
        self._all_here()
        for parameter in chosen:
            bucket, slot = self._slots[parameter]
            where = bucket.inside(slot)
            if where is not None and slot.has:
                bucket.gradient[where[0]] = 0.0
            slot.has = False
        self._squares = None

    # What is done to gradients before the step

    def _sums(self) -> list[float]:
        """The sum of squares of each bucket's gradients as they came, over all ranks."""
        if self._squares is None:
            self._all_here()
            with self._clock.of("adding up the norm"):
                here = [bucket.squares(self._updater) if bucket.passes else 0.0 for bucket in self._buckets]
            self._squares = self._ranks.total(here)
        return self._squares

    def grad_norm(self) -> float:
        """The norm of all gradients, added up in 64 bits."""
        return math.sqrt(sum(self._sums())) * self._factors[0] * self._factors[1]

    @torch.no_grad()
    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> torch.Tensor:
        """Scales gradients so that their norm is at most this, and returns what it was; ``torch.nn.utils.clip_grad_norm_`` on
        these parameters comes here too."""
        self._not_early("clipped")
        if float(norm_type) != 2.0:
            raise NotImplementedError("OffloadAdamW clips by the 2-norm")
        norm = self.grad_norm()
        if error_if_nonfinite and not math.isfinite(norm):
            raise RuntimeError(f"The total norm of order {norm_type} for gradients is non-finite, so it cannot be clipped")
        device = self._buckets[0].device if self._buckets else torch.device("cpu")
        total = torch.tensor(norm, dtype=torch.float32)
        coefficient = torch.clamp(float(max_norm) / (total + 1e-6), max=1.0).item()
        if self._factors[1] != 1.0:
            self._bake()
        self._factors[1] = coefficient
        return total.to(device)

    @torch.no_grad()
    def _unscale(self, inverse: torch.Tensor, found: torch.Tensor) -> dict:
        """What ``GradScaler`` asks of an optimizer's gradients."""
        self._not_early("scaled")
        if not all(math.isfinite(squares) for squares in self._sums()):
            found.fill_(1.0)
        self._factors[0] *= inverse.item()
        return {found.device: found}

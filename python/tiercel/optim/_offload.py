"""``OffloadAdamW``: ``torch.optim.AdamW`` with its states on the host (sections 5.4 and 5.5).

Gradients leave in buckets while the backward pass makes the next ones; their own tensors are given up. ``step()`` waits for
them, updates bucket after bucket on the processor in the order in which the next forward pass wants them, and each is on its
way back while the next is computed.
"""

from __future__ import annotations

import math
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Iterable, Optional

import torch
from torch.autograd import Variable
from torch.optim import Optimizer

from .._tiercel import Numbering, Updater
from . import _patches, _state
from ._buckets import Bucket, Slot, layout
from ._clock import Clock
from ._ranks import Alone, Ranks
from ._travel import road
from ._waits import Waits


class OffloadAdamW(Optimizer):
    """AdamW on the host. Arguments of ``torch.optim.AdamW`` mean what they mean there; further ones:

    ``delayed_after``: from this step on updates run beside the next forward and backward pass, and reach the model a step late
    (section 5.5.2); never, unless given. ``process_group``: ranks that share the states (ZeRO-2); ``True`` for all.
    ``overlap``: the model, whose next forward pass then runs beside the update: each module waits for its own parameters alone.
    ``bucket_bytes``: how much travels together. ``threads``: of the update, one a core unless given. ``decoupled=False`` is Adam.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | torch.Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: Optional[bool] = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: Optional[bool] = None,
        decoupled: bool = True,
        delayed_after: Optional[int] = None,
        process_group: Any = None,
        overlap: Optional[torch.nn.Module] = None,
        bucket_bytes: int = 32 << 20,
        threads: Optional[int] = None,
    ) -> None:
        if amsgrad or capturable or differentiable:
            raise ValueError("OffloadAdamW has no amsgrad, capturable or differentiable")
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if not 0.0 <= float(value):
                raise ValueError(f"Invalid {name}: {value}")
        if not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError(f"Invalid betas: {betas}")
        if overlap is not None and (process_group is not None or delayed_after is not None):
            raise ValueError("overlap is for one process, and for updates that are not delayed")
        self._ranks = Alone() if process_group is None else Ranks(None if process_group is True else process_group)
        self._me = weakref.ref(self)
        self._updater = Updater(threads)
        self._clock = Clock()
        self._bucket_bytes = bucket_bytes
        self._delayed_after = delayed_after
        self._buckets: list[Bucket] = []
        self._slots: dict[torch.Tensor, tuple[Bucket, Slot]] = {}
        self._roads: dict[torch.device, Any] = {}
        self._flying: list[tuple[Bucket, Any]] = []
        self._listening = False
        self._factors = [1.0, 1.0]
        self._squares: Optional[list[float]] = None
        self._steps = 0
        self._worker: Optional[ThreadPoolExecutor] = None
        self._running: Optional[Future] = None
        #: Buckets whose masters are ahead of the model by a delayed step.
        self._ahead: list[tuple[Bucket, list[Slot]]] = []
        defaults = dict(
            lr=lr, betas=tuple(betas), eps=eps, weight_decay=weight_decay, amsgrad=False, maximize=maximize, foreach=foreach,
            capturable=False, differentiable=False, fused=fused, decoupled_weight_decay=decoupled,
        )
        super().__init__(params, defaults)
        self._adopt()
        _patches.install()
        self._waits = None if overlap is None else Waits(overlap, self)

    # Parameters

    def _adopt(self) -> None:
        """Lays out parameters that are new, or were frozen until now."""
        for group in self.param_groups:
            new = [p for p in group["params"] if p.requires_grad and p not in self._slots]
            if not new:
                continue
            for parameter in new:
                if parameter.dtype not in (torch.float32, torch.bfloat16, torch.float16) or parameter.layout != torch.strided:
                    raise TypeError(f"OffloadAdamW: a parameter is {parameter.dtype}, {parameter.layout}")
                if parameter.device.type not in ("cpu", "cuda"):
                    raise TypeError(f"OffloadAdamW: a parameter is on {parameter.device}")
            if self._ranks.ranks > 1:
                self._agree(new)
            for bucket in layout(group, new, self._bucket_bytes, self._ranks.rank, self._ranks.ranks):
                self._buckets.append(bucket)
                if bucket.device not in self._roads:
                    self._roads[bucket.device] = road(bucket.device)
                for slot in bucket.slots:
                    self._slots[slot.parameter] = (bucket, slot)
                    _patches.OWNERS[slot.parameter] = self._me
                    slot.handle = self._listen(slot.parameter)
                bucket.reset()

    def _agree(self, parameters: list[torch.Tensor]) -> None:
        """All ranks begin with the first one's parameters, as under DDP."""
        dist, group = self._ranks.dist, self._ranks.group
        first = dist.get_global_rank(group, 0) if group is not None else 0
        with torch.no_grad():
            for parameter in parameters:
                self._ranks.call("sharing the first parameters", lambda: dist.broadcast(parameter.data, first, group=group))

    def _listen(self, parameter: torch.Tensor) -> Any:
        me = self._me

        def arrived(p: torch.Tensor) -> None:
            optimizer = me()
            # Of several optimizers over one parameter the last made has its gradients.
            if optimizer is not None and _patches.OWNERS.get(p) is me:
                optimizer._arrived(p)

        return parameter.register_post_accumulate_grad_hook(arrived)

    def add_param_group(self, param_group: dict) -> None:
        """Adds parameters, as everywhere."""
        super().add_param_group(param_group)
        if self._buckets:
            self._adopt()

    # Gradients

    @torch.no_grad()
    def _arrived(self, parameter: torch.Tensor) -> None:
        """A gradient is there: it leaves with its bucket."""
        bucket, slot = self._slots[parameter]
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
        if self._waits is not None:
            self._finish()
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
        if self._waits is None or self._running is None:
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
                here = [
                    self._updater.sum_of_squares(_state.numbers(bucket.gradient), bucket.part) if bucket.passes else 0.0
                    for bucket in self._buckets
                ]
            self._squares = self._ranks.total(here)
        return self._squares

    def grad_norm(self) -> float:
        """The norm of all gradients, added up in 64 bits."""
        return math.sqrt(sum(self._sums())) * self._factors[0] * self._factors[1]

    @torch.no_grad()
    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> torch.Tensor:
        """Scales gradients so that their norm is at most this, and returns what it was; ``torch.nn.utils.clip_grad_norm_`` on
        these parameters comes here too."""
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
        if not all(math.isfinite(squares) for squares in self._sums()):
            found.fill_(1.0)
        self._factors[0] *= inverse.item()
        return {found.device: found}

    # The step

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Updates the model, or hands the update over to the next one where it is delayed."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            self._all_here()
            self._finish()
            delayed = self._delayed_after is not None and self._steps >= self._delayed_after
            self._steps += 1
            self._return_late()
            if not self._ahead:
                self._look()
            if delayed:
                self._later()
            elif self._waits is not None:
                self._beside()
            else:
                self._now()
        return loss

    def _rule(self, group: dict) -> Numbering:
        betas = (float(group["betas"][0]), float(group["betas"][1]))
        return Numbering.adam(
            float(group["lr"]), betas, float(group["eps"]), float(group["weight_decay"]),
            bool(group["decoupled_weight_decay"]), bool(group["maximize"]),
        )

    def _look(self) -> None:
        """Takes up what others have written to parameters since the last step, such as a loaded model."""
        for parameter, (bucket, slot) in self._slots.items():
            if parameter._version != slot.version:
                bucket.read_master(slot, bucket.master)
                slot.version = parameter._version

    def _now(self) -> None:
        factors = tuple(self._factors)
        for bucket in self._buckets:
            changed = [slot for slot in bucket.slots if slot.has]
            if changed:
                with self._clock.of("waiting for old parameters to have left"):
                    self._roads[bucket.device].before(bucket)
                with self._clock.of("updating"):
                    bucket.update(self._updater, self._rule(bucket.group), bucket.runs(), factors, bucket.gradient)
                self._counted(changed)
                with self._clock.of("sending parameters back"):
                    self._return(bucket, changed)
        self._arrive()

    def _later(self) -> None:
        """Gradients are handed over; the update runs beside the next forward and backward pass."""
        work, factors = [], tuple(self._factors)
        for bucket in self._buckets:
            changed = [slot for slot in bucket.slots if slot.has]
            if changed:
                self._roads[bucket.device].before(bucket)
                rule, runs = self._rule(bucket.group), bucket.runs()
                self._counted(changed)
                self._ahead.append((bucket, changed))
                work.append((bucket, rule, runs, bucket.hand_over()))
        self._factors = [1.0, 1.0]
        self._squares = None
        updater, clock = self._updater, self._clock

        def run() -> None:
            with clock.of("updating, beside"):
                for bucket, rule, runs, gradient in work:
                    bucket.update(updater, rule, runs, factors, gradient)

        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "tiercel-optim")
        self._running = self._worker.submit(run)

    def _beside(self) -> None:
        """The update runs beside the next forward pass; buckets return one by one."""
        work, factors = [], tuple(self._factors)
        moments = {device: way.moment() for device, way in self._roads.items()}
        for bucket in self._buckets:
            changed = [slot for slot in bucket.slots if slot.has]
            if changed:
                work.append((bucket, self._rule(bucket.group), bucket.runs(), bucket.gradient, changed))
                self._counted(changed)
                bucket.there.clear()
        updater, roads, clock = self._updater, self._roads, self._clock

        def run() -> None:
            try:
                with torch.no_grad():
                    for bucket, rule, runs, gradient, changed in work:
                        way = roads[bucket.device]
                        way.before(bucket)
                        with clock.of("updating, beside"):
                            bucket.update(updater, rule, runs, factors, gradient)
                        with clock.of("sending parameters back, beside"):
                            way.back(bucket, changed, moments[bucket.device])
                        for slot in changed:
                            slot.version = slot.parameter._version
                        bucket.there.set()
            finally:
                for bucket, *_ in work:
                    bucket.there.set()  # who waits finds the error at the next step

        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "tiercel-optim")
        self._running = self._worker.submit(run)

    def _finish(self) -> None:
        """Waits for an update that runs beside the model."""
        running, self._running = self._running, None
        if running is not None:
            with self._clock.of("waiting for the update beside"):
                running.result()

    def _return_late(self) -> None:
        """What was computed beside the last passes reaches the model."""
        with self._clock.of("sending parameters back"):
            for bucket, changed in self._ahead:
                self._return(bucket, changed)
        self._arrive()
        self._ahead = []

    @torch.no_grad()
    def synchronize(self) -> None:
        """Brings the model up to date where an update is delayed, as after the last step."""
        self._finish()
        self._return_late()

    def times(self) -> dict[str, float]:
        """Where time went since this was last asked, in seconds of the host; what ran beside the model is counted whole."""
        return self._clock.taken()

    @staticmethod
    def _counted(slots: list[Slot]) -> None:
        for slot in slots:
            slot.step += 1

    def _return(self, bucket: Bucket, changed: list[Slot]) -> None:
        """New parameters go back to the model."""
        way = self._roads[bucket.device]
        if self._ranks.ranks > 1:
            full = way.stage(bucket)
            bucket.stage = full
            mine = way.back(bucket, None)
            self._ranks.gather(full, mine)
            for slot in changed:
                slot.parameter.copy_(bucket.flat(full, slot))
            way.free(bucket)
            bucket.stage = None
        else:
            way.back(bucket, changed)
        for slot in changed:
            slot.version = slot.parameter._version

    def _arrive(self) -> None:
        for way in self._roads.values():
            way.arrive()

    # State

    def state_dict(self, *, sharded: bool = False) -> dict:
        """The state in the layout of ``torch.optim.AdamW``, which can load it. With several ranks all must call this, and all
        get the whole; with ``sharded`` each gets its own part, for as many ranks alone."""
        self._finish()
        return _state.gather(self, super().state_dict(), sharded)

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes a state of this class or of ``torch.optim.AdamW``, from any number of ranks."""
        self._finish()
        self._ahead = []
        _state.take(self, super(), state_dict)

    def __getstate__(self) -> dict:
        raise TypeError("an OffloadAdamW is not copied or pickled: save its state_dict()")

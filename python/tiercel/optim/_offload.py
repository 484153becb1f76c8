"""``OffloadAdamW``: ``torch.optim.AdamW`` with its states on the host (sections 5.4 and 5.5).

Gradients leave in buckets while the backward pass makes the next ones; their own tensors are given up. ``step()`` waits for
them and has bucket after bucket updated in the order in which the next forward pass wants them; each is on its way back while the
next is computed. With ``early`` a bucket's update begins when its gradients have come, while the backward pass goes on.
"""

from __future__ import annotations

import os
import weakref
from contextlib import contextmanager
from typing import Any, Callable, Iterable, Iterator, Optional

import torch

from .._tiercel import Updater
from . import _patches, _places, _state
from ._arithmetic import Hyper
from ._buckets import Bucket, Slot, layout
from ._clock import Clock
from ._files import Files
from ._gradients import Gradients
from ._ranks import Alone, Ranks
from ._travel import road
from ._updates import Job, Updates
from ._waits import Waits


def _threads(beside: bool) -> int:
    """Threads of the update: one a core, but for two where it runs beside a program that has kernels to launch."""
    cores = len(os.sched_getaffinity(0))
    return cores - 2 if beside and cores > 4 else cores


class OffloadAdamW(Gradients):
    """AdamW on the host. Arguments of ``torch.optim.AdamW`` mean what they mean there; further ones:

    ``delayed_after``: from this step on updates run beside the next forward and backward pass, and reach the model a step late
    (section 5.5.2); never, unless given. ``process_group``: ranks that share the states (ZeRO-2); ``True`` for all.
    ``overlap``: the model, whose next forward pass then runs beside the update: each module waits for its own parameters alone.
    ``early``: updates begin in the backward pass, as gradients come; see ``hold``. ``gpu_bytes``: memory of the GPU for states,
    as ``"2GiB"``, or ``"auto"`` for what is free after two steps; what stays there, what is streamed through it and what the processor
    updates is then planned from what this machine's memory and link are measured to do.
    ``bucket_bytes``: how much travels together. ``threads``: of the update. ``decoupled=False`` is Adam.
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
        early: bool = False,
        gpu_bytes: int | str | None = None,
        states: Optional[str] = None,
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
        if process_group is not None and (overlap is not None or early or gpu_bytes is not None):
            raise ValueError("overlap, early and gpu_bytes are for one process")
        if states is not None and (gpu_bytes is not None or not states.startswith("file:")):
            raise ValueError(f"states is `file:` and a folder, and goes without gpu_bytes; it is {states!r}")
        if delayed_after is not None and early:
            raise ValueError("updates that are delayed are not early")
        self._ranks = Alone() if process_group is None else Ranks(None if process_group is True else process_group)
        self._me = weakref.ref(self)
        beside = overlap is not None or early or delayed_after is not None
        self._updater = Updater(threads or _threads(beside))
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
        self._updates = Updates(self._updater, self._clock, self._roads)
        self._plan = _places.Plan(gpu_bytes, self._updater, "host" if states is None else "file")
        self._files = None if states is None else Files(states.removeprefix("file:"))
        #: Whether updates begin in backward passes; the groups' numbers where they have; whether just now they do not.
        self._early, self._open, self._held = early, None, False
        #: Buckets whose masters are ahead of the model by a delayed step.
        self._ahead: list[tuple[Bucket, list[Slot]]] = []
        defaults = dict(
            lr=lr, betas=tuple(betas), eps=eps, weight_decay=weight_decay, amsgrad=False, maximize=maximize, foreach=foreach,
            capturable=False, differentiable=False, fused=fused, decoupled_weight_decay=decoupled,
        )
        super().__init__(params, defaults)
        self._adopt()
        self._show_state()
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
            runs = layout(new, self._bucket_bytes)
            for run, place in zip(runs, self._plan.places(runs)):
                rank, number = (self._ranks.rank, self._ranks.ranks), len(self._buckets)
                bucket = Bucket(group, run, self._bucket_bytes, *rank, number, place, self._files, self._delayed_after is not None)
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

    # The step

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Updates the model, or hands the update over to the next one where it is delayed."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            self._all_here()
            self._steps += 1
            if self._open is not None:
                self._end_early()
            else:
                self._step()
            if self._waits is None and not self._ahead:
                self._updates_ended()
                self._arrive()
            self._plan.stepped(self)
        return loss

    def _step(self) -> None:
        """Has all buckets with gradients updated."""
        self._updates_ended()
        delayed = self._delayed_after is not None and self._steps > self._delayed_after
        self._return_late()
        if not self._ahead:
            self._look()
        factors, moments = tuple(self._factors), self._moments()
        jobs, together = [], self._ranks.ranks > 1
        for bucket in self._buckets:
            if any(slot.has for slot in bucket.slots):
                job = Job(bucket, self._hyper(bucket.group), factors, moments[bucket.device], delayed or together)
                if delayed:
                    self._ahead.append((bucket, job.changed))
                if delayed and bucket.place != "gpu":
                    job.gradient = bucket.hand_over()
                elif bucket.place != "gpu":
                    job.gradient = bucket.gradient
                self._updates.begin(job)
                jobs.append(job)
                if delayed and bucket.place == "gpu":
                    bucket.clear()  # the device reads the gradients before it makes others
        if delayed:
            self._factors, self._squares = [1.0, 1.0], None
        elif together:
            self._share_out(jobs)

    def _share_out(self, jobs: list[Job]) -> None:
        """All ranks gather new parameters in one order, each bucket when it has been updated."""
        for job in jobs:
            with self._clock.of("waiting for updates beside"):
                job.done.wait()
            if job.bucket.number in self._updates.jobs:
                break  # it failed, which is told by who waits for all
            with self._clock.of("sending parameters back"):
                self._return(job.bucket, job.changed)

    def _moments(self) -> dict:
        return {device: way.moment() for device, way in self._roads.items()}

    @staticmethod
    def _hyper(group: dict) -> Hyper:
        betas = (float(group["betas"][0]), float(group["betas"][1]))
        numbers = float(group["lr"]), betas, float(group["eps"]), float(group["weight_decay"])
        return Hyper(*numbers, bool(group["decoupled_weight_decay"]), bool(group["maximize"]))

    # Updates that begin in the backward pass

    @contextmanager
    def hold(self) -> Iterator[None]:
        """With ``early``: gradients of backward passes in this block are added up, and updates begin in the next one after it."""
        before, self._held = self._held, True
        try:
            yield
        finally:
            self._held = before

    def _begin_early(self) -> None:
        """The first gradient of a backward pass that a step follows."""
        self._updates_ended()
        self._look()
        self._open = {id(group): self._hyper(group) for group in self.param_groups}

    def _update_early(self, bucket: Bucket) -> None:
        bucket.begun = True
        moment = self._roads[bucket.device].moment()
        self._updates.begin(Job(bucket, self._open[id(bucket.group)], (1.0, 1.0), moment))

    def _end_early(self) -> None:
        """The step that was promised."""
        for bucket in self._buckets:
            if not bucket.begun and any(slot.has for slot in bucket.slots):
                self._update_early(bucket)
        self._updates.fed()
        opened, self._open = self._open, None
        for bucket in self._buckets:
            bucket.begun = False
        if any(opened.get(id(group)) != self._hyper(group) for group in self.param_groups):
            raise RuntimeError(
                "OffloadAdamW(early=True): a group's numbers, such as its learning rate, were changed between the backward pass, in which "
                "updates began, and the step; change them before the backward pass or after the step"
            )

    def _not_open(self, what: str) -> None:
        if self._open is not None:
            raise RuntimeError(f"OffloadAdamW(early=True): cannot {what}, updates have begun; step() follows every backward pass outside hold()")

    def _not_early(self, what: str) -> None:
        if self._early:
            raise RuntimeError(f"OffloadAdamW(early=True): gradients cannot be {what}, because updates begin before all of them are there")

    def _look(self) -> None:
        """Takes up what others have written to parameters since the last step, such as a loaded model."""
        for parameter, (bucket, slot) in self._slots.items():
            if parameter._version != slot.version:
                with bucket.states(changed=True) as (master, _, _):
                    bucket.read_master(slot, master, True)
                slot.version = parameter._version

    def _updates_ended(self) -> None:
        """Waits for updates that run beside the model."""
        if self._updates.running:
            with self._clock.of("waiting for updates beside"):
                self._updates.finish()

    def _return_late(self) -> None:
        """What was computed beside the last passes reaches the model."""
        with self._clock.of("sending parameters back"):
            for bucket, changed in self._ahead:
                self._return(bucket, changed)
        if self._waits is None:
            self._arrive()
        self._ahead = []

    @torch.no_grad()
    def synchronize(self) -> None:
        """Brings the model up to date where an update is delayed, as after the last step."""
        self._updates_ended()
        self._return_late()
        self._arrive()

    @property
    def _beside(self) -> bool:
        """Whether parameters may still be on their way to the model."""
        return self._updates.running or self._delayed_after is not None

    def times(self) -> dict[str, float]:
        """Where time went since this was last asked, in seconds of the host; what ran beside the model is counted whole."""
        return {"updating, beside": self._updater.taken(), **self._clock.taken()}

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
        self._not_open("give its state")
        self._updates_ended()
        return _state.gather(self, super().state_dict(), sharded)

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes a state of this class or of ``torch.optim.AdamW``, from any number of ranks."""
        self._updates_ended()
        _state.take(self, super(), state_dict)

    def _taken(self, own: dict) -> None:
        """Arrays and parameter groups are those of a state; this takes what it says beside them."""
        self._open = None
        self._steps = int(own["steps"])
        if self._delayed_after is None:
            self._delayed_after = own.get("delayed_after")
        self._ahead = [(bucket, list(bucket.slots)) for bucket in self._buckets] if own.get("ahead") else []
        self._show_state()
        for bucket in self._buckets:
            if self._delayed_after is not None:
                bucket.may_be_late()
            if self._ahead and bucket.out is not None:
                with bucket.states(changed=False) as (master, _, _):
                    bucket.out.copy_(master)
            bucket.begun = False
            bucket.clear()
            bucket.reset()

    def _show_state(self) -> None:
        """Who finds no state would take a step to make some, as ``torch.distributed.checkpoint.state_dict`` does."""
        for parameter, (bucket, _) in self._slots.items():
            self.state[parameter] = {"bucket": bucket.number}

    def __getstate__(self) -> dict:
        raise TypeError("an OffloadAdamW is not copied or pickled: save its state_dict()")

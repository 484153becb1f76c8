"""A dry run: a training step on tensors without bytes, operation by operation, as a runtime would see the real one.

PyTorch's fake tensors know shapes, strides and storages and compute nothing, so a step of any size takes a second and no
memory, and does the same operations on the same storages as the real one. What each operation computes and moves is noted, and
from that a machine file says how long it takes (``_cost.py``). Storages are born and die as in the real step: what lives at
once is what the step needs with nothing moved.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any, Callable, Optional

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils._pytree import tree_map

from . import _pretend
from ._cost import Call, call_of
from ._names import Names
from ._operations import kind_of, pieces, tensors_in
from ._optimizers import _pieces
from ._reach import parameters_of
from ._tiercel import Recording

_aten = torch.ops.aten


class DryRunError(RuntimeError):
    """A step that cannot be run without its data; it says at which operation."""


class Born:
    """A storage: its size, its device, what it is for, and when it lived."""

    __slots__ = ("nbytes", "device", "role", "name", "born", "died", "ref")

    def __init__(self, nbytes: int, device: str, born: int) -> None:
        self.nbytes, self.device, self.born = nbytes, device, born
        self.role, self.name = "", ""
        self.died: Optional[int] = None
        self.ref: Any = None


class Dry(TorchDispatchMode):
    """Sees operations, lets fake tensors answer them, and notes what they do."""

    def __init__(self, fake: _pretend.Fake, pretend: bool, names: Names) -> None:
        super().__init__()
        self.fake, self.pretend, self.names = fake, pretend, names
        self.storages: list[Born] = []
        self.numbers: dict[int, int] = {}
        self.flags: set[int] = set()
        #: Real tensors, each with its twin and the gradient that it had.
        self.twins: dict[int, tuple[torch.Tensor, torch.Tensor, Any]] = {}
        self.seen: Optional[list[tuple[Any, bool, tuple, tuple, int, Call, str]]] = None
        self.clock = 0
        self.phase = 0
        #: The bytes that an operation over lists may touch at once; 0 for as many as it likes.
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        if func is _pretend.DEVICE_OF:
            return _pretend.device_of(args[0]) if self.pretend else func(*args)
        if any(is_traceable_wrapper_subclass_type(kind) for kind in types):
            return NotImplemented
        kwargs = dict(kwargs or {})
        if self.pretend and kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "meta":
            # The engine was told of a device without streams: what it makes like a gradient lies where the gradient lies.
            kwargs["device"] = torch.device("cuda", 0)
        args, kwargs = tree_map(self._without_bytes, (args, kwargs))
        kind = kind_of(func)
        if kind.lists and self.most:
            parts = pieces(kind, args, kwargs, self.most)
            if len(parts) > 1:
                results = [self._run(func, kind, a, k) for a, k in parts]
                return type(results[0])(x for part in results for x in part) if isinstance(results[0], (list, tuple)) else results[0]
        return self._run(func, kind, args, kwargs)

    def _without_bytes(self, value: Any) -> Any:
        """A real tensor's fake twin; the same one each time."""
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            return value
        known = self.twins.get(id(value))
        if known is None:
            twin = self.fake.fake_tensor_converter.from_real_tensor(self.fake, value)
            # Gradients of real parameters become fake ones; afterwards everything is put back.
            known = self.twins[id(value)] = (value, twin, value.grad if value.is_leaf else None)
        return known[1]

    def _run(self, func: Any, kind: Any, args: tuple, kwargs: dict) -> Any:
        try:
            result = func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            result = self._unknown(func, args, kwargs, error)
        if func is _aten._amp_foreach_non_finite_check_and_unscale_.default:
            self.flags.add(args[1].untyped_storage()._cdata)
        self._note(func, kind, args, kwargs, result)
        return result

    def _unknown(self, func: Any, args: tuple, kwargs: dict, error: Exception) -> Any:
        """What an operation may give whose result only its data knows: a likely value, or as much as there can be."""
        if func is _aten._local_scalar_dense.default:
            dtype, infinite = args[0].dtype, args[0].untyped_storage()._cdata in self.flags
            return False if dtype == torch.bool else (0 if infinite else 1) * (1.0 if dtype.is_floating_point else 1)
        if func is _aten.equal.default:
            return True
        if func is _aten.nonzero.default:
            return args[0].new_empty((args[0].numel(), args[0].dim()), dtype=torch.int64)
        if func is _aten.masked_select.default:
            return args[0].new_empty((torch.broadcast_shapes(args[0].shape, args[1].shape).numel(),))
        if func is _aten.index.Tensor:
            whole = [i if i is None or i.dtype not in (torch.bool, torch.uint8) else i for i in args[1]]
            expanded: list[Any] = []
            for index in whole:
                if index is not None and index.dtype in (torch.bool, torch.uint8):
                    expanded.extend(index.new_empty((index.numel(),), dtype=torch.int64) for _ in range(index.dim()))
                else:
                    expanded.append(index)
            return func(args[0], expanded)
        raise DryRunError(f"tiercel: {func} makes what only the data knows ({type(error).__name__}); a step is estimated without its "
                          "data. Leave that part out of the step that is estimated.") from None

    def _number(self, tensor: torch.Tensor) -> Optional[int]:
        """The number of a tensor's storage; a new one where it has not been seen."""
        if tensor.is_sparse:
            return None
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self.numbers.get(key)
        if known is not None:
            return known
        number = self.numbers[key] = len(self.storages)
        born = Born(storage.nbytes(), tensor.device.type, self.clock)
        self.storages.append(born)
        owner = weakref.ref(self)

        def gone(_: Any) -> None:
            dry = owner()
            born.died = dry.clock if dry is not None else None
            if dry is not None and dry.numbers.get(key) == number:
                del dry.numbers[key]

        born.ref = weakref.ref(storage, gone)
        return number

    def _note(self, func: Any, kind: Any, args: tuple, kwargs: dict, result: Any) -> None:
        uses: list[tuple[int, bool]] = []
        for at, value in enumerate(args):
            uses += [(self._number(t), at in kind.written_at) for t in tensors_in(value)]
        for name, value in kwargs.items():
            uses += [(self._number(t), name in kind.written_as) for t in tensors_in(value)]
        before = len(self.storages)
        for tensor in tensors_in(result):
            self._number(tensor)
        made = tuple(range(before, len(self.storages)))
        layer = self.names.layer(backward=torch._C._current_graph_task_id() != -1)
        for number in made:
            self.storages[number].name = f"{layer}:{kind.name.removeprefix('aten.').split('.')[0]}"
        self.clock += 1
        if self.seen is None:
            return
        view = kind.is_view or not (made or any(written for _, written in uses))
        phase = self.phase or (1 if torch._C._current_graph_task_id() != -1 else 0)
        call = Call.nothing(func) if view else call_of(func, kind, args, kwargs, result, bool(made))
        self.seen.append((func, view, tuple(u for u in uses if u[0] is not None), made, phase, call, layer))


class Step:
    """One step as it was seen: its operations, and what lived meanwhile."""

    def __init__(self, dry: Dry, began: int, device: str) -> None:
        self.storages, self.seen = dry.storages, dry.seen or []
        self.began, self.ended, self.device = began, dry.clock, device
        #: The sizes of the storages of the last recording.
        self.sizes: list[int] = []
        dry.seen = None
        self.peak, self.kinds = self._peak()

    def _living(self) -> list[Born]:
        return [b for b in self.storages if b.device == self.device and (b.died is None or b.died > self.began)]

    def _peak(self) -> tuple[int, dict[str, int]]:
        """The most bytes alive at once, in blocks of 512 as PyTorch takes them, and what they are for."""
        changes = [0] * (self.ended - self.began + 2)
        living = self._living()
        for born in living:
            rounded = -(-born.nbytes // 512) * 512
            changes[max(0, born.born - self.began)] += rounded
            if born.died is not None and born.died <= self.ended:
                changes[min(self.ended, born.died) - self.began] -= rounded
        held, most, when = 0, 0, 0
        for at, change in enumerate(changes):
            held += change
            if held > most:
                most, when = held, at + self.began
        kinds: dict[str, int] = {}
        for born in living:
            if born.born <= when and (born.died is None or born.died > when):
                role = born.role or "activation"
                kinds[role] = kinds.get(role, 0) + born.nbytes
        return most, kinds

    @property
    def calls(self) -> list[Call]:
        """What every operation costs that does anything."""
        return [call for _, view, _, _, _, call, _ in self.seen if not view]

    def recording(self, times: list[int], least: int) -> tuple[Recording, list[dict]]:
        """The step as the planner wants it, with these times of its operations, and its kernels; storages below `least` are left out.

        An operation that only looks at a tensor in another way belongs to the next one that computes, as in the runtime. What touches
        small storages alone is no kernel; its time goes to the one before.
        """
        large = [b.nbytes >= least and b.device == self.device for b in self.storages]
        clocks = iter(times)
        slots: dict[int, int] = {}
        made_here: set[int] = set()
        kernels: list[dict] = []
        opened: Optional[dict] = None
        for func, view, uses, made, phase, call, layer in self.seen:
            nanos = 0 if view else next(clocks)
            used = [(slots.setdefault(n, len(slots)), written) for n, written in uses if large[n]]
            new = [slots.setdefault(n, len(slots)) for n in made if large[n]]
            made_here.update(n for n in made if large[n])
            if not used and not new:
                if kernels:
                    kernels[-1]["nanos"] += nanos
                continue
            if opened is None:
                opened = {"op": call.op, "layer": layer, "phase": phase, "reads": [], "writes": [], "nanos": 0, "once": False}
                kernels.append(opened)
            fresh = set(opened["writes"]) - set(opened["reads"])
            for slot, written in used:
                if slot not in fresh and slot not in opened["reads"]:
                    opened["reads"].append(slot)
                if written and slot not in opened["writes"]:
                    opened["writes"].append(slot)
            opened["writes"] += [slot for slot in new if slot not in opened["writes"]]
            opened["nanos"] += nanos
            opened["once"] |= call.drawn
            opened["op"], opened["layer"] = call.op, layer
            opened = opened if view else None
        recording = Recording()
        self.sizes = [self.storages[number].nbytes for number in slots]
        for number in slots:
            born, stays = self.storages[number], number not in made_here
            recording.storage(born.name or "t", born.nbytes, born.role or ("state" if stays else "activation"), stays)
        for kernel in kernels:
            recording.operation(kernel["op"], kernel["layer"], kernel["phase"], kernel["reads"], kernel["writes"], 0, max(1, kernel["nanos"]), kernel["once"])
        return recording, kernels


class Watched:
    """Watches optimizers during a dry run: the phase, the roles of storages, and steps in pieces; puts everything back after it."""

    def __init__(self, dry: Dry, grads: list[tuple[torch.Tensor, Any]]) -> None:
        self.dry, self.grads = dry, grads
        self.states: list[tuple[Optimizer, dict]] = []
        self.steps: dict[type, Any] = {}
        self.handles = [register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._after)]

    def _before(self, optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
        if all(known is not optimizer for known, _ in self.states):
            self.states.append((optimizer, {p: dict(s) for p, s in optimizer.state.items()}))
        self.dry.phase = 2
        self._name(optimizer)

    def _after(self, optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
        self.dry.phase = 0
        self._name(optimizer)

    def _name(self, optimizer: Optimizer) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = self.dry.names.of(parameter)
                self._call(parameter, "weight", name)
                self._call(parameter.grad, "gradient", f"{name}.grad")
                for key, value in optimizer.state.get(parameter, {}).items():
                    self._call(value, "state", f"{name}.{key}")

    def _call(self, tensor: Any, role: str, name: str) -> None:
        if isinstance(tensor, torch.Tensor):
            number = self.dry._number(self.dry._without_bytes(tensor))
            if number is not None:
                self.dry.storages[number].role, self.dry.storages[number].name = role, name

    def in_pieces(self, most: int) -> None:
        """From here on optimizers step over some parameters after the other, as they do under a limit."""
        self.dry.most = most
        for kind in {type(optimizer) for optimizer, _ in self.states}:
            inner = getattr(kind.step, "__wrapped__", None)
            if inner is not None:
                self.steps[kind] = kind.step
                kind.step = Optimizer.profile_hook_step(_stepper(inner, most))  # type: ignore[method-assign]

    def put_back(self) -> None:
        for handle in self.handles:
            handle.remove()
        for kind, step in self.steps.items():
            kind.step = step
        first = {id(tensor) for tensor, _ in self.grads}
        seen = [(tensor, grad) for tensor, _, grad in self.dry.twins.values() if id(tensor) not in first]
        for tensor, grad in [*self.grads, *seen]:
            if tensor.is_leaf and tensor.grad is not grad:
                tensor.grad = grad
        for optimizer, state in self.states:
            if any(not isinstance(p, FakeTensor) for group in optimizer.param_groups for p in group["params"]):
                optimizer.state.clear()
                optimizer.state.update(state)


def _stepper(inner: Callable, most: int) -> Callable:
    """A step of an optimizer over pieces of its parameters; the same as under a limit (``_optimizers.py``)."""

    def step(self: Optimizer, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        whole = [group["params"] for group in self.param_groups]
        try:
            for group in self.param_groups:
                group["params"] = []
            for at, parameters in enumerate(whole):
                for piece in _pieces(parameters, most):
                    self.param_groups[at]["params"] = piece
                    inner(self)
                self.param_groups[at]["params"] = []
        finally:
            for group, parameters in zip(self.param_groups, whole):
                group["params"] = parameters
        return loss

    step.hooked = True  # type: ignore[attr-defined]
    return step


def dry_run(make: Callable[[], Any], machine: str, nbytes: int) -> tuple[Step, Step]:
    """Runs a step dry: as it is, and as it is under a limit, with what touches much at once in pieces.

    `make` is the step, or makes it: then what it returns is called.
    """
    pretend = _pretend.needed()
    fake = _pretend.Fake(pretend)
    with Names() as names, _pretend.plain_types(), _pretend.a_gpu(machine, nbytes):
        dry = Dry(fake, pretend, names)
        watched = Watched(dry, [(tensor, tensor.grad) for tensor in parameters_of(make)])
        try:
            with fake, dry:
                made = make()
                step = made if callable(made) and not isinstance(made, torch.Tensor) else make
                if step is not make:
                    step()  # states of optimizers are born in the first step
                whole = _one(dry, step, None)
                watched.in_pieces(max(4 << 20, whole.peak // 48))
                return whole, _one(dry, step, whole.device)
        finally:
            watched.put_back()


def _one(dry: Dry, step: Callable[[], Any], device: Optional[str]) -> Step:
    gc.collect()
    began = dry.clock
    dry.seen = []
    step()
    if device is None:
        sizes: dict[str, int] = {}
        for born in dry.storages:
            sizes[born.device] = sizes.get(born.device, 0) + born.nbytes
        device = max(sizes, key=lambda name: sizes[name], default="cpu")
    if not dry.seen:
        raise DryRunError("tiercel: the step ran no operation; give a function that makes a step, or the step itself")
    return Step(dry, began, device)

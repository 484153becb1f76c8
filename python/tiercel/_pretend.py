"""A machine with a GPU, as far as a dry run looks: so that programs written for one can be estimated where there is none.

Fake tensors have no bytes, so no device is needed to compute with them. Three things still ask for one. Python code asks
``torch.cuda`` what there is; it gets answers. Moving a module swaps its parameters, which PyTorch refuses for fake ones
although nothing speaks against it. And autograd's engine looks for the streams of the device on which gradients lie: where
PyTorch was built for GPUs and there is none, it fails. There the engine, and nobody else, is told that they lie on no
device with streams. What the processor's build decides otherwise, which kernel computes attention, is decided here as on a GPU.
"""

from __future__ import annotations

import contextlib
import sys
import types
from typing import Any, Iterator, Optional

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

_aten = torch.ops.aten
_META = torch.device("meta")
DEVICE_OF = torch.ops.prim.device.default


def needed() -> bool:
    """Whether there is no GPU, so that one has to be pretended."""
    return not torch.cuda.is_available()


class Fake(FakeTensorMode):
    """Fake tensors that never look for a device."""

    def __init__(self, pretend: bool) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self._pretend = pretend

    @property
    def avoid_device_init(self) -> bool:  # type: ignore[override]
        return True if self._pretend else FakeTensorMode.avoid_device_init.fget(self)  # type: ignore[attr-defined]


def device_of(tensor: torch.Tensor) -> torch.device:
    """The device that a tensor says it is on; autograd's engine hears of one without streams."""
    device = tensor.fake_device if isinstance(tensor, FakeTensor) else tensor.device
    return _META if device.type == "cuda" and _engine_asks() else device


#: Frames between the engine and whoever answers it: PyTorch's own wrappers of modes.
_BETWEEN = ("__torch_dispatch__", "inner", "_fn", "__call__", "device_of", "_engine_asks")


def _engine_asks() -> bool:
    if torch._C._current_graph_task_id() == -1:
        return False
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_name in _BETWEEN:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "_engine_run_backward"


_quiet: list[Any] = []


def _without_streams() -> None:
    """Has PyTorch take an accelerator that has no devices for the one that counts, so that the engine looks for no streams.

    It is for the rest of the process, and only where PyTorch was built for GPUs that are not there.
    """
    built = torch.version.cuda is not None or torch.version.hip is not None
    if _quiet or not built or torch._C._get_privateuse1_backend_name() != "privateuseone":
        return

    class Guard(torch._C._acc.DeviceGuard):
        def type_(self) -> Any:
            return torch._C._autograd.DeviceType.PrivateUse1

        def device_count(self) -> int:
            return 0

    class Hooks(torch._C._acc.PrivateUse1Hooks):
        def is_available(self) -> bool:
            return False

        def has_primary_context(self, index: int) -> bool:
            return False

        def is_built(self) -> bool:
            return True

    nothing = types.SimpleNamespace(
        is_available=lambda: False, device_count=lambda: 0, is_initialized=lambda: False, current_device=lambda: 0,
        _is_in_bad_fork=lambda: False, manual_seed_all=lambda seed: None)
    torch.utils.rename_privateuse1_backend("nowhere")
    torch._register_device_module("nowhere", nothing)
    _quiet.extend((Guard(), Hooks()))
    torch._C._acc.register_python_privateuseone_hook(_quiet[1])
    torch._C._acc.register_python_privateuseone_device_guard(_quiet[0])


def _swap(a: torch.Tensor, b: torch.Tensor) -> None:
    """Swaps what two fake tensors are; somebody may hold weak references to them."""
    a.__class__, b.__class__ = b.__class__, a.__class__
    a.__dict__, b.__dict__ = b.__dict__, a.__dict__
    torch._C._swap_tensor_impl(a, b)


def _attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
               scale: Optional[float] = None, enable_gqa: bool = False) -> torch.Tensor:
    """Attention by the kernels that a GPU has for it: none of them keeps the matrix of weights."""
    if query.device.type != "cuda":
        return _plain_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if torch.is_autocast_enabled("cuda"):
        low = torch.get_autocast_dtype("cuda")
        query, key, value = (x.to(low) for x in (query, key, value))
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    if query.dim() == 3:
        mask = None if attn_mask is None or attn_mask.dim() > 3 else attn_mask.unsqueeze(0)
        return _attention(query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0), mask, dropout_p, is_causal, scale).squeeze(0)
    if attn_mask is None and query.dtype in (torch.bfloat16, torch.float16):
        return _aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), float("-inf"))
        attn_mask = attn_mask.to(query.dtype).expand(*query.shape[:-1], key.shape[-2])
    return _aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, torch.is_grad_enabled(), dropout_p, is_causal, scale=scale)[0]


_plain_attention = torch.nn.functional.scaled_dot_product_attention


def _answers(name: str, nbytes: int) -> dict[str, Any]:
    """What ``torch.cuda`` says while a GPU is pretended."""
    facts = types.SimpleNamespace(name=name, total_memory=nbytes, major=9, minor=0, multi_processor_count=132)
    state = torch.zeros(16, dtype=torch.uint8)
    return {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0, "set_device": lambda device: None,
        "is_bf16_supported": lambda *a, **k: True, "synchronize": lambda *a, **k: None, "empty_cache": lambda: None,
        "get_device_name": lambda *a, **k: name, "get_device_capability": lambda *a, **k: (9, 0),
        "get_device_properties": lambda *a, **k: facts, "mem_get_info": lambda *a, **k: (nbytes, nbytes),
        "memory_allocated": lambda *a, **k: 0, "max_memory_allocated": lambda *a, **k: 0, "memory_reserved": lambda *a, **k: 0,
        "max_memory_reserved": lambda *a, **k: 0, "reset_peak_memory_stats": lambda *a, **k: None, "_lazy_init": lambda: None,
        "get_rng_state": lambda *a, **k: state.clone(), "set_rng_state": lambda *a, **k: None,
        "is_current_stream_capturing": lambda: False, "_exchange_device": lambda index: 0, "_maybe_exchange_device": lambda index: 0,
    }


@contextlib.contextmanager
def plain_types() -> Iterator[None]:
    """While this is open optimizers and clipping work on lists of fake tensors as they do on lists of plain ones."""
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    lists = (optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types)
    for known in lists:
        known.append(FakeTensor)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for known in lists:
            known.remove(FakeTensor)  # type: ignore[arg-type]


@contextlib.contextmanager
def a_gpu(name: str, nbytes: int) -> Iterator[None]:
    """Pretends that there is one while this is open; does nothing where there is."""
    if not needed():
        yield
        return
    from torch._subclasses import fake_tensor

    _without_streams()
    places = [(torch.cuda, key, value) for key, value in _answers(name, nbytes).items()]
    places += [(torch.utils, "swap_tensors", _swap), (fake_tensor, "init_gpu_context", lambda device: None),
               (torch.nn.functional, "scaled_dot_product_attention", _attention)]
    before = [(owner, key, getattr(owner, key)) for owner, key, _ in places if hasattr(owner, key)]
    try:
        for owner, key, value in places:
            setattr(owner, key, value)
        with torch.autograd.set_multithreading_enabled(False):
            yield
    finally:
        for owner, key, value in before:
            setattr(owner, key, value)

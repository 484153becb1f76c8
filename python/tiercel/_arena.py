"""A GPU's memory as one stretch that Tiercel hands out, in place of PyTorch's allocator.

PyTorch's allocator keeps pieces for itself, and what is free in them serves nobody else: of a tight limit a tenth or more is lost, and
finding it again stops the device. Here every storage lies where the plan has it (`python/src/arena.rs`). PyTorch lets its allocator be
replaced before a GPU is first used; where it was used before, its own stays, and plans count bytes alone.

PyTorch's wrapper around such allocators leaves some questions open: how much is free in one piece, which cuDNN asks when it tries
algorithms, is answered by the replaced function; statistics are answered here.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Optional

import torch

from . import _tiercel

#: The part of a limit that is for storages too small to be planned, and for what libraries keep for good: products take 32 MiB for each
#: thread that computes.
SMALL = 256 << 20
#: The driver's functions in the order in which they are handed over.
_DRIVER = ("cuMemGetAllocationGranularity", "cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease",
           "cuStreamSynchronize", "cuMemAlloc_v2", "cuMemFree_v2")
_FAILS = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"
_CURRENT = "_ZN3c104cuda20CUDACachingAllocator9allocatorE"
_LARGEST = "_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator9cacheInfoEaPm"

#: The allocator in place of PyTorch's; why there is none, where it was tried.
_replaced: Any = None
why_not: Optional[str] = None


def _address(library: str, name: str) -> int:
    """The address of a function in a library that is loaded."""
    return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value or 0


def replace() -> bool:
    """Replaces PyTorch's allocator, if no GPU has been used yet; whether it is replaced."""
    global _replaced, why_not
    if _replaced is not None or why_not is not None:
        return _replaced is not None
    if os.environ.get("TIERCEL_ARENA") == "0":
        why_not = "TIERCEL_ARENA=0"
    elif torch.cuda.is_initialized():
        why_not = "the GPU was in use before the limit was set"
    if why_not is not None:
        return False
    try:
        lib = os.path.join(os.path.dirname(torch.__file__), "lib")
        c10, c10_cuda, cuda = (os.path.join(lib, f"lib{name}.so") for name in ("c10", "c10_cuda", "torch_cuda"))
        driver = [_address("libcuda.so.1", name) for name in _DRIVER]
        _tiercel.arena_driver([*driver, _address(c10, _FAILS)])
        take, give, used_on = _tiercel.arena_functions()
        allocator = torch._C._cuda_customAllocator(take, give)
        allocator.set_record_stream_fn(used_on)
        torch._C._cuda_changeCurrentAllocator(allocator)
        _replaced = allocator
        current = ctypes.c_void_p.in_dll(ctypes.CDLL(c10_cuda), _CURRENT).value or 0
        if not _tiercel.arena_teach(current, _address(cuda, _LARGEST)):
            # cuDNN asks only when it tries algorithms.
            torch.backends.cudnn.benchmark = False
    except (AttributeError, OSError, RuntimeError, ValueError) as error:
        why_not = str(error)
    _answer()
    return _replaced is not None


class InForce:
    """The stretch that is in force, for those who know where storages are to lie."""

    expect = staticmethod(_tiercel.arena_expect)
    settle = staticmethod(_tiercel.arena_settle)
    lies_at = staticmethod(_tiercel.arena_lies_at)
    watch = staticmethod(_tiercel.arena_watch)
    taken = staticmethod(_tiercel.arena_taken)
    clear = staticmethod(_tiercel.arena_clear)
    cleared = staticmethod(_tiercel.arena_cleared)
    wanted = staticmethod(_tiercel.arena_wanted)

    @staticmethod
    def smalls() -> int:
        """The most bytes that pieces took which are too small to be planned."""
        return _tiercel.arena_state()[8]
    #: Pieces begin at multiples of this.
    GRAIN = 512

    def __init__(self) -> None:
        #: What plans may use.
        self.plannable = _tiercel.arena_plannable()


def open(device: torch.device, limit: int, least: int) -> Optional[InForce]:
    """Takes a limit's memory; nothing where PyTorch's allocator is in force."""
    if _replaced is None:
        return None
    torch.cuda.init()
    torch.cuda.synchronize(device)
    total = torch.cuda.get_device_properties(device).total_memory
    with torch.cuda.device(device):
        ctypes.CDLL(f"libcudart.so.{(torch.version.cuda or '').split('.')[0]}").cudaFree(None)  # makes the device's context
        stream = torch.cuda.current_stream(device).cuda_stream
        try:
            _tiercel.arena_open(device.index, total, limit, min(SMALL, limit // 8), least, stream)
        except RuntimeError as error:
            raise RuntimeError(f"tiercel: {error}; with TIERCEL_ARENA=0 PyTorch's own allocator stays") from None
        _settle_libraries(device)
    return InForce()


def _settle_libraries(device: torch.device) -> None:
    """Has libraries take now what they keep for good, in every thread that computes: it lies among what is small then."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x, weight = (torch.ones(64, 64, dtype=dtype, device=device, requires_grad=True) for _ in range(2))
        bias = torch.ones(64, dtype=dtype, device=device, requires_grad=True)
        (torch.nn.functional.linear(x, weight, bias) @ weight).sum().backward()
    torch.cuda.synchronize(device)


def loosen() -> None:
    """No limit is in force any more."""
    if _replaced is not None:
        _tiercel.arena_loosen()


def is_shortage(error: BaseException) -> bool:
    """Whether an operation failed because there was no room."""
    return isinstance(error, torch.OutOfMemoryError) or isinstance(error, RuntimeError) and _tiercel.SHORT in str(error)


def _answer() -> None:
    """Statistics that PyTorch's wrapper does not keep."""
    if _replaced is None:
        return
    memory = torch.cuda.memory

    def stats(device: Any = None) -> dict[str, Any]:
        there, used, *_ = _tiercel.arena_state()
        most = max(_tiercel.arena_peak(False), used)

        def row(current: int, peak: int) -> dict[str, Any]:
            known = {"current": current, "peak": peak, "allocated": 0, "freed": 0}
            return {"all": known, "large_pool": known, "small_pool": known}

        found: dict[str, Any] = {"allocated_bytes": row(used, most), "active_bytes": row(used, most), "requested_bytes": row(used, most),
                                 "reserved_bytes": row(there, there)}
        for name in ("allocation", "segment", "active", "inactive_split", "inactive_split_bytes", "oversize_allocations", "oversize_segments"):
            found[name] = row(0, 0)
        return {**found, "num_alloc_retries": 0, "num_ooms": 0, "max_split_size": -1, "num_sync_all_streams": 0, "num_device_alloc": 0,
                "num_device_free": 0}

    memory.memory_stats_as_nested_dict = stats
    memory.reset_peak_memory_stats = torch.cuda.reset_peak_memory_stats = lambda device=None: (_tiercel.arena_peak(True), None)[1]
    memory.reset_accumulated_memory_stats = torch.cuda.reset_accumulated_memory_stats = lambda device=None: None

"""Host memory for optimizer states: exactly as large as asked for, pinned where there is a GPU."""

from __future__ import annotations

import ctypes
import weakref

import torch

from .._tiercel import Slab

#: What the Rust side calls these numbers.
KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


def numbers(tensor: torch.Tensor | None) -> tuple[int, int]:
    """A tensor's address and kind for the Rust side."""
    return (0, 0) if tensor is None else (tensor.data_ptr(), KINDS[tensor.dtype])


def host(count: int, dtype: torch.dtype, pinned: bool) -> torch.Tensor:
    """Zeros in host memory. PyTorch's own pinned memory is rounded up to a power of two; this is not."""
    nbytes = max(1, count) * dtype.itemsize
    slab = Slab(nbytes, None)
    memory = (ctypes.c_char * nbytes).from_address(slab.address)
    tensor = torch.frombuffer(memory, dtype=dtype)[:count]
    address = slab.address
    tensor.zero_()  # many threads make the pages now, which the first step, or a driver that pins them, would make one by one
    if pinned:
        code = torch.cuda.cudart().cudaHostRegister(address, nbytes, 0)
        if int(code) != 0:
            raise MemoryError(f"{nbytes} bytes of host memory cannot be pinned (error {int(code)})")
    # The tensor's storage holds on to `memory`, and with it to the mapping.
    gone = weakref.finalize(memory, _release, slab, address if pinned else 0)
    gone.atexit = False  # a process that ends gives everything back at once
    return tensor


def _release(slab: Slab, pinned: int) -> None:
    if pinned:
        torch.cuda.cudart().cudaHostUnregister(pinned)
    del slab

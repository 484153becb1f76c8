"""The dispatch mode through which the runtime sees every operation, forward, backward and update.

It stands before every operation, so it does nothing but hand over. PyTorch would wrap a mode's method in two Python functions
that keep its compiler from tracing it; where the compiler can be told so of a function, it is told once instead.
"""

from __future__ import annotations

from typing import Any

from torch._C._dynamo import eval_frame
from torch.utils._python_dispatch import TorchDispatchMode

from ._runtime import Runtime

_CAN_TELL = all(hasattr(eval_frame, name) for name in ("set_code_exec_strategy", "_FrameExecStrategy", "_FrameAction"))


class Watch(TorchDispatchMode):
    """Hands every operation to the runtime."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self.runtime = runtime

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return not _CAN_TELL

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        return self.runtime.dispatch(func, types, args, kwargs or {})


if _CAN_TELL:
    # Neither this function nor any that it calls.
    _skip = eval_frame._FrameAction.SKIP
    eval_frame.set_code_exec_strategy(Watch.__torch_dispatch__.__code__, eval_frame._FrameExecStrategy(_skip, _skip))

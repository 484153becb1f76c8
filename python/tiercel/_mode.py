"""The dispatch mode through which the runtime sees every operation, forward, backward and update."""

from __future__ import annotations

from typing import Any

from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type

from ._runtime import Runtime


class Watch(TorchDispatchMode):
    """Hands every operation to the runtime."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self.runtime = runtime

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        for kind in types:
            if issubclass(kind, FakeTensor):
                return func(*args, **(kwargs or {}))
            if is_traceable_wrapper_subclass_type(kind):
                return NotImplemented
        return self.runtime.dispatch(func, args, kwargs or {})

"""What people call the parts of a model: the module or the line of Python that an operation comes from, and parameters by name."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from torch.nn.modules import module as modules

_TORCH = os.path.dirname(torch.__file__)
_HERE = os.path.dirname(__file__)


class Names:
    """Follows modules as they are called, so that operations and parameters have names."""

    def __init__(self) -> None:
        self.stack: list[str] = []
        self.modules: dict[int, str] = {}
        self.parameters: dict[int, str] = {}
        self.handles: list[Any] = []
        self.kept: list[Any] = []

    def __enter__(self) -> "Names":
        self.handles = [modules.register_module_forward_pre_hook(self._enter), modules.register_module_forward_hook(self._leave, always_call=True)]
        return self

    def __exit__(self, *error: Any) -> None:
        for handle in self.handles:
            handle.remove()
        self.kept.clear()

    def _enter(self, module: Any, args: Any) -> None:
        if id(module) not in self.modules:
            self.kept.append(module)
            for name, inner in module.named_modules():
                self.modules.setdefault(id(inner), name or type(module).__name__)
            for name, parameter in module.named_parameters():
                self.parameters.setdefault(id(parameter), name)
        self.stack.append(self.modules[id(module)])

    def _leave(self, module: Any, args: Any, result: Any) -> None:
        if self.stack:
            self.stack.pop()

    def of(self, parameter: Any) -> str:
        """A parameter's name."""
        return self.parameters.get(id(parameter), "parameter")

    def layer(self, backward: bool) -> str:
        """Where the operation that runs now comes from: the module, else the line of the program."""
        if self.stack:
            return self.stack[-1]
        if backward:
            return "backward"
        frame: Any = sys._getframe(2)
        while frame is not None:
            name = frame.f_code.co_filename
            if not name.startswith((_TORCH, _HERE, "<")):
                return f"{os.path.basename(name)}:{frame.f_lineno}"
            frame = frame.f_back
        return "step"

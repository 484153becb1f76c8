"""The parameters that a function can reach: those of the models and optimizers in its closure, its arguments and its globals.

A dry run of a step whose model exists gives real parameters fake gradients; what they had before must be known before the step
begins, because most steps begin by letting gradients go.
"""

from __future__ import annotations

import functools
import types
from typing import Any, Iterator

import torch
from torch.optim import Optimizer

#: How many objects deep it is looked, and how many objects in all.
_DEPTH, _MOST = 6, 20_000


def parameters_of(function: Any) -> Iterator[torch.Tensor]:
    """Every leaf tensor with a gradient, or that may get one, within reach of a function."""
    seen: set[int] = set()
    waiting: list[tuple[Any, int]] = [(function, 0)]
    while waiting and len(seen) < _MOST:
        thing, depth = waiting.pop()
        if id(thing) in seen or depth > _DEPTH:
            continue
        seen.add(id(thing))
        if isinstance(thing, torch.Tensor):
            if thing.is_leaf and thing.requires_grad:
                yield thing
        else:
            waiting += [(inner, depth + 1) for inner in _within(thing)]


def _within(thing: Any) -> list[Any]:
    if isinstance(thing, torch.nn.Module):
        return list(thing.parameters())
    if isinstance(thing, Optimizer):
        return [parameter for group in thing.param_groups for parameter in group["params"]]
    if isinstance(thing, types.MethodType):
        return [thing.__self__, thing.__func__]
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, types.FunctionType):
        return [*_cells(thing), *(thing.__defaults__ or ()), *_globals(thing)]
    if isinstance(thing, dict):
        return list(thing.values())
    if isinstance(thing, (list, tuple, set)):
        return list(thing)
    if isinstance(thing, (type, types.ModuleType, str, bytes, int, float, torch.device, torch.dtype)) or thing is None:
        return []
    return list(getattr(thing, "__dict__", {}).values())


def _cells(function: types.FunctionType) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not filled yet
            pass
    return found


def _globals(function: types.FunctionType) -> list[Any]:
    """The globals that a function names, itself or in functions within it."""
    codes, names = [function.__code__], set()
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
    return [function.__globals__[name] for name in names if name in function.__globals__]

"""``python -m tiercel.estimate module:function``: what a training step needs, from the command line.

The function builds model and optimizer and returns the step, as for :func:`tiercel.estimate`; with ``--batch`` it takes the batch.
``tiercel plan --torch module:function`` has this write a trace, and plans that.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
import types
from typing import Any, Callable, Optional


def find(what: str) -> Callable[..., Any]:
    """The function that ``module:function`` or ``file.py:function`` names."""
    place, colon, name = what.rpartition(":")
    if not colon or not place or not name:
        raise SystemExit(f"tiercel: `{what}` is not of the form module:function")
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location(os.path.basename(place)[:-3], place)
        if spec is None or spec.loader is None or not os.path.exists(place):
            raise SystemExit(f"tiercel: there is no file `{place}`")
        module: Any = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(spec.name, module)
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, os.getcwd())
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is not None and (place == error.name or place.startswith(error.name + ".")):
                raise SystemExit(f"tiercel: there is no module `{place}` on Python's path or in {os.getcwd()}") from None
            raise
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise SystemExit(f"tiercel: `{place}` has no function `{name}`")
    return found


def _arguments(argv: Optional[list[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tiercel.estimate", description="What a training step needs, without running it.")
    parser.add_argument("function", help="module:function or file.py:function that builds model and optimizer and returns the step")
    parser.add_argument("--machine", default="h200", help="a machine that `tiercel list` names, or a machine file [h200]")
    parser.add_argument("--batch", type=int, help="call the function with this batch, and find the largest that fits")
    parser.add_argument("--limit", help="the memory that the largest batch has, such as 20GiB [all of the machine's]")
    parser.add_argument("--within", type=float, default=5.0, metavar="PERCENT", help="how much slower is still good [5]")
    parser.add_argument("--seconds", type=float, default=2.0, help="what planning may take for each limit [2]")
    parser.add_argument("--name", help="what the program is called")
    parser.add_argument("--json", action="store_true", help="print a JSON document")
    parser.add_argument("--page", metavar="FILE", help="write a page")
    parser.add_argument("--trace", metavar="FILE", help="write the step as a trace, and plan nothing")
    return parser.parse_args(argv)


def main(argv: Optional[list[str]] = None) -> None:
    """The command."""
    arguments = _arguments(argv)
    machine = arguments.machine
    if "/" in machine or machine.endswith(".toml"):
        with open(machine, encoding="utf-8") as file:
            machine = file.read()
    try:
        from ._estimate import estimate, text
    except ModuleNotFoundError as error:
        raise SystemExit(f"tiercel: estimating takes PyTorch, which is not installed here ({error})") from None
    make = find(arguments.function)
    name = arguments.name or arguments.function.rpartition(":")[2]
    if arguments.trace and not (arguments.json or arguments.page):
        batch = arguments.batch
        found = estimate(make if batch is None else (lambda: make(batch)), machine, name=name, shares=())
        found.trace(arguments.trace)
        return
    found = estimate(make, machine, batch=arguments.batch, limit=arguments.limit, name=name, within=arguments.within / 100, seconds=arguments.seconds)
    if arguments.trace:
        found.trace(arguments.trace)
    if arguments.page:
        found.page(arguments.page)
    print(text(found) if arguments.json else found)


class _Function(types.ModuleType):
    """The module is the function, too: ``tiercel.estimate(…)`` works after ``import tiercel.estimate``."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from ._estimate import estimate

        return estimate(*args, **kwargs)


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        text = str(error)
        raise SystemExit(text if text.startswith("tiercel: ") else f"tiercel: {error}")
else:
    sys.modules[__name__].__class__ = _Function

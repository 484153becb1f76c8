"""``torch.compile`` under a limit: saved values stay, move to slow memory beside computation, or are computed again.

Tiercel's joint planner decides when a program is compiled; what it decides becomes a part of the program.

| file | what |
|---|---|
| ``_partition.py`` | what Inductor calls to cut a program into forward and backward |
| ``_program.py``, ``_costs.py`` | the program as the planner sees it |
| ``_decide.py``, ``_room.py`` | what becomes of every saved value, and how much memory there is |
| ``_insert.py``, ``_operators.py`` | the decision written into the program |
| ``_store.py`` | the values that are away |
| ``_regions.py`` | what happens while a compiled program runs |
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable

import torch


def when_used(session: Any) -> Callable[[], None]:
    """Sets a session up for compiled programs when the first one is asked for; gives what takes that down again.

    The compiler takes seconds to import, so a program that does not use it does without.
    """
    made: list[Any] = []

    def begin() -> None:
        if not made:
            from ._compiled import Compiled

            made.append(Compiled(session))
            session._compiled = made[0]
            made[0].enter()

    plain = torch.compile

    @functools.wraps(plain)
    def compile(*args: Any, **kwargs: Any) -> Any:
        begin()
        return plain(*args, **kwargs)

    if "torch._dynamo" in sys.modules:
        begin()
    else:
        torch.compile = compile  # type: ignore[assignment]

    def end() -> None:
        if torch.compile is compile:
            torch.compile = plain  # type: ignore[assignment]
        for compiled in made:
            compiled.leave()

    return end

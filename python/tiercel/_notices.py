"""Notices that a program's iterations differ, says so once, and shows what is known of its paths."""

from __future__ import annotations

import logging
from typing import Any

from ._tiercel import Paths

_log = logging.getLogger("tiercel")
#: Iterations before anything is said: every program begins with one that makes its optimizer's states.
_FIRST = 8


class Notices:
    """What was said of a program's paths."""

    def __init__(self) -> None:
        self.said = False
        self.known = 0

    def look(self, runtime: Any) -> None:
        """An iteration has ended."""
        if self.said or runtime.iteration < _FIRST:
            return
        known, new = runtime.paths.size[0], runtime.paths.new_in_a_row
        if known == self.known and runtime.iteration % _FIRST:
            return
        self.known = known
        again = sum(sum(fact[4]) > 1 for fact in runtime.paths.facts()) if known <= 16 else 2
        if new >= _FIRST:
            self.said = True
            _log.warning("tiercel: no iteration repeats another one so far (%d seen): operations are served as they come", runtime.iteration)
        elif again >= 2:
            self.said = True
            _log.warning("tiercel: iterations differ: %d sequences of operations so far; each that comes again gets a plan (tiercel.explain() says more)", known)


def paths(runtime: Any) -> dict:
    """What is known of the paths of a program, in plain data."""
    rows = []
    for _, name, planned, operations, counts, seconds in runtime.paths.facts():
        demand, hit, turned, missed = counts
        rows.append({"name": f"{name:016x}", "planned": planned, "operations": operations, "count": sum(counts), "hits": hit, "turned": turned,
                     "missed": missed, "on_demand": demand, "seconds": {"hit": seconds[1], "turned": seconds[2], "missed": seconds[3], "on_demand": seconds[0]}})
    known, symbols = runtime.paths.size
    total = {what: sum(row[what] for row in rows) for what in ("count", "hits", "turned", "missed", "on_demand")}
    return {"known": known, "planned": sum(row["planned"] for row in rows), "operations": symbols, "most_bytes": Paths.most_bytes(),
            "plans": sum(1 for _ in runtime.plans.all()), "miss_seconds": runtime.paths.lost, **total, "paths": rows}


def words(runtime: Any) -> list[str]:
    """The same in sentences; nothing where there is one path."""
    found = paths(runtime)
    if found["known"] < 2:
        return []
    lines = [f"Iterations took {found['known']} paths, {found['planned']} of which have plans: {found['hits']} were begun with the right plan, "
             f"{found['turned']} went on with another one, {found['missed']} came to an end on demand, {found['on_demand']} were on demand from the beginning."]
    if found["miss_seconds"] is not None:
        lines.append(f"A wrong guess costs {found['miss_seconds'] * 1e3:.3g} ms on average over the path's own plan.")
    often = sorted(found["paths"], key=lambda row: -row["count"])[:5]
    lines.append("Most often came: " + ", ".join(f"{row['operations']} operations ({row['count']} times)" for row in often) + ".")
    return lines


def notes(runtime: Any) -> list[str]:
    """The same for the page: a line for all paths, and one for each of those that came most often."""
    found = paths(runtime)
    if found["known"] < 2:
        return []
    miss = "not measured" if found["miss_seconds"] is None else f"{found['miss_seconds'] * 1e3:.3g} ms on average"
    lines = [f"Paths (measured): {found['known']} sequences of operations came in {found['count']} iterations; {found['hits']} iterations were begun with "
             f"their own plan, {found['turned']} went on with another plan, {found['missed']} ended on demand, {found['on_demand']} were on demand "
             f"from the beginning. What a wrong guess costs: {miss}."]
    for row in sorted(found["paths"], key=lambda row: -row["count"])[:12]:
        times = ", ".join(f"{what.replace('_', ' ')} {seconds * 1e3:.3g} ms" for what, seconds in row["seconds"].items() if seconds is not None)
        lines.append(f"Path {row['name'][:8]}: {row['operations']} operations, {row['count']} times; {times}.")
    return lines

"""What a session has learned of a program, in a file: its paths, and plans for those that came most often.

The file's name is a hash of the program as far as it shows after its first iteration: its parameters and optimizer, the limit and the
device, the versions of everything. So another program finds nothing. Nor is what is found trusted: its digest must be right, every plan
is played without bytes (`_verify.py`) before it is taken up, and while it is followed each operation is compared as ever. What is wrong is
left out, without an error: it is learned anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import zlib
from pathlib import Path
from typing import Any, Optional, Union

import torch

from ._plans import Known
from ._script import LET, Script
from ._sequence import Sequence, Step
from ._tiercel import __version__
from ._verify import verify

_FORMAT = 1
#: The most plans and operations of a file, its most bytes, and the files of a folder.
_PLANS, _STEPS, _BYTES, _FILES = 16, 1 << 16, 64 << 20, 32
#: Storages of another process have numbers below this.
_FOREIGN = -(1 << 40)


def folder() -> Path:
    """Where files are kept: ``$XDG_CACHE_HOME/tiercel/learned``, or in ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tiercel" / "learned"


def guard(runtime: Any, optimizer: torch.optim.Optimizer) -> str:
    """A hash of the program."""
    device = torch.cuda.get_device_name(runtime.device) if runtime.on_gpu else "cpu"
    facts: list[Any] = [_FORMAT, __version__, torch.__version__, sys.version_info[:3], device, runtime.limit, runtime.least, runtime.system, runtime.machine]
    facts.append(type(optimizer).__qualname__)
    for group in optimizer.param_groups:
        facts.append([(key, value) for key, value in sorted(group.items()) if isinstance(value, (bool, type(None)))])
        facts.append([(tuple(p.shape), str(p.dtype), p.requires_grad) for p in group["params"]])
    return hashlib.sha256(repr(facts).encode()).hexdigest()


class Learned:
    """The file of a session."""

    def __init__(self, where: Union[bool, str, os.PathLike]) -> None:
        self.where = where
        self.guard: Optional[str] = None
        #: What became of the file: ``none``, ``taken up`` with how many plans, or why it was not.
        self.said = "nothing has been looked for yet"

    def path(self) -> Optional[Path]:
        """The file, once the program is known."""
        if self.guard is None or self.where is False:
            return None
        return folder() / f"{self.guard[:32]}.paths" if self.where is True else Path(self.where)  # type: ignore[arg-type]

    def first(self, runtime: Any, optimizer: torch.optim.Optimizer) -> None:
        """The first iteration has ended: takes up what is known of the program."""
        self.guard = guard(runtime, optimizer)
        path = self.path()
        if path is None:
            self.said = "nothing is kept"
            return
        try:
            if not path.exists():
                self.said = f"{path}: nothing there yet"
                return
            kept = _read(path, self.guard)
            runtime.paths.load(kept["paths"])
            taken, why = 0, ""
            for one in kept["plans"][:_PLANS]:
                try:
                    taken += _take_up(runtime, one)
                except Exception as error:  # this plan is not sound; others may be
                    why = f" ({type(error).__name__}: {error})"
            self.said = f"{path}: {taken} of {len(kept['plans'])} plans taken up{why}"
        except Exception as error:  # whatever a file may hold: without it everything is learned anew
            self.said = f"{path}: not used ({error})"

    def save(self, runtime: Any) -> None:
        """Keeps what has been learned, if anything has."""
        path = self.path()
        plans = sorted((known for known in runtime.plans.all() if known.followed), key=lambda known: -known.followed)
        if path is None or not plans:
            return
        kept, left = [], _STEPS
        for known in plans[:_PLANS]:
            left -= len(known.sequence.steps)
            name = runtime.paths.name(known.leaf)
            if name is not None and (left >= 0 or not kept):
                kept.append(_plain(known, name))
        body = zlib.compress(json.dumps({"guard": self.guard, "paths": runtime.paths.save(), "plans": kept}).encode(), 6)
        if len(body) > _BYTES:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f"{path.name}.{os.getpid()}")
            beside.write_bytes(hashlib.sha256(body).digest() + body)
            os.replace(beside, path)
            if self.where is True:
                files = sorted(path.parent.glob("*.paths"), key=lambda file: file.stat().st_mtime, reverse=True)
                for old in files[_FILES:]:
                    old.unlink(missing_ok=True)
        except OSError as error:
            self.said = f"{path}: not written ({error})"


def _read(path: Path, guard: str) -> dict:
    if path.stat().st_size > _BYTES + 32:
        raise ValueError("it is too large")
    content = path.read_bytes()
    if hashlib.sha256(content[32:]).digest() != content[:32]:
        raise ValueError("it is damaged")
    # What unpacks to more than this is none of ours.
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(content[32:], 16 * _BYTES)
    if unpacker.unconsumed_tail:
        raise ValueError("it is too large")
    kept = json.loads(text)
    if kept["guard"] != guard:
        raise ValueError("it is of another program")
    return kept


def _plain(known: Known, name: int) -> dict:
    sequence, script = known.sequence, known.script
    steps = [(str(s.func), s.view, s.slots, s.written, s.new, s.group, s.first, s.last, s.where, s.small, s.length, s.cuts, s.once, s.count)
             for s in sequence.steps]
    return {"name": name, "steps": steps, "groups": sequence.groups, "bytes": sequence.bytes, "numbers": sequence.numbers, "persistent": sequence.persistent,
            "symbols": sequence.symbols, "holds": sorted(sequence.holds.items()), "before": script.before, "after": script.after, "away": sorted(script.away), "lazy": script.lazy,
            "prediction": known.prediction}


def _operation(name: str) -> Any:
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    if str(found) != name:
        raise ValueError(f"there is no operation {name}")
    return found


def _take_up(runtime: Any, plain: dict) -> bool:
    """Takes up a plan, if it is sound."""
    plans, leaf = runtime.plans, runtime.paths.leaf(plain["name"])
    if leaf is None:
        return False
    sequence = Sequence.__new__(Sequence)
    sequence.groups, sequence.bytes = plain["groups"], [int(n) for n in plain["bytes"]]
    sequence.persistent, sequence.symbols = [bool(stay) for stay in plain["persistent"]], plain["symbols"]
    sequence.numbers = [_FOREIGN - 2 * abs(int(number)) - (number < 0) for number in plain["numbers"]]
    sequence.steps = [_step(row) for row in plain["steps"]]
    sequence.later = {}
    sequence.holds = {int(at): [int(slot) for slot in slots] for at, slots in plain["holds"]}
    _check(sequence)
    _group(sequence)
    sequence._measure()
    acts = [[[(int(act), int(slot)) for act, slot in one if act != LET] for one in plain[side]] for side in ("before", "after")]
    script = Script(sequence.groups, sequence.bytes, sequence.persistent, acts[0], acts[1], set(plain["away"]), bool(plain["lazy"]), plans.home_of(sequence))
    verify(sequence, script, runtime.limit)
    if script.nbytes > plans.homes.bottom:
        raise ValueError("slow memory is too small for it")
    said = plain["prediction"]
    prediction = {key: float(said[key]) for key in ("seconds", "all_fast")} | {key: int(said[key]) for key in ("peak", "fetched", "evicted")}
    prediction["bound"] = None if said["bound"] is None else float(said["bound"])
    plans.planned = Known(leaf, sequence, script, prediction)
    plans.planned.doubted = True
    plans.take_up()
    return True



def _step(row: list) -> Step:
    step = Step.__new__(Step)
    name, step.view, slots, written, new, step.group, step.first, step.last, where, small, step.length, cuts, step.once, step.count = row
    step.func = _operation(name)
    step.call = getattr(step.func, "_op", step.func)
    step.slots, step.written, step.new, step.small = tuple(slots), tuple(written), tuple(new), tuple(small)
    step.where = tuple(None if place is None else tuple(place) for place in where)
    step.cuts = None if cuts is None else tuple(cuts)
    step.find()
    return step


def _check(sequence: Sequence) -> None:
    """Whether numbers name what there is, and steps go through groups in order."""
    count, groups, at = len(sequence.bytes), len(sequence.groups), 0
    if not len(sequence.persistent) == len(sequence.numbers) == count or len(sequence.symbols) != len(sequence.steps) or min(sequence.bytes, default=1) <= 0:
        raise ValueError("lists of other lengths")
    if not all(0 <= before <= groups and all(0 <= slot < count for slot in slots) for before, slots in sequence.holds.items()):
        raise ValueError("storages are held that there are not")
    for step in sequence.steps:
        if not all(0 <= slot < count for slot in (*step.slots, *step.new)) or not (step.group == -1 or at <= step.group < groups):
            raise ValueError("a step that names what is not there")
        at = max(at, step.group)


def _group(sequence: Sequence) -> None:
    """Works out anew what groups read and write, and which steps begin and end them."""
    fresh: dict[int, None] = {}
    begun: set[int] = set()
    for group in sequence.groups:
        group["reads"], group["writes"], group["once"] = [], [], False
        group["nanos"], group["workspace"] = float(group["nanos"]), max(0, int(group["workspace"]))
    for step in sequence.steps:
        step.last = False
        if step.group < 0:
            if step.slots or step.new:
                raise ValueError("a step without a group")
            continue
        group = sequence.groups[step.group]
        step.first = step.group not in begun
        begun.add(step.group)
        if len(step.written) != len(step.slots) or any(slot in fresh or sequence.persistent[slot] for slot in step.new):
            raise ValueError("a storage that is made twice")
        for slot, written in zip(step.slots, step.written):
            if not sequence.persistent[slot] and slot not in fresh:
                raise ValueError("a storage that is used before it is made")
            if slot not in group["reads"] and slot not in group["writes"]:
                group["reads"].append(slot)
            if written and slot not in group["writes"]:
                group["writes"].append(slot)
        fresh.update(dict.fromkeys(step.new))
        group["writes"].extend(step.new)
        group["once"] = group["once"] or bool(step.once)
    for at in range(len(sequence.groups)):
        if at not in begun:
            raise ValueError("a group without steps")
    ended: set[int] = set()
    for step in reversed(sequence.steps):
        if step.group >= 0 and step.group not in ended:
            step.last = True
            ended.add(step.group)

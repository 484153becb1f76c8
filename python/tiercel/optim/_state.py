"""The state as a dictionary: the layout of ``torch.optim.AdamW``, with a few entries more that it ignores.

``master_param`` is there where the model does not say it: parameters of 16 bits, and a delayed update that has not reached the
model. The entry ``tiercel`` says whether updates are delayed, from which step on, and how many steps there were.
"""

from __future__ import annotations

import copy
from typing import Any, Iterator

import torch

from ._buckets import Bucket, Slot
from ._memory import numbers

__all__ = ["gather", "numbers", "take"]


def _indexed(optimizer: Any) -> Iterator[tuple[int, Bucket | None, Slot | None]]:
    """Parameters by number, as ``state_dict`` counts them, with their places."""
    index = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            bucket, slot = optimizer._slots.get(parameter, (None, None))
            yield index, bucket, slot
            index += 1


@torch.no_grad()
def gather(optimizer: Any, packed: dict, sharded: bool) -> dict:
    """The state of all ranks, or of this one."""
    ranks, ahead = optimizer._ranks, bool(optimizer._ahead)
    places: dict[int, list[tuple[int, Slot]]] = {}
    for index, bucket, slot in _indexed(optimizer):
        places.setdefault(id(bucket), []).append((index, slot))
    state: dict[int, dict] = {}
    for bucket in optimizer._buckets:
        optimizer._roads[bucket.device].states(bucket)
        with bucket.states(changed=False) as (master, first, second):
            arrays = {"exp_avg": first, "exp_avg_sq": second}
            if bucket.dtype != torch.float32 or ahead:
                arrays["master_param"] = master
            if ranks.ranks > 1 and not sharded:
                arrays = {name: _whole(ranks, bucket, array) for name, array in arrays.items()}
            for index, slot in places.get(id(bucket), ()):
                if slot.step or bucket.dtype != torch.float32:
                    state[index] = _entry(ranks, bucket, slot, arrays, sharded)
    packed["state"] = dict(sorted(state.items()))
    packed["tiercel"] = {
        "steps": optimizer._steps,
        "delayed_after": optimizer._delayed_after,
        "ahead": ahead,
        "sharded": (ranks.rank, ranks.ranks) if sharded else None,
    }
    return packed


def _entry(ranks: Any, bucket: Bucket, slot: Slot, arrays: dict[str, torch.Tensor], sharded: bool) -> dict[str, Any]:
    """One parameter's state."""
    entry: dict[str, Any] = {"step": torch.tensor(float(slot.step))}
    where = bucket.inside(slot)
    for name, array in arrays.items():
        if sharded:
            entry[name] = array[where[0]].to("cpu", copy=True) if where else torch.zeros(0)
            entry["part"] = (where[1].start, where[1].stop) if where else (0, 0)
        else:
            start = slot.start if ranks.ranks > 1 else slot.start - bucket.start
            entry[name] = array[start : start + slot.count].to("cpu", copy=True).view(slot.parameter.shape)
    return entry


def _whole(ranks: Any, bucket: Bucket, part: torch.Tensor) -> torch.Tensor:
    """An array of all ranks."""
    device = ranks._device()
    full = torch.empty(bucket.total, dtype=part.dtype, device=device)
    ranks.gather(full, part.to(device))
    return full.cpu()


@torch.no_grad()
def take(optimizer: Any, base: Any, state_dict: dict) -> None:
    """Loads a state."""
    own = dict(state_dict.get("tiercel") or {})
    sharded = own.get("sharded")
    if sharded is not None and tuple(sharded) != (optimizer._ranks.rank, optimizer._ranks.ranks):
        raise ValueError(f"this is the part of rank {sharded[0]} of {sharded[1]}; with other ranks load a whole state")
    bare = {key: value for key, value in state_dict.items() if key != "tiercel"}
    bare["state"] = {}
    decoupled = [group["decoupled_weight_decay"] for group in optimizer.param_groups]
    base.load_state_dict(copy.deepcopy(bare))
    for group, kind in zip(optimizer.param_groups, decoupled):
        group.setdefault("decoupled_weight_decay", kind)
    # The base class has made new groups.
    groups = {parameter: group for group in optimizer.param_groups for parameter in group["params"]}
    for bucket in optimizer._buckets:
        bucket.group = groups[bucket.slots[0].parameter]
        optimizer._roads[bucket.device].states(bucket)
    # Parameters are matched by their order, whatever a state calls them.
    known = [state_dict["state"].get(name) for group in state_dict["param_groups"] for name in group["params"]]
    places: dict[int, list[tuple[Slot, Any]]] = {}
    for index, bucket, slot in _indexed(optimizer):
        places.setdefault(id(bucket), []).append((slot, known[index]))
    for bucket in optimizer._buckets:
        with bucket.states(changed=True) as states:
            for slot, entry in places.get(id(bucket), ()):
                _put(bucket, slot, states, entry, sharded is not None)
    own.setdefault("steps", max((slot.step for _, slot in optimizer._slots.values()), default=0))
    optimizer._taken(own)


def _put(bucket: Bucket, slot: Slot, states: tuple, entry: Any, sharded: bool) -> None:
    """Loads one parameter's state."""
    where = bucket.inside(slot)
    slot.step = 0 if entry is None else int(entry["step"])
    slot.version = slot.parameter._version
    if entry is None or "master_param" not in entry:
        bucket.read_master(slot, states[0], False)
    if where is None:
        return
    for name, array in zip(("master_param", "exp_avg", "exp_avg_sq"), states):
        if entry is None:
            if name != "master_param":
                array[where[0]] = 0.0
        elif name in entry:
            values = entry[name].reshape(-1)
            array[where[0]] = (values if sharded else values[where[1]]).to("cpu", torch.float32)

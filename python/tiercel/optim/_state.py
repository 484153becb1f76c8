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
    state: dict[int, dict] = {}
    flat: dict[int, dict[str, torch.Tensor]] = {}
    for bucket in optimizer._buckets:
        optimizer._roads[bucket.device].states(bucket)
        arrays = {"exp_avg": bucket.first, "exp_avg_sq": bucket.second}
        if bucket.dtype != torch.float32 or ahead:
            arrays["master_param"] = bucket.master
        if ranks.ranks > 1 and not sharded:
            arrays = {name: _whole(ranks, bucket, array) for name, array in arrays.items()}
        flat[id(bucket)] = arrays
    for index, bucket, slot in _indexed(optimizer):
        if bucket is None or (slot.step == 0 and bucket.dtype == torch.float32):
            continue
        entry: dict[str, Any] = {"step": torch.tensor(float(slot.step))}
        for name, array in flat[id(bucket)].items():
            if sharded:
                where = bucket.inside(slot)
                entry[name] = array[where[0]].to("cpu", copy=True) if where else torch.zeros(0)
                entry["part"] = (where[1].start, where[1].stop) if where else (0, 0)
            else:
                start = slot.start if ranks.ranks > 1 else slot.start - bucket.start
                entry[name] = array[start : start + slot.count].to("cpu", copy=True).view(slot.parameter.shape)
        state[index] = entry
    packed["state"] = state
    packed["tiercel"] = {
        "steps": optimizer._steps,
        "delayed_after": optimizer._delayed_after,
        "ahead": ahead,
        "sharded": (ranks.rank, ranks.ranks) if sharded else None,
    }
    return packed


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
    for index, bucket, slot in _indexed(optimizer):
        if bucket is None:
            continue
        entry = known[index]
        where = bucket.inside(slot)
        slot.step = 0 if entry is None else int(entry["step"])
        slot.version = slot.parameter._version
        if entry is None or "master_param" not in entry:
            bucket.read_master(slot, None)
        if where is None:
            continue
        for name, array in (("exp_avg", bucket.first), ("exp_avg_sq", bucket.second), ("master_param", bucket.master)):
            if entry is None:
                if name != "master_param":
                    array[where[0]] = 0.0
            elif name in entry:
                values = entry[name].reshape(-1)
                array[where[0]] = (values if sharded is not None else values[where[1]]).to("cpu", torch.float32)
    own.setdefault("steps", max((slot.step for _, slot in optimizer._slots.values()), default=0))
    optimizer._taken(own)

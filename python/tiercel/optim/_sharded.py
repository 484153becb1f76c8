"""The state for ``torch.distributed.checkpoint``: each rank writes and reads its own part, and any number of ranks may read it.

``dcp.save({"optimizer": tiercel.optim.Sharded(optimizer)}, checkpoint_id=folder)`` writes it, ``dcp.load`` the same way reads it.

Moments and masters of a parameter are flat there, because a bucket is cut anywhere. They are the optimizer's own memory: nothing
is gathered, and loading writes into place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed._shard.sharded_tensor import Shard, ShardedTensor, ShardedTensorMetadata
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor.metadata import TensorProperties

from ._buckets import Bucket, Slot
from ._state import _indexed

ARRAYS = (("master_param", 0), ("exp_avg", 1), ("exp_avg_sq", 2))


class Sharded:
    """An optimizer's state for ``torch.distributed.checkpoint``, with one rank or several. All ranks save and load together."""

    def __init__(self, optimizer: Any) -> None:
        if any(bucket.held is None for bucket in optimizer._buckets):
            raise ValueError("Sharded: states that lie in a file are saved by state_dict()")
        self.optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        """Parts of arrays, and what is the same for all ranks."""
        optimizer = self.optimizer
        optimizer._not_open("give its state")
        optimizer._updates_ended()
        state: dict[str, dict[str, Any]] = {}
        for index, bucket, slot in _indexed(optimizer):
            if bucket is not None:
                optimizer._roads[bucket.device].states(bucket)
                state[str(index)] = {name: _part(optimizer._ranks, bucket, slot, bucket.held[array]) for name, array in ARRAYS}
        groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
        steps = [0 if slot is None else slot.step for _, _, slot in _indexed(optimizer)]
        shared = {"steps": optimizer._steps, "delayed_after": optimizer._delayed_after, "ahead": bool(optimizer._ahead), "each": steps}
        return {"state": state, "shared": {"tiercel": shared, "groups": groups}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Arrays have been written in place; this takes the rest."""
        optimizer, shared = self.optimizer, state_dict["shared"]["tiercel"]
        if len(shared["each"]) != len(list(_indexed(optimizer))):
            raise ValueError(f"a state of {len(shared['each'])} parameters for an optimizer of {len(list(_indexed(optimizer)))}")
        optimizer._taken(shared)
        for group, known in zip(optimizer.param_groups, state_dict["shared"]["groups"]):
            group.update(known)
        for (_, bucket, slot), step in zip(_indexed(optimizer), shared["each"]):
            if slot is not None:
                slot.step, slot.version = step, slot.parameter._version


def _part(ranks: Any, bucket: Bucket, slot: Slot, array: torch.Tensor) -> torch.Tensor:
    """A parameter's numbers of an array: a tensor for one rank, this rank's part of one for several."""
    mine = bucket.inside(slot)
    if ranks.ranks == 1:
        return array[mine[0]]
    shards = []
    for rank in range(ranks.ranks):
        begin, end = max(slot.start, bucket.part * rank), min(slot.start + slot.count, bucket.part * (rank + 1))
        if begin < end:
            shards.append(ShardMetadata([begin - slot.start], [end - begin], f"rank:{ranks.global_rank(rank)}/cpu"))
    whole = ShardedTensorMetadata(shards, torch.Size([slot.count]), TensorProperties(dtype=array.dtype))
    here = [Shard(array[mine[0]], shard) for shard in shards if mine is not None and shard.shard_offsets == [mine[1].start]]
    return ShardedTensor._init_from_local_shards_and_global_metadata(here, whole, process_group=ranks.group)

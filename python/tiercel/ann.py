"""Vector indexes that may be larger than fast memory, with the verbs of hnswlib.

>>> import numpy as np
>>> from tiercel import ann
>>> index = ann.Index(dim=4, metric="l2")
>>> index.add_items(np.eye(4, dtype=np.float32))
>>> labels, distances = index.knn_query([1, 0, 0, 0], k=1)
>>> int(labels[0, 0]), float(distances[0, 0])
(0, 0.0)

A program for hnswlib changes its import: ``from tiercel import ann as hnswlib``. With ``fast="2GiB"`` (or ``"20%"``) an index
keeps its vectors in its file from the moment that it is saved, and searches take no more memory than that. Arrays of numpy are
read where they lie, other Python threads run meanwhile, and PyTorch is not needed. ``Sharded`` spreads an index over processes.
"""

from __future__ import annotations

from ._ann import NOBODY, Amount, Filter, Index, Path
from ._sharded import Sharded, ShardLost
from ._tiercel import DamagedIndex

__all__ = ["Index", "Sharded", "ShardLost", "DamagedIndex", "NOBODY", "Amount", "Filter", "Path"]

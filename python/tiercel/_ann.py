"""One index for Python: what hnswlib's users know, over `_tiercel.AnnIndex`."""

from __future__ import annotations

import os
from typing import Any, Callable, Optional, Sequence, Union

import numpy as np

from . import _tiercel

#: The label of a neighbour that there is none of: an index with fewer vectors than were asked for.
NOBODY = np.uint64(2**64 - 1)

Path = Union[str, "os.PathLike[str]"]
Amount = Union[str, int, float]
#: A callable that says of each label whether it counts, one bool a label, or the labels that count.
Filter = Union[Callable[[int], bool], np.ndarray, Sequence[int]]

_TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "uint8": "u8", "int8": "i8"}
_KEPT = ("f32", "f16", "bf16", "u8", "i8")


def _amount(amount: Optional[Amount]) -> Optional[str]:
    """`2GiB`, `20%`; whole numbers are bytes, others shares."""
    if amount is None or isinstance(amount, str):
        return amount
    if isinstance(amount, int):
        return f"{amount}"  # parsed as bytes
    return f"{100 * amount}%"


def _kept(dtype: Any) -> str:
    """The name of a type that numbers are kept as."""
    if isinstance(dtype, str) and dtype in (*_KEPT, "bfloat16"):
        return _TYPES.get(dtype, dtype)
    try:
        return _TYPES[np.dtype(dtype).name]
    except (KeyError, TypeError):
        raise ValueError(f"numbers cannot be kept as {dtype}; there are {', '.join(_KEPT)}") from None


def _rows(vectors: Any, dim: int) -> np.ndarray:
    """Vectors as rows of numbers that an index takes; no copy where they already are."""
    array = np.asarray(vectors)
    if array.dtype.name == "bfloat16":
        array = array.view(np.uint16)
    elif array.dtype.name not in _TYPES:
        if array.dtype.kind not in "fiub":
            raise TypeError(f"vectors of {array.dtype} cannot be kept")
        array = array.astype(np.float32)
    if array.ndim == 1 and (len(array) == dim or not len(array)):
        array = array.reshape(-1, dim)
    if array.ndim != 2 or array.shape[1] != dim:
        raise ValueError(f"vectors are rows of {dim} numbers; these have the shape {array.shape}")
    return np.require(array, requirements=["C", "A"])


def _labels(labels: Any) -> np.ndarray:
    array = np.atleast_1d(np.asarray(labels))
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"labels are whole numbers, not {array.dtype}")
    if array.dtype.kind == "i" and array.size and array.min() < 0:
        raise ValueError(f"labels are 0 or more; {array.min()} is not")
    return np.require(array.reshape(-1), dtype=np.uint64, requirements=["C", "A"])


def _filter(filter: Optional[Filter]) -> Any:
    if filter is None or callable(filter):
        return filter
    array = np.asarray(filter)
    if array.dtype == np.bool_:
        return np.require(array.reshape(-1), requirements=["C"])
    chosen = _labels(array)
    bits = np.zeros(int(chosen.max()) + 1 if chosen.size else 0, dtype=np.bool_)
    bits[chosen] = True
    return bits


class Index:
    """Vectors with labels in, the nearest out.

    ``metric`` is ``l2`` (squared), ``ip`` or ``cosine``; ``dtype`` what numbers are kept as: ``f32``, ``f16``, ``bf16``,
    ``u8`` or ``i8``, or numpy's names of them. ``fast`` is the memory of searches, in bytes, ``"2GiB"`` or ``"20%"`` of what the
    index takes in memory; ``slow`` is where vectors are then: by default the index's own file, ``file:FOLDER``, ``numa:N``,
    ``dax:PATH`` or ``throttled`` (an emulation). The limit counts from the first :meth:`save` or :meth:`load` on: what is not saved
    yet, and what is changed, is in memory whole. The same calls and seed give the same index, however many threads work.

    ``space`` is hnswlib's word for ``metric``, and ``init_index`` takes what hnswlib's does.
    """

    def __init__(
        self,
        dim: Union[int, str, None] = None,
        metric: Union[str, int] = "l2",
        dtype: Any = "f32",
        fast: Optional[Amount] = None,
        slow: Optional[str] = None,
        *,
        space: Optional[str] = None,
        m: int = 16,
        ef_construction: int = 200,
        seed: int = 0,
        threads: Optional[int] = None,
    ) -> None:
        if isinstance(dim, str):
            # hnswlib has the space first.
            space, dim = dim, None if isinstance(metric, str) else metric
        if dim is None:
            raise TypeError("an index needs the number of dimensions: dim=…")
        kept = _kept(dtype)
        self._made: dict[str, Any] = dict(
            dim=int(dim), metric=space or metric, dtype=kept, m=m, ef_construction=ef_construction, seed=seed,
            fast=_amount(fast), slow=slow,
        )
        self.num_threads = threads or os.cpu_count() or 1
        self._ef: Optional[int] = None
        self._most = 0
        #: What the last search read of the slow tier: reads, bytes, groups of pages at hand, distances computed.
        self.last_moved: dict[str, int] = {}
        self._inner = _tiercel.AnnIndex(**self._made, threads=self.num_threads)

    # What is hnswlib's.

    def init_index(
        self,
        max_elements: int = 0,
        M: int = 16,
        ef_construction: int = 200,
        random_seed: int = 100,
        allow_replace_deleted: bool = False,
    ) -> None:
        """Empties the index and sets how it is built. It grows by itself, and memory of removed vectors is always used again."""
        self._made.update(m=M, ef_construction=ef_construction, seed=random_seed)
        self._most = max_elements
        self._inner = _tiercel.AnnIndex(**self._made, threads=self.num_threads)

    def set_num_threads(self, num_threads: int) -> None:
        """How many threads calls use that say nothing of it."""
        self.num_threads = max(1, num_threads)

    def resize_index(self, new_size: int) -> None:
        """Nothing to do: the index grows by itself."""
        if new_size < len(self):
            raise RuntimeError(f"the index holds {len(self)} vectors, more than {new_size}")
        self._most = new_size

    def _threads(self, threads: int) -> int:
        return threads if threads > 0 else self.num_threads

    def add_items(
        self, data: Any, ids: Any = None, num_threads: int = -1, replace_deleted: bool = False
    ) -> None:
        """Adds vectors. One whose label is there already takes its place; without labels they are numbered on.

        Where one of them cannot be kept (not finite, or not a whole number from 0 to 255 for ``u8``), none is added.
        """
        rows = _rows(data, self.dim)
        labels = None if ids is None else _labels(ids)
        self._inner.add_items(rows, labels, self._threads(num_threads))

    def knn_query(
        self,
        data: Any,
        k: int = 1,
        num_threads: int = -1,
        filter: Optional[Filter] = None,
        *,
        ef: Optional[int] = None,
        recall: Optional[float] = None,
        rerank: Optional[int] = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The labels (uint64) and distances (float32) of the ``k`` nearest of each query, nearest first.

        Where the index has fewer, labels are ``NOBODY`` and distances infinite. ``filter`` is a callable of labels, an array of one
        bool a label, or the labels that count. With vectors in the file ``recall`` (0.95 where neither it nor ``ef`` is set) chooses
        the width of the beam and how many vectors are read; ``ef`` and ``rerank`` set both.
        """
        rows = _rows(data, self.dim)
        labels = np.empty((len(rows), k), dtype=np.uint64)
        distances = np.empty((len(rows), k), dtype=np.float32)
        ef = ef if ef is not None or recall is not None else self._ef
        moved = self._inner.knn_query(
            rows, k, (ef, recall, rerank), self._threads(num_threads), _filter(filter), labels, distances
        )
        self.last_moved = dict(zip(("reads", "bytes", "kept", "distances"), moved))
        return labels, distances

    def set_ef(self, ef: int) -> None:
        """How wide the beam of searches is that say nothing of it: wider finds more and takes longer."""
        if ef < 1:
            raise ValueError(f"the width of a beam is at least 1; {ef} is not")
        self._ef = ef
        self._inner.set_ef(ef)

    ef = property(lambda self: self._ef or 64, set_ef, doc="How wide the beam of searches is.")

    def remove(self, labels: Any) -> None:
        """Removes vectors: they are found no more, and their memory is used again. KeyError where one is not there."""
        self._inner.remove(_labels(labels), self.num_threads)

    def update(self, labels: Any, data: Any) -> None:
        """Gives labels that are there other vectors. KeyError where one is not there."""
        labels = _labels(labels)
        missing = np.setdiff1d(labels, np.asarray(self.get_ids_list(), dtype=np.uint64))
        if missing.size:
            raise KeyError(f"the index holds no vector with the label {missing[0]}")
        self.add_items(data, labels)

    def mark_deleted(self, label: int) -> None:
        """Removes a vector, as :meth:`remove`; RuntimeError where it is not there, as with hnswlib."""
        try:
            self.remove(label)
        except KeyError as error:
            raise RuntimeError(error.args[0]) from None

    def unmark_deleted(self, label: int) -> None:
        """Cannot be done: what is removed here is gone."""
        raise RuntimeError("removed vectors are really gone here: add them again")

    def get_items(self, ids: Any = None, return_type: str = "numpy") -> Any:
        """The vectors with these labels as they are kept, of length one for ``cosine``. KeyError where one is not there."""
        if return_type not in ("numpy", "list"):
            raise ValueError("return_type is numpy or list")
        labels = _labels([] if ids is None else ids)
        vectors = np.empty((len(labels), self.dim), dtype=np.float32)
        self._inner.vectors(labels, vectors)
        return vectors if return_type == "numpy" else vectors.tolist()

    def get_ids_list(self) -> list[int]:
        """All labels, in rising order."""
        labels = np.empty(len(self), dtype=np.uint64)
        self._inner.labels(labels)
        return labels.tolist()

    def save_index(self, path: Path, code_bits: Optional[int] = None) -> None:
        """Writes the index to a file, whole or not at all: a crash leaves what was there before.

        With a limit of memory it goes on in that file. ``code_bits`` (1, 2, 4 or 8 a number; as many as fit where it is not said)
        are those of the short codes that stay in fast memory.
        """
        self._inner.save(os.fspath(path), code_bits, self.num_threads)

    def load_index(self, path: Path, max_elements: int = 0, allow_replace_deleted: bool = False) -> None:
        """Takes the index in a file: all of it to memory, or as much as ``fast`` says."""
        inner = _tiercel.AnnIndex.load(os.fspath(path), self._made["fast"], self._made["slow"], self.num_threads)
        dim, metric, dtype, m, ef_construction, seed = inner.spec()
        if dim != self.dim:
            raise RuntimeError(f"{os.fspath(path)}: its vectors have {dim} numbers, and this index is for {self.dim}")
        self._made.update(dim=dim, metric=metric, dtype=dtype, m=m, ef_construction=ef_construction, seed=seed)
        self._inner, self._most = inner, max_elements
        if self._ef is not None:
            inner.set_ef(self._ef)

    save = save_index
    load = load_index

    @classmethod
    def open(
        cls, path: Path, fast: Optional[Amount] = None, slow: Optional[str] = None, threads: Optional[int] = None
    ) -> "Index":
        """The index in a file; what it is made for is in the file."""
        threads = threads or os.cpu_count() or 1
        inner = _tiercel.AnnIndex.load(os.fspath(path), _amount(fast), slow, threads)
        dim, metric, dtype, m, ef_construction, seed = inner.spec()
        index = cls.__new__(cls)
        index._made = dict(
            dim=dim, metric=metric, dtype=dtype, m=m, ef_construction=ef_construction, seed=seed,
            fast=_amount(fast), slow=slow,
        )
        index.num_threads, index._ef, index._most, index.last_moved, index._inner = threads, None, 0, {}, inner
        return index

    def __len__(self) -> int:
        return self._inner.state()[0]

    def get_current_count(self) -> int:
        """How many vectors it holds."""
        return len(self)

    def get_max_elements(self) -> int:
        """How many vectors were announced, or there are: the index grows by itself."""
        return max(self._most, len(self))

    element_count = property(get_current_count, doc="How many vectors it holds.")
    max_elements = property(get_max_elements, doc="How many vectors were announced, or there are.")
    dim: int = property(lambda self: self._made["dim"], doc="How many numbers a vector has.")  # type: ignore[assignment]
    space = property(lambda self: self._made["metric"], doc="What near means.")
    metric = space
    dtype = property(lambda self: self._made["dtype"], doc="What numbers are kept as.")
    M = property(lambda self: self._made["m"], doc="Links a node, twice as many on the lowest level.")
    ef_construction = property(lambda self: self._made["ef_construction"], doc="The width of the beam while building.")

    @property
    def resident_bytes(self) -> int:
        """The bytes held in memory."""
        return self._inner.state()[1]

    @property
    def fast_bytes(self) -> Optional[int]:
        """The limit of memory that holds now; None while the index is in memory whole."""
        return self._inner.state()[2]

    def __repr__(self) -> str:
        count, resident, limit, _ = self._inner.state()
        where = "in memory" if limit is None else f"in its file, {_tiercel.show_bytes(limit)} fast"
        held = _tiercel.show_bytes(resident)
        return f"<tiercel.ann.Index of {count} vectors of {self.dim} {self.dtype}, {self.space}, {held} {where}>"

    def __getstate__(self) -> None:
        raise TypeError("an index is not pickled: save it to a file and load that")

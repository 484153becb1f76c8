"""An index that is spread over processes, or over the machines of a Ray cluster: more vectors than one machine holds.

Every shard is an :class:`tiercel.ann.Index` in a process of its own (or in a Ray actor). What a caller asks is sent to all shards, which
work at the same time, and their answers are merged by distance: the nearest of all are among the nearest of each.

A shard that is lost (killed, out of memory, its machine gone) is made anew from its file. Where nothing had changed since it was
saved, nobody sees more than a warning; where something had, ``ShardLost`` says how much. A saving writes new files beside the old
ones and then the list of them at once, so that a crash leaves the old index or the new one.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import warnings
from multiprocessing.connection import Connection
from typing import Any, Callable, Iterable, Optional

import numpy as np

from . import _ann as ann
from ._tiercel import DamagedIndex, parse_bytes

_LIST = "sharded.json"


class ShardLost(RuntimeError):
    """A shard was lost together with changes that had not been saved; it has been made anew from its file."""

    def __init__(self, shard: int, changes: int, why: str) -> None:
        super().__init__(f"shard {shard} was lost ({why}) with {changes} vectors added or removed since it was saved")
        self.shard, self.changes, self.why = shard, changes, why


class _Gone(Exception):
    """Nobody answers."""


class _Shard:
    """What a shard does, wherever it lives."""

    def __init__(self, made: dict[str, Any], path: Optional[str]) -> None:
        self.index = ann.Index(**made)
        if path is not None:
            self.index.load_index(path)

    def call(self, verb: str, arguments: tuple[Any, ...]) -> Any:
        if verb == "info":
            ids = self.index.get_ids_list()
            return len(ids), ids[-1] if ids else -1
        if verb == "memory":
            return self.index.resident_bytes
        if verb == "get_items":
            there = np.intersect1d(arguments[0], np.asarray(self.index.get_ids_list(), dtype=np.uint64))
            return there, self.index.get_items(there)
        return getattr(self.index, verb)(*arguments[0], **arguments[1])


def _serve(descriptor: int) -> None:
    """The life of a process that is a shard: it ends when nobody is left to ask it."""
    connection = Connection(descriptor)
    shard: Optional[_Shard] = None
    while True:
        try:
            verb, arguments = connection.recv()
        except (EOFError, OSError):
            return
        try:
            if verb == "begin":
                shard = _Shard(*arguments)
                answer = (True, None)
            else:
                assert shard is not None
                answer = (True, shard.call(verb, arguments))
        except Exception as error:  # whatever it is, the caller is told
            answer = (False, error)
        try:
            connection.send(answer)
        except (BrokenPipeError, OSError):
            return
        except Exception:  # an error that cannot be sent
            connection.send((False, RuntimeError(str(answer[1]))))


class _Nobody:
    """Stands for a shard that could not be made anew; the next call tries again."""

    def ask(self, verb: str, arguments: tuple[Any, ...]) -> None:
        pass

    def answer(self) -> Any:
        raise _Gone("it could not be made anew")

    def stop(self) -> None:
        pass


class _Process:
    """A shard in a process of this machine."""

    def __init__(self, made: dict[str, Any], path: Optional[str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            descriptor = theirs.fileno()
            code = f"from tiercel._sharded import _serve; _serve({descriptor})"
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
            self.process = subprocess.Popen([sys.executable, "-c", code], pass_fds=[descriptor], env=environment)
        self.connection = Connection(ours.detach())
        self.ask("begin", (made, path))
        self.answer()

    def ask(self, verb: str, arguments: tuple[Any, ...]) -> None:
        try:
            self.connection.send((verb, arguments))
        except OSError:
            # It is gone; `answer` will say so.
            pass

    def answer(self) -> Any:
        try:
            good, answer = self.connection.recv()
        except (EOFError, OSError):
            code = self.process.wait()
            how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
            raise _Gone(f"its process {self.process.pid} {how}") from None
        if not good:
            raise answer
        return answer

    def stop(self) -> None:
        self.connection.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class _Actor:
    """A shard in an actor of Ray."""

    def __init__(self, made: dict[str, Any], path: Optional[str]) -> None:
        import ray

        if not ray.is_initialized():
            ray.init()
        self.ray = ray
        self.actor = ray.remote(_Shard).remote(made, path)
        self.asked: Any = None

    def ask(self, verb: str, arguments: tuple[Any, ...]) -> None:
        self.asked = self.actor.call.remote(verb, arguments)

    def answer(self) -> Any:
        try:
            return self.ray.get(self.asked)
        except self.ray.exceptions.RayActorError as error:
            raise _Gone(str(error).splitlines()[0]) from None
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from None

    def stop(self) -> None:
        self.ray.kill(self.actor)


_ENGINES: dict[str, Callable[..., Any]] = {"processes": _Process, "ray": _Actor}


def _home(labels: np.ndarray, shards: int) -> np.ndarray:
    """The shard of each label."""
    return ((labels * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) % np.uint64(shards)


def _check(rows: np.ndarray, dtype: str) -> None:
    """Refuses what a shard would refuse, before any of them takes its part."""
    low, high, whole = {
        "f32": (-np.inf, np.inf, False),
        "f16": (-65519.0, 65519.0, False),
        "bf16": (-3.3e38, 3.3e38, False),
        "u8": (0, 255, True),
        "i8": (-128, 127, True),
    }[dtype]
    if rows.dtype.kind != "f":
        if rows.dtype != np.uint16 and rows.size and not low <= rows.min() <= rows.max() <= high:
            raise ValueError(f"the vectors have numbers that {dtype} cannot hold")
        return
    good = np.isfinite(rows) & (rows >= low) & (rows <= high)
    if not good.all() or (whole and not (rows == np.floor(rows)).all()):
        raise ValueError(f"the vectors have numbers that are not finite or that {dtype} cannot hold")


class Sharded:
    """An index over several processes, with the verbs of :class:`Index`.

    ``folder`` is where its files are: what is there already is opened, and nothing is written before :meth:`save`. ``engine`` is
    ``"processes"`` of this machine or ``"ray"`` (``pip install tiercel[ray]``; the folder must be there on every machine). ``fast``
    is the memory of all shards together, or a share such as ``"20%"``.
    """

    def __init__(
        self,
        dim: Optional[int] = None,
        metric: str = "l2",
        dtype: str = "f32",
        fast: Optional[ann.Amount] = None,
        slow: Optional[str] = None,
        *,
        folder: ann.Path,
        shards: Optional[int] = None,
        engine: str = "processes",
        m: int = 16,
        ef_construction: int = 200,
        seed: int = 0,
        threads: Optional[int] = None,
    ) -> None:
        if engine not in _ENGINES:
            raise ValueError(f"no engine `{engine}`; there are {' and '.join(_ENGINES)}")
        self._engine = _ENGINES[engine]
        self.folder = os.fspath(folder)
        found = self._list()
        self._saved = found is not None
        if found is not None:
            if shards not in (None, found["shards"]) or dim not in (None, found["made"]["dim"]):
                raise ValueError(f"{self.folder} has an index of {found['shards']} shards, {found['made']['dim']} dimensions")
            made, shards = found["made"], found["shards"]
        else:
            if dim is None:
                raise TypeError("an index needs the number of dimensions: dim=…")
            shards = shards or os.cpu_count() or 1
            made = dict(dim=dim, metric=metric, dtype=dtype, m=m, ef_construction=ef_construction, seed=seed)
        if not shards or shards < 1:
            raise ValueError(f"an index has at least one shard, not {shards}")
        self.shards: int = shards
        self._made = made
        each = fast
        if isinstance(fast, str) and "%" not in fast and not _is_share(fast):
            each = parse_bytes(fast)
        if isinstance(each, int):
            each = each // shards
        self._each = dict(made, fast=each, slow=slow, threads=threads or max(1, (os.cpu_count() or 1) // shards))
        self._generation: int = found["generation"] if found else 0
        self._ef: Optional[int] = None
        #: What was lost and made anew: shard, and why.
        self.lost: list[tuple[int, str]] = []
        self._changes = [0] * shards
        self._workers: list[Any] = []
        try:
            for shard in range(shards):
                self._workers.append(self._engine(self._each, self._path(shard)))
            infos = self._all("info", ())
        except _Gone as gone:
            self.close()
            raise RuntimeError(f"shard {len(self._workers)} cannot begin: {gone}") from None
        except BaseException:
            self.close()
            raise
        self._next = max(last for _, last in infos) + 1

    def _list(self) -> Optional[dict[str, Any]]:
        try:
            with open(os.path.join(self.folder, _LIST), encoding="utf-8") as file:
                found = json.load(file)
            if not {"made", "shards", "generation"} <= set(found):
                raise ValueError
            return found
        except FileNotFoundError:
            return None
        except ValueError:
            raise DamagedIndex(f"{os.path.join(self.folder, _LIST)}: this is no list of shards") from None

    def _name(self, shard: int, generation: int) -> str:
        return os.path.join(self.folder, f"shard-{shard}.{generation}.index")

    def _path(self, shard: int) -> Optional[str]:
        return self._name(shard, self._generation) if self._saved else None

    def _all(self, verb: str, arguments: tuple[Any, ...]) -> list[Any]:
        return self._each_of(verb, {shard: arguments for shard in range(self.shards)})

    def _each_of(self, verb: str, asked: dict[int, tuple[Any, ...]]) -> list[Any]:
        """Asks shards at the same time. Those that are gone are made anew, and asked again where nothing is lost."""
        if not self._workers:
            raise RuntimeError("this index has been closed")
        for shard, arguments in asked.items():
            self._workers[shard].ask(verb, arguments)
        answers: dict[int, Any] = {}
        errors: list[Exception] = []
        for shard, arguments in asked.items():
            try:
                answers[shard] = self._workers[shard].answer()
            except _Gone as gone:
                lost = self._again(shard, str(gone))
                if lost is None:
                    try:
                        self._workers[shard].ask(verb, arguments)
                        answers[shard] = self._workers[shard].answer()
                    except _Gone as again:
                        # What it was asked brings it down, too.
                        errors.append(self._again(shard, str(again)) or ShardLost(shard, 0, str(again)))
                    except Exception as error:
                        errors.append(error)
                else:
                    errors.append(lost)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return [answers[shard] for shard in asked]

    def _again(self, shard: int, why: str) -> Optional[ShardLost]:
        """Makes a shard anew from its file, and tells what is lost with the old one."""
        self._workers[shard].stop()
        changes, self._changes[shard] = self._changes[shard], 0
        self.lost.append((shard, why))
        self._workers[shard] = _Nobody()
        try:
            worker = self._engine(self._each, self._path(shard))
            if self._ef is not None:
                worker.ask("set_ef", ((self._ef,), {}))
                worker.answer()
            self._workers[shard] = worker
        except Exception as error:  # the other shards' answers are still to be taken
            return ShardLost(shard, changes, f"{why}, and it cannot be made anew: {error}")
        if changes:
            return ShardLost(shard, changes, why)
        warnings.warn(f"shard {shard} was lost ({why}) and made anew; nothing is missing", RuntimeWarning, stacklevel=5)
        return None

    def add_items(self, data: Any, ids: Any = None) -> None:
        """Adds vectors, as :meth:`Index.add_items` does; all shards take their part at the same time."""
        rows = ann._rows(data, self.dim)
        _check(rows, self._made["dtype"])
        if ids is None:
            labels = np.arange(self._next, self._next + len(rows), dtype=np.uint64)
        else:
            labels = ann._labels(ids)
        if len(labels) != len(rows):
            raise ValueError(f"{len(labels)} labels for {len(rows)} vectors")
        if len(np.unique(labels)) != len(labels):
            raise ValueError("a label comes twice among the vectors to add")
        if not len(labels):
            return
        home = _home(labels, self.shards)
        asked = {}
        for shard in range(self.shards):
            here = home == shard
            if here.any():
                asked[shard] = ((rows[here], labels[here]), {})
        self._each_of("add_items", asked)
        for shard, arguments in asked.items():
            self._changes[shard] += len(arguments[0][1])
        self._next = max(self._next, int(labels.max()) + 1)

    def remove(self, labels: Any) -> None:
        """Removes vectors by their labels. KeyError where one is not there; none is removed then."""
        labels = ann._labels(labels)
        home = _home(labels, self.shards)
        asked = {shard: labels[home == shard] for shard in range(self.shards) if (home == shard).any()}
        there = self._each_of("get_items", {shard: (part,) for shard, part in asked.items()})
        for (_, part), (found, _) in zip(asked.items(), there):
            missing = np.setdiff1d(part, found)
            if missing.size:
                raise KeyError(f"the index holds no vector with the label {missing[0]}")
        self._each_of("remove", {shard: ((part,), {}) for shard, part in asked.items()})
        for shard, part in asked.items():
            self._changes[shard] += len(part)

    def knn_query(
        self,
        data: Any,
        k: int = 1,
        *,
        filter: Optional[ann.Filter] = None,
        ef: Optional[int] = None,
        recall: Optional[float] = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The labels and distances of the ``k`` nearest of each query over all shards, nearest first."""
        rows = ann._rows(data, self.dim)
        if filter is not None and not callable(filter):
            filter = ann._filter(filter)
        elif filter is not None and self._engine is _Process:
            try:
                pickle.dumps(filter)
            except Exception:
                raise TypeError("shards are other processes: a filter is a function of a module, or an array") from None
        options = dict(filter=filter, ef=ef if ef is not None or recall is not None else self._ef, recall=recall)
        found = self._all("knn_query", ((rows, k), options))
        labels = np.concatenate([labels for labels, _ in found], axis=1)
        distances = np.concatenate([distances for _, distances in found], axis=1)
        # The nearest first, and of two as near the one with the lower label.
        order = np.lexsort((labels, distances), axis=-1)[:, :k]
        return np.take_along_axis(labels, order, axis=1), np.take_along_axis(distances, order, axis=1)

    def set_ef(self, ef: int) -> None:
        """How wide the beams of searches are that say nothing of it."""
        self._ef = ef
        self._all("set_ef", ((ef,), {}))

    def get_items(self, ids: Any) -> np.ndarray:
        """The vectors with these labels as they are kept. KeyError where one is not there."""
        labels = ann._labels(ids)
        vectors = np.empty((len(labels), self.dim), dtype=np.float32)
        seen = np.zeros(len(labels), dtype=bool)
        for there, some in self._all("get_items", (np.unique(labels),)):
            here = np.isin(labels, there)
            vectors[here] = some[np.searchsorted(there, labels[here])]
            seen |= here
        if not seen.all():
            raise KeyError(f"the index holds no vector with the label {labels[~seen][0]}")
        return vectors

    def save(self) -> None:
        """Writes all shards to the folder at the same time. Whoever opens it finds what was there before, or all of this."""
        os.makedirs(self.folder, exist_ok=True)
        before, after = self._generation, self._generation + 1
        self._each_of("save_index", {shard: ((self._name(shard, after),), {}) for shard in range(self.shards)})
        found = dict(shards=self.shards, generation=after, made=self._made)
        descriptor, aside = tempfile.mkstemp(dir=self.folder, prefix=_LIST)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(found, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, os.path.join(self.folder, _LIST))
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except BaseException:
            _forget([aside])
            raise
        self._generation, self._saved, self._changes = after, True, [0] * self.shards
        _forget(self._name(shard, before) for shard in range(self.shards))

    def __len__(self) -> int:
        return sum(count for count, _ in self._all("info", ()))

    dim: int = property(lambda self: self._made["dim"], doc="How many numbers a vector has.")  # type: ignore[assignment]

    @property
    def resident_bytes(self) -> int:
        """The bytes that all shards hold in memory."""
        return sum(self._all("memory", ()))

    def close(self) -> None:
        """Ends all shards; what was not saved is gone."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.stop()

    def __enter__(self) -> "Sharded":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_workers", None):
            self.close()


def _is_share(text: str) -> bool:
    try:
        return float(text) <= 1
    except ValueError:
        return False


def _forget(paths: Iterable[str]) -> None:
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

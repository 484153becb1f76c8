"""tiercel.ann against looking at every vector, and as programs for hnswlib use it. PyTorch is not needed."""

import doctest
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tiercel import ann


def clustered(count, dim, seed=0):
    """Whole numbers from 0 to 127 around some centres, which every type can hold."""
    random = np.random.default_rng(seed)
    centres = random.integers(15, 110, (20, dim))
    return (centres[random.integers(0, 20, count)] + random.integers(-12, 13, (count, dim))).astype(np.float32)


def apart(queries, vectors, metric="l2"):
    queries, vectors = queries.astype(np.float64), vectors.astype(np.float64)
    if metric == "l2":
        return ((queries[:, None] - vectors[None]) ** 2).sum(-1)
    if metric == "cosine":
        queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return 1 - queries @ vectors.T


def recall(distances, truth, k=10):
    """The share of neighbours that are as near as the true ones; ties count."""
    worst = np.sort(truth, axis=1)[:, k - 1 : k]
    return (distances <= worst + 1e-3 * np.abs(worst) + 1e-3).mean()


def test_a_program_for_hnswlib_changes_its_import(tmp_path):
    hnswlib = ann
    data = clustered(2000, 16)
    p = hnswlib.Index(space="l2", dim=16)
    p.init_index(max_elements=2000, ef_construction=100, M=16, random_seed=5)
    p.set_num_threads(2)
    p.add_items(data[:1000])
    p.add_items(data[1000:], np.arange(1000, 2000), num_threads=1)
    p.set_ef(100)
    labels, distances = p.knn_query(data[:50], k=10)
    assert labels.dtype == np.uint64 and distances.dtype == np.float32 and labels.shape == (50, 10)
    assert recall(distances, apart(data[:50], data)) > 0.98
    path = str(tmp_path / "p.bin")
    p.save_index(path)
    again = hnswlib.Index("l2", 16)
    again.load_index(path, max_elements=4000)
    again.set_ef(100)
    assert np.array_equal(again.knn_query(data[:50], k=10)[1], distances)
    assert (again.element_count, again.max_elements, again.space, again.dim, again.M) == (2000, 4000, "l2", 16, 16)
    assert np.array_equal(again.get_items([7, 8]), data[7:9]) and again.get_ids_list() == list(range(2000))
    again.mark_deleted(7)
    assert 7 not in again.knn_query(data[7], k=20)[0]
    with pytest.raises(RuntimeError):
        again.mark_deleted(7)
    again.add_items(data[7], [7], replace_deleted=True)
    assert again.knn_query(data[7], k=1)[1][0, 0] == 0
    labels, _ = again.knn_query(data[:5], k=3, filter=lambda label: label % 2 == 0)
    assert (labels % 2 == 0).all()


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("dtype", ["f32", "float16", "bf16", np.uint8, "i8"])
def test_every_type_and_metric(dtype, metric):
    data = clustered(700, 24)
    index = ann.Index(24, metric, dtype, m=8, ef_construction=60)
    index.add_items(data)
    _, distances = index.knn_query(data[:30], k=10, ef=200)
    kept = index.get_items(np.arange(700))
    truth = apart(kept[:30], kept, metric)
    assert recall(distances, truth) > 0.97
    assert np.allclose(np.sort(truth, axis=1)[:, 0], distances[:, 0], atol=2e-2 * max(1, np.abs(truth).max() / 100))


def test_arrays_are_taken_as_they_lie():
    from tiercel._ann import _rows

    for dtype in (np.float32, np.float16, np.uint8, np.int8):
        data = clustered(50, 8).astype(dtype)
        assert np.shares_memory(_rows(data, 8), data)
    data = clustered(60, 8)
    plain, odd = ann.Index(8), ann.Index(8)
    plain.add_items(data[::2])
    odd.add_items(np.asfortranarray(data)[::2].astype(np.float64))
    frozen = data[:5].copy()
    frozen.setflags(write=False)
    assert np.array_equal(plain.knn_query(frozen, k=3)[0], odd.knn_query(frozen.tolist(), k=3)[0])


def test_what_is_wrong_is_told(tmp_path):
    index = ann.Index(4, dtype="u8")
    index.add_items(np.ones((2, 4), dtype=np.uint8), [5, 6])
    for call, kind, text in [
        (lambda: index.add_items(np.ones((1, 5))), ValueError, "rows of 4 numbers"),
        (lambda: index.add_items([[1, 2, 3, 300]]), ValueError, "300"),
        (lambda: index.add_items([[1, 2, 3, np.nan]]), ValueError, "not finite"),
        (lambda: index.add_items(np.ones((2, 4)), [1, 1]), ValueError, "twice"),
        (lambda: index.add_items(np.ones((2, 4)), [1]), ValueError, "1 labels for 2 vectors"),
        (lambda: index.add_items(np.ones((1, 4)), [-1]), ValueError, "-1"),
        (lambda: index.remove([5, 7]), KeyError, "7"),
        (lambda: index.update(7, np.ones(4)), KeyError, "7"),
        (lambda: index.get_items([9]), KeyError, "9"),
        (lambda: index.knn_query(np.ones(4), k=0), ValueError, "k cannot be 0"),
        (lambda: index.knn_query(np.ones(4), filter=lambda label: 1 / 0), ZeroDivisionError, "division"),
        (lambda: index.knn_query(np.ones(4), filter=lambda label: len(index)), RuntimeError, "filter"),
        (lambda: ann.Index(4, "l3"), ValueError, "l3"),
        (lambda: ann.Index(4, dtype="f64"), ValueError, "f64"),
        (lambda: ann.Index(4, fast="a lot"), ValueError, "a lot"),
        (lambda: ann.Index.open(tmp_path / "none"), FileNotFoundError, "none"),
    ]:
        with pytest.raises(kind, match=text):
            call()
    assert len(index) == 2 and set(index.knn_query(np.ones(4), k=2)[0][0].tolist()) == {5, 6}
    labels, distances = index.knn_query(np.ones(4), k=3)
    assert labels[0, 2] == ann.NOBODY and np.isinf(distances[0, 2])
    path = tmp_path / "damaged"
    index.save(path)
    whole = path.read_bytes()
    for at in (3, 700, len(whole) - 2000):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        with pytest.raises(ann.DamagedIndex):
            ann.Index.open(path)
            # A byte between two sections is nobody's.
            raise ann.DamagedIndex if at == 700 else AssertionError
    path.write_bytes(whole[:5000])
    with pytest.raises(ann.DamagedIndex):
        ann.Index.open(path)


def test_a_limit_of_memory_is_kept_in_the_file(tmp_path):
    data = clustered(6000, 64)
    index = ann.Index(64, fast="1MiB", m=8, ef_construction=60, threads=2)
    index.add_items(data)
    assert index.fast_bytes is None and index.resident_bytes > 1 << 20
    index.save(tmp_path / "index")
    truth = apart(data[:60], data)
    _, distances = index.knn_query(data[:60], k=10, recall=0.95)
    assert index.fast_bytes == 1 << 20 and index.resident_bytes <= 1 << 20
    assert recall(distances, truth) > 0.9 and index.last_moved["reads"] > 0
    assert index.last_moved["bytes"] == 4096 * index.last_moved["reads"]
    # One in a hundred, by a callable, a bit each and their labels.
    some = np.arange(3, 6000, 100)
    bits = np.zeros(6000, dtype=bool)
    bits[some] = True
    for filter in (lambda label: label % 100 == 3, bits, some):
        labels, distances = index.knn_query(data[:60], k=10, filter=filter, ef=100, rerank=60)
        assert np.isin(labels, some).all()
        assert np.allclose(distances, np.sort(truth[:, some], axis=1)[:, :10])
    # A change brings it to memory, and it goes back when it is saved.
    index.remove([0])
    assert index.fast_bytes is None and len(index) == 5999
    index.save(tmp_path / "index")
    assert index.fast_bytes == 1 << 20 and np.array_equal(index.get_items([1, 5999]), data[[1, 5999]])
    other = ann.Index.open(tmp_path / "index", fast="1MiB", slow=f"file:{tmp_path}")
    assert len(other) == 5999 and other.get_ids_list()[0] == 1
    with pytest.raises(MemoryError):
        ann.Index.open(tmp_path / "index", fast="100KiB")
    with pytest.raises(TypeError):
        import pickle

        pickle.dumps(other)


@pytest.mark.parametrize("fast", [None, "1MiB"])
def test_any_sequence_of_changes(tmp_path, fast):
    random = np.random.default_rng(3)
    pool = clustered(3000, 12, seed=9)
    index = ann.Index(12, fast=fast, m=8, ef_construction=60, threads=2)
    there = {}
    for turn in range(25):
        what = random.integers(0, 10)
        if what < 5 or not there:
            labels = np.unique(random.integers(0, 900, random.integers(1, 200)))
            rows = random.integers(0, 3000, len(labels))
            index.add_items(pool[rows], labels)
            there.update(zip(labels.tolist(), rows.tolist()))
        elif what < 8:
            gone = [label for label in there if random.integers(0, 4) == 0]
            index.remove(gone)
            for label in gone:
                del there[label]
        else:
            index.save(tmp_path / "index")
            if what == 9:
                index = ann.Index.open(tmp_path / "index", fast=fast, threads=2)
        assert len(index) == len(there) and index.get_ids_list() == sorted(there)
        if not there:
            continue
        queries = pool[random.integers(0, 3000, 20)]
        labels, distances = index.knn_query(queries, k=5, ef=100)
        order = np.array(sorted(there))
        truth = apart(queries, pool[[there[label] for label in order]])
        k = min(5, len(there))
        assert (labels[:, k:] == ann.NOBODY).all()
        for row, (found, far) in enumerate(zip(labels[:, :k], distances[:, :k])):
            assert len(set(found.tolist())) == k
            assert np.array_equal(truth[row, np.searchsorted(order, found)], far)
        assert recall(distances[:, :k], truth, k) >= 0.95, turn


def test_other_threads_run_meanwhile():
    data = clustered(20000, 64)
    index = ann.Index(64, threads=1)
    began, done = threading.Event(), threading.Event()

    def work():
        began.set()
        index.add_items(data)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    began.wait()
    turns = 0
    while not done.is_set():
        turns += 1
        time.sleep(0.001)
    thread.join()
    assert turns > 20
    found = []
    threads = [threading.Thread(target=lambda: found.append(index.knn_query(data[:50], k=3)[0])) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert all(np.array_equal(found[0], other) for other in found)


def test_importable_without_pytorch():
    code = "import sys; sys.modules['torch'] = None; from tiercel import ann; ann.Index(3); import tiercel; print(tiercel.__version__)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout
    assert doctest.testmod(ann).failed == 0


def is_even(label):
    return label % 2 == 0


def test_shards_answer_as_one_and_come_back(tmp_path):
    data = clustered(1500, 16)
    truth = apart(data[:40], data)
    with ann.Sharded(16, folder=tmp_path / "shards", shards=3, m=8, ef_construction=60, threads=1) as index:
        index.add_items(data[:1000])
        index.add_items(data[1000:])
        assert len(index) == 1500 and sum(index._changes) == 1500 and min(index._changes) > 300
        index.set_ef(300)
        labels, distances = index.knn_query(data[:40], k=10)
        assert np.allclose(distances, np.sort(truth, axis=1)[:, :10])
        assert np.array_equal(truth[np.arange(40)[:, None], labels.astype(int)], distances)
        assert np.array_equal(index.get_items([3, 1400, 3]), data[[3, 1400, 3]])
        assert (index.knn_query(data[:4], k=5, filter=is_even)[0] % 2 == 0).all()
        assert (index.knn_query(data[:4], k=5, filter=np.arange(0, 1500, 3))[0] % 3 == 0).all()
        with pytest.raises(TypeError, match="function of a module"):
            index.knn_query(data[:4], filter=lambda label: True)
        with pytest.raises(ValueError, match="not finite"):
            index.add_items(np.full((1, 16), np.nan))
        with pytest.raises(KeyError, match="1500"):
            index.remove([0, 1500])
        index.save()
        # Killed with nothing unsaved: a warning, and the same answers.
        os.kill(index._workers[1].process.pid, signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match="shard 1 was lost .*signal 9.* nothing is missing"):
            again = index.knn_query(data[:40], k=10)
        assert np.array_equal(again[0], labels) and [shard for shard, _ in index.lost] == [1]
        # Killed with changes: it is said which, and the rest goes on.
        index.remove([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
        changes = list(index._changes)
        os.kill(index._workers[2].process.pid, signal.SIGKILL)
        with pytest.raises(ann.ShardLost) as lost:
            index.knn_query(data[:4], k=5)
        assert (lost.value.shard, lost.value.changes) == (2, changes[2]) and changes[2] > 0
        assert len(index) == 1500 - sum(changes) + changes[2]
        index.save()
        files = sorted(os.listdir(tmp_path / "shards"))
        assert len(files) == 4, files
        count = len(index)
    with ann.Sharded(folder=tmp_path / "shards", fast="3MiB") as index:
        assert index.shards == 3 and len(index) == count and index.resident_bytes <= 3 << 20
        index.add_items(data[:2])
        assert len(index) == count + 2
    with pytest.raises(ValueError, match="3 shards"):
        ann.Sharded(16, folder=tmp_path / "shards", shards=2)
    with pytest.raises(RuntimeError, match="closed"):
        index.knn_query(data[:1])
    (tmp_path / "shards" / "sharded.json").write_text("{")
    with pytest.raises(ann.DamagedIndex):
        ann.Sharded(folder=tmp_path / "shards")


def test_shards_in_actors(tmp_path):
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False)
    try:
        data = clustered(600, 8)
        with ann.Sharded(8, folder=tmp_path / "shards", shards=2, engine="ray", threads=1) as index:
            index.add_items(data)
            labels, _ = index.knn_query(data[:20], k=5, ef=200)
            index.save()
            ray.kill(index._workers[0].actor)
            with pytest.warns(RuntimeWarning, match="shard 0 was lost"):
                assert np.array_equal(index.knn_query(data[:20], k=5, ef=200)[0], labels)
    finally:
        ray.shutdown()

"""What one session has learned of a program helps the next, is guarded, and is never trusted."""

import hashlib
import json
import random
import zlib

import pytest
import torch

import tiercel
from tiercel import _learned, _verify
from tiercel._script import AGAIN, DROP, HERE, IN, OUT
from test_paths import Exits, limited, same, train, ways_of


def session(path, limit="1400KiB", **more):
    return tiercel.Session(limit, "64MiB", device="cpu", least="2KiB", seconds=0.3, learned=path, **more)


def taught(path, steps=24):
    """A session that has learned, and its results."""
    ways = ways_of(steps, 3)
    with session(path) as s:
        result = train(Exits, steps, ways, s)
        assert s.status["paths"]["plans"] >= 2, s.status["paths"]
    return ways, result


def test_the_next_session_follows_plans_from_its_second_iteration(tmp_path):
    ways, first = taught(tmp_path / "kept")
    plain = train(Exits, len(ways), ways)
    assert same(plain, first)
    with session(tmp_path / "kept") as s:
        again = train(Exits, len(ways), ways)
        modes, status = [one["mode"] for one in s.status["history"]], s.status
        s.report(tmp_path / "report.html")
    assert same(plain, again)
    assert "plans taken up" in status["learned"] and ": 0 of" not in status["learned"], status["learned"]
    # The second iteration makes nothing that the first did not, but its gradients are there before it.
    assert modes[2:8].count("planned") >= 4, (modes, status["learned"])
    assert status["peak"] <= 1400 << 10


def test_it_is_kept_in_the_users_cache_unless_something_else_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    taught(True)
    files = list(_learned.folder().glob("*.paths"))
    assert len(files) == 1 and str(files[0]).startswith(str(tmp_path))
    with session(False) as s:
        train(Exits, 3, [0] * 3)
        assert s.status["learned"] == "nothing is kept"


@pytest.mark.parametrize("other", ["limit", "model", "optimizer"])
def test_another_program_gets_nothing(other, tmp_path):
    taught(tmp_path / "kept")
    with session(tmp_path / "kept", "1500KiB" if other == "limit" else "1400KiB") as s:
        torch.manual_seed(1)
        model = Exits() if other != "model" else torch.nn.Linear(64, 11)
        opt = (torch.optim.SGD if other == "optimizer" else torch.optim.AdamW)(model.parameters(), 1e-3, foreach=False)
        (model(torch.randn(8, 64)) if other == "model" else model(torch.randn(8, 64), 0)).sum().backward()
        opt.step()
        assert "it is of another program" in s.status["learned"]
        assert s.status["paths"]["plans"] == 0


def test_damage_is_found(tmp_path):
    ways, result = taught(tmp_path / "kept", 16)
    whole = (tmp_path / "kept").read_bytes()
    chooser = random.Random(1)
    for at in range(6):
        bytes_ = bytearray(whole)
        if at == 0:
            bytes_ = bytearray(b"")
        elif at == 1:
            bytes_ = bytes_[: len(bytes_) // 2]
        else:
            bytes_[chooser.randrange(len(bytes_))] ^= 1 << chooser.randrange(8)
        (tmp_path / "damaged").write_bytes(bytes(bytes_))
        with session(tmp_path / "damaged") as s:
            train(Exits, 2, [0, 0])
            assert "not used" in s.status["learned"], s.status["learned"]


def meddled(path, out, change):
    """A file with a right digest that says something else."""
    content = json.loads(zlib.decompress(path.read_bytes()[32:]))
    change(content)
    body = zlib.compress(json.dumps(content).encode())
    out.write_bytes(hashlib.sha256(body).digest() + body)


def test_whatever_a_file_says_results_are_right(tmp_path):
    """Random changes to what was kept, each with a right digest: refused, or harmless."""
    ways, _ = taught(tmp_path / "kept", 16)
    plain = train(Exits, 8, ways[:8])
    chooser = random.Random(2)
    refused = 0
    for turn in range(40):
        def change(content):
            plan = chooser.choice(content["plans"])
            what = chooser.randrange(8)
            side = chooser.choice(["before", "after"])
            if what == 0:
                chooser.choice(plan[side]).append([chooser.choice([OUT, IN, DROP, AGAIN, HERE, 1, 2]), chooser.randrange(len(plan["bytes"]))])
            elif what == 1:
                acts = [one for one in plan[side] if one]
                if acts:
                    chooser.choice(acts).pop()
            elif what == 2:
                plan["away"] = [chooser.randrange(2 * len(plan["bytes"])) for _ in plan["away"]]
            elif what == 3:
                plan["bytes"][chooser.randrange(len(plan["bytes"]))] = chooser.choice([1, 1 << 40, -5])
            elif what == 4:
                chooser.choice(plan["steps"])[0] = chooser.choice(["aten.mm.default", "aten.nothing.default", "os.system"])
            elif what == 5:
                step = chooser.choice(plan["steps"])
                step[4] = [chooser.randrange(len(plan["bytes"]))]
            elif what == 6:
                plan[side] = plan[side][::-1]
            else:
                plan["groups"] = plan["groups"][: len(plan["groups"]) // 2]

        meddled(tmp_path / "kept", tmp_path / "meddled", change)
        with session(tmp_path / "meddled") as s:
            result = train(Exits, 8, ways[:8])
            refused += "(" in s.status["learned"]
            assert s.status["peak"] <= 1400 << 10
        assert same(plain, result)
    assert refused >= 10, refused


def test_every_plan_that_is_made_is_found_to_be_sound(monkeypatch):
    """The play without bytes agrees with the planner on many plans, and finds what is taken out of them."""
    from tiercel import _plans

    found = []
    made = _plans.Known.__init__

    def known(self, leaf, sequence, script, prediction):
        made(self, leaf, sequence, script, prediction)
        found.append((sequence, script))

    monkeypatch.setattr(_plans.Known, "__init__", known)
    limited(Exits, ways_of(24, 3), 0.55)
    assert len(found) >= 3
    flaws = 0
    for sequence, script in found:
        peak = _verify.verify(sequence, script, 1 << 40)
        assert peak > 0
        with pytest.raises(_verify.Flaw):
            _verify.verify(sequence, script, peak - 1)
        for acts in (*script.before, *script.after):
            for at, (act, _) in enumerate(acts):
                if act in (IN, HERE, AGAIN):
                    removed = acts.pop(at)
                    try:
                        _verify.verify(sequence, script, 1 << 40)
                    except _verify.Flaw:
                        flaws += 1
                    acts.insert(at, removed)
                    break
    assert flaws > 10, flaws

"""Where storages lie under a plan with places: books of an arena, without its memory, follow what a session does on the processor."""

import pytest
import torch
from torch import nn

import tiercel
from tiercel import _tiercel
from tiercel._storages import Storages

MIB = 1 << 20


class Shadow:
    """An arena's books, told of every storage that gets memory or loses it."""

    GRAIN = 512

    def __init__(self, capacity: int) -> None:
        self.books = _tiercel.Arena(capacity, 0, 1)
        self.expect, self.settle = self.books.expect, self.books.settle
        self.where: dict[int, int] = {}
        self.refused = 0
        #: Where the last storage ends.
        self.end = 0

    def watch(self) -> None:
        """An operation begins."""

    def taken(self) -> list:
        """Nothing is known of what operations take for themselves."""
        return []

    def took(self, entry) -> None:
        """An entry has memory now."""
        at = self.books.take(entry.nbytes)
        if at is None:
            self.refused += 1
        else:
            self.where[entry.number] = at
            self.end = max(self.end, at + entry.nbytes)

    def gave(self, entry) -> None:
        """An entry has no memory any more."""
        at = self.where.pop(entry.number, None)
        if at is not None:
            assert self.books.give(at)


class Shadowed(Storages):
    """Storages that tell a shadow."""

    def enter(self, entry, storage):
        super().enter(entry, storage)
        self.arena.took(entry)

    def has_memory(self, entry):
        super().has_memory(entry)
        self.arena.took(entry)

    def take(self, entry, storage):
        self.arena.gave(entry)
        super().take(entry, storage)

    def _forget(self, ref):
        self.arena.gave(ref.entry)
        super()._forget(ref)

    def lies_at(self, entry, place):
        return self.arena.where[entry.number] == place

    def go_to(self, entry, place):
        books, old = self.arena.books, self.arena.where[entry.number]
        books.expect([(entry.nbytes, place, 0)], (0, 0))
        new = books.take(entry.nbytes)
        moved = new == place
        assert books.give(old if moved else new)
        if moved:
            self.arena.where[entry.number] = new
        return moved


@pytest.fixture
def shadowed(monkeypatch):
    made = []

    def storages(device, least, capacity, mover, arena=None):
        shadow = Shadow(4 * capacity)
        made.append(shadow)
        return Shadowed(device, least, capacity, mover, shadow)

    monkeypatch.setattr("tiercel._runtime.Storages", storages)
    return made


def net():
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.GELU())]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step():
        loss = model(torch.randn(1024, 256)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


@pytest.mark.parametrize("limit", [12, 14, 20])
def test_storages_lie_where_the_plan_has_them(shadowed, limit):
    step = net()
    plain = [step() for _ in range(32)]
    with tiercel.Session(limit * MIB, "256MiB", device="cpu", learned=False, seconds=2.0) as s:
        step, found = net(), []
        for _ in range(12):
            found.append(step())
            s.wait_for_plan(30)
        assert s.status["state"] == "following a plan", s.status["refused"]
        shadow = shadowed[0]
        for _ in range(6):
            # A better plan may come meanwhile; then from there on.
            known, before, shadow.end = s._runtime.current, shadow.books.seen(), 0
            assert known.script.makes, "every storage has its place"
            for _ in range(3):
                found.append(step())
            after = shadow.books.seen()
            if s._runtime.current is known:
                break
            s.wait_for_plan(30)
        assert s._runtime.current is known
        assert after[0] > before[0] + 100 and after[1] == before[1], (before, after)
        assert shadow.end <= limit * MIB, "places are within the limit"
        assert found == plain[: len(found)]


def test_what_had_to_step_aside_is_back_for_the_next_operation(shadowed):
    step = net()
    plain = [step() for _ in range(16)]
    with tiercel.Session("20MiB", "256MiB", device="cpu", learned=False, seconds=1.0) as s:
        step, found = net(), []
        for _ in range(12):
            found.append(step())
            s.wait_for_plan(30)
        storages = s._runtime.storages
        for _ in range(4):
            assert s._runtime.following is not None
            entries = [entry for entry in storages.by_number.values() if entry.resident and entry.slot >= 0][:5]
            for entry in entries:
                entry.stash = storages.mover.keep(entry.ref(), entry.nbytes)
                storages.take(entry, entry.ref())
                storages.stashed.append(entry)
            found.append(step())
            assert entries and not storages.stashed
        assert found == plain

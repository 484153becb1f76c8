"""From one way of serving to a plan, at any place of an iteration: storages go to where the plan has them at that place.

What the plan has away leaves on its own, what it has there comes when it is first used, and what lies in a place that the plan wants
for something else is kept apart. Nothing else is moved: plans of one program begin alike, and what outlives an iteration has the same
place in slow memory in all of them.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from ._following import Following
from ._script import AGAIN, DROP, IN, LATER, OUT, Script, touched_by
from ._sequence import Sequence
from ._storages import Entry


def place_in(sequence: Sequence, at: int) -> tuple[int, bool]:
    """The first group of operations that has not ended before a step, and whether it has begun."""
    for step in sequence.steps[at:]:
        if step.group >= 0:
            return step.group, not step.first
    return len(sequence.groups), False


def away_at(sequence: Sequence, script: Script, at: int) -> tuple[set[int], set[int]]:
    """The storages that are away when a step of a script begins, and those whose bytes have been given up."""
    away, dropped = set(script.away), set()
    group, begun = place_in(sequence, at)
    done = [acts for one in range(group) for acts in (script.before[one], script.after[one])]
    if begun:
        done.append(script.before[group])
    for acts in done:
        for act, slot in acts:
            if act in (OUT, LATER):
                away.add(slot)
            elif act == IN:
                away.discard(slot)
            elif act == DROP:
                dropped.add(slot)
            elif act == AGAIN:
                dropped.difference_update(sequence.groups[slot]["writes"])
    return away, dropped


def follow_from(runtime: Any, known: Any, at: int, by_slot: dict[int, Entry]) -> Following:
    """Follows a plan from its step `at` on. `by_slot` says which storages the iteration has had so far."""
    storages, slab = runtime.storages, runtime.slab
    sequence, script = known.sequence, known.script
    following = Following(storages, sequence, script, slab)
    following.on_adopt = runtime.plans.is_now
    taken = {entry.number for entry in by_slot.values()}
    for slot, (number, stays) in enumerate(zip(runtime.plans.numbers_of(sequence), sequence.persistent)):
        entry = by_slot.get(slot)
        if entry is None and stays and number not in taken:
            entry = storages.by_number.get(number)
            if entry is not None and entry.nbytes != sequence.bytes[slot]:
                entry = None
        if entry is not None:
            by_slot[slot] = entry
    for entry in storages.by_number.values():
        entry.slot = -1
    for slot, entry in by_slot.items():
        following.adopt(slot, entry)
    storages.lingering.clear()
    _make_way(runtime, script)
    away, dropped = away_at(sequence, script, at)
    _send(following, by_slot, away)
    group, begun = place_in(sequence, at)
    touched = touched_by(sequence.groups, script.before, script.after)
    for slot, entry in by_slot.items():
        if entry.ref is None:
            continue
        if slot in script.held:
            following.held[slot] = entry.ref()
        if slot in away:
            continue
        if script.lazy and entry.resident and slot in script.places:
            # Such a plan lets go of what lies in slow memory as well.
            storages.mover.put(entry.ref(), slab, script.places[slot], entry.nbytes)
            entry.home, entry.slab = (1, script.places[slot]), slab
        if slot in dropped and entry.resident:
            storages.lingering.append(entry)
        elif not entry.resident:
            uses = touched.get(slot, [])
            first = bisect_left(uses, group)
            due = uses[first] if first < len(uses) else len(sequence.groups)
            following.parked.setdefault(due, []).append(slot)
    if at:
        following.enter(at, group)
        if begun:
            following.unpark(group)
    return following


def _make_way(runtime: Any, script: Script) -> None:
    """Keeps apart what lies where the plan is going to write something else, and what is there but not in the plan may have to go."""
    storages, mover, slab = runtime.storages, runtime.storages.mover, runtime.slab
    wanted = set(script.places.values())
    for entry in list(storages.by_number.values()):
        if entry.resident:
            if entry.slot < 0:
                storages.lingering.append(entry)
            continue
        if entry.stash is not None or entry.home is None or entry.slab is not slab:
            continue
        place = entry.home[1]
        if entry.slot >= 0 and script.places.get(entry.slot) == place:
            continue
        if not runtime.plans.homes.is_home(entry) or place in wanted or place < script.nbytes:
            entry.stash = mover.keep_from(slab, place, entry.nbytes)


def _send(following: Following, by_slot: dict[int, Entry], away: set[int]) -> None:
    """What the plan has away leaves, and what was kept apart goes to its place."""
    storages, mover, slab, places = following.storages, following.mover, following.slab, following.script.places
    for slot, entry in by_slot.items():
        place = places.get(slot)
        storage = entry.ref() if entry.ref is not None else None
        if storage is None or place is None or entry.nbytes > following.sequence.bytes[slot]:
            continue
        if entry.resident:
            if slot not in away:
                continue
            entry.leaving = mover.send(slot, storage, slab, place, entry.nbytes)
            entry.home, entry.slab = (1, place), slab
            storages.may_leave(entry)
        elif entry.stash is not None:
            mover.put_kept(entry.stash, slab, place, entry.nbytes)
            entry.home, entry.slab, entry.stash = (1, place), slab, None


def arrange(runtime: Any, known: Any, kept: list[tuple[int, Entry]]) -> None:
    """Every storage goes to where a plan begins, after everything was served on demand."""
    script, storages, mover, slab = known.script, runtime.storages, runtime.mover, runtime.slab
    planned, wanted = {id(entry) for _, entry in kept}, set(script.places.values())
    storages.lingering.clear()
    for entry in list(storages.by_number.values()):
        entry.slot = -1
        if id(entry) in planned:
            continue
        # What the plan does not know of, as gradients are, is about to go.
        if entry.resident:
            storages.lingering.append(entry)
        elif entry.stash is None and entry.home is not None and not (runtime.plans.homes.is_home(entry) and entry.home[1] not in wanted):
            entry.stash = mover.keep_from(entry.slab, entry.home[1], entry.nbytes)
    if storages.arena is not None and script.makes:
        return _lay_down(runtime, script, kept)
    # What is there is taken up and put down again in order, so that memory is not in pieces.
    there = [entry for _, entry in kept if entry.resident]
    staged = mover.stage([(entry.ref(), entry.nbytes) for entry in there], storages.capacity - storages.live)
    order = {id(entry): at for at, entry in enumerate(there)}
    for entry in there:
        storages.take(entry, entry.ref())
    for slot, entry in kept:
        # Places may be taken by others: what has to change its place in the same slab is kept apart.
        if id(entry) not in order and entry.stash is None and entry.slab is slab and entry.home[1] != script.places.get(slot):
            entry.stash = mover.keep_from(entry.slab, entry.home[1], entry.nbytes)
    mover.tidy()
    for slot, entry in sorted(kept, key=lambda pair: -pair[1].nbytes):
        _place(runtime, script, slot, entry, staged, order.get(id(entry), -1))


def _lay_down(runtime: Any, script: Script, kept: list[tuple[int, Entry]]) -> None:
    """Every storage goes to where it lies when a plan with places begins."""
    storages, mover, slab = runtime.storages, runtime.mover, runtime.slab
    storages.flush_all()
    # What is about to go must not lie where something else is to be for long.
    for entry in storages.lingering:
        if entry.ref() is not None and entry.resident:
            entry.stash = mover.keep(entry.ref(), entry.nbytes)
            storages.take(entry, entry.ref())
    storages.lingering.clear()
    for slot, entry in kept:
        if not entry.resident and entry.stash is None and entry.slab is slab and entry.home[1] != script.places.get(slot):
            entry.stash = mover.keep_from(entry.slab, entry.home[1], entry.nbytes)
    waiting: list[tuple[Entry, int]] = []
    for slot, entry in kept:
        if not entry.resident:
            continue
        if slot in script.away:
            mover.put(entry.ref(), slab, script.places[slot], entry.nbytes)
            storages.take(entry, entry.ref())
            entry.home, entry.slab = (1, script.places[slot]), slab
        elif slot in script.begins and not storages.lies_at(entry, script.begins[slot]):
            waiting.append((entry, script.begins[slot]))
    aside: list[tuple[Entry, int]] = []
    while waiting:
        left = [(entry, place) for entry, place in waiting if not storages.go_to(entry, place)]
        if len(left) == len(waiting):
            # All of them lie in each other's places: one steps aside.
            entry, place = left.pop()
            entry.stash = mover.keep(entry.ref(), entry.nbytes)
            storages.take(entry, entry.ref())
            aside.append((entry, place))
        waiting = left
    for entry, place in aside:
        storages.expect(entry, place)
        storages.unstash(entry)
    for slot, entry in sorted(kept, key=lambda pair: -pair[1].nbytes):
        if not entry.resident and (slot not in script.away or entry.home != (1, script.places.get(slot))):
            if slot not in script.away:
                storages.expect(entry, script.begins.get(slot))
            _place(runtime, script, slot, entry, None, -1)
    storages.arena.settle()


def _place(runtime: Any, script: Script, slot: int, entry: Entry, staged: Any, at: int) -> None:
    """Brings one storage from where it was put aside to where the plan begins."""
    storages, slab, mover = runtime.storages, runtime.slab, runtime.mover
    place, away = script.places.get(slot), slot in script.away
    if not away:
        storages.make_room(entry.nbytes)
        storages.give(entry, entry.ref())
    if at >= 0:
        if not away:
            mover.unstage(staged, at, entry.ref())
        if place is not None and (away or script.lazy):
            mover.put_staged(staged, at, slab, place)
    elif entry.stash is not None:
        if not away:
            mover.restore(entry.ref(), entry.stash)
        if place is not None:
            mover.put_kept(entry.stash, slab, place, entry.nbytes)
    elif not away:
        mover.get(entry.ref(), entry.slab, entry.home[1], entry.nbytes)
        if place is not None and script.lazy:
            mover.put(entry.ref(), slab, place, entry.nbytes)
    elif entry.slab is not slab:
        mover.pass_on(entry.slab, entry.home[1], slab, place, entry.nbytes)
    entry.stash = None
    if place is not None:
        entry.home, entry.slab = (1, place), slab

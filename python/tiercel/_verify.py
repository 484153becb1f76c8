"""Plays a plan's script without bytes before it is followed: every operation finds its storages, and memory suffices.

A script that was read from a file may be of another program, or damaged. Where this finds a fault it is not used; where it finds none,
what can still go wrong costs time, because operations are compared one by one while it is followed.
"""

from __future__ import annotations

from ._script import AGAIN, DROP, GONE, HERE, IN, LATER, LET, OUT, Script
from ._sequence import Sequence

_THERE, _LEAVING, _AWAY, _COMING, _DROPPED, _UNBORN = range(6)


class Flaw(ValueError):
    """Why a script cannot be followed."""


def verify(sequence: Sequence, script: Script, room: int) -> int:
    """The most bytes that a script has on the device at once; a :class:`Flaw` where it cannot be followed in so much memory."""
    sizes, stays, groups = sequence.bytes, sequence.persistent, sequence.groups
    if len(script.before) != len(groups) or len(script.after) != len(groups):
        raise Flaw(f"acts for {len(script.before)} and {len(script.after)} of {len(groups)} groups")
    state = [(_AWAY if slot in script.away else _THERE) if stay else _UNBORN for slot, stay in enumerate(stays)]
    live = sum(sizes[slot] for slot, where in enumerate(state) if where == _THERE)
    peak = live
    copied = {slot for slot, where in enumerate(state) if where == _AWAY}
    born: dict[int, int] = {}
    last: dict[int, int] = {}
    #: The groups that have written each storage, and how many of them have run again since its bytes were given up.
    wrote: dict[int, list[int]] = {}
    remade: dict[int, int] = {}
    for at, group in enumerate(groups):
        for slot in (*group["reads"], *group["writes"]):
            born.setdefault(slot, at)
            last[slot] = at

    def act(kind: int, what: int, at: int) -> None:
        nonlocal live
        if kind == AGAIN:
            again(what, at)
            return
        if not 0 <= what < len(sizes):
            raise Flaw(f"group {at} moves storage {what} of {len(sizes)}")
        where = state[what]
        if kind == OUT:
            if where == _THERE:
                if what not in script.places:
                    raise Flaw(f"storage {what} leaves at group {at} and has no place")
                state[what] = _LEAVING
                copied.add(what)
        elif kind in (GONE, LATER):
            if where in (_LEAVING, _THERE):
                if what not in copied:
                    raise Flaw(f"storage {what} goes at group {at} without a copy")
                state[what] = _AWAY
                live -= sizes[what]
        elif kind == IN:
            if where in (_AWAY, _LEAVING):
                live += sizes[what] if where == _AWAY else 0
                state[what] = _COMING
        elif kind == HERE:
            if where == _COMING:
                state[what] = _THERE
        elif kind == DROP:
            if where in (_THERE, _LEAVING):
                if stays[what]:
                    raise Flaw(f"storage {what} outlives the iteration and is given up at group {at}")
                state[what] = _DROPPED
                live -= sizes[what]
                remade[what] = 0
        elif kind == LET:
            if not stays[what] and last.get(what, 0) <= at and state[what] in (_THERE, _LEAVING):
                state[what] = _UNBORN
                live -= sizes[what]
        else:
            raise Flaw(f"no act {kind} (group {at})")

    def again(which: int, at: int) -> None:
        nonlocal live
        if not 0 <= which < at + 1:
            raise Flaw(f"group {which} is to run again at group {at}, before it has run")
        if groups[which]["once"]:
            raise Flaw(f"group {which} cannot run twice")
        reads, writes = groups[which]["reads"], groups[which]["writes"]
        for slot in reads:
            if state[slot] not in (_THERE, _LEAVING) or slot not in writes and (slot in remade or any(other > which for other in wrote.get(slot, ()))):
                raise Flaw(f"group {which} runs again at group {at}, and storage {slot} is not what it was")
        for slot in writes:
            done = remade.get(slot)
            if done is None:
                if slot in reads:
                    raise Flaw(f"group {which} changes storage {slot} a second time at group {at}")
                continue  # what it makes is there and is thrown away
            if wrote[slot][done] != which:
                raise Flaw(f"storage {slot} is made again by group {which} at group {at}, where {wrote[slot][done]} is due")
            if state[slot] == _DROPPED:
                state[slot] = _THERE
                live += sizes[slot]
            remade[slot] = done + 1
            if done + 1 == len(wrote[slot]):
                del remade[slot]
                copied.discard(slot)

    def needs(slots: list[int], at: int) -> None:
        for slot in slots:
            if state[slot] not in (_THERE, _LEAVING) or slot in remade:
                raise Flaw(f"group {at} needs storage {slot}, which is not there")

    for at, group in enumerate(groups):
        for kind, what in script.before[at]:
            act(kind, what, at)
        fresh = [slot for slot in dict.fromkeys(group["writes"]) if born[slot] == at and not stays[slot] and slot not in group["reads"]]
        needs([slot for slot in (*group["reads"], *group["writes"]) if slot not in fresh], at)
        for slot in fresh:
            state[slot] = _THERE
            live += sizes[slot]
        for slot in group["writes"]:
            copied.discard(slot)
            wrote.setdefault(slot, []).append(at)
        peak = max(peak, live + group["workspace"])
        if peak > room:
            raise Flaw(f"group {at} wants {peak} bytes, of which there are {room}")
        for kind, what in script.after[at]:
            act(kind, what, at)
        for slot in (*group["reads"], *group["writes"]):
            # What dies in the iteration has been let go by the program, unless it runs again later.
            if not stays[slot] and last[slot] == at and slot not in script.held and state[slot] in (_THERE, _LEAVING):
                state[slot] = _UNBORN
                live -= sizes[slot]
    for slot, stay in enumerate(stays):
        if stay and (state[slot] not in (_AWAY, _LEAVING) if slot in script.away else state[slot] not in (_THERE, _COMING)):
            raise Flaw(f"storage {slot} does not end the iteration where it began")
    return peak

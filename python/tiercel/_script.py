"""What is done around the operations of a known iteration, as short lists of acts that can be played quickly.

Tiercel's own plan states a schedule, which becomes such lists as it stands. Any other system decides while it runs: its
policy is played over books without bytes until an iteration ends as it began, and what it ordered in that one is the script.
Either way nothing is decided any more while the iteration runs.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

#: The acts. A storage leaves; its memory goes, when it has left; it goes as soon as it has left; it sets out for the device; it
#: has to be there; an operation runs again; bytes are given up; a storage need not be held any more.
OUT, GONE, LATER, IN, HERE, AGAIN, DROP, LET = range(8)
Act = tuple[int, int]

#: Places in slow memory begin at multiples of this.
_PAGE = 4096
#: So many iterations are played before a policy must have come to repeat itself.
_PATIENCE = 24


def touched_by(groups: list[dict], before: list[list[Act]], after: list[list[Act]]) -> dict[int, list[int]]:
    """For each storage, the groups at which it is used or something is done with it, in order."""
    touched: dict[int, list[int]] = {}
    for at, group in enumerate(groups):
        slots = {*group["reads"], *group["writes"]}
        for act, other in (*before[at], *after[at]):
            if act == AGAIN:
                slots.update(groups[other]["reads"], groups[other]["writes"])
            elif act != LET:
                slots.add(other)
        for slot in slots:
            touched.setdefault(slot, []).append(at)
    return touched


class Script:
    """Acts before and after each group of operations, and the places of storages in slow memory."""

    def __init__(self, groups: list[dict], sizes: list[int], stays: list[bool], before: list[list[Act]], after: list[list[Act]], away: set[int], lazy: bool,
                 home: Callable[[int], int]) -> None:
        self.before, self.after, self.away = before, after, away
        #: Whether storages may leave without a copy, because the one in slow memory is still right.
        self.lazy = lazy
        #: The operations that run again.
        self.noted = {at for acts in (*before, *after) for act, at in acts if act == AGAIN}
        #: Each storage that moves, with its place: what stays has a home, everything else a place of this script's.
        self.places: dict[int, int] = {}
        self.nbytes = 0
        #: The places of all, as the beginnings and lengths of ranges.
        self.ranges: list[tuple[int, int]] = []
        moving = [at for acts in (*before, *after) for act, at in acts if act in (OUT, IN, GONE, LATER)]
        for slot in (*sorted(away), *moving):
            if slot in self.places or slot >= len(sizes):
                continue
            if stays[slot]:
                self.places[slot] = home(slot)
                self.ranges.append((self.places[slot], sizes[slot]))
            else:
                self.places[slot] = self.nbytes
                self.nbytes += -(-sizes[slot] // _PAGE) * _PAGE
        self.ranges.append((0, self.nbytes))
        #: Where storages lie on the device, if the plan says: what is there at the beginning, by slot; what sets out, by group and
        #: slot; what an operation makes, by group and operation, with what it needs beside that.
        self.begins: dict[int, int] = {}
        self.comes: dict[tuple[int, int], int] = {}
        self.makes: dict[tuple[int, int], tuple[list[tuple[int, int, int]], tuple[int, int]]] = {}
        #: The storages that an operation which runs again needs: they are held, even where the program lets them go.
        self.held = {slot for group in self.noted for slot in (*groups[group]["reads"], *groups[group]["writes"])}
        self._let_go(groups, stays)

    def lie(self, groups: list[dict], sizes: list[int], places: tuple, later: dict[int, int]) -> None:
        """Takes up the places of a plan; `later` says how many pieces of a storage's size the operation that makes it takes before."""
        begins, comes, makes = places
        self.begins = dict(begins)
        self.comes = {(group, slot): place for group, slot, place in comes}
        for group, operation, slot, place in makes:
            results, beside = self.makes.get((group, operation), ([], (0, 0)))
            if slot < len(sizes):
                results.append((sizes[slot], place, later.get(slot, 0)))
            else:
                beside = (groups[operation]["workspace"], place)
            self.makes[group, operation] = (results, beside)

    def _let_go(self, groups: list[dict], stays: list[bool]) -> None:
        """Says behind which act or group each storage that dies in the iteration is wanted no more."""
        last: dict[int, tuple[list[Act], int]] = {}
        for at, group in enumerate(groups):
            for index, (act, other) in enumerate(self.before[at]):
                if act == AGAIN:
                    for slot in (*groups[other]["reads"], *groups[other]["writes"]):
                        last[slot] = (self.before[at], index + 1)
                elif act in (HERE, GONE, DROP):
                    last[other] = (self.before[at], index + 1)
            for slot in (*group["reads"], *group["writes"]):
                last[slot] = (self.after[at], 0)
            for index, (act, other) in enumerate(self.after[at]):
                if act in (GONE, DROP, OUT, LATER):
                    last[other] = (self.after[at], index + 1)
        for slot in sorted((slot for slot in last if not stays[slot]), key=lambda slot: -last[slot][1]):
            acts, index = last[slot]
            acts.insert(index, (LET, slot))


def _groups(kernels: list[Optional[int]], count: int) -> list[int]:
    """For each kernel of a trace its group, or the one behind it where it stands for what is held; `count` at the end."""
    found, after = [], count
    for kernel in reversed(kernels):
        after = after if kernel is None else kernel
        found.append(after)
    return found[::-1]


def fold(kernels: list[Optional[int]], count: int, schedule: tuple) -> tuple:
    """A schedule by kernels of the trace as one by groups: what is done around a kernel that stands for what is held is done before the
    next group, or behind the last."""
    away, steps = schedule
    group_of = _groups(kernels, count)

    def numbered(acts: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(kind, group_of[at] if kind == 3 else at) for kind, at in acts]

    folded: list[tuple[list, list]] = []
    waiting: list[tuple[int, int]] = []
    for kernel, (first, then) in zip(kernels, steps):
        if kernel is None:
            waiting += numbered(first) + numbered(then)
        else:
            folded.append((waiting + numbered(first), numbered(then)))
            waiting = []
    if folded:
        folded[-1][1].extend(waiting)
    return away, folded


def fold_places(kernels: list[Optional[int]], count: int, places: Optional[tuple]) -> Optional[tuple]:
    """Places by kernels of the trace as places by groups."""
    if places is None:
        return None
    begins, comes, makes = places
    group_of = [min(group, count - 1) for group in _groups(kernels, count)]
    return begins, [(group_of[at], slot, place) for at, slot, place in comes], [(group_of[at], group_of[run], slot, place) for at, run, slot, place in makes]


def of_schedule(groups: list[dict], sizes: list[int], stays: list[bool], schedule: tuple, home: Callable[[int], int]) -> Script:
    """The script of a schedule: `(away, [(before, after), …])`, with acts as `Followed.schedule` has them."""
    away, steps = schedule
    state: dict[int, int] = {}

    def acts(given: list[tuple[int, int]]) -> list[Act]:
        made: list[Act] = []
        for kind, at in given:
            if kind != 3 and at >= len(sizes):
                continue  # memory that an operation takes only while it runs
            if kind == 0:
                state[at] = GONE
                made.append((OUT, at))
            elif kind == 1:
                state[at] = HERE
                made.append((IN, at))
            elif kind == 2:
                made.append((state.get(at, HERE), at))
            else:
                made.append((AGAIN if kind == 3 else DROP, at))
        return made

    before, after = [], []
    for first, then in steps:
        before.append(acts(first))
        after.append(acts(then))
    _keep_the_last(groups, before, after)
    return Script(groups, sizes, stays, before, after, set(away), False, home)


def _keep_the_last(groups: list[dict], before: list[list[Act]], after: list[list[Act]]) -> None:
    """What is given up and not made again is not taken by force: the program may still want to look at it."""
    made: set[int] = set()
    for at in range(len(groups) - 1, -1, -1):
        for acts in (after[at], before[at]):
            for index in range(len(acts) - 1, -1, -1):
                act, other = acts[index]
                if act == AGAIN:
                    made.update(groups[other]["writes"])
                elif act == DROP and other not in made:
                    acts[index] = (LET, other)


def of_books(groups: list[dict], kernels: list[Optional[int]], sizes: list[int], stays: list[bool], books: Any,
             home: Callable[[int], int]) -> Optional[Script]:
    """The script of a policy that decides while it runs; nothing where it does not come to repeat itself. `kernels` are those of the trace
    that it has seen."""
    known: Optional[tuple] = None
    count, persistent = len(sizes), [slot for slot, stay in enumerate(stays) if stay]
    for _ in range(_PATIENCE):
        tickets: dict[int, tuple[int, int]] = {}

        def acts(rows: list[tuple]) -> list[Act]:
            made: list[Act] = []
            for kind, ticket, slot, from_tier, _, to_tier, _, _, _ in rows:
                if kind == 1:
                    # One that waits for a copy out wants its memory, of which the runtime takes care.
                    if tickets.get(ticket, (OUT, 0))[0] == IN:
                        made.append((HERE, tickets[ticket][1]))
                elif slot >= count or kind == 3:
                    continue
                elif kind == 2:
                    made.append((LATER, slot))
                elif (from_tier == 0) != (to_tier == 0):
                    act = IN if to_tier == 0 else OUT
                    tickets[ticket] = (act, slot)
                    made.append((act, slot))
            return made

        start = {slot for slot in persistent if (books.home(slot) or (0, 0))[0] != 0}
        first = acts(books.begin_iteration())
        before, after = [], []
        waiting: list[Act] = []
        for at, kernel in enumerate(kernels):
            ahead, then = acts(books.begin_step(at)), acts(books.end_step(at))
            if kernel is None:
                waiting += ahead + then
                continue
            before.append(waiting + ahead)
            after.append(then)
            waiting = []
        if before:
            after[-1] += waiting
            before[0] = first + before[0]
            after[-1] += acts(books.end_iteration())
        end = {slot for slot in persistent if (books.home(slot) or (0, 0))[0] != 0}
        if start == end and known == (before, after):
            return Script(groups, sizes, stays, before, after, start, True, home)
        known = (before, after)
    return None

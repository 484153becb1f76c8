"""Follows the script of a known iteration: sees that operations are those that are expected, and acts around them.

Everything that could be worked out before is in the steps of the sequence and in the script. What is left for each operation is
to compare the storages that it touches with the expected ones, a few microseconds in all: kernels of a GPU are short.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Optional

import torch

from . import _graft
from ._again import Form, Note, Random, draws
from ._arena import is_shortage
from ._devices import bytes_of
from ._operations import tensors_in
from ._script import AGAIN, DROP, GONE, HERE, IN, LATER, OUT, Script, touched_by
from ._sequence import Sequence, Step
from ._storages import Entry, Storages

Tensor = torch.Tensor


class Following:
    """A sequence that is followed, from one iteration to the next."""

    def __init__(self, storages: Storages, sequence: Sequence, script: Script, slab: Any) -> None:
        self.storages, self.sequence, self.script, self.slab = storages, sequence, script, slab
        self.mover = storages.mover
        self.steps = sequence.steps
        self.count = len(self.steps)
        #: The next step, and whether something came that was not expected: 1 other storages, 2 storages of other sizes.
        self.at = 0
        self.lost = 0
        #: What an operation made that was not expected; whether storages of this iteration have other sizes than the plan's.
        self.strange: list[Entry] = []
        self.scaled = False
        slots = len(sequence.bytes)
        self.by_slot: list[Optional[Entry]] = [None] * slots
        #: For each slot, the identity of its storage.
        self.keys = [0] * slots
        self.held: dict[int, torch.UntypedStorage] = {}
        #: Storages on their way to the device; somebody must hold them until the copy has ended.
        self.arriving: dict[int, torch.UntypedStorage] = {}
        self.notes: dict[int, Note] = {}
        #: Storages that had to leave though the plan did not say so, by the group at which they are wanted again.
        self.parked: dict[int, list[int]] = {}
        self.touched: Optional[dict[int, list[int]]] = None
        #: How often that was so, in all.
        self.shortages = 0
        self.moved = [0, 0]
        self.clock: Any = None
        #: The iteration was entered in its midst: the first group whose notes are there, and storages that none is for.
        self.entered = 0
        self.spare_slots: set[int] = set()
        self.remade: set[int] = set()
        #: Storages that must not be put aside just now.
        self.needed: set[int] = set()
        #: Called where a storage turns out to be one that a plan of another process names.
        self.on_adopt: Any = None
        self.arena = storages.arena
        self._arm()
        storages.on_death, storages.spare, storages.press = self._died, self._park, self._put_aside
        storages.is_arriving = lambda entry: entry.slot in self.arriving

    def _arm(self) -> None:
        """Gives each step its acts."""
        script = self.script
        for step in self.steps:
            step.before = step.after = step.note = step.lies = None
            step.random = Random(self.storages.device) if self.storages.on_gpu and draws(step.func) else None
            if step.group < 0:
                continue
            if step.first:
                step.before = tuple(script.before[step.group]) or None
            if step.last:
                step.after = tuple(script.after[step.group]) or None
                step.lies = script.makes.get((step.group, step.group)) if self.arena is not None else None
                if step.group in script.noted:
                    step.note = self.notes[step.group] = Note(step.func, self.storages.device)

    def adopt(self, slot: int, entry: Entry) -> None:
        """A storage that outlives iterations has its place."""
        entry.slot = slot
        self.by_slot[slot] = entry
        self.keys[slot] = entry.key
        if slot in self.script.held and entry.ref is not None:
            # The program may let go of it, as of a batch, before what was made of it is made again.
            self.held[slot] = entry.ref()
        if self.sequence.numbers[slot] < 0 and self.on_adopt is not None:
            self.on_adopt(self.sequence.numbers[slot], entry.number)
        self.sequence.numbers[slot] = entry.number

    def _died(self, entry: Entry) -> None:
        slot = entry.slot
        if slot < len(self.by_slot) and self.by_slot[slot] is entry:
            self.keys[slot] = 0

    # --- operations ---

    def expects(self, func: Any, args: tuple, kwargs: dict) -> Optional[Step]:
        """The step that comes next, if this is it."""
        if self.at >= self.count or self.lost:
            return None
        step = self.steps[self.at]
        if step.func is not func:
            return None
        keys = self.keys
        try:
            for at, slot in step.flat:
                if args[at].untyped_storage()._cdata != keys[slot]:
                    return None
            for at, inner, slot in step.nested:
                if args[at][inner].untyped_storage()._cdata != keys[slot]:
                    return None
            for name, slot in step.named:
                if kwargs[name].untyped_storage()._cdata != keys[slot]:
                    return None
            entries = self.storages.entries
            for at in step.small:
                if args[at].untyped_storage()._cdata in entries:
                    return None
            if step.length and len(args[0]) != step.length:
                return None
        except (AttributeError, IndexError, KeyError, TypeError, RuntimeError):
            return None
        return step

    def expects_first(self, func: Any, args: tuple, kwargs: dict) -> Optional[Step]:
        """The step that comes next, if it is the first piece of this operation over long lists."""
        step = self.steps[self.at] if self.at < self.count and not self.lost else None
        if step is None or step.func is not func or step.cuts is None or len(args[0]) != sum(step.cuts):
            return None
        return step

    def bind(self, func: Any, args: tuple, kwargs: dict) -> Optional[Step]:
        """The same where the step touches storages that come from before the iteration and are others each time, as gradients that
        two optimizers share: each takes the place of the one that was there when the iteration was recorded."""
        if self.at >= self.count or self.lost or self.steps[self.at].func is not func:
            return None
        step = self.steps[self.at]
        try:
            pairs = [(args[at], slot) for at, slot in step.flat] + [(kwargs[name], slot) for name, slot in step.named]
            pairs += [(args[at][inner], slot) for at, inner, slot in step.nested]
        except (IndexError, KeyError, TypeError):
            return None
        for tensor, slot in pairs:
            held = self.by_slot[slot]
            if not isinstance(tensor, Tensor) or not self.sequence.persistent[slot] or held is not None and held.ref is not None:
                continue
            entry = self.storages.known(tensor)
            if entry is None:
                found = self.storages.candidate(tensor)
                entry = None if found is None else self.storages.register(*found)
            if entry is not None and entry.slot < 0 and entry.nbytes <= self.sequence.bytes[slot]:
                self.storages.fetch_apart(entry)
                if entry in self.storages.lingering:
                    self.storages.lingering.remove(entry)
                self.adopt(slot, entry)
        return self.expects(func, args, kwargs)

    def run(self, step: Step, func: Any, args: tuple, kwargs: dict) -> Any:
        """Runs the step."""
        self.at += 1
        clock = self.clock
        if self.parked and step.first:
            self.unpark(step.group)
        if self.storages.stashed:
            self.storages.come_back()
        if step.before is not None:
            self.perform(step.before)
            if clock is not None:
                clock.begin()
        if step.room and self.storages.live + step.room > self.storages.capacity:
            self.storages.make_room(step.room)
        note = step.note
        if note is not None:
            note.before()
        stood = step.random.where() if step.random is not None else None
        if step.lies is not None:
            self.arena.expect(*step.lies)
        try:
            result = step.call(*args, **kwargs)
        except RuntimeError as error:
            if not is_shortage(error):
                raise
            result = self.storages.attempt(lambda: self._run_again(step, stood, args, kwargs))
        expected = not step.new or self._meet(step, result) and not self.lost
        if step.lies is not None:
            self.arena.settle()
        if not expected:
            return result
        if note is not None:
            note.take(args, kwargs, result, self.slot_of, step.new)
        if step.last:
            if clock is not None:
                clock.end(step.group)
            if step.after is not None:
                self.perform(step.after)
        return result

    def _run_again(self, step: Step, stood: Any, args: tuple, kwargs: dict) -> Any:
        if step.random is not None:
            step.random.go(stood)
        self.storages.in_use = {self.by_slot[slot] for slot in step.slots}
        for slot in step.slots:
            self.storages.unstash(self.by_slot[slot])
        if step.lies is not None:
            self.arena.expect(*step.lies)
        return step.func(*args, **kwargs)

    def _meet(self, step: Step, result: Any) -> bool:
        """The storages that a step has made; false where they are others than those that were expected."""
        storages, new, sizes = self.storages, step.new, step.sizes
        if len(new) == 1 and isinstance(result, Tensor):
            storage = result.untyped_storage()
            nbytes = bytes_of(storage)
            if nbytes != sizes[0]:
                if storages.candidate(result) is None:
                    return self._surprised(result)
                self._other_size(nbytes, sizes[0])
            self._enter(new[0], storage, nbytes)
            return True
        found = []
        for tensor in tensors_in(result):
            candidate = storages.candidate(tensor)
            if candidate is not None and all(candidate[0]._cdata != other[0]._cdata for other in found):
                found.append(candidate)
        if len(found) != len(new):
            return self._surprised(result)
        for slot, size, (storage, nbytes) in zip(new, sizes, found):
            if nbytes != size:
                self._other_size(nbytes, size)
            self._enter(slot, storage, nbytes)
        return True

    def _other_size(self, nbytes: int, planned: int) -> None:
        self.scaled = True
        if nbytes > planned:
            self.lost = 2

    def _surprised(self, result: Any) -> bool:
        self.strange = self.storages.made(result)
        self.lost = 1
        return False

    def _enter(self, slot: int, storage: torch.UntypedStorage, nbytes: int) -> None:
        entry = self.by_slot[slot]
        if entry is None or entry.ref is not None:
            if entry is not None:
                entry.slot = -1  # the program still holds the one of the iteration before
                self.storages.lingering.append(entry)
            self.storages.count += 1
            entry = self.by_slot[slot] = Entry(self.storages.count, nbytes)
            entry.slot = slot
        entry.nbytes = nbytes
        self.storages.enter(entry, storage)
        self.keys[slot] = entry.key
        if slot in self.script.held:
            self.held[slot] = storage

    def slot_of(self, tensor: Tensor) -> int:
        """The slot of a tensor's storage, or -1."""
        entry = self.storages.known(tensor)
        return -1 if entry is None else entry.slot

    def sizes(self) -> dict[int, int]:
        """The sizes of what this iteration has made so far, by slot."""
        count = self.steps[self.at].count if self.at < self.count else len(self.by_slot)
        stays = self.sequence.persistent
        return {slot: entry.nbytes for slot, entry in enumerate(self.by_slot[:count]) if entry is not None and not stays[slot]}

    def actual(self) -> list[int]:
        """The sizes of all storages, as they are in this iteration."""
        return [planned if entry is None else entry.nbytes for entry, planned in zip(self.by_slot, self.sequence.bytes)]

    # --- acts ---

    def perform(self, acts: tuple) -> None:
        """Does what is to be done."""
        storages = self.storages
        for act, slot in acts:
            if act == AGAIN:
                if self.arena is not None:
                    lies = self.script.makes.get((self._group(), slot))
                    if lies is not None:
                        self.arena.expect(*lies)
                if self.entered:
                    self._again(slot)
                else:
                    self.notes[slot].run(self)
                if self.arena is not None:
                    self.arena.settle()
                continue
            entry = self.by_slot[slot]
            storage = entry.ref() if entry is not None and entry.ref is not None else None
            if act == HERE:
                if self.arriving.pop(slot, None) is not None:
                    self.mover.wait_for_arrival(slot)
            elif storage is None:
                self.held.pop(slot, None)
            elif act == IN:
                self._bring(slot, entry, storage)
            elif act == OUT:
                if entry.resident:
                    place = self.script.places[slot]
                    entry.leaving = self.mover.send(slot, storage, self.slab, place, entry.nbytes)
                    entry.home, entry.slab = (1, place), self.slab
                    self.moved[1] += entry.nbytes
            elif act == GONE:
                if entry.resident:
                    self.mover.let(entry.leaving)
                    storages.take(entry, storage)
            elif act == LATER:
                if entry.resident and not entry.leaves:
                    if slot in self.script.places:
                        entry.home, entry.slab = (1, self.script.places[slot]), self.slab
                    storages.may_leave(entry)
            elif act == DROP:
                if entry.resident and slot in self.spare_slots:
                    # What made it was not noted: it stays, and may be put aside.
                    storages.lingering.append(entry)
                elif entry.resident:
                    self._drop(entry, storage)
                    self.remade.discard(slot)
            else:
                storage = None
                self.held.pop(slot, None)
                if entry.resident:
                    # Where the program goes on holding it, it may have to make room.
                    storages.lingering.append(entry)

    def _bring(self, slot: int, entry: Entry, storage: torch.UntypedStorage) -> None:
        if entry.resident:
            # It was to go and has not gone yet: the bytes are still there.
            entry.leaves = False
            return
        if self.storages.live + entry.nbytes > self.storages.capacity:
            self.storages.make_room(entry.nbytes)
        if entry.stash is not None:
            self.storages.unstash(entry)
            return
        left = entry.leaving
        if self.arena is not None:
            self.storages.expect(entry, self.script.comes.get((self._group(), slot)))
        self.storages.give(entry, storage)
        self.mover.fetch(slot, storage, entry.slab, entry.home[1], entry.nbytes, left)
        self.arriving[slot] = storage
        self.moved[0] += entry.nbytes

    def _group(self) -> int:
        """The group of the operation that runs, or around which something is done."""
        return self.steps[min(self.at, self.count) - 1].group

    def _drop(self, entry: Entry, storage: torch.UntypedStorage) -> None:
        self.mover.let(entry.leaving)
        self.storages.take(entry, storage)
        entry.dropped = True

    def _again(self, group: int) -> None:
        """Has an operation run again in an iteration that was entered in its midst: what it made there has not been dropped."""
        writes = self.sequence.groups[group]["writes"]
        note = self.notes[group]
        forms = {form.slot for form in note.results if form is not None} if note.args is not None else set()
        if note.args is not None and (any(self.is_dropped(slot) for slot in forms) or not forms and self.remade.intersection(writes)):
            note.run(self)
            self.remade.update(forms)
            return
        for slot in writes:
            entry = self.by_slot[slot]
            if entry is not None and entry.ref is not None and not entry.dropped:
                self.storages.fetch_apart(entry)

    def enter(self, at: int, group: int) -> None:
        """The iteration is entered here: what was done before left no notes."""
        self.at, self.entered = at, max(1, group)
        made = {slot for step in self.steps[:at] for slot in step.new}
        self.spare_slots.update(made)

    def storage_of(self, slot: int) -> torch.UntypedStorage:
        """The storage in a slot."""
        return self.by_slot[slot].ref()

    def make_room(self, slots: list[int]) -> None:
        """Storages in these slots are about to have their bytes again."""
        nbytes = sum(self.by_slot[slot].nbytes for slot in slots)
        if self.storages.live + nbytes > self.storages.capacity:
            self.storages.make_room(nbytes)

    def take_over(self, form: Form, made: Tensor) -> None:
        """What was made again is the bytes of a storage that had been given up."""
        entry = self.by_slot[form.slot]
        storage, new = entry.ref(), made.untyped_storage()
        alike = bytes_of(new) == entry.nbytes and made.storage_offset() == form.offset and made.stride() == form.stride
        if alike and _graft.can():
            _graft.hand_over(new, storage)
            self.storages.has_memory(entry)
        else:
            self.storages.give(entry, storage)
            form.on(storage).copy_(made)
        entry.dropped = False

    # --- shortages ---

    def attempt(self, run: Any) -> Any:
        """Runs something that may find no memory."""
        return self.storages.attempt(run)

    def _park(self, attempt: int) -> None:
        """Memory is short though the plan fits, because what is free lies in pieces: what is wanted last leaves."""
        self.shortages += 1
        self._put_aside(self.storages.capacity // 16 << attempt)

    def _put_aside(self, left: int) -> None:
        """Takes away so many bytes of what is wanted last."""
        group = self._group()
        if self.touched is None:
            self.touched = touched_by(self.sequence.groups, self.script.before, self.script.after)
        offers = []
        for slot, entry in enumerate(self.by_slot):
            if entry is None or entry.ref is None or not entry.resident or entry.leaving is not None:
                continue
            if slot not in self.arriving and slot not in self.needed:
                uses = self.touched.get(slot, [])
                at = bisect_right(uses, group)
                if at and uses[at - 1] == group:
                    continue
                offers.append((uses[at] if at < len(uses) else len(self.script.before), slot))
        for at, slot in sorted(offers, reverse=True):
            if left <= 0 or at <= group:
                break
            entry = self.by_slot[slot]
            storage = entry.ref()
            entry.stash = self.mover.keep(storage, entry.nbytes)
            self.storages.take(entry, storage)
            self.parked.setdefault(at, []).append(slot)
            left -= entry.nbytes

    def unpark(self, group: int) -> None:
        """Brings what is wanted at a group of operations and is not where the plan has it."""
        for slot in self.parked.pop(group, ()):
            entry = self.by_slot[slot]
            if entry is None or entry.ref is None or entry.resident or entry.dropped:
                continue
            self._bring(slot, entry, entry.ref())
            if self.arriving.pop(slot, None) is not None:
                self.mover.wait_for_arrival(slot)

    # --- ends ---

    def ended(self) -> bool:
        """Whether the iteration is over; the next one may begin then."""
        if self.at != self.count or self.lost:
            return False
        self.at = 0
        for group in list(self.parked):
            self.unpark(group)
        self.entered, self.scaled = 0, False
        self.spare_slots.clear()
        self.remade.clear()
        for note in self.notes.values():
            note.forget()
        self.held.clear()
        self.storages.lingering.clear()
        for slot, entry in enumerate(self.by_slot):
            # What the program holds beyond the iteration has no place in the next one.
            if entry is not None and entry.ref is not None and not self.sequence.persistent[slot]:
                entry.slot, self.by_slot[slot], self.keys[slot] = -1, None, 0
        return True

    def leave(self) -> None:
        """Something else happens from here on: makes what is dropped again, because nobody else will."""
        group = self.steps[self.at - 1].group if self.at else 0
        made: set[int] = set()
        for later in range(max(group, 0), len(self.script.before)):
            for act, original in (*self.script.before[later], *self.script.after[later]):
                if act == AGAIN:
                    self._make_dropped(original, made)
        self.mover.settle()
        if self.arena is not None:
            self.arena.settle()
        self.arriving.clear()
        self.held.clear()
        self.notes.clear()
        self.storages.on_death = self.storages.press = None
        self.storages.is_arriving = lambda entry: False

    def _make_dropped(self, original: int, made: set[int]) -> None:
        note, group = self.notes[original], self.sequence.groups[original]
        if note.args is None:
            return
        wanted = {form.slot for form in note.results if form is not None}
        # What changes a storage in place runs where that has been made again.
        if not any(self.is_dropped(slot) for slot in wanted) and (wanted or not made.intersection(group["writes"])):
            return
        operands = [self.by_slot[slot] for slot in group["reads"]]
        if any(entry is None or entry.ref is None for entry in operands):
            return  # the program has let go of what it came from, and of itself
        self.needed = {*group["reads"], *group["writes"]}
        for entry in operands:
            self.storages.fetch_apart(entry)
        note.run(self)
        self.needed = set()
        made.update(wanted)

    def is_dropped(self, slot: int) -> bool:
        """Whether a storage's bytes have been given up and not been made again."""
        entry = self.by_slot[slot]
        return entry is not None and entry.dropped and entry.ref is not None

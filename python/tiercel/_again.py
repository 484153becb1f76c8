"""Runs an operation of the iteration once more, so that what was dropped is there again, with the same bits.

At its first run an operation that the plan repeats leaves a note: the function, and for every tensor argument which storage it
lies in and in what form. The second run makes tensors of that form on the storages as they are then. The memory of its results
becomes that of the storages that lost their bytes. What is too small for the books is held by the note; statistics that an
operation changes beside its results are changed in a copy. An operation that draws random numbers finds the generator where it was at the first run.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Protocol

import torch

from ._operations import tensors_in

Tensor = torch.Tensor


class Slots(Protocol):
    """Who knows the storages of an iteration by their numbers."""

    def storage_of(self, slot: int) -> torch.UntypedStorage:
        """The storage."""

    def is_dropped(self, slot: int) -> bool:
        """Whether its bytes have been given up."""

    def make_room(self, slots: list[int]) -> None:
        """These are about to have their bytes again."""

    def take_over(self, form: "Form", made: Tensor) -> None:
        """What was made again is the bytes of a storage that had been given up."""

    def attempt(self, run: Callable[[], Any]) -> Any:
        """Runs something that may find no memory at first."""


class Form:
    """A tensor on a storage of the iteration, without the tensor."""

    __slots__ = ("slot", "size", "stride", "offset", "dtype", "device")

    def __init__(self, slot: int, tensor: Tensor) -> None:
        self.slot, self.size, self.stride, self.offset = slot, tensor.size(), tensor.stride(), tensor.storage_offset()
        self.dtype, self.device = tensor.dtype, tensor.device

    def on(self, storage: torch.UntypedStorage) -> Tensor:
        """The tensor, on the bytes as they are now."""
        return torch.empty(0, dtype=self.dtype, device=self.device).set_(storage, self.offset, self.size, self.stride)


class Random:
    """The generator of a device: where it stands, and how to put it back there."""

    def __init__(self, device: torch.device) -> None:
        self.generator = torch.cuda.default_generators[device.index] if device.type == "cuda" else torch.default_generator
        # A GPU's generator is a counter; a processor's has a long state.
        self.counts = device.type == "cuda"

    def where(self) -> Any:
        return self.generator.get_offset() if self.counts else self.generator.get_state()

    def go(self, where: Any) -> None:
        self.generator.set_offset(where) if self.counts else self.generator.set_state(where)


def draws(func: Any) -> bool:
    """Whether an operation may draw random numbers."""
    return torch.Tag.nondeterministic_seeded in func.tags


def repeatable(func: Any, device: torch.device, run: Callable[[], Any]) -> Callable[[], Any]:
    """The same for an operation that may have to be begun anew because memory was short: it finds the generator where it was at first."""
    if not draws(func):
        return run
    random = Random(device)
    stood = random.where()

    def again() -> Any:
        random.go(stood)
        return run()

    return again


class Note:
    """What an operation was, so that it can be run again. It is taken anew in every iteration."""

    __slots__ = ("func", "args", "kwargs", "results", "random", "stood")

    def __init__(self, func: Any, device: torch.device) -> None:
        self.func = func
        self.args: Any = None
        self.kwargs: dict = {}
        self.results: list[Optional[Form]] = []
        self.random = Random(device) if draws(func) else None
        self.stood: Any = None

    def before(self) -> None:
        """The operation is about to run."""
        if self.random is not None:
            self.stood = self.random.where()

    def take(self, args: tuple, kwargs: dict, result: Any, slot_of: Callable[[Tensor], int], made: tuple) -> None:
        """The operation has run."""
        def note(value: Any) -> Any:
            if isinstance(value, Tensor):
                slot = slot_of(value)
                return value.detach() if slot < 0 else Form(slot, value)
            if isinstance(value, (list, tuple)):
                return type(value)(note(v) for v in value)
            return value

        self.args = [note(value) for value in args]
        self.kwargs = {name: note(value) for name, value in kwargs.items()}
        self.results = []
        for tensor in tensors_in(result):
            slot = slot_of(tensor)
            self.results.append(Form(slot, tensor) if slot in made else None)

    def forget(self) -> None:
        """The iteration has ended: what is too small for the books need not be held."""
        self.args, self.kwargs = None, {}

    def run(self, storages: "Slots") -> None:
        """Runs the operation again."""
        if self.random is None:
            return self._run(storages)
        now = self.random.where()

        self.random.go(self.stood)
        try:
            self._run(storages)
        finally:
            self.random.go(now)

    def _run(self, storages: Slots) -> None:
        def there(value: Any) -> Any:
            if isinstance(value, Form):
                return value.on(storages.storage_of(value.slot))
            if isinstance(value, Tensor):
                return value.clone()
            if isinstance(value, (list, tuple)):
                return type(value)(there(v) for v in value)
            return value

        args, kwargs = [there(value) for value in self.args], {name: there(value) for name, value in self.kwargs.items()}
        if not any(form is not None for form in self.results):
            storages.attempt(lambda: self.func(*args, **kwargs))  # it changes a storage in place
            return
        # A result whose bytes are still there, or on their way, is thrown away.
        wanted = [form for form in self.results if form is not None and storages.is_dropped(form.slot)]
        storages.make_room([form.slot for form in wanted])
        result = storages.attempt(lambda: self.func(*args, **kwargs))
        for form, made in zip(self.results, tensors_in(result)):
            if form is not None and form in wanted:
                storages.take_over(form, made)

"""What is known of an operation before it runs: what it writes, whether it only looks at a tensor in another way, and how
much memory its results take.
"""

from __future__ import annotations

from typing import Any, Iterator

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map

Tensor = torch.Tensor


class Kind:
    """What an operation's schema says: which arguments it changes, by position and by name."""

    __slots__ = ("written_at", "written_as", "name", "lists", "is_view")

    def __init__(self, func: Any) -> None:
        arguments = func._schema.arguments
        changed = [a.alias_info is not None and a.alias_info.is_write for a in arguments]
        self.written_at = frozenset(i for i, w in enumerate(changed) if w)
        self.written_as = frozenset(a.name for a, w in zip(arguments, changed) if w)
        self.name = str(func)
        self.lists = self.name.startswith(("aten._foreach_", "aten._fused_")) and any(changed + [True])
        returns = func._schema.returns
        aliases = [r.alias_info is not None and not r.alias_info.is_write for r in returns]
        self.is_view = bool(aliases) and all(aliases) and not self.written_as


_kinds: dict[Any, Kind] = {}


def kind_of(func: Any) -> Kind:
    """What is known of an operation, worked out once."""
    known = _kinds.get(func)
    if known is None:
        known = _kinds[func] = Kind(func)
    return known


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors of an argument or a result."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from tensors_in(inner)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from tensors_in(inner)


_sizes: dict[Any, tuple[int, ...]] = {}
#: So many are remembered; programs whose shapes are always new would pile them up.
_MOST_SIZES = 1 << 16


def _form(value: Any) -> Any:
    if isinstance(value, Tensor):
        return (tuple(value.shape), value.stride(), value.dtype)
    if isinstance(value, (list, tuple)):
        return tuple(_form(v) for v in value)
    return value if isinstance(value, (int, float, bool, str, torch.dtype, torch.device, type(None))) else repr(value)


def result_sizes(func: Any, args: tuple, kwargs: dict, least: int) -> tuple[int, ...]:
    """The bytes of the storages that an operation will make, those of `least` bytes or more, found without running it."""
    try:
        key = (func, _form(args), tuple(sorted((k, _form(v)) for k, v in kwargs.items())))
        known = _sizes.get(key)
    except TypeError:
        return ()
    if known is None:
        if len(_sizes) >= _MOST_SIZES:
            _sizes.clear()
        known = _sizes[key] = _infer(func, args, kwargs, least)
    return known


def learn_sizes(func: Any, args: tuple, kwargs: dict, sizes: tuple[int, ...]) -> None:
    """Remembers what an operation really made, where that is more than was foreseen."""
    try:
        _sizes[(func, _form(args), tuple(sorted((k, _form(v)) for k, v in kwargs.items())))] = sizes
    except TypeError:
        pass


def _infer(func: Any, args: tuple, kwargs: dict, least: int) -> tuple[int, ...]:
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            def fake(value: Any) -> Any:
                if not isinstance(value, Tensor):
                    return value
                return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)

            with mode:
                inputs, named = tree_map(fake, (args, kwargs))
                given = {t.untyped_storage()._cdata for t in tensors_in((inputs, named))}
                result = func(*inputs, **named)
            made = {}
            for tensor in tensors_in(result):
                storage = tensor.untyped_storage()
                if storage._cdata not in given:
                    made[storage._cdata] = storage.nbytes()
            return tuple(n for n in made.values() if n >= least)
    except Exception:
        # An operation whose result depends on data, or that cannot be faked: as much as the largest thing it looks at.
        sizes = [t.numel() * t.element_size() for t in tensors_in((args, kwargs))]
        largest = max(sizes, default=0)
        return (largest,) if largest >= least else ()


def pieces(kind: Kind, args: tuple, kwargs: dict, most: int) -> list[tuple[tuple, dict]]:
    """An operation over lists of tensors as several over shorter ones, so that each touches `most` bytes or little more.

    What such an operation does to one position of its lists does not depend on the others, so results are the same bits.
    """
    if not kind.lists or not args or not isinstance(args[0], (list, tuple)) or len(args[0]) < 2:
        return [(args, kwargs)]
    length = len(args[0])
    lists = [a for a in (*args, *kwargs.values()) if isinstance(a, (list, tuple)) and len(a) == length]
    weights = [sum(t.numel() * t.element_size() for a in lists for t in tensors_in(a[i])) for i in range(length)]
    if sum(weights) <= most:
        return [(args, kwargs)]
    lengths, held = [0], 0
    for weight in weights:
        if held and held + weight > most:
            lengths.append(0)
            held = 0
        lengths[-1] += 1
        held += weight
    return cut(args, kwargs, tuple(lengths))


def cut(args: tuple, kwargs: dict, lengths: tuple[int, ...]) -> list[tuple[tuple, dict]]:
    """An operation over lists as several over pieces of so many tensors."""
    length, parts, at = sum(lengths), [], 0

    def piece(value: Any, a: int, b: int) -> Any:
        return value[a:b] if isinstance(value, (list, tuple)) and len(value) == length else value

    for count in lengths:
        a, b = at, at + count
        parts.append((tuple(piece(v, a, b) for v in args), {k: piece(v, a, b) for k, v in kwargs.items()}))
        at = b
    return parts

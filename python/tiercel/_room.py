"""What plans may use of a limit: an allocator loses some memory to pieces that nobody can use, and what is small is in no plan."""

from __future__ import annotations

#: The part of a GPU's limit that plans use at first; less where an allocator loses more.
SHARE = 0.93
#: The same where storages have their places in memory of our own.
PLACED = 0.995
#: What storages take that are too small to count.
SMALL = 64 << 20


def usable(limit: int, on_gpu: bool, share: float = SHARE) -> int:
    """The bytes that plans may hand out under a limit."""
    return max(1, int(limit * share) - SMALL) if on_gpu else limit


def limit_for(nbytes: int, on_gpu: bool) -> int:
    """The least limit under which so much may be handed out."""
    return int((nbytes + SMALL) / SHARE) + 1 if on_gpu else nbytes

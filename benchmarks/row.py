"""A row: what is run on the device, how much of it is useful work, and what is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .operands import Call, Kit
from .target import Target

__all__ = ["Calls", "Row"]

Calls = dict[str, Call]


@dataclass(frozen=True)
class Row:
    """One figure.

    `make` builds one set of operands and returns a call a contender, "ours" first; it is called once a rotating set.
    `read` and `written` are the useful bytes: each input once, each output once. A row with `flops` is compute-bound: it is
    timed in warm bursts against its peers, the others in cold graphs and single launches against the floor as well. Where a
    target is of the leg `alone`, ours and the peer that it names are also timed each for seconds by itself.
    """

    group: str
    name: str
    op: str
    shape: tuple[int, ...]
    dtype: str
    read: int
    written: int
    make: Callable[[Kit], Calls]
    target: Target | None = None
    also: Target | None = None
    flops: int = 0

    @property
    def key(self) -> str:
        """What ``--rows`` matches and what the row is called in results."""
        return f"{self.group}/{self.name}"

    @property
    def bytes(self) -> int:
        """Useful bytes, read and written."""
        return self.read + self.written

    @property
    def targets(self) -> tuple[Target, ...]:
        """What is asked, all of it."""
        return tuple(t for t in (self.target, self.also) if t is not None)

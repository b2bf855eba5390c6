"""A sequence of a paged cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

import numpy as np

from ..plan.fields import integer
from ..types import InvalidProblemError
from ..types.errors import shown

__all__ = ["PagedSequence", "Tokens", "tokens_of"]

Tokens = int | Iterable[int]


@dataclass(eq=False)
class PagedSequence:
    """A sequence whose keys and values are in pages. It is read-only for users: only its cache changes it.

    `length` counts its tokens. The first `written` of them are in pages: they were appended and `advance`d over, or were cached
    (`cached` of them). `pages` are its pages in order. `tokens` are the known ids of its first tokens; tokens without ids are
    never shared. `version` changes with `pages`; `freed` is true after `free`.
    """

    number: int
    length: int = 0
    written: int = 0
    cached: int = 0
    pages: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    version: int = 0
    freed: bool = False

    @property
    def pending(self) -> int:
        """The number of tokens that have a slot and are not written yet."""
        return self.length - self.written

    def __repr__(self) -> str:
        state = "freed" if self.freed else f"{self.length} tokens, {self.pending} pending, pages {self.pages}"
        return f"<PagedSequence {self.number}: {state}>"


def tokens_of(given: Tokens, what: str) -> tuple[int, list[int] | None]:
    """The number of given tokens, and their ids, or None if only a number was given."""
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        if given < 0:
            raise InvalidProblemError(f"{what}: {given} tokens", "give 0 or more, or their ids")
        return int(given), None
    try:
        each = None if isinstance(given, (str, bytes, bytearray, memoryview, Mapping, Set)) else iter(given)  # type: ignore[arg-type]
    except Exception:  # another type of number, a 0-d array
        each = None
    if each is None:
        raise InvalidProblemError(
            f"{what}: tokens={shown(given)} are no ids in an order", "give their ids, or how many there are"
        )
    ids = [integer(token, f"{what}: a token's id") for token in each]
    return len(ids), ids

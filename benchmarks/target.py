"""What a row is asked to reach, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["FLOOR", "Target"]

FLOOR = "floor"


@dataclass(frozen=True)
class Target:
    """A limit on our time.

    `kind` says of what: at most ``"ratio"`` times that of `against`, at most ``"excess"`` microseconds over it, at most
    ``"absolute"`` microseconds; or ``"paired"``, at least so many times the speed of `against`.
    """

    limit: float
    kind: Literal["ratio", "excess", "absolute", "paired"] = "ratio"
    against: str = FLOOR

    def met(self, ours_us: float, against_us: float | None = None, ratio: float | None = None) -> bool | None:
        """Whether the limit holds; None where what it is measured against is missing.

        `ratio` is the paired ratio of our time to theirs where there is one, else the quotient of the two times serves.
        """
        if self.kind == "absolute":
            return ours_us <= self.limit
        if against_us is None:
            return None
        if self.kind == "excess":
            return ours_us - against_us <= self.limit
        ratio = ours_us / against_us if ratio is None else ratio
        return 1 / ratio >= self.limit if self.kind == "paired" else ratio <= self.limit

    def __str__(self) -> str:
        if self.kind == "absolute":
            return f"≤ {self.limit:,g} µs"
        of = "F" if self.against == FLOOR else self.against
        if self.kind == "paired":
            return f"≥ {self.limit:.2f} × {of}"
        return f"≤ {of} + {self.limit:g} µs" if self.kind == "excess" else f"≤ {self.limit:.2f} {of}"

"""What a row is asked to reach, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["FLOOR", "Target"]

FLOOR = "floor"


@dataclass(frozen=True)
class Target:
    """An upper limit on our time.

    `kind` says of what: ``"ratio"`` to `against`, ``"excess"`` over `against` in microseconds, or ``"absolute"``
    microseconds.
    """

    limit: float
    kind: Literal["ratio", "excess", "absolute"] = "ratio"
    against: str = FLOOR

    def met(self, ours_us: float, against_us: float | None = None, ratio: float | None = None) -> bool | None:
        """Whether the limit holds; None where what it is measured against is missing.

        `ratio` is the paired ratio where there is one, else the quotient of the two times serves.
        """
        if self.kind == "absolute":
            return ours_us <= self.limit
        if against_us is None:
            return None
        if self.kind == "excess":
            return ours_us - against_us <= self.limit
        return (ratio if ratio is not None else ours_us / against_us) <= self.limit

    def __str__(self) -> str:
        if self.kind == "absolute":
            return f"≤ {self.limit:,g} µs"
        of = "F" if self.against == FLOOR else self.against
        return f"≤ {of} + {self.limit:g} µs" if self.kind == "excess" else f"≤ {self.limit:.2f} {of}"

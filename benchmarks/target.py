"""What a row is asked to reach, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["BEST", "FLOOR", "OPEN", "Answer", "Target"]

FLOOR = "floor"
BEST = "best peer"
"""The fastest of the peers that do the same job."""

OPEN: Literal["open"] = "open"
Answer = bool | Literal["open"] | None
"""Met or missed; open where the interval of the measurement holds the limit; None where there is nothing to judge by."""


@dataclass(frozen=True)
class Target:
    """A limit on our time.

    `kind` says of what: at most ``"ratio"`` times that of `against`, at most ``"excess"`` microseconds over it, at most
    ``"absolute"`` microseconds; at least so many times the speed of `against`, in turns (``"paired"``) or each for seconds by
    itself (``"alone"``).
    """

    limit: float
    kind: Literal["ratio", "excess", "absolute", "paired", "alone"] = "ratio"
    against: str = FLOOR

    def met(
        self,
        ours_us: float,
        against_us: float | None = None,
        ratio: float | None = None,
        interval: tuple[float, float] | None = None,
    ) -> Answer:
        """Whether the limit holds.

        `ratio` is the paired ratio of our time to theirs where there is one, else the quotient of the two times serves;
        `interval` is where it is.
        """
        if self.kind == "absolute":
            return ours_us <= self.limit
        if against_us is None:
            return None
        if self.kind == "excess":
            return ours_us - against_us <= self.limit
        ratio = ours_us / against_us if ratio is None else ratio
        if interval is not None and self._holds(interval[0]) is not self._holds(interval[1]):
            return OPEN
        return self._holds(ratio)

    def _holds(self, ratio: float) -> bool:
        return 1 / ratio >= self.limit if self.kind in ("paired", "alone") else ratio <= self.limit

    def __str__(self) -> str:
        if self.kind == "absolute":
            return f"≤ {self.limit:,g} µs"
        of = "F" if self.against == FLOOR else self.against
        if self.kind in ("paired", "alone"):
            return f"≥ {self.limit:.2f} × {of}{' alone' if self.kind == 'alone' else ''}"
        return f"≤ {of} + {self.limit:g} µs" if self.kind == "excess" else f"≤ {self.limit:.2f} {of}"

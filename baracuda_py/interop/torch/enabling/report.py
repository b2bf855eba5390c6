"""What became of torch's calls: served by this library, traced into a graph, or passed on to torch, with the reason."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

__all__ = ["Passed", "Report"]


class Passed(Exception):
    """A call that torch's own operator answers. Its text is the reason."""


class Report:
    """Counts of calls since it was made. `str(report)` is a table."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served: Counter[str] = Counter()
        self._traced: Counter[str] = Counter()
        self._passed: Counter[tuple[str, str]] = Counter()

    def count_served(self, name: str) -> None:
        with self._lock:
            self._served[name] += 1

    def count_traced(self, name: str) -> None:
        with self._lock:
            self._traced[name] += 1

    def count_passed(self, name: str, reason: str) -> None:
        with self._lock:
            self._passed[name, reason] += 1

    @property
    def served(self) -> Mapping[str, int]:
        """Calls that this library computed, by name."""
        with self._lock:
            return dict(self._served)

    @property
    def traced(self) -> Mapping[str, int]:
        """Calls that torch.compile traced into a graph as this library's ops, by name. Runs of the graph are not counted."""
        with self._lock:
            return dict(self._traced)

    @property
    def passed(self) -> Mapping[tuple[str, str], int]:
        """Calls that torch computed itself, by name and reason."""
        with self._lock:
            return dict(self._passed)

    def __str__(self) -> str:
        rows = [(name, "served", n, "") for name, n in sorted(self.served.items())]
        rows += [(name, "traced", n, "") for name, n in sorted(self.traced.items())]
        rows += [(name, "passed on", n, reason) for (name, reason), n in sorted(self.passed.items())]
        if not rows:
            return "no call of an enabled function was seen"
        return "\n".join(f"{name:<12} {what:<9} {n:>8}  {reason}".rstrip() for name, what, n, reason in rows)

    __repr__ = __str__

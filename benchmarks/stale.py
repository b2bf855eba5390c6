"""Committed rows whose figure is of another kernel or configuration than `select` takes today. Needs no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock, patch

import numpy as np

import baracuda_py as bp
from baracuda_py.plan import plan
from baracuda_py.types import DeviceSpec, UnsupportedError, known_devices

from .host import HostRow
from .operands import Call, Kit, dtype_of
from .results import Record, Results
from .row import Row
from .run import chosen

__all__ = ["HostKit", "bound", "marked", "selections"]


class HostKit(Kit):
    """Operands in host memory: zeros, which take none until they are written to. No peers of torch."""

    def __init__(self) -> None:
        super().__init__(use_torch=False)

    xp = np

    def normal(self, shape: tuple[int, ...], dtype: str, *, positive: bool = False) -> Any:
        """As many zeros."""
        return np.zeros(shape, dtype_of(dtype))

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """As many zeros."""
        return self.normal(shape, dtype)


@contextmanager
def _noted() -> Iterator[list[Any]]:
    """The selections that are bound within it; nothing is compiled and nothing launched. What no kernel of ours serves is a
    peer's, and passes."""
    found: list[Any] = []
    ours = plan.selected

    def selected(*given: Any) -> Any:
        try:
            return ours(*given)
        except UnsupportedError:
            return Mock()

    def bound_plan(selection: Any, *_: Any) -> Call:
        found.append(selection)
        return lambda: None

    with patch.object(plan, "selected", selected), patch.object(plan, "BoundPlan", bound_plan):
        yield found


def selections(row: Row | HostRow, device: str) -> list[Any] | None:
    """What a row binds on `device` (``"h200"``), its peers' plans among it; None where that takes a GPU."""
    if isinstance(row, HostRow):
        return None
    try:
        with _noted() as found, bp.device(device):
            row.make(HostKit())
    except Exception:  # whatever a row asks of a framework or of a GPU
        return None
    return found


def bound(row: Row | HostRow, device: str) -> set[str] | None:
    """The SKUs of the plans that a row binds on `device`; None where that takes a GPU."""
    return {str(getattr(each, "sku", None)) for each in selections(row, device) or ()} or None


def marked(results: Results, gpu: str) -> Results:
    """Each row with `stale`, whether none of the plans that it binds is the one that was measured; without it where that is
    unknown: a row that needs a GPU to be made, and a `gpu` (``"NVIDIA H200"``) without shipped figures."""
    rows = {row.key: row for row in chosen([])}
    device = next((name for name in known_devices() if DeviceSpec.named(name).name == gpu), None)

    def mark(record: Record) -> Record:
        plain = {name: value for name, value in record.items() if name != "stale"}
        row = rows.get(record["row"])
        skus = bound(row, device) if row is not None and device is not None and "sku" in record else None
        return plain if skus is None else plain | {"stale": record["sku"] not in skus}

    return Results(results.meta, tuple(map(mark, results.rows)))

"""What a recorded step should cost by the plans' predictions, and what it was measured to cost, as tables of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...plan.selection import Selection
from ...types.units import bytes_text, time_text
from ..bound import BoundPlan

__all__ = ["StepExplanation", "StepProfile", "StepRow", "measured", "roof_seconds"]

_WIDTHS = (4, 14, 12, 8, 8, 9, 4, 14)  # 80 columns, with a space between two
_HEAD = ("n", "op", "kernel", "each", "sum", "moves", "roof", "limited by")


def roof_seconds(selection: Selection) -> float:
    """The least time of a plan's bytes and FLOPs at the device's full bandwidth and rate."""
    device, cost = selection.device, selection.cost
    rates = dict(device.rates)
    rate = rates.get(str(selection.guarantee.math_precision), rates["f32"])
    return max(cost.bytes / device.bandwidth, cost.flops / rate)


@dataclass(frozen=True)
class StepRow:
    """Equal plans of a step: how many, the predicted time of one and of all, the bytes of one, the share of the roof, from 0 to
    1 (the least time of its bytes and FLOPs over the predicted one), and the resource that limits it."""

    count: int
    op: str
    variant: str
    sku: str
    microseconds: float
    bytes: int
    share: float
    limit: str

    @property
    def total_microseconds(self) -> float:
        return self.count * self.microseconds


@dataclass(frozen=True)
class StepExplanation:
    """A table object: iterate over `rows`, print it, or read its sums. Plans that are equal share a row, in the order of their
    first calls."""

    device: str
    rows: tuple[StepRow, ...]
    roof_microseconds: float

    @staticmethod
    def of(selections: Sequence[Selection]) -> StepExplanation:
        counts: dict[Selection, int] = {}
        for selection in selections:
            counts[selection] = counts.get(selection, 0) + 1
        rows = tuple(
            StepRow(
                n, s.desc.op, s.sku.variant, str(s.sku), s.cost.seconds * 1e6, s.cost.bytes,
                roof_seconds(s) / s.cost.seconds if s.cost.seconds else 0.0, s.cost.limit,
            )
            for s, n in counts.items()
        )  # fmt: skip
        roof = sum(n * roof_seconds(s) for s, n in counts.items()) * 1e6
        return StepExplanation(str(selections[0].device) if selections else "no device", rows, roof)

    @property
    def microseconds(self) -> float:
        """The predicted time of all calls, one after another."""
        return sum(row.total_microseconds for row in self.rows)

    @property
    def bytes(self) -> int:
        """The bytes that all calls move."""
        return sum(row.count * row.bytes for row in self.rows)

    def __iter__(self) -> Any:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        calls, total = sum(row.count for row in self.rows), self.microseconds
        lines = [_cut(f"{calls} calls on {self.device}, predicted", 80), _line(_HEAD)]
        lines += [
            _line((
                str(r.count), r.op, r.variant, _time(r.microseconds), _time(r.total_microseconds),
                bytes_text(r.count * r.bytes), f"{r.share:.0%}", r.limit,
            ))
            for r in self.rows
        ]  # fmt: skip
        share = f"{self.roof_microseconds / total:.0%}" if total else ""
        lines.append(_line((str(calls), "", "", "", _time(total), bytes_text(self.bytes), share, "")))
        return "\n".join(lines)


@dataclass(frozen=True)
class StepProfile:
    """The measurement of every call of a step, in order: seconds on a GPU, the emulator's report for an emulated plan."""

    names: tuple[tuple[str, str], ...]
    predicted_seconds: tuple[float, ...]
    measured: tuple[Any, ...]

    @property
    def seconds(self) -> float | None:
        """The sum over the calls, None where they were emulated."""
        if not all(isinstance(one, float) for one in self.measured):
            return None
        return float(sum(self.measured))

    def __iter__(self) -> Any:
        return iter(self.measured)

    def __len__(self) -> int:
        return len(self.measured)

    def __repr__(self) -> str:
        lines = []
        for (op, variant), predicted, found in zip(self.names, self.predicted_seconds, self.measured):
            timed = isinstance(found, float)
            said = (
                f"{time_text(found)}, predicted {time_text(predicted)}" if timed else str(found).strip().splitlines()[0]
            )
            lines.append(_cut(f"{op:<16} {variant:<16} {said}", 80))
        total = self.seconds
        return "\n".join(lines if total is None else [*lines, f"{'sum':<33} {time_text(total)}"])


def measured(bounds: Iterable[BoundPlan], repeats: int) -> StepProfile:
    """Profiles each plan on its operands."""
    bounds = tuple(bounds)
    found = tuple(bound.plan.profile(repeats=repeats, **bound.operands) for bound in bounds)
    names = tuple((bound.selection.desc.op, bound.selection.sku.variant) for bound in bounds)
    return StepProfile(names, tuple(bound.selection.cost.seconds for bound in bounds), found)


def _line(cells: Sequence[str]) -> str:
    """Numbers to the right, words to the left, cut to their columns."""
    words = (1, 2, 7)
    cut = [_cut(cell, width) for cell, width in zip(cells, _WIDTHS)]
    return " ".join(c.ljust(w) if i in words else c.rjust(w) for i, (c, w) in enumerate(zip(cut, _WIDTHS))).rstrip()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _time(microseconds: float) -> str:
    return time_text(microseconds * 1e-6)

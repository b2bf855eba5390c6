"""The report of `plan.verify`: the worst error of each output, its share of the bound, where it is, and a histogram."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...types.units import figure_text

__all__ = ["OutputReport", "Report", "merged", "of_output"]

BINS = 10  # of the histogram, each a tenth of the bound
BAR = 40  # columns of its longest bar


@dataclass(frozen=True)
class OutputReport:
    """One output. `share` is the largest share of an element's bound that its error takes, `error`, `allowed` and `place` are of
    that element; without any error they are 0 and ``()``. `histogram` counts the elements by tenths of their bounds; `exact` of
    `elements` equal the oracle's rounded result, or have no error that is not 0."""

    name: str
    element: str
    elements: int
    exact: int
    error: float
    allowed: float
    share: float
    place: tuple[int, ...]
    case: str
    histogram: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @property
    def summary(self) -> str:
        said = f"{self.name} {self.element}: {self.exact} of {self.elements} elements without error"
        if not self.share:
            return said
        where = f" of {self.case}" if self.case else ""
        return (
            f"{said}; worst {figure_text(self.error)} of {figure_text(self.allowed)} allowed ({self.share:.1%}) at "
            f"{list(self.place)}{where}"
        )


@dataclass(frozen=True, repr=False)
class Report:
    """All outputs of a plan over `cases` problems, every one of them within its bound."""

    title: str
    cases: int
    outputs: tuple[OutputReport, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"title": self.title, "cases": self.cases, "outputs": [output.to_dict() for output in self.outputs]}

    @property
    def share(self) -> float:
        """The largest share of a bound that any element takes."""
        return max((output.share for output in self.outputs), default=0.0)

    def __repr__(self) -> str:
        lines = [f"{self.title}: {self.cases} case{'s' * (self.cases != 1)} within the bound"]
        for output in self.outputs:
            lines += [f"  {output.summary}"]
            lines += [f"  {label}  {bar:{BAR}}  {count}" for label, bar, count in _bars(output)]
        return "\n".join(lines)

    def __rich__(self) -> Any:
        """The same for a terminal that rich draws on."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        drawn: list[Any] = [Text(repr(self).partition("\n")[0], style="bold")]
        for output in self.outputs:
            drawn.append(Text(output.summary))
            table = Table(box=None, show_header=False)
            for label, bar, count in _bars(output):
                table.add_row(label, Text("\u2588" * len(bar), style="green"), str(count))
            drawn.append(table)
        return Group(*drawn)


def _bars(output: OutputReport) -> list[tuple[str, str, int]]:
    """The histogram down to its last bin that holds anything: the label, the bar, the count."""
    most, last = max(output.histogram), max((i for i, n in enumerate(output.histogram) if n), default=-1)
    if not output.share:
        return []
    return [
        (f"{10 * i:3}-{10 * (i + 1):3} %", "#" * -(-BAR * n // most), n)
        for i, n in enumerate(output.histogram[: last + 1])
    ]


def of_output(name: str, element: Any, error: np.ndarray[Any, Any], allowed: np.ndarray[Any, Any]) -> OutputReport:
    """The report of one output of one case."""
    with np.errstate(all="ignore"):
        share = np.where(error > 0, error / np.maximum(allowed, np.finfo(np.float64).tiny), 0.0).astype(np.float64)
    counts = np.bincount(np.minimum(share * BINS, BINS - 1).astype(np.int64).ravel(), minlength=BINS)
    found = OutputReport(
        name,
        str(element),
        int(share.size),
        int(np.count_nonzero(error == 0)),
        0.0,
        0.0,
        0.0,
        (),
        "",
        tuple(map(int, counts)),
    )
    if not share.any():
        return found
    at = np.unravel_index(int(np.argmax(share)), share.shape)
    return replace(
        found, error=float(error[at]), allowed=float(allowed[at]), share=float(share[at]), place=tuple(map(int, at))
    )


def merged(title: str, reports: Sequence[tuple[str, Report]]) -> Report:
    """One report of several cases, by their labels. Kinds that differ between cases are listed separately."""
    outputs: dict[tuple[str, str], OutputReport] = {}
    for label, report in reports:
        for one in report.outputs:
            own, held = replace(one, case=label if one.share else ""), outputs.get((one.name, one.element))
            if held is not None:
                worst = own if own.share > held.share else held
                own = replace(
                    worst,
                    elements=held.elements + own.elements,
                    exact=held.exact + own.exact,
                    histogram=tuple(a + b for a, b in zip(held.histogram, own.histogram)),
                )
            outputs[one.name, one.element] = own
    return Report(title, sum(report.cases for _, report in reports), tuple(outputs.values()))

"""How a plan describes itself: one readable block, and a table of every candidate with its reason. No GPU is touched."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...runtime.steps import Call, Fill, Launch, Step
from ...types.layout import folded
from ...types.units import bytes_text, time_text
from ..candidate import Feasibility
from ..select import Assessment, advised
from ..selection import Selection
from ..tables.table import html_table as _table
from .exactness import exactness

__all__ = ["Explanation", "Row", "headline", "summary", "summary_html"]

_INDENT = " " * 5


@dataclass(frozen=True)
class Row:
    """One candidate (or configuration). `reason` says why it was chosen or not; figures are None if it does not apply."""

    variant: str
    config: str
    backend: str
    chosen: bool
    admitted: bool
    reason: str
    fix: str
    instead: str
    bytes: int | None
    flops: int | None
    microseconds: float | None
    limit: str


@dataclass(frozen=True)
class Explanation:
    """A table object: iterate over `rows`, print it, or let a notebook render it. `steps` names what the plan runs, in order:
    a copy of an operand that a kernel needs is one of them."""

    title: str
    rows: tuple[Row, ...]
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The table as JSON types."""
        return asdict(self)

    @staticmethod
    def of(selection: Selection, answers: Sequence[Assessment], *, configs: bool = False) -> Explanation:
        answers = _advised(selection, answers)
        chosen = next(i for i, a in enumerate(answers) if _names(a) == (selection.sku.variant, selection.sku.config))
        rows = [_row(a, i == chosen, _why(selection, answers, i, chosen)) for i, a in enumerate(answers)]
        if not configs:
            rows = _best_of_each(rows)
        rows.sort(key=_rank)
        title = f"{selection.desc.op} on {selection.device}{_counted(selection)}"
        notes = [f"error of {name} {said}" for name, said in exactness(selection).items()]
        if selection.device.nominal:
            notes.append(f"figures of {selection.device.chip} are nominal: those of its datasheet, not measured")
        return Explanation(title, tuple(rows), tuple(map(_step, selection.steps)), tuple(notes))

    def __iter__(self) -> Any:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def _cells(self) -> list[tuple[str, ...]]:
        head = ("", "variant", "back end", "moves", "FLOPs", "predicted", "limited by", "why")
        return [head, *(_row_cells(r) for r in self.rows)]

    def __repr__(self) -> str:
        lines = folded(self.title)
        cells = [("variant", "predicted", "limited by"), *(_timed(r) for r in self.rows if r.admitted)]
        widths = [max(len(row[i]) for row in cells) for i in range(3)]

        def line(mark: str, of: Sequence[str], why: str) -> list[str]:
            lead = "  ".join([mark, *(c.ljust(w) for c, w in zip(of, widths))]) + "  "
            return folded(why, lead, " " * len(lead))

        lines += line(" ", cells[0], "why")
        for row in self.rows:
            if row.admitted:
                lines += line("*" if row.chosen else "+", _timed(row), row.reason)
            else:
                lines += folded(f"{row.variant}: {_reason(row)}", "-  ", _INDENT)
            lines += folded(row.config, _INDENT, _INDENT) if row.config else []
        for said in self._runs():
            lines += folded(said)
        if any(row.config for row in self.rows):
            lines += folded("terms of configurations: print(baracuda_py.plan.glossary())")
        for note in self.notes:
            lines += folded(note)
        return "\n".join(lines)

    def _runs(self) -> list[str]:
        return [f"* runs, in order: {', '.join(self.steps)}"] if len(self.steps) > 1 else []

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        return (
            f"<p>{html.escape(self.title)}</p>"
            + _table(head, body)
            + "".join(f"<p>{html.escape(line)}</p>" for line in (*self._runs(), *self.notes))
        )


def _step(step: Step) -> str:
    """The name of a step, without a kernel's template arguments."""
    if isinstance(step, Launch):
        return step.kernel.entry.partition("<")[0]
    return step.library if isinstance(step, Call) else "memset" if isinstance(step, Fill) else "memcpy"


def _counted(selection: Selection) -> str:
    """The text for outputs whose length the device counts."""
    said = [
        f"how much of {name} is written is counted on the device, in {by}"
        for name, by in selection.desc.counted.items()
    ]
    return f" ({'; '.join(said)}: a call waits for it once to trim, unless trim=False)" if said else ""


def _advised(selection: Selection, answers: Sequence[Assessment]) -> list[Assessment]:
    """The answers, with refusals completed by the changes that would admit the candidate, or by the variant that serves."""
    found: dict[tuple[str, str], Feasibility] = {}
    for a in answers:
        key = a.candidate.variant, a.feasibility.reason
        if not a.feasibility and key not in found:
            found[key] = advised(
                a, selection.canonical, selection.pref, selection.device, instead=selection.sku.variant
            )
    return [
        replace(a, feasibility=found.get((a.candidate.variant, a.feasibility.reason), a.feasibility)) for a in answers
    ]


def _names(answer: Assessment) -> tuple[str, str]:
    return answer.candidate.variant, str(answer.config)


def _why(selection: Selection, answers: Sequence[Assessment], index: int, chosen: int) -> str:
    """Why an answer was chosen, or not. Ties go to the earlier; a tuned plan need not have the best prediction."""
    answer = answers[index]
    if not answer.feasibility:
        return answer.feasibility.reason
    seconds, held = _seconds(answer), _seconds(answers[chosen])
    if index == chosen:
        if selection.provenance == "asked for":
            return "chosen: asked for when it was planned"
        if selection.provenance != "model":
            source = "shipped table" if selection.provenance == "shipped" else selection.provenance
            return f"chosen: measured fastest ({source})"
        least = held == min(_seconds(a) for a in answers if a.feasibility)
        return "chosen: the least predicted time" if least else "chosen: asked for when it was planned"
    if seconds == held:
        return f"would serve, equal, {'later' if index > chosen else 'earlier'} in order"
    return f"would serve, predicted {'slower' if seconds > held else 'faster'}"


def _seconds(answer: Assessment) -> float:
    return answer.cost.seconds if answer.cost else 0.0


def _row(answer: Assessment, chosen: bool, why: str) -> Row:
    cost, feasible = answer.cost, answer.feasibility
    return Row(
        variant=answer.candidate.variant,
        config=str(answer.config),
        backend=str(answer.candidate.backend),
        chosen=chosen,
        admitted=bool(feasible),
        reason=why,
        fix=feasible.fix,
        instead=feasible.instead,
        bytes=cost.bytes if cost else None,
        flops=cost.flops if cost else None,
        microseconds=cost.seconds * 1e6 if cost else None,
        limit=cost.limit if cost else "",
    )


def _best_of_each(rows: Sequence[Row]) -> list[Row]:
    """The chosen configuration of each variant, else the fastest that would serve, else its fastest."""
    best: dict[str, Row] = {}
    for row in rows:
        held = best.get(row.variant)
        if held is None or _rank(row) < _rank(held):
            best[row.variant] = row
    return list(best.values())


def _rank(row: Row) -> tuple[bool, bool, float]:
    return not row.chosen, not row.admitted, row.microseconds or 0.0


def _timed(row: Row) -> tuple[str, str, str]:
    """The columns of a candidate that would serve."""
    return row.variant, time_text(row.microseconds * 1e-6) if row.microseconds is not None else "", row.limit


def _reason(row: Row) -> str:
    """Why a candidate does not serve, and what would admit it."""
    advice = "" if row.admitted else Feasibility(row.reason, row.fix, instead=row.instead).advice
    return row.reason + (f"; {advice}" if advice else "")


def _row_cells(row: Row) -> tuple[str, ...]:
    name = row.variant + (f"[{row.config}]" if row.config else "")
    return (
        "*" if row.chosen else "+" if row.admitted else "-",
        name,
        row.backend,
        bytes_text(row.bytes) if row.bytes is not None else "",
        f"{row.flops:.3g}" if row.flops else "",
        time_text(row.microseconds * 1e-6) if row.microseconds is not None else "",
        row.limit,
        _reason(row),
    )


def _facts(selection: Selection) -> list[tuple[str, str]]:
    cost = selection.cost
    operands = ", ".join(
        f"{o.name}{'?' if o.optional else ''}: {layout.element}{list(layout.shape)}"
        for o in selection.operands
        for layout in (selection.canonical.layout(o.name),)
    )
    facts = [
        ("kernel", str(selection.sku)),
        ("device", str(selection.device)),
        ("operands", operands),
        *(("guarantee", said) for said in str(selection.guarantee).splitlines()),
        ("predicted", f"{bytes_text(cost.bytes)} in {time_text(cost.seconds)}, limited by {cost.limit}"),
        ("workspace", bytes_text(selection.workspace_size)),
        ("graph", "capture-safe" if selection.capture_safe else "not capturable"),
        ("chosen by", selection.provenance),
    ]
    for launch in selection.launches:
        facts.append(
            (
                "launch",
                f"{_step(launch)}: grid {launch.grid}, block {launch.block}, {bytes_text(launch.shared_bytes)} shared",
            )
        )
    return facts


def headline(selection: Selection) -> str:
    """A plan in one line."""
    cost = selection.cost
    said = f"{time_text(cost.seconds)} predicted, limited by {cost.limit}"
    return f"<{selection.family.__name__} {selection.sku} on {selection.device}: {said}>"


def summary(selection: Selection) -> str:
    """The block that ``print(plan)`` shows."""
    facts = _facts(selection)
    width = max(len(name) for name, _ in facts)
    lines = [selection.family.__name__]
    for name, text in facts:
        lines += folded(text, f"  {name.ljust(width)}  ", " " * (width + 4))
    return "\n".join(lines)


def summary_html(selection: Selection) -> str:
    """The same block as a table."""
    return f"<p><b>{html.escape(selection.family.__name__)}</b></p>" + _table(None, _facts(selection))

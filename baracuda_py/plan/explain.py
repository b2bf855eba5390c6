"""How a plan describes itself: one readable block, and a table of every candidate with its reason. No GPU is touched."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..types.units import bytes_text, time_text
from .candidate import Feasibility
from .select import Assessment, advised

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["Explanation", "Row", "summary", "summary_html"]


@dataclass(frozen=True)
class Row:
    """One candidate (or configuration). `reason` says why it was chosen, or not; figures are None where it does not apply."""

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
    """A table object: iterate over `rows`, print it, or let a notebook render it."""

    title: str
    rows: tuple[Row, ...]

    @staticmethod
    def of(plan: Plan[Any], answers: Sequence[Assessment], *, configs: bool = False) -> Explanation:
        answers = _advised(plan, answers)
        chosen = next(i for i, a in enumerate(answers) if _names(a) == (plan.sku.variant, plan.sku.config))
        rows = [_row(a, i == chosen, _why(plan, answers, i, chosen)) for i, a in enumerate(answers)]
        if not configs:
            rows = _best_of_each(rows)
        rows.sort(key=_rank)
        return Explanation(f"{plan.desc.op} on {plan.device}", tuple(rows))

    def __iter__(self) -> Any:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def _cells(self) -> list[tuple[str, ...]]:
        head = ("", "variant", "back end", "moves", "FLOPs", "predicted", "limited by", "why")
        return [head, *(_row_cells(r) for r in self.rows)]

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]) - 1)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths)) + "  " + row[-1] for row in cells]
        terms = (
            ["terms of configurations: print(baracuda_py.plan.glossary())"] if any(r.config for r in self.rows) else []
        )
        return "\n".join([self.title, *(line.rstrip() for line in lines), *terms])

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        return f"<p>{html.escape(self.title)}</p>" + _table(head, body)


def _advised(plan: Plan[Any], answers: Sequence[Assessment]) -> list[Assessment]:
    """The answers, refusals with what was found to admit the candidate, or else with the variant that serves."""
    found: dict[tuple[str, str], Feasibility] = {}
    for a in answers:
        key = a.candidate.variant, a.feasibility.reason
        if not a.feasibility and key not in found:
            found[key] = advised(a, plan._canonical, plan.pref, plan.device, instead=plan.sku.variant)
    return [
        replace(a, feasibility=found.get((a.candidate.variant, a.feasibility.reason), a.feasibility)) for a in answers
    ]


def _names(answer: Assessment) -> tuple[str, str]:
    return answer.candidate.variant, str(answer.config)


def _why(plan: Plan[Any], answers: Sequence[Assessment], index: int, chosen: int) -> str:
    """Why an answer was chosen, or not. Ties go to the earlier; a measured winner need not be the best predicted."""
    answer = answers[index]
    if not answer.feasibility:
        return answer.feasibility.reason
    seconds, held = _seconds(answer), _seconds(answers[chosen])
    if index == chosen:
        if plan.provenance != "model":
            source = "shipped table" if plan.provenance == "shipped" else plan.provenance
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


def _row_cells(row: Row) -> tuple[str, ...]:
    advice = "" if row.admitted else Feasibility(row.reason, row.fix, instead=row.instead).advice
    why = row.reason + (f"; {advice}" if advice else "")
    name = row.variant + (f"[{row.config}]" if row.config else "")
    return (
        "*" if row.chosen else "+" if row.admitted else "-",
        name,
        row.backend,
        bytes_text(row.bytes) if row.bytes is not None else "",
        f"{row.flops:.3g}" if row.flops else "",
        time_text(row.microseconds * 1e-6) if row.microseconds is not None else "",
        row.limit,
        why,
    )


def _facts(plan: Plan[Any]) -> list[tuple[str, str]]:
    cost = plan.cost
    operands = ", ".join(
        f"{o.name}{'?' if o.optional else ''}: {layout.element}{list(layout.shape)}"
        for o in plan.operands
        for layout in (plan._canonical.layout(o.name),)
    )
    facts = [
        ("kernel", str(plan.sku)),
        ("device", str(plan.device)),
        ("operands", operands),
        ("guarantee", str(plan.precision_guarantee)),
        ("predicted", f"{bytes_text(cost.bytes)} in {time_text(cost.seconds)}, limited by {cost.limit}"),
        ("workspace", bytes_text(plan.workspace_size)),
        ("graph", "capture-safe" if plan.capture_safe else "not capturable"),
        ("chosen by", plan.provenance),
    ]
    for config in plan.launch_config:
        facts.append(
            ("launch", f"grid {config.grid}, block {config.block}, {bytes_text(config.shared_memory_bytes)} shared")
        )
    return facts


def summary(plan: Plan[Any]) -> str:
    """The block that a REPL shows for a plan."""
    facts = _facts(plan)
    width = max(len(name) for name, _ in facts)
    return "\n".join([type(plan).__name__, *(f"  {name.ljust(width)}  {text}" for name, text in facts)])


def summary_html(plan: Plan[Any]) -> str:
    """The same block as a table."""
    return f"<p><b>{html.escape(type(plan).__name__)}</b></p>" + _table(None, _facts(plan))


def _table(head: Sequence[str] | None, body: Sequence[Sequence[str]]) -> str:
    def row(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag} style='text-align:left'>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    return "<table>" + (row("th", head) if head else "") + "".join(row("td", r) for r in body) + "</table>"

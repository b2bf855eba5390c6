"""How a plan describes itself: one readable block, and a table of every candidate with its reason. No GPU is touched."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .candidate import Feasibility
from .select import Assessment, advised

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["Explanation", "Row", "summary", "summary_html"]


@dataclass(frozen=True)
class Row:
    """One candidate (or configuration): figures are None where it does not apply."""

    variant: str
    config: str
    backend: str
    chosen: bool
    admitted: bool
    reason: str
    mend: str
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
        chosen = (plan.sku.variant, plan.sku.config)
        rows = [_row(a, chosen) for a in _advised(plan, answers)]
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
        return "\n".join([self.title, *(line.rstrip() for line in lines)])

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


def _row(answer: Assessment, chosen: tuple[str, str]) -> Row:
    cost, feasible = answer.cost, answer.feasibility
    return Row(
        variant=answer.candidate.variant,
        config=str(answer.config),
        backend=str(answer.candidate.backend),
        chosen=bool(feasible) and (answer.candidate.variant, str(answer.config)) == chosen,
        admitted=bool(feasible),
        reason=feasible.reason,
        mend=feasible.mend,
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
    if row.chosen:
        why = "chosen: the least predicted time"
    elif row.admitted:
        why = "would serve, predicted slower"
    else:
        advice = Feasibility(row.reason, row.mend, instead=row.instead).advice
        why = row.reason + (f"; {advice}" if advice else "")
    name = row.variant + (f"[{row.config}]" if row.config else "")
    return (
        "*" if row.chosen else "+" if row.admitted else "-",
        name,
        row.backend,
        size_text(row.bytes) if row.bytes is not None else "",
        f"{row.flops:.3g}" if row.flops else "",
        f"{row.microseconds:.1f} us" if row.microseconds is not None else "",
        row.limit,
        why,
    )


def size_text(nbytes: float) -> str:
    """Bytes with a unit: ``8.19 KB``, ``1.07 GB`` (powers of ten)."""
    for unit in ("B", "KB", "MB", "GB"):
        if nbytes < 1000 or unit == "GB":
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    raise AssertionError


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
        ("predicted", f"{size_text(cost.bytes)} in {cost.seconds * 1e6:.1f} us, limited by {cost.limit}"),
        ("workspace", size_text(plan.workspace_size)),
        ("graph", "capture-safe" if plan.capture_safe else "not capturable"),
        ("chosen by", plan.provenance),
    ]
    for config in plan.launch_config:
        facts.append(
            ("launch", f"grid {config.grid}, block {config.block}, {size_text(config.shared_memory_bytes)} shared")
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

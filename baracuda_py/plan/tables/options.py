"""The admissible plans of a problem as a table: time, bound, registers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ...runtime.compile.compiler import compile_kernels
from ...types import BaracudaError, InvalidProblemError
from ...types.units import bytes_text, time_text
from ..about.exactness import exactness
from ..select import assess
from ..selection import Selection
from .table import Table

__all__ = ["Option", "Options", "options"]


@dataclass(frozen=True)
class Option:
    """One admissible configuration. `registers` is the largest number per thread of its kernels; None where they were not
    compiled. `plan` is what ``PlanPreference(variant=, config=)`` selects."""

    variant: str
    config: str
    chosen: bool
    microseconds: float
    limit: str
    bytes: int
    flops: int
    exactness: str
    deterministic: bool
    batch_invariant: bool
    registers: int | None
    spill_bytes: int | None
    shared_bytes: int
    workspace_bytes: int
    plan: Any = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "plan"}


@dataclass(frozen=True, repr=False)
class Options(Table):
    """The admissible plans, the chosen one first, then by predicted time. `total` counts those that were left out too."""

    title: str
    rows: tuple[Option, ...]
    total: int
    head = ("", "variant", "time", "limited by", "regs", "any batch", "error")

    @property
    def common(self) -> str:
        """The bound of the first plan; a row prints its own where that differs."""
        return self.rows[0].exactness if self.rows else ""

    def cells(self, row: Option) -> tuple[str, ...]:
        return (
            "*" if row.chosen else "+", row.variant, time_text(row.microseconds * 1e-6), row.limit,
            "" if row.registers is None else f"{row.registers}{'!' if row.spill_bytes else ''}",
            "yes" if row.batch_invariant else "no", "as above" if row.exactness == self.common else "below",
        )  # fmt: skip

    def below(self, row: Option) -> str:
        scratch = f"workspace {bytes_text(row.workspace_bytes)}" if row.workspace_bytes else ""
        return "; ".join(
            filter(None, (row.config, scratch, "" if row.exactness == self.common else f"error {row.exactness}"))
        )

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "total": self.total}


def options(selection: Selection, top: int | None, registers: bool) -> Options:
    if top is not None and (type(top) is not int or top < 1):
        raise InvalidProblemError(
            f"{selection.desc.op}: options(top={top!r:.40})", "give an int of 1 or more, or None for all"
        )
    free = replace(
        selection.pref, config=None, variant=selection.pref.variant if selection.candidate.on_request else None
    )
    answers = [
        a
        for a in assess(selection.family.all_candidates(), selection.canonical, free, selection.device)
        if a.feasibility
    ]
    mine = selection.candidate.variant, str(selection.config)
    answers.sort(key=lambda a: ((a.candidate.variant, str(a.config)) != mine, a.cost.seconds if a.cost else 0.0))
    found = []
    for answer in answers[:top]:
        pref = replace(free, variant=answer.candidate.variant, config=str(answer.config))
        found.append(Selection.of(selection.family, selection.desc, pref, selection.device, answer, "asked for"))
    if registers and not selection.device.is_host:
        _compile(found)
    rows = tuple(_option(one, (one.candidate.variant, str(one.config)) == mine, registers) for one in found)
    left = f", of which {len(rows)} are shown (top=None: all)" if len(rows) < len(answers) else ""
    count = f"{len(answers)} admissible plan{'s' * (len(answers) != 1)}{left}"
    title = f"{selection.desc.op} on {selection.device}: {count}; error {rows[0].exactness}"
    return Options(title, rows, len(answers))


def _compile(found: list[Selection]) -> None:
    """Builds all their kernels together, which takes less time than one after the other."""
    try:
        compile_kernels([launch.kernel for one in found for launch in one.launches], found[0].device.arch)
    except BaracudaError:
        return  # `_option` leaves their registers out


def _option(one: Selection, chosen: bool, registers: bool) -> Option:
    cost, guarantee, used = one.cost, one.guarantee, []
    if registers and not one.device.is_host:
        try:
            used = [kernel.resources for kernel in one.kernels]
        except BaracudaError:
            used = []
    return Option(
        variant=one.candidate.variant,
        config=str(one.config),
        chosen=chosen,
        microseconds=cost.seconds * 1e6,
        limit=cost.limit,
        bytes=cost.bytes,
        flops=cost.flops,
        exactness=exactness(one)[one.written[0]],
        deterministic=guarantee.deterministic,
        batch_invariant=guarantee.batch_invariant,
        registers=max((r.registers for r in used), default=None),
        spill_bytes=max((r.spill_bytes for r in used), default=None),
        shared_bytes=max((launch.shared_bytes for launch in one.launches), default=0),
        workspace_bytes=one.workspace_size,
        plan=one.family(one),
    )

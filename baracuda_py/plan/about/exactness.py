"""Error bounds as numbers: ``≤ 4.9e-4·Σ|a||b| + 3.9e-3·|out|``, from the terms of the bound itself."""

from __future__ import annotations

from ...types import ByOutput, Componentwise, ElementKind, Exact, PrecisionGuarantee
from ...types.precision import Bound
from ...types.units import figure_text
from ..selection import Selection

__all__ = ["SYMBOLS", "exactness", "number_of"]

# Measures that have a formula short enough for a line; docs/exactness.md explains these and all others by name.
SYMBOLS = {
    "abs_matmul": "Σ|a||b|",
    "abs_products": "Σ|x||w|",
    "abs_result": "|out|",
    "abs_sum": "Σ|x|",
    "abs_mean": "Σ|x|/n",
    "abs_pair": "(|a|+|b|)",
    "one": "1",
}


def number_of(bound: Bound, output: ElementKind) -> str:
    """The bound of a result of that kind with its numbers worked out. Terms of one measure are added."""
    if isinstance(bound, Exact):
        return "exact"
    if isinstance(bound, ByOutput):
        return ", ".join(f"{name}: {number_of(part, output)}" for name, part in bound.bounds)
    if not isinstance(bound, Componentwise):
        return f"≤ {bound.n:.3g} ulp" + (f" + {figure_text(bound.absolute)}" if bound.absolute else "")
    sums: dict[str, float] = {}
    for term in bound.terms:
        sums[term.measure] = sums.get(term.measure, 0.0) + term.coefficient * float(term.unit.unit_roundoff)
    absolute = sum(
        sums.pop(name, 0.0) * _smallest(name, output) for name in ("smallest_normal", "computed_smallest_normal")
    )
    parts = [f"{figure_text(n)}·{SYMBOLS.get(measure, measure)}" for measure, n in sums.items() if n]
    parts += [figure_text(absolute)] if absolute else []
    return f"≤ {' + '.join(parts) or '0'}" + (f", except {bound.outside}" if bound.outside else "")


def _smallest(measure: str, output: ElementKind) -> float:
    if measure == "computed_smallest_normal" and output is not ElementKind.F64:
        output = ElementKind.F32
    return float(output.smallest_normal) if output.is_float else 0.0


def exactness(selection: Selection, guarantee: PrecisionGuarantee | None = None) -> dict[str, str]:
    """The number of each result of a plan, by the result's name; of another guarantee for the same problem if it is given."""
    promised = (guarantee or selection.guarantee).for_outputs([o.name for o in selection.operands if o.written])
    return {
        name: number_of(promised.of(name).bound, selection.canonical.layout(name).element) for name in selection.written
    }

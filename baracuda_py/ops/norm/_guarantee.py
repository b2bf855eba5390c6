"""Error bounds of the norms, an output each.

u is the unit roundoff of what is computed in, and d the most additions that a term goes through (`RowConfig.depth`): a sum so
made errs by at most d u sum|terms| (N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., section 4.2). With m
and q the mean and the mean square deviation, r = 1 / sqrt(q + eps) and n = (h - m) r:

- m errs by (d + 1) u a, a = mean|h|; not at all where the norm is not centred.
- q errs by (d + 4) u relatively, two roundings a deviation, one a square, one for the division, and by the square of m's error.
- r errs by half of that and by 4 u: eps' addition, and rsqrt, which is good to 2 ulp (CUDA C++ Programming Guide, "Mathematical
  Functions").
- n weight + bias errs by r |weight| times m's error, |n weight| times r's, and four roundings more; then comes the result's own.

A step whose result is not a normal number loses up to half of the smallest one there is. Where the squares overflow, or their
mean and eps are no normal number, nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ...types import Componentwise, PrecisionGuarantee, Term, Ulp
from .._rows import RowConfig, computed_in

__all__ = ["SOURCE", "backward", "backward_fixed", "forward"]

SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, section 4.2"


def forward(desc: Any, *, depth: int, more: Mapping[str, Componentwise] = MappingProxyType({})) -> PrecisionGuarantee:
    """What a norm promises of each output; a term of a row's sum goes through at most `depth` additions. `more` are the bounds
    of further outputs."""
    unit = computed_in(desc.element).element
    d = depth
    u = unit.unit_roundoff
    of_q = (d + 4) / 2 + 4
    terms = [Term(of_q + 4, unit, "scaled"), Term(4.0, unit, "lost")]
    of_rstd = [Term(of_q, unit, "abs_result")]
    if desc.centered:
        square = (d + 1) ** 2 * u / 2
        terms += [Term(d + 1.0, unit, "mean_scaled"), Term(square, unit, "mean_squared_scaled")]
        of_rstd += [Term(square, unit, "rstd_mean_squared")]
    bounds: dict[str, Componentwise | Ulp] = {
        "out": Componentwise.rounded(terms, desc.element, SOURCE, "out_of_range"),
        "residual_out": Ulp(0.5),
        "mean": Componentwise(
            (Term(d + 1.0, unit, "mean_magnitude"), Term(2.0, unit, "computed_smallest_normal")), SOURCE
        ),
        "rstd": Componentwise(tuple(of_rstd), SOURCE, "row_out_of_range"),
        **more,
    }
    return PrecisionGuarantee.by_output(**{o.name: _promise(desc, bounds[o.name]) for o in desc.operands if o.written})


def backward(desc: Any, config: RowConfig, down: int) -> PrecisionGuarantee:
    """What a gradient promises of each output; a term of a sum over rows goes through at most `down` additions.

    mean and rstd count as exact: they are operands. n takes 2 roundings, g = grad weight one, a product of them one more; the
    last line, rstd (g - mean(g) - n mean(g n)), 4. What is lost below normal numbers comes on top, as in `forward`.
    """
    unit = computed_in(desc.element).element
    d = config.depth(desc.length)
    along = [Term(5.0, unit, "g_scaled"), Term(d + 12.0, unit, "along_scaled"), Term(8.0, unit, "lost")]
    along += [Term(d + 7.0, unit, "plain_scaled")] if desc.centered else []
    return _gradients(desc, along, down, 4.0)


def backward_fixed(desc: Any, down: int) -> PrecisionGuarantee:
    """The same of a norm by given statistics: rstd errs by 5 u, and n takes it along."""
    unit = computed_in(desc.element).element
    return _gradients(desc, [Term(8.0, unit, "g_scaled"), Term(8.0, unit, "lost")], down, 9.0)


def _gradients(desc: Any, along: list[Term], down: int, roundings: float) -> PrecisionGuarantee:
    """Of grad_x by its terms, and of sums over rows, of which n takes so many `roundings`, and the product one."""
    unit = computed_in(desc.element).element
    kinds = {"grad_x": desc.element, "grad_weight": desc.kind("weight"), "grad_bias": desc.kind("grad_bias")}
    terms = {
        "grad_x": along,
        "grad_weight": [Term(down + roundings, unit, "weight_terms"), Term(4.0, unit, "lost_down")],
        "grad_bias": [Term(down + 1.0, unit, "bias_terms")],
    }
    promised = {}
    for name, kind in kinds.items():
        if kind is not None:
            outside = f"overflowing{'' if name == 'grad_x' else '_down'}"
            bound = Componentwise.rounded(terms[name], kind, SOURCE, outside)
            promised[name] = _promise(desc, bound, batch_invariant=name == "grad_x")
    return PrecisionGuarantee.by_output(**promised)


def _promise(desc: Any, bound: Componentwise | Ulp, *, batch_invariant: bool = True) -> PrecisionGuarantee:
    """A row's length and alignment decide the order of its sums."""
    computed = computed_in(desc.element)
    return PrecisionGuarantee.fixed_order(computed.math, computed.element, bound, batch_invariant=batch_invariant)

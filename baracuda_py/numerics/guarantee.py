"""The guarantee of an oracle that computes in float64 (long double for f64) and rounds once, from that of the kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from ..types import Componentwise, ElementKind, Exact, PrecisionGuarantee, Term, Ulp

__all__ = ["product_term", "widely"]

_OWN = ("abs_result", "smallest_normal")  # of the result's own rounding


def product_term(factors: float, computed: ElementKind, measure: str) -> Term:
    """That of a product of so many factors, in whatever order: each is a rounding (Higham, section 3.1)."""
    u = computed.unit_roundoff
    return Term(math.expm1(min(factors * math.log1p(u), 700.0)) / u, computed, measure)


def widely(
    kernel: PrecisionGuarantee, desc: Any, additions: int = 1, fixed: Mapping[str, str] = MappingProxyType({})
) -> PrecisionGuarantee:  # fmt: skip
    """`kernel`'s promise of the outputs of `desc`, which is that of one addition, for sums of so many terms in float64 and a
    rounding to each output's kind. What is exact stays so.

    Where terms cancel, an error in the last place of float64 may be more than one in the last place of the result. Terms of the
    measures in `fixed` are no smaller in float64: they keep their size, and name the measure that `fixed` has for theirs.
    """
    if kernel.parts:
        return PrecisionGuarantee.by_output(
            **{name: _of_output(part, desc.layout(name).element, additions, fixed) for name, part in kernel.parts}
        )
    written = next(operand.name for operand in desc.operands if operand.written)
    return _of_output(kernel, desc.layout(written).element, additions, fixed)


def _of_output(
    kernel: PrecisionGuarantee, output: ElementKind, additions: int, fixed: Mapping[str, str]
) -> PrecisionGuarantee:
    if isinstance(kernel.bound, Exact):
        return kernel
    if not isinstance(kernel.bound, Componentwise):
        return replace(kernel, bound=Ulp(1.0), probable=None)
    unit = ElementKind.F64.unit_roundoff
    finer = float(np.finfo(np.longdouble).eps) / 2 / unit if output is ElementKind.F64 else 1.0
    sums = [
        Term(term.coefficient * max(additions, 1) * finer, ElementKind.F64, term.measure)
        for term in kernel.bound.terms
        if term.measure not in (*_OWN, *fixed)
    ]
    sums += [replace(term, measure=fixed[term.measure]) for term in kernel.bound.terms if term.measure in fixed]
    named = {"abs_result", *(term.measure for term in kernel.bound.terms)}
    own = [Term(1.0, output, measure) for measure in _OWN if measure in named]
    bound = Componentwise((*sums, *own), kernel.bound.source, kernel.bound.outside)
    return replace(kernel, bound=bound, probable=None)

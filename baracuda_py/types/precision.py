"""Error bounds as data, and the guarantee of a plan.

`Componentwise` follows N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., SIAM 2002, section 3:
|computed - exact| <= sum of coefficient * unit roundoff * measure, each measure a non-negative function of the operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from .elements import ElementKind
from .errors import InvalidProblemError
from .vocabulary import MathPrecision

__all__ = ["Bound", "ByOutput", "Componentwise", "Exact", "PrecisionGuarantee", "Term", "Ulp", "ulp_of"]

Array: TypeAlias = "np.ndarray[Any, Any]"
Measures: TypeAlias = Mapping[str, Callable[..., Array]]


@dataclass(frozen=True)
class Exact:
    """Every bit is the correctly rounded (for data movement: the very same) value."""

    def allowed(self, wide: Array, output: ElementKind, operands: Mapping[str, Array], measures: Measures) -> Any:
        return 0.0

    def __str__(self) -> str:
        return "exact"


@dataclass(frozen=True)
class Ulp:
    """|computed - exact| <= n units in the last place of the output type, plus `absolute` (0 unless small results are
    flushed)."""

    n: float
    absolute: float = 0.0

    def allowed(self, wide: Array, output: ElementKind, operands: Mapping[str, Array], measures: Measures) -> Any:
        return self.n * ulp_of(wide, output) + self.absolute

    def __str__(self) -> str:
        return f"<= {self.n:.4g} ulp" + (f" + {self.absolute:.3g}" if self.absolute else "")


@dataclass(frozen=True)
class Term:
    """coefficient * unit roundoff of `unit` * `measure`.

    Three measures need no function of a family: "abs_result" is the magnitude of the result, including its error;
    "smallest_normal" is the smallest normal number of the result's kind, and "computed_smallest_normal" that of f32, or of f64
    where the result is f64. Times the unit roundoff these are half the spacing of subnormals.
    """

    coefficient: float
    unit: ElementKind
    measure: str

    def __str__(self) -> str:
        return f"{self.coefficient:.4g} u({self.unit}) {self.measure}"


@dataclass(frozen=True)
class Componentwise:
    """A sum of terms, each scaled by a measure of the operands. `outside` names a measure that is true for elements to which
    the bound does not apply, because of their operands' values; "" if it always applies."""

    terms: tuple[Term, ...]
    source: str
    outside: str = ""

    def allowed(self, wide: Array, output: ElementKind, operands: Mapping[str, Array], measures: Measures) -> Any:
        """The final rounding applies to the computed result, which may exceed the exact one by the sum of the other terms."""
        units = [(t.coefficient * t.unit.unit_roundoff, t.measure) for t in self.terms]
        errors = sum(
            n * (measures[measure](**operands) if measure in measures else _smallest(measure, output))
            for n, measure in units
            if measure != "abs_result"
        )
        return errors + sum(n for n, measure in units if measure == "abs_result") * (np.abs(wide) + errors)

    @staticmethod
    def rounded(
        terms: Sequence[Term], output: ElementKind, source: str, outside: str = "", *, subnormal: float = 1.0
    ) -> Componentwise:
        """The bound of results that are rounded to `output` at the end: the family's `terms`, and those of this rounding,
        `subnormal` times where the result is not a normal number."""
        own = Term(1.0, output, "abs_result"), Term(subnormal, output, "smallest_normal")
        return Componentwise((*terms, *own), source, outside)

    def coefficients(self) -> dict[tuple[ElementKind, str], float]:
        """The coefficient of each measure, in units of each roundoff."""
        sums: dict[tuple[ElementKind, str], float] = {}
        for term in self.terms:
            sums[term.unit, term.measure] = sums.get((term.unit, term.measure), 0.0) + term.coefficient
        return sums

    def __str__(self) -> str:
        limits = f", but for elements {self.outside}" if self.outside else ""
        return "|error| <= " + " + ".join(map(str, self.terms)) + limits


def _smallest(measure: str, output: ElementKind) -> Any:
    """One of the measures that every bound knows; of f64 in long double, where its product with the unit roundoff is not 0."""
    if measure == "computed_smallest_normal":
        output = output if output is ElementKind.F64 else ElementKind.F32
    elif measure != "smallest_normal":
        raise KeyError(measure)
    return np.longdouble(output.smallest_normal) if output is ElementKind.F64 else output.smallest_normal


@dataclass(frozen=True)
class ByOutput:
    """Bounds that differ between outputs, as pairs (name, bound)."""

    bounds: tuple[tuple[str, Exact | Ulp | Componentwise], ...]

    def allowed(self, wide: Array, output: ElementKind, operands: Mapping[str, Array], measures: Measures) -> Any:
        raise _which([name for name, _ in self.bounds])

    def __str__(self) -> str:
        return ", ".join(f"{name}: {bound}" for name, bound in self.bounds)


Bound: TypeAlias = Exact | Ulp | Componentwise | ByOutput


def _which(names: Sequence[str]) -> InvalidProblemError:
    return InvalidProblemError(
        "precision_guarantee: its outputs differ in what they are worth", f"ask .of(name) of one: {', '.join(names)}"
    )


def _as_tight(bound: Bound, other: Bound) -> bool:
    """Whether every error that `bound` admits is admitted by `other`; False if the two cannot be compared.

    Exact is the tightest. Ulps are compared with ulps, and sums of terms by coefficient for each measure and unit.
    """
    if isinstance(bound, Exact):
        return True
    if isinstance(bound, Ulp) and isinstance(other, Ulp):
        return bound.n <= other.n and bound.absolute <= other.absolute
    if isinstance(bound, Componentwise) and isinstance(other, Componentwise):
        mine, theirs = bound.coefficients(), other.coefficients()
        return bound.outside in ("", other.outside) and all(
            coefficient <= theirs.get(what, 0.0) for what, coefficient in mine.items()
        )
    return False


def ulp_of(wide: Array, output: ElementKind) -> Array:
    """The spacing of `output`'s numbers at each |wide|, subnormals included (long double for f64: half of one counts)."""
    info = _float_info(output)
    magnitude = np.abs(np.asarray(wide, dtype=np.float64))  # rounding up to a power of two takes its ulp
    _, exponent = np.frexp(np.where(np.isfinite(magnitude), magnitude, 1.0))
    exponent = np.where(magnitude == 0, info, exponent)  # frexp(0) has exponent 0, as if it were a half
    one = np.longdouble(1) if output is ElementKind.F64 else np.float64(1)
    return np.asarray(np.ldexp(one, np.maximum(exponent - output.digits, info)))


def _float_info(output: ElementKind) -> int:
    import ml_dtypes

    finfo = ml_dtypes.finfo(output.dtype)
    return int(np.frexp(float(finfo.smallest_subnormal))[1]) - 1


@dataclass(frozen=True)
class PrecisionGuarantee:
    """The guarantee of a plan's result, computed from the chosen candidate.

    `deterministic`: the same plan on the same operands gives the same bits at every call. `bit_stable_on_same_hardware`: also
    in another process, at other addresses of the same alignment. `batch_invariant`: a row's result does not depend on the other
    rows of the batch. `exact_weights`: quantised weights are not rounded to the activations' type; True where no operand is
    such a weight. `outputs` are the names of the outputs that it covers, if known. If outputs differ, `parts` has a guarantee
    for each, which `of` returns. `bound` holds for any operands, except for the elements that it excludes. `probable`, if there
    is one, holds for operands without a pattern, and is tight enough to show missing work.
    """

    math_precision: MathPrecision
    accumulator: ElementKind
    deterministic: bool
    bit_stable_on_same_hardware: bool
    batch_invariant: bool
    flushes_subnormals: bool
    bound: Bound
    probable: Componentwise | None = field(default=None, compare=False)
    parts: tuple[tuple[str, PrecisionGuarantee], ...] = field(default=(), repr=False)
    outputs: tuple[str, ...] = field(default=(), compare=False, repr=False)
    exact_weights: bool = True

    @staticmethod
    def exact(element: ElementKind) -> PrecisionGuarantee:
        """The guarantee of a kernel that only moves bytes, or whose results are all exact."""
        return PrecisionGuarantee(MathPrecision.EXACT, element, True, True, True, False, Exact())

    @staticmethod
    def fixed_order(
        math: MathPrecision, accumulator: ElementKind, bound: Bound, *, batch_invariant: bool = True
    ) -> PrecisionGuarantee:
        """The guarantee of a kernel whose order of additions depends only on the problem: the same bits at every call."""
        return PrecisionGuarantee(math, accumulator, True, True, batch_invariant, False, bound)

    @staticmethod
    def by_output(**parts: PrecisionGuarantee) -> PrecisionGuarantee:
        """The guarantee of several outputs, each with its own. A flag is set if it is set for all of them.

        Math and accumulator are those of the first output that is computed, not moved.
        """
        each = list(parts.values())
        inexact = next((part for part in each if part.math_precision is not MathPrecision.EXACT), each[0])
        return PrecisionGuarantee(
            inexact.math_precision,
            inexact.accumulator,
            all(part.deterministic for part in each),
            all(part.bit_stable_on_same_hardware for part in each),
            all(part.batch_invariant for part in each),
            any(part.flushes_subnormals for part in each),
            ByOutput(tuple((name, part.bound) for name, part in parts.items())),  # type: ignore[misc]
            parts=tuple(parts.items()),
            outputs=tuple(parts),
            exact_weights=all(part.exact_weights for part in each),
        )

    def for_outputs(self, names: Sequence[str]) -> PrecisionGuarantee:
        """The same guarantee for outputs of these names. Raises ValueError if it names other outputs, which is an error of the
        candidate."""
        own = [name for name, _ in self.parts]
        if own and set(own) != set(names):
            raise ValueError(f"a guarantee of the outputs {', '.join(own)}, where there are {', '.join(names)}")
        return replace(self, outputs=tuple(names))

    def of(self, output: str) -> PrecisionGuarantee:
        """The guarantee of one output; raises InvalidProblemError, which lists the outputs, if there is none of that name."""
        if self.outputs and output not in self.outputs:
            raise InvalidProblemError(
                f"precision_guarantee: there is no output {output!r}", f"ask of one of {', '.join(self.outputs)}"
            )
        return dict(self.parts).get(output, self)

    def at_least(self, other: PrecisionGuarantee) -> bool:
        """Whether this guarantee is at least as strong as `other`, for each output. `probable` is not compared."""
        if self.parts or other.parts:
            names = dict.fromkeys(name for name, _ in (*self.parts, *other.parts))
            return all(dict(self.parts).get(n, self).at_least(dict(other.parts).get(n, other)) for n in names)
        flags = ("deterministic", "bit_stable_on_same_hardware", "batch_invariant", "exact_weights")
        return (
            all(getattr(self, flag) or not getattr(other, flag) for flag in flags)
            and (other.flushes_subnormals or not self.flushes_subnormals)
            and _as_tight(self.bound, other.bound)
        )

    def check(
        self,
        got: Array,
        reference: Array,
        operands: Mapping[str, Array] | None = None,
        *,
        output: ElementKind | None = None,
        measures: Measures | None = None,
    ) -> None:
        """Raises AssertionError, naming the worst element, unless `got` is within the bound of `reference`, and the probable one.

        `reference` is the wide (float64) exact result. NaN matches NaN and an infinity itself, nothing else does; an infinity
        also stands for a finite value that overflows `output` within the bound. Where the bound is not finite, only the exact
        result passes. If outputs differ, use ``.of(name)`` and check with its result; otherwise InvalidProblemError is raised.
        """
        if self.parts:
            raise _which([name for name, _ in self.parts])
        output = output or ElementKind.of(got.dtype)
        if got.shape != reference.shape:
            raise AssertionError(f"shape {got.shape} is not the reference's {reference.shape}")
        if self.exact_for(output):
            self._check_exact(got, reference)
            return
        # A long double reference (for f64 results) is kept as it is: narrowing it would cost the half ulp in question.
        wide = np.asarray(reference, dtype=np.longdouble if reference.dtype == np.longdouble else np.float64)
        with np.errstate(invalid="ignore"):  # signalling NaNs count as NaN
            found = got.astype(wide.dtype)
        _check_bound(self.bound, found, wide, output, operands or {}, measures or {})
        if self.probable:
            try:
                _check_bound(self.probable, found, wide, output, operands or {}, measures or {})
            except AssertionError as error:
                raise AssertionError(
                    f"{error}; within the bound for any operands: work is missing, unless the operands have a pattern"
                ) from None

    def deviations(
        self, got: Array, reference: Array, operands: Mapping[str, Array], output: ElementKind, measures: Measures
    ) -> tuple[Array, Array]:
        """The error of each element and what the bound allows it, both 0 where an element equals the reference. An element to
        which the bound does not apply, or that overflows within it, has no error."""
        kept = reference.dtype == np.longdouble or np.iscomplexobj(reference)
        wide = np.asarray(reference, dtype=reference.dtype if kept else np.float64)
        with np.errstate(all="ignore"):
            found = got.astype(wide.dtype)
            bound = Exact() if self.exact_for(output) else self.bound
            bad, allowed = _judged(bound, found, wide, output, operands, measures)
            error = np.abs(found - wide)
            applies = np.isfinite(error) & (np.isfinite(allowed) | bad)
            if outside := getattr(bound, "outside", ""):
                applies &= ~np.asarray(measures[outside](**operands), bool)
        return np.where(applies, error, 0.0), np.where(applies, allowed, 0.0)

    def exact_for(self, output: ElementKind) -> bool:
        """Whether only the exact result passes: always for integers, unless they are codes of values that terms bound."""
        counted = output.is_float or output.is_complex or isinstance(self.bound, Componentwise)
        return isinstance(self.bound, Exact) or not counted

    @staticmethod
    def _check_exact(got: Array, reference: Array) -> None:
        same = np.ascontiguousarray(got).view(np.uint8), np.ascontiguousarray(reference).view(np.uint8)
        if same[0].shape != same[1].shape or got.dtype != reference.dtype:
            raise AssertionError(f"dtype {got.dtype} is not the reference's {reference.dtype}")
        if not np.array_equal(*same):
            wrong = int(np.count_nonzero(same[0] != same[1]))
            raise AssertionError(f"{wrong} of {same[0].size} bytes differ from the exact result")

    def __repr__(self) -> str:
        return f"<PrecisionGuarantee {'; '.join(str(self).splitlines())}>"

    def __str__(self) -> str:
        if self.parts:
            return "\n".join(f"{name}: {part}" for name, part in self.parts)
        flags = [
            name
            for name, on in (
                ("deterministic", self.deterministic),
                ("bit-stable", self.bit_stable_on_same_hardware),
                ("batch-invariant", self.batch_invariant),
                ("flushes subnormals", self.flushes_subnormals),
                ("rounds weights", not self.exact_weights),
            )
            if on
        ]
        return f"{self.bound}; {self.math_precision} math, {self.accumulator} accumulator; {', '.join(flags)}"


def _check_bound(
    bound: Bound, found: Array, wide: Array, output: ElementKind, operands: Mapping[str, Array], measures: Measures
) -> None:
    bad, allowed = _judged(bound, found, wide, output, operands, measures)
    if bad.any():
        with np.errstate(all="ignore"):
            excess = np.where(bad, np.abs(found - wide) / np.maximum(allowed, np.finfo(np.float64).tiny), -1.0)
        at = np.unravel_index(int(np.nanargmax(np.where(np.isnan(excess), np.inf, excess))), excess.shape)
        raise AssertionError(
            f"{int(bad.sum())} of {bad.size} elements break '{bound}'; worst at {tuple(map(int, at))}: "
            f"got {found[at]!r}, reference {wide[at]!r}, off by {abs(found[at] - wide[at]):.3g}, allowed {allowed[at]:.3g}"
        )


def _judged(
    bound: Bound, found: Array, wide: Array, output: ElementKind, operands: Mapping[str, Array], measures: Measures
) -> tuple[Array, Array]:
    """Which elements break the bound, and the error that it allows each."""
    outside = getattr(bound, "outside", "")
    with np.errstate(all="ignore"):
        allowed = np.asarray(bound.allowed(wide, output, operands, measures)) + np.zeros(wide.shape)
        allowed = np.where(np.isfinite(allowed), allowed, 0)
        overflow = np.isinf(found) & (np.sign(found) == np.sign(wide)) & (np.abs(wide) + allowed >= _largest(output))
        if wide.dtype == np.longdouble:  # the oracle's own rounding
            allowed = allowed + np.abs(wide) * np.finfo(np.longdouble).eps
        close = np.isfinite(wide) & ((np.abs(found - wide) <= allowed) | overflow)
        bad = ~close & ~(found == wide) & ~(np.isnan(found) & np.isnan(wide))
        if outside and bad.any():
            bad &= ~np.asarray(measures[outside](**operands), bool)
    return bad, allowed


def _largest(output: ElementKind) -> float:
    import ml_dtypes

    if not output.is_float:
        return np.inf
    return float(ml_dtypes.finfo(output.dtype).max)

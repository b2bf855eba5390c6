"""Error bounds of softmax, log_softmax and their gradients.

u is the unit roundoff of what is computed in, d the most additions that a term of a sum goes through (`RowConfig.depth`), t_i =
x_i - max(x) and E = sum p_i |t_i| with the probabilities p. A sum errs by d u sum|terms| (N. J. Higham, *Accuracy and
Stability of Numerical Algorithms*, 2nd ed., section 4.2).

- exp(t) is 2**(t log2 e) or CUDA's own: 3 u |t| from t's rounding, the constant's and the product's, and 4 u from the function
  (PTX ISA, ex2.approx: 2**-22; CUDA C++ Programming Guide, expf: 2 ulp).
- s = sum exp(t) errs by (d + 4) u + 3 u E relatively. In one pass, a thread's sum is scaled whenever its maximum may have
  grown, and states are joined: 5 u each, `scalings` times; the exponents add up to the whole, so that E stays.
- exp(t) / s adds the two and 2 roundings; t - log(s) is absolute in s' error and adds log's 2 ulp and 2 roundings.
- exp(y) sum is computed as exp(y / 2) sum exp(y / 2), which is a normal number wherever exp(y) sum is: twice the function's error
  and one rounding more.
- Below the smallest normal number, 2**-149 or so is lost.
- A gradient whose terms add up beyond what is computed in promises nothing.
"""

from __future__ import annotations

from ...types import Componentwise, ElementKind, PrecisionGuarantee, Term
from .._rows import computed_in

__all__ = ["backward", "forward"]

SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, section 4.2"


def forward(element: ElementKind, *, log: bool, depth: int, scalings: int) -> PrecisionGuarantee:
    """What the result promises."""
    unit = computed_in(element).element
    terms: tuple[Term, ...]
    of_s = depth + 5.0 * scalings + 4
    if log:
        terms = (Term(2.0, unit, "shift"), Term(3.0, unit, "expected_shift"), Term(of_s + 2, unit, "one"),
                 Term(4.0, unit, "log_sum"), Term(1.0, unit, "abs_result"))  # fmt: skip
    else:
        terms = (Term(3.0, unit, "shifted"), Term(3.0, unit, "expected"), Term(of_s + 8, unit, "abs_result"))
    return _promise(element, terms)


def backward(element: ElementKind, *, log: bool, depth: int, scaled: bool = False) -> PrecisionGuarantee:
    """What the gradient promises: products take a rounding each, exp(y / 2) as above, and the difference one."""
    unit = computed_in(element).element
    terms: tuple[Term, ...]
    if log:
        terms = (Term(depth + 11.0, unit, "exp_sum"), Term(3.0, unit, "exp_shift_sum"), Term(1.0, unit, "abs_result"))
    else:
        terms = (Term(depth + 4.0 + scaled, unit, "y_sum"), Term(3.0 + scaled, unit, "y_grad"))
    return _promise(element, terms, "overflowing", "scaled_one_smallest" if scaled else "computed_smallest_normal")


def _promise(
    element: ElementKind, terms: tuple[Term, ...], outside: str = "", lost: str = "computed_smallest_normal"
) -> PrecisionGuarantee:
    computed = computed_in(element)
    bound = Componentwise.rounded((*terms, Term(4.0, computed.element, lost)), element, SOURCE, outside)
    return PrecisionGuarantee.fixed_order(computed.math, computed.element, bound)

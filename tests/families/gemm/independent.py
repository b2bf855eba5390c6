"""Matrix products by other means: elements picked at random, each an exact sum of products, activations by mpmath."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytest

from ...gauntlet import Problem

__all__ = ["ACTIVATIONS", "CHECKS", "Terms", "check_gradients", "check_matmul", "exact", "places", "terms_at"]

Array = np.ndarray[Any, Any]
Index = tuple[int, ...]
PICKED, PICKED_F64 = 48, 8  # f64 products are summed as fractions, which is slow
LIPSCHITZ = 1.13  # the steepest of the activations, GELU at sqrt(2): 1.1289
FUNCTION = 2.0**-44  # relative: what erf and exp of the oracle may be off


def _gelu_tanh(x: Any) -> Any:
    return x / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3)))


ACTIVATIONS: dict[str, Any] = {
    "identity": lambda x: x,
    "relu": lambda x: max(x, mpmath.mpf(0)),
    "gelu": lambda x: x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
    "gelu_tanh": _gelu_tanh,
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
}


class Terms(NamedTuple):
    """What one element of the result is made of."""

    row: Array
    column: Array
    alpha: float
    beta: float
    c: float
    bias: float
    residual: float


def places(shape: Sequence[int], count: int, seed: int = 0) -> list[Index]:
    """`count` indices into `shape`, or all of them where there are no more: both corners, the rest at random."""
    size = math.prod(shape)
    if size <= count:
        return list(np.ndindex(*shape))
    rng = np.random.default_rng(seed)
    flat = {0, size - 1, *(int(i) for i in rng.integers(0, size, count))}
    return [tuple(int(i) for i in np.unravel_index(f, tuple(shape))) for f in sorted(flat)]


def _vectors(a: Array, b: Array, at: Index) -> tuple[Array, Array]:
    """The row of a and the column of b that meet at one place of the result, with NumPy's rules for vectors."""
    lead = list(at)
    column = lead.pop() if b.ndim > 1 else None
    row = lead.pop() if a.ndim > 1 else None

    def matrix(x: Array) -> Array:
        axes = max(x.ndim - 2, 0)
        own = lead[len(lead) - axes :]
        return x[tuple(0 if n == 1 else i for i, n in zip(own, x.shape))]  # type: ignore[no-any-return]

    first, second = matrix(a), matrix(b)
    return (first if row is None else first[row]), (second if column is None else second[:, column])


def _scaled_vectors(arrays: dict[str, Array], at: Index) -> tuple[Array, Array]:
    """The same with the scales of fp8 operands, each looked up for its own row, column and 128 of k. A vector is the one row,
    or the one column, of a matrix."""
    row, column = _vectors(arrays["a"], arrays["b"], at)
    of_vector = [arrays[name].ndim == 1 for name in "ab"]
    lead = list(at)
    n = 0 if of_vector[1] else lead.pop()
    m = 0 if of_vector[0] else lead.pop()

    def scales(name: str, place: int, extent: int, along_k: int) -> Array:
        grid = np.atleast_2d(arrays[name])
        own = lead[len(lead) - (grid.ndim - 2) :]
        matrix = grid[tuple(0 if extent == 1 else i for i, extent in zip(own, grid.shape))]
        lines = np.moveaxis(matrix, along_k, 1)  # [M, 1], [M, K/128]; of b [N, 1], [N/128, K/128]
        own = lines[0 if len(lines) == 1 else place if len(lines) == extent else place // 128]
        return np.asarray([own[min(k // 128, len(own) - 1)] for k in range(row.size)], np.float64)

    if "scale_a" in arrays:
        row = row.astype(np.float64) * scales("scale_a", m, 1 if of_vector[0] else arrays["a"].shape[-2], 1)
    if "scale_b" in arrays:
        column = column.astype(np.float64) * scales("scale_b", n, 1 if of_vector[1] else arrays["b"].shape[-1], 0)
    return row, column


def terms_at(desc: Any, arrays: dict[str, Array], at: Index) -> Terms:
    """The operands of one element. An absent addend is 0, and so is c where beta is: it is not read. Nor is a product read
    where alpha is 0. Both are f32 numbers where sums are f32."""

    def addend(name: str) -> float:
        x = arrays.get(name)
        return 0.0 if x is None else float(np.broadcast_to(x, desc.shape)[at])

    row, column = _scaled_vectors(arrays, at)
    alpha, beta = (x if arrays["a"].dtype == np.float64 else float(np.float32(x)) for x in (desc.alpha, desc.beta))
    c = addend("c") if beta else 0.0
    return Terms(row, column, alpha, beta, c, addend("bias"), addend("residual"))


def _dot(row: Array, column: Array) -> Any:
    """The exact product of two vectors (of f64: as a fraction; else a product is exact in a double, and the sum rounded
    once); a float where it is not finite."""
    x, y = row.astype(np.float64).tolist(), column.astype(np.float64).tolist()
    finite = all(map(math.isfinite, x)) and all(map(math.isfinite, y))
    if finite and row.dtype == np.float64:
        total = sum((Fraction(p) * Fraction(q) for p, q in zip(x, y)), Fraction(0))
        return mpmath.mpf(total.numerator) / total.denominator
    try:
        total = math.fsum(p * q for p, q in zip(x, y))
    except ValueError:  # infinities of both signs
        total = math.nan
    return mpmath.mpf(total) if math.isfinite(total) else total


def exact(terms: Terms, activation: str) -> tuple[Any, float]:
    """One element of the result to forty digits (a float where it is not finite), and the sum of its magnitudes."""
    with mpmath.workdps(40):
        product = terms.alpha * _dot(terms.row, terms.column) if terms.alpha else 0
        before = product + terms.beta * terms.c + terms.bias
        if mpmath.isfinite(before):
            value = ACTIVATIONS[activation](mpmath.mpf(before)) + terms.residual
        else:
            limit = float(before)
            value = (limit if activation == "identity" or not limit < 0 else 0.0) + terms.residual
        value = value if mpmath.isfinite(value) else float(value)
    if not mpmath.isfinite(before):  # an infinity is summed without an error
        return value, abs(terms.residual)
    sizes = np.abs(terms.row.astype(np.float64)) @ np.abs(terms.column.astype(np.float64)) if terms.alpha else 0.0
    total = abs(terms.alpha) * float(sizes) + abs(terms.beta * terms.c) + abs(terms.bias)
    return value, LIPSCHITZ * total + abs(terms.residual)


def check_matmul(problem: Problem) -> None:
    """The oracle's elements within the rounding of the float64 (f64: long double) sums that it forms."""
    desc = problem.desc
    arrays = {o.name: problem.slots[o.name].host() for o in desc.operands if o.role == "in"}
    wide = np.asarray(problem.wide["out"])
    assert wide.shape == np.matmul(np.zeros(arrays["a"].shape, bool), np.zeros(arrays["b"].shape, bool)).shape
    double = desc.a_element.bits < 64
    unit = 2.0**-53 if double else 2.0**-64
    for at in places(wide.shape, PICKED if double else PICKED_F64):
        wanted, size = exact(terms_at(desc, arrays, at), desc.activation.value)
        got = wide[at]
        if isinstance(wanted, float) and not math.isfinite(wanted):
            assert (math.isnan(wanted) and np.isnan(got)) or got == wanted, f"oracle {got!r}, exact {wanted!r} at {at}"
            continue
        with mpmath.workdps(40):
            off = abs(_mpf(got) - wanted)
            allowed = (desc.a_shape[-1] + 16) * unit * size
            if desc.activation.value not in ("identity", "relu"):
                allowed += FUNCTION * abs(wanted)
            assert off <= allowed, f"oracle {got!r}, exact {mpmath.nstr(wanted, 25)} at {at}"


def check_gradients(problem: Problem) -> None:
    """Those of torch's autograd in float64, within the rounding of the sums on either side."""
    torch = pytest.importorskip("torch")
    host = {name: np.asarray(problem.slots[name].host(), np.float64) for name in ("grad", "a", "b")}
    grad, a, b = (torch.from_numpy(x) for x in host.values())

    def gradients(grad: Any, a: Any, b: Any) -> list[Any]:
        a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
        torch.matmul(a, b).backward(grad)
        return [a.grad.numpy(), b.grad.numpy()]

    terms = grad.numel()  # more than any element has
    for name, wanted, size in zip(("grad_a", "grad_b"), gradients(grad, a, b), gradients(grad.abs(), a.abs(), b.abs())):
        got = np.asarray(problem.wide[name], np.float64)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
        plain = np.isfinite(size)
        assert (np.abs(got - wanted)[plain] <= (2 * terms + 2) * 2.0**-53 * size[plain]).all(), name


def _mpf(x: Any) -> Any:
    """A float64 or a long double as it is."""
    high = np.float64(x)
    return mpmath.mpf(float(high)) + mpmath.mpf(float(x - high)) if math.isfinite(high) else mpmath.mpf(float(high))


CHECKS: dict[str, Callable[[Problem], None]] = {
    **dict.fromkeys(("matmul", "matmul_tc", "matmul_tc_bf16", "matmul_tc_async", "matmul_tc_bf16_async"), check_matmul),
    "matmul_backward": check_gradients,
}

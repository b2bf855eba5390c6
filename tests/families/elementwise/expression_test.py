"""Expressions of elements: their values, their CUDA, and the bound of their rounding, which holds and notices wrong ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py.numerics.expression import Expression, Precision, parse
from baracuda_py.numerics.special import phi
from baracuda_py.ops.elementwise.backward import gradients
from baracuda_py.ops.elementwise.backward._functions import functions
from baracuda_py.ops.elementwise.oracle import sigmoid
from baracuda_py.plan import get_op
from baracuda_py.types import ElementKind

from .independent_gradients import FUNCTIONS
from .row_gradients_test import ENDS, planted

COVERS = ()
PLAIN = (
    "a + b * c", "a * b - c * a", "(a - b) * (a + b)", "a / b - c", "-a * a / 3", "(a + b) / (b * c - b)",
    "where((a < b) & (b < c), a, b - c)", "where(a - b > c, a, 1 - c)", "maximum(a, b) * minimum(b, c)", "sign(a - b) * abs(c)",
    "(a * b + c) * (a * b + c) * 2 / pi",
)  # fmt: skip
CALLS = (
    "exp(-a * a) * 2 / sqrt(pi)", "sigmoid(a) * (1 + a * (1 - sigmoid(a)))", "tanh(a) - a", "sqrt(a * a + 1)",
    "log(a * a + 1)",
)  # fmt: skip
NAMES = {**vars(np), "sigmoid": sigmoid, "phi": phi}


def values(dtype: Any, scale: float) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {name: (rng.standard_normal(4000) * scale ** rng.uniform(-1, 1, 4000)).astype(dtype) for name in "abc"}


@pytest.mark.parametrize("text", [*PLAIN, *CALLS])
def test_expression_value_is_that_of_numpy(text: str) -> None:
    given = values(np.float64, 100.0)
    np.testing.assert_allclose(
        Expression.of(text, functions()).evaluate(given), eval(text, NAMES, dict(given)), rtol=1e-14
    )


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e16, 1e30])
@pytest.mark.parametrize("text", PLAIN)
def test_expression_rounding_is_within_its_bound(text: str, scale: float) -> None:
    """NumPy's float32 rounds each part as the kernels do."""
    expression, given = Expression.of(text, functions()), values(np.float32, scale)
    with np.errstate(all="ignore"):
        computed = np.asarray(expression.evaluate(given))
    wide = {name: x.astype(np.longdouble) for name, x in given.items()}
    found = expression.rounded(wide, Precision.of(ElementKind.F32), {})
    with np.errstate(all="ignore"):
        off = np.where(computed == found.value, 0, np.abs(computed - found.value))
    assert (found.beyond | (off <= found.error)).all()
    if scale == 1.0:
        assert not found.beyond.any()
        assert not off.any() or np.median(found.error[off > 0] / off[off > 0]) < 60, "the bound says next to nothing"


def test_expression_exact_results_have_no_error() -> None:
    given = {name: np.arange(-50.0, 50.0) for name in "abc"}
    found = Expression.of("a * b + 2 * c - 1", functions()).rounded(given, Precision.of(ElementKind.F32), {})
    assert not found.error.any() and not found.beyond.any()


def test_expression_overflow_is_outside_of_the_bound() -> None:
    given = {"a": np.array([1e20, 1.0, np.inf]), "b": np.array([1e20, 1.0, 1.0])}
    found = Expression.of("(a * b) / (a * b)", functions()).rounded(given, Precision.of(ElementKind.F32), {})
    assert found.beyond.tolist() == [True, False, False]
    found = Expression.of("where(a > 10, b, a * b)", functions()).rounded(given, Precision.of(ElementKind.F32), {})
    assert not found.beyond.any(), "what is not chosen does not count"


def test_expression_doubtful_condition_allows_both() -> None:
    given = {"a": np.array([1 / 3, 5.0]), "b": np.array([1 / 9, 1.0])}
    found = Expression.of("where(a * a - b > 0, 1, 7)", functions()).rounded(given, Precision.of(ElementKind.F32), {})
    assert found.error.tolist() == [6.0, 0.0]


def test_expression_cuda_has_repeated_parts_once() -> None:
    text = Expression.of("sigmoid(a) * (1 + a * (1 - sigmoid(a))) / 4", functions()).cuda()
    assert text.count("math::sigmoid") == 1 and text.startswith("const C part0 = math::sigmoid<digits>(a); return ")
    assert text.endswith("* C(0.25));"), "a division by a constant is a product"
    masked = Expression.of("where(m & (a < 1), a, 0)", functions(), ("m",))
    assert masked.cuda() == "return (((m != C(0)) && (a < C(1))) ? a : C(0));"


@pytest.mark.parametrize("text", ["a if b else c", "a[0]", "f(a)", "a and b", "'a'", "a < b < c", "exp(x=a)"])
def test_expression_outside_of_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not part of|no known function"):
        Expression.of(text, functions())
    if text != "f(a)":
        with pytest.raises(ValueError, match="is not part of"):
            parse(text)


# ---- gradients' bounds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ElementKind.F32, ElementKind.BF16, ElementKind.F64])
@pytest.mark.parametrize("op", gradients.__all__)
def test_gradient_bound_notices_a_wrong_expression(op: str, kind: ElementKind) -> None:
    """The other sign, another factor, and each operator dropped or changed: every one breaks the bound of its output."""
    known, rng = get_op(op), np.random.default_rng(4)
    row: Any = known.plan.descriptor.own_row  # type: ignore[attr-defined]
    given = {}
    for name in row.arguments:
        x = np.where(rng.random(400) < 0.4, -1, 1) * rng.uniform(0.25, 7, 400)
        x[::2] = np.where(np.abs(x[::2]) < 4, x[::2] / 4, x[::2])  # enough between -1 and 1
        given[name] = x > 0 if name in row.mask else x.astype(np.int32 if name in row.integers else kind.dtype)
    numbers = ENDS.get(row.forward.name) or {name: value + 0.25 for name, value in row.params.items()}
    params = {name: np.longdouble(value) for name, value in numbers.items()}
    desc = known.of(**given, **{name: float(value) for name, value in params.items()})
    plan, wide = known.plan.select(desc, device="h200"), known.plan.reference(desc, **given)
    results = dict(zip(plan.desc.outputs, wide if isinstance(wide, tuple) else (wide,)))
    for output, formula in row.formulas.items():
        guarantee, measures = plan.precision_guarantee.of(output), plan.measured(desc, output)
        guarantee.check(results[output].astype(kind.dtype), results[output], given, measures=measures)
        text = row.text(output)
        assert formula == Expression.of(text, functions(), row.mask)
        for wrong in planted(text):
            names = {name: x if x.dtype == bool else x.astype(np.longdouble) for name, x in given.items()} | params
            got = np.broadcast_to(Expression.of(wrong, functions(), row.mask).evaluate(names), 400)
            with pytest.raises(AssertionError, match="break"):
                guarantee.check(got.astype(kind.dtype), results[output], given, measures=measures)


def test_expression_functions_have_independent_values() -> None:
    """A gradient may name any function of the grammar: an independent answer needs each of them."""
    grammar = {"where", "maximum", "minimum", "abs", "sign", "pi"}
    assert FUNCTIONS.keys() - {"__builtins__"} == grammar | functions().keys()

"""The `gradient` of every elementwise row against central differences of the row's oracle, and the same check against wrong ones.

Values are random and away from zero, so that no function is asked at a corner, and no two values are equal. An element does not
count where the result is NaN (the root of a number below zero).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.numerics.special import digamma, phi
from baracuda_py.ops.elementwise._row import ROWS, Row
from baracuda_py.ops.elementwise.oracle import sigmoid
from baracuda_py.plan import all_ops, get_op
from baracuda_py.types import ElementKind

Array: TypeAlias = np.ndarray[Any, Any]
COUNT = 400
STEP = 2.0**-20
RELATIVE = 1e-7
FUNCTIONS: dict[str, Any] = {"sigmoid": sigmoid, "phi": phi, "digamma": digamma}
WITHOUT = ("digamma", "nextafter")  # trigamma is no function of ours; a number beside another is no smooth function
ENDS = {
    "fake_quantize": {"quant_min": -5.75, "quant_max": 6.25}
}  # params such that numbers are clamped, and others are not
all_ops()
every_row = pytest.mark.parametrize("op", [name for name, row in ROWS.items() if ElementKind.F64 in row.domain])


class Point:
    """Random values of a row's arguments and params, a gradient of the result, and the differences of the row's oracle."""

    def __init__(self, row: Row) -> None:
        self.row, self.op = row, get_op(row.name)
        rng = np.random.default_rng(5)
        self.grad = rng.standard_normal(COUNT)
        self.params = ENDS.get(row.name) or {name: default + 0.25 for name, default in row.params.items()}
        self.values: dict[str, Array] = {}
        for name in row.arguments:
            x = np.where(rng.random(COUNT) < 0.4, -1, 1) * rng.uniform(0.25, 7, COUNT)
            x[::2] = np.where(np.abs(x[::2]) < 4, x[::2] / 4, x[::2])  # enough between -1 and 1
            self.values[name] = x > 0 if name in row.mask else x.astype(int) if name in row.integers else x
        self.out = self.result({})

    def result(self, moved: dict[str, Array]) -> Array:
        """The answer of the oracle, or of the gradient's surrogate of it, with some of the arguments replaced."""
        inputs = zip(self.op.plan.descriptor.inputs, {**self.values, **moved}.values())
        given = dict(inputs)
        desc = self.op.of(**given, **self.params, **({"dtype": ElementKind.F64} if self.row.result == "given" else {}))
        surrogate = self.op.gradient and self.op.gradient.surrogate
        return np.asarray((surrogate or self.op.plan.reference)(desc, **given), np.longdouble)

    def differences(self, name: str) -> Array:
        ahead, behind = (self.result({name: self.values[name] + s * STEP}) for s in (1, -1))
        return np.asarray(self.grad * (ahead - behind) / (2 * STEP))

    def complaint(self, name: str, expression: str) -> str:
        """What an expression for an argument's gradient is wrong by; "" where it agrees."""
        names = {**vars(np), **FUNCTIONS, **self.values, **self.params, "out": self.out, "grad": self.grad}
        with np.errstate(all="ignore"):
            got, wanted = np.broadcast_to(eval(expression, {}, names), COUNT), self.differences(name)
        counts = np.isfinite(wanted)
        assert counts.sum() > COUNT / 8, "few values are inside the row's domain"
        wrong = counts & ~(np.abs(got - wanted) <= RELATIVE * (np.abs(got) + np.abs(self.grad)))
        if not wrong.any():
            return ""
        i = int(wrong.argmax())
        return f"{self.row.name}: {name}: {expression} is {got[i]:.10g}, and the oracle grows by {wanted[i]:.10g}"


@cache
def point(op: str) -> Point:
    return Point(ROWS[op])


@every_row
def test_row_gradient_is_that_of_the_oracle(op: str) -> None:
    row = ROWS[op]
    smooth = [
        name for name in row.arguments if name not in row.of_own_kind and (not row.surrogate or name in row.gradient)
    ]
    assert set(row.gradient) <= set(smooth)
    if op in WITHOUT:
        assert not row.gradient and get_op(op).gradient is None
        return
    found = [point(op).complaint(name, row.gradient.get(name, "0 * grad")) for name in smooth]
    assert not any(found), "\n".join(found)


@every_row
def test_row_gradient_is_in_its_help(op: str) -> None:
    said = get_op(op).function.__doc__ or ""
    assert all(expression in said for expression in ROWS[op].gradient.values())


# ---- the check itself ----------------------------------------------------------------------------------------------------


CHANGES: tuple[Callable[[ast.BinOp], Any], ...] = (
    lambda node: node.left,
    lambda node: node.right,
    lambda node: ast.BinOp(node.left, ast.Sub() if isinstance(node.op, ast.Add) else ast.Add(), node.right),
)


def is_arithmetic(node: ast.AST) -> bool:
    """Whether it is an operator of numbers. Those of conditions count only at points that are not among these values."""
    return isinstance(node, ast.BinOp) and not isinstance(node.op, (ast.BitAnd, ast.BitOr))


class Edit(ast.NodeTransformer):
    """Changes one operator of numbers in an expression, the `place`-th in the tree."""

    def __init__(self, place: int, change: Callable[[ast.BinOp], Any]) -> None:
        self.left, self.change = place, change

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.left -= is_arithmetic(node)
        return self.change(node) if self.left == -1 and is_arithmetic(node) else self.generic_visit(node)


def planted(expression: str) -> Iterator[str]:
    """The expression with the other sign, twice as large, and with each operator dropped with either operand, or changed to + or,
    where it is +, to -."""
    yield from (f"-({expression})", f"2 * ({expression})")
    operators = sum(is_arithmetic(node) for node in ast.walk(ast.parse(expression)))
    for place in range(operators):
        yield from (ast.unparse(Edit(place, change).visit(ast.parse(expression, mode="eval"))) for change in CHANGES)


@every_row
def test_a_wrong_row_gradient_is_noticed(op: str) -> None:
    for name, expression in ROWS[op].gradient.items():
        missed = [wrong for wrong in planted(expression) if not point(op).complaint(name, wrong)]
        assert missed == [], f"{op}: {name}: {expression}"


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_gradient_of_atan2_on_the_axes(device: str) -> None:
    """0 at the origin, and that of every other point."""
    x1, x2 = (x.ravel() for x in np.meshgrid([0.0, 2.0, -2.0], [0.0, 0.5, -0.5]))
    grad, square = np.arange(1.0, 10.0), x1 * x1 + x2 * x2
    got = bp.atan2_backward(grad, x1, x2, device=device)
    for of, (factor, known) in zip(got, ((1, x2), (-1, x1))):
        wanted = np.divide(factor * grad * known, square, out=np.zeros(9), where=square > 0)
        np.testing.assert_allclose(of, wanted, rtol=1e-15, atol=0)


def test_a_row_without_its_gradient_is_noticed() -> None:
    assert point("tanh").complaint("x", "0 * grad") and not point("sign").complaint("x", "0 * grad")

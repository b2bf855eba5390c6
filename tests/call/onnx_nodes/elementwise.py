"""ONNX's op types of elements."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

import baracuda_py as bp

from .cases import Node
from .table import MAPPED, Array, dtype_of, maps

# Op types that are one function, with the node's inputs in its order.
SAME = {
    "Abs": bp.abs, "Acos": bp.acos, "Acosh": bp.acosh, "Add": bp.add, "And": bp.logical_and, "Asin": bp.asin,
    "Asinh": bp.asinh, "Atan": bp.atan, "Atanh": bp.atanh, "BitwiseAnd": bp.bitwise_and, "BitwiseNot": bp.bitwise_not,
    "BitwiseOr": bp.bitwise_or, "BitwiseXor": bp.bitwise_xor, "Ceil": bp.ceil, "Cos": bp.cos, "Cosh": bp.cosh,
    "Equal": bp.equal, "Erf": bp.erf, "Exp": bp.exp, "Floor": bp.floor, "Greater": bp.greater,
    "GreaterOrEqual": bp.greater_equal, "HardSwish": bp.hardswish, "Identity": bp.contiguize, "IsNaN": bp.isnan,
    "Less": bp.less, "LessOrEqual": bp.less_equal, "Log": bp.log, "MatMul": bp.matmul, "Mish": bp.mish,
    "Mul": bp.multiply, "Neg": bp.neg, "Not": bp.logical_not, "Or": bp.logical_or, "PRelu": bp.prelu,
    "Reciprocal": bp.reciprocal, "Relu": bp.relu, "Round": bp.round, "Sigmoid": bp.sigmoid, "Sign": bp.sign, "Sin": bp.sin,
    "Sinh": bp.sinh, "Softplus": bp.softplus, "Softsign": bp.softsign, "Sqrt": bp.sqrt, "Sub": bp.subtract, "Tan": bp.tan,
    "Tanh": bp.tanh, "Where": bp.where, "Xor": bp.logical_xor,
}  # fmt: skip
MAPPED.update({name: lambda node, *x, f=f: f(*x) for name, f in SAME.items()})


@maps("Div")
def divide(_: Node, a: Array, b: Array) -> Any:
    if a.dtype.kind == "f":
        return bp.divide(a, b)
    quotient = bp.floor_divide(a, b)  # ONNX's integers are divided towards 0
    inexact = bp.not_equal(bp.multiply(quotient, b), a)
    below = bp.logical_xor(bp.less(a, np.zeros_like(a)), bp.less(b, np.zeros_like(b)))
    return bp.add(quotient, bp.cast(bp.logical_and(inexact, below), a.dtype))


@maps("Mod")
def modulo(node: Node, a: Array, b: Array) -> Any:
    return (bp.fmod if node.get("fmod", 0) else bp.mod)(a, b)


@maps("Pow")
def power(_: Node, a: Array, b: Array) -> Any:
    wide = np.result_type(a, b) if a.dtype.kind == b.dtype.kind else np.float64
    return bp.cast(bp.pow(bp.cast(a, wide), bp.cast(b, wide)), a.dtype)


@maps("Max")
def largest(_: Node, *x: Array) -> Any:
    return reduce(bp.maximum, x) if len(x) > 1 else bp.contiguize(x[0])


@maps("Min")
def smallest(_: Node, *x: Array) -> Any:
    return reduce(bp.minimum, x) if len(x) > 1 else bp.contiguize(x[0])


@maps("Sum")
def total(_: Node, *x: Array) -> Any:
    return reduce(bp.add, x) if len(x) > 1 else bp.contiguize(x[0])


@maps("Mean")
def average(node: Node, *x: Array) -> Any:
    return bp.affine(total(node, *x), 1 / len(x))


@maps("BitShift")
def shift(node: Node, a: Array, b: Array) -> Any:
    return (bp.left_shift if node.get("direction") == "LEFT" else bp.right_shift)(a, b)


@maps("Cast")
def cast(node: Node, x: Array) -> Any:
    return _saturated(node, x, dtype_of(node.get("to")))


@maps("CastLike")
def cast_like(node: Node, x: Array, like: Array) -> Any:
    return _saturated(node, x, like.dtype)


def _saturated(node: Node, x: Array, dtype: Any) -> Any:
    """ONNX's casts to 8-bit floats clamp, unless `saturate` is 0."""
    kind = bp.ElementKind.of(dtype)
    if "fp8" in kind.value and node.get("saturate", 1):
        most = 448.0 if kind is bp.FP8_E4M3 else 57344.0
        x = bp.clamp(x, -most, most)
    return bp.cast(x, kind)


@maps("Clip")
def clip(_: Node, x: Array, low: Any = None, high: Any = None) -> Any:
    if low is None and high is None:
        return bp.contiguize(x)
    return bp.clamp(x, *(None if bound is None else bound.item() for bound in (low, high)))


@maps("IsInf")
def is_inf(node: Node, x: Array) -> Any:
    made, zero = bp.isinf(x), np.zeros((), x.dtype)
    for name, compare in (("detect_negative", bp.greater), ("detect_positive", bp.less)):
        made = made if node.get(name, 1) else bp.logical_and(made, compare(x, zero))
    return made


@maps("Elu", "Celu")
def elu(node: Node, x: Array) -> Any:
    return (bp.celu if "celu" in node.name else bp.elu)(x, node.get("alpha", 1.0))


@maps("Selu")
def selu(node: Node, x: Array) -> Any:
    if not node.attributes:
        return bp.selu(x)
    return bp.affine(bp.elu(x, node.get("alpha", 1.6732632)), node.get("gamma", 1.050701))


@maps("Gelu")
def gelu(node: Node, x: Array) -> Any:
    return (bp.gelu_tanh if node.get("approximate") == "tanh" else bp.gelu)(x)


@maps("HardSigmoid")
def hard_sigmoid(node: Node, x: Array) -> Any:
    return bp.clamp(bp.affine(x, node.get("alpha", 0.2), node.get("beta", 0.5)), 0.0, 1.0)


@maps("LeakyRelu")
def leaky_relu(node: Node, x: Array) -> Any:
    return bp.leaky_relu(x, node.get("alpha", 0.01))


@maps("ThresholdedRelu")
def thresholded(node: Node, x: Array) -> Any:
    return bp.threshold(x, node.get("alpha", 1.0), 0.0)


@maps("Shrink")
def shrink(node: Node, x: Array) -> Any:
    lambd, bias = node.get("lambd", 0.5), node.get("bias", 0.0)
    return bp.softshrink(x, lambd) if bias == lambd else bp.hardshrink(x, lambd)


@maps("Swish")
def swish(node: Node, x: Array) -> Any:
    return bp.multiply(x, bp.sigmoid(bp.affine(x, node.get("alpha", 1.0))))


@maps("SwiGLU")
def swiglu(node: Node, a: Array, b: Array) -> Any:
    return bp.silu_mul(a, b) if node.get("alpha", 1.0) == 1.0 else bp.multiply(swish(node, a), b)

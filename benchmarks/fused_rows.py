"""Rows of fused functions: 8 ops over 4 inputs, with statistics of rows, and its gradient, beside torch and torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from .operands import Kit, itemsize
from .row import Calls, Row
from .row_families import SHORT, calls_of
from .target import BEST, Target

__all__ = ["FUSED_ROWS"]

SHAPE = (16384, 8192)
EPS = 1e-5


def _eight(a: Any, b: Any, c: Any, d: Any) -> Any:
    import baracuda_py as bp

    return bp.maximum(bp.silu(a * b + c) * d - a, 0.0) + bp.tanh(c)


def _eight_torch(torch: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return torch.relu(torch.nn.functional.silu(a * b + c) * d - a) + torch.tanh(c)


def _normed(x: Any, residual: Any, weight: Any, bias: Any) -> Any:
    import baracuda_py as bp

    h = x + residual
    centred = h - bp.mean(h, axis=-1, keepdims=True)
    return centred * bp.rsqrt(bp.mean(bp.square(centred), axis=-1, keepdims=True) + EPS) * weight + bias


def _normed_torch(torch: Any, x: Any, residual: Any, weight: Any, bias: Any) -> Any:
    return torch.nn.functional.layer_norm(x + residual, x.shape[-1:], weight, bias, EPS)


def _row(
    label: str, function: Callable[..., Any], theirs: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], dtype: str,
    target: Target,
) -> Row:  # fmt: skip
    name = f"fuse {label} {'×'.join(map(str, SHAPE))} {SHORT[dtype]}"

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        operands, out = tuple(kit.normal(shape, dtype) for shape in shapes), kit.empty(SHAPE, dtype)
        plan = bp.FusedPlan.select(bp.fuse(function).of(*operands, out=out))
        ours = plan.bind(out=out, **{f"x{i + 1}": x for i, x in enumerate(operands)})
        return calls_of(kit, name, ours, theirs, operands)

    size = itemsize(dtype)
    read, written = sum(map(prod, shapes)) * size, prod(SHAPE) * size
    return Row("fuse", name, "fuse", SHAPE, dtype, read, written, make, target, Target(1.0, "paired", BEST))


def _gradient(dtype: str, target: Target) -> Row:
    """The gradient of a norm in x and the residual, which is one, and in the weight and the bias before they are summed."""
    name = f"fuse gradient with row statistics {'×'.join(map(str, SHAPE))} {SHORT[dtype]}"

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x, residual, grad = (kit.normal(SHAPE, dtype) for _ in range(3))
        weight, bias = (kit.normal(SHAPE[-1:], dtype) for _ in range(2))
        (part,) = bp.fuse(_normed).gradient(x, residual, weight, bias)
        held = {"x1": x, "x2": residual, "x3": weight, "x4": bias, "grad": grad}
        given = {f"x{i + 1}": held[called] for i, called in enumerate(part.inputs)}
        outs = {output: kit.empty(SHAPE, dtype) for output in part.plan.desc.outputs}

        def theirs(torch: Any, x: Any, residual: Any, weight: Any, bias: Any, grad: Any) -> Any:
            needing = [t.detach().requires_grad_() for t in (x, residual, weight, bias)]
            return torch.autograd.grad(_normed_torch(torch, *needing), needing, grad)

        return calls_of(kit, name, part.plan.bind(**given, **outs), theirs, (x, residual, weight, bias, grad))

    size = itemsize(dtype)
    read, written = (3 * prod(SHAPE) + SHAPE[-1]) * size, 3 * prod(SHAPE) * size
    return Row("fuse", name, "fuse", SHAPE, dtype, read, written, make, target)


def _rows() -> Iterator[Row]:
    for dtype in SHORT:
        yield _row("8 ops over 4 inputs", _eight, _eight_torch, (SHAPE,) * 4, dtype, Target(1.05))
        shapes = (SHAPE, SHAPE, SHAPE[-1:], SHAPE[-1:])
        yield _row("with row statistics", _normed, _normed_torch, shapes, dtype, Target(1.10))
        yield _gradient(dtype, Target(1.10))


FUSED_ROWS: tuple[Row, ...] = tuple(_rows())

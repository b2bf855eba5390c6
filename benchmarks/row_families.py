"""The families that go along rows: norms, softmax, reductions. What is run, how many bytes are useful, what is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from .harness import OURS
from .operands import Kit, itemsize
from .row import Calls, Row
from .target import BEST, Target

__all__ = [
    "ROW_FAMILIES",
    "SHORT",
    "calls_of",
    "norm_backward_row",
    "norm_row",
    "reduction_backward_row",
    "reduction_row",
    "row_name",
    "softmax_backward_row",
    "softmax_row",
]

# A few rows that are longer than an SM's registers, which clusters share; no library is tuned to the last.
LONG = ((7, 999999), (2049, 151936), (5, 700001))
# Rows that begin anywhere.
ODD = ((4096, 1001), (4096, 4097), (50000, 641))
NORMS = ((16384, 4096), (8192, 8192), (4096, 16384), (131072, 128))
SOFTMAX = ((16384, 8192), (4096, 50257), (131072, 128))
BACKWARD = Target(1.08)
NORM_BACKWARD = Target(1.12)
SHORT = {"bfloat16": "bf16", "float32": "f32"}

Torch = Callable[..., Any]  # of torch and its operands, the result


def calls_of(kit: Kit, name: str, ours: Callable[[], Any], theirs: Torch, operands: tuple[Any, ...]) -> Calls:
    """Ours, torch's own and torch.compile's."""
    calls: Calls = {OURS: ours}
    if kit.torch is not None:
        given = [kit.as_torch(x) for x in operands]
        calls["torch"] = lambda: theirs(kit.torch, *given)
        if (fused := kit.compiled(name, lambda *x: theirs(kit.torch, *x))) is not None:
            calls["torch.compile"] = lambda: fused(*given)
    return calls


def _bound(op: str, operands: dict[str, Any], device: Any = None, **options: Any) -> Callable[[], Any]:
    """The op bound to operands and to scratch of its own, so that a graph can hold its launches."""
    from baracuda_py.plan import get_op

    family = get_op(op).plan
    desc = family.descriptor.of_tensors(family.descriptor.taken(op, operands), name=op, **options)
    bound: Callable[[], Any] = family.select(desc, device=device).bind(**operands)
    return bound


def row_name(op: str, shape: tuple[int, ...], dtype: str, label: str = "") -> str:
    """The op, what tells the row from others, the shape and the dtype."""
    return " ".join(filter(None, (op, label, "×".join(map(str, shape)), SHORT[dtype])))


def norm_row(op: str, shape: tuple[int, ...], dtype: str, target: Target | None, *, residual: bool = False) -> Row:
    centered, columns = op == "layer_norm", shape[-1:]

    def theirs(torch: Any, x: Any, weight: Any, *more: Any) -> Any:
        if residual:
            x = x + more[-1]
        if centered:
            return torch.nn.functional.layer_norm(x, columns, weight, more[0])
        return torch.nn.functional.rms_norm(x, columns, weight, 1e-5)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x, out, weight = kit.normal(shape, dtype), kit.empty(shape, dtype), kit.normal(columns, dtype)
        more = (kit.normal(columns, dtype),) if centered else ()
        added = (kit.normal(shape, dtype),) if residual else ()
        given: dict[str, Any] = {"residual": added[0], "residual_out": kit.empty(shape, dtype)} if residual else {}
        ours = getattr(bp, op)
        return calls_of(kit, op, lambda: ours(x, weight, *more, out=out, **given), theirs, (x, weight, *more, *added))

    nbytes = prod(shape) * itemsize(dtype) * (2 if residual else 1)
    name = row_name(op, shape, dtype, "with residual" if residual else "")
    return Row("norm", name, op, shape, dtype, nbytes, nbytes, make, target)


def norm_backward_row(op: str, shape: tuple[int, ...], dtype: str, target: Target | None = NORM_BACKWARD) -> Row:
    centered, columns = op.startswith("layer_norm"), shape[-1:]

    def theirs(torch: Any, grad: Any, x: Any, weight: Any, *statistics: Any) -> Any:
        if centered:
            mean, rstd = (s[:, None] for s in statistics)
            return torch.ops.aten.native_layer_norm_backward(
                grad, x, list(columns), mean, rstd, weight, weight, [True] * 3
            )
        n = x.float() * statistics[0][:, None]
        g = grad.float() * weight.float()
        grad_x = (g - n * (g * n).mean(-1, keepdim=True)) * statistics[0][:, None]
        return grad_x.to(x.dtype), (grad.float() * n).sum(0).to(weight.dtype)

    def make(kit: Kit) -> Calls:
        grad, x, weight = kit.normal(shape, dtype), kit.normal(shape, dtype), kit.normal(columns, dtype)
        statistics = [kit.normal(shape[:1], "float32", positive=True) for _ in range(1 + centered)]
        read = {"grad": grad, "x": x, "weight": weight, **dict(zip(("rstd", "mean"), reversed(statistics)))}
        made = {"grad_x": kit.empty(shape, dtype), "grad_weight": kit.empty(columns, dtype)}
        if centered:
            made["grad_bias"] = kit.empty(columns, dtype)
        return calls_of(kit, op, _bound(op, read | made), theirs, (grad, x, weight, *statistics))

    nbytes = prod(shape) * itemsize(dtype)
    return Row("norm", row_name(op, shape, dtype), op, shape, dtype, 2 * nbytes, nbytes, make, target)


def softmax_row(op: str, shape: tuple[int, ...], dtype: str, target: Target | None, axis: int = -1) -> Row:
    def theirs(torch: Any, x: Any) -> Any:
        return getattr(torch.nn.functional, op)(x, axis)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x, out, ours = kit.normal(shape, dtype), kit.empty(shape, dtype), getattr(bp, op)
        return calls_of(kit, op, lambda: ours(x, axis=axis, out=out), theirs, (x,))

    nbytes = prod(shape) * itemsize(dtype)
    name = row_name(op, shape, dtype, "" if axis == -1 else f"axis {axis}")
    return Row("softmax", name, op, shape, dtype, nbytes, nbytes, make, target)


def softmax_backward_row(op: str, shape: tuple[int, ...], dtype: str, target: Target | None = BACKWARD) -> Row:
    def theirs(torch: Any, grad: Any, y: Any) -> Any:
        return getattr(torch.ops.aten, f"_{op}_data")(grad, y, -1, y.dtype)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        grad, y, grad_x, ours = (
            kit.normal(shape, dtype),
            kit.normal(shape, dtype),
            kit.empty(shape, dtype),
            getattr(bp, op),
        )
        return calls_of(kit, op, lambda: ours(grad, y, grad_x=grad_x), theirs, (grad, y))

    nbytes = prod(shape) * itemsize(dtype)
    return Row("softmax", row_name(op, shape, dtype), op, shape, dtype, 2 * nbytes, nbytes, make, target)


def reduction_row(
    op: str, shape: tuple[int, ...], dtype: str, axis: int | tuple[int, ...] | None, target: Target | None
) -> Row:
    """A reduction over an axis, several, or all."""
    along = range(len(shape)) if axis is None else (axis,) if isinstance(axis, int) else axis
    gone = {a % len(shape) for a in along}
    kept = tuple(n for a, n in enumerate(shape) if a not in gone)
    said = "all" if axis is None else f"axis {axis}" if isinstance(axis, int) else f"axes {','.join(map(str, axis))}"
    name = row_name(op, shape, dtype, said)

    def theirs(torch: Any, x: Any) -> Any:
        if op == "var":
            return torch.var(x, axis, correction=0)
        function = getattr(torch, {"max": "amax", "min": "amin"}.get(op, op))
        if axis is None:
            return function(x, tuple(along)) if op == "logsumexp" else function(x)
        return function(x, axis)

    def make(kit: Kit) -> Calls:
        x, out = kit.normal(shape, dtype), kit.empty(kept, "int64" if op == "argmax" else dtype)
        ours = _bound(op, {"x": x, "out": out}, axes=None if axis is None else tuple(along))
        return calls_of(kit, name, ours, theirs, (x,))

    written = prod(kept) * (8 if op == "argmax" else itemsize(dtype))
    return Row("reduce", name, op, shape, dtype, prod(shape) * itemsize(dtype), written, make, target)


def reduction_backward_row(op: str, shape: tuple[int, ...], dtype: str, axis: int, target: Target | None) -> Row:
    """The gradient of var or logsumexp over one axis."""
    kept = tuple(n for a, n in enumerate(shape) if a != axis)
    name = row_name(op, shape, dtype, f"axis {axis}")

    def theirs(torch: Any, grad: Any, x: Any, y: Any) -> Any:
        if op == "var_backward":
            return grad.unsqueeze(axis) * (2 / shape[axis]) * (x - x.mean(axis, keepdim=True))
        return grad.unsqueeze(axis) * torch.exp(x - y.unsqueeze(axis))

    def make(kit: Kit) -> Calls:
        x, grad, y = (kit.normal(each, dtype) for each in (shape, kept, kept))
        more = {} if op == "var_backward" else {"y": y}
        ours = _bound(op, {"x": x, "grad": grad, "grad_x": kit.empty(shape, dtype), **more}, axes=(axis,))
        return calls_of(kit, name, ours, theirs, (grad, x, y))

    nbytes = prod(shape) * itemsize(dtype)
    return Row("reduce", name, op, shape, dtype, nbytes, nbytes, make, target)


def _rows() -> Iterator[Row]:
    for op in ("rms_norm", "layer_norm"):
        for shape in NORMS:
            yield norm_row(op, shape, "bfloat16", Target(1.03))
        yield norm_row(op, (16384, 4096), "float32", Target(1.03))
        yield norm_row(op, (16384, 4096), "bfloat16", Target(1.05), residual=True)
        for shape in (*NORMS, (16384, 8192)):
            yield norm_backward_row(f"{op}_backward", shape, "bfloat16")
    for op in ("softmax", "log_softmax"):
        for shape in SOFTMAX:
            yield softmax_row(op, shape, "bfloat16", Target(1.05))
        yield softmax_row(op, (16384, 4096), "float32", Target(1.05))
        yield softmax_row(op, (2, 131072), "bfloat16", Target(2.0))
        yield softmax_row(op, (16384, 8192), "bfloat16", Target(1.10), axis=0)
        yield softmax_backward_row(f"{op}_backward", (16384, 8192), "bfloat16")
    for op in ("sum", "mean", "max", "argmax", "var", "logsumexp"):
        yield reduction_row(op, (16384, 8192), "bfloat16", 1, Target(1.04))
        yield reduction_row(op, (16384, 8192), "bfloat16", 0, Target(1.04))
    for axis in (1, 0, None):
        yield reduction_row("sum", (16384, 4096), "float32", axis, Target(1.04))
    for shape in LONG:
        yield norm_row("rms_norm", shape, "bfloat16", Target(0.95, "paired", BEST))
        for op in ("softmax", "softmax_backward"):
            make = softmax_backward_row if op.endswith("backward") else softmax_row
            yield make(op, shape, "bfloat16", Target(0.95, "paired", BEST))
    for shape in ODD:
        for dtype in SHORT:
            yield norm_row("rms_norm", shape, dtype, Target(0.95, "paired", BEST))
            yield softmax_row("softmax", shape, dtype, Target(0.95, "paired", BEST))
            yield softmax_backward_row("softmax_backward", shape, dtype, Target(0.95, "paired", BEST))
    for shape in ((333, 65537), (600, 100003)):
        yield norm_row("rms_norm", shape, "float32", Target(0.95, "paired", BEST))
    yield reduction_row("sum", (4096, 50257), "bfloat16", 1, Target(1.04))
    yield reduction_row("sum", (131072, 128), "bfloat16", 1, Target(1.04))
    for op in ("sum", "var", "logsumexp"):
        for dtype in SHORT:
            shape = (64, 256, 8192 if dtype == "bfloat16" else 4096)
            for axes in ((0, 1), (0, 2), (1, 2)):
                yield reduction_row(op, shape, dtype, axes, Target(1.06))
    for dtype, shape in (("bfloat16", (16384, 8192)), ("float32", (16384, 4096))):
        yield reduction_row("argmax", shape, dtype, None, Target(1.06))
        for op in ("var", "logsumexp"):
            yield reduction_row(op, shape, dtype, None, Target(1.06))
    for axis in (1, 0):
        for op in ("argmax", "var", "logsumexp"):
            yield reduction_row(op, (16384, 4096), "float32", axis, Target(1.06))
    # 1.15 F + 2 µs; the last two shapes served no choice
    for shape, axis, excess in (
        ((700, 12288), 0, 2.8),
        ((7, 999999), 0, 2.7),
        ((50000, 640), 1, 4.3),
        ((333, 40001), 0, 3.2),
        ((30011, 1000), 1, 4.2),
    ):
        yield reduction_row("sum", shape, "bfloat16", axis, Target(excess, "excess"))


ROW_FAMILIES: tuple[Row, ...] = tuple(_rows())

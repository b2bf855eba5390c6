"""Rows of quantized norms and of masked softmax, beside torch: norms and gates written as codes, softmax of masked scores."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from .operands import Kit, itemsize
from .row import Calls, Row
from .row_families import calls_of
from .target import Target

__all__ = ["NORM_ROWS"]

SHAPES = ((4096, 4096), (8192, 8192))
SCORES = (8, 32, 1024, 1024)
MOST = {"int8": 127.0, "fp8": 448.0}
WITHIN = Target(1.10)


def _codes(torch: Any, y: Any, kind: str, columns: int) -> Any:
    """torch's own: a scale for each `columns` adjacent values, and the codes."""
    groups = y.float().unflatten(-1, (-1, columns))
    scales = groups.abs().amax(-1, keepdim=True) / MOST[kind]
    scaled = (groups / scales).flatten(-2)
    codes = scaled.round().to(torch.int8) if kind == "int8" else scaled.to(torch.float8_e4m3fn)
    return codes, scales.squeeze(-1)


def _quantized(base: str, kind: str, shape: tuple[int, ...], group: int | None) -> Row:
    op, gated = f"{base}_{kind}", base == "silu_mul"
    scheme: dict[str, Any] = {} if group is None else {"per": "group", "group_size": group}

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        function = getattr(bp, op)
        codes = kit.empty(shape, "int8" if kind == "int8" else "uint8")
        scales = kit.empty(shape[:-1] if group is None else (*shape[:-1], shape[-1] // group), "float32")
        made = {"codes": codes if kind == "int8" else bp.GpuBuffer.view(codes, bp.FP8_E4M3), "scales": scales}
        x, other = kit.normal(shape, "bfloat16"), kit.normal(shape if gated else shape[-1:], "bfloat16")

        def theirs(torch: Any, x: Any, other: Any) -> Any:
            functional = torch.nn.functional
            y = functional.silu(x) * other if gated else functional.rms_norm(x, shape[-1:], other, 1e-5)
            return _codes(torch, y, kind, group or shape[-1])

        return calls_of(kit, op, lambda: function(x, other, **scheme, **made), theirs, (x, other))

    read = prod(shape) * itemsize("bfloat16") * (2 if gated else 1)
    written = prod(shape) + 4 * prod(shape) // (group or shape[-1])
    name = f"{op} {'x'.join(map(str, shape))} {'per token' if group is None else f'per {group}'} bf16"
    return Row("norm", name, op, shape, "bfloat16", read, written, make, WITHIN)


def _masked_softmax(dtype: str, *, masked: bool) -> Row:
    """Causal scores, or scores with a mask that all heads share."""
    op = "masked_softmax"

    def make(kit: Kit) -> Calls:
        import cupy

        import baracuda_py as bp

        x, out, queries = kit.normal(SCORES, dtype), kit.empty(SCORES, dtype), cupy.arange(SCORES[-1])
        mask = cupy.ascontiguousarray(queries <= queries[:, None])

        def theirs(torch: Any, x: Any, mask: Any) -> Any:
            return torch.softmax((x * 0.125).masked_fill(~mask, float("-inf")), -1)

        def ours() -> Any:
            if masked:
                return bp.masked_softmax(x, mask, scale=0.125, out=out)
            return bp.masked_softmax(x, scale=0.125, causal=True, out=out)

        return calls_of(kit, op, ours, theirs, (x, mask))

    nbytes = prod(SCORES) * itemsize(dtype)
    name = f"{op} {'x'.join(map(str, SCORES))} {'mask' if masked else 'causal'} bf16"
    return Row("softmax", name, op, SCORES, dtype, nbytes, nbytes, make, WITHIN)


def _rows() -> Iterator[Row]:
    for shape in SHAPES:
        for kind in MOST:
            yield _quantized("rms_norm", kind, shape, None)
        yield _quantized("rms_norm", "fp8", shape, 128)
    yield _quantized("silu_mul", "int8", (8192, 8192), None)
    for masked in (False, True):
        yield _masked_softmax("bfloat16", masked=masked)


NORM_ROWS: tuple[Row, ...] = tuple(_rows())

"""Rows of NF4 weights: products beside cuBLAS in bf16, bitsandbytes and dequantising first; weights dequantised and quantised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .harness import OURS
from .operands import Kit, TorchCall, itemsize
from .row import Calls, Row
from .target import Target

__all__ = ["NF4_ROWS", "nf4_arrays", "nf4_bytes"]

GROUP, CUBLAS, DEQUANTISED, BITSANDBYTES = "nf4", "cublas", "dequantise first", "bitsandbytes"
N = K = 8192
BLOCK, BF16 = 64, "bfloat16"
LIMITS = {1: 1.25, 4: 1.30, 16: 1.40}  # times F, as of int4 weights


def nf4_arrays(kit: Kit, n: int = N, k: int = K, *, double: bool = False) -> dict[str, Any]:
    """Random codes, and magnitudes of a size that nothing overflows from."""
    made, blocks = {"codes": kit.normal((n, k // 8), "float32").view(np.uint8)}, n * k // BLOCK
    if not double:
        return made | {"absmax": kit.normal((blocks,), "float32", positive=True)}
    made["absmax"] = kit.normal((blocks // 4,), "float32").view(np.uint8)
    scales = kit.normal((-(-blocks // 256),), "float32", positive=True)
    return made | {"scales": scales, "offset": kit.normal((), "float32")}


def nf4_bytes(n: int = N, k: int = K, *, double: bool = False) -> int:
    """Of a weight."""
    blocks = n * k // BLOCK
    return n * k // 2 + (blocks + blocks // 64 if double else 4 * blocks)


def _bitsandbytes(kit: Kit, x: Any) -> TorchCall | None:
    """Its own product, of a weight that it has quantised itself; where it is installed."""
    try:
        import bitsandbytes.functional as peer

        codes, state = peer.quantize_4bit(kit.as_torch(kit.normal((N, K), BF16)), blocksize=BLOCK, quant_type="nf4")
        call = TorchCall(lambda: peer.gemv_4bit(x, codes.t(), state=state))
        call()
    except (ImportError, RuntimeError, AttributeError):
        return None
    return call


def _product(m: int, double: bool) -> Row:
    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        operands = {"x": kit.normal((m, K), BF16), **nf4_arrays(kit, double=double), "out": kit.empty((m, N), BF16)}
        desc, select = bp.Nf4MatmulDescriptor.of(**operands), bp.Nf4MatmulPlan.select
        calls: Calls = {OURS: select(desc).bind(**operands)}
        calls[DEQUANTISED] = select(desc, bp.PlanPreference(variant="dequantize_matmul")).bind(**operands)
        if kit.torch is not None:
            x, out = kit.as_torch(operands["x"]), kit.as_torch(operands["out"])
            dense = kit.as_torch(kit.normal((N, K), BF16))
            calls[CUBLAS] = TorchCall(lambda: kit.torch.mm(x, dense.T, out=out))
            if m == 1 and (call := _bitsandbytes(kit, x)) is not None:
                calls[BITSANDBYTES] = call
        return calls

    label, size = f"{N}×{K} M={m}" + " double" * double, itemsize(BF16)
    read, written = nf4_bytes(double=double) + size * m * K, size * m * N
    return Row(GROUP, label, "matmul_nf4", (m, N), BF16, read, written, make, Target(LIMITS[m]))


def _dequantize(double: bool) -> Row:
    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        operands = {**nf4_arrays(kit, double=double), "out": kit.empty((N, K), BF16)}
        return {OURS: bp.DequantizeNf4Plan.select(bp.DequantizeNf4Descriptor.of(**operands)).bind(**operands)}

    label = "dequantise to bf16" + " double" * double
    return Row(
        GROUP,
        label,
        "dequantize_nf4",
        (N, K),
        BF16,
        nf4_bytes(double=double),
        itemsize(BF16) * N * K,
        make,
        Target(1.10),
    )


def _quantize(double: bool) -> Row:
    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        made = nf4_arrays(kit, double=double)
        operands = {"x": kit.normal((N, K), BF16), "out": made.pop("codes"), **made}
        desc = bp.QuantizeNf4Descriptor.of(**operands, double_quant=double)
        return {OURS: bp.QuantizeNf4Plan.select(desc).bind(**operands)}

    label = "quantise bf16" + " double" * double
    return Row(GROUP, label, "quantize_nf4", (N, K), BF16, itemsize(BF16) * N * K, nf4_bytes(double=double), make)


def _rows() -> Iterator[Row]:
    for double in (False, True):
        for m in LIMITS:
            yield _product(m, double)
        yield _dequantize(double)
        yield _quantize(double)


NF4_ROWS: tuple[Row, ...] = tuple(_rows())

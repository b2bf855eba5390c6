"""Rows of products with int4 weights, beside cuBLAS in bf16, torch's tinygemm, and dequantising first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .harness import OURS
from .operands import Kit, TorchCall, itemsize
from .row import Calls, Row
from .target import Target

__all__ = ["INT4_ROWS", "SERVING", "TOKENS", "Weight", "int4_operands"]

CUBLAS, TINYGEMM, DEQUANTISED, THREE = "cublas", "tinygemm", "dequantise first", "three products"
SQUARE = {1: 1.25, 4: 1.30, 16: 1.40, 64: 1.90}  # times F, of 8192 x 8192
TOKENS = (1, 3, 7, 9, 17, 31, 33, 63, 65, 127, 129, 255, 257, 511)
FEW, LEAST_FEW, LEAST = 64, 1.3, 0.60  # up to so many tokens so many times cuBLAS, and above
BF16 = "bfloat16"


class Weight(NamedTuple):
    """A weight [K, N] of int4 codes with a bf16 scale for `group_size` of K."""

    n: int
    k: int
    group_size: int = 128

    @property
    def bytes(self) -> int:
        return self.n * self.k // 2 + self.n * self.k // self.group_size * 2

    def __str__(self) -> str:
        return f"{self.n}×{self.k} g{self.group_size}"


# Weights as servers have them: projections of models of 8 to 72 billion parameters, and two small ones.
SERVING = tuple(
    Weight(n, k)
    for n, k in (
        (6144, 4096),
        (28672, 4096),
        (4096, 14336),
        (10240, 8192),
        (3584, 18944),
        (2112, 7168),
        (1536, 1536),
    )
)


def int4_operands(kit: Kit, weight: Weight, m: int) -> dict[str, Any]:
    """Activations, random codes in layout "tiled", scales, and room for the result."""
    strips, blocks = -(-weight.n // 16), -(-weight.k // 64)
    codes = kit.normal((strips, blocks, 32, 4), "float32").view(np.uint32)
    scales = kit.normal((weight.k // weight.group_size, strips * 16), BF16, positive=True)
    return {
        "x": kit.normal((m, weight.k), BF16),
        "codes": codes,
        "scales": scales,
        "out": kit.empty((m, weight.n), BF16),
    }


def _plan(weight: Weight, operands: dict[str, Any], variant: str | None = None) -> Any:
    import baracuda_py as bp

    desc = bp.Int4MatmulDescriptor.of(**operands, shape=(weight.k, weight.n), group_size=weight.group_size)
    return bp.Int4MatmulPlan.select(desc, bp.PlanPreference(variant=variant))


def _tinygemm(kit: Kit, weight: Weight, x: Any) -> TorchCall | None:
    """torch's own: its packing, scales and zero points in one array; where this torch and GPU have it."""
    torch = kit.torch
    try:
        packed = torch.ops.aten._convert_weight_to_int4pack(
            torch.randint(0, 256, (weight.n, weight.k // 2), dtype=torch.uint8, device="cuda"), 8
        )
        points = torch.randn(weight.k // weight.group_size, weight.n, 2, dtype=torch.bfloat16, device="cuda")
        call = TorchCall(lambda: torch.ops.aten._weight_int4pack_mm(x, packed, weight.group_size, points))
        call()
    except (RuntimeError, AttributeError):
        return None
    return call


def _row(group: str, weight: Weight, m: int, *targets: Target) -> Row:
    def make(kit: Kit) -> Calls:
        operands = int4_operands(kit, weight, m)
        calls: Calls = {OURS: _plan(weight, operands).bind(**operands)}
        calls[DEQUANTISED] = _plan(weight, operands, "dequantize_matmul").bind(**operands)
        if kit.torch is not None:
            x, out = kit.as_torch(operands["x"]), kit.as_torch(operands["out"])
            dense = kit.as_torch(kit.normal((weight.n, weight.k), BF16))
            calls[CUBLAS] = TorchCall(lambda: kit.torch.mm(x, dense.T, out=out))
            if (call := _tinygemm(kit, weight, x)) is not None:
                calls[TINYGEMM] = call
        return calls

    size = itemsize(BF16)
    read, written = weight.bytes + size * m * weight.k, size * m * weight.n
    return Row(group, f"{weight} M={m}", "matmul_int4", (m, weight.n), BF16, read, written, make, *targets)


def _projection(widths: tuple[int, int, int], k: int, m: int, target: Target) -> Row:
    """Queries, keys and values of the same tokens, beside three products."""
    weights = [Weight(n, k) for n in widths]

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        given: dict[str, Any] = {"x": kit.normal((m, k), BF16)}
        for part, weight in zip("qkv", weights):
            own = int4_operands(kit, weight, m)
            given |= {f"w{part}": own["codes"], f"scales_{part}": own["scales"], part: own["out"]}
        desc = bp.QkvProjectDescriptor.of(**given, widths=widths, weights="int4")
        plan = bp.QkvProjectPlan.select
        three = plan(desc, bp.PlanPreference(variant="three_products"))
        return {OURS: plan(desc).bind(**given), THREE: three.bind(**given)}

    size, label = itemsize(BF16), "+".join(map(str, widths))
    read, written = sum(w.bytes for w in weights) + size * m * k, size * m * sum(widths)
    return Row(
        "int4 qkv", f"{label}×{k} M={m}", "qkv_project_int4", (m, sum(widths)), BF16, read, written, make, target
    )


def _rows() -> Iterator[Row]:
    yield _projection((8192, 1024, 1024), 8192, 1, Target(1.15))
    yield _projection((8192, 1024, 1024), 8192, 2048, Target(1.0, "paired", THREE))
    for m, limit in SQUARE.items():
        yield _row("int4", Weight(8192, 8192), m, Target(limit))
    for weight in SERVING:
        for m in TOKENS:
            faster = Target(LEAST_FEW if m <= FEW else LEAST, "paired", CUBLAS)
            yield _row("int4 serving", weight, m, faster, *(() if m <= FEW else (Target(1.0, "paired", DEQUANTISED),)))


INT4_ROWS: tuple[Row, ...] = tuple(_rows())

"""Rows of GGUF blocks: dequantised and made, and products with weights in them, beside cuBLAS on the same shape in bf16."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from baracuda_py.types import GgufFormat

from .harness import OURS
from .operands import Call, Kit, TorchCall, itemsize
from .row import Calls, Row
from .target import Target

__all__ = ["GGUF_ROWS", "Weights", "gguf_operands", "large"]

GROUP, ONE_ROW, CUBLAS, DEQUANTIZED = "gguf", "one row", "cublas bf16", "dequantised first"
WIDE = 16384  # K of weights that no cache holds
# Times the floor of reading the weights, where these are 512 MB or more.
ONE = {"q4_k": 1.15, "q8_0": 1.15, "q6_k": 1.25}
OTHERS = 1.33
FEW = {2: 1.15, 4: 1.15, 8: 1.30}  # times the time of one row
# N and K of a served model's layers: attention's, and a gated network's.
SERVED = ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672))
SERVED_ROWS = (1, 3, 7, 15, 31, 63, 127, 255, 511)


@dataclass(frozen=True)
class Weights:
    """Weights [n, k] in blocks."""

    kind: GgufFormat
    n: int
    k: int

    @property
    def nbytes(self) -> int:
        return self.n * self.kind.block.bytes_of(self.k)

    def made(self, kit: Kit) -> Any:
        """Random codes, and d of a size that nothing overflows from."""
        block = self.kind.block
        w = kit.normal((self.n, self.nbytes // self.n // 4), "float32").view(np.uint8)
        by_block = w.reshape(-1, block.nbytes)
        for of in (block.d, *((block.least,) if block.least else ())):
            number = np.float32(0.01) if of.kind == "f32" else np.float16(0.01)
            for i, byte in enumerate(number.tobytes() if of.kind != "e8m0" else b"\x78"):
                by_block[:, of.at + i] = byte
        return w


def gguf_operands(w: Any, kit: Kit, weights: Weights, m: int) -> dict[str, Any]:
    """Blocks, and fresh activations and results."""
    return {"x": kit.normal((m, weights.k), "bfloat16"), "w": w, "out": kit.empty((m, weights.n), "bfloat16")}


def _product(w: Any, kit: Kit, weights: Weights, m: int, math: str | None, variant: str | None = None) -> Call:
    """Bound to blocks and fresh activations."""
    import baracuda_py as bp

    operands = gguf_operands(w, kit, weights, m)
    desc = bp.GgufMatmulDescriptor.of(**operands, format=weights.kind, math=math)
    bound: Call = bp.GgufMatmulPlan.select(desc, bp.PlanPreference(variant=variant)).bind(**operands)
    return bound


def _cublas(kit: Kit, weights: Weights, m: int) -> Calls:
    if kit.torch is None:
        return Calls()
    torch = kit.torch
    x, w, out = (
        kit.as_torch(made)
        for made in (
            kit.normal((m, weights.k), "bfloat16"),
            kit.normal((weights.n, weights.k), "bfloat16"),
            kit.empty((m, weights.n), "bfloat16"),
        )
    )
    return {CUBLAS: TorchCall(lambda: torch.matmul(x, w.T, out=out))}


def _row(weights: Weights, m: int, math: str | None, targets: tuple[Target, ...], *, served: bool = False) -> Row:
    def make(kit: Kit) -> Calls:
        w = weights.made(kit)
        calls: Calls = {OURS: _product(w, kit, weights, m, math)}
        if m > 1 and not served:
            calls[ONE_ROW] = _product(w, kit, weights, 1, math)
        if served:
            calls |= _cublas(kit, weights, m)
            calls[DEQUANTIZED] = _product(w, kit, weights, m, None, "dequantized")
        return calls

    label = f"{weights.kind} M={m} N={weights.n} K={weights.k}" + (f" {math}" if math else "")
    moved = itemsize("bfloat16") * m * (weights.k + weights.n)
    group = f"{GROUP} served" if served else GROUP
    return Row(
        group, label, "matmul_gguf", (m, weights.n, weights.k), "bfloat16", weights.nbytes + moved, 0, make, *targets
    )


def _dequantize(weights: Weights) -> Row:
    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        w, out = weights.made(kit), kit.empty((weights.n, weights.k), "bfloat16")
        desc = bp.GgufDequantizeDescriptor.of(w, format=weights.kind, out=out)
        return {OURS: bp.GgufDequantizePlan.select(desc).bind(blocks=w, out=out)}

    written = itemsize("bfloat16") * weights.n * weights.k
    return Row(
        GROUP, f"dequantise {weights.kind} to bf16", "dequantize_gguf", (weights.n, weights.k), "bfloat16", weights.nbytes,
        written, make, Target(1.10),
    )  # fmt: skip


def _quantize(weights: Weights) -> Row:
    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x, out = (
            kit.normal((weights.n, weights.k), "bfloat16"),
            kit.empty((weights.n, weights.nbytes // weights.n), "uint8"),
        )
        desc = bp.GgufQuantizeDescriptor.of(x, format=weights.kind, out=out)
        return {OURS: bp.GgufQuantizePlan.select(desc).bind(x=x, out=out)}

    read = itemsize("bfloat16") * weights.n * weights.k
    return Row(
        GROUP, f"quantise bf16 to {weights.kind}", "quantize_gguf", (weights.n, weights.k), "bfloat16", read, weights.nbytes,
        make,
    )  # fmt: skip


def large(kind: GgufFormat) -> Weights:
    """512 MB or a little more."""
    row = kind.block.bytes_of(WIDE)
    return Weights(kind, -(-(512 << 20) // row // 256) * 256, WIDE)


def _rows() -> Iterator[Row]:
    for kind in GgufFormat:
        yield _row(large(kind), 1, None, (Target(ONE.get(kind.value, OTHERS)),))
    for kind in (GgufFormat.Q4_K, GgufFormat.Q8_0, GgufFormat.Q6_K):
        yield _row(large(kind), 1, "int8", (Target(ONE[kind.value]),))
        for m, limit in FEW.items():
            for math in (None, "int8"):
                yield _row(large(kind), m, math, (Target(limit, against=ONE_ROW),))
    for n, k in SERVED:
        for m in SERVED_ROWS:
            least = Target(1.30 if m <= 64 else 0.60, "paired", CUBLAS)
            yield _row(
                Weights(GgufFormat.Q4_K, n, k), m, None, (least, Target(1.00, "paired", DEQUANTIZED)), served=True
            )
    for kind in (GgufFormat.Q4_K, GgufFormat.Q8_0, GgufFormat.Q6_K, GgufFormat.Q4_0):
        yield _dequantize(Weights(kind, WIDE, WIDE))
        yield _quantize(Weights(kind, WIDE, WIDE))


GGUF_ROWS: tuple[Row, ...] = tuple(_rows())

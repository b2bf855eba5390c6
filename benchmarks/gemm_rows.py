"""The rows of matrix products: our own kernels, whatever `select` would take, beside cuBLAS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .cublaslt import lt_calls, takes
from .gemm_peers import cublas_call, padded_call, torch_epilogue
from .harness import OURS
from .operands import Kit
from .products import SHORT, Product, plan_of
from .row import Calls, Row
from .target import BEST, Target

__all__ = ["GEMM_ROWS", "Contest"]

GROUP, CUBLAS, UNPADDED, PADDED = "gemm", "cublas", "cublas unpadded", "pad, cublas, cut"
SQUARES = {1024: 1.10, 2048: 1.05, 4096: 1.00, 8192: 0.99, 16384: 0.99}
LAYOUTS = {"rc": "A·Bᵀ", "cr": "Aᵀ·B", "cc": "Aᵀ·Bᵀ"}
SKINNY = {1: 1.04, 16: 1.06, 64: 1.06, 128: 1.06}
RAGGED = ((4095, 4097, 4093), (777, 1333, 2049), (8192, 8191, 8200))
WIDE = 8192
ALONE = (4096, WIDE)  # squares that power limits


def faster(times: float) -> Target:
    """At least so many times the speed of the best peer, from paired rounds."""
    return Target(times, "paired", BEST)


@dataclass(frozen=True)
class Contest:
    """One set of operands of a product: our own kernel, and beside it cuBLAS as torch calls it and cuBLASLt's first
    heuristics, or torch where there is an epilogue; where the pitch is ragged, cuBLAS on padded copies as well. With `select`,
    what it would take among all back ends too."""

    product: Product
    select: bool = False

    def __call__(self, kit: Kit) -> Calls:
        operands = self.product.operands(kit)
        calls: Calls = {OURS: plan_of(self.product).bind(**operands)}
        if self.product.epilogue:
            if kit.torch is not None:
                calls["torch"] = torch_epilogue(kit, operands)
        elif self.product.ragged:
            calls[UNPADDED] = cublas_call(kit, self.product, operands)
            if kit.torch is not None:
                calls[PADDED] = padded_call(kit, self.product, operands)
        else:
            calls[CUBLAS] = cublas_call(kit, self.product, operands)
            if takes(self.product):
                calls |= lt_calls(self.product, operands)
        if self.select:
            calls["select"] = plan_of(self.product, None).bind(**operands)
        return calls


def _compute(
    name: str, product: Product, target: Target | None, also: Target | None = None, *, select: bool = False
) -> Row:
    """A compute-bound row; a second target is of the leg in which each runs by itself."""
    return Row(
        GROUP, name, product.name, product.shape, product.dtype, product.read, product.written, Contest(product, select),
        target, also, flops=product.flops,
    )  # fmt: skip


def _skinny(name: str, product: Product, floor: float) -> Row:
    """A row so short in M that reading the weights is the work: cold, in a graph, beside the floor of the weights alone."""
    return Row(
        GROUP, name, product.name, product.shape, product.dtype, product.weights, 0, Contest(product), Target(floor),
        faster(1.0),
    )  # fmt: skip


def _extents(*extents: int) -> str:
    return f"{extents[0]}³" if len(set(extents)) == 1 else "×".join(map(str, extents))


def _rows() -> Iterator[Row]:
    for dtype in ("bfloat16", "float16"):
        for size, target in SQUARES.items():
            alone = Target(1.0, "alone", BEST) if size in ALONE else None
            yield _compute(f"{SHORT[dtype]} {size}³", Product(size, size, size, dtype), faster(target), alone)
    for layout, text in LAYOUTS.items():
        for size in (4096, WIDE):
            alone = Target(1.0, "alone", BEST) if layout == "rc" else None
            yield _compute(f"bf16 {size}³ {text}", Product(size, size, size, layout=layout), faster(1.0), alone)
    yield _compute(f"bf16 → f32 {WIDE}³", Product(WIDE, WIDE, WIDE, out_dtype="float32"), faster(1.03))
    for m, n, k, target in ((4096, 14336, 4096, 1.0), (512, 14336, 4096, 1.08)):
        yield _compute(f"bf16 {_extents(m, n, k)}", Product(m, n, k), faster(target))
    for m, floor in SKINNY.items():
        for layout, text in (("rr", "weights [K, N]"), ("rc", "weights [N, K]")):
            yield _skinny(f"bf16 M = {m}, {text}", Product(m, WIDE, WIDE, layout=layout), floor)
    yield _compute("TF32 4096³", Product(4096, 4096, 4096, "float32", math="tf32"), faster(0.9), select=True)
    for size in (4096, WIDE):
        for math, target in (("fp8", 1.00), ("fp8_fast", 0.97)):
            eight = Product(size, size, size, "float8_e4m3fn", "rc", out_dtype="bfloat16", math=math, scales="tensor")
            yield _compute(f"{math} → bf16 {size}³", eight, faster(target))
        yield _compute(f"fp8 → bf16 {size}³, scales by blocks", replace(eight, math="fp8", scales="blocks"), None)
    for dtype in ("float32", "float64"):
        yield _compute(f"{SHORT[dtype]} 4096³", Product(4096, 4096, 4096, dtype), faster(0.9), select=True)
    for size in (4096, WIDE):
        named = Product(size, size, size, "float16", out_dtype="float32", name="matmul_tc_async")
        yield _compute(f"f16 → f32 {size}³, tc_async", named, faster(0.6))
    for m, n, k in RAGGED:
        product = Product(m, n, k)
        yield _compute(f"bf16 {_extents(m, n, k)}", product, faster(1.10 if product.ragged else 0.95))
    for batch, m, n, k in ((64, 512, 512, 512), (32, 1024, 1024, 128)):
        yield _compute(f"bf16 {batch} of {_extents(m, n, k)}", Product(m, n, k, batch=(batch,)), faster(1.0))
    for size in (4096, WIDE):
        yield _compute(f"bf16 {size}³, bias and gelu", Product(size, size, size, epilogue=True), None)


GEMM_ROWS: tuple[Row, ...] = tuple(_rows())

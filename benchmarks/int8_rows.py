"""Rows of products with i8 weights and of quantising, beside torch._int_mm, cuBLAS in bf16, and dequantise-then-matmul."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from .harness import OURS
from .operands import Call, Kit, TorchCall, itemsize
from .row import Calls, Row
from .target import Target

__all__ = ["INT8_ROWS", "codes"]

INT_MM, CUBLAS, SEPARATE = "torch._int_mm", "cublas bf16", "dequantise, matmul"
WIDTHS = (8192, 1024, 1024)  # of queries, keys and values


def codes(kit: Kit, rows: int, columns: int) -> Any:
    """Random bytes: those of normal deviates in f32."""
    return kit.normal((rows, columns // 4), "float32").view("int8")


def _int_mm(kit: Kit, a: Any, b: Any) -> Call | None:
    """torch's own product, which takes more than 16 rows."""
    if kit.torch is None or a.shape[0] <= 16:
        return None
    torch, given = kit.torch, [kit.as_torch(a), kit.as_torch(b.T).T]
    out = torch.empty((a.shape[0], b.shape[1]), dtype=torch.int32, device=given[0].device)
    return TorchCall(lambda: torch._int_mm(*given, out=out))


def _cublas(kit: Kit, m: int, n: int, k: int) -> Call | None:
    """The same shape in bf16."""
    if kit.torch is None:
        return None
    a, b, out = (kit.as_torch(kit.normal(s, "bfloat16")) for s in ((m, k), (n, k), (m, n)))
    return TorchCall(lambda: kit.torch.matmul(a, b.T, out=out))


def _square(n: int, out: str) -> Row:
    """s8 products of s8, unscaled or scaled by rows and columns."""

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        a, b = codes(kit, n, n), codes(kit, n, n).T
        given = {"a": a, "b": b, "out": kit.empty((n, n), {"i32": "int32", "bf16": "bfloat16"}[out])}
        if out != "i32":
            given |= {name: kit.normal((n,), "float32", positive=True) for name in ("scale_a", "scale_b")}
        plan = bp.Int8MatmulPlan.select(bp.Int8MatmulDescriptor.of(**given))
        calls: Calls = {OURS: plan.bind(**given)}
        if (peer := _int_mm(kit, a, b)) is not None:
            calls[INT_MM] = peer
        return calls

    size = 4 if out == "i32" else 2
    name, target = f"s8 → {out} {n}³", Target(1.00, "paired", INT_MM)
    return Row("int8", name, "matmul_int8", (n, n, n), "int8", 2 * n * n, size * n * n, make, target, flops=2 * n**3)


def _tokens(m: int, n: int, k: int, dtype: str, *, along_k: bool = True, dynamic: bool = False) -> Row:
    """A few tokens, or many, with weights [n, k]: s8, or floats (W8A16), or quantized on the way."""

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        b = codes(kit, n, k).T if along_k else codes(kit, k, n)
        a = codes(kit, m, k) if dtype == "int8" else kit.normal((m, k), dtype)
        given = {
            "a": a,
            "b": b,
            "scale_b": kit.normal((n,), "float32", positive=True),
            "out": kit.empty((m, n), "bfloat16"),
        }
        if dtype == "int8":
            given["scale_a"] = kit.normal((m,), "float32", positive=True)
        options: dict[str, Any] = {"dynamic": True} if dynamic else {}
        plan = bp.Int8MatmulPlan.select(bp.Int8MatmulDescriptor.of(**given, **options))
        calls: Calls = {OURS: plan.bind(**given)}
        if (peer := _cublas(kit, m, n, k)) is not None:
            calls[CUBLAS] = peer
        if dtype != "int8" and not dynamic:
            desc = bp.Int8MatmulDescriptor.of(**given)
            calls[SEPARATE] = bp.Int8MatmulPlan.select(desc, bp.PlanPreference(variant="dequantized")).bind(**given)
        return calls

    way = "" if along_k else ", weights [K, N]"
    kind = {"int8": "s8", "bfloat16": "W8A16"}[dtype] + (" dynamic" if dynamic else "")
    read, written, flops = n * k + m * k * itemsize(dtype), 2 * m * n, 2 * m * n * k
    target = Target(1.10) if m <= 16 else Target(1.00, "paired", CUBLAS)
    many = flops if m > 64 else 0
    return Row("int8", f"{kind} M = {m}{way}", "matmul_int8", (m, n, k), dtype, read, written, make, target, flops=many)


def _projection(m: int, k: int) -> Row:
    """Queries, keys and values in one call, beside three."""

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x = kit.normal((m, k), "bfloat16")
        given: dict[str, Any] = {"x": x}
        three = []
        for part, n in zip("qkv", WIDTHS):
            weight, scale, out = (
                codes(kit, n, k).T,
                kit.normal((n,), "float32", positive=True),
                kit.empty((m, n), "bfloat16"),
            )
            given |= {f"w{part}": weight, f"scale_{part}": scale, part: out}
            own = {"a": x, "b": weight, "scale_b": scale, "out": out}
            three.append(bp.Int8MatmulPlan.select(bp.Int8MatmulDescriptor.of(**own)).bind(**own))
        plan = bp.QkvProjectPlan.select(bp.QkvProjectDescriptor.of(**given))
        return {OURS: plan.bind(**given), "three calls": lambda: [call() for call in three]}

    n = sum(WIDTHS)
    target = Target(1.15) if m == 1 else Target(1.00, "paired", "three calls")
    flops = 2 * m * n * k if m > 64 else 0
    read, written = n * k + 2 * m * k, 2 * m * n
    return Row(
        "int8", f"qkv M = {m}", "qkv_project_int8", (m, n, k), "bfloat16", read, written, make, target, flops=flops
    )


def _quantize(op: str, shape: tuple[int, ...], per: str) -> Row:
    """bf16 as codes with scales, and back."""

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        scales = {"row": shape[:1], "column": shape[1:], "tensor": ()}[per]
        floats, made = kit.normal(shape, "bfloat16"), kit.empty(shape, "int8")
        scale = kit.normal((1, *scales), "float32", positive=True).reshape(scales)
        if op == "quantize_int8":
            given = {"x": floats, "codes": made, "scales": scale}
            return {OURS: bp.QuantizePlan.select(bp.QuantizeDescriptor.of(**given, per=per)).bind(**given)}
        given = {"codes": codes(kit, *shape), "scales": scale, "out": floats}
        return {OURS: bp.DequantizePlan.select(bp.DequantizeDescriptor.of(**given, per=per)).bind(**given)}

    floats, bytes_ = 2 * prod(shape), prod(shape)
    read, written = (floats, bytes_) if op == "quantize_int8" else (bytes_, floats)
    again = floats if op == "quantize_int8" and per != "row" else 0  # once for the ranges
    return Row("int8", f"{op} per {per}", op, shape, "bfloat16", read + again, written, make, Target(1.10))


def _rows() -> Iterator[Row]:
    for n in (4096, 8192):
        for out in ("i32", "bf16"):
            yield _square(n, out)
    for m in (1, 16, 64):
        yield _tokens(m, 8192, 8192, "int8")
    for m in (1, 4, 16, 64, 512):
        yield _tokens(m, 8192, 8192, "bfloat16")
    for m in (1, 16):
        yield _tokens(m, 8192, 8192, "int8", along_k=False)
        yield _tokens(m, 8192, 8192, "bfloat16", along_k=False)
    for m in (1, 16, 2048):
        yield _tokens(m, 8192, 8192, "bfloat16", dynamic=True)
        yield _projection(m, 8192)
    for per in ("row", "column", "tensor"):
        yield _quantize("quantize_int8", (16384, 8192), per)
    yield _quantize("dequantize_int8", (16384, 8192), "row")


INT8_ROWS: tuple[Row, ...] = tuple(_rows())

"""The peers of matrix products: cuBLAS as torch calls it, or through our own binding where torch is missing or cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .operands import Call, Kit, TorchCall
from .products import Operands, Product, plan_of

__all__ = ["cublas_call", "padded_call", "torch_epilogue"]

EIGHT = 8  # elements of 16 bits in 16 bytes, the pitch that fast kernels take


def cublas_call(kit: Kit, product: Product, operands: Operands) -> Call:
    """cuBLAS's product written into out, in strict f32 or in TF32 whatever torch's own switch says."""
    if kit.torch is not None:
        call = _torch_call(kit, product, operands)
        if call is not None:
            return call
    bound: Call = plan_of(replace(product, name="matmul"), "cublas").bind(**operands)
    return bound


def _torch_call(kit: Kit, product: Product, operands: Operands) -> TorchCall | None:
    torch = kit.torch
    a, b, out = (kit.as_torch(operands[name]) for name in ("a", "b", "out"))
    if product.scales:
        scales = [kit.as_torch(operands[name]) for name in ("scale_a", "scale_b")]
        if product.scales == "tensor":
            scales = [x.reshape(()) for x in scales]
        fast = product.math == "fp8_fast"
        return TorchCall(lambda: torch._scaled_mm(a, b, *scales, out_dtype=out.dtype, use_fast_accum=fast, out=out))
    if product.result != product.dtype:
        try:
            torch.mm(a, b, out_dtype=out.dtype, out=out)
        except (TypeError, RuntimeError):  # an older torch
            return None
        return TorchCall(lambda: torch.mm(a, b, out_dtype=out.dtype, out=out))
    if product.dtype != "float32":
        return TorchCall(lambda: torch.matmul(a, b, out=out))
    switch, wanted = torch.backends.cuda.matmul, product.math == "tf32"

    def call() -> Any:
        before, switch.allow_tf32 = switch.allow_tf32, wanted
        try:
            return torch.matmul(a, b, out=out)
        finally:
            switch.allow_tf32 = before

    return TorchCall(call)


def padded_call(kit: Kit, product: Product, operands: Operands) -> TorchCall:
    """What a user of cuBLAS does with rows whose pitch is no multiple of 16 bytes: copy them into wider ones, multiply, and
    cut the result out. The wider arrays are there beforehand, their edges zero."""
    torch = kit.torch
    a, b, out = (kit.as_torch(operands[name]) for name in ("a", "b", "out"))
    m, n, k = product.m, product.n, product.k
    wide_n, wide_k = (-(-extent // EIGHT) * EIGHT for extent in (n, k))

    def wider(rows: int, columns: int) -> Any:
        return torch.zeros((rows, columns), dtype=a.dtype, device=a.device)

    wide_a = wider(m, wide_k) if wide_k != k else a
    wide_b = wider(wide_k, wide_n) if (wide_k, wide_n) != (k, n) else b
    wide_out = wider(m, wide_n) if wide_n != n else out

    def call() -> None:
        if wide_a is not a:
            wide_a[:, :k].copy_(a)
        if wide_b is not b:
            wide_b[:k, :n].copy_(b)
        torch.matmul(wide_a, wide_b, out=wide_out)
        if wide_out is not out:
            out.copy_(wide_out[:, :n])

    return TorchCall(call)


def torch_epilogue(kit: Kit, operands: Operands) -> TorchCall:
    """gelu(a b + bias) as torch has it: addmm, then gelu (erf)."""
    torch = kit.torch
    a, b, bias, out = (kit.as_torch(operands[name]) for name in ("a", "b", "bias", "out"))
    between, gelu = torch.empty_like(out), torch.ops.aten.gelu.out

    def call() -> Any:
        torch.addmm(bias, a, b, out=between)
        return gelu(between, out=out)

    return TorchCall(call)

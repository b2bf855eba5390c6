"""The peers of matrix products: cuBLAS as torch calls it, or through our own binding where torch is missing or cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .operands import Call, Kit, TorchCall
from .products import Operands, Product, plan_of

__all__ = ["cublas_call", "torch_epilogue"]


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


def torch_epilogue(kit: Kit, operands: Operands) -> TorchCall:
    """gelu(a b + bias) as torch has it: addmm, then gelu (erf)."""
    torch = kit.torch
    a, b, bias, out = (kit.as_torch(operands[name]) for name in ("a", "b", "bias", "out"))
    between, gelu = torch.empty_like(out), torch.ops.aten.gelu.out

    def call() -> Any:
        torch.addmm(bias, a, b, out=between)
        return gelu(between, out=out)

    return TorchCall(call)

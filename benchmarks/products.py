"""A matrix product to be timed: its extents, dtypes and layouts, its operands, and the plans that compute it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from .operands import Kit, itemsize

__all__ = ["SHORT", "Operands", "Product", "plan_of"]

SHORT = {
    "bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64", "float8_e4m3fn": "fp8_e4m3",
}  # fmt: skip
Operands = dict[str, Any]


@dataclass(frozen=True)
class Product:
    """out[m, n] = a[m, k] b[k, n], batched.

    `layout` is the order of a and b, one letter each: "r" in rows, "c" in columns, that is, a transposed view of rows. `name` is
    our function of it.
    """

    m: int
    n: int
    k: int
    dtype: str = "bfloat16"
    layout: str = "rr"
    batch: tuple[int, ...] = ()
    out_dtype: str = ""
    math: str | None = None
    name: str = "matmul"
    epilogue: bool = False  # gelu(a b + bias)
    scales: str = ""  # of a and of b: "tensor", a number each, or "blocks", those of a with M innermost, of b with K

    @property
    def result(self) -> str:
        """The dtype of out."""
        return self.out_dtype or self.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.batch, self.m, self.n, self.k)

    @property
    def flops(self) -> int:
        return 2 * prod(self.shape)

    @property
    def read(self) -> int:
        """Bytes of a and b."""
        return prod(self.batch) * (self.m + self.n) * self.k * itemsize(self.dtype)

    @property
    def weights(self) -> int:
        """Bytes of b."""
        return prod(self.batch) * self.n * self.k * itemsize(self.dtype)

    @property
    def written(self) -> int:
        return prod(self.batch) * self.m * self.n * itemsize(self.result)

    @property
    def ragged(self) -> bool:
        """Whether the pitch of an operand's rows (or columns, by its layout) is no multiple of 16 bytes."""
        a, b = (self.k if self.layout[0] == "r" else self.m), (self.n if self.layout[1] == "r" else self.k)
        pitches = (a * itemsize(self.dtype), b * itemsize(self.dtype), self.n * itemsize(self.result))
        return any(p % 16 for p in pitches)

    def _scale_shapes(self) -> dict[str, tuple[int, ...]]:
        from baracuda_py.ops.products.scales import SCALES, accepted

        if not self.scales:
            return {}
        kind = {"tensor": 0, "blocks": 2}[self.scales]
        return {name: accepted(name, self.m, self.n, self.k)[kind] for name in SCALES}

    def operands(self, kit: Kit) -> Operands:
        """Random a and b, and where it is asked for the bias, with an out to be written."""

        def matrix(rows: int, cols: int, order: str) -> Any:
            if order == "r":
                return typed(kit.normal((*self.batch, rows, cols), self.dtype))
            return typed(kit.normal((*self.batch, cols, rows), self.dtype).swapaxes(-1, -2))

        def typed(x: Any) -> Any:
            import baracuda_py as bp

            return bp.GpuBuffer.view(x, self.dtype) if self.dtype.startswith("float8") else x

        made = {
            "a": matrix(self.m, self.k, self.layout[0]),
            "b": matrix(self.k, self.n, self.layout[1]),
            "out": kit.empty((*self.batch, self.m, self.n), self.result),
        }
        for name, shape in self._scale_shapes().items():
            made[name] = kit.normal(shape[::-1], "float32", positive=True).T
        return made | ({"bias": kit.normal((self.n,), self.dtype)} if self.epilogue else {})

    def descriptor(self) -> Any:
        """What `select` is asked, of operands that are aligned as an allocator aligns them."""
        import baracuda_py as bp

        lead = (*self.batch,)
        strides: dict[str, Any] = {}
        for name, rows, cols, order in (("a", self.m, self.k, self.layout[0]), ("b", self.k, self.n, self.layout[1])):
            if order == "c":
                outer = [rows * cols * prod(lead[i + 1 :]) for i in range(len(lead))]
                strides[f"{name}_strides"] = (*outer, 1, rows)
        if self.epilogue:
            strides |= {"bias_shape": (self.n,), "bias_element": SHORT[self.dtype], "activation": "gelu"}
        for name, shape in self._scale_shapes().items():
            strides |= {f"{name}_shape": shape, f"{name}_element": "f32", f"{name}_strides": (1, shape[0])}
        return bp.MatmulDescriptor(
            (*lead, self.m, self.k),
            (*lead, self.k, self.n),
            SHORT[self.dtype],
            SHORT[self.dtype],
            out_element=SHORT[self.result],
            math=self.math,
            name=self.name,
            **strides,
        )


@lru_cache(maxsize=64)
def plan_of(product: Product, backend: str | None = "bespoke", device: Any = None) -> Any:
    """The plan that `select` makes among our own kernels, or of another back end, or (None) of all."""
    import baracuda_py as bp

    pref = bp.PlanPreference(backend=backend)
    return bp.MatmulPlan.select(product.descriptor(), pref, device=device)

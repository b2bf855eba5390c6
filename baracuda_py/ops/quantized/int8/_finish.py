"""How sums are finished, as kernels take it: the C++ type and the struct. Mirrors kernels/include/quantized/product.cuh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from ....plan.lowering import Place
from ....runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Scratch, Struct
from ....types import DeviceSpec, ElementKind
from ..._launch import THREADS, divisor, grid_of, index_scalar, index_type, overlapped_overhead
from ...products.split import SplitCosts
from .problem import CODES, Product, Side, group_of, step_of

__all__ = ["BATCH", "HEADER", "Finish", "partial_finish", "parts_of", "reduce_parts", "second_pass", "side_strides"]

HEADER = '#include "quantized/product.cuh"\n'  # ahead of kernels for any type
NULL = Packed(bytes(8))
BATCH = Packed(np.array([1, 1], np.uint32).tobytes(), 4)  # of one matrix


@dataclass(frozen=True)
class Finish:
    """A C++ type Finish and its fields, with ZEROS left open."""

    types: str
    flags: str
    zero: str
    fields: tuple[Arg, ...]  # out, bias, scales, zero points
    steps: tuple[int, ...]  # out's row and column, then of the others
    k: int
    zeroed: bool

    @staticmethod
    def of(
        desc: Any, product: Product, renames: Mapping[str, Place] = MappingProxyType({}), *, paired: bool = True
    ) -> Finish:
        """That of a product; `renames` says where operands are that are not ours by the same name, `paired` whether neighbours
        may go together."""

        def pointer(name: str) -> Arg:
            return renames.get(name, Ptr(name)) if desc.has(name) else NULL

        def step(name: str) -> int:
            return step_of(desc, name) if desc.has(name) and not (grouped and name == "scale_b") else 0

        grouped = bool(group_of(desc))
        bias = desc.layout("bias").element.number if desc.has("bias") else "Absent"
        scaled = desc.has("scale_a") or desc.dynamic, desc.has("scale_b") and not grouped
        out, names = product.out, ("bias", "scale_a", "scale_b", "zero_a", "zero_b")
        return Finish(
            f"{out.element.number}, {bias}, {desc.activation.name}",
            f"{_flag(paired and product.paired)}, {_flag(scaled[0])}, {_flag(scaled[1])}",
            product.a.element.number if product.a.element in CODES else "i8",
            (pointer("out"), *map(pointer, names)), (out.row, out.col, *map(step, names)), product.k,
            desc.has("zero_a") or desc.has("zero_b"),
        )  # fmt: skip

    def kind(self, zeros: str) -> str:
        """The C++ type; `zeros` is one of Zeros, where there are any zero points."""
        chosen = zeros if self.zeroed else "NO_ZEROS"
        return f"quantized::Finish<{self.types}, {self.flags}, quantized::{chosen}, {self.zero}>"

    def args(self, rows: Arg = NULL, columns: Arg = NULL) -> tuple[Any, ...]:
        """The struct's fields, with sums along K of A's rows and B's columns."""
        steps = np.array(self.steps, np.int64).tobytes() + np.array([self.k, 0], np.int32).tobytes()
        return (*self.fields, rows, columns, Packed(steps, 8))


def partial_finish(product: Product, zeroed: Finish, *, integers: bool) -> Finish:
    """That which stores the sums of a part of K unchanged."""
    element = ElementKind.I32 if integers else ElementKind.F32
    paired = _flag(product.n % 2 == 0)
    return Finish(
        f"{element.number}, Absent, IDENTITY", f"{paired}, false, false", zeroed.zero,
        (Scratch.named("parts", 0), *(NULL,) * 3, *zeroed.fields[4:]), (product.n, 1, 0, 0, 0, *zeroed.steps[5:]), 0,
        zeroed.zeroed,
    )  # fmt: skip


def parts_of(product: Product, splits: int) -> Scratch:
    """The sums of all parts: [splits][M][N] of 4 bytes."""
    return Scratch.named("parts", 4 * splits * product.m * product.n)


def second_pass(product: Product, splits: int, device: DeviceSpec) -> float:
    """Seconds that writing the parts and adding them takes; 0 where K is whole."""
    if splits == 1:
        return 0.0
    nbytes = 4 * splits * product.m * product.n
    costs = SplitCosts.of(device)
    latency = overlapped_overhead(device) + costs.latency_s + splits * costs.part_latency_s
    return latency + 2 * nbytes / device.bandwidth


def reduce_parts(product: Product, finish: Finish, splits: int, zeros: str, sums: tuple[Arg, ...], acc: str) -> Launch:
    """The second pass (kernels/gemm/reduce.cu): the parts in order, then what finishes them."""
    vector = 4
    while product.n % vector:
        vector //= 2
    vectors = product.m * product.n // vector
    index = index_type(vectors)
    entry = f"reduce<{acc}, {vector}, {THREADS}, {index}, {finish.kind(zeros)}>"
    return Launch(
        Kernel("gemm/reduce.cu", entry, HEADER), grid_of(vectors, THREADS), (THREADS, 1, 1),
        (parts_of(product, splits), Struct(finish.args(*sums)), BATCH, index_scalar(vectors, index), np.uint32(splits),
         np.uint32(product.m), divisor(product.n // vector, index), divisor(product.m, index)),
        pdl=True,
    )  # fmt: skip


def _flag(value: bool) -> str:
    return str(bool(value)).lower()


def side_strides(side: Side) -> Packed:
    """The struct OperandStrides of one matrix."""
    return Packed(np.array([side.row, side.col, 0, 0, 0], np.int64).tobytes(), 8)

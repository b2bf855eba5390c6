"""The memory-bound rows: what is run, how many bytes are useful, who the peers are, what is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from baracuda_py.ops.elementwise import binary, unary
from baracuda_py.types import ElementKind

from .floor import Floor
from .harness import OURS
from .operands import Kit, itemsize
from .peers import cupy_call, torch_function
from .row import Calls, Row
from .target import Target

__all__ = ["ROWS", "write_slice_plan"]

Ranges = tuple[tuple[int, int], ...]

LARGE = (16384, 8192)
MEMCPY = Target(1.01, against="memcpy")
"""Memcpy speed: a paired median repeats within a hundredth."""


def _of_floats(table: Sequence[Any]) -> tuple[str, ...]:
    """The names of the rows whose operands and results are floats, without run-time numbers."""
    return tuple(row.name for row in table if not row.params and row.result != "bool" and ElementKind.F32 in row.domain)


UNARY, BINARY = _of_floats(unary.TABLE), _of_floats(binary.TABLE)
POSITIVE = {"sqrt", "rsqrt", "log", "pow"}
ELEMENTWISE_TARGETS = {"add": Target(1.03), "gelu": Target(1.08)}
SWEPT = {
    "bfloat16": ((4, 1024), (32, 1024), (256, 1024), (2048, 1024), (16384, 1024)),
    "float32": ((2, 1024), (1024, 1024)),
}


# ---- write_slice ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _selected(plan: Any, descriptor: Any) -> Any:
    return plan.select(descriptor)


def write_slice_plan(dest: Any, source: Any, ranges: Ranges, **structure: Any) -> Any:
    """The plan of a write, selected once for all operand sets that look alike."""
    import baracuda_py as bp

    descriptor = bp.WriteSliceDescriptor.of(dest=dest, source=source, ranges=ranges, **structure)
    return _selected(bp.WriteSlicePlan, descriptor)


def _extents(ranges: Ranges) -> tuple[int, ...]:
    return tuple(stop - start for start, stop in ranges)


def _window_calls(kit: Kit, dest: Any, source: Any, ranges: Ranges) -> Calls:
    """Ours bound, and the assignment that a CuPy or torch user would write."""
    plan = write_slice_plan(dest, source, ranges)
    window = tuple(slice(*r) for r in ranges)
    calls: Calls = {OURS: plan.bind(dest=dest, source=source), "cupy": lambda: dest.__setitem__(window, source)}
    if kit.torch is not None:
        torch_window, torch_source = kit.as_torch(dest)[window], kit.as_torch(source)
        calls["torch"] = lambda: torch_window.copy_(torch_source)
    return calls


def _window(name: str, dest: tuple[int, ...], ranges: Ranges, dtype: str, target: Target | None = None) -> Row:
    """A window of `dest`, written from a contiguous source."""

    def make(kit: Kit) -> Calls:
        return _window_calls(kit, kit.empty(dest, dtype), kit.normal(_extents(ranges), dtype), ranges)

    nbytes = prod(_extents(ranges)) * itemsize(dtype)
    return Row("write_slice", name, "write_slice", dest, dtype, nbytes, nbytes, make, target)


def _contiguous(name: str, rows: int, columns: int, dtype: str) -> Row:
    """Whole rows of a larger destination: one run of bytes, beside the memcpy of as many."""
    dest_shape, ranges = (rows + rows // 4, columns), ((rows // 8, rows // 8 + rows), (0, columns))

    def make(kit: Kit) -> Calls:
        import cupy

        dest, source = kit.empty(dest_shape, dtype), kit.normal((rows, columns), dtype)
        calls = _window_calls(kit, dest, source, ranges)
        window = dest[rows // 8 : rows // 8 + rows]
        copy, current = cupy.cuda.runtime.memcpyAsync, cupy.cuda.get_current_stream
        kind = cupy.cuda.runtime.memcpyDeviceToDevice
        calls["memcpy"] = lambda: copy(window.data.ptr, source.data.ptr, source.nbytes, kind, current().ptr)
        return calls

    nbytes = rows * columns * itemsize(dtype)
    return Row("write_slice", name, "write_slice", dest_shape, dtype, nbytes, nbytes, make, MEMCPY)


def _token_append(name: str, dest_shape: tuple[int, ...], dtype: str, *, fresh: bool) -> Row:
    """One token into a cache at a position read from device memory, beside a kernel that does nothing.

    With `fresh`, the token and the position are in L2, as after the kernels that made them; without, they come from memory.
    """
    ranges = ((0, 1), *((0, extent) for extent in dest_shape[1:]))
    shared: list[Any] = []

    def make(kit: Kit) -> Calls:
        dest = kit.empty(dest_shape, dtype)
        if not (fresh and shared):
            shared[:] = [kit.normal((1, *dest_shape[1:]), dtype), kit.xp.asarray(dest_shape[0] // 2, dtype="int64")]
        source, start = shared
        bound = write_slice_plan(dest, source, ranges, dynamic_axis=0).bind(dest=dest, source=source, start=start)
        return {OURS: bound, "empty kernel": Floor().empty()}

    nbytes = prod(dest_shape[1:]) * itemsize(dtype)
    target = Target(0.5, "excess", "empty kernel")
    return Row("write_slice", name, "write_slice", dest_shape, dtype, nbytes, nbytes, make, target)


def _write_slice_rows() -> Iterator[Row]:
    full, heads = (0, 16384), ((0, 8), (0, 32))
    yield _contiguous("contiguous 1 GiB", 65536, 8192, "bfloat16")
    yield _contiguous("contiguous 64 MiB", 4096, 8192, "bfloat16")
    yield _contiguous("contiguous 8 KiB", 8, 512, "bfloat16")
    yield _window("inner window", LARGE, (full, (1024, 7168)), "bfloat16", Target(1.05))
    yield _window("unaligned window", LARGE, (full, (1001, 7145)), "bfloat16", Target(1.12))
    yield _window("prefill BHSD", (8, 32, 4096, 128), (*heads, (1024, 3072), (0, 128)), "bfloat16", Target(1.04))
    yield _window("inner window 4 MiB", (2048, 2048), ((0, 2048), (512, 1536)), "bfloat16")
    yield _window("inner window 8 KiB", (64, 128), ((0, 64), (32, 96)), "bfloat16")
    yield _token_append("append one token, in L2", (8192, 32, 128), "bfloat16", fresh=True)
    yield _token_append("append one token, cold", (8192, 32, 128), "bfloat16", fresh=False)


# ---- contiguize ----------------------------------------------------------------------------------------------


def _permute(name: str, shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, target: Target | None = None) -> Row:
    """A permuted view made contiguous."""

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        view = kit.normal(shape, dtype).transpose(axes)
        out = kit.empty(view.shape, dtype)
        calls: Calls = {OURS: lambda: bp.contiguize(view, out=out), "cupy": lambda: out.__setitem__(..., view)}
        if kit.torch is not None:
            torch_out, torch_view = kit.as_torch(out), kit.as_torch(view)
            calls["torch"] = lambda: torch_out.copy_(torch_view)
        return calls

    nbytes = prod(shape) * itemsize(dtype)
    return Row("contiguize", name, "contiguize", shape, dtype, nbytes, nbytes, make, target)


def _contiguize_rows() -> Iterator[Row]:
    yield _permute("transpose bf16", LARGE, (1, 0), "bfloat16", Target(1.12))
    yield _permute("transpose f32", LARGE, (1, 0), "float32")
    yield _permute("BSHD to BHSD bf16", (8, 4096, 32, 128), (0, 2, 1, 3), "bfloat16")
    yield _permute("transpose 4 MiB bf16", (2048, 1024), (1, 0), "bfloat16")


# ---- elementwise ---------------------------------------------------------------------------------------------


def _elementwise(
    op: str, shapes: tuple[tuple[int, ...], ...], dtype: str, label: str = "", target: Target | None = None
) -> Row:
    """One elementwise op over operands of `shapes`, broadcast to the first."""

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        ours = getattr(bp, op)
        inputs = [kit.normal(s, dtype, positive=op in POSITIVE) for s in shapes]
        out = kit.empty(shapes[0], dtype)
        calls: Calls = {OURS: lambda: ours(*inputs, out=out)}
        if (peer := cupy_call(op)) is not None:
            calls["cupy"] = lambda: peer(*inputs, out=out)
        if kit.torch is not None and (eager := torch_function(kit.torch, op)) is not None:
            torch_inputs, torch_out = [*map(kit.as_torch, inputs)], kit.as_torch(out)
            calls["torch"] = lambda: eager(*torch_inputs, out=torch_out)
            if (fused := kit.compiled(op, lambda *x: eager(*x))) is not None:
                calls["torch.compile"] = lambda: fused(*torch_inputs)
        return calls

    read = sum(map(prod, shapes)) * itemsize(dtype)
    written = prod(shapes[0]) * itemsize(dtype)
    short = {"bfloat16": "bf16", "float32": "f32"}[dtype]
    name = " ".join(filter(None, (op, label, short)))
    return Row("elementwise", name, op, shapes[0], dtype, read, written, make, target)


def _where(shape: tuple[int, ...], dtype: str, label: str = "") -> Row:
    """Elements of one operand or the other, by a condition."""
    short = {"bfloat16": "bf16", "float32": "f32"}[dtype]
    name = " ".join(filter(None, ("where", label, short)))

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x, y, out = kit.normal(shape, dtype), kit.normal(shape, dtype), kit.empty(shape, dtype)
        condition = kit.normal(shape, "float32") > 0
        calls: Calls = {OURS: lambda: bp.where(condition, x, y, out=out)}
        if dtype == "float32":
            calls["cupy"] = lambda: kit.xp.where(condition, x, y)
        if kit.torch is not None:
            select, given = kit.torch.where, (kit.as_torch(condition), kit.as_torch(x), kit.as_torch(y))
            torch_out = kit.as_torch(out)
            calls["torch"] = lambda: select(*given, out=torch_out)
            if (fused := kit.compiled("where", lambda *each: select(*each))) is not None:
                calls["torch.compile"] = lambda: fused(*given)
        return calls

    size = prod(shape) * itemsize(dtype)
    return Row("elementwise", name, "where", shape, dtype, prod(shape) + 2 * size, size, make, Target(1.04))


def _size(shape: tuple[int, ...], dtype: str) -> str:
    nbytes = prod(shape) * itemsize(dtype)
    return f"{nbytes >> 20} MiB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KiB"


def _elementwise_rows() -> Iterator[Row]:
    for op in (*UNARY, *BINARY):
        operands = (LARGE,) * (1 if op in UNARY else 2)
        for dtype in ("bfloat16", "float32"):
            yield _elementwise(op, operands, dtype, target=ELEMENTWISE_TARGETS.get(op, Target(1.10)))
    yield _elementwise("add", (LARGE, (8192,)), "bfloat16", "row", Target(1.10))
    for op, operands_of in (("add", 2), ("gelu", 1), ("exp2", 1), ("tanh", 1), ("erf", 1), ("floor", 1)):
        for dtype, shapes in SWEPT.items():
            for shape in shapes:
                yield _elementwise(op, (shape,) * operands_of, dtype, _size(shape, dtype))
    yield _where(LARGE, "bfloat16")
    yield _where((16384, 4096), "float32")
    for dtype, shapes in SWEPT.items():
        for shape in shapes:
            yield _where(shape, dtype, _size(shape, dtype))


ROWS: tuple[Row, ...] = (*_write_slice_rows(), *_contiguize_rows(), *_elementwise_rows())

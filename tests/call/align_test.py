"""Addresses between two elements: served by a kernel that takes them, or a MisalignedOperandError; and what the arguments of
products' kernels say of every access is true of the addresses."""

from __future__ import annotations

import inspect
import itertools
import math
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.elementwise._row import ROWS
from baracuda_py.ops.elementwise.backward.gradients import BackwardPlan
from baracuda_py.ops.quantized.gguf.oracle.quantize import quantized
from baracuda_py.ops.quantized.int4.samples import weight
from baracuda_py.ops.quantized.nf4.samples import nf4_weight
from baracuda_py.plan import all_ops
from baracuda_py.plan.candidate import steps_of
from baracuda_py.plan.select import assess
from baracuda_py.runtime.steps import Launch, Ptr, Scratch, Struct, TensorMap
from baracuda_py.types import DeviceSpec, ElementKind, GgufFormat, PlanPreference

from ..arena import Slot
from ..families.shape_layout.walk import template
from ..gauntlet import readable
from ..plan.problems import multiplied, random_problems

H200 = DeviceSpec.named("h200")
DEVICES = [H200, *map(DeviceSpec.named, ("sm_80", "sm_89", "sm_100a", "sm_120"))]
COVERS = tuple(all_ops())
OFFSETS = (1, 2, 3, 4, 6, 8, 12)  # bytes
Array = np.ndarray[Any, Any]


# ---- alignments that are none -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("align", [0, -4, 3, 12, 24, 2.0, "4", (4,)])
def test_what_is_no_alignment_is_refused(align: Any) -> None:
    bias: dict[str, Any] = {"bias_shape": (4,), "bias_element": "f32"}
    made: list[tuple[Any, Any, str]] = [
        (bp.UnaryPlan, lambda: bp.UnaryDescriptor("neg", (4,), "f32", x_align=align), "x_align"),
        (bp.BinaryPlan, lambda: bp.BinaryDescriptor("add", (4,), (4,), "f32", "f32", out_align=align), "out_align"),
        (bp.ContiguizePlan, lambda: bp.ContiguizeDescriptor((4,), "f32", x_align=align), "x_align"),
        (bp.WriteSlicePlan, lambda: bp.WriteSliceDescriptor((4,), [(0, 2)], "f32", dest_align=align), "dest_align"),
        (bp.KvAppendPlan, lambda: bp.KvAppendDescriptor((1, 2, 3, 4), 1, "f32", v_align=align), "v_align"),
        (bp.MatmulPlan, lambda: bp.MatmulDescriptor((4, 4), (4, 4), "f32", "f32", b_align=align), "b_align"),
        (bp.MatmulPlan, lambda: bp.MatmulDescriptor((4, 4), (4, 4), "f32", "f32", **bias, bias_align=align), "bias_align"),
    ]  # fmt: skip
    for plan, describe, field in made:
        with pytest.raises(bp.InvalidProblemError, match=field):
            plan.select(describe(), device="h200")


def test_more_than_sixteen_counts_as_sixteen() -> None:
    for align in (16, 32, 256, np.int64(64)):
        desc = bp.UnaryDescriptor("neg", (4,), "f32", x_align=align).canonical()
        assert desc.x_align == 16 and desc.layout("x").align == 16


def test_strides_that_are_no_whole_elements_are_refused() -> None:
    x = np.ndarray((3,), np.float32, np.zeros(32, np.uint8).data, 0, (6,))
    with pytest.raises(bp.OperandTypeError, match="not whole elements of 4 bytes"):
        bp.neg(x, device="cpu")


# ---- selection --------------------------------------------------------------------------------------------------------


def test_only_kernels_that_take_them_are_admitted_between_two_elements() -> None:
    """And the error names the operand, what its address is aligned to, what is needed and what to do."""
    rng, served, barred = np.random.default_rng(11), 0, 0
    for plan, desc in random_problems(rng, 250, unnatural=0.5):
        canonical, device = desc.canonical(), DEVICES[rng.integers(len(DEVICES))]
        layouts = {o.name: canonical.layout(o.name) for o in canonical.operands}
        low = [n for n, x in layouts.items() if 0 not in x.shape and x.align * 8 < x.element.bits]
        admitted = [a.candidate for a in assess(plan.candidates, canonical, PlanPreference(), device) if a.feasibility]
        assert not low or all(c.unaligned for c in admitted)
        if admitted:
            plan.select(desc, device=device)
            served += bool(low)
            continue
        with pytest.raises((bp.MisalignedOperandError, bp.UnsupportedError)) as caught:
            plan.select(desc, device=device)
        error = caught.value
        if isinstance(error, bp.MisalignedOperandError):
            align, kind = layouts[low[0]].align, layouts[low[0]].element
            readable(error, desc.op, low[0], f"aligned to {align} bytes", f"{kind.bits // 8} for {kind}")
            assert "contiguize(" in error.fix or "fresh array" in error.fix
            barred += 1
    assert served > 12 and barred > 30


def test_a_candidate_that_is_asked_for_says_what_bars_it() -> None:
    desc = bp.MatmulDescriptor((64, 64), (64, 64), "bf16", "bf16", b_align=1)
    for variant in ("simt", "tc", "tc_async", "wgmma_padded"):
        with pytest.raises(bp.MisalignedOperandError, match=r"matmul: b's first .* such as contiguize\(b\)"):
            bp.MatmulPlan.select(desc, PlanPreference(variant=variant), device="h200")
    with pytest.raises(bp.UnsupportedError, match="no side of 8 or less"):  # which is what bars this one
        bp.MatmulPlan.select(desc, PlanPreference(variant="gemv"), device="h200")


def test_an_address_that_every_candidate_takes_is_not_blamed() -> None:
    desc = bp.KvAppendDescriptor((2, 3, 17, 8), 5, "f32", k_align=1)
    assert bp.KvAppendPlan.select(desc, device="h200").sku.variant == "per_sequence"
    with pytest.raises(bp.UnsupportedError, match="not tf32"):
        bp.KvAppendPlan.select(desc, PlanPreference(math="tf32"), device="h200")


# ---- the arguments of products' kernels -------------------------------------------------------------------------------


class Access(NamedTuple):
    """`width` bytes at once along an axis of unit stride, whose `extent` vectors have to divide (0: ends are looked after);
    the other axes step by `steps` bytes."""

    operand: Any
    width: int
    unit: int
    steps: tuple[int, ...]
    extent: int = 0


def walked(packed: Any, size: int) -> tuple[int, int, tuple[int, ...]]:
    """Strides in elements from row to row and column to column, and in bytes from matrix to matrix."""
    row, col, *batch = struct.unpack("<5q", packed.data)
    return row, col, tuple(s * size for s in batch)


def along(operand: Any, packed: Any, size: int, axis: int, count: int, extents: tuple[int, int], k: int = 0) -> Access:
    """`count` elements at once down a column (axis 0) or along a row; a stride of an extent of 1 is not stepped."""
    row, col, batch = walked(packed, size)
    unit, other = (row, col) if axis == 0 else (col, row)
    others = extents[1 - axis] if axis == 0 else extents[0]
    steps = (*((other * size,) if others > 1 else ()), *batch)
    return Access(operand, count * size, unit if extents[axis] > 1 else 1, steps, k or extents[axis])


def accesses(launch: Launch, size: int) -> Iterator[Access]:
    """What a kernel's template arguments and structs say of its accesses; `size` bytes an element of a and b."""
    name, parts, args = launch.kernel.entry.partition("<")[0], template(launch.kernel.entry), launch.args
    if name in ("simt", "gemv_rows", "gemv_strips", "tc", "tc_async"):
        a, b, _, walk_a, walk_b, _, m, n, k = args[:9]
        m, n, k = int(m), int(n), int(k)  # type: ignore[arg-type]
    if name == "simt":
        along_a, wide_a, along_b, wide_b = parts[9:13]
        splits, k_split = int(args[11]), int(args[12])  # type: ignore[arg-type]
        assert splits == 1 or (k_split % 64 == 0 and (splits - 1) * k_split < k <= splits * k_split)
        if k and int(wide_a) > 1:
            yield along(a, walk_a, size, int(along_a == "true"), int(wide_a), (m, k))
        if k and int(wide_b) > 1:
            yield along(b, walk_b, size, int(along_b != "true"), int(wide_b), (k, n))
    if name.startswith("gemv"):
        vector, wide = int(parts[3]), int(parts[4])
        splits, k_split = int(args[9]), int(args[10])  # type: ignore[arg-type]
        assert splits == 1 or (k_split % 64 == 0 and (splits - 1) * k_split < k <= splits * k_split)
        if k and vector > 1:
            yield along(b, walk_b, size, int(name == "gemv_strips"), vector, (k, n))
        if k and wide > 1:
            yield along(a, walk_a, size, 1, wide, (m, k))
    if name.startswith("tc"):
        of_a, nbytes_a, of_b, nbytes_b = parts[-4:]
        for operand, packed, axis, nbytes, extents in (
            (a, walk_a, int(of_a == "true"), int(nbytes_a), (m, k)), (b, walk_b, int(of_b != "true"), int(nbytes_b), (k, n)),
        ):  # fmt: skip
            if nbytes > size and 0 not in extents:
                yield along(operand, packed, size, axis, nbytes // size, extents)._replace(extent=0)
    if name != "pad":
        (epilogue,) = (x for x in args if isinstance(x, Struct) and len(x.fields) >= 10)
        yield from stored(parts, epilogue)


def stored(parts: list[str], fields: Struct) -> Iterator[Access]:
    """The epilogue's: pairs of columns, where its type says so."""
    kind = next(p for p in parts if "Epilogue<" in p)
    plain = kind[kind.index("Epilogue<") :]
    types = template(plain[: plain.index(">") + 1])
    sizes = {"float": 4, "double": 8, "f16": 2, "bf16": 2}
    for pointer, type_, packed in zip(fields.fields[:4], types[:4], fields.fields[6:10]):
        if type_ == "Absent":
            continue
        size = sizes[type_]
        row, col, batch = walked(packed, size)
        if types[5] == "true":
            yield Access(pointer, 2 * size, col, (row * size, *batch))


def maps(launch: Launch) -> Iterator[TensorMap]:
    for arg in launch.args:
        yield from (x for x in (arg.fields if isinstance(arg, Struct) else (arg,)) if isinstance(x, TensorMap))


def lies_at(desc: Any, of: Any) -> int:
    return 16 if isinstance(of, Scratch) else min(16, desc.layout(of.operand).align)


def directed() -> Iterator[Any]:
    """Splits of an odd K, and steps that run backwards or nowhere by whole multiples of 16 bytes."""
    for element, (m, n) in itertools.product(("bf16", "f32"), ((64, 64), (4, 1000), (32, 48))):
        yield bp.MatmulDescriptor((m, 3304), (3304, n), element, element)
    for strides in ((-4096, 64, 1), (4096, -64, 1), (4096, 0, 1), (-4096, 1, -64)):
        yield bp.MatmulDescriptor((3, 64, 64), (3, 64, 64), "bf16", "bf16", a_strides=strides)
        yield bp.MatmulDescriptor((3, 64, 64), (3, 64, 64), "bf16", "bf16", b_strides=strides)


def test_products_access_only_what_addresses_and_strides_allow() -> None:
    rng, seen = np.random.default_rng(2), set()
    itemsize = {"float16": 2, "bfloat16": 2, "tfloat32": 4, "float32": 4, "uint8": 1}
    for desc in (*directed(), *(multiplied(rng, 0.0)[1] for _ in range(140))):
        try:
            desc.validate()
        except bp.BaracudaError:
            continue
        desc, device = desc.canonical(), DEVICES[rng.integers(len(DEVICES))] if rng.random() < 0.4 else H200
        size = desc.a_element.bits // 8
        for a in assess(bp.MatmulPlan.candidates, desc, PlanPreference(), device):
            if not a.feasibility:
                continue
            label = f"{a.candidate.variant}[{a.config}] {desc}"
            for step in steps_of(a.candidate, desc, device, a.config):
                assert isinstance(step, Launch)
                assert all(0 < n <= most for n, most in zip(step.grid, (2**31 - 1, 65535, 65535))), label
                for x in accesses(step, size):
                    seen.add((step.kernel.entry.partition("<")[0], x.width))
                    assert x.unit == 1, f"{label}: {x}"
                    assert lies_at(desc, x.operand) % x.width == 0, f"{label}: {x}"
                    assert not any(s % x.width for s in x.steps), f"{label}: {x}"
                    elements = x.width // size
                    assert not x.extent or isinstance(x.operand, Scratch) or x.extent % elements == 0, f"{label}: {x}"
                for x in maps(step):
                    seen.add(("map", x.swizzle))
                    bytes_ = itemsize[x.dtype]
                    assert lies_at(desc, x.of) == 16, f"{label}: {x}"
                    assert all(0 < s < 1 << 40 and s % 16 == 0 for s in x.strides), f"{label}: {x}"
                    assert all(0 < n < 1 << 32 for n in x.shape) and all(0 < n <= 256 for n in x.box), f"{label}: {x}"
                    assert x.box[0] * bytes_ % 16 == 0 and (not x.swizzle or x.box[0] * bytes_ <= x.swizzle), (
                        f"{label}: {x}"
                    )
                    if isinstance(x.of, Ptr) and x.of.operand in "ab" and x.box != (64, 64, *x.box[2:]):
                        assert x.box[1] <= x.shape[1], f"{label}: boxes reach beyond {x}"
    wanted = {("simt", 16), ("gemv_rows", 16), ("gemv_strips", 16), ("tc", 16), ("tc_async", 16), ("tc_async", 8)}
    assert wanted | {("map", 128)} <= seen, seen


# ---- arrays -----------------------------------------------------------------------------------------------------------


def displaced(x: Array, offset: int) -> Array:
    """The same numbers `offset` bytes beyond a multiple of 16, C-ordered."""
    memory = np.empty(x.nbytes + 32, np.uint8)
    memory = memory[(-memory.ctypes.data) % 16 + offset :]
    moved = np.ndarray(x.shape, x.dtype, memory.data)
    moved[...] = x
    return moved


def numbers(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(1, 9, shape).astype(dtype)


def operands_of(op: str) -> Iterator[tuple[dict[str, Array], dict[str, Any]]]:
    """Operands by parameter, those written among them, and other arguments."""
    plan, cache, new = all_ops()[op].plan, (2, 3, 9, 5), (2, 3, 2, 5)
    if plan in (bp.UnaryPlan, bp.BinaryPlan, bp.TernaryPlan):
        row = ROWS[op]
        options = {"dtype": "f4"} if row.result == "given" else {}
        shapes = ((5, 7),) if plan is bp.UnaryPlan else ((5, 7), (7,), (5, 1))
        for dtype in ("f2", "f4", "f8"):
            names = zip(plan.descriptor.inputs, row.arguments, shapes)  # type: ignore[attr-defined]
            inputs = {n: numbers(s, "?" if a in row.mask else dtype, i) for i, (n, a, s) in enumerate(names)}
            out = {"bool": "?", "given": "f4"}.get(row.result, dtype)
            yield {**inputs, "out": numbers((5, 7), out)}, options
    elif issubclass(plan, BackwardPlan):
        back: Any = plan.descriptor
        for dtype in ("f2", "f4", "f8"):
            read = {n: numbers((5, 7), "?" if n in back.own_row.mask else dtype, i) for i, n in enumerate(back.inputs)}
            yield {**read, **{name: numbers((5, 7), dtype) for name in back.own_row.formulas}}, {}
    elif plan is bp.MatmulPlan:
        dtypes = {"matmul": ("f4", "f2", bp.BF16.dtype, "f8")}.get(op, (bp.BF16.dtype if "bf16" in op else "f2",))
        for dtype, (m, k, n) in itertools.product(dtypes, ((24, 32, 40), (3, 16, 40))):
            out = numbers((m, n), dtype if op == "matmul" else "f4")
            yield (
                {
                    "a": numbers((m, k), dtype),
                    "b": numbers((k, n), dtype, 1),
                    "bias": numbers((n,), dtype, 2),
                    "out": out,
                },
                {},
            )
    elif op == "contiguize":
        for dtype in ("i2", "f4", "f8", "c16"):
            yield {"x": numbers((6, 8), dtype), "out": numbers((6, 8), dtype)}, {}
    elif op == "write_slice":
        for dtype, ranges in itertools.product(("i2", "f4", "f8", "c16"), ([(1, 3), (2, 5)], [(1, 3), (0, 6)])):
            extents = tuple(b - a for a, b in ranges)
            both = {"dest": numbers((5, 6), dtype), "source": numbers(extents, dtype, 1)}
            yield both, {"ranges": ranges}
            more = {"start": np.array(2, np.int64), "status": np.array(-7, np.int32)}
            yield {**both, **more}, {"ranges": ranges, "dynamic_axis": 0}
    elif op == "kv_append":
        for dtype in ("i2", "f4", "f8", "c16"):
            caches = {"k_cache": numbers(cache, dtype), "v_cache": numbers(cache, dtype, 1)}
            yield (
                {**caches, "k": numbers(new, dtype, 2), "v": numbers(new, dtype, 3), "positions": np.array([0, 7])},
                {},
            )
    elif op == "paged_kv_append":
        tables = {"page_table": np.array([[3, 0], [1, 2]], "i4"), "lengths": np.array([0, 3], "i4")}
        offsets = {"cu_seqlens": np.array([0, 2, 5], "i4")}
        for dtype in ("f2", "f4"):
            pages = {f"{part}_pages": numbers((4, 4, 2, 8), dtype, i) for i, part in enumerate("kv")}
            yield {**pages, "k": numbers((2, 3, 2, 8), dtype, 2), "v": numbers((2, 3, 2, 8), dtype, 3), **tables}, {}
            coded = {f"{part}_pages": numbers((4, 4, 2, 8), "i1", i) for i, part in enumerate("kv")}
            coded |= {f"{part}_scales": numbers((4, 4, 2), "f4", i) for i, part in enumerate("kv")}
            yield (
                {**coded, "k": numbers((5, 2, 8), dtype, 2), "v": numbers((5, 2, 8), dtype, 3), **tables, **offsets},
                {},
            )
    elif op == "copy_pages":
        for dtype in ("i1", "f2", "f4"):
            pages = {f"{part}_pages": numbers((6, 3, 2, 8), dtype, i) for i, part in enumerate("kv")}
            yield {**pages, "source": np.array([0, 4], "i4"), "dest": np.array([5, 1], "i4")}, {}
    elif plan is bp.AttentionPlan or op == "attention_backward":
        for dtype in ("f2", "f4", "f8") if plan is bp.AttentionPlan and "tc" not in op else ("f2",):
            heads = {name: numbers((2, 5, 8), dtype, i) for i, name in enumerate("qkv")}
            heads = {name: x.reshape(1, 2, 5, 8) for name, x in heads.items()}
            if op == "attention_backward":
                heads |= {"grad": numbers((1, 2, 5, 8), dtype, 3), "out": numbers((1, 2, 5, 8), dtype, 4)}
                heads["lse"] = numbers((1, 2, 5), "f4", 5)
            yield heads, {}
    elif op == "take_along_axis":
        for dtype in ("i2", "f4", "f8", "c16"):
            arrays = {"x": numbers((6, 9), dtype), "indices": numbers((6, 4), "i8", 1), "out": numbers((6, 4), dtype)}
            yield arrays, {"mode": "wrap"}
    elif op == "topk":
        for dtype in ("i2", "f4", "f8"):
            arrays = {"x": numbers((3, 40), dtype), "values": numbers((3, 4), dtype), "indices": numbers((3, 4), "i8")}
            yield arrays, {"k": 4}
    elif op == "nonzero":
        for dtype in ("i2", "f4", "f8", "c16"):
            yield (
                {
                    "x": (numbers((5, 7), "i8") % 2).astype(dtype),
                    "out": numbers((35, 2), "i8"),
                    "count": np.zeros(1, "i8"),
                },
                {},
            )
    elif plan is bp.SoftmaxPlan or plan is bp.ReducePlan:
        for dtype in ("f2", "f4", "f8"):
            shape = (5, 8) if plan is bp.SoftmaxPlan else (5,)
            yield {"x": numbers((5, 8), dtype), "out": numbers(shape, "i8" if op == "argmax" else dtype)}, {"axis": 1}
    elif plan is bp.ReduceBackwardPlan:
        read = {"grad": (5,), "x": (5, 8), "y": (5,)}
        known = [name for name in read if name in inspect.signature(all_ops()[op].function).parameters]
        for dtype in ("f2", "f4", "f8"):
            yield (
                {**{name: numbers(read[name], dtype) for name in known}, "grad_x": numbers((5, 8), dtype)},
                {"axis": 1},
            )
    elif op == "cumsum_backward":
        for dtype in ("f2", "f4", "f8"):
            yield {"grad": numbers((5, 8), dtype), "grad_x": numbers((5, 8), dtype)}, {"axis": 1}
    elif op == "cumsum":
        for dtype in ("f2", "f4", "f8"):
            yield {"x": numbers((5, 8), dtype), "out": numbers((5, 8), dtype)}, {"axis": 1}
    elif plan is bp.SoftmaxBackwardPlan:
        for dtype in ("f2", "f4", "f8"):
            yield {name: numbers((5, 8), dtype, i) for i, name in enumerate(("grad", "y", "grad_x"))}, {}
    elif plan is bp.NormPlan:
        for dtype in ("f2", "f4", "f8"):
            yield {"x": numbers((5, 8), dtype), "weight": numbers((8,), dtype, 1), "out": numbers((5, 8), dtype)}, {}
    elif plan is bp.NormBackwardPlan:
        for dtype in ("f2", "f4", "f8"):
            rows = {"mean": 3, "rstd": 4} if op.startswith("layer") else {"rstd": 4}
            yield (
                {
                    **{name: numbers((5, 8), dtype, i) for i, name in enumerate(("grad", "x", "grad_x"))},
                    **{name: numbers((5,), "f8" if dtype == "f8" else "f4", i) for name, i in rows.items()},
                },
                {},
            )
    elif op == "matmul_backward":
        for dtype in ("f2", "f4", "f8"):
            shapes = {"grad": (5, 7), "a": (5, 8), "b": (8, 7)}
            yield {n: numbers(s, dtype, i) for i, (n, s) in enumerate(shapes.items())}, {}
    elif plan in (bp.RopePlan, bp.RopeBackwardPlan):
        names = ("x", "out") if op == "rope" else ("grad", "grad_x")
        for dtype in ("f2", "f4", "f8"):
            both = {name: numbers((2, 5, 8), dtype, i) for i, name in enumerate(names)}
            yield {**both, "positions": numbers((5,), "i8", 2), "inv_freq": numbers((4,), "f4", 3)}, {}
            tables = {name: numbers((9, 2), "f4", i) for i, name in enumerate(("cos", "sin"))}
            yield {**both, **tables, "status": numbers((5,), "i4")}, {"style": "interleaved"}
    elif op == "attention_decode":
        q, cache = (2, 2, 1, 8), (2, 1, 5, 8)
        arrays = {
            "q": numbers(q, "f2"),
            "k": numbers(cache, "f2", 1),
            "v": numbers(cache, "f2", 2),
            "out": numbers(q, "f2"),
        }
        yield {**arrays, "lengths": np.array([5, 3], "i4")}, {}
    elif op == "paged_attention":
        q, pages = (2, 1, 2, 8), (4, 4, 1, 8)
        arrays = {"q": numbers(q, "f2"), **{n: numbers(pages, "f2", i) for i, n in enumerate(("k_pages", "v_pages"))}}
        table = {"page_table": np.array([[0, 2], [1, 3]], "i4"), "lengths": np.array([5, 3], "i4")}
        yield {**arrays, **table, "out": numbers(q, "f2"), "status": np.zeros(2, "i4")}, {}
    elif op == "merge_attention":
        for dtype in ("f2", "f4"):
            made = {"outs": numbers((2, 5, 8), dtype), "lses": numbers((2, 5), "f4", 1)}
            yield {**made, "out": numbers((5, 8), dtype), "lse": numbers((5,), "f4")}, {}
    elif plan in (bp.QuantizePlan, bp.DequantizePlan):
        kind = bp.FP8_E4M3.dtype if "fp8" in op else "i1"
        for dtype in ("f2", "f4"):
            codes, floats = numbers((6, 16), kind), numbers((6, 16), dtype, 1)
            yield {"codes": codes, "scales": numbers((6,), "f4"), ("x" if "de" not in op else "out"): floats}, {}
    elif op == "matmul_int8":
        for m, dtype in itertools.product((3, 72), ("i1", "f2")):
            scale = {"scale_b": numbers((40,), "f4")}
            made = {"a": numbers((m, 32), dtype), "b": numbers((40, 32), "i1").T, **scale}
            yield {**made, "out": numbers((m, 40), "f4" if dtype == "i1" else dtype)}, {}
    elif op == "qkv_project_int8":
        weights = {f"w{part}": numbers((32, n), "i1", n) for part, n in zip("qkv", (24, 8, 16))}
        scales = {f"scale_{part}": numbers((n,), "f4", n) for part, n in zip("qkv", (24, 8, 16))}
        yield {"x": numbers((3, 32), "f2"), **weights, **scales, "q": numbers((3, 24), "f2"), "k": numbers((3, 8), "f2"),
               "v": numbers((3, 16), "f2")}, {}  # fmt: skip
    elif op == "quantize_int4":
        made = {"w": numbers((64, 7), "f4"), "out": numbers((1, 1, 32, 4), "u4"), "scales": numbers((2, 16), "f2")}
        yield made, {"group_size": 32}
    elif op == "qkv_project_int4":
        made = {"x": numbers((3, 64), "f2"), **{part: numbers((3, 16), "f2") for part in "qkv"}}
        for part in "qkv":
            arrays, _ = weight(np.random.default_rng(3), "tiled", 64, 16, 32)
            powers = np.exp2(np.round(np.log2(abs(arrays["scales"]).astype("f4")))).astype("f2")  # no weight is rounded
            made |= {f"w{part}": arrays["codes"], f"scales_{part}": powers}
        yield made, {"group_size": 32, "widths": (16, 16, 16)}
    elif op.endswith("_int4"):
        arrays, options = weight(np.random.default_rng(3), "tiled", 64, 16, 32, zeros=True)
        if op == "matmul_int4":
            yield {**arrays, "x": numbers((3, 64), "f2"), "out": numbers((3, 16), "f2")}, options
        elif op == "dequantize_int4":
            yield {**arrays, "out": numbers((64, 16), "f4")}, options
        else:
            outs = {
                "out": numbers((8, 16), "i4"),
                "out_scales": numbers((2, 16), "f2"),
                "out_zeros": numbers((2, 2), "i4"),
            }
            yield {**arrays, **outs}, options | {"to": "gptq"}
    elif op == "quantize_nf4":
        for dtype in ("f2", "f4"):
            made = {"out": numbers((3, 32), "u1"), "absmax": numbers((3,), "f4")}
            yield {"x": numbers((3, 64), dtype), **made}, {}
    elif op == "dequantize_nf4":
        for dtype in ("f2", "f4"):
            yield {**nf4_weight(np.random.default_rng(3), (3, 64)), "out": numbers((3, 64), dtype)}, {}
    elif op == "matmul_nf4":
        rng = np.random.default_rng(3)
        made = nf4_weight(rng, (16, 64))
        high, low = np.array([0, 7, 15], "u1")[rng.integers(0, 3, (2, 16, 32))]  # -1, 0 and 1: no weight is rounded
        made |= {"codes": high << 4 | low, "absmax": np.exp2(np.round(np.log2(made["absmax"])))}
        yield {**made, "x": numbers((3, 64), "f2"), "out": numbers((3, 16), "f2")}, {}
    elif op in ("dequantize_gguf", "quantize_gguf", "matmul_gguf", "matmul_q4k"):
        yield from operands_of_gguf(op)
    else:
        yield from operands_of_samples(op)


def operands_of_samples(op: str) -> Iterator[tuple[dict[str, Array], dict[str, Any]]]:
    """The operands of the op's first samples that are not empty, those written among them, of small whole numbers."""
    entry, found = all_ops()[op], 0
    for sample in entry.samples(entry.fixed):
        if found == 2 or any(not isinstance(x, np.ndarray) for x in sample.operands.values()):
            return
        desc = entry.of_sample(dict(sample.operands), sample.options).canonical()
        layouts = {o.name: desc.layout(o.name) for o in desc.operands if not o.optional}
        if all(math.prod(layout.shape) for layout in layouts.values()):
            found += 1
            made = {name: numbers(x.shape, x.element.dtype, i) for i, (name, x) in enumerate(layouts.items())}
            made |= {name: x for name, x in sample.operands.items() if x.dtype.kind in "iub"}  # indices, masks, codes
            yield made, dict(sample.options)


def operands_of_gguf(op: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for dtype, (kind, k) in itertools.product(("f2", "f4"), (("Q4_K", 256), ("Q4_0", 64))):
        w = quantized(GgufFormat.of(kind).block, numbers((5, k), "f4"))
        if op == "dequantize_gguf":
            yield {"blocks": w, "out": numbers((5, k), dtype)}, {"format": kind}
        elif op == "quantize_gguf":
            yield {"x": numbers((5, k), dtype), "out": np.zeros_like(w)}, {"format": kind}
        elif op == "matmul_gguf" or kind == "Q4_K":
            made = {"x": numbers((3, k), dtype), "w": w, "out": numbers((3, 5), dtype)}
            yield made, {"format": kind} if op == "matmul_gguf" else {}


def call(op: str, operands: dict[str, Any], options: dict[str, Any], device: Any) -> Any:
    entry = all_ops()[op]
    parameters = inspect.signature(entry.function).parameters.values()
    first = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    positional = [operands[entry.arguments.get(n, n)] for n in first]
    taken = {entry.arguments.get(n, n) for n in first}
    named = {entry.arguments.get(p.name, p.name): p.name for p in parameters if p.name not in first}
    rest = {named.get(n, n): x for n, x in operands.items() if n not in taken}
    return entry.function(*positional, **rest, **options, device=device)


def refused(error: bp.BaracudaError, op: str, bars: list[str], label: str) -> None:
    readable(error, op, "aligned to")
    assert any(f"{name}'s" in str(error) for name in bars), f"{label}: {error}"


TAKES = ("contiguize", "write_slice", "kv_append")
ALONE = {"positions", "start", "status", "lengths", "cu_seqlens"}  # whose elements are read as such
IDS = {"copy_pages": {"source", "dest"}, "paged_attention": {"page_table"}}  # and of these ops
IDS |= {f"{done}_nf4": {"absmax"} for done in ("quantize", "dequantize", "matmul")}


@pytest.mark.parametrize("op", COVERS)
def test_odd_addresses(op: str, backend: str) -> None:
    """One operand after the other, and all at once: the numbers of the aligned call, or an error and nothing written."""
    device = "cpu" if backend == "cpu" else None
    for operands, options in operands_of(op):
        wanted = {name: Slot(x, "cpu") for name, x in operands.items()}
        call(op, {name: slot.operand for name, slot in wanted.items()}, options, "cpu")
        for offset, moved in itertools.product(OFFSETS, (*((name,) for name in operands), tuple(operands))):
            odd = [n for n in moved if offset % operands[n].dtype.itemsize]
            slots = {n: Slot(displaced(x, offset if n in moved else 0), backend) for n, x in operands.items()}
            label = f"{op} {[str(x.dtype) for x in operands.values()]} {options} {moved} {offset} bytes on"
            bars = [n for n in odd if n in ALONE | IDS.get(op, set()) or (op not in TAKES and backend != "cpu")]
            try:
                call(op, {name: slot.operand for name, slot in slots.items()}, options, device)
            except bp.MisalignedOperandError as error:
                refused(error, op, bars, label)
                assert all(np.array_equal(slot.image(), slot.initial) for slot in slots.values()), label
                continue
            assert not bars, f"{label}: served"
            for name, slot in slots.items():
                got, right = slot.view(slot.image()), wanted[name].view(wanted[name].image())
                tolerance = 0.0 if op in TAKES else 2.0 ** -(max(ElementKind.of(got.dtype).digits - 4, 0))
                np.testing.assert_allclose(got.astype("c16"), right.astype("c16"), rtol=tolerance, err_msg=label)
                untouched = ~slot.touched()
                assert np.array_equal(slot.image()[untouched], slot.initial[untouched]), label

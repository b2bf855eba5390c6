"""Addresses between two elements: served by a kernel that takes them, or a MisalignedOperandError; and what the arguments of
products' kernels say of every access is true of the addresses."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import all_ops
from baracuda_py.plan.candidate import steps_of
from baracuda_py.plan.select import assess
from baracuda_py.runtime.steps import Launch, Ptr, Scratch, Struct, TensorMap
from baracuda_py.samples import Sample
from baracuda_py.types import DeviceSpec, PlanPreference

from ..arena import as_bytes
from ..families.shape_layout.walk import template
from ..gauntlet import Problem, named, parameters, readable, samples_of
from ..plan.problems import multiplied, random_problems

H200 = DeviceSpec.named("h200")
DEVICES = [H200, *map(DeviceSpec.named, ("sm_80", "sm_89", "sm_100a", "sm_120"))]
COVERS = tuple(all_ops())
OFFSETS = (1, 2, 4, 8, 3, 6, 12)  # bytes, of which the first four are of every alignment there is
FEW = 3  # samples of an op
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


def test_select_admits_only_unaligned_kernels_at_odd_addresses() -> None:
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
    """The same numbers by the same strides, the first `offset` bytes beyond a multiple of 16."""
    low, high = np.lib.array_utils.byte_bounds(x)
    first = x.ctypes.data - low
    memory = np.empty(high - low + 16, np.uint8)
    moved = np.ndarray(x.shape, x.dtype, memory.data, first + (offset - first - memory.ctypes.data) % 16, x.strides)
    as_bytes(moved)[...] = as_bytes(x)
    return moved


def problems_of(op: str) -> Iterator[Problem]:
    """The op's smallest samples, no two of the same kinds, with all outputs that its function takes among the operands."""
    entry, seen = all_ops()[op], set()
    taken = {entry.arguments.get(name, name) for name in parameters(entry.function)}
    plain = [s for s in samples_of(entry) if all(isinstance(x, np.ndarray) and x.size for x in s.operands.values())]
    for sample in sorted(plain, key=lambda s: sum(x.nbytes for x in s.operands.values())):
        slots = Problem(entry, sample, "cpu").slots
        kinds = tuple(slot.element for slot in slots.values())
        if kinds not in seen and len(seen) < FEW and not any(0 in slot.shape or slot.packed for slot in slots.values()):
            seen.add(kinds)
            outs = {n: slot.host() for n, slot in slots.items() if n in taken - sample.operands.keys()}
            yield Problem(entry, Sample(sample.label, {**sample.operands, **outs}, sample.options), "cpu")


def refused(error: bp.BaracudaError, op: str, bars: list[str]) -> None:
    readable(error, op, "aligned to")
    assert any(f"{name}'s" in str(error) for name in bars), str(error)


def refused_in_int8(error: bp.BaracudaError, sample: Sample, offset: int) -> None:
    """Products in integers, where they are asked for, read blocks of weights, which are bytes, 16 bytes at once."""
    assert f"w is aligned to {offset & -offset} bytes, not to 16 (to admit it: w on a multiple of 16 bytes" in str(
        error
    )
    assert sample.options.get("math") == "int8", str(error)


TAKES = ("contiguize", "write_slice", "kv_append")
# Operands whose elements are read as such, of descriptors that have no table of them.
ALONE = {"write_slice": {"start", "status"}}


@pytest.mark.parametrize("op", COVERS)
def test_odd_addresses(op: str, backend: str) -> None:
    """One operand after the other, and all at once: right results, or an error and nothing written."""
    slots, tried = all_ops()[op].plan.descriptor.slot_of, 0
    whole = ALONE.get(op) or {name for name, slot in slots.items() if not slot.aligned}
    for aligned in problems_of(op):
        operands = aligned.sample.operands
        alone = itertools.product(OFFSETS[:4], ((name,) for name in operands))
        for offset, moved in (*alone, *((offset, tuple(operands)) for offset in OFFSETS)):
            odd = [n for n in moved if offset % operands[n].dtype.itemsize]
            places = {n: displaced(x, offset) if n in moved else x for n, x in operands.items()}
            problem = replace(aligned, sample=replace(aligned.sample, operands=places), backend=backend)
            vars(problem).update(
                wide=aligned.wide, inputs=aligned.inputs, measures=aligned.measures
            )  # the same numbers
            bars = [n for n in odd if n in whole or (op not in TAKES and backend != "cpu")]
            tried += 1
            with named(f"{aligned.sample.label}: {moved} {offset} bytes on"):
                try:
                    problem.call_function()
                except bp.MisalignedOperandError as error:
                    refused(error, op, bars)
                    problem.check_unchanged()
                except bp.UnsupportedError as error:
                    refused_in_int8(error, aligned.sample, offset)
                    assert not odd
                    problem.check_unchanged()
                else:
                    assert not bars, "served"
                    for name in operands:
                        problem.check_image(name, problem.slots[name].image())
    assert tried

"""wgmma_padded: what is copied and how it lies, when the variant is chosen or refused, and the whole product on the device."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import baracuda_py as bp
from baracuda_py.ops.gemm._duplicate import copy_steps, places
from baracuda_py.ops.gemm._padded import duplicates, padded
from baracuda_py.ops.gemm._tma import scales_map, taken
from baracuda_py.plan import Plan, get_op
from baracuda_py.plan.tune import admissible
from baracuda_py.runtime.device import spec_of
from baracuda_py.runtime.steps import Launch, Ptr, Scratch, Struct, TensorMap
from baracuda_py.samples import Sample
from baracuda_py.samples.sample import values
from baracuda_py.types import DeviceSpec, ElementKind, PlanPreference

from .arena import Slot
from .gauntlet import Problem, named, readable, served, warm
from .gemm_problem_test import products

COVERS = ("matmul",)
Array = np.ndarray[Any, Any]
H200 = DeviceSpec.named("h200")
PADDED = PlanPreference(variant="wgmma_padded")
RAGGED = [((4095, 4097, 4093), ("a", "b")), ((777, 1333, 2049), ("a", "b")), ((8192, 8191, 8200), ("b",))]  # M, N, K


def described(m: int, n: int, k: int, kind: str = "bf16", **fields: Any) -> Any:
    return bp.MatmulDescriptor((m, k), (k, n), kind, kind, **fields)


# ---- how the copies lie ----------------------------------------------------------------------------------------------


def copied(step: Launch, slots: dict[str, Slot], scratch: Array) -> None:
    """Does to `scratch` what the launch does, by the structs it is given, a line at a time."""
    first, second, boundary = step.args
    assert isinstance(first, Struct) and isinstance(second, Struct)
    types = re.fullmatch(r"pad<(\w+<.*?>), (\w+<.*?>)>", step.kernel.entry)
    assert types is not None and "u64" not in step.kernel.entry
    ctas = {id(first): int(boundary), id(second): step.grid[0] - int(boundary)}  # type: ignore[call-overload]
    for matrix, kind in {id(x): (x, kind) for x, kind in zip((first, second), types.groups())}.values():
        of, low, high, to, pitch, each = matrix.fields[:6]
        assert isinstance(to, Scratch) and isinstance(of, Ptr)
        slot = slots[of.operand]
        assert kind.partition("<")[2].startswith(f"{slot.dtype.itemsize}, ")
        lines = turned_lines if kind.startswith("Turned") else straight_lines
        length, starts = lines(matrix.fields[6:], kind, slot.dtype.itemsize, ctas[id(matrix)] or step.grid[0])
        assert length * slot.dtype.itemsize <= int(pitch) and int(pitch) % 16 == 0 and to.offset % 128 == 0
        assert to.nbytes == int(pitch) * len(starts)
        for line, start in enumerate(starts):
            for i in range(length):
                at = start + i * int(each)
                assert int(low) <= at and at + slot.dtype.itemsize <= int(high), "outside the operand"
                there = to.offset + line * int(pitch) + i * slot.dtype.itemsize
                scratch[there : there + slot.dtype.itemsize] = slot.initial[slot.offset + at :][: slot.dtype.itemsize]


def walk_of(dims: Any, kind: str) -> list[int]:
    """Where each item of a packed Dims<u32, R, 1> begins, R being the last argument of a type."""
    rank = int(kind.rpartition(",")[2].strip("> "))
    extents = [struct.unpack_from("<I", dims.data, 16 * axis)[0] for axis in range(rank)]
    steps = struct.unpack_from(f"<{rank}q", dims.data, 16 * rank)
    return [sum(i * s for i, s in zip(index, steps)) for index in np.ndindex(*extents)]


def straight_lines(fields: Any, kind: str, itemsize: int, ctas: int) -> tuple[int, list[int]]:
    length, words, lane_bits, _, parts, lines, count = fields
    starts = walk_of(lines, kind)
    per_line = struct.unpack_from("<I", parts.data)[0]
    assert int(count) == per_line * len(starts)
    assert per_line * (4 << int(lane_bits)) >= int(words) == -(-int(length) * itemsize // 16)
    assert ctas * 256 >= int(count) << int(lane_bits)
    return int(length), starts


def turned_lines(fields: Any, kind: str, itemsize: int, ctas: int) -> tuple[int, list[int]]:
    across, length, lines, tiles, beside, batch = fields
    each, along = (struct.unpack_from("<I", x.data)[0] for x in (tiles, beside))
    starts = walk_of(batch, kind)
    high = 64 if itemsize == 4 else 128  # lines of a tile, as pad.cu has them
    assert ctas == each * len(starts) and each == along * -(-int(lines) // high)
    assert along == -(-int(length) * itemsize * high // 16384)
    return int(length), [start + line * int(across) for start in starts for line in range(int(lines))]


def check_copies(operands: dict[str, Array]) -> tuple[str, ...]:
    """Every copy is what wgmma takes and holds the operand's elements; returns what is copied."""
    slots = {name: Slot(x, "cpu") for name, x in operands.items()}
    desc = bp.MatmulDescriptor.of(**{name: slot.operand for name, slot in slots.items()}).canonical()
    copies = duplicates(desc)
    gemm, moved = desc.gemm, padded(desc)
    refused = {x.operand for x, mn in ((gemm.a, gemm.m), (gemm.b.mT, gemm.n)) if taken(x, mn, gemm.k) is None}
    if gemm.blocked and scales_map(gemm, 1) is None:
        refused.add("scale_a")
    assert {x.operand for x in copies} == refused
    assert not gemm.blocked or scales_map(moved.gemm, 1) is not None
    for x, mn in ((moved.gemm.a, moved.gemm.m), (moved.gemm.b.mT, moved.gemm.n)):
        view = taken(x, mn, moved.gemm.k)
        assert view is not None and not (view.mn_major and x.itemsize != 2)
    if not copies:
        return ()
    to = places(copies)
    scratch = np.full(max(x.offset + x.nbytes for x in to.values()), 0xEE, np.uint8)
    for step in copy_steps(copies):
        copied(step, slots, scratch)
    for x in copies:
        layout, slot = moved.layout(x.operand), slots[x.operand]
        assert layout.shape == slot.shape and layout.align == 16
        strides = tuple(s * slot.dtype.itemsize for s in layout.strides)
        lies = np.ndarray(slot.shape, slot.dtype, scratch.data, to[x.operand].offset, strides)
        assert np.array_equal(lies, slot.host())
    return tuple(map(str, copies))


def odd(*shape: int, kind: ElementKind = bp.BF16, offset: int = 0) -> Array:
    """Different values, `offset` elements behind a multiple of 16 bytes."""
    memory = np.zeros((int(np.prod(shape)) + offset) * kind.dtype.itemsize + 16, np.uint8)
    start = -memory.ctypes.data % 16
    flat = memory[start : start + (int(np.prod(shape)) + offset) * kind.dtype.itemsize].view(kind.dtype)[offset:]
    flat[...] = values(np.random.default_rng(sum(shape)), (flat.size,), bp.F32, 1.0).astype(kind.dtype)
    return flat.reshape(shape)


LAYOUTS: dict[str, tuple[dict[str, Array], tuple[str, ...]]] = {
    "odd pitches": ({"a": odd(33, 67), "b": odd(67, 41)}, ("a", "b")),
    "b only": ({"a": odd(40, 64), "b": odd(64, 41)}, ("b",)),
    "columns": ({"a": odd(67, 33).T, "b": odd(41, 67).T}, ("a", "b")),
    "even pitches": ({"a": odd(33, 66), "b": odd(66, 44)}, ("a", "b")),
    "misaligned": ({"a": odd(40, 64, offset=1), "b": odd(64, 48, offset=3)}, ("a", "b")),
    "stepped": ({"a": odd(60, 128)[::2, ::2], "b": odd(64, 96)[:, ::-3]}, ("a", "b")),
    "upside down": ({"a": odd(30, 64)[::-1], "b": odd(64, 40)[::-1, ::-1]}, ("a", "b")),
    "batch": ({"a": odd(3, 5, 17), "b": odd(3, 17, 9)}, ("a", "b")),
    "matrices at odd distances": ({"a": odd(3, 41, 64)[:, :40][:, ::2], "b": odd(3, 2561)[:, :2560].reshape(3, 64, 40)}, ("b",)),
    "permuted batch": ({"a": odd(2, 24, 3, 31).transpose(0, 2, 1, 3), "b": odd(2, 3, 31, 40)}, ("a",)),
    "a repeated": ({"a": np.broadcast_to(odd(5, 17), (3, 5, 17)), "b": odd(3, 17, 9)}, ("a", "b")),
    "one row repeated": ({"a": np.broadcast_to(odd(64), (9, 64)), "b": odd(64, 40)}, ("a",)),
    "vectors": ({"a": odd(67, offset=1), "b": odd(67, 41)}, ("a", "b")),
    "long": ({"a": odd(3, 4093), "b": odd(4093, 2)}, ("a", "b")),
}  # fmt: skip


def by_kind(kind: ElementKind) -> dict[str, tuple[dict[str, Array], tuple[str, ...]]]:
    """Layouts of a type that is multiplied along K alone; 16 elements are a multiple of 16 bytes in all of them."""

    def of(*shape: int, offset: int = 0) -> Array:
        return odd(*shape, kind=kind, offset=offset)

    return {
        "rows": ({"a": of(70, 96), "b": of(96, 144)}, ("b turned",)),
        "columns": ({"a": of(96, 80).T, "b": of(144, 96).T}, ("a turned",)),
        "both across": ({"a": of(160, 80).T, "b": of(160, 272)}, ("a turned", "b turned")),
        "odd pitches": ({"a": of(33, 67), "b": of(67, 41)}, ("a", "b turned")),
        "odd columns": ({"a": of(67, 33).T, "b": of(41, 67).T}, ("a turned", "b")),
        "misaligned": ({"a": of(160, 80, offset=1).T, "b": of(160, 48, offset=3)}, ("a turned", "b turned")),
        "stepped": ({"a": of(60, 128)[::2, ::2], "b": of(64, 96)[:, ::-3]}, ("a", "b turned")),
        "upside down": ({"a": of(64, 32).T[::-1], "b": of(64, 48)[::-1, ::-1]}, ("a turned", "b turned")),
        "batch": ({"a": of(3, 40, 96), "b": of(3, 96, 80)}, ("b turned",)),
        "odd batch": ({"a": of(3, 17, 5).swapaxes(1, 2), "b": of(3, 17, 9)}, ("a turned", "b turned")),
        "permuted batch": ({"a": of(2, 24, 3, 32).transpose(0, 2, 1, 3), "b": of(3, 2, 32, 40).swapaxes(0, 1)}, ("b turned",)),
        "b repeated": ({"a": of(3, 40, 96)[:, ::2], "b": np.broadcast_to(of(96, 80), (3, 96, 80))}, ("b turned",)),
        "one row repeated": ({"a": np.broadcast_to(of(65), (9, 65)), "b": of(65, 40)}, ("a", "b turned")),
        "one column repeated": ({"a": np.broadcast_to(of(65)[:, None], (65, 9)), "b": of(9, 40)}, ("a turned", "b turned")),
        "a vector": ({"a": of(97, offset=1), "b": of(97, 41)}, ("a", "b turned")),
        "one column": ({"a": of(96, 41).T, "b": of(96)}, ("a turned",)),
        "K of one": ({"a": of(70, 1), "b": of(1, 80)}, ("a", "b")),
        "long": ({"a": of(3, 4093), "b": of(4093, 2)}, ("a", "b turned")),
    }  # fmt: skip


ALONG_K = (bp.F32, bp.FP8_E4M3, bp.FP8_E5M2)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_copy_holds_the_operand_in_lines_that_tma_takes(name: str) -> None:
    operands, wanted = LAYOUTS[name]
    assert check_copies(operands) == wanted


@pytest.mark.parametrize("kind", ALONG_K, ids=str)
@pytest.mark.parametrize("name", by_kind(bp.F32))
def test_a_copy_of_what_is_multiplied_along_k_alone_has_k_along_its_lines(name: str, kind: ElementKind) -> None:
    operands, wanted = by_kind(kind)[name]
    assert check_copies(operands) == wanted


def blocked(m: int, n: int, k: int, scale_a: Array, **given: Array) -> dict[str, Array]:
    """An fp8 product, K innermost unless `given`, with scales by blocks."""
    a, b = (odd(extent, k, kind=bp.FP8_E4M3) for extent in (m, n))
    return {"a": a, "b": b.T, **given, "scale_a": scale_a, "scale_b": odd(-(-k // 128), -(-n // 128), kind=bp.F32)}


def numbers(*shape: int, offset: int = 0) -> Array:
    return odd(*shape, kind=bp.F32, offset=offset)


BLOCKED: dict[str, tuple[dict[str, Array], tuple[str, ...]]] = {
    "M innermost": (blocked(72, 144, 384, numbers(3, 72).T), ()),
    "in a wider one": (blocked(70, 144, 384, numbers(3, 72)[:, :70].T), ()),
    "K innermost": (blocked(72, 144, 384, numbers(72, 3)), ("scale_a turned",)),
    "at odd distances": (blocked(70, 144, 384, numbers(3, 70).T), ("scale_a",)),
    "misaligned": (blocked(72, 144, 384, numbers(3, 72, offset=1).T), ("scale_a",)),
    "repeated": (blocked(72, 144, 384, np.broadcast_to(numbers(3), (72, 3))), ("scale_a turned",)),
    "one row": (blocked(1, 144, 384, numbers(1, 3)), ("scale_a",)),
    "one number": (blocked(1, 144, 128, numbers(1, offset=1).reshape(())), ("scale_a",)),
    "three copies": (
        blocked(72, 144, 384, numbers(72, 3), a=odd(384, 72, kind=bp.FP8_E4M3).T, b=odd(384, 144, kind=bp.FP8_E4M3)),
        ("a turned", "b turned", "scale_a turned"),
    ),
    "batch": (
        blocked(
            72, 144, 384, numbers(2, 72, 3), a=odd(2, 72, 384, kind=bp.FP8_E4M3), b=odd(2, 144, 384, kind=bp.FP8_E4M3).mT
        ),
        ("scale_a turned",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKED)
def test_scales_by_blocks_are_copied_unless_rows_lie_side_by_side(name: str) -> None:
    operands, wanted = BLOCKED[name]
    assert check_copies(operands) == wanted
    desc = bp.MatmulDescriptor.of(**{x: Slot(v, "cpu").operand for x, v in operands.items()})
    plan = bp.MatmulPlan.select(desc, device=H200)
    assert plan.sku.variant == ("wgmma_padded" if wanted else "wgmma")
    *copying, product = plan._steps
    assert len(copying) == -(-len(wanted) // 2)
    (scales,) = (x for x in product.args if isinstance(x, Struct) and isinstance(x.fields[0], TensorMap))
    assert isinstance(scales.fields[0].of, Scratch if "scale_a" in "".join(wanted) else Ptr)
    if "scale_a turned" in wanted and len(wanted) == 1:
        (row,) = (row for row in plan.explain() if row.variant == "wgmma")
        assert not row.admitted and "scale_a" in row.reason and "M innermost" in row.mend


@given(products())
@settings(max_examples=200, deadline=None)
def test_any_layout_s_copy_holds_the_operand(operands: dict[str, Array]) -> None:
    if operands["a"].size and operands["b"].size:
        check_copies(operands)


def test_a_repeated_matrix_is_copied_once() -> None:
    once = bp.MatmulDescriptor((5, 17), (3, 17, 9), "bf16", "bf16").canonical()
    repeated = replace(once, a_shape=(3, 5, 17), a_strides=(0, 17, 1))
    assert [x.nbytes for x in duplicates(repeated)] == [x.nbytes for x in duplicates(once)]
    assert padded(repeated).a_strides[0] == 0


def test_long_lines_begin_on_cache_lines_and_short_ones_lie_closer() -> None:
    pitches = {k: duplicates(described(9, 8, k).canonical())[0].pitch for k in (7, 65, 257, 4093)}
    assert pitches == {7: 16, 65: 144, 257: 640, 4093: 8192}


# ---- selection -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "names"), RAGGED)
def test_ragged_products_are_multiplied_from_copies(shape: tuple[int, int, int], names: tuple[str, ...]) -> None:
    m, n, k = shape
    plan = bp.MatmulPlan.select(described(*shape), device=H200)
    assert plan.sku.variant == "wgmma_padded" and plan.capture_safe
    lines = {"a": (m, k), "b": (k, n)}
    assert plan.workspace_size == sum(lines[x][0] * -(-lines[x][1] * 2 // 128) * 128 for x in names)
    text = f"copies {'+'.join(names)}]"
    assert text in str(plan.sku) and text in repr(plan.explain())
    rows = {row.variant: row for row in plan.explain()}
    assert not rows["wgmma"].admitted and names[0] in rows["wgmma"].reason and "pad" in rows["wgmma"].mend
    moved = sum(rows_ * cols * 2 for rows_, cols in (lines[x] for x in names)) + plan.workspace_size
    assert plan.cost.bytes == 2 * (m * k + k * n + m * n) + moved
    assert plan.cost.seconds < min(r.microseconds for r in plan.explain() if r.admitted and not r.chosen) * 1e-6


def test_every_launch_of_a_product_reads_the_copies() -> None:
    """The last wave's as well, where it is one of its own."""
    counts = set()
    for plan in admissible(bp.MatmulPlan, described(8192, 8191, 8200), PADDED, H200):
        copy, *products = (step for step in plan._steps if isinstance(step, Launch))
        regions = {
            (x.of.offset, x.of.nbytes)
            for x in products[0].args
            if isinstance(x, TensorMap) and isinstance(x.of, Scratch)
        }
        assert regions and "pad" in copy.kernel.file
        for product in products:
            read = [x.of for x in product.args[:2] if isinstance(x, TensorMap)]
            assert {(x.offset, x.nbytes) for x in read if isinstance(x, Scratch)} == regions
            assert {x.operand for x in read if isinstance(x, Ptr)} == {"a"}  # whose lines lie on 16 bytes
        counts.add(len(products))
    assert counts == {1, 2}


@pytest.mark.parametrize(("kind", "math", "size"), [("f32", "tf32", 4096), ("fp8_e4m3", None, 8192)])
def test_rows_of_b_are_turned_for_tf32_and_fp8(kind: str, math: Any, size: int) -> None:
    def desc(**fields: Any) -> Any:
        return described(size, size, size, kind, math=math, **fields)

    itemsize = ElementKind.of(kind).bits // 8
    plan = bp.MatmulPlan.select(desc(), PlanPreference(backend="bespoke"), device=H200)
    assert plan.sku.variant == "wgmma_padded" and "copies b turned]" in str(plan.sku)
    assert plan.workspace_size == size * size * itemsize
    rows = {row.variant: row for row in plan.explain()}
    assert "b is not contiguous along K" in rows["wgmma"].reason and "K innermost" in rows["wgmma"].mend
    along = bp.MatmulPlan.select(desc(b_strides=(1, size)), PlanPreference(backend="bespoke"), device=H200)
    assert along.sku.variant == "wgmma" and plan.cost.bytes == along.cost.bytes + 2 * plan.workspace_size
    assert along.cost.seconds < plan.cost.seconds < along.cost.seconds + 60e-6
    both = bp.MatmulPlan.select(desc(a_strides=(1, size)), PADDED, device=H200)
    assert both.sku.config is not None and both.sku.config.endswith("copies a turned+b turned")


def test_small_products_are_not_worth_a_copy() -> None:
    for shape in ((5, 32, 89), (100, 100, 100), (1, 4097, 255)):  # the first as an H200 measured it
        assert bp.MatmulPlan.select(described(*shape), device=H200).sku.variant != "wgmma_padded"


def test_the_product_waits_for_its_copies_and_the_next_copy_for_the_product() -> None:
    """Every launch may begin early and waits for the one before it, so that the scratch can be used again at once."""
    plan = bp.MatmulPlan.select(described(777, 1333, 2049), device=H200)
    copy, product = plan._steps
    assert isinstance(copy, Launch) and isinstance(product, Launch)
    assert copy.overlapped and product.overlapped
    regions = [x.of for x in product.args if isinstance(x, TensorMap) and isinstance(x.of, Scratch)]
    to = [f for x in copy.args if isinstance(x, Struct) for f in x.fields if isinstance(f, Scratch)]
    assert set(regions) == set(to) and len(set(to)) == 2
    low, high = sorted(set(regions), key=lambda x: x.offset)
    assert low.offset + low.nbytes <= high.offset and high.offset % 128 == 0
    assert not [x for x in product.args if isinstance(x, TensorMap) and isinstance(x.of, Ptr) and x.of.operand != "out"]


@pytest.mark.parametrize(
    ("desc", "device", "reason"),
    [
        (described(4096, 4096, 4096), "h200", "no operand needs a copy"),
        (described(4095, 4097, 4093), "sm_80", "sm_90a only"),
        (described(4095, 4097, 4093), "sm_100a", "sm_90a only"),
        (described(95, 97, 93, "f32"), "h200", "does not multiply in f32"),
        (described(95, 97, 0), "h200", "nothing to multiply"),
        (described(95, 97, 93, name="matmul_tc_bf16"), "h200", "fixes variant 'tc'"),
    ],
)
def test_what_it_refuses(desc: Any, device: str, reason: str) -> None:
    with pytest.raises(bp.UnsupportedError) as caught:
        bp.MatmulPlan.select(desc, PADDED, device=device)
    answers = str(caught.value).partition("preference. ")[2].split("; ")
    mine = next(answer for answer in answers if "wgmma_padded" in answer.partition(": ")[0].split(", "))
    assert reason in mine


def test_a_workspace_that_is_too_small_admits_what_needs_none() -> None:
    desc = described(777, 1333, 2049)
    needed = bp.MatmulPlan.select(desc, device=H200).workspace_size
    assert bp.MatmulPlan.select(desc, PlanPreference(max_workspace_bytes=needed), device=H200).workspace_size == needed
    plan = bp.MatmulPlan.select(desc, PlanPreference(max_workspace_bytes=needed - 1), device=H200)
    assert plan.sku.variant != "wgmma_padded"
    row = next(r for r in plan.explain() if r.variant == "wgmma_padded")
    assert f"needs {needed} bytes of workspace" in row.reason


def test_batch_invariance_is_wgmma_s_whatever_the_pitch() -> None:
    """One row of an odd pitch goes to wgmma as it lies, more go to wgmma_padded: the same sums."""
    pref = PlanPreference(batch_invariant=True)
    for n, k in ((72, 1023), (129, 1023), (4096, 1024)):
        for m in (1, 2, 65, 300):
            plan = bp.MatmulPlan.select(described(m, n, k), pref, device=H200)
            assert plan.sku.variant in ("wgmma", "wgmma_padded")
            promises = {r.variant for r in plan.explain() if r.admitted}
            assert promises <= {"wgmma", "wgmma_padded"}


@pytest.mark.parametrize(("kind", "math"), [("f32", "tf32"), ("fp8_e4m3", None), ("fp8_e5m2", "fp8_fast")])
def test_one_family_promises_batch_invariance(kind: str, math: Any) -> None:
    """On sm_90a wgmma and its copies, whatever M, the layout and the pitches; elsewhere tc_async, which serves no fp8."""
    pref = PlanPreference(batch_invariant=True)
    for n, k in ((72, 1024), (129, 1023), (4096, 1)):
        for m in (1, 2, 65, 300):
            for strides in ({}, {"a_strides": (1, m)}, {"b_strides": (1, k)}):
                desc = described(m, n, k, kind, math=math, **strides)
                plan = bp.MatmulPlan.select(desc, pref, device=H200)
                assert {r.variant for r in plan.explain() if r.admitted} <= {"wgmma", "wgmma_padded"}
                if kind == "f32":
                    other = bp.MatmulPlan.select(desc, pref, device="sm_80")
                    assert {r.variant for r in other.explain() if r.admitted} == {"tc_async"}


def test_a_saved_plan_is_the_same_plan() -> None:
    plan = bp.MatmulPlan.select(described(777, 1333, 2049), device=H200)
    again = bp.MatmulPlan.from_json(plan.to_json())
    assert again == plan and again.sku == plan.sku and again._steps == plan._steps


# ---- on the device ---------------------------------------------------------------------------------------------------


def plans_of(desc: Any, count: int | None) -> list[Plan[Any]]:
    return admissible(bp.MatmulPlan, desc, PADDED, spec_of(None), per_variant=count)


def on_device() -> Iterator[Problem]:
    op = get_op("matmul")
    for name, (operands, _) in LAYOUTS.items():
        if operands["a"].dtype.itemsize == 2:
            yield Problem(op, Sample(name, operands), "cuda")
    for kind in (bp.BF16, bp.F16):
        for m, n, k in ((130, 1031, 517), (65, 257, 129), (301, 66, 4093), (64, 255, 64)):
            a, b = odd(m, k, kind=kind), odd(k, n, kind=kind, offset=1)
            bias, residual = odd(n, kind=kind), odd(m, n, kind=kind)
            label = f"{kind} {m}x{n}x{k}"
            yield Problem(op, Sample(label, {"a": a, "b": b}), "cuda")
            yield Problem(op, Sample(f"{label} to f32", {"a": a, "b": b}, {"out_dtype": "f32"}), "cuda")
            every = {"a": a, "b": b, "bias": bias, "residual": residual}
            yield Problem(op, Sample(f"{label} all", every, {"activation": "gelu", "alpha": 0.5}), "cuda")
            for spare in (0, 1, 2, 3):  # pitches of the result that are odd, even, and even with an odd last column
                out = np.zeros((m, n + spare), kind.dtype)[:, :n]
                yield Problem(op, Sample(f"{label}+{spare}", {"a": a, "b": b, "out": out}), "cuda")
            columns = np.zeros((n, m), kind.dtype).T
            yield Problem(op, Sample(f"{label} in columns", {"a": a, "b": b, "out": columns}), "cuda")
    for kind in ALONG_K:
        options = {"math": "tf32"} if kind is bp.F32 else {"out_dtype": "f32"}
        for name, (operands, _) in by_kind(kind).items():
            yield Problem(op, Sample(f"{kind} {name}", operands, options), "cuda")
        if kind is bp.FP8_E4M3:
            for name, (operands, copies) in BLOCKED.items():
                if copies:
                    yield Problem(op, Sample(f"{kind} scales {name}", operands, options), "cuda")
        for m, n, k in ((130, 1031, 517), (300, 272, 1040)):
            for label, a, b in (
                ("rr", odd(m, k, kind=kind), odd(k, n, kind=kind, offset=1)),
                ("cr", odd(k, m, kind=kind).T, odd(k, n, kind=kind)),
            ):
                yield Problem(op, Sample(f"{kind} {m}x{n}x{k} {label}", {"a": a, "b": b}, options), "cuda")


@pytest.mark.gpu
@pytest.mark.timeout(900)
def test_products_from_copies(everything: bool) -> None:
    """The cheapest configurations (with --all every one) within the guarantee, inputs and guard bytes as they were."""
    taken = [(problem, plans_of(problem.desc, None if everything else 3)) for problem in on_device()]
    assert all(plans for _, plans in taken)
    warm([plan for _, plans in taken for plan in plans])
    for problem, plans in taken:
        with named(problem.sample.label):
            served(problem, plans)


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_every_tile_leaves_a_ragged_result_whole() -> None:
    """All tiles, in rows and in columns, on one product whose result ends in the middle of every tile."""
    a, b = odd(333, 577), odd(577, 419)
    problem = Problem(get_op("matmul"), Sample("", {"a": a, "b": b}), "cuda")
    plans = plans_of(problem.desc, None)
    warm(plans)
    for plan in plans:
        with named(str(plan.sku)):
            problem.reset()
            plan.run(**problem.operands)
            problem.check_images(problem.images(), plan)


@pytest.mark.gpu
def test_the_sums_are_wgmma_s() -> None:
    """The same bits as wgmma gives for the operands padded by hand."""
    import cupy

    a, b = (cupy.asarray(x.view(np.uint16)).view(x.dtype) for x in (odd(130, 517), odd(517, 1031)))
    by_hand = []
    for x in (a, b):
        wide = cupy.zeros((x.shape[0], -(-x.shape[1] // 8) * 8), np.uint16)
        wide[:, : x.shape[1]] = x.view(np.uint16)
        by_hand.append(wide.view(x.dtype)[:, : x.shape[1]])
    invariant = PlanPreference(batch_invariant=True)
    mine, other = (bp.MatmulPlan.select(bp.MatmulDescriptor.of(*pair), invariant) for pair in ((a, b), by_hand))
    assert (mine.sku.variant, other.sku.variant) == ("wgmma_padded", "wgmma")
    got, wanted = mine.run(a=a, b=b), other.run(a=by_hand[0], b=by_hand[1])
    assert bool((got.view(np.uint16) == wanted.view(np.uint16)).all())


@pytest.mark.gpu
def test_calls_in_a_row_share_one_workspace() -> None:
    """A copy waits for the product that still reads the scratch: many calls on two sets of operands, plain and in a graph."""
    import cupy

    shapes = [(777, 1333, 2049), (1100, 900, 1001)]
    given, plans = [], []
    for m, n, k in shapes:
        operands = {"a": odd(m, k), "b": odd(k, n)}
        given.append({name: cupy.asarray(x.view(np.uint16)).view(x.dtype) for name, x in operands.items()})
        plans.append(bp.MatmulPlan.select(bp.MatmulDescriptor.of(**given[-1]), PADDED))
    workspace = cupy.empty(max(p.workspace_size for p in plans), np.uint8)
    alone = [plan.run(**x).view(np.uint16).copy() for plan, x in zip(plans, given)]
    bounds = [plan.bind(**x, workspace=workspace) for plan, x in zip(plans, given)]
    outs = []
    for _ in range(20):
        for bound in bounds:
            outs.append((bound().view(np.uint16), bound))
            bound.result.view(np.uint16)[...] += 0  # a plain kernel in between, and the next without
            bound()
        for wanted, bound in zip(alone, bounds):
            assert bool((bound.result.view(np.uint16) == wanted).all())
    held = bp.Graph(*bounds, *bounds)
    for bound in bounds:
        bound.result.view(np.uint16)[...] = 0
    for _ in range(10):
        held.launch()
    cupy.cuda.Device().synchronize()
    for wanted, bound in zip(alone, bounds):
        assert bool((bound.result.view(np.uint16) == wanted).all())


@pytest.mark.gpu
def test_a_workspace_out_of_line_is_refused() -> None:
    import cupy

    a, b = (cupy.asarray(x.view(np.uint16)).view(x.dtype) for x in (odd(65, 67), odd(67, 41)))
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(a, b), PADDED)
    with pytest.raises(bp.MisalignedOperandError) as caught:
        plan.run(a=a, b=b, workspace=cupy.empty(plan.workspace_size + 1, np.uint8)[1:])
    readable(caught.value, "matmul", "workspace", "16 bytes")

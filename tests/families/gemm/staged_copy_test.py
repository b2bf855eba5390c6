"""Copies in lines that TMA takes: which operands of a product are copied, in which layout, and that the launches fill them."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import baracuda_py as bp
from baracuda_py.ops.gemm._wgmma.staged_copy import copy_steps, over_copies, places, staged_copies
from baracuda_py.ops.gemm._wgmma.tma import scales_map, taken
from baracuda_py.runtime.steps import Launch, Ptr, Scratch, Struct, TensorMap
from baracuda_py.samples.sample import values
from baracuda_py.types import DeviceSpec, ElementKind

from ...arena import Slot
from .gemm_problem_test import products

Array = np.ndarray[Any, Any]
H200 = DeviceSpec.named("h200")


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
        lines = transposed_lines if kind.startswith("Transposed") else straight_lines
        length, starts = lines(matrix.fields[6:], kind, slot.dtype.itemsize, ctas[id(matrix)] or step.grid[0])
        assert length * slot.dtype.itemsize <= int(pitch) and int(pitch) % 16 == 0 and to.offset % 128 == 0
        assert to.nbytes == int(pitch) * len(starts)
        for line, start in enumerate(starts):
            for i in range(length):
                at = start + i * int(each)
                assert int(low) <= at and at + slot.dtype.itemsize <= int(high), "outside the operand"
                there = to.offset + line * int(pitch) + i * slot.dtype.itemsize
                scratch[there : there + slot.dtype.itemsize] = slot.initial[slot.offset + at :][: slot.dtype.itemsize]


def starts_of(dims: Any, kind: str) -> list[int]:
    """Where each item of a packed Dims<u32, R, 1> begins, R being the last argument of a type."""
    rank = int(kind.rpartition(",")[2].strip("> "))
    extents = [struct.unpack_from("<I", dims.data, 16 * axis)[0] for axis in range(rank)]
    steps = struct.unpack_from(f"<{rank}q", dims.data, 16 * rank)
    return [sum(i * s for i, s in zip(index, steps)) for index in np.ndindex(*extents)]


def straight_lines(fields: Any, kind: str, itemsize: int, ctas: int) -> tuple[int, list[int]]:
    length, words, lane_bits, _, parts, lines, count = fields
    starts = starts_of(lines, kind)
    per_line = struct.unpack_from("<I", parts.data)[0]
    assert int(count) == per_line * len(starts)
    assert per_line * (4 << int(lane_bits)) >= int(words) == -(-int(length) * itemsize // 16)
    assert ctas * 256 >= int(count) << int(lane_bits)
    return int(length), starts


def transposed_lines(fields: Any, kind: str, itemsize: int, ctas: int) -> tuple[int, list[int]]:
    across, length, lines, tiles, beside, batch = fields
    each, along = (struct.unpack_from("<I", x.data)[0] for x in (tiles, beside))
    starts = starts_of(batch, kind)
    high = 64 if itemsize == 4 else 128  # lines of a tile, as pad.cu has them
    assert ctas == each * len(starts) and each == along * -(-int(lines) // high)
    assert along == -(-int(length) * itemsize * high // 16384)
    return int(length), [start + line * int(across) for start in starts for line in range(int(lines))]


def check_copies(operands: dict[str, Array]) -> tuple[str, ...]:
    """Every copy is what wgmma takes and holds the operand's elements; returns what is copied."""
    slots = {name: Slot(x, "cpu") for name, x in operands.items()}
    desc = bp.MatmulDescriptor.of(**{name: slot.operand for name, slot in slots.items()}).canonical()
    copies = staged_copies(desc)
    gemm, moved = desc.gemm, over_copies(desc)
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
        "rows": ({"a": of(70, 96), "b": of(96, 144)}, ("b.T",)),
        "columns": ({"a": of(96, 80).T, "b": of(144, 96).T}, ("a.T",)),
        "both across": ({"a": of(160, 80).T, "b": of(160, 272)}, ("a.T", "b.T")),
        "odd pitches": ({"a": of(33, 67), "b": of(67, 41)}, ("a", "b.T")),
        "odd columns": ({"a": of(67, 33).T, "b": of(41, 67).T}, ("a.T", "b")),
        "misaligned": ({"a": of(160, 80, offset=1).T, "b": of(160, 48, offset=3)}, ("a.T", "b.T")),
        "stepped": ({"a": of(60, 128)[::2, ::2], "b": of(64, 96)[:, ::-3]}, ("a", "b.T")),
        "upside down": ({"a": of(64, 32).T[::-1], "b": of(64, 48)[::-1, ::-1]}, ("a.T", "b.T")),
        "batch": ({"a": of(3, 40, 96), "b": of(3, 96, 80)}, ("b.T",)),
        "odd batch": ({"a": of(3, 17, 5).swapaxes(1, 2), "b": of(3, 17, 9)}, ("a.T", "b.T")),
        "permuted batch": ({"a": of(2, 24, 3, 32).transpose(0, 2, 1, 3), "b": of(3, 2, 32, 40).swapaxes(0, 1)}, ("b.T",)),
        "b repeated": ({"a": of(3, 40, 96)[:, ::2], "b": np.broadcast_to(of(96, 80), (3, 96, 80))}, ("b.T",)),
        "one row repeated": ({"a": np.broadcast_to(of(65), (9, 65)), "b": of(65, 40)}, ("a", "b.T")),
        "one column repeated": ({"a": np.broadcast_to(of(65)[:, None], (65, 9)), "b": of(9, 40)}, ("a.T", "b.T")),
        "a vector": ({"a": of(97, offset=1), "b": of(97, 41)}, ("a", "b.T")),
        "one column": ({"a": of(96, 41).T, "b": of(96)}, ("a.T",)),
        "K of one": ({"a": of(70, 1), "b": of(1, 80)}, ("a", "b")),
        "long": ({"a": of(3, 4093), "b": of(4093, 2)}, ("a", "b.T")),
    }  # fmt: skip


ALONG_K = (bp.F32, bp.FP8_E4M3, bp.FP8_E5M2)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_copy_holds_the_operand_in_lines_that_tma_takes(name: str) -> None:
    operands, wanted = LAYOUTS[name]
    assert check_copies(operands) == wanted


@pytest.mark.parametrize("kind", ALONG_K, ids=str)
@pytest.mark.parametrize("name", by_kind(bp.F32))
def test_staged_copy_has_k_along_its_lines(name: str, kind: ElementKind) -> None:
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
    "K innermost": (blocked(72, 144, 384, numbers(72, 3)), ("scale_a.T",)),
    "at odd distances": (blocked(70, 144, 384, numbers(3, 70).T), ("scale_a",)),
    "misaligned": (blocked(72, 144, 384, numbers(3, 72, offset=1).T), ("scale_a",)),
    "repeated": (blocked(72, 144, 384, np.broadcast_to(numbers(3), (72, 3))), ("scale_a.T",)),
    "one row": (blocked(1, 144, 384, numbers(1, 3)), ("scale_a",)),
    "one number": (blocked(1, 144, 128, numbers(1, offset=1).reshape(())), ("scale_a",)),
    "three copies": (
        blocked(72, 144, 384, numbers(72, 3), a=odd(384, 72, kind=bp.FP8_E4M3).T, b=odd(384, 144, kind=bp.FP8_E4M3)),
        ("a.T", "b.T", "scale_a.T"),
    ),
    "batch": (
        blocked(
            72, 144, 384, numbers(2, 72, 3), a=odd(2, 72, 384, kind=bp.FP8_E4M3), b=odd(2, 144, 384, kind=bp.FP8_E4M3).mT
        ),
        ("scale_a.T",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKED)
def test_block_scales_are_copied_unless_rows_are_contiguous(name: str) -> None:
    operands, wanted = BLOCKED[name]
    assert check_copies(operands) == wanted
    desc = bp.MatmulDescriptor.of(**{x: Slot(v, "cpu").operand for x, v in operands.items()})
    plan = bp.MatmulPlan.select(desc, device=H200)
    assert plan.sku.variant == ("wgmma_padded" if wanted else "wgmma")
    *copying, product = plan.selection.steps
    assert len(copying) == -(-len(wanted) // 2)
    scales = product.args[-1]
    assert isinstance(scales, Struct) and isinstance(scales.fields[0], TensorMap)
    assert isinstance(scales.fields[0].of, Scratch if "scale_a" in "".join(wanted) else Ptr)
    if "scale_a.T" in wanted and len(wanted) == 1:
        (row,) = (row for row in plan.explain() if row.variant == "wgmma")
        assert not row.admitted and "scale_a" in row.reason and "M innermost" in row.fix


@given(products())
@settings(max_examples=200, deadline=None)
def test_staged_copy_of_any_layout_holds_the_operand(operands: dict[str, Array]) -> None:
    if operands["a"].size and operands["b"].size:
        check_copies(operands)


def test_a_repeated_matrix_is_copied_once() -> None:
    once = bp.MatmulDescriptor((5, 17), (3, 17, 9), "bf16", "bf16").canonical()
    repeated = replace(once, a_shape=(3, 5, 17), a_strides=(0, 17, 1))
    assert [x.nbytes for x in staged_copies(repeated)] == [x.nbytes for x in staged_copies(once)]
    assert over_copies(repeated).a_strides[0] == 0


def test_staged_copy_aligns_long_lines_to_cache_lines() -> None:
    pitches = {
        k: staged_copies(bp.MatmulDescriptor((9, k), (k, 8), "bf16", "bf16").canonical())[0].pitch
        for k in (7, 65, 257, 4093)
    }
    assert pitches == {7: 16, 65: 144, 257: 640, 4093: 8192}

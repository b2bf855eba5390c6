"""Rows that start at any address and stay in registers: softmax and norms by aligned words, at every place of a row's ends."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample

from ..gauntlet import Problem, admissible, served

VARIANT = "unaligned_resident"
PREF = bp.PlanPreference(variant=VARIANT)
rng = np.random.default_rng(12)
F16, F32, BF16 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
ALONG = {
    "softmax": ("x",), "log_softmax": ("x",), "softmax_backward": ("grad", "y"), "log_softmax_backward": ("grad", "y"),
    "rms_norm": ("x", "residual"), "layer_norm": ("x", "residual"),
}  # fmt: skip
PER_COLUMN = {"rms_norm": ("weight",), "layer_norm": ("weight", "bias")}
OUT = {
    "softmax": ("out",), "log_softmax": ("out",), "softmax_backward": ("grad_x",), "log_softmax_backward": ("grad_x",),
    "rms_norm": ("out", "residual_out"), "layer_norm": ("out", "residual_out"),
}  # fmt: skip


def rows_at(offset: int, count: int, length: int, dtype: Any, beyond: int = 0) -> Any:
    """Rows of a matrix that has `offset` columns in front, and some `beyond`."""
    return rng.standard_normal((count, offset + length + beyond)).astype(dtype)[:, offset : offset + length]


def operands_of(
    op: str, length: int, dtype: Any, offsets: Any, *, count: int = 3, residual: bool = True
) -> dict[str, Any]:
    names = [name for name in ALONG[op] if residual or name != "residual"]
    found = {name: rows_at(at, count, length, dtype, at % 3) for name, at in zip(names, offsets)}
    return found | {name: rows_at(i, 1, length, dtype)[0] for i, name in enumerate(PER_COLUMN.get(op, ()))}


def called(op: str, operands: dict[str, Any], **named: Any) -> dict[str, Any]:
    """The results, by the names of OUT."""
    inputs = [operands[name] for name in ("grad", "y", "x") if name in operands]
    beside = {name: x for name, x in operands.items() if name not in ("grad", "y", "x")}
    got = getattr(bp, op)(*inputs, **beside, **named)
    return {name: np.asarray(getattr(got, name, got)) for name in OUT[op]}


def served_by_registers(op: str, operands: dict[str, Any], **options: Any) -> None:
    problem = Problem(get_op(op), Sample("", operands, options), "ptx")
    plans = [plan for plan in admissible(problem) if plan.sku.variant == VARIANT]
    assert plans
    served(problem, plans)


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("op", ALONG)
def test_unaligned_resident_every_place_of_both_ends(op: str, dtype: Any) -> None:
    """Pitches, starts and lengths of every remainder; results that start elsewhere than inputs, between guards."""
    per_word = 16 // dtype.itemsize
    for start in range(per_word):
        length = 67 + start * 5 % per_word
        operands = operands_of(op, length, dtype, (start, 3 * start + 1))
        held = {name: np.full((3, length + per_word + 3), 7, dtype) for name in OUT[op]}
        views = {name: one[:, i + start * 3 % per_word :][:, :length] for i, (name, one) in enumerate(held.items())}
        served_by_registers(op, operands)
        called(op, operands, **views, device="ptx", pref=PREF)
        wanted = called(op, operands, device="cpu")
        for name, one in held.items():
            assert np.allclose(views[name].astype(float), wanted[name].astype(float), rtol=0.02, atol=0.02)
            views[name][:] = 7
            assert (one == 7).all()


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("op", ["softmax", "layer_norm"])
def test_unaligned_resident_rows_of_a_word_and_less(op: str, dtype: Any) -> None:
    for length in (1, 2, 3, 5, 9, 15):
        for start in (1, 2, 3):
            served_by_registers(op, operands_of(op, length, dtype, (start, start + 1), count=19))


@pytest.mark.parametrize("op", ALONG)
def test_unaligned_resident_groups_of_every_width(op: str) -> None:
    """Rows of part of a warp, a warp, and of warps that have one vector, several or none each."""
    for dtype, length in ((F32, 131), (BF16, 262), (F32, 641), (F16, 1001), (BF16, 2051), (F32, 4097)):
        served_by_registers(op, operands_of(op, length, dtype, (1, 2), count=5, residual=length < 1000))


@pytest.mark.parametrize("length", [254, 255, 256, 257, 1022])
def test_unaligned_resident_end_behind_a_group(length: int) -> None:
    """The row ends within the word behind a warp's vectors, or with it."""
    for start in (1, 2, 3):
        served_by_registers("softmax", {"x": rows_at(start, 3, length, F32, 7)})


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
@pytest.mark.parametrize("op", ALONG)
def test_unaligned_resident_bits_are_the_same_at_any_start(op: str, dtype: Any) -> None:
    steps, length = 16 // dtype.itemsize, 333
    rows, found = operands_of(op, length, dtype, (0, 0), count=1), set()
    for at in range(steps):
        moved = {name: rows_at(at * (1 + i) % steps, 2, length, dtype, 1) for i, name in enumerate(ALONG[op])}
        for name, x in moved.items():
            x[1] = rows[name][0]
        given = moved | {name: rows[name] for name in PER_COLUMN.get(op, ())}
        found.add(b"".join(x[1].tobytes() for x in called(op, given, device="ptx", pref=PREF).values()))
    assert len(found) == 1


@pytest.mark.parametrize("length", [131, 1001])
@pytest.mark.parametrize("op", ALONG)
def test_unaligned_resident_in_place(op: str, length: int) -> None:
    operands = operands_of(op, length, F32, (1, 3))
    wanted = called(op, operands, device="ptx", pref=PREF)
    into = dict(zip(OUT[op], (operands[name] for name in ALONG[op])))
    called(op, operands, **into, device="ptx", pref=PREF)
    assert all(np.array_equal(x, wanted[name]) for name, x in into.items())


@pytest.mark.parametrize("op", PER_COLUMN)
@pytest.mark.parametrize("kinds", [(BF16, F32), (F32, F32), (F16, F16)], ids=str)
def test_unaligned_resident_weights_and_statistics(op: str, kinds: tuple[Any, Any]) -> None:
    """Weights that start at a word and elsewhere, of x's kind and of f32; statistics as results."""
    kind, of_weight = kinds
    for offset in (0, 1):
        operands = {name: rows_at(offset, 1, 643, of_weight)[0] for name in PER_COLUMN[op]}
        operands |= {name: np.zeros(3, np.float32) for name in ("mean", "rstd")[op == "rms_norm" :]}
        served_by_registers(op, {"x": rows_at(3, 3, 643, kind), **operands})


def test_unaligned_resident_rows_backwards_and_of_one_value() -> None:
    x = rows_at(1, 5, 301, F32)
    for given in (x[::-1], x[::2], np.broadcast_to(x[:1], (4, 301))):
        served_by_registers("softmax", {"x": given})
        served_by_registers("rms_norm", {"x": given})


@pytest.mark.parametrize("op", ALONG)
def test_unaligned_resident_is_selected_at_odd_pitches(op: str) -> None:
    for shape, element in (
        ((4096, 1001), "f32"),
        ((4096, 4097), "f32"),
        ((2048, 8191), "bf16"),
        ((4096, 1001), "bf16"),
    ):
        plan = get_op(op).plan.select(get_op(op).describe(shape=shape, element=element), device="h200")
        assert plan.sku.variant == VARIANT
    for columns, variant in ((1024, "rows"), (7, "rows"), (30, "rows"), (641, "rows"), (100_001, "kept")):
        plan = get_op(op).plan.select(get_op(op).describe(shape=(4096, columns), element="f32"), device="h200")
        assert plan.sku.variant == variant


def test_unaligned_resident_refusals() -> None:
    for columns, dtype, said in (
        (1024, F32, "every row starts and ends at 16 bytes"),
        (101, np.float64, "an f64 is half of a 16-byte word"),
        (30_001, F32, "rows are longer than the registers of a CTA"),
    ):
        with pytest.raises(bp.UnsupportedError, match=said):
            bp.softmax(np.ones((2, columns), dtype), pref=PREF, device="ptx")
    with pytest.raises(bp.UnsupportedError, match="columns are not contiguous"):
        bp.softmax(np.ones((101, 2), np.float32).T, pref=PREF, device="ptx")

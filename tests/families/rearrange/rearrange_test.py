"""roll, flip, tile, pad, triangles, join: what is refused, lists of arrays, and how many kernels serve them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

COVERS = ("flip", "join", "pad", "repeat_interleave", "roll", "tile", "tril", "triu")
F32 = np.float32
X = np.arange(12, dtype=F32).reshape(3, 4)
X.flags.writeable = False

REFUSED: tuple[tuple[str, Callable[..., Any], type[bp.BaracudaError], str], ...] = (
    ("flip axis", lambda **how: bp.flip(X, 2, **how), bp.InvalidProblemError, "axis=2 is out of range: x has 2 axes"),
    ("flip twice", lambda **how: bp.flip(X, (0, -2), **how), bp.InvalidProblemError, "twice"),
    ("roll axis", lambda **how: bp.roll(X, 1, -3, **how), bp.InvalidProblemError, "axis=-3"),
    ("roll shifts", lambda **how: bp.roll(X, (1, 2, 3), (0, 1), **how), bp.InvalidProblemError, "one shift per axis"),
    ("roll order", lambda **how: bp.roll(X.T, 1, **how), bp.InvalidProblemError, "contiguize"),
    ("roll text", lambda **how: bp.roll(X, "a", 0, **how), bp.InvalidProblemError, "shift"),
    ("tile count", lambda **how: bp.tile(X, (1, -2), **how), bp.InvalidProblemError, "negative"),
    ("repeat count", lambda **how: bp.repeat_interleave(X, -1, 0, **how), bp.InvalidProblemError, "negative"),
    ("repeat axis", lambda **how: bp.repeat_interleave(X, 2, 5, **how), bp.InvalidProblemError, "out of range"),
    ("pad widths", lambda **how: bp.pad(X, ((1, 1),) * 3, **how), bp.InvalidProblemError, "takes 4"),
    ("pad triple", lambda **how: bp.pad(X, ((1, 1, 1),), **how), bp.InvalidProblemError, "two widths"),
    ("pad cut", lambda **how: bp.pad(X, (-2, -2), **how), bp.InvalidProblemError, "fewer than 4"),
    ("pad mode", lambda **how: bp.pad(X, 1, "mirror", **how), bp.InvalidProblemError, "not known"),
    ("pad nothing", lambda **how: bp.pad(X[:0], 1, "edge", **how), bp.InvalidProblemError, "no element to continue"),
    ("pad cut edge", lambda **how: bp.pad(X, (-1, 0), "wrap", **how), bp.InvalidProblemError, "alone cuts"),
    ("pad byte", lambda **how: bp.pad(X.astype("u1"), 1, constant_values=256, **how), bp.InvalidProblemError, "is no u8"),
    ("pad part", lambda **how: bp.pad(X.astype("i4"), 1, constant_values=0.5, **how), bp.InvalidProblemError, "is no i32"),
    ("pad complex", lambda **how: bp.pad(X, 1, constant_values=1j, **how), bp.OperandTypeError, "real number"),
    ("fold whole", lambda **how: bp.pad_backward(X, (2, 2), "edge", **how), bp.InvalidProblemError, "fewer than 4"),
    ("fold all", lambda **how: bp.pad_backward(X, (0, 3, 0, 0), "wrap", **how), bp.InvalidProblemError, "is all padding"),
    ("fold cut", lambda **how: bp.pad_backward(X, (-1, 0), "wrap", **how), bp.InvalidProblemError, "alone cuts"),
    ("fold kind", lambda **how: bp.pad_backward(X.astype("i4"), 1, "wrap", **how), bp.OperandTypeError, "cast x to f32"),
    ("triu vector", lambda **how: bp.triu(X[0], **how), bp.InvalidProblemError, "is no matrix"),
    ("join shapes", lambda **how: bp.join(X, X.T, **how), bp.InvalidProblemError, r"\(3, 4\) and x1 \(4, 3\)"),
    ("join ranks", lambda **how: bp.join(X, X[0], **how), bp.InvalidProblemError, r"x1 \(4,\)"),
    ("join gaps", lambda **how: bp.join(X, None, X, **how), bp.InvalidProblemError, "x2 is given without x1"),
    ("join axis", lambda **how: bp.join(X, X, axis=2, **how), bp.InvalidProblemError, "axis=2"),
    ("join kinds", lambda **how: bp.join(X, X.astype("f8"), **how), bp.OperandTypeError, "x1 must hold f32"),
    ("stack shapes", lambda **how: bp.stack([X, X[:2]], **how), bp.InvalidProblemError, "one shape"),
    ("concatenate none", lambda **how: bp.concatenate([], **how), bp.InvalidProblemError, "one array or more"),
    ("concatenate array", lambda **how: bp.concatenate(X, **how), bp.InvalidProblemError, "list or tuple"),
)  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize(("call", "error", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_rearrange_bad_arguments_are_refused(call: Any, error: Any, says: str, device: str) -> None:
    with pytest.raises(error, match=says):
        call(device=device)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_rearrange_wrong_out_is_refused(device: str) -> None:
    x = X.copy()
    for out, error in (
        (np.zeros((4, 3), F32), bp.InvalidProblemError), (np.zeros((3, 4)), bp.OperandTypeError),
        (np.zeros((4, 3), F32).T, bp.InvalidProblemError), (x, bp.OverlapError), (X, bp.OperandTypeError),
    ):  # fmt: skip
        before = out.copy()
        with pytest.raises(error):
            bp.flip(x, 0, out=out, device=device)
        assert np.array_equal(out, before)


def test_join_packed_kind_is_refused_with_the_fix() -> None:
    x = bp.GpuBuffer.view(np.zeros((2, 4), np.uint8), bp.S4)
    with pytest.raises(bp.OperandTypeError, match="view the bytes as u8"):
        bp.join(x, x, device="cpu")


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("count", [1, 16, 17, 40])
def test_concatenate_takes_any_number_of_arrays(count: int, device: str) -> None:
    parts = [np.full((2, i % 3 + 1), i, np.int16) for i in range(count)]
    assert np.array_equal(bp.concatenate(parts, 1, device=device), np.concatenate(parts, 1))
    alike = [np.full((2, 3), i, np.int16) for i in range(count)]
    for axis in (0, 1, -1):
        assert np.array_equal(bp.stack(alike, axis, device=device), np.stack(alike, axis))


def launches(plan: Any) -> list[Any]:
    return list(plan.selection.steps)


def test_rearrange_rows_of_whole_chunks_are_one_rule() -> None:
    """Axes that move as one are one rule, whose rows are long: chunks of 16 bytes, in one launch."""
    for plan in (
        bp.RollPlan.select(bp.RollDescriptor((64, 4096, 32), "bf16", (5,), (0,)), device="h200"),
        bp.TilePlan.select(bp.TileDescriptor((64, 4096, 32), "bf16", (1, 3, 1)), device="h200"),
        bp.PadPlan.select(bp.PadDescriptor((64, 4096, 32), "bf16", (0, 0, 1, 1, 0, 0)), device="h200"),
    ):
        (launch,) = launches(plan)
        assert str(launch.kernel).endswith((", 1, 2, 16, 2>", ", 2, 2, 16, 2>"))
        assert plan.cost.limit == "bandwidth"


def test_tile_along_the_first_axis_reads_once() -> None:
    """The copies are stores of what was loaded once."""
    (launch,) = launches(bp.TilePlan.select(bp.TileDescriptor((1 << 20, 16), "f32", (3, 1)), device="h200"))
    assert launch.args[2] == 1 << 24 and launch.args[5] == 3


def test_rearrange_more_elements_than_32_bits_count() -> None:
    """Positions beyond 2**31 are 64-bit in the kernel."""
    big = bp.FlipPlan.select(bp.FlipDescriptor((3, 1 << 30), "u8", (1,)), device="h200")
    small = bp.FlipPlan.select(bp.FlipDescriptor((3, 1 << 20), "u8", (1,)), device="h200")
    assert "<u64" in str(launches(big)[0].kernel) and "<u32" in str(launches(small)[0].kernel)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_joined_none_is_refused(device: str) -> None:
    x = np.ones((2, 3), np.float32)
    for function in (bp.concatenate, bp.stack):
        with pytest.raises(bp.InvalidProblemError, match=r"arrays\[1\] is None"):
            function([x, None, x], device=device)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_rearrange_without_axes(device: str) -> None:
    x = np.array(2.5)
    for got in (
        bp.pad(x, 3, "reflect", device=device),
        bp.pad(x, (), device=device),
        bp.roll(x, (), (), device=device),
    ):
        assert got.shape == () and got == x


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_rearrange_numbers_in_arrays_without_axes(device: str) -> None:
    three, zero = np.array(3), np.array(0)
    assert np.array_equal(bp.pad(X, three, device=device), np.pad(X, 3))
    assert np.array_equal(bp.roll(X, three, zero, device=device), np.roll(X, 3, 0))
    assert np.array_equal(bp.tile(X, three, device=device), np.tile(X, 3))
    with pytest.raises(bp.InvalidProblemError, match="pad_width"):
        bp.pad(X, np.array(1.5), device=device)


@pytest.mark.parametrize(("lanes", "shape", "width"), [(1, (4096, 4096), (3,)), (32, (4,), (100_000,))])
def test_pad_backward_long_sums_take_a_warp(lanes: int, shape: tuple[int, ...], width: tuple[int, ...]) -> None:
    grown = tuple(n + 2 * width[0] for n in shape)
    desc = bp.PadDescriptor(grown, "f32", width, "wrap", name="pad_backward")
    plan = bp.PadPlan.select(desc, device="h200")
    assert plan.sku.config == str(lanes) and f", {lanes}>" in str(launches(plan)[0].kernel)
    assert plan.precision_guarantee.deterministic


@pytest.mark.parametrize("widths", [(0, 2), (2, 0)])
@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
def test_pad_of_nothing_is_refused(mode: str, widths: tuple[int, int]) -> None:
    with pytest.raises(bp.InvalidProblemError, match="has no element to continue"):
        bp.pad(np.zeros(0, np.float32), widths, mode, device="cpu")

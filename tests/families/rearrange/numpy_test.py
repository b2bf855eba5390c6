"""Rearrangements of small arrays of any layout beside NumPy: uneven pads in every mode, rows with gaps, axes merged or not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.rearrange.moves import FlipDescriptor, FlipPlan, RollDescriptor, RollPlan

COVERS = ("roll", "flip", "tile", "repeat_interleave", "pad", "pad_backward", "triu", "tril", "join")
Array: TypeAlias = "np.ndarray[Any, Any]"
Call: TypeAlias = "tuple[Array, Array, str]"  # ours, NumPy's, and the arguments

CONTIGUOUS, GAPS, TRANSPOSED, REVERSED = LAYOUTS = range(4)


def array(rng: random.Random, dtype: Any, shape: tuple[int, ...] | None = None) -> Array:
    """Of one to three axes if no shape is given, in a random layout."""
    if shape is None:
        shape = tuple(rng.choice([1, 2, 3, 5, 16, 20]) for _ in range(rng.randint(1, 3)))
    x = np.arange(1, np.prod(shape) + 1).astype(dtype).reshape(shape)
    layout = rng.choice(LAYOUTS)
    if layout == GAPS:
        wide = np.zeros((*shape[:-1], shape[-1] + 3), dtype)
        wide[..., 1:-2] = x
        return wide[..., 1:-2]
    if layout == TRANSPOSED:
        return np.ascontiguousarray(x.T).T
    return x[::-1] if layout == REVERSED else x


def roll(rng: random.Random, x: Array) -> Call:
    axes = tuple(rng.randrange(-x.ndim, x.ndim) for _ in range(rng.randint(1, 3)))
    shifts = tuple(rng.randint(-40, 40) for _ in axes)
    return bp.roll(x, shifts, axes, device="ptx"), np.roll(x, shifts, axes), f"{shifts} {axes}"


def flip(rng: random.Random, x: Array) -> Call:
    axes = tuple(rng.sample(range(x.ndim), rng.randint(0, x.ndim)))
    return bp.flip(x, axes, device="ptx"), np.flip(x, axes), f"{axes}"


def tile(rng: random.Random, x: Array) -> Call:
    reps = tuple(rng.choice([1, 1, 2, 3]) for _ in range(rng.randint(1, 3)))
    return bp.tile(x, reps, device="ptx"), np.tile(x, reps), f"{reps}"


def repeat(rng: random.Random, x: Array) -> Call:
    count, axis = rng.choice([0, 1, 2, 3, 17]), rng.randrange(-x.ndim, x.ndim)
    return bp.repeat_interleave(x, count, axis, device="ptx"), np.repeat(x, count, axis), f"{count} {axis}"


def pad(rng: random.Random, x: Array) -> Call:
    mode = rng.choice(["constant", "edge", "reflect", "symmetric", "wrap"])
    most = rng.choice([4, 45])
    widths = tuple(rng.choice([(0, 0), (rng.randint(0, most), rng.randint(0, 2))]) for _ in x.shape)
    if rng.random() < 0.2:
        before, after = widths[0]
        return bp.pad(x, (before, after), mode, device="ptx"), np.pad(x, (before, after), mode), f"{widths[0]} {mode}"
    return bp.pad(x, widths, mode, device="ptx"), np.pad(x, widths, mode), f"{widths} {mode}"


def cut(rng: random.Random, x: Array) -> Call:
    widths = tuple((rng.randint(0, n // 2), rng.randint(0, n // 3)) for n in x.shape)
    wanted = x[tuple(slice(a, n - b) for n, (a, b) in zip(x.shape, widths))]
    return bp.pad_backward(x, widths, device="ptx"), wanted, f"{widths}"


def fold(rng: random.Random, x: Array) -> Call:
    """The gradient of a pad that is no constant, of small whole numbers: sums are exact in any order."""
    mode = rng.choice(["edge", "reflect", "symmetric", "wrap"])
    most = rng.choice([4, 45])
    pairs = [rng.choice([(0, 0), (rng.randint(0, most), rng.randint(0, 2))]) for _ in x.shape]
    widths = tuple((min(a, n - 1), min(b, n - 1 - min(a, n - 1))) for n, (a, b) in zip(x.shape, pairs))
    grad, shape = (x % 7).astype(np.float32), tuple(n - a - b for n, (a, b) in zip(x.shape, widths))
    wanted = np.zeros(shape, np.float32)
    np.add.at(wanted.reshape(-1), np.pad(np.arange(wanted.size).reshape(shape), widths, mode), grad)
    return bp.pad_backward(grad, widths, mode, device="ptx"), wanted, f"{widths} {mode}"


def triangle(rng: random.Random, x: Array) -> Call:
    x, k, upper = np.atleast_2d(x), rng.randint(-22, 22), rng.random() < 0.5
    got, wanted = (bp.triu, np.triu) if upper else (bp.tril, np.tril)
    return got(x, k, device="ptx"), wanted(x, k), f"{k} {upper}"


def join(rng: random.Random, x: Array) -> Call:
    axis, parts = rng.randrange(-x.ndim, x.ndim), [x]
    for _ in range(rng.choice([0, 1, 2, 3, 4, 7, 8, 15, 16])):
        extents = [*x.shape]
        extents[axis] = rng.choice([0, 1, 2, 4, 16])
        parts.append(array(rng, x.dtype, tuple(extents)))
    return bp.concatenate(parts, axis, device="ptx"), np.concatenate(parts, axis), f"{len(parts)} {axis}"


def stack(rng: random.Random, x: Array) -> Call:
    axis, parts = rng.randint(-x.ndim - 1, x.ndim), [np.ascontiguousarray(x + i) for i in range(rng.choice([1, 2, 18]))]
    return bp.stack(parts, axis, device="ptx"), np.stack(parts, axis), f"{len(parts)} {axis}"


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("call", [roll, flip, tile, repeat, pad, cut, fold, triangle, join, stack])
def test_rearrange_random_calls_match_numpy(call: Callable[..., Call], dtype: Any, bounded: bool) -> None:
    rng = random.Random(7)
    for _ in range(14 if bounded else 40):
        x = array(rng, dtype)
        got, wanted, arguments = call(rng, x)
        assert got.shape == wanted.shape, f"{x.shape} {x.strides} {arguments}"
        assert np.array_equal(got, wanted), f"{x.shape} {x.strides} {arguments}"


@pytest.mark.parametrize(
    "make", [lambda n: RollDescriptor((n,), "u8", (5,), (0,)), lambda n: FlipDescriptor((n,), "u8")]
)
def test_rearrange_index_holds_what_rules_compute(make: Callable[[int], Any]) -> None:
    """Rules compute indices of up to twice the extent, which then must fit as well."""
    for extent, index in ((1_000_000_000, "u32"), (1_500_000_000, "u64")):
        desc = make(extent)
        plan = (RollPlan if isinstance(desc, RollDescriptor) else FlipPlan).select(desc, device="h200")  # type: ignore[type-abstract]
        assert f"gather_axes<{index}," in str(plan.kernels[0])


def test_pad_wrapped_by_part_of_a_turn() -> None:
    """Whole turns are copies of one; what is left over is not."""
    x = np.arange(32, dtype=np.uint8).reshape(2, 16)
    for widths in ((2, 1), (4, 0), (0, 3)):
        pairs = (widths, (0, 0))
        assert np.array_equal(bp.pad(x, pairs, "wrap", device="ptx"), np.pad(x, pairs, "wrap"))

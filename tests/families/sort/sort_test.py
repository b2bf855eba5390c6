"""sort and argsort: torch's order, every variant and configuration, views, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan.about import tune

from ...arena import Slot, host
from ...gauntlet import readable

COVERS = ("argsort", "sort")
BF16 = np.dtype(ml_dtypes.bfloat16)


def variants(x: np.ndarray, backend: str, **options: Any) -> Iterator[tuple[Any, Any]]:
    """Every kernel's answer, in every configuration, on the device or emulated: its plan, and (values, indices)."""
    given = Slot(x, backend).operand
    desc = bp.SortDescriptor.of(given, **options)
    device = bp.SortPlan.select(desc, device=None if backend == "cuda" else "ptx").device
    for plan in tune.admissible(bp.SortPlan, desc, bp.PlanPreference(), device):
        yield plan, plan.run(x=given)


def of_kind(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Numbers of which many are equal; of floats also NaN of either sign, both zeros and infinities."""
    x = rng.integers(0, 90, shape).astype(dtype)
    if x.dtype.kind not in "iu":
        x -= np.asarray(40, dtype)
        for number in (np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf):
            x[rng.random(shape) < 0.03] = number
    return x


def torch_of(torch: Any, x: np.ndarray) -> Any:
    return torch.from_numpy(x.view(np.int16).copy()).view(torch.bfloat16) if x.dtype == BF16 else torch.from_numpy(x)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, BF16, np.int32, np.uint8, np.int64, np.int16])
def test_sort_is_that_of_torch(dtype: Any, descending: bool) -> None:
    torch = pytest.importorskip("torch")
    x = of_kind(np.random.default_rng(3), (3, 5, 700), dtype)
    for axis in (-1, 1):
        wanted = torch.sort(torch_of(torch, x), dim=axis, descending=descending, stable=True)
        found = bp.sort(x, axis, descending=descending, device="cpu")
        assert np.array_equal(found.indices, wanted.indices.numpy())
        assert found.values.tobytes() == np.take_along_axis(x, wanted.indices.numpy(), axis).tobytes()
        assert np.array_equal(bp.argsort(x, axis, descending=descending, device="cpu"), found.indices)


# Tiles of a row, segments, several passes; a row of more tiles than a CTA adds up itself
SHAPES = [
    ((3, 700), np.float32, {"short_rows", "row", "radix"}),
    ((2, 2049), BF16, {"row", "radix"}),
    ((2, 2500), np.float64, {"row", "radix"}),
    ((1, 34_000), np.uint8, {"radix"}),
    ((2, 8193), np.int16, {"row", "radix"}),
]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("shape", "dtype", "expected"), SHAPES)
def test_sort_by_every_variant(
    shape: tuple[int, int], dtype: Any, expected: set[str], descending: bool, backend: str
) -> None:
    x = of_kind(np.random.default_rng(shape[1]), shape, dtype)
    wanted = bp.sort(x, descending=descending, device="cpu")
    seen = set()
    for plan, made in variants(x, backend, descending=descending):
        assert np.array_equal(host(made.indices), wanted.indices), plan.sku
        assert host(made.values).tobytes() == wanted.values.tobytes(), plan.sku
        seen.add(plan.sku.variant)
    assert seen == expected


def test_sort_of_a_view_along_another_axis(backend: str) -> None:
    x = of_kind(np.random.default_rng(8), (3, 1030, 2), np.float16)
    for view, axis in ((x[:, ::-1, ::2], 1), (x[::-1, :9], 0)):
        wanted = bp.sort(view, axis, index_dtype="i32", device="cpu")
        assert wanted.indices.dtype == np.int32
        for plan, made in variants(view, backend, axis=axis, index_dtype="i32"):
            assert np.array_equal(host(made.indices), wanted.indices), plan.sku
            assert host(made.values).tobytes() == wanted.values.tobytes(), plan.sku


def test_sort_writes_strided_results() -> None:
    x = of_kind(np.random.default_rng(9), (3, 1100), np.float32)
    values, indices = np.zeros((1100, 3), np.float32).T, np.zeros((3, 2200), np.int64)[:, ::2]
    made = bp.sort(x, values=values, indices=indices, device="ptx")
    wanted = bp.sort(x, device="cpu")
    assert made.values is values and np.array_equal(values, wanted.values, equal_nan=True)
    assert np.array_equal(indices, wanted.indices)


LONG = [
    ((1 << 22) + 5, np.float32),
    (1_000_003, np.int64),
    ((1 << 20) + 1, BF16),
]


@pytest.mark.gpu
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("count", "dtype"), LONG)
@pytest.mark.parametrize("rows", [1, 3])
def test_sort_of_long_rows(count: int, dtype: Any, rows: int, descending: bool) -> None:
    x = of_kind(np.random.default_rng(1), (rows, count), dtype)
    wanted = bp.sort(x, descending=descending, device="cpu")
    for plan, made in variants(x, "cuda", descending=descending):
        assert np.array_equal(host(made.indices), wanted.indices), plan.sku
        assert host(made.values).tobytes() == wanted.values.tobytes(), plan.sku


REFUSED: list[tuple[Any, dict[str, Any], type[bp.BaracudaError], tuple[str, ...]]] = [
    (np.zeros((2, 3)), {"axis": 2}, bp.InvalidProblemError, ("axis=2", "2 axes", "give one of -2 to 1")),
    (np.zeros(()), {}, bp.InvalidProblemError, ("0 axes", "give x an axis")),
    (np.zeros(3, bool), {}, bp.OperandTypeError, ("x", "bool")),
    (np.zeros(3, np.complex64), {}, bp.OperandTypeError, ("x", "complex64")),
    (np.zeros(3), {"descending": 1}, bp.InvalidProblemError, ("descending", "True or False")),
    (np.zeros(3), {"stable": None}, bp.InvalidProblemError, ("stable", "True or False")),
    (np.zeros(3), {"index_dtype": "i16"}, bp.OperandTypeError, ("i16",)),
]


@pytest.mark.parametrize("op", COVERS)
@pytest.mark.parametrize(("x", "options", "error", "said"), REFUSED)
def test_sort_refuses(op: str, x: Any, options: Any, error: Any, said: tuple[str, ...]) -> None:
    with pytest.raises(error) as caught:
        getattr(bp, op)(x, **options, device="cpu")
    readable(caught.value, op, *said)


def test_sort_refuses_results_of_another_kind() -> None:
    values, indices = np.full(3, 7.0), np.full(3, 7, np.int32)
    with pytest.raises(bp.OperandTypeError) as caught:
        bp.sort(np.zeros(3), values=values, indices=indices, device="cpu")
    readable(caught.value, "sort", "indices", "i32", "i64")
    assert values.tolist() == [7, 7, 7] and indices.tolist() == [7, 7, 7]


def test_sort_of_int32_places_beyond_them() -> None:
    desc = bp.SortDescriptor((1 << 32,), "u8", index_dtype="i32")
    with pytest.raises(bp.InvalidProblemError) as caught:
        bp.SortPlan.select(desc, device="ptx")
    readable(caught.value, "sort", "int32", 'index_dtype="i64"')


def test_sort_outputs_share_no_memory() -> None:
    x, memory = np.arange(8.0), np.zeros(8)
    with pytest.raises(bp.OverlapError, match=r"values is written .* indices: pass an array of its own for indices"):
        bp.sort(x, values=memory, indices=memory.view(np.int64), device="cpu")
    assert not memory.any()

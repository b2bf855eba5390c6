"""topk: torch's values, ties by index, NaN and zeros, any k and axis, every variant, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import baracuda_py as bp
from baracuda_py.plan.about import tune

from ...arena import Slot, host
from ...gauntlet import readable

COVERS = ("topk",)
BF16 = np.dtype(ml_dtypes.bfloat16)
torch = pytest.importorskip("torch")


def device_of(backend: str) -> Any:
    return "cpu" if backend == "cpu" else None


@given(
    st.sampled_from(["float32", "float64", "int32", "uint8"]), st.integers(1, 3), st.booleans(), st.booleans(), st.data()
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_values_as_torch(dtype: str, rank: int, largest: bool, ordered: bool, data: st.DataObject) -> None:
    """Values alone: torch leaves open which of equal elements it takes."""
    shape = [data.draw(st.integers(1, 9)) for _ in range(rank)]
    axis = data.draw(st.integers(-rank, rank - 1))
    k = data.draw(st.integers(0, shape[axis]))
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    x = rng.integers(0, 20, shape).astype(dtype)
    if dtype.startswith("float"):
        x[rng.random(shape) < 0.2] = np.nan
    got = bp.topk(x, k, axis, largest=largest, sorted=ordered, device="cpu")
    right = torch.topk(torch.from_numpy(x), k, axis, largest=largest).values.numpy()
    values = got.values if ordered else _sorted(got.values, axis, largest)
    assert np.array_equal(values, right, equal_nan=dtype.startswith("float"))
    assert np.array_equal(np.take_along_axis(x, got.indices, axis), got.values, equal_nan=dtype.startswith("float"))
    if not ordered:
        assert (np.diff(got.indices, axis=axis) > 0).all()


def _sorted(x: np.ndarray, axis: int, largest: bool) -> np.ndarray:
    rising = np.sort(x, axis)  # NaN last
    return np.flip(rising, axis) if largest else rising


def variants(x: np.ndarray, backend: str, only: tuple[str, ...] = (), **options: Any) -> Iterator[tuple[Any, Any]]:
    """Every kernel's answer, on the device or emulated, or that of some variants: its plan, and (values, indices)."""
    given = Slot(x, backend).operand
    desc = bp.TopkDescriptor.of(given, **options)
    device = bp.TopkPlan.select(desc, device=None if backend == "cuda" else "ptx").device
    for plan in tune.admissible(bp.TopkPlan, desc, bp.PlanPreference(), device):
        if not only or plan.sku.variant in only:
            yield plan, plan.run(x=given)


@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32, np.float64], ids=["f16", "bf16", "f32", "f64"])
def test_ties_zeros_and_nan_by_every_variant(dtype: Any, backend: str) -> None:
    nan = np.float32(np.nan)
    x = np.array([[-0.0, 1, nan, 0.0, 1, -nan, -1, -0.0, 0.0]], dtype)
    for plan, made in variants(x, backend, k=9):
        assert host(made.indices).tolist() == [[2, 5, 1, 4, 0, 3, 7, 8, 6]], plan.sku
    for plan, made in variants(x, backend, k=9, largest=False):
        assert host(made.indices).tolist() == [[6, 0, 3, 7, 8, 1, 4, 2, 5]], plan.sku
        signs = np.signbit(host(made.values))[0].tolist()
        assert signs == [True, True, False, True, False, False, False, False, True]


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["f32", "f16"])
def test_greatest_among_the_vectors_of_one_thread(dtype: Any, backend: str) -> None:
    """A thread of the listing pass reads vectors of 16 bytes at distances of 8 KiB, of which several pass here."""
    tile = 512 * 16 // np.dtype(dtype).itemsize
    x = np.random.default_rng(5).permutation(3 * tile).astype(np.float32).reshape(1, -1) / (3 * tile)
    x[0, [40, 40 + tile, 41 + tile, 42 + 2 * tile]] = 2, 4, 3, 5
    x = x.astype(dtype)
    wanted = np.argsort(-x, axis=-1, kind="stable")[:, :9]
    for plan, made in variants(x, backend, k=9):
        assert np.array_equal(host(made.indices), wanted), plan.sku


def test_a_row_does_not_depend_on_others(backend: str) -> None:
    x = np.random.default_rng(3).integers(0, 40, (5, 3001)).astype(np.float16)
    for plan, whole in variants(x, backend, k=17):
        for row in range(5):
            alone = {p.sku.variant: made for p, made in variants(x[row], backend, k=17)}[plan.sku.variant]
            assert np.array_equal(host(alone.indices), host(whole.indices)[row])


LONG = [
    ((2, 9001), np.float32, 5000, "select_rows"),  # two runs in scratch, of which one is short
    ((1, 7000), np.int64, 7000, "select_rows"),  # four runs
    ((2, 40000), np.float32, 33, "split_rows"),
    ((1, 33001), np.float64, 4000, "split_rows"),
    ((3, 2048), np.uint16, 2048, "sort_rows"),
    ((7, 1 << 20), np.float16, 4097, "split_rows"),
    ((140, 40000), np.float32, 1024, "select_rows"),
]


@pytest.mark.gpu
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("shape", "dtype", "k", "variant"), LONG)
def test_long_rows_and_many_kept(shape: tuple[int, int], dtype: Any, k: int, variant: str, largest: bool) -> None:
    """Without a GPU some of these are in baracuda_py/ops/sort/wanted.py."""
    x = np.random.default_rng(5).integers(0, 3000, shape).astype(dtype)
    wanted = bp.topk(x, k, largest=largest, device="cpu")
    found = [(plan, got) for plan, got in variants(x, "cuda", k=k, largest=largest) if plan.sku.variant == variant]
    assert found
    for plan, got in found:
        assert np.array_equal(host(got.indices), wanted.indices), plan.sku
        assert np.array_equal(host(got.values), wanted.values), plan.sku


def test_the_order_of_equal_elements_in_parts(backend: str) -> None:
    """What ties is taken from the first parts."""
    x = np.ones((1, 17000), np.float16)
    x[0, 15000] = 2
    seen = set()
    for plan, made in variants(x, backend, k=40):
        assert host(made.indices).tolist() == [[15000, *range(39)]], plan.sku
        seen.add(plan.sku.variant)
    assert seen == {"select_rows", "split_rows"}


@pytest.mark.parametrize("columns", [5003, 65536, 65539])
def test_distinct_elements_in_parts_and_tails(columns: int, backend: str) -> None:
    """Every part has elements of its own among the greatest; rows end within a vector of 16 bytes, or with one."""
    x = np.random.default_rng(1).permutation(columns).astype(np.float32)[None]
    for plan, made in variants(x, backend, k=9):
        assert np.array_equal(host(made.indices), np.argsort(-x, axis=-1)[:, :9]), plan.sku


NEW = ("held_rows", "greatest_rows")
HELD = [
    ((5, 640), BF16, 40),
    ((5, 641), np.float16, 40),
    ((3, 5120), BF16, 40),
    ((2, 5120), np.float16, 100),
    ((1, 5121), np.int8, 3),
    ((2, 8191), np.float32, 150),
    ((6, 33), np.uint8, 33),
    ((2, 700), np.int32, 60),
    ((3, 8192), np.float16, 1),
    ((2, 20_001), np.float32, 1),
    ((1, 20_003), np.float32, 1),
    ((2, 9000), np.int64, 1),
]


def is_floating(x: np.ndarray) -> bool:
    return x.dtype.kind not in "iu"


def short_rows(shape: tuple[int, int], dtype: Any, kind: str) -> np.ndarray:
    """Normal deviates with NaN, both zeros and infinity; elements most of which are equal; rows in rising order."""
    rng = np.random.default_rng(shape[1])
    if kind == "rising":
        return np.broadcast_to(
            np.arange(shape[1]) * 100 // max(100, shape[1] * (np.dtype(dtype).itemsize == 1)), shape
        ).astype(dtype)
    if kind == "equal":
        return (rng.random(shape) < 0.01).astype(dtype)
    x = (rng.standard_normal(shape) * 40).astype(dtype)
    if is_floating(x):
        x[:, ::97], x[:, 5::201], x[:, 6::201], x[0, 3] = np.nan, -0.0, 0.0, np.inf
    return x


def first_k(x: np.ndarray, k: int, largest: bool) -> np.ndarray:
    """Indices of the k first in order: NaN above all numbers, equal elements by index."""
    floating = is_floating(x)
    wide = x.astype(np.float64) if floating else x.astype(np.int64)
    nan = np.isnan(wide) if floating else np.zeros(x.shape, bool)
    wide = np.where(nan, 0, wide)
    keys = (-wide, ~nan) if largest else (wide, nan)
    return np.stack([np.lexsort((np.arange(x.shape[1]), *(key[row] for key in keys)))[:k] for row in range(len(x))])


@pytest.mark.parametrize(("kind", "largest"), [("normal", True), ("normal", False), ("equal", False), ("rising", True)])
@pytest.mark.parametrize(("shape", "dtype", "k"), HELD)
def test_short_rows_and_one_element(
    shape: tuple[int, int], dtype: Any, k: int, kind: str, largest: bool, backend: str
) -> None:
    x = short_rows(shape, dtype, kind)
    wanted = first_k(x, k, largest)
    for ordered in (True, False)[: 1 + (k < 100)]:
        indices = wanted if ordered else np.sort(wanted, axis=1)
        tried = list(variants(x, backend, NEW, k=k, largest=largest, sorted=ordered))
        assert tried
        for plan, made in tried:
            assert np.array_equal(host(made.indices), indices), plan.sku
            assert host(made.values).tobytes() == np.take_along_axis(x, indices, 1).tobytes(), plan.sku


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["f32", "f16"])
def test_topk_search_of_a_bound_that_k_minus_1_reach(dtype: Any, backend: str) -> None:
    """Rising rows, whose maxima leave more entries than a list has. The search for a higher bound tries 2.0 first, among the
    bits in which entries differ, and one element less than k reaches it."""
    n, k = 5000, 100
    x = np.concatenate([np.linspace(1, 1.9, n - k + 1), np.linspace(2, 3, k - 1)]).astype(dtype)[None]
    wanted = first_k(x, k, True)
    for plan, made in variants(x, backend, ("held_rows",), k=k):
        assert np.array_equal(host(made.indices), wanted), plan.sku


def test_short_rows_of_a_view(backend: str) -> None:
    """Rows that start anywhere, whose elements are not contiguous, along an outer axis."""
    x = np.random.default_rng(8).integers(-99, 99, (3, 5, 70)).astype(np.float16)
    for view, axis in ((x[:, :, 1:], -1), (x[:, :, ::2], -1), (x, 1), (x[::-1, ::-1], 0)):
        rows = np.moveaxis(view, axis, -1)
        wanted = first_k(rows.reshape(-1, rows.shape[-1]), 3, True).reshape(*rows.shape[:-1], 3)
        for plan, made in variants(view, backend, ("held_rows",), k=3, axis=axis):
            assert np.array_equal(host(made.indices), np.moveaxis(wanted, -1, axis)), plan.sku


@pytest.mark.parametrize("columns", [300, 5000])
def test_topk_values_step_other_than_that_of_x(columns: int, backend: str) -> None:
    """Elements of x at a distance of two, values and indices next to each other, by every variant."""
    x = np.random.default_rng(9).permutation(2 * 2 * columns).astype(np.float32).reshape(2, -1)[:, ::2]
    wanted = first_k(x, 9, True)
    for plan, made in variants(x, backend, k=9):
        assert np.array_equal(host(made.indices), wanted), plan.sku
        assert np.array_equal(host(made.values), np.take_along_axis(x, wanted, 1)), plan.sku


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["normal", "equal", "rising"])
@pytest.mark.parametrize(
    ("shape", "dtype", "k"), [((50_000, 640), BF16, 40), ((3000, 5120), BF16, 40), ((20_001, 513), np.float32, 9)]
)
def test_many_short_rows(shape: tuple[int, int], dtype: Any, k: int, kind: str) -> None:
    x = short_rows(shape, dtype, kind)
    wanted = first_k(x, k, True)
    for plan, made in variants(x, "cuda", k=k):
        assert np.array_equal(host(made.indices), wanted), plan.sku
        assert host(made.values).tobytes() == np.take_along_axis(x, wanted, 1).tobytes(), plan.sku


REFUSED: list[tuple[Any, tuple[Any, ...], dict[str, Any], type[bp.BaracudaError], str]] = [
    (np.zeros((2, 3)), (4,), {}, bp.InvalidProblemError, "give k from 0 to 3"),
    (np.zeros((2, 3)), (-1,), {}, bp.InvalidProblemError, "k=-1"),
    (np.zeros((2, 3)), (1.5,), {}, bp.InvalidProblemError, "k=1.5 is not an integer"),
    (np.zeros((2, 3)), (1, 2), {}, bp.InvalidProblemError, "axis=2, and x has 2 axes"),
    (np.zeros(()), (1,), {}, bp.InvalidProblemError, "give x an axis"),
    (np.zeros((2, 3), bool), (1,), {}, bp.OperandTypeError, "bool is not supported"),
    (np.zeros((2, 3), np.complex64), (1,), {}, bp.OperandTypeError, "complex64 is not supported"),
    (np.zeros((2, 3)), (1,), {"largest": "yes"}, bp.InvalidProblemError, "largest must be True or False"),
]


@pytest.mark.parametrize(("x", "arguments", "options", "error", "says"), REFUSED, ids=[r[4] for r in REFUSED])
def test_refusals(x: Any, arguments: Any, options: Any, error: Any, says: str, backend: str) -> None:
    slot = Slot(x, backend)
    with pytest.raises(error) as caught:
        bp.topk(slot.operand, *arguments, **options, device=device_of(backend))
    readable(caught.value, "topk", says)


def test_results_are_named(backend: str) -> None:
    got = bp.topk(Slot(np.array([[3, 1, 2]], np.int32), backend).operand, 2, device=device_of(backend))
    values, indices = got
    assert host(values).tolist() == [[3, 2]]
    assert host(indices).tolist() == [[0, 2]]
    assert got.values is values

"""topk: torch's values, ties by index, NaN and zeros, any k and axis, every variant, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import baracuda_py as bp
from baracuda_py.plan.about import tune

from .arena import Slot, host
from .gauntlet import readable

COVERS = ("topk",)
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


def variants(x: np.ndarray, backend: str, **options: Any) -> Iterator[tuple[Any, Any]]:
    """Every kernel's answer, on the device or emulated: its plan, and (values, indices) on the host."""
    given = Slot(x, backend).operand
    desc = bp.TopkDescriptor.of(given, **options)
    device = bp.TopkPlan.select(desc, device=None if backend == "cuda" else "ptx").device
    for plan in tune.admissible(bp.TopkPlan, desc, bp.PlanPreference(), device):
        yield plan, plan.run(x=given)


def test_ties_zeros_and_nan_by_every_variant(backend: str) -> None:
    nan = np.float32(np.nan)
    x = np.array([[-0.0, 1, nan, 0.0, 1, -nan, -1, -0.0, 0.0]], np.float32)
    for plan, made in variants(x, backend, k=9):
        assert host(made.indices).tolist() == [[2, 5, 1, 4, 0, 3, 7, 8, 6]], plan.sku
    for plan, made in variants(x, backend, k=9, largest=False):
        assert host(made.indices).tolist() == [[6, 0, 3, 7, 8, 1, 4, 2, 5]], plan.sku
        signs = np.signbit(host(made.values))[0].tolist()
        assert signs == [True, True, False, True, False, False, False, False, True]


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
    """Without a GPU some of these are in tests/wanted.py."""
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

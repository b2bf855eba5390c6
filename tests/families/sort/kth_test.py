"""kthvalue and median: torch's values, ties by index, NaN, every variant, gradients, refusals."""

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

COVERS = ("kthvalue", "kthvalue_backward", "median")
BF16 = np.dtype(ml_dtypes.bfloat16)


def variants(x: np.ndarray, backend: str, family: str, **options: Any) -> Iterator[tuple[Any, Any]]:
    """Every kernel's answer, on the device or emulated: its plan, and (values, indices)."""
    given = Slot(x, backend).operand
    plan: Any = {"kthvalue": bp.KthvaluePlan, "median": bp.MedianPlan}[family]
    desc = plan.descriptor.of(given, **options)
    device = plan.select(desc, device=None if backend == "cuda" else "ptx").device
    for each in tune.admissible(plan, desc, bp.PlanPreference(), device):
        yield each, each.run(x=given)


def of_kind(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, nan: float = 0.01) -> np.ndarray:
    """Numbers of which many are equal; of floats also NaN of either sign, both zeros and infinities."""
    x = rng.integers(0, 90, shape).astype(dtype)
    if x.dtype.kind not in "iu":
        x -= np.asarray(40, dtype)
        for number, share in (
            (np.nan, nan),
            (-np.nan, nan),
            (0.0, 0.03),
            (-0.0, 0.03),
            (np.inf, 0.03),
            (-np.inf, 0.03),
        ):
            x[rng.random(shape) < share] = number
    return x


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.uint8, np.int64, np.int16])
@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_kth_values_as_torch(dtype: Any, device: str) -> None:
    """Values alone: torch leaves open which of equal elements it takes."""
    torch = pytest.importorskip("torch")
    x = of_kind(np.random.default_rng(3), (3, 70, 5), dtype)
    for axis in (-1, 1):
        for keepdims in (False, True):
            for k in (1, 4):
                wanted = torch.kthvalue(torch.from_numpy(x), k, dim=axis, keepdim=keepdims).values.numpy()
                found = bp.kthvalue(x, k, axis, keepdims=keepdims, device=device)
                assert np.array_equal(found.values, wanted, equal_nan=dtype().dtype.kind == "f")
            wanted = torch.median(torch.from_numpy(x), dim=axis, keepdim=keepdims).values.numpy()
            found = bp.median(x, axis, keepdims=keepdims, device=device)
            assert np.array_equal(found.values, wanted, equal_nan=dtype().dtype.kind == "f")


SHAPES = [
    ((3, 700), np.float32, 350, {"sort_rows", "select_rows"}),
    ((3, 2048), np.uint8, 2048, {"sort_rows", "select_rows"}),
    ((2, 2049), BF16, 2049, {"select_rows"}),
    ((2, 2500), np.float64, 1, {"select_rows"}),
    ((2, 20_001), np.float16, 40, {"select_rows", "split_rows"}),
    ((1, 17_000), np.int64, 700, {"select_rows", "split_rows"}),
]


@pytest.mark.parametrize(("shape", "dtype", "k", "expected"), SHAPES)
def test_kth_by_every_variant(shape: tuple[int, int], dtype: Any, k: int, expected: set[str], backend: str) -> None:
    """The element that a stable sort has at that place, with its bits."""
    x = of_kind(np.random.default_rng(shape[1]), shape, dtype)
    order = bp.sort(x, device="cpu").indices
    seen = set()
    for plan, made in variants(x, backend, "kthvalue", k=k):
        assert np.array_equal(host(made.indices), order[:, k - 1]), plan.sku
        assert host(made.values).tobytes() == x[np.arange(shape[0]), order[:, k - 1]].tobytes(), plan.sku
        seen.add(plan.sku.variant)
    assert seen == expected


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float64])
@pytest.mark.parametrize("count", [1, 2, 9, 600, 2050, 4097])
def test_median_of_rows_with_nan(count: int, dtype: Any, backend: str) -> None:
    """One NaN anywhere is the result; of several the first; without one, the lower median."""
    rng = np.random.default_rng(count)
    x = rng.standard_normal((4, count)).astype(dtype)
    x[0, count - 1], x[1, rng.integers(0, count, 5)], x[3] = np.nan, -np.nan, np.nan
    wide = x.astype(np.float64)
    places = [
        int(np.isnan(row).argmax()) if np.isnan(row).any() else int(np.argsort(row, kind="stable")[(count - 1) // 2])
        for row in wide
    ]
    tried = list(variants(x, backend, "median"))
    assert tried
    for plan, made in tried:
        assert host(made.indices).tolist() == places, plan.sku
        assert host(made.values).tobytes() == x[np.arange(4), places].tobytes(), plan.sku


def test_median_of_integers_at_their_ends(backend: str) -> None:
    """The greatest integer is no NaN."""
    x = np.array([[127, -128, 127], [127, 127, -128]], np.int8)
    for plan, made in variants(x, backend, "median"):
        assert (host(made.values).tolist(), host(made.indices).tolist()) == ([127, 127], [0, 0]), plan.sku


def test_kth_of_a_view_along_another_axis(backend: str) -> None:
    x = of_kind(np.random.default_rng(8), (3, 1030, 2), np.float16)
    for view, axis in ((x[:, ::-1, ::2], 1), (x[::-1, :9], 0)):
        for keepdims in (False, True):
            wanted = bp.kthvalue(view, 2, axis, keepdims=keepdims, device="cpu")
            for plan, made in variants(view, backend, "kthvalue", k=2, axis=axis, keepdims=keepdims):
                assert np.array_equal(host(made.indices), wanted.indices), plan.sku
                assert host(made.values).tobytes() == wanted.values.tobytes(), plan.sku


def test_kth_writes_strided_results() -> None:
    x = of_kind(np.random.default_rng(9), (4, 6, 50), np.float32)
    values, indices = np.full((6, 4), 7, np.float32).T, np.full((4, 12), 7, np.int64)[:, ::2]
    made = bp.kthvalue(x, 20, values=values, indices=indices, device="ptx")
    wanted = bp.kthvalue(x, 20, device="cpu")
    assert made.values is values and np.array_equal(values, wanted.values, equal_nan=True)
    assert np.array_equal(indices, wanted.indices)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("shape", "dtype"), [((1, 1_000_003), np.float32), ((300, 40_000), BF16), ((5000, 2000), np.int32)]
)
def test_kth_of_long_rows(shape: tuple[int, int], dtype: Any) -> None:
    x = of_kind(np.random.default_rng(1), shape, dtype)
    for family, options in (("kthvalue", {"k": 30}), ("kthvalue", {"k": shape[1] // 3}), ("median", {})):
        wanted = getattr(bp, family)(x, **options, device="cpu")
        for plan, made in variants(x, "cuda", family, **options):
            assert np.array_equal(host(made.indices), wanted.indices), plan.sku
            assert host(made.values).tobytes() == wanted.values.tobytes(), plan.sku


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", ["kthvalue", "median"])
def test_kth_gradient_is_that_of_torch(name: str, keepdims: bool) -> None:
    """Of rows without equal elements, where torch takes the same one."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    x = rng.permutation(3 * 41 * 2).reshape(3, 41, 2).astype(np.float32)
    given = torch.tensor(x, requires_grad=True)
    arguments = (7,) if name == "kthvalue" else ()
    values, _ = getattr(torch, name)(given, *arguments, dim=1, keepdim=keepdims)
    grad = rng.standard_normal(values.shape).astype(np.float32)
    values.backward(torch.from_numpy(grad))
    indices = getattr(bp, name)(x, *arguments, 1, keepdims=keepdims, device="ptx").indices
    made = bp.kthvalue_backward(grad, indices, x, 1, keepdims=keepdims, device="ptx")
    assert np.array_equal(made, given.grad.numpy())


ROWS = np.zeros((3, 4), "f")
REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], type[bp.BaracudaError], tuple[str, ...]]] = [
    ("kthvalue", (np.zeros((2, 3)), 4), {}, bp.InvalidProblemError, ("k=4", "give k from 1 to 3")),
    ("kthvalue", (np.zeros((2, 3)), 0), {}, bp.InvalidProblemError, ("k=0", "give k from 1 to 3")),
    ("kthvalue", (np.zeros((2, 3)), -1), {}, bp.InvalidProblemError, ("k=-1",)),
    ("kthvalue", (np.zeros((2, 0)), 1), {}, bp.InvalidProblemError, ("k=1", "at least one element")),
    ("kthvalue", (np.zeros((2, 3)), 1.5), {}, bp.InvalidProblemError, ("k=1.5 is not an integer",)),
    ("kthvalue", (np.zeros((2, 3)), 1, 2), {}, bp.InvalidProblemError, ("axis=2", "2 axes", "give one of -2 to 1")),
    ("kthvalue", (np.zeros(()), 1), {}, bp.InvalidProblemError, ("0 axes", "give x an axis")),
    ("kthvalue", (np.zeros(3, bool), 1), {}, bp.OperandTypeError, ("x", "bool")),
    ("kthvalue", (np.zeros(3), 1), {"keepdims": 1}, bp.InvalidProblemError, ("keepdims", "True or False")),
    ("kthvalue", (np.zeros(3), 1), {"indices": np.zeros((), "i4")}, bp.OperandTypeError, ("indices", "i32")),
    ("median", (np.zeros((2, 0)),), {}, bp.InvalidProblemError, ("(2, 0)", "at least one element")),
    ("median", (np.zeros(()),), {}, bp.InvalidProblemError, ("0 axes", "give x an axis")),
    ("median", (np.zeros(3, np.complex64),), {}, bp.OperandTypeError, ("x", "complex64")),
    ("kthvalue_backward", (np.zeros(3, "f"), np.zeros(3, int), ROWS, 2), {}, bp.InvalidProblemError, ("axis=2",)),
    ("kthvalue_backward", (np.zeros(3, "f"), np.zeros(2, int), ROWS), {}, bp.InvalidProblemError, ("indices", "(3,)")),
    ("kthvalue_backward", (np.zeros(3, "f"), np.zeros(3, "i4"), ROWS), {}, bp.OperandTypeError, ("indices", "i32")),
    ("kthvalue_backward", (np.zeros(3, "i4"), np.zeros(3, int), np.zeros((3, 4), "i4")), {}, bp.OperandTypeError, ("i32",)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "arguments", "options", "error", "said"), REFUSED)
def test_kth_refuses(op: str, arguments: Any, options: Any, error: Any, said: tuple[str, ...]) -> None:
    with pytest.raises(error) as caught:
        getattr(bp, op)(*arguments, **options, device="cpu")
    readable(caught.value, op, *said)

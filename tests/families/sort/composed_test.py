"""isin and lexsort beside NumPy's: kinds, shapes, NaN, empty arrays, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

DEVICES = ("cpu", "ptx")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["f4", "f8", "f2", "i8", "u1"])
def test_isin_as_numpy(kind: str, device: str) -> None:
    rng = np.random.default_rng(1)
    elements, tested = (rng.integers(0, 200, shape).astype(kind) for shape in ((7, 50), (3, 20)))
    if kind[0] == "f":
        elements[0, :3], tested[0, :3] = (np.nan, -0.0, np.inf), (np.nan, 0.0, np.inf)
    for invert in (False, True):
        made = bp.isin(elements.T, tested[:, ::2], invert=invert, device=device)
        assert made.dtype == bool and np.array_equal(made, np.isin(elements.T, tested[:, ::2], invert=invert))


@pytest.mark.parametrize("device", DEVICES)
def test_isin_of_none_and_of_one(device: str) -> None:
    x = np.array([1.0, np.nan, 3])
    assert not bp.isin(x, x[:0], device=device).any()
    assert bp.isin(x, x[:0], invert=True, device=device).all()
    assert bp.isin(x, np.array(3.0), device=device).tolist() == [False, False, True]
    assert bp.isin(x[:0], x, device=device).shape == (0,)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("axis", [0, -1])
def test_lexsort_as_numpy(axis: int, device: str) -> None:
    """Few values, so that keys tie; of several kinds, NaN among them."""
    rng = np.random.default_rng(2)
    keys: list[Any] = [rng.integers(0, 3, (30, 40)).astype(kind) for kind in ("i4", "f4", "u1")]
    keys[1][keys[1] == 2] = np.nan
    for count in (1, 2, 3):
        made = bp.lexsort(keys[:count], axis, device=device)
        assert made.dtype == np.int64 and np.array_equal(made, np.lexsort(keys[:count], axis))
    assert bp.lexsort(keys, axis, index_dtype="i32", device=device).dtype == np.int32
    one = np.stack([keys[0], keys[2]])
    assert np.array_equal(bp.lexsort(one, axis, device=device), np.lexsort(one, axis))
    assert bp.lexsort([keys[0][:0], keys[1][:0]], 0, device=device).shape == (0, 40)


def test_composed_functions_give_tensors() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([[3, 1, 2], [1, 1, 3]])
    assert torch.equal(bp.isin(x, torch.tensor([1, 3]), device="cpu"), torch.isin(x, torch.tensor([1, 3])))
    assert bp.lexsort((x[0], x[1]), device="cpu").tolist() == np.lexsort((x[0].numpy(), x[1].numpy())).tolist()


X = np.ones((2, 3), np.float32)
REFUSED: tuple[tuple[Callable[..., Any], type[bp.BaracudaError], str], ...] = (
    (
        lambda: bp.isin(X, X.astype("f8"), device="cpu"),
        bp.OperandTypeError,
        "isin: test_elements must hold f32, as elements does, got f64",
    ),
    (lambda: bp.isin(X, X, invert=2, device="cpu"), bp.InvalidProblemError, "invert must be True or False"),  # type: ignore[arg-type]
    (lambda: bp.lexsort((), device="cpu"), bp.InvalidProblemError, "there are no keys"),
    (lambda: bp.lexsort((X, X[0]), device="cpu"), bp.InvalidProblemError, r"shapes \(2, 3\), \(3,\)"),
    (lambda: bp.lexsort((X, X), 2, device="cpu"), bp.InvalidProblemError, "axis=2|axis 2"),
)


@pytest.mark.parametrize(("call", "error", "says"), REFUSED)
def test_composed_functions_refuse(call: Callable[..., Any], error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        call()

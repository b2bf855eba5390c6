"""histogramdd beside NumPy's and torch's: cells, edges, weights, densities, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.sort.counts import histogramdd

from ...call.capture_test import rtx
from ...call.simulated import Gpus

__all__ = ["rtx"]

DEVICES = ("cpu", "ptx")
COUNTED = ((3, 4, 5), 6, [[-1, 0, 0, 0.5], 4, [-2.0, 1.0, np.inf]], np.array([2, 1, 3]))


def points(kind: Any = "f8", count: int = 300) -> np.ndarray[Any, Any]:
    """On edges, outside of them, and in between."""
    x = np.random.default_rng(3).standard_normal((count, 3))
    x[::7] = np.round(x[::7])
    return (4 * x).astype(kind) if np.dtype(kind).kind == "i" else x.astype(kind)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bins", COUNTED)
@pytest.mark.parametrize("ranged", [False, True])
def test_histogramdd_as_numpy(ranged: bool, bins: Any, device: str) -> None:
    x, ranges = points(), [(-1, 1), (0.5, 0.5), None] if ranged else None
    hist, edges = bp.histogramdd(x, bins, ranges, device=device)
    wanted, of = np.histogramdd(x, bins, ranges)
    assert hist.dtype == np.float64 and np.array_equal(hist, wanted)
    assert len(edges) == 3 and all(np.array_equal(a, b) for a, b in zip(edges, of))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["f2", "f4", "i4", "i8", "u1", ml_dtypes.bfloat16])
def test_histogramdd_takes_elements_as_f64(kind: Any, device: str) -> None:
    x = np.abs(points("i4")).astype(kind) if kind == "u1" else points(kind)
    edges = [np.array([-3, -1, 0, 0.25, 1, 5.0])] * 3
    made = bp.histogramdd(x, edges, device=device)
    assert np.array_equal(made.hist, np.histogramdd(x.astype("f8"), edges)[0])


@pytest.mark.parametrize("device", DEVICES)
def test_histogramdd_sums_weights(device: str) -> None:
    x, rng = points(), np.random.default_rng(4)
    for weights in (
        rng.standard_normal(len(x)),
        rng.integers(-5, 9, len(x)).astype("i4"),
        rng.random(len(x)).astype("f4"),
    ):
        made = bp.histogramdd(x, 3, weights=weights, device=device).hist
        wanted = np.histogramdd(x, 3, weights=weights.astype("f8"))[0]
        sizes = np.histogramdd(x, 3, weights=np.abs(weights).astype("f8"))[0]
        assert (np.abs(made - wanted) <= len(x) * 2.0**-53 * sizes).all()
        assert made.tobytes() == bp.histogramdd(x, 3, weights=weights, device=device).hist.tobytes()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("weighted", [False, True])
def test_histogramdd_density_integrates_to_one(weighted: bool, device: str) -> None:
    x, edges = points(), [[-1, 0, 0.5, 3], [-3, 3], [-2.0, 0.25, 1.0]]
    weights = np.random.default_rng(4).random(len(x)) if weighted else None
    made = bp.histogramdd(x, edges, density=True, weights=weights, device=device).hist
    np.testing.assert_allclose(made, np.histogramdd(x, edges, density=True, weights=weights)[0], rtol=1e-13)
    volumes = np.multiply.outer(np.multiply.outer(*map(np.diff, edges[:2])), np.diff(edges[2]))
    assert (made * volumes).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("device", DEVICES)
def test_histogramdd_leaves_out_nan_and_takes_infinity(device: str) -> None:
    x = np.array([[0.5, np.nan], [np.nan, 0.5], [0.5, 0.5], [np.inf, 0.5], [-np.inf, 0.5], [1.0, 1.0]])
    for edges in ([[0, 1], [0, 1]], [[0, 1, np.inf], [0, 1]], [[-np.inf, 0, 1], [0, 1]]):
        assert np.array_equal(bp.histogramdd(x, edges, device=device).hist, np.histogramdd(x, edges)[0])


@pytest.mark.parametrize("device", DEVICES)
def test_histogramdd_of_layouts_and_lists(device: str) -> None:
    x = points("f4")
    wanted = np.histogramdd(x.astype("f8"), 4, [(-2, 2)] * 3)[0]
    for sample in (
        np.asfortranarray(x),
        np.repeat(x, 2, axis=0)[::2],
        x[::-1],
        list(x.T),
        [x[:, i].copy() for i in range(3)],
    ):
        assert np.array_equal(bp.histogramdd(sample, 4, [(-2, 2)] * 3, device=device).hist, wanted)
    one = bp.histogramdd(x[:, 0], [[-1, 0, 1]], device=device).hist
    assert np.array_equal(one, np.histogram(x[:, 0], [-1, 0, 1])[0])
    for none in (x[:0], x[:0, :1]):
        made, of = bp.histogramdd(none, 2, device=device), np.histogramdd(none, 2)
        assert np.array_equal(made.hist, of[0]) and np.array_equal(made.edges[0], of[1][0])


def test_histogramdd_gives_tensors_beside_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(points()).requires_grad_()
    hist, edges = bp.histogramdd(x, [3, 4, 5], [(-1, 1), (-2, 1), (0, 3)], weights=x.detach()[:, 0], device="cpu")
    wanted, of = torch.histogramdd(x.detach(), [3, 4, 5], range=[-1, 1, -2, 1, 0, 3], weight=x.detach()[:, 0])
    assert torch.allclose(hist, wanted, rtol=1e-12, atol=1e-12) and all(map(torch.allclose, edges, of))
    assert not hist.requires_grad


X = np.zeros((4, 2))
REFUSED: tuple[tuple[Callable[..., Any], type[bp.BaracudaError], str], ...] = (
    (lambda: bp.histogramdd(np.zeros((2, 2, 2)), device="cpu"), bp.InvalidProblemError, r"sample has shape \(2, 2, 2\)"),
    (lambda: bp.histogramdd(5, device="cpu"), bp.OperandTypeError, "sample is a int"),
    (lambda: bp.histogramdd([1, 2], device="cpu"), bp.OperandTypeError, "sample: expected an array"),
    (lambda: bp.histogramdd(X > 0, device="cpu"), bp.OperandTypeError, "got bool"),
    (lambda: bp.histogramdd(np.zeros((2, 0)), device="cpu"), bp.InvalidProblemError, "no coordinates"),
    (lambda: bp.histogramdd([X[:, 0], X[:3, 1]], device="cpu"), bp.InvalidProblemError, r"shapes \(4,\) and \(3,\)"),
    (lambda: bp.histogramdd(X.astype("c16"), device="cpu"), bp.OperandTypeError, "sample must hold floats or integers"),
    (lambda: bp.histogramdd(X, 0, device="cpu"), bp.InvalidProblemError, r"bins\[0\]=0"),
    (lambda: bp.histogramdd(X, (2, True), device="cpu"), bp.InvalidProblemError, r"bins\[1\]=True"),
    (lambda: bp.histogramdd(X, 2.5, device="cpu"), bp.InvalidProblemError, r"bins\[0\]=2.5"),
    (lambda: bp.histogramdd(X, "ab", device="cpu"), bp.InvalidProblemError, "bins='ab'"),
    (lambda: bp.histogramdd(X, (2, 3, 4), device="cpu"), bp.InvalidProblemError, "points have 2 coordinates"),
    (lambda: bp.histogramdd(X, ([0, 2, 1], 2), device="cpu"), bp.InvalidProblemError, r"bins\[0\] are no edges"),
    (lambda: bp.histogramdd(X, ([0, np.nan, 1], 2), device="cpu"), bp.InvalidProblemError, r"bins\[0\] are no edges"),
    (lambda: bp.histogramdd(X, ([0], 2), device="cpu"), bp.InvalidProblemError, r"bins\[0\] are no edges"),
    (lambda: bp.histogramdd(X, (["a", "b"], 2), device="cpu"), bp.InvalidProblemError, r"bins\[0\]="),
    (lambda: bp.histogramdd(X, 2, [(0, 1)], device="cpu"), bp.InvalidProblemError, "range="),
    (lambda: bp.histogramdd(X, 2, [(0, 1), 3], device="cpu"), bp.InvalidProblemError, r"range\[1\]=3"),
    (lambda: bp.histogramdd(X, 2, [(1, 0), None], device="cpu"), bp.InvalidProblemError, r"range\[0\] from 1.0 to 0.0"),
    (lambda: bp.histogramdd(X, 2, [(0, np.inf), None], device="cpu"), bp.InvalidProblemError, r"range\[0\] from 0.0 to inf"),
    (lambda: bp.histogramdd(X * np.nan, 2, device="cpu"), bp.InvalidProblemError, "coordinates 0 from nan to nan"),
    (lambda: bp.histogramdd(X, 2, weights=X, device="cpu"), bp.InvalidProblemError, r"weights have shape \(4, 2\)"),
    (lambda: bp.histogramdd(X, 2, weights=X[:, 0] * 1j, device="cpu"), bp.OperandTypeError, "weights must hold"),
    (lambda: bp.histogramdd(X, 2, density=2, device="cpu"), bp.InvalidProblemError, "density must be"),  # type: ignore[arg-type]
    (lambda: bp.histogramdd(X, 60_000, device="cpu"), bp.InvalidProblemError, "cells, with those of points outside"),
)  # fmt: skip


@pytest.mark.parametrize(("call", "error", "says"), REFUSED)
def test_histogramdd_refuses(call: Callable[..., Any], error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        call()


def test_histogramdd_is_not_recorded() -> None:
    with pytest.raises(bp.UnsupportedError, match="a recording replays launches"), bp.device("ptx"), bp.record():
        bp.histogramdd(X, 2)


@pytest.mark.parametrize("stream", [None, 9])
def test_histogramdd_is_not_captured(rtx: Gpus, stream: Any) -> None:
    rtx.capturing = {7 if stream is None else stream}
    with pytest.raises(bp.UnsupportedError, match="a graph is being captured"):
        bp.histogramdd(rtx.array(X), 2, [(0, 1)] * 2, stream=stream)
    assert not rtx.work


def test_histogramdd_of_a_device_stays_there(rtx: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ranges nothing is read; edges are copied to the device of the sample."""
    monkeypatch.setattr(histogramdd, "require_cupy", lambda _what: rtx)
    monkeypatch.setattr(rtx, "asarray", rtx.array, raising=False)
    weights = rtx.array(X[:, 0])
    hist, edges = bp.histogramdd(rtx.array(X), (2, [0, 1, 5]), [(0, 1), None], density=True, weights=weights)
    assert hist.shape == (2, 2) and hist.dtype == np.float64
    assert [rtx.read(each).tolist() for each in edges] == [[0, 0.5, 1], [0, 1, 5]]
    assert all(event.endswith(" on 0:7") for event in rtx.work)
    with pytest.raises(bp.OperandTypeError, match=r"bins\[1\] is in device memory"):
        bp.histogramdd(rtx.array(X), (2, rtx.array(np.arange(3.0))), [(0, 1), None])

"""Views beside NumPy's and torch's: the same elements of the same memory, in every kind of array; rot90; what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

import baracuda_py as bp

COVERS = ("diag", "flip")
Array: TypeAlias = "np.ndarray[Any, Any]"
X = np.arange(120.0).reshape(4, 5, 6)
LAYOUTS = (X, X[:, ::-1, ::2], X.transpose(2, 0, 1))


def windows(x: Array, axis: int, size: int, step: int) -> Array:
    every = np.lib.stride_tricks.sliding_window_view(x, size, axis)
    return every[(slice(None),) * (axis % x.ndim) + (slice(None, None, step),)]


def chunked(x: Array, count: int, axis: int) -> list[Array]:
    each = -(-x.shape[axis] // count)
    return np.split(x, range(each, x.shape[axis], each), axis)


ALIKE: tuple[tuple[str, Callable[[Array], Any], Callable[[Array], Any]], ...] = (
    ("split sections", lambda x: bp.split(x, 2, axis=x.shape.index(4)), lambda x: np.split(x, 2, axis=x.shape.index(4))),
    ("split indices", lambda x: bp.split(x, (1, 1, 3, 9), -1), lambda x: np.split(x, (1, 1, 3, 9), -1)),
    ("split backwards", lambda x: bp.split(x, [3, -3], 1), lambda x: np.split(x, [3, -3], 1)),
    ("split nothing", lambda x: bp.split(x[:0], 3), lambda x: np.split(x[:0], 3)),
    ("chunk", lambda x: bp.chunk(x, 3, 1), lambda x: chunked(x, 3, 1)),
    ("chunk more", lambda x: bp.chunk(x, 99, -1), lambda x: chunked(x, 99, -1)),
    ("broadcast_to", lambda x: [bp.broadcast_to(x[:, :1], (2, 3, *x[:, :2].shape[:1], 7, x.shape[2]))],
     lambda x: [np.broadcast_to(x[:, :1], (2, 3, *x[:, :2].shape[:1], 7, x.shape[2]))]),
    ("broadcast_to number", lambda x: [bp.broadcast_to(x[0, 0, 0:1], 5)], lambda x: [np.broadcast_to(x[0, 0, 0:1], 5)]),
    ("diagonal", lambda x: [bp.diagonal(x, 1)], lambda x: [np.diagonal(x, 1)]),
    ("diagonal below", lambda x: [bp.diagonal(x, -2, 2, -2)], lambda x: [np.diagonal(x, -2, 2, -2)]),
    ("diagonal outside", lambda x: [bp.diagonal(x, 50)], lambda x: [np.diagonal(x, 50)]),
    ("unfold", lambda x: [bp.unfold(x, 1, 3, 2)], lambda x: [windows(x, 1, 3, 2)]),
    ("unfold last", lambda x: [bp.unfold(x, -1, 3)], lambda x: [windows(x, -1, 3, 1)]),
    ("meshgrid", lambda x: bp.meshgrid(x[0, 0], x[0, :, 0], x[0, 0, 0:1]),
     lambda x: np.meshgrid(x[0, 0], x[0, :, 0], x[0, 0, 0:1])),
    ("meshgrid ij", lambda x: bp.meshgrid(x[0, 0], x[0, :, 0], indexing="ij"),
     lambda x: np.meshgrid(x[0, 0], x[0, :, 0], indexing="ij")),
    ("meshgrid one", lambda x: bp.meshgrid(x[0, 0]), lambda x: np.meshgrid(x[0, 0])),
)  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs"), [row[1:] for row in ALIKE], ids=[row[0] for row in ALIKE])
def test_view_equals_numpy_and_shares_memory(ours: Callable[[Array], Any], theirs: Callable[[Array], Any]) -> None:
    for x in LAYOUTS:
        got, wanted = list(ours(x)), list(theirs(x))
        assert [g.shape for g in got] == [w.shape for w in wanted]
        assert all(np.array_equal(g, w) and g.dtype == w.dtype for g, w in zip(got, wanted))
        assert all(np.shares_memory(g, x) for g in got if g.size)


@pytest.mark.parametrize(("ours", "theirs"), [row[1:] for row in ALIKE], ids=[row[0] for row in ALIKE])
def test_view_of_a_torch_tensor_is_a_torch_tensor(ours: Callable[[Any], Any], theirs: Callable[[Array], Any]) -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, requires_grad=True)
    got, wanted = list(ours(x)), list(theirs(X))
    assert all(isinstance(g, torch.Tensor) and np.array_equal(g.detach(), w) for g, w in zip(got, wanted, strict=True))
    low, high = x.data_ptr(), x.data_ptr() + x.numel() * 8
    assert all(low <= g.data_ptr() < high and g.requires_grad for g in got if g.numel())


def test_view_of_a_buffer_keeps_its_kind() -> None:
    x = bp.GpuBuffer.view(np.arange(24, dtype=np.uint8).reshape(2, 12), bp.FP8_E4M3)
    for piece, wanted in zip(bp.split(x, 3, 1), np.split(np.asarray(x.array), 3, 1), strict=True):
        assert isinstance(piece, bp.GpuBuffer) and piece.element is bp.FP8_E4M3
        assert np.array_equal(piece.array.view(np.uint8), wanted.view(np.uint8)) and np.shares_memory(
            piece.array, x.array
        )
    four = bp.GpuBuffer.view(np.arange(24, dtype=np.uint8).reshape(2, 12), bp.S4)
    first, second = map(codes, bp.split(four, [7], 1))  # the second begins within a byte
    assert np.array_equal(np.concatenate([first, second], 1), codes(four))


def codes(x: bp.GpuBuffer) -> Array:
    """The elements of a buffer of 4 bits."""
    held = x.to_host()
    return np.stack([held & 15, held >> 4], -1).reshape(len(held), -1)[:, : x.shape[1]]


def test_view_with_shared_elements_is_read_only() -> None:
    x = np.arange(6.0)
    assert not bp.broadcast_to(x, (2, 6)).flags.writeable and not bp.unfold(x, 0, 3).flags.writeable
    bp.split(x, 2)[1][0] = 9
    assert x[3] == 9


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("k", [-1, 0, 1, 2, 3, 6])
def test_rot90_equals_numpy_in_one_launch(k: int, device: str) -> None:
    for x in LAYOUTS:
        for axes in ((0, 1), (2, 0), (-1, 1)):
            got = bp.rot90(x, k, axes, device=device)
            assert np.array_equal(got, np.rot90(x, k, axes)) and not np.shares_memory(got, x)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_diag_equals_numpy_and_diagonal_reads_it(device: str) -> None:
    for k in (-3, 0, 2):
        for x in (X[0, 0], X[:, 1, 2], X[0, 0, ::-2]):
            made = bp.diag(x, k, device=device)
            assert np.array_equal(made, np.diag(x, k)) and np.array_equal(bp.diagonal(made, k), x)


V = np.zeros(4)
REFUSED: tuple[tuple[str, Callable[[], Any], type[bp.BaracudaError], str], ...] = (
    ("split uneven", lambda: bp.split(X, 3), bp.InvalidProblemError, "does not divide"),
    ("split none", lambda: bp.split(X, 0), bp.InvalidProblemError, "does not divide"),
    ("split text", lambda: bp.split(X, "a"), bp.InvalidProblemError, "indices_or_sections"),
    ("split axis", lambda: bp.split(X, 2, 3), bp.InvalidProblemError, "axis=3 is out of range"),
    ("split list", lambda: bp.split([1.0, 2.0], 2), bp.OperandTypeError, "expected an array"),
    ("chunk none", lambda: bp.chunk(X, 0), bp.InvalidProblemError, "less than 1"),
    ("broadcast", lambda: bp.broadcast_to(X, (5, 6, 6)), bp.InvalidProblemError, r"\(4, 5, 6\) does not broadcast"),
    ("broadcast less", lambda: bp.broadcast_to(X, (5, 6)), bp.InvalidProblemError, "does not broadcast"),
    ("broadcast negative", lambda: bp.broadcast_to(V[:1], (-1,)), bp.InvalidProblemError, "does not broadcast"),
    ("meshgrid matrix", lambda: bp.meshgrid(V, X[0]), bp.InvalidProblemError, r"arrays\[1\]"),
    ("meshgrid order", lambda: bp.meshgrid(V, indexing="yx"), bp.InvalidProblemError, "indexing"),
    ("diagonal vector", lambda: bp.diagonal(V), bp.InvalidProblemError, "out of range"),
    ("diagonal twice", lambda: bp.diagonal(X, 0, 1, -2), bp.InvalidProblemError, "twice"),
    ("unfold long", lambda: bp.unfold(X, 0, 5), bp.InvalidProblemError, "size=5"),
    ("unfold step", lambda: bp.unfold(X, 0, 2, 0), bp.InvalidProblemError, "step=0"),
    ("rot90 axes", lambda: bp.rot90(X, 1, (0, 1, 2), device="cpu"), bp.InvalidProblemError, "are not two"),
    ("rot90 twice", lambda: bp.rot90(X, 1, (0, -3), device="cpu"), bp.InvalidProblemError, "twice"),
    ("diag matrix", lambda: bp.diag(X[0], device="cpu"), bp.InvalidProblemError, "bp.diagonal"),
    ("diag number", lambda: bp.diag(np.array(1.0), device="cpu"), bp.InvalidProblemError, "is no vector"),
)  # fmt: skip


@pytest.mark.parametrize(("call", "error", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_view_bad_arguments_are_refused(call: Callable[[], Any], error: type[bp.BaracudaError], says: str) -> None:
    with pytest.raises(error, match=says):
        call()


def test_view_of_a_jax_array_is_refused() -> None:
    jnp = pytest.importorskip("jax.numpy")
    with pytest.raises(bp.UnsupportedError, match="has no views"):
        bp.split(jnp.zeros((4, 2)), 2)

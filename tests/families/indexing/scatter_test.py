"""index_select, embedding, index_add, index_copy, scatter and gradients: refusals, status, order, sizes, torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

from ...gauntlet import readable

COVERS = (
    "embedding", "embedding_backward", "index_add", "index_add_backward", "index_copy", "index_copy_backward", "index_select",
    "index_select_backward", "scatter", "scatter_backward", "take_along_axis_backward",
)  # fmt: skip
RAISE = {"mode": "raise"}
X, I = np.arange(12, dtype=np.float32).reshape(4, 3), np.zeros(2, np.int64)

REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], type[bp.BaracudaError], str]] = [
    ("index_select", (X, I), {"axis": 2}, bp.InvalidProblemError, "axis 2 is out of range for 2 axes"),
    ("index_select", (np.zeros(()), I), {}, bp.InvalidProblemError, "x has no axis"),
    ("index_select", (X, I.astype("f4")), {}, bp.OperandTypeError, "index must hold i32 or i64"),
    ("index_select", (X, I), {"mode": "nearest"}, bp.InvalidProblemError, "drop, status, clip, wrap, raise"),
    ("index_select", (X[:0], I), {"mode": "raise"}, bp.InvalidProblemError, "nothing along axis 0 to index"),
    ("index_select", (X, I), {"mode": "clip", "status": np.array(7, np.int32)}, bp.InvalidProblemError, "no operand 'status'"),
    ("index_select", (X, np.array([0, 4])), RAISE, bp.InvalidProblemError, "index[1] = 4 is out of range: x has extent 4"),
    ("index_select", (X, np.array(-1)), RAISE, bp.InvalidProblemError, "index = -1 is out of range"),
    ("embedding", (X[0], I), {}, bp.InvalidProblemError, "weight must have shape [N, D], got (3,)"),
    ("embedding", (X, I), {"padding_idx": 4}, bp.InvalidProblemError, "padding_idx=4, and weight has 4 rows"),
    ("embedding", (X, np.array([[0], [7]])), RAISE, bp.InvalidProblemError, "ids[1, 0] = 7 is out of range"),
    ("embedding_backward", (X[:2], np.array([0, 9]), X), RAISE, bp.InvalidProblemError, "ids[1] = 9 is out of range"),
    ("embedding_backward", (X[:3], I, X), {}, bp.InvalidProblemError, "grad"),
    ("index_add", (X, I, X[:3]), {}, bp.InvalidProblemError, "src"),
    ("index_add", (X > 0, I, X[:2] > 0), {}, bp.OperandTypeError, "to reduce by 'add', got bool"),
    ("index_add_backward", (X, np.array([0, 9])), RAISE, bp.InvalidProblemError, "index[1] = 9 is out of range: grad has"),
    ("index_add_backward", (X, I), {"grad_src": X[:3].copy()}, bp.InvalidProblemError, "grad_src"),
    ("index_copy_backward", (X, np.array([4, 0])), RAISE, bp.InvalidProblemError, "index[0] = 4 is out of range: grad has"),
    ("index_copy_backward", (X.astype("i4"), I), {}, bp.OperandTypeError, "grad must hold"),
    ("scatter_backward", (X, np.zeros((5, 1), int)), {}, bp.InvalidProblemError, "exceed grad of shape"),
    ("scatter_backward", (X, I), {}, bp.InvalidProblemError, "pass indices of rank 2"),
    ("scatter_backward", (X, I[:, None]), {"reduce": "max"}, bp.InvalidProblemError, "x is missing, which the gradient"),
    ("scatter_backward", (X, I[:, None]), {"reduce": "prod", "x": X, "src": X[:2, :1]}, bp.InvalidProblemError, "y is missing"),
    ("scatter_backward", (X, I[:, None]), {"reduce": "min", "x": X, "src": X[:2, :1], "y": X.astype("f8")}, bp.OperandTypeError,
     "y holds f64 and grad f32"),
    ("scatter_backward", (X, I[:, None]), {"reduce": "max", "x": X, "src": X, "y": X}, bp.InvalidProblemError, "src"),
    ("scatter_backward", (X, I[:, None]), {"reduce": "amax"}, bp.InvalidProblemError, "set, add, prod, mean, max, min"),
    ("index_copy", (X, np.array([5, 0]), X[:2]), RAISE, bp.InvalidProblemError, "index[0] = 5 is out of range"),
    ("scatter", (X, I, X[0, :2]), {}, bp.InvalidProblemError, "pass indices of rank 2"),
    ("scatter", (X, np.zeros((5, 1), int), np.zeros((5, 1), "f4")), {}, bp.InvalidProblemError, "exceed x of shape"),
    ("scatter", (X, np.zeros((4, 1), int), X[:, :1]), {"reduce": "multiply"}, bp.InvalidProblemError, "set, add, prod"),
    ("scatter", (X.astype("i4"), np.zeros((4, 1), int), X[:, :1].astype("i4")), {"reduce": "mean"}, bp.OperandTypeError,
     "f16, bf16, f32 or f64 to reduce by 'mean', got i32"),
]  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize(("op", "arrays", "options", "error", "says"), REFUSED, ids=[f"{r[0]}-{r[4]}" for r in REFUSED])
def test_refusals(op: str, arrays: Any, options: Any, error: Any, says: str, device: str) -> None:
    before = [x.copy() for x in arrays]
    with pytest.raises(error) as caught:
        getattr(bp, op)(*arrays, **options, device=device)
    readable(caught.value, op, says)
    assert all(np.array_equal(x, y) for x, y in zip(arrays, before))


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_out_of_range_writes_nothing(device: str) -> None:
    out = np.full((4, 3), 7, np.float32)
    with pytest.raises(bp.InvalidProblemError, match="out of range"):
        bp.index_add(X, np.array([0, 4]), X[:2], mode="raise", out=out, device=device)
    assert (out == 7).all()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_status_reports_and_check_raises(device: str) -> None:
    made = bp.embedding(X, np.array([3, -1, 4]), mode="status", device=device)
    assert made.out.tolist() == [[9, 10, 11], [0, 0, 0], [0, 0, 0]]
    assert bp.embedding(X, np.array([3, -1, 4]), device=device).tolist() == made.out.tolist()
    with pytest.raises(bp.InvalidProblemError, match="embedding: status = 1: an index is out of range"):
        bp.check(made)
    status = np.array(7, np.int32)
    bp.check(bp.index_copy(X, I, X[2:], mode="status", status=status, device=device))
    assert int(status) == 0


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_the_last_of_equal_indices_stands(device: str) -> None:
    src = np.arange(300, dtype=np.int16)[:, None]
    indices = np.random.default_rng(3).integers(0, 5, (300, 1))
    made = bp.scatter(np.zeros((5, 1), np.int16), indices, src, 0, device=device)
    assert made.ravel().tolist() == [int(np.flatnonzero(indices == i)[-1]) for i in range(5)]


def test_sort_more_tiles_than_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CTA scans the counts of more tiles than it has threads: with few threads, a few tiles are enough."""
    from baracuda_py.ops.indexing import keys

    monkeypatch.setattr(keys, "SCAN_THREADS", 32)
    ids = np.random.default_rng(1).integers(0, 200, 33 * 2048 + 5)
    grad = np.ones((ids.size, 1), np.float32)
    made = bp.embedding_backward(grad, ids, np.zeros((200, 1), np.float32), device="ptx")
    assert np.array_equal(made.ravel(), np.bincount(ids, minlength=200))


def test_explain_says_how_sums_are_ordered() -> None:
    desc = bp.EmbeddingBackwardDescriptor((1000, 64), (50,), "bf16")
    plan = bp.EmbeddingBackwardPlan.select(desc, device="h200", pref=bp.PlanPreference(deterministic=True))
    assert plan.deterministic
    assert "sorted" in repr(plan.explain())


def test_gradients_reach_torch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    ids = torch.tensor(rng.integers(0, 9, (3, 40)))
    for padding in (None, 4):
        weight = torch.tensor(rng.standard_normal((9, 5)), requires_grad=True)
        grad = torch.tensor(rng.standard_normal((3, 40, 5)))
        bp.embedding(weight, ids, padding_idx=padding, device="cpu").backward(grad)
        own, weight.grad = weight.grad, None
        torch.nn.functional.embedding(ids, weight, padding_idx=padding).backward(grad)
        torch.testing.assert_close(own, weight.grad)
    x = torch.tensor(rng.standard_normal((4, 9, 3)), requires_grad=True)
    index = torch.tensor(rng.integers(0, 9, 20))
    bp.index_select(x, index, 1, device="cpu").square().sum().backward()
    own, x.grad = x.grad, None
    torch.index_select(x, 1, index).square().sum().backward()
    torch.testing.assert_close(own, x.grad)
    x.grad, source = None, torch.tensor(rng.standard_normal((4, 20, 3)), requires_grad=True)
    bp.index_add(x, index, source, 1, device="cpu").square().sum().backward()
    both, x.grad, source.grad = (x.grad, source.grad), None, None
    torch.index_add(x, 1, index, source).square().sum().backward()
    torch.testing.assert_close(both, (x.grad, source.grad))
    x.grad = None
    places = torch.tensor(rng.integers(0, 9, (4, 7, 3)))
    bp.take_along_axis(x, places, 1, device="cpu").out.square().sum().backward()
    own, x.grad = x.grad, None
    torch.gather(x, 1, places).square().sum().backward()
    torch.testing.assert_close(own, x.grad)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("reduce", ["set", "add"])
def test_gradients_of_scatter_as_torch(reduce: str, device: str) -> None:
    """Torch names no winner among equal indices where it sets, and so they are distinct there."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(7)
    x, src = (torch.tensor(rng.standard_normal(shape), requires_grad=True) for shape in ((5, 9), (4, 6)))
    distinct = np.stack([rng.permutation(9)[:6] for _ in range(4)])
    indices = torch.tensor(distinct if reduce == "set" else rng.integers(0, 9, (4, 6)))
    bp.scatter(x, indices, src, 1, reduce=reduce, device=device).square().sum().backward()
    own, x.grad, src.grad = (x.grad, src.grad), None, None
    made = x.scatter(1, indices, src) if reduce == "set" else x.scatter_add(1, indices, src)
    made.square().sum().backward()
    torch.testing.assert_close(own, (x.grad, src.grad))
    if reduce == "set":
        x.grad, source, index = (
            None,
            torch.tensor(rng.standard_normal((5, 4)), requires_grad=True),
            torch.tensor([7, 0, 8, 2]),
        )
        bp.index_copy(x, index, source, 1, device=device).square().sum().backward()
        own, x.grad, source.grad = (x.grad, source.grad), None, None
        x.index_copy(1, index, source).square().sum().backward()
        torch.testing.assert_close(own, (x.grad, source.grad))


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("reduce", ["mean", "max", "min", "prod"])
def test_gradients_of_scatter_reduce_as_torch(reduce: str, device: str) -> None:
    """Ties, and places with none, one and several zeros of x and of src."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(11)
    made = [torch.tensor(rng.choice([-1.0, 0, 0.5, 1, 2], shape), requires_grad=True) for shape in ((5, 30), (4, 60))]
    x, src = made
    indices, grad = torch.tensor(rng.integers(0, 30, (4, 60))), torch.tensor(rng.standard_normal((5, 30)))
    bp.scatter(x, indices, src, 1, reduce=reduce, device=device).backward(grad)
    own, x.grad, src.grad = (x.grad, src.grad), None, None
    x.scatter_reduce(1, indices, src, {"max": "amax", "min": "amin"}.get(reduce, reduce)).backward(grad)
    torch.testing.assert_close(own, (x.grad, src.grad))


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_gradient_of_a_product_without_a_quotient_by_zero(device: str) -> None:
    """One zero at a place takes the product of the others, of two none does, and a NaN reaches every other element."""
    x, src = np.array([0.0, 3, 0, 2]), np.array([2.0, 5, 0, 4, 0, np.nan])
    given = {"x": x, "src": src, "y": np.array([0.0, 0, 0, np.nan])}
    back = bp.scatter_backward(np.ones(4), np.array([0, 0, 1, 1, 2, 3]), reduce="prod", **given, device=device)
    assert back.grad_x.tolist()[:3] == [10, 0, 0]
    assert back.grad_src.tolist()[:5] == [0, 0, 12, 0, 0]
    assert np.isnan([back.grad_x[3], back.grad_src[5]]).all()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_gradient_goes_to_the_last_of_equal_indices(device: str) -> None:
    """As a step of each element of src says, through the forward call itself."""
    index, n = np.random.default_rng(3).integers(-2, 7, 300), 5
    grad, src = np.arange(1.0, n + 1), np.zeros(300)
    made = bp.index_copy_backward(grad, index, device=device)
    steps = [bp.index_copy(np.zeros(n), index, np.eye(1, 300, i).ravel(), device="cpu") @ grad for i in range(300)]
    assert made.grad_src.tolist() == steps
    assert made.grad_x.tolist() == (bp.index_copy(np.ones(n), index, src, device="cpu") * grad).tolist() == [0] * n
    assert np.count_nonzero(steps) == n


def test_gradient_of_an_index_is_zero_bytes_where_it_is_not_last() -> None:
    """NaN and infinities of grad reach no line that another one replaced."""
    grad = np.array([np.nan, np.inf, -0.0], np.float32)
    made = bp.index_copy_backward(grad, np.array([0, 0, 1, 1, 9]), device="ptx")
    assert made.grad_src.tobytes() == np.array([0, np.nan, 0, np.inf, 0], np.float32).tobytes()
    assert made.grad_x.tobytes() == np.array([0, 0, -0.0], np.float32).tobytes()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_nan_is_the_extremum_of_its_place(reduce: str, device: str) -> None:
    """Of one place with a NaN in src, one with a NaN in x, and one with neither; NaN shares its gradient with other NaN."""
    x, index = np.array([1, np.nan, 5], np.float32), np.array([0, 0, 1, 0, 2])
    src, grad = np.array([np.nan, 2, 3, np.nan, 5], np.float32), np.array([8, 6, 4], np.float32)
    y = bp.scatter(x, index, src, reduce=reduce, device=device)
    made = bp.scatter_backward(grad, index, reduce=reduce, x=x, src=src, y=y, device=device)
    assert made.grad_x.tolist() == [0, 6, 2]
    assert made.grad_src.tolist() == [4, 0, 0, 4, 2]


@pytest.mark.parametrize("lines", [255, 256, 257, 65_536])
def test_indices_out_of_range_sort_behind_the_last_line(lines: int) -> None:
    """What has no place has a key of its own, which may take a digit more than those of lines."""
    index, src = np.tile([0, lines, lines - 1, -1], 20), np.arange(80, dtype=np.float32)
    made, status = bp.index_add(np.zeros(lines, np.float32), index, src, mode="status", device="ptx")
    assert made[[0, -1]].tolist() == [src[::4].sum(), src[2::4].sum()]
    assert not made[1:-1].any()
    assert status == 1


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_padding_is_the_row_that_an_id_names(mode: str, device: str) -> None:
    """Ids out of range that the mode turns into `padding_idx` get no gradient, as those that say it."""
    ids = np.array([9, 4, 5, -1, 0, -6, 3])
    rows = ids.clip(0, 4) if mode == "clip" else ids % 5
    grad, weight = np.arange(1.0, 8.0)[:, None], np.zeros((5, 1))
    made = bp.embedding_backward(grad, ids, weight, padding_idx=-1, mode=mode, device=device)
    assert made.ravel().tolist() == [grad[rows == row].sum() if row < 4 else 0 for row in range(5)]


def _at_odd_address(x: Any) -> Any:
    """A copy of x, in rows of 12, that begins one element behind an aligned address."""
    held = np.zeros(len(x) * 12 + 1, x.dtype)[1:].reshape(-1, 12)[:, : x.shape[1]]
    held[...] = x
    return held


@pytest.mark.parametrize("lines", [1, 4])
@pytest.mark.parametrize("width", [5, 8])
def test_sums_of_lines_at_odd_addresses_and_of_odd_widths(lines: int, width: int) -> None:
    """Accesses are as wide as addresses, rows and widths are multiples of; one line has no stride to say so."""
    rng = np.random.default_rng(5)
    src, index = np.zeros((3, 8), np.float32)[:, :width], np.array([lines - 1, 0, lines - 1])
    src[...] = rng.integers(-8, 8, src.shape)
    x = rng.integers(-8, 8, (lines, width)).astype(np.float32)
    wanted = x.copy()
    np.add.at(wanted, index, src)
    for given in ((x, src), (_at_odd_address(x), src), (x, _at_odd_address(src))):
        assert np.array_equal(bp.index_add(given[0], index, given[1], device="ptx"), wanted)
    assert np.array_equal(bp.index_select(_at_odd_address(x), index, device="ptx"), x[index])


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_no_indices_clear_the_status(device: str) -> None:
    none, status = I[:0], np.array(7, np.int32)
    calls: tuple[tuple[str, Any], ...] = (
        ("index_select", (X, none)), ("embedding", (X, none)), ("index_add", (X, none, X[:0])),
        ("index_copy", (X, none, X[:0])), ("scatter", (X, np.zeros((0, 3), int), X[:0], 0)),
    )  # fmt: skip
    for op, arrays in calls:
        status[...] = 7
        getattr(bp, op)(*arrays, mode="status", status=status, device=device)
        assert status == 0, op


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_gradients_of_calls_that_report_a_status(device: str) -> None:
    """The forward call was asked for a status, and so its gradient does not raise for what the status reports."""
    torch = pytest.importorskip("torch")
    x = torch.ones(3, 4, requires_grad=True)
    for op in (bp.index_select, bp.embedding):
        made, status = op(x, torch.tensor([2, 9, -1, 2]), mode="status", device=device)
        made.sum().backward()
        assert status == 1
        assert x.grad is not None
        assert x.grad[:, 0].tolist() == [0, 0, 2]
        x.grad = None


OF_NO_WIDTH: dict[str, Any] = {
    "index_add": lambda x, index, src, **how: bp.index_add(x, index, src, **how),
    "index_copy": lambda x, index, src, **how: bp.index_copy(x, index, src, **how),
    "index_select": lambda x, index, _, **how: bp.index_select(x, index, **how),
    "embedding": lambda x, index, _, **how: bp.embedding(x, index, **how),
    "index_add_backward": lambda x, index, _, **how: bp.index_add_backward(x, index, **how),
    "embedding_backward": lambda x, index, src, **how: bp.embedding_backward(src, index, x, **how),
}


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("op", OF_NO_WIDTH)
def test_index_out_of_range_of_lines_without_elements(op: str, device: str) -> None:
    index, src = np.array([0, 3]), np.zeros((2, 0), "f4")
    with pytest.raises(bp.InvalidProblemError, match=rf"{op}: (index|ids)\[1\] = 3 is out of range: .* extent 3"):
        OF_NO_WIDTH[op](np.zeros((3, 0), "f4"), index, src, mode="raise", device=device)
    with pytest.raises(bp.InvalidProblemError, match=rf"{op}: .* has nothing along axis 0"):
        OF_NO_WIDTH[op](np.zeros((0, 0), "f4"), index, src, mode="raise", device=device)
    assert OF_NO_WIDTH[op](np.zeros((4, 0), "f4"), index, src, mode="raise", device=device).size == 0


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("name", ["index_add", "index_copy"])
def test_status_of_lines_without_elements(name: str, device: str) -> None:
    """Indices are checked though no line has an element; where there is no index, none is out of range."""
    x = np.zeros((3, 0), np.float32)
    for index, status in (([0, 2], 0), ([0, 3], 1), ([-4, 1], 1), ([], 0)):
        src = np.zeros((len(index), 0), np.float32)
        made = getattr(bp, name)(x, np.array(index, np.int64), src, axis=0, mode="status", device=device)
        assert (int(made.status), made.out.shape) == (status, (3, 0))
    with pytest.raises(bp.InvalidProblemError):
        getattr(bp, name)(x, np.array([0, 3]), np.zeros((2, 0), np.float32), axis=0, mode="raise", device=device)

"""Segments: torch's results and gradients, refusals, offsets on the device, the order of sums, any lengths."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

from ...gauntlet import readable

BY = ("sum", "mean", "max", "min", "prod")
COVERS = tuple(f"segment_{by}{suffix}" for by in (*BY, "logsumexp", "softmax") for suffix in ("", "_backward"))
X, O = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([0, 1, 4])
RAISE = {"mode": "raise"}

REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], type[bp.BaracudaError], str]] = [
    ("segment_sum", (np.ones((), "f4"), O), {}, bp.InvalidProblemError, "x has no axis"),
    ("segment_sum", (X, O[:0]), {}, bp.InvalidProblemError, "offsets must have shape [segments + 1], got (0,)"),
    ("segment_max", (X, O[None]), {}, bp.InvalidProblemError, "offsets must have shape [segments + 1], got (1, 3)"),
    ("segment_min", (X.astype("i4"), O), {}, bp.OperandTypeError, "x must hold"),
    ("segment_mean", (X, O.astype("f4")), {}, bp.OperandTypeError, "offsets must hold i32 or i64"),
    ("segment_sum", (X, O), {"mode": "clip"}, bp.InvalidProblemError, "drop, status, raise"),
    ("segment_sum", (X, np.array([0, 3, 2])), RAISE, bp.InvalidProblemError, "offsets[2] = 2, behind 3 is out of order"),
    ("segment_sum", (X, np.array([0, 5])), RAISE, bp.InvalidProblemError, "x has 4 rows"),
    ("segment_sum", (X, np.array([-1, 3])), RAISE, bp.InvalidProblemError, "offsets[0] = -1 is out of order or range"),
    ("segment_sum_backward", (X, X, O), {}, bp.InvalidProblemError, "grad"),
    ("segment_sum_backward", (X[:2], X, O[::-1].copy()), RAISE, bp.InvalidProblemError, "offsets[1] = 1, behind 4"),
    ("segment_max_backward", (X[:2], X, X[:3], O), {}, bp.InvalidProblemError, "y"),
    ("segment_logsumexp_backward", (X[:2], X, X[:3], O), {}, bp.InvalidProblemError, "y"),
    ("segment_softmax", (X, O[None]), {}, bp.InvalidProblemError, "offsets must have shape [segments + 1]"),
    ("segment_softmax", (X, O[::-1].copy()), RAISE, bp.InvalidProblemError, "offsets[1] = 1, behind 4"),
    ("segment_softmax_backward", (X[:2], X, O), {}, bp.InvalidProblemError, "got (4, 3)"),
]  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize(("op", "arrays", "options", "error", "says"), REFUSED, ids=[f"{r[0]}-{r[4]}" for r in REFUSED])
def test_refusals(op: str, arrays: Any, options: Any, error: Any, says: str, device: str) -> None:
    before = [x.copy() for x in arrays]
    with pytest.raises(error) as caught:
        getattr(bp, op)(*arrays, **options, device=device)
    readable(caught.value, op, says)
    assert all(np.array_equal(x, y) for x, y in zip(arrays, before))


def test_raising_is_refused_on_a_gpu() -> None:
    for plan, desc in ((bp.SegmentPlan, bp.SegmentDescriptor), (bp.SegmentBackwardPlan, bp.SegmentBackwardDescriptor)):
        with pytest.raises(bp.UnsupportedError, match="mode='status'"):
            plan.select(desc((40, 8), (5,), "f32", mode="raise"), device="h200")
        assert plan.select(desc((40, 8), (5,), "f32", mode="status"), device="h200").deterministic


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("offsets", [[0, 3, 2, 4], [0, 2**62, 4], [-(2**62), 4], [3, 5]])
def test_refused_offsets_read_nothing(device: str, offsets: list[int]) -> None:
    """Every segment is empty, the status says so, and gradients are 0."""
    n, given = len(offsets) - 1, np.array(offsets)
    for by, empty in (("sum", 0), ("mean", 0), ("max", -np.inf), ("min", np.inf), ("prod", 1)):
        status = np.array(7, np.int32)
        made = getattr(bp, f"segment_{by}")(X, given, mode="status", status=status, device=device)
        assert made.out.tolist() == [[empty] * 3] * n
        assert status == 1
        with pytest.raises(bp.InvalidProblemError, match="an offset is out of range or below the one before it"):
            bp.check(made)
        y = (np.zeros((n, 3), np.float32),) if by in ("max", "min") else ()
        back = getattr(bp, f"segment_{by}_backward")
        assert not back(np.ones((n, 3), np.float32), X, *y, given, device=device).any()
    bp.check(bp.segment_sum(X, O, mode="status", status=np.array(7, np.int32), device=device))


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("by", BY)
def test_as_torch_segment_reduce(by: str, device: str) -> None:
    """Results and gradients, ties and NaN among them, of segments that are not empty. Gradients are positive: torch 2.13 divides
    no negative one among ties."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    x = rng.integers(-3, 4, (600, 5)).astype(np.float64)
    x[7, 2] = x[9, 2] = np.nan if by in ("max", "min") else 1
    if by == "prod":  # in range, with no zeros, one, and several
        x = rng.choice([-1.5, -1, 1, 0.75, 1.25], (600, 5))
        x[[0, 5, 30, 40, 599], [0, 1, 2, 2, 4]] = 0
    given, offsets = torch.tensor(x, requires_grad=True), torch.tensor([0, 1, 20, 330, 600])
    grad = torch.tensor(rng.uniform(1, 2, (4, 5)))
    made = getattr(bp, f"segment_{by}")(given, offsets, device=device)
    made.backward(grad)
    own, given.grad = given.grad, None
    right = torch.segment_reduce(given, by, offsets=offsets, axis=0)
    right.backward(grad)
    torch.testing.assert_close(made, right, equal_nan=True)
    torch.testing.assert_close(own, given.grad)


def _per_segment(of: Any, x: Any, offsets: Any) -> Any:
    return [of(x[a:b], 0) for a, b in itertools.pairwise(offsets.tolist())]


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_as_torch_softmax_of_each_segment(device: str) -> None:
    """Softmax and logsumexp with gradients; large values; NaN, inf and -inf alone. Rows of no segment are 0."""
    torch = pytest.importorskip("torch")
    x = torch.tensor(np.random.default_rng(8).standard_normal((700, 4)) * 300)
    x[3, 0], x[4, 1], x[1:20, 2] = torch.nan, torch.inf, -torch.inf
    offsets = torch.tensor([1, 20, 20, 330, 690])
    made = bp.segment_softmax(x, offsets, device=device)
    assert not made[:1].any() and not made[690:].any()
    right = torch.cat(_per_segment(torch.softmax, x, offsets))
    torch.testing.assert_close(made[1:690], right, equal_nan=True)
    summed = torch.stack(_per_segment(torch.logsumexp, x, offsets))
    torch.testing.assert_close(bp.segment_logsumexp(x, offsets, device=device), summed, equal_nan=True)
    own, other = (x[:, 3:].clone().requires_grad_() for _ in range(2))
    grad = torch.tensor(np.random.default_rng(9).standard_normal((700, 1)))
    bp.segment_softmax(own, offsets, device=device).backward(grad)
    torch.cat(_per_segment(torch.softmax, other, offsets)).backward(grad[1:690])
    torch.testing.assert_close(own.grad, other.grad)
    own, other = (x[:, 3:].clone().requires_grad_() for _ in range(2))
    bp.segment_logsumexp(own, offsets, device=device)[[0, 2, 3]].backward(grad[:3])
    torch.stack(_per_segment(torch.logsumexp, other, offsets))[[0, 2, 3]].backward(grad[:3])
    torch.testing.assert_close(own.grad, other.grad)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_softmax_of_refused_offsets_is_0(device: str) -> None:
    made = bp.segment_softmax(X, np.array([0, 3, 2]), mode="status", device=device)
    assert made.status == 1 and not made.out.any()
    assert not bp.segment_softmax_backward(X, X, np.array([0, 2**40]), device=device).any()


def test_order_follows_from_the_segment_alone() -> None:
    """A segment's sum has the same bits wherever it begins, and whatever stands beside it."""
    rng = np.random.default_rng(5)
    own = rng.standard_normal((900, 3)).astype(np.float32)
    alone = bp.segment_sum(own, np.array([0, 900]), device="ptx")
    for before in (1, 255, 300):
        x = np.concatenate([rng.standard_normal((before, 3)), own, rng.standard_normal((77, 3))]).astype(np.float32)
        offsets = np.array([0, 0, before // 2, before, before + 900, len(x)])
        assert np.array_equal(bp.segment_sum(x, offsets, device="ptx")[3], alone[0])


@pytest.mark.parametrize("seed", range(4))
def test_segments_of_any_length(seed: int) -> None:
    """Integers, so that sums are exact: lengths around those of pieces, empty segments in runs, rows of none at both ends."""
    rng = np.random.default_rng(seed)
    lengths = rng.choice([0, 0, 0, 1, 2, 31, 255, 256, 257, 511, 512, 513, 1025], 40)
    offsets = np.cumsum([rng.integers(0, 300), *lengths])
    x = rng.integers(-9, 10, (int(offsets[-1] + rng.integers(0, 300)), 1 + seed)).astype(np.float32)
    wanted = np.stack([x[a:b].sum(0) for a, b in itertools.pairwise(offsets)])
    assert np.array_equal(bp.segment_sum(x, offsets, device="ptx"), wanted)
    segment = np.repeat(np.arange(40), lengths)
    back = np.zeros(x.shape, np.float32)
    back[offsets[0] : offsets[-1]] = wanted[segment]
    assert np.array_equal(bp.segment_sum_backward(wanted, x, offsets.astype("i4"), device="ptx"), back)


@pytest.mark.parametrize(("width", "most"), [(1, 32_768), (6, 8192), (64, 2048)])
def test_segments_that_a_warp_or_a_cta_joins(width: int, most: int) -> None:
    """Whole numbers, in segments of as many rows as a warp joins parts of, one more, and others between them."""
    rng = np.random.default_rng(8)
    lengths = [2, 300, *[0] * 20, most, 257, most + 1, 5]
    offsets = np.cumsum([3, *lengths])
    x = rng.integers(-9, 10, (int(offsets[-1]) + 7, width)).astype(np.float32)
    wanted = np.stack([x[a:b].sum(0) for a, b in itertools.pairwise(offsets)])
    assert np.array_equal(bp.segment_sum(x, offsets, device="ptx"), wanted)


def test_long_segments_that_begin_the_rows_of_a_cta() -> None:
    """The first row, and one at a multiple of the rows whose last segment a CTA joins."""
    rng = np.random.default_rng(4)
    offsets = np.array([0, 2049, 4096, 6600])
    x = rng.integers(-9, 10, (6600, 64)).astype(np.float32)
    wanted = np.stack([x[a:b].sum(0) for a, b in itertools.pairwise(offsets)])
    assert np.array_equal(bp.segment_sum(x, offsets, device="ptx"), wanted)


def test_more_segments_than_a_search_step_has_places() -> None:
    rng = np.random.default_rng(6)
    offsets = np.sort(rng.integers(0, 401, 2100))
    x = rng.integers(-9, 10, 400).astype(np.float64)
    wanted = [x[a:b].sum() for a, b in itertools.pairwise(offsets)]
    assert bp.segment_sum(x, offsets, device="ptx").tolist() == wanted
    back = bp.segment_mean_backward(np.arange(2099.0), x, offsets, device="ptx")
    assert np.array_equal(back, bp.segment_mean_backward(np.arange(2099.0), x, offsets, device="cpu"))


@pytest.mark.parametrize("width", [5, 8])
def test_rows_at_odd_addresses(width: int) -> None:
    rng = np.random.default_rng(7)
    held = rng.integers(-9, 10, 40 * 12 + 1).astype(np.float32)[1:].reshape(40, 12)[:, :width]
    offsets = np.array([0, 7, 7, 33])
    wanted = np.stack([held[a:b].sum(0) for a, b in itertools.pairwise(offsets)])
    assert np.array_equal(bp.segment_sum(held, offsets, device="ptx"), wanted)
    grad = held[:3]
    back = bp.segment_sum_backward(grad, held, offsets, device="ptx")
    assert np.array_equal(back, bp.segment_sum_backward(grad, held, offsets, device="cpu"))


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_half_is_summed_in_single_precision(device: str) -> None:
    x = np.ones((5000, 2), np.float16)
    assert bp.segment_sum(x, np.array([0, 5000]), device=device).tolist() == [[5000, 5000]]
    x[0] = 60000
    assert bp.segment_mean(x, np.array([0, 5000]), device=device).tolist() == [[np.float16((60000 + 4999) / 5000)] * 2]

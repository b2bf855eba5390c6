"""Bags of a table's rows: torch's results and gradients, refusals, what is out of range, the order of sums, any lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

from ...gauntlet import readable

COVERS = ("embedding_bag", "embedding_bag_backward", "segment_offsets")
BY = ("sum", "mean", "max")
TABLE, IDS, O = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([0, 3, 1, 1, 2]), np.array([0, 2])
RAISE = {"mode": "raise"}

REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], type[bp.BaracudaError], str]] = [
    ("embedding_bag", (IDS, TABLE[0], O), {}, bp.InvalidProblemError, "weight must have shape [N, D], got (3,)"),
    ("embedding_bag", (IDS, TABLE), {}, bp.InvalidProblemError, "input has shape (5,) and offsets is missing"),
    ("embedding_bag", (IDS[None], TABLE, O), {}, bp.InvalidProblemError, "input has shape (1, 5) and offsets (2,)"),
    ("embedding_bag", (IDS, TABLE, O[None]), {}, bp.InvalidProblemError, "offsets must have shape [B], got (1, 2)"),
    ("embedding_bag", (IDS, TABLE, O[:0]), {"include_last_offset": True}, bp.InvalidProblemError, "[B + 1], got (0,)"),
    ("embedding_bag", (IDS, TABLE, O), {"padding_idx": 4}, bp.InvalidProblemError, "padding_idx=4, and weight has 4"),
    ("embedding_bag", (IDS, TABLE, O), {"reduce": "min"}, bp.InvalidProblemError, "sum, mean, max"),
    ("embedding_bag", (IDS, TABLE, O), {"mode": "clip"}, bp.InvalidProblemError, "drop, status, raise"),
    ("embedding_bag", (IDS, TABLE, O), {"per_sample_weights": IDS + 0.5, "reduce": "sum"}, bp.OperandTypeError, "cast it"),
    ("embedding_bag", (IDS * 2, TABLE, O), RAISE, bp.InvalidProblemError, "input[1] = 6 is out of range: weight has 4"),
    ("embedding_bag", (IDS, TABLE, O[::-1].copy()), RAISE, bp.InvalidProblemError, "offsets[1] = 0, behind 2"),
    ("embedding_bag", (IDS, TABLE, O + 4), RAISE, bp.InvalidProblemError, "input has 5 entries"),
    ("embedding_bag_backward", (TABLE, IDS, TABLE, O), {}, bp.InvalidProblemError, "grad"),
    ("embedding_bag_backward", (TABLE[:2], IDS - 1, TABLE, O), RAISE, bp.InvalidProblemError, "input[0] = -1 is out"),
    ("embedding_bag_backward", (TABLE[:2], IDS, TABLE.T.copy().T, O), {"reduce": "max"}, bp.UnsupportedError, "C order"),
    ("segment_offsets", (IDS[None], 4), {}, bp.InvalidProblemError, "ids must have shape [rows], got (1, 5)"),
    ("segment_offsets", (IDS, -1), {}, bp.InvalidProblemError, "segments=-1"),
]  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize(("op", "arrays", "options", "error", "says"), REFUSED, ids=[f"{r[0]}-{r[4]}" for r in REFUSED])
def test_refusals(op: str, arrays: Any, options: Any, error: Any, says: str, device: str) -> None:
    if error is bp.UnsupportedError and device == "cpu":
        pytest.skip("the oracle takes any strides")
    with pytest.raises(error) as caught:
        getattr(bp, op)(*arrays, **options, device=device)
    readable(caught.value, op, says)


def test_raising_is_refused_on_a_gpu() -> None:
    for plan, desc in (
        (bp.EmbeddingBagPlan, bp.EmbeddingBagDescriptor),
        (bp.EmbeddingBagBackwardPlan, bp.EmbeddingBagBackwardDescriptor),
    ):
        with pytest.raises(bp.UnsupportedError, match="mode='status'"):
            plan.select(desc((4, 9), (40, 8), "f32", mode="raise"), device="h200")
        assert plan.select(desc((4, 9), (40, 8), "f32", mode="status"), device="h200").deterministic


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("by", BY)
def test_what_is_out_of_range_is_left_out(by: str, device: str) -> None:
    """Offsets: every bag is empty. Ids: as padding. The status says so, and gradients are 0."""
    for offsets in ([0, 3, 2], [0, 2**62, 4], [-(2**62), 4], [3, 6]):
        status = np.array(7, np.int32)
        made = bp.embedding_bag(IDS, TABLE, np.array(offsets), reduce=by, mode="status", status=status, device=device)
        assert not made.out.any() and status == 1
        with pytest.raises(bp.InvalidProblemError, match="an id or an offset is out of range"):
            bp.check(made)
        grad = np.ones(made.out.shape, np.float32)
        assert not bp.embedding_bag_backward(grad, IDS, TABLE, np.array(offsets), reduce=by, device=device).any()
    beyond = np.array([[-1, 2, 4, 2**40, 1, 2], [9, 9, 9, 9, 9, -(2**63)]])
    made = bp.embedding_bag(beyond, TABLE, reduce=by, mode="status", device=device)
    assert made.status == 1
    own = bp.embedding_bag(beyond[:1, [1, 4, 5]], TABLE, reduce=by, mode="status", device=device)
    assert own.status == 0
    assert np.array_equal(made.out, [own.out[0], np.zeros(3)])
    back = bp.embedding_bag_backward(TABLE[:2], beyond, TABLE, reduce=by, device=device)
    assert np.array_equal(
        back, bp.embedding_bag_backward(TABLE[:1], beyond[:1, [1, 4, 5]], TABLE, reduce=by, device="cpu")
    )


CALLS: tuple[dict[str, Any], ...] = ({}, {"include_last_offset": True}, {"padding_idx": 3}, {"padding_idx": -2})


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_as_torch_embedding_bag(call: Any, by: str, device: str) -> None:
    """Results and gradients, of empty bags too; torch's offsets begin with 0."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    ids, offsets = rng.integers(0, 9, 700), np.array([0, 0, 5, 6, 600, 700])
    weighted = (None, rng.standard_normal(700)) if by == "sum" else (None,)
    for weights in weighted:
        table = rng.standard_normal((9, 5))
        leaves = [[torch.tensor(x, requires_grad=True) for x in (table, weights) if x is not None] for _ in range(2)]
        options = dict(zip(("per_sample_weights",), leaves[0][1:]))
        made = bp.embedding_bag(
            torch.tensor(ids), leaves[0][0], torch.tensor(offsets), reduce=by, **options, **call, device=device
        )
        options = dict(zip(("per_sample_weights",), leaves[1][1:]))
        right = torch.nn.functional.embedding_bag(
            torch.tensor(ids), leaves[1][0], torch.tensor(offsets), mode=by, **options, **call
        )
        torch.testing.assert_close(made, right)
        grad = torch.tensor(rng.standard_normal(made.shape))
        made.backward(grad)
        right.backward(grad)
        for own, other in zip(*leaves):
            torch.testing.assert_close(own.grad, other.grad)


def test_messages_of_a_graph() -> None:
    """Sums over the edges of each target, of the features of their sources times the edges' weights."""
    rng = np.random.default_rng(5)
    source, target = rng.integers(0, 30, 400), np.sort(rng.integers(0, 30, 400))
    features, weights = rng.integers(-9, 10, (30, 6)).astype("f4"), rng.integers(-3, 4, 400).astype("f4")
    wanted = np.zeros((30, 6), np.float32)
    np.add.at(wanted, target, features[source] * weights[:, None])
    made = bp.embedding_bag(
        source, features, bp.segment_offsets(target, 30, device="ptx"), reduce="sum", per_sample_weights=weights,
        include_last_offset=True, device="ptx",
    )  # fmt: skip
    assert np.array_equal(made, wanted)


def test_order_follows_from_the_bag_alone() -> None:
    """A bag's sum has the same bits wherever it begins, and whatever stands beside it."""
    rng = np.random.default_rng(6)
    table, own = rng.standard_normal((50, 3)).astype(np.float32), rng.integers(0, 50, 900)
    alone = bp.embedding_bag(own, table, np.array([0]), reduce="sum", device="ptx")
    for before in (1, 255, 300):
        ids = np.concatenate([rng.integers(0, 50, before), own, rng.integers(0, 50, 77)])
        offsets = np.array([0, 0, before // 2, before, before + 900])
        assert np.array_equal(bp.embedding_bag(ids, table, offsets, reduce="sum", device="ptx")[3], alone[0])


@pytest.mark.parametrize("seed", range(3))
def test_bags_of_any_length(seed: int) -> None:
    """Integers, so that sums are exact: lengths around those of pieces and warps, empty bags in runs, entries of none ahead."""
    rng = np.random.default_rng(seed)
    lengths = rng.choice([0, 0, 1, 2, 31, 32, 33, 255, 256, 257, 512], 20)
    offsets = np.cumsum([rng.integers(0, 300), *lengths])
    count = int(offsets[-1] + rng.integers(0, 300))
    ids, table = rng.integers(-2, 12, count), rng.integers(-9, 10, (11, 1 + seed)).astype(np.float32)
    options: dict[str, Any] = {"include_last_offset": True, "padding_idx": 4}
    for by in BY:
        made, wanted = (bp.embedding_bag(ids, table, offsets, reduce=by, **options, device=d) for d in ("ptx", "cpu"))
        assert np.array_equal(made, wanted)
    grad = rng.integers(-9, 10, (20, 1 + seed)).astype(np.float32)
    weights = rng.integers(-3, 4, count).astype(np.float32)
    back, wanted = (
        bp.embedding_bag_backward(
            grad, ids, table, offsets, reduce="sum", per_sample_weights=weights, **options, device=d
        )
        for d in ("ptx", "cpu")
    )
    assert all(np.array_equal(x, y) for x, y in zip(back, wanted))


def test_ties_share_the_gradient_of_a_maximum() -> None:
    table, ids = np.array([[1.0], [3], [3], [2]], np.float32), np.array([[0, 1, 2, 1, 3]])
    for device in ("cpu", "ptx"):
        back = bp.embedding_bag_backward(np.full((1, 1), 6, np.float32), ids, table, reduce="max", device=device)
        assert back.tolist() == [[0], [4], [2], [0]]


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_offsets_of_unsorted_ids_are_in_range(device: str) -> None:
    ids = np.random.default_rng(7).integers(-5, 300, 999)
    offsets = bp.segment_offsets(ids, 250, device=device)
    assert offsets.min() >= 0 and offsets.max() <= 999
    assert (
        bp.segment_offsets(np.sort(ids), 250, device=device).tolist()
        == np.searchsorted(np.sort(ids), np.arange(251)).tolist()
    )

"""Norms over channels: layouts, groups and items that do not depend on one another, clusters, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample

from ...gauntlet import Problem, served

BF16 = bp.BF16.dtype
rng = np.random.default_rng(5)
Array = np.ndarray[Any, Any]


def normal(*shape: int, dtype: Any = np.float32) -> Array:
    return rng.standard_normal(shape).astype(dtype)


def statistics(x: Array, groups: int) -> tuple[Array, Array]:
    rows = x.astype(np.float64).reshape(len(x), groups, -1)
    return rows.mean(-1).astype(np.float32), (1 / np.sqrt(rows.var(-1) + 1e-5)).astype(np.float32)


@pytest.mark.parametrize("positions", [(4, 8), (7, 7), (1,)])
def test_group_norm_of_a_group_is_layer_norm(positions: tuple[int, ...]) -> None:
    """Without weights, on the device's arithmetic."""
    x = normal(3, 8, *positions)
    got = bp.group_norm(x, 2, device="ptx")
    rows = bp.layer_norm(x.reshape(6, -1), device="cpu").reshape(x.shape)
    assert np.allclose(got, rows, rtol=1e-5, atol=1e-5)
    alone = bp.instance_norm(x, device="ptx")
    assert np.array_equal(alone, bp.group_norm(x, 8, device="ptx"))


def test_group_norm_layout_changes_no_weight() -> None:
    """Weights are found by channel where channels, positions or neither are contiguous, also where out is laid out otherwise."""
    x, w, b = normal(2, 8, 4, 8), normal(8), normal(8)
    want = bp.group_norm(x, 2, w, b, device="cpu")
    last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    for given in (x, last, x[:, :, ::-1].copy()[:, :, ::-1], np.asfortranarray(x)):
        for out in (None, np.full_like(x, np.nan), np.asfortranarray(np.full_like(x, np.nan))):
            got = bp.group_norm(given, 2, w, b, out=out, device="ptx")
            assert np.allclose(got, want, rtol=1e-5, atol=1e-5)
    wide = np.repeat(w, 2)[::2]
    assert np.array_equal(bp.group_norm(last, 2, wide, device="ptx"), bp.group_norm(last, 2, w, device="ptx"))


def test_group_norm_item_does_not_depend_on_others() -> None:
    x, w = normal(5, 6, 40, dtype=BF16), normal(6, dtype=BF16)
    whole = bp.group_norm(x, 3, w, w, device="ptx")
    for items in (slice(0, 1), slice(2, 5)):
        part = bp.group_norm(x[items], 3, w, w, device="ptx")
        assert np.array_equal(part.view(np.uint16), whole[items].view(np.uint16))


def test_group_norm_in_place() -> None:
    for shape in ((2, 4, 24), (1, 2, 20000)):
        x, w = normal(*shape, dtype=BF16), normal(shape[1], dtype=BF16)
        want = bp.group_norm(x, 1, w, device="ptx")
        assert np.array_equal(bp.group_norm(x, 1, w, out=x, device="ptx").view(np.uint16), want.view(np.uint16))
    for shape in ((2, 4, 24), (1, 3, 4099)):
        grad, x, w = normal(*shape), normal(*shape), normal(shape[1])
        mean, rstd = statistics(x, 1)
        want = bp.group_norm_backward(grad, x, w, mean, rstd, device="ptx")
        got = bp.group_norm_backward(grad, x, w, mean, rstd, grad_x=grad, device="ptx")
        assert got.grad_x is grad
        assert all(np.array_equal(a, b) for a, b in zip(got, want))


def test_group_norm_backward_sums_by_channel() -> None:
    """Of the weights' gradients, in every layout, with and without a weight."""
    x, grad, w = normal(3, 6, 4, 8), normal(3, 6, 4, 8), normal(6)
    mean, rstd = statistics(x, 2)
    n = (x.astype(np.float64) - mean.repeat(3, 1)[..., None, None]) * rstd.repeat(3, 1)[..., None, None]
    for order in ("C", "F"):
        given = np.array(grad, order=order), np.array(x, order=order)
        got = bp.group_norm_backward(*given, w, mean, rstd, device="ptx")
        assert np.allclose(got.grad_weight, (grad * n).sum((0, 2, 3)), rtol=1e-5, atol=1e-4)
        assert np.allclose(got.grad_bias, grad.sum((0, 2, 3), dtype=np.float64), rtol=1e-5, atol=1e-4)
        alone = bp.group_norm_backward(*given, None, mean, rstd, needs="bias", device="ptx")
        assert np.array_equal(alone.grad_bias, got.grad_bias)


def test_batch_norm_is_instance_norm_of_one_item() -> None:
    """Items join the positions, in every layout and of no positions at all."""
    for shape in ((3, 4, 2, 8), (3, 4, 5), (6, 4)):
        x, grad, w, b = normal(*shape), normal(*shape), normal(4), normal(4)
        folded, pulled = (np.swapaxes(a, 0, 1).reshape(1, 4, -1) for a in (x, grad))
        want = bp.instance_norm(folded, weight=w, bias=b, stats=True, device="cpu")
        for given in (x, np.asfortranarray(x)):
            got = bp.batch_norm(given, weight=w, bias=b, stats=True, device="ptx")
            assert np.allclose(np.swapaxes(got.out, 0, 1).reshape(1, 4, -1), want.out, rtol=1e-5, atol=1e-5)
            assert np.allclose(got.mean, want.mean[0], rtol=1e-5, atol=1e-6)
            assert np.allclose(got.rstd, want.rstd[0], rtol=1e-5)
        made = bp.batch_norm_backward(grad, x, w, got.mean, got.rstd, device="ptx")
        wanted = bp.group_norm_backward(pulled, folded, w, want.mean, want.rstd, device="cpu")
        assert np.allclose(np.swapaxes(made.grad_x, 0, 1).reshape(1, 4, -1), wanted.grad_x, rtol=1e-4, atol=1e-5)
        assert np.allclose(made.grad_weight, wanted.grad_weight, rtol=1e-5, atol=1e-5)
        assert np.allclose(made.grad_bias, wanted.grad_bias, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [np.float32, np.float64, BF16])
@pytest.mark.parametrize("op", ["group_norm", "group_norm_backward"])
def test_group_norm_bounds_at_the_ends_of_the_range(op: str, kind: Any) -> None:
    """Squares and products that overflow or vanish, beside groups that are as ever."""
    import ml_dtypes

    top, least = (float(getattr(ml_dtypes.finfo(kind), name)) for name in ("max", "smallest_normal"))
    scales = np.array([1, top / 64, top**0.6, top**0.3, least * 4, least**0.6, least**0.3]).repeat(2)[None, :, None]
    x, grad = ((rng.standard_normal((1, 14, 9)) * np.roll(scales, by, axis=1)).astype(kind) for by in (0, 6))
    operands: dict[str, Any] = {"x": x, "weight": (rng.standard_normal(14) * least**-0.2).astype(kind)}
    options: dict[str, Any] = {"num_groups": 7}
    if op == "group_norm_backward":
        computed = np.float64 if kind is np.float64 else np.float32
        operands = {"grad": grad, **operands, **{s: np.full((1, 7), 0.5, computed) for s in ("mean", "rstd")}}
        options = {}
    problem = Problem(get_op(op), Sample("ends", operands, options), "ptx")
    served(problem, [problem.plan])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: bp.group_norm(x, 3), "8 channels .* cannot be divided into num_groups=3"),
        (lambda x: bp.group_norm(x, 0), "num_groups=0"),
        (lambda x: bp.group_norm(x, -2), "num_groups=-2"),
        (lambda x: bp.group_norm(x[0, 0], 1), "has no axis of channels"),
        (lambda x: bp.group_norm(x, 2, np.zeros(7, np.float32)), "weight"),
        (lambda x: bp.group_norm(x, 2, np.zeros(8, np.int32)), "weight"),
        (lambda x: bp.group_norm(x, 2, eps=-1.0), "eps"),
        (lambda x: bp.instance_norm(x, bias=np.zeros(8, np.float16)), "bias must hold"),
        (lambda x: bp.group_norm_backward(x, x, None, None, np.ones((2, 2), np.float32)), "mean"),
        (lambda x: bp.group_norm_backward(x, x, None, *(np.ones((2, 3), np.float32),) * 2), "num_groups=3"),
        (lambda x: bp.group_norm_backward(x, x, None, *(np.ones(2, np.float32),) * 2), "mean must have shape"),
        (lambda x: bp.group_norm_backward(x, x, needs="weight"), "name 'bias'"),
        (lambda x: bp.batch_norm_backward(x, x, None, *(np.ones((2, 8), np.float32),) * 2), "mean must have shape"),
        (lambda x: bp.batch_norm(x[0, 0]), "has no axis of channels"),
        (lambda x: bp.batch_norm(x, mean=np.zeros(8, np.float32)), "mean is given without rstd: pass rstd too"),
        (lambda x: bp.group_norm(x, 2, rstd=np.zeros((2, 2), np.float32)), "rstd is given without mean"),
        (lambda x: bp.layer_norm(x, mean=np.zeros((2, 8), np.float32)), "mean is given without rstd"),
        (lambda x: bp.layer_norm(x, rstd=np.zeros((2, 8), np.float32)), "rstd is given without mean"),
    ],
)
def test_group_norm_refuses(call: Any, says: str) -> None:
    with bp.device("cpu"), pytest.raises((bp.InvalidProblemError, bp.OperandTypeError), match=says):
        call(normal(2, 8, 3))


def test_batch_norm_trains_as_torch() -> None:
    """Running statistics over some steps, then inference by them."""
    torch = pytest.importorskip("torch")

    w, b = normal(6), normal(6)
    kept = np.zeros(6, np.float32), np.ones(6, np.float32)
    same = [torch.from_numpy(x.copy()) for x in kept]
    parts = [torch.from_numpy(x) for x in (w, b)]
    for _ in range(3):
        x = normal(3, 6, 5) * 2 + 1
        made = bp.batch_norm_running(x, *kept, w, b, momentum=0.3, device="ptx")
        want = torch.nn.functional.batch_norm(torch.from_numpy(x), *same, *parts, True, 0.3)
        assert np.allclose(made.out, want.numpy(), atol=1e-5) and made.running_mean is kept[0]
        for ours, theirs in zip(kept, same):
            assert np.allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-6)
    got = bp.batch_norm_inference(x, *kept, w, b, device="ptx")
    assert np.allclose(
        got, torch.nn.functional.batch_norm(torch.from_numpy(x), *same, *parts, False).numpy(), atol=1e-5
    )


def test_batch_norm_parts_of_a_batch_are_the_whole() -> None:
    """Two parts share statistics, and their gradients' sums, as the docstring says."""
    x, grad, w, b = normal(5, 4, 6) + 1, normal(5, 4, 6), normal(4), normal(4)
    parts = slice(0, 2), slice(2, 5)
    counts = [x[part, 0].size for part in parts]
    local = [bp.var_mean(x[part], axis=(0, 2), correction=0, device="cpu") for part in parts]
    n = sum(counts)
    mean = sum(c * m for c, (_, m) in zip(counts, local)) / n
    var = sum(c * (v + (m - mean) ** 2) for c, (v, m) in zip(counts, local)) / n
    whole = bp.batch_norm(x, weight=w, bias=b, stats=True, device="cpu")
    back = [bp.batch_norm_inference_backward(grad[part], x[part], w, mean, var, device="ptx") for part in parts]
    r, s, t = (var + 1e-5) ** -0.5, sum(g.grad_bias for g in back), sum(g.grad_weight for g in back)
    want = bp.batch_norm_backward(grad, x, w, whole.mean, whole.rstd, device="cpu")
    assert np.allclose(t, want.grad_weight, atol=1e-4) and np.allclose(s, want.grad_bias, atol=1e-4)
    for part, own in zip(parts, back):
        out = bp.batch_norm_inference(x[part], mean, var, w, b, device="ptx")
        assert np.allclose(out, whole.out[part], atol=1e-5)
        means = bp.batch_norm_inference(x[part], mean, var, -w * r * t / n, -w * r * s / n, device="ptx")
        assert np.allclose(own.grad_x + means, want.grad_x[part], atol=1e-5)


def test_batch_norm_refuses_what_has_no_statistics() -> None:
    kept = np.zeros(4, np.float32), np.ones(4, np.float32)
    for call, part in (
        (lambda: bp.batch_norm_running(normal(1, 4), *kept, device="cpu"), "1 elements per channel"),
        (lambda: bp.batch_norm_running(normal(3, 4), *kept, momentum=1.5, device="cpu"), "momentum=1.5"),
        (lambda: bp.batch_norm_running(normal(3, 4), kept[0], kept[0], device="cpu"), "running_"),
        (lambda: bp.batch_norm_inference(normal(3, 4), kept[0][:3], kept[1], device="cpu"), "mean must have shape"),
    ):
        with pytest.raises(bp.BaracudaError, match=part):
            call()
    assert not kept[0].any() and kept[1].all()

"""Statistics of rows in fused functions: against NumPy in wide types, in every way to share out a row; gradients."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.types import ElementKind

COVERS = ()
Array = Any


@bp.fuse
def layer_norm(x: Any, w: Any, b: Any, eps: float) -> Any:
    centred = x - bp.mean(x, axis=-1, keepdims=True)
    return centred * bp.rsqrt(bp.mean(bp.square(centred), axis=-1, keepdims=True) + eps) * w + b


@bp.fuse
def softmax(x: Any, scale: Any) -> Any:
    e = bp.exp(x * scale - bp.max(x * scale, axis=-1, keepdims=True))
    return e / bp.sum(e, axis=-1, keepdims=True)


@bp.fuse
def moments(x: Any, y: Any) -> Any:
    return x * y, bp.mean(x, axis=-1), bp.sqrt(bp.sum(bp.square(x - y), axis=-1)), bp.min(y, axis=-1) - 1


def wide_norm(x: Array, w: Array, b: Array, eps: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + eps) * w + b


def wide_softmax(x: Array, scale: Array) -> Array:
    e = np.exp(x * scale - (x * scale).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def wide_moments(x: Array, y: Array) -> Any:
    return x * y, x.mean(-1), np.sqrt(((x - y) ** 2).sum(-1)), y.min(-1) - 1


def holds(fused: Any, wide: Callable[..., Any], args: tuple[Any, ...], device: str) -> Any:
    """The oracle is NumPy in long double, the results are within the plan's bound of the oracle's, and twice the same."""
    plan = fused.plan(*args, device=device)
    operands = {f"x{i + 1}": x for i, x in enumerate(args)}
    got, again = fused(*args, device=device), fused(*args, device=device)
    arrays = {name: x for name, x in operands.items() if isinstance(x, np.ndarray)}
    oracle = bp.FusedPlan.reference(fused.of(*args), **arrays)
    wanted = wide(*(x.astype(np.longdouble) if isinstance(x, np.ndarray) else x for x in args))
    several = isinstance(wanted, tuple)
    for of in zip(*(x if several else (x,) for x in (got, again, oracle, wanted))):
        one, other, exact, want = of
        assert one.shape == want.shape == exact.shape and one.tobytes() == other.tobytes()
        np.testing.assert_allclose(exact.astype(np.float64), want.astype(np.float64), rtol=1e-10, atol=1e-10)
    assert all(output.share <= 1 for output in plan.verify(**operands).outputs)
    return plan


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_rows_against_numpy(kind: str, device: str) -> None:
    rng, dtype = np.random.default_rng(0), ElementKind.of(kind).dtype
    for rows, length in ((5, 34), (3, 1), (1, 257)):
        x, y = (rng.standard_normal((rows, length)).astype(dtype) for _ in "xy")
        holds(layer_norm, wide_norm, (x, y[0], y[-1], 0.25), device)
        holds(softmax, wide_softmax, (x, y[:, :1]), device)
        holds(moments, wide_moments, (x, y), device)


def test_rows_are_shared_out_in_every_way() -> None:
    """Lanes of a warp, warps, rows that stay in registers and rows that are read again; vectors and single columns."""
    rng, seen = np.random.default_rng(1), ""
    for rows, length, kind in ((3, 4, "f32"), (3, 97, "f32"), (1, 1200, "bf16")):
        x, y = (rng.standard_normal((rows, length)).astype(ElementKind.of(kind).dtype) for _ in "xy")
        seen += f"{holds(moments, wide_moments, (x, y), 'ptx').sku.config}; "
    wide = [rng.standard_normal((2, 1100)) for _ in range(16)]  # 16 columns of f64: a row that is read again
    streamed = bp.fuse(lambda *x: sum(x[1:], x[0]) - bp.mean(x[0] * x[-1], axis=-1, keepdims=True))
    plan = holds(streamed, lambda *x: sum(x[1:], x[0]) - (x[0] * x[-1]).mean(-1, keepdims=True), tuple(wide), "ptx")
    assert "resident" not in plan.sku.config
    for part in ("lanes=1 ", "lanes=32 ", "lanes=64 ", "vector=1 ", "vector=4 ", "vector=8 "):
        assert part in seen, seen


def test_row_results_do_not_depend_on_other_rows() -> None:
    x = np.random.default_rng(2).standard_normal((7, 130)).astype(np.float32)
    whole = softmax(x, 1.5, device="ptx")
    for row in (0, 6):
        assert whole[row].tobytes() == softmax(x[row : row + 1], 1.5, device="ptx").tobytes()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_rows_layouts_and_in_place(device: str) -> None:
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((6, 40)).astype(np.float32), rng.standard_normal(40).astype(np.float32)
    expected = layer_norm(x, w, w, 0.1, device=device)
    for view in (np.asfortranarray(x), np.repeat(x, 2, 1)[:, ::2], np.stack([x, x])[1]):
        np.testing.assert_allclose(layer_norm(view, w, w, 0.1, device=device), expected, rtol=1e-5, atol=1e-6)
    held = x.copy()
    assert layer_norm(held, w, w, 0.1, out=held, device=device) is held
    assert held.tobytes() == expected.tobytes()
    out = np.zeros((6, 80), np.float32)
    layer_norm(x, w, w, 0.1, out=out[:, ::2], device=device)
    np.testing.assert_allclose(out[:, ::2], expected, rtol=1e-5, atol=1e-6)
    assert not out[:, 1::2].any()
    assert softmax(x[:0], 1.0, device=device).shape == (0, 40)
    scaled = bp.fuse(lambda x, s: (x * s, bp.sum(x * s, axis=-1, keepdims=True)))
    for columns in (40, 20):  # results of rows in place of what rows have once
        held, single = x[:, :columns].copy(), x[:, :1].copy()
        wanted = scaled(held, single, device=device)
        scaled(held, single, out=(held, single), device=device)
        assert held.tobytes() == wanted[0].tobytes() and single.tobytes() == wanted[1].tobytes()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_rows_of_several_axes_and_all(device: str) -> None:
    rng = np.random.default_rng(4)
    x, w = rng.standard_normal((3, 4, 6)).astype(np.float32), rng.standard_normal((3, 1, 6)).astype(np.float32)
    both = bp.fuse(lambda x, w: (x * w - bp.mean(x, axis=(-2, -1), keepdims=True), bp.sum(x * w, axis=(-1, -2))))
    whole, sums = both(x, w, device=device)
    np.testing.assert_allclose(whole, x * w - x.mean((1, 2), keepdims=True), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sums, (x * w).sum((1, 2)), rtol=1e-5, atol=1e-5)
    total = bp.fuse(lambda x: bp.max(bp.abs(x)))
    assert total(x, device=device).shape == () and total(x, device=device) == np.abs(x).max()
    strided = np.zeros((3, 4, 12), np.float32)[:, ::2, ::2]  # columns that are no one axis
    strided[...] = x[:, :2]
    np.testing.assert_allclose(both(strided, w, device=device)[1], (x[:, :2] * w).sum((1, 2)), rtol=1e-5, atol=1e-5)
    empty = bp.fuse(lambda x: bp.sum(x, axis=-1))(np.zeros((3, 0), np.float32), device=device)
    assert empty.tolist() == [0, 0, 0]


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_rows_special_values(device: str) -> None:
    x = np.array([[1, np.nan, 2], [np.inf, 1, -np.inf], [-np.inf] * 3, [3e38, 3e38, -3e38]], np.float32)
    fused = bp.fuse(lambda x: (bp.max(x, axis=-1), bp.min(x, axis=-1), bp.sum(x, axis=-1)))
    with np.errstate(all="ignore"):
        for got, want in zip(fused(x, device=device)[:2], (x.max(-1), x.min(-1))):
            np.testing.assert_array_equal(got, want)
        assert np.isnan(fused(x, device=device)[2][:2]).all() and fused(x, device=device)[2][2] == -np.inf
    fused.plan(x, device=device).verify(x1=x)


def test_rows_bound_is_no_wider_than_the_errors() -> None:
    x = np.linspace(0.5, 2, 64, dtype=np.float32).reshape(2, 32)
    fused = bp.fuse(lambda x: x - bp.mean(x, axis=-1, keepdims=True))
    plan, wide = fused.plan(x, device="cpu"), x.astype(float) - x.astype(float).mean(-1, keepdims=True)
    check = {"operands": {"x1": x}, "measures": plan.measured()}
    plan.precision_guarantee.check(wide.astype(np.float32), wide, **check)
    with pytest.raises(AssertionError, match="propagated"):
        plan.precision_guarantee.check((wide + 2.0**-16).astype(np.float32), wide, **check)


def test_row_plans_are_values() -> None:
    x = np.ones((4, 8), np.float32)
    plan = moments.plan(x, x, device="ptx")
    assert bp.Plan.from_json(plan.to_json()) == plan and "squeeze(" in plan.desc.graph
    assert "rows" in str(plan.explain()) and "it has statistics of rows" in str(plan.explain())
    assert plan.verify().outputs[0].share <= 1
    assert "resident" in str(plan.sku) and plan.precision_guarantee is not None


def test_rows_from_two_threads() -> None:
    x = np.random.default_rng(5).standard_normal((4, 50)).astype(np.float32)
    expected = [softmax(x, float(s), device="ptx") for s in range(4)]
    wrong: list[int] = []
    barrier = threading.Barrier(2)

    def work(first: int) -> None:
        barrier.wait()
        for s in range(first, 4, 2):
            if softmax(x, float(s), device="ptx").tobytes() != expected[s].tobytes():
                wrong.append(s)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    assert not wrong


X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("function", "args", "said"),
    [
        (lambda x: x - bp.mean(x, axis=-1), (X,), "keepdims=True"),
        (lambda x: x - bp.sum(x), (X,), "keepdims=True"),
        (lambda x: bp.sum(bp.mean(x, axis=-1)), (X,), "keepdims=True"),
        (lambda x: x - bp.mean(x, axis=0, keepdims=True), (X,), "counted from the end"),
        (lambda x: x - bp.mean(x, axis=1, keepdims=True), (X,), "counted from the end"),
        (lambda x: x - bp.mean(x, axis=(-1, -3), keepdims=True), (X,), "counted from the end"),
        (lambda x: x - bp.mean(x, axis=(), keepdims=True), (X,), "counted from the end"),
        (
            lambda x: bp.mean(x, axis=-1, keepdims=True) - bp.mean(x, axis=(-2, -1), keepdims=True),
            (X,),
            "the last 1 axes",
        ),
        (lambda x: bp.sum(x, axis=(-3, -2, -1)), (X,), "the last 3 axes"),
        (lambda x, y: x - bp.mean(y, axis=-1, keepdims=True), (X, X[:, :1]), r"a value of shape \(2, 1\)"),
        (lambda x: bp.sum(x, axis=-1), (X.astype(np.int32),), "i32 is not summed"),
        (lambda x: bp.sum(x > 0, axis=-1), (X,), "bool is not summed"),
        (lambda x: bp.max(x, axis=-1), (X[:, :0],), "at least one element"),
        (lambda x: bp.var(x, axis=-1), (X,), "var is no function of elements"),
        (lambda x: bp.sum(x, axis=-1, device="cpu"), (X,), "is given out="),
        (lambda x, s: x * 2 + bp.sum(s), (X, 2.0), "numbers alone"),
    ],
)
def test_rows_refuse(function: Callable[..., Any], args: tuple[Any, ...], said: str) -> None:
    with pytest.raises(bp.BaracudaError, match=said) as caught:
        bp.fuse(function)(*args, device="cpu")
    assert caught.value.fix


# ---- gradients -----------------------------------------------------------------------------------------------------------


def shared(x: Any, s: Any) -> Any:
    return x - bp.max(x, axis=-1, keepdims=True) * s + (s - bp.mean(x, axis=-1, keepdims=True))


GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "norm": (lambda x, w, b: layer_norm(x, w, b, 0.1), ((5, 6), (6,), (6,))),
    "softmax": (lambda x, s: softmax(x, s), ((5, 6), (5, 1))),
    "of rows": (shared, ((5, 6), (5, 1))),
    "sum": (lambda x: bp.sum(x, axis=-1, keepdims=True) * 2, ((5, 6),)),
    "axes": (lambda x, w: bp.min(x * w, axis=(-2, -1), keepdims=True) + bp.sum(x * w, axis=(-2, -1), keepdims=True),
             ((3, 4, 6), (3, 1, 6))),
    "scalar": (lambda x, s: (x - bp.mean(x, axis=-1, keepdims=True)) * s, ((5, 6), (1,))),
    "alike": (lambda x, s: bp.sum(x * x - s * bp.mean(x, axis=-1, keepdims=True), axis=-1, keepdims=True), ((5, 6), (5, 1))),
    "one column": (lambda x: x * bp.sum(x, axis=-1, keepdims=True), ((5, 1),)),
}  # fmt: skip


@pytest.mark.parametrize("case", GRADIENTS)
def test_row_gradients_by_differences(case: str) -> None:
    """Along a direction of each input: differences of the sum of the results, times the gradient."""
    function, shapes = GRADIENTS[case]
    fused = bp.fuse(
        {1: lambda a: function(a), 2: lambda a, b: function(a, b), 3: lambda a, b, c: function(a, b, c)}[len(shapes)]
    )
    rng = np.random.default_rng(6)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    desc = fused.of(*arrays)
    grad = rng.standard_normal(desc.layout("out").shape)
    held = {f"x{i + 1}": x for i, x in enumerate(arrays)}
    for device in ("cpu", "ptx"):
        found = fused.backward(grad, *arrays, device=device)
        for (name, x), derived in zip(held.items(), found):
            along, step = rng.standard_normal(x.shape), 1e-5
            ends = [bp.FusedPlan.reference(desc, **{**held, name: x + s * step * along}) for s in (1, -1)]
            difference = float(((ends[0] - ends[1]) / (2 * step) * grad).sum())
            assert derived.shape == x.shape
            assert abs(difference - float((derived * along).sum())) <= 1e-6 * max(1.0, abs(difference)), (name, device)
    for part in fused.gradient(*arrays, device="ptx"):
        assert all(one.share <= 1 for one in part.plan.verify().outputs)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_row_gradients_in_torch(device: str) -> None:
    torch = pytest.importorskip("torch")
    made = torch.Generator().manual_seed(0)
    x, y = (torch.randn(4, 33, generator=made, requires_grad=True) for _ in "xy")

    def reference(x: Any, y: Any) -> Any:
        return x * y, x.mean(-1), (x - y).square().sum(-1).sqrt(), y.amin(-1) - 1

    grads = [torch.autograd.grad(sum((p * p).sum() for p in outs), (x, y))
             for outs in (moments(x, y, device=device), reference(x, y))]  # fmt: skip
    for got, want in zip(*grads):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_row_gradients_in_jax() -> None:
    jax = pytest.importorskip("jax")
    x = np.random.default_rng(7).standard_normal((4, 33)).astype(np.float32)

    def own(x: Any) -> Any:
        return (moments(x, x * 2, device="ptx")[1] ** 2).sum() + (softmax(x, 2.0, device="ptx") ** 2).sum()

    def reference(x: Any) -> Any:
        return (x.mean(-1) ** 2).sum() + (jax.nn.softmax(x * 2, -1) ** 2).sum()

    got, want = (jax.jit(jax.grad(f))(x) for f in (own, reference))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)

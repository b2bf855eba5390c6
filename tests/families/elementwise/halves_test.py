"""Gates of one array, whose halves along an axis are the two inputs; and how arguments of rows are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.elementwise._row import ROWS

COVERS = ("glu", "reglu", "silu_mul", "geglu", "geglu_tanh", "glu_backward")
GATES = [name for name, row in ROWS.items() if row.halves]
RNG = np.random.default_rng(3)
X = RNG.standard_normal((3, 8, 10)).astype(np.float32)


def halves(x: Any, axis: int) -> list[Any]:
    return np.split(x, 2, axis)


def test_halves_are_taken_by_five_gates() -> None:
    assert sorted(GATES) == sorted(COVERS[:5])
    assert bp.swiglu is bp.silu_mul


@pytest.mark.parametrize("op", COVERS[:5])
def test_halves_give_the_bits_of_two_arrays(op: str) -> None:
    gate = getattr(bp, op)
    for axis in (-1, 1, -2):
        wanted = gate(*map(np.ascontiguousarray, halves(X, axis)), device="ptx")
        assert np.array_equal(gate(X, axis=axis, device="ptx"), wanted)
    assert np.array_equal(gate(X, device="ptx"), gate(*halves(X, -1), device="ptx"))


def test_halves_are_views_and_write_out() -> None:
    desc, out = bp.glu.of(X), np.zeros((3, 8, 5), np.float32)
    assert desc.x1_strides == desc.x2_strides == (80, 10, 1)
    assert bp.glu(X, out=out, device="ptx") is out
    assert np.array_equal(out, bp.glu(*halves(X, -1), device="ptx"))
    permuted = X.transpose(2, 0, 1)[::-1]
    assert np.array_equal(
        bp.glu(permuted, axis=0, device="ptx"), bp.glu(*map(np.copy, halves(permuted, 0)), device="ptx")
    )


def test_halves_gradient_fills_one_array() -> None:
    """Both gradients are written where they belong: no concatenation."""
    grad, whole = RNG.standard_normal((3, 8, 5)).astype(np.float32), np.full_like(X, np.nan)
    (x, y), (grad_x, grad_y) = halves(X, -1), halves(whole, -1)
    bp.glu_backward(grad, x, y, grad_x=grad_x, grad_y=grad_y, device="ptx")
    first, second = bp.glu_backward(grad, np.ascontiguousarray(x), np.ascontiguousarray(y), device="ptx")
    assert np.array_equal(whole, np.concatenate([first, second], -1))


def test_halves_match_torch_and_its_gradient() -> None:
    torch = pytest.importorskip("torch")
    for axis in (-1, 1):
        mine, own = (torch.tensor(X, requires_grad=True) for _ in range(2))
        wanted = torch.nn.functional.glu(own, axis)
        got = bp.glu(mine, axis=axis, device="ptx")
        weight = torch.arange(wanted.numel(), dtype=torch.float32).reshape(wanted.shape) / 64 - 1
        (got * weight).sum().backward()
        (wanted * weight).sum().backward()
        assert torch.allclose(got, wanted, atol=1e-6)
        assert torch.allclose(mine.grad, own.grad, atol=1e-5)


def test_halves_are_taken_before_torch_compiles() -> None:
    """The custom op has two inputs: its gradients have their shapes."""
    torch = pytest.importorskip("torch")
    mine, own = (torch.tensor(X, requires_grad=True) for _ in range(2))
    compiled = torch.compile(lambda t: bp.glu(2 * t, axis=1, device="cpu").sum(), backend="aot_eager", fullgraph=True)
    compiled(mine).backward()
    torch.nn.functional.glu(2 * own, 1).sum().backward()
    assert torch.allclose(mine.grad, own.grad, atol=1e-5)


def test_halves_match_jax_and_its_gradient() -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(X)
    got = jax.grad(lambda t: bp.glu(t, axis=1, device="cpu").sum())(x)
    assert np.allclose(got, jax.grad(lambda t: jax.nn.glu(t, 1).sum())(x), atol=1e-5)


@pytest.mark.parametrize(
    ("args", "named", "said"),
    [
        ((X, X), {"axis": 1}, "axis=1 is given beside x and y"),
        ((X,), {"axis": 3}, "pass one from -3 to 2"),
        ((X[:, :7],), {"axis": 1}, r"\(3, 7, 10\) has 7 elements along axis 1, which are not two halves"),
        ((X,), {"axis": 1.5}, "axis must be an int, got 1.5"),
        ((X,), {"axis": True}, "axis must be an int, got True"),
        ((X[0, 0, 0],), {}, "has 0 axes"),
        (([1, 2],), {}, "x: expected an array"),
        ((memoryview(X),), {}, "slicing of memoryview failed .* pass x and y as two arrays"),
        ((X, X, X), {}, "takes 2 positional arguments"),
    ],
)
def test_halves_refuse_with_the_fix(args: tuple[Any, ...], named: dict[str, Any], said: str) -> None:
    out = np.zeros((3, 8, 5), np.float32)
    with pytest.raises(bp.BaracudaError, match=said):
        bp.glu(*args, **named, out=out, device="cpu")
    assert not out.any()


@pytest.mark.parametrize(
    ("op", "args", "named", "said"),
    [
        ("clamp", (X, 1), {"min": 1.5}, r"clamp\(\) got min twice: it takes x, min, max"),
        ("clamp", (), {"max": 1.5}, r"clamp\(\) misses x"),
        ("leaky_relu", (X, 0.2, 3), {}, r"takes 2 positional arguments \(x, negative_slope\), and 3 were given"),
        ("isclose", (X,), {"rtol": 1.0}, r"isclose\(\) misses x2"),
        ("neg", (X,), {"inplace": True}, "pass the input as out="),
    ],
)
def test_arguments_of_rows_are_refused_by_name(op: str, args: Any, named: dict[str, Any], said: str) -> None:
    with pytest.raises(bp.OperandTypeError, match=said):
        getattr(bp, op)(*args, **named, device="cpu")

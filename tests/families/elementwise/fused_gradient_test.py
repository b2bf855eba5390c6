"""Gradients of fused functions: against differences of the oracle in long double, within their bound, in torch and in JAX."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.elementwise._row import ROWS
from baracuda_py.plan import all_ops
from baracuda_py.types import ElementKind

from .fused_test import KINDS, Program, of_own_kind, traced

COVERS = ()
Array = Any
STEP = 1e-5


def agrees(fused: Any, arrays: list[Array], relative: float = 1e-6) -> None:
    """The gradients of f64 arrays are what differences of the forward oracle say, along a random direction of each input."""
    rng, desc = np.random.default_rng(9), fused.of(*arrays)
    held = {f"x{i + 1}": x for i, x in enumerate(arrays)}
    grad = rng.standard_normal(desc.out_shape)
    found: dict[str, Array] = {}
    for part in fused.gradient(*arrays, device="cpu"):
        given = {f"x{i + 1}": grad if name == "grad" else held[name] for i, name in enumerate(part.inputs)}
        made = type(part.plan).reference(part.plan.desc, **given)
        for names, each in zip(part.outputs, made if len(part.outputs) > 1 else (made,)):
            found |= dict.fromkeys(names, each)
    for name, x in held.items():
        along = rng.standard_normal(x.shape)
        ends = [bp.FusedPlan.reference(desc, **{**held, name: x + sign * STEP * along}) for sign in (1, -1)]
        differences = (ends[0] - ends[1]) / (2 * STEP) * grad
        derived = found[name] * np.broadcast_to(along, grad.shape) * 1.0 if name in found else np.zeros_like(grad)
        finite = np.isfinite(differences) & np.isfinite(derived)
        assert finite.mean() > 0.5
        size = np.abs(differences).max(initial=1e-3, where=finite)
        error = np.abs(differences - derived).max(initial=0, where=finite)
        assert error <= relative * size, (name, float(error), float(size), str(desc.graph))


@pytest.mark.parametrize("seed", range(40))
def test_gradient_of_graphs_by_differences(seed: int) -> None:
    program = Program(seed, (bp.F64,))
    fused = traced(program, len(program.arrays))
    agrees(fused, program.arrays, 1e-4)


DIFFERENTIABLE = [
    n
    for n in all_ops()
    if n in ROWS and n != "cast" and set(ROWS[n].arguments) == {*ROWS[n].gradient, *ROWS[n].of_own_kind}
]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_of_every_row(name: str) -> None:
    """By differences, and by the kernel on the host within the bound."""
    row, rng = ROWS[name], np.random.default_rng(4)
    shift = 1.5 if name == "acosh" else 0.0
    arrays = [rng.uniform(0.15, 0.85, (3, 17)) + shift for _ in row.arguments]

    def function(*inputs: Any) -> Any:
        given = [of_own_kind(row, argument, x, 0.5) for x, argument in zip(inputs, row.arguments)]
        return getattr(bp, name)(*given) * 2

    fused = bp.fuse(function)
    if not row.of_own_kind:
        agrees(fused, arrays)
    for kind in ("f64", "f32", "bf16"):
        for part in fused.gradient(*(x.astype(ElementKind.of(kind).dtype) for x in arrays), device="cpu"):
            assert part.plan.verify().outputs[0].share <= 1


@pytest.mark.parametrize("kinds", [name for name in KINDS if name != "i32"])
def test_gradient_kernels_hold_their_bound(kinds: str) -> None:
    for seed in (*range(12), 40):
        program = Program(seed, KINDS[kinds])
        fused = traced(program, len(program.arrays))
        for part in fused.gradient(*program.arrays, device="ptx" if seed == 40 else "cpu"):
            held = {f"x{i + 1}": x for i, x in enumerate(program.arrays)}
            grad = np.random.default_rng(seed).standard_normal((6, 17)).astype(part.plan.desc.elements[-1].dtype)
            given = {f"x{i + 1}": grad if name == "grad" else held[name] for i, name in enumerate(part.inputs)}
            assert all(one.share <= 1 for one in part.plan.verify(**given).outputs)


@bp.fuse
def gate(x: Any, y: Any, b: Any, scale: float) -> Any:
    return bp.gelu(x + b) * bp.silu(y) * scale


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_gradient_arguments_and_broadcasts(device: str) -> None:
    rng = np.random.default_rng(1)
    x, y, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((5, 6, 8), (6, 1), (8,)))
    grad = rng.standard_normal((5, 6, 8)).astype(np.float32)
    found = gate.backward(grad, x, y, b, 0.5, device=device)
    again = gate.backward(grad, x, y, b, 0.5, device=device)
    assert [None if g is None else g.shape for g in found] == [x.shape, y.shape, b.shape, None]
    assert all(np.array_equal(one, other) for one, other in zip(found[:3], again))
    (part,) = gate.gradient(x, y, b, 0.5, device=device)
    assert part.outputs == (("x1", "x3"), ("x2",)) and part.inputs == ("x1", "x2", "x3", "x4", "grad")
    whole = part.plan.run(x1=x, x2=y, x3=b, x4=0.5, x5=grad)
    np.testing.assert_array_equal(found[0], whole[0])
    np.testing.assert_allclose(found[2], whole[0].astype(np.float64).sum((0, 1)), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1], whole[1].astype(np.float64).sum((0, 2))[:, None], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_gradient_of_several_results_and_kinds(device: str) -> None:
    """A kernel for each kind of argument; integers, masks and what flows through comparisons alone have none."""
    rng = np.random.default_rng(2)
    x, h = rng.standard_normal(40).astype(np.float32), rng.standard_normal(40).astype(np.float16)
    i, m = rng.integers(-5, 5, 40).astype(np.int8), rng.standard_normal(40).astype(np.float32)
    fused = bp.fuse(lambda x, h, i, m: (x * h, bp.where(m > 0, x, h) + i, bp.cast(bp.cast(x, "bf16"), "f32")))
    one, two, three = (rng.standard_normal(40).astype(np.float32) for _ in range(3))
    grads = fused.backward((one, two, three), x, h, i, m, device=device)
    assert grads[2] is None and grads[3] is None
    assert grads[0].dtype == np.float32 and grads[1].dtype == np.float16
    np.testing.assert_allclose(grads[0], one * h + np.where(m > 0, two, 0) + three, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(grads[1], one * x + np.where(m > 0, 0, two), rtol=2e-3, atol=2e-3)
    assert len(fused.gradient(x, h, i, m, device=device)) == 2


def test_gradient_from_two_threads() -> None:
    x = np.linspace(-2, 2, 48, dtype=np.float32)
    fused = bp.fuse(lambda x, s: bp.tanh(x) * s)
    expected = [fused.backward(x, x, float(s), device="cpu")[0] for s in range(8)]
    wrong, barrier = list[int](), threading.Barrier(2)

    def work(first: int) -> None:
        other = bp.fuse(lambda x, s: bp.tanh(x) * s)
        barrier.wait()
        for s in range(first, 8, 2):
            if not np.array_equal(other.backward(x, x, float(s), device="cpu")[0], expected[s]):
                wrong.append(s)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    assert not wrong


X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: bp.fuse(lambda x: bp.floor(x) * x).backward(X, X), "floor has no gradient with respect to x"),
        (lambda: bp.fuse(lambda x: x > 0).backward(X, X), "the results are of bool"),
        (lambda: gate.backward(X[0], X, X, X, 1.0), r"grad is f32 of shape \(3,\)"),
        (lambda: gate.backward(X.astype(np.float16), X, X, X, 1.0), "grad is f16"),
        (lambda: bp.fuse(lambda x: (x * 2, x * x)).backward(X, X), "grad1 is not given"),
        (lambda: gate.backward(X, X, X), "missing a required argument"),
        (lambda: bp.fuse(lambda *x: tuple(x[i] * x[i + 1] for i in range(8))).backward((X,) * 8, *[X] * 9),
         "the gradient takes 17 inputs"),
    ],
)  # fmt: skip
def test_gradient_refuses(call: Callable[[], Any], said: str) -> None:
    with bp.device("cpu"), pytest.raises(bp.BaracudaError, match=said) as caught:
        call()
    assert caught.value.fix


# ---- frameworks ----------------------------------------------------------------------------------------------------------


def torch_gate(torch: Any, x: Any, y: Any, b: Any) -> Any:
    return torch.nn.functional.gelu(x + b) * torch.nn.functional.silu(y) * 0.5


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_gradient_is_recorded_by_torch(device: str) -> None:
    torch = pytest.importorskip("torch")
    made = torch.Generator().manual_seed(0)
    x, y, b = (torch.randn(shape, generator=made, requires_grad=True) for shape in ((6, 34), (6, 34), (34,)))
    x = torch.nn.Parameter(x.detach().t().contiguous().t())  # not in C order
    for needing in ((x, y, b), (b,)):
        for p in (x, y, b):
            p.grad = None
            p.requires_grad_(any(p is q for q in needing))
        gate(x, y, b, 0.5, device=device).sum().backward()  # an expanded gradient
        got = [p.grad for p in (x, y, b)]
        assert all((g is None) != p.requires_grad for g, p in zip(got, (x, y, b)))
        want = torch.autograd.grad(torch_gate(torch, x, y, b).sum(), needing)
        for one, other in zip([g for g in got if g is not None], want):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_gradient_refusals_in_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(2, 3, requires_grad=True)
    with bp.device("cpu"):
        with pytest.raises(bp.UnsupportedError, match="out was passed"):
            gate(x, x, x, 1.0, out=torch.empty(2, 3))
        with pytest.raises(bp.UnsupportedError, match="no gradient of its own"):
            torch.autograd.grad(gate(x, x, x, 1.0).sum(), x, create_graph=True)
        with pytest.raises(bp.UnsupportedError, match=r"torch\.func"):
            torch.func.grad(lambda x: gate(x, x, x, 1.0).sum())(x.detach())
        with pytest.raises(bp.UnsupportedError, match="has none of its own"):
            gate.backward(x, x, x, x, 1.0)
        assert not bp.fuse(lambda x: x > 0)(x).requires_grad
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert gate(x, x, x, 1.0).dtype is torch.float32


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which Dynamo reads of a tensor between two graphs
def test_gradient_breaks_graphs_of_torch_compile() -> None:
    torch = pytest.importorskip("torch")
    x = torch.linspace(-1, 1, 12, requires_grad=True)

    def function(x: Any) -> Any:
        return gate(x * 2, x, x, 0.5, device="cpu") + 1

    compiled = torch.compile(function, backend="eager")
    (got,), (want,) = (torch.autograd.grad(made(x).sum(), x) for made in (compiled, function))
    assert torch.equal(got, want)
    with pytest.raises(Exception, match="a fused function of baracuda_py is a kernel"):
        torch.compile(lambda x: gate(x, x, x, 0.5), backend="eager", fullgraph=True)(x)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_gradient_in_jax(device: str) -> None:
    jax = pytest.importorskip("jax")
    rng = np.random.default_rng(3)
    x, y, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 34), (6, 34), (34,)))

    def own(x: Any, y: Any, b: Any) -> Any:
        return (gate(x, y, b, 0.5, device=device) ** 2).sum()

    def reference(x: Any, y: Any, b: Any) -> Any:
        return ((jax.nn.gelu(x + b, approximate=False) * jax.nn.silu(y) * 0.5) ** 2).sum()

    got, want = (jax.jit(jax.value_and_grad(f, (0, 1, 2)))(x, y, b) for f in (own, reference))
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    several = bp.fuse(lambda x, m: (x * 2, bp.where(m > 0, x, 0)))
    (of_x, of_m) = jax.jit(jax.grad(lambda x, m: sum(several(x, m, device=device)).sum(), (0, 1)))(x, y)
    np.testing.assert_array_equal(of_x, 2 + (y > 0))
    assert not np.any(of_m)
    with pytest.raises(bp.OperandTypeError, match="immutable"):
        jax.jit(lambda x: gate(x, x, x, 0.5, out=x))(x)

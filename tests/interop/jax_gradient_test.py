"""Gradients, vmap, donation and sharding of traced calls, against JAX's own operators."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

jax = pytest.importorskip("jax")
jnp = jax.numpy

from jax.test_util import check_grads  # noqa: E402

from baracuda_py.interop.jax.call import signature_of  # noqa: E402
from baracuda_py.plan.registry import all_ops  # noqa: E402

from .arrays import calls_of  # noqa: E402

DIFFERENTIABLE = tuple(name for name, op in all_ops().items() if op.gradient is not None)
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def in_64_bits() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def array(*shape: int, dtype: str = "float64") -> Any:
    return jnp.asarray(RNG.standard_normal(shape), dtype)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_jax_gradient_of_samples_reaches_every_operand(name: str) -> None:
    op, signature = all_ops()[name], signature_of(name)
    assert op.gradient is not None
    for given, _ in calls_of(name, 60):
        own = {
            n: jnp.asarray(x)
            for n, x in given.items()
            if isinstance(x, np.ndarray)
            and op.arguments.get(n, n) in (*op.gradient.gradients, *op.gradient.unchanged)
            and jnp.issubdtype(x.dtype, jnp.floating)
        }
        if not own:
            continue

        def loss(own: dict[str, Any], given: dict[str, Any] = given) -> Any:
            made = signature.call({**given, **own})
            return (made[0] if isinstance(made, tuple) else made).astype(jnp.float64).sum()

        found = jax.jit(jax.grad(loss))(own)
        assert {n: (x.shape, x.dtype) for n, x in found.items()} == {n: (x.shape, x.dtype) for n, x in own.items()}
        return
    raise AssertionError(f"no sample of {name} has a gradient")


CHECKED: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "matmul": (lambda a, b: bp.matmul(a, b, alpha=0.5), ((4, 6), (6, 5))),
    "matmul activation": (
        lambda a, b, bias, c, r: bp.matmul(a, b, bias=bias, c=c, beta=2.0, residual=r, activation="gelu_tanh"),
        ((4, 6), (6, 5), (5,), (4, 5), (4, 1)),
    ),
    "matmul silu": (lambda a, b: bp.matmul(a, b, activation="silu"), ((4, 6), (6, 5))),
    "matmul shared weight": (lambda a, b: bp.matmul(a, b), ((2, 3, 4, 6), (6, 5))),
    "matmul broadcast": (lambda a, b: bp.matmul(a, b), ((2, 1, 4, 6), (3, 6, 5))),
    "matmul vectors": (lambda a, b: bp.matmul(a, b), ((6,), (2, 6, 5))),
    "join concatenate": (lambda a, b: bp.concatenate([a, b, a], axis=-1), ((3, 2), (3, 1))),
    "join stack": (lambda a, b: bp.stack([a, b], axis=1), ((3, 2), (3, 2))),
    "pad reflect": (lambda x: bp.pad(x, ((0, 1), (2, 5)), "reflect"), ((2, 4),)),
    "softmax": (lambda x: bp.softmax(x, axis=0), ((4, 6),)),
    "rms_norm residual": (lambda x, w, r: bp.rms_norm(x, w, residual=r).out, ((4, 6), (6,), (4, 6))),
    "layer_norm": (lambda x, w, b: bp.layer_norm(x, w, b), ((4, 6), (6,), (6,))),
    "group_norm": (lambda x, w, b: bp.group_norm(x, 2, w, b), ((2, 4, 5), (4,), (4,))),
    "sparsemax": (lambda x: bp.sparsemax(x, axis=0), ((4, 6),)),
    "entmax15": (lambda x: bp.entmax15(x), ((4, 6),)),
    "batch_norm_inference": (
        lambda x, w, b: bp.batch_norm_inference(x, jnp.zeros_like(w), jnp.full_like(w, 2.0), w, b),
        ((3, 2, 4), (2,), (2,)),
    ),
    "batch_norm": (lambda x, w, b: bp.batch_norm(x, weight=w, bias=b), ((3, 2, 4), (2,), (2,))),
    "instance_norm bias": (lambda x, b: bp.instance_norm(x, bias=b), ((2, 3, 4), (3,))),
    "mse_loss target": (lambda x, t: bp.mse_loss(x, t), ((4, 6), (4, 6))),
    "gaussian_nll_loss target": (lambda x, t: bp.gaussian_nll_loss(x, t, jnp.full_like(x, 0.7)), ((4, 6), (4, 6))),
    "rope": (lambda x, k: bp.rope(x, k=k, base=100.0, style="interleaved")[:2], ((1, 2, 3, 4), (1, 1, 3, 4))),
    "attention": (lambda q, k, v: bp.attention(q, k, v, causal=True), ((1, 4, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4))),
}  # fmt: skip


@pytest.mark.parametrize("case", CHECKED)
def test_jax_gradient_is_that_of_differences(case: str) -> None:
    function, shapes = CHECKED[case]
    check_grads(jax.jit(function), tuple(array(*shape) for shape in shapes), order=1, modes=["rev"])


LIKE_JAX: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "matmul": (lambda a, b: bp.matmul(a, b), jnp.matmul, ((5, 8), (8, 3))),
    "matmul batch": (lambda a, b: bp.matmul(a, b), jnp.matmul, ((2, 5, 8), (2, 8, 3))),
    "softmax": (lambda x: bp.softmax(x), lambda x: jax.nn.softmax(x, -1), ((5, 8),)),
    "softmax axis": (lambda x: bp.softmax(x, axis=0), lambda x: jax.nn.softmax(x, 0), ((5, 8),)),
    "sum": (lambda x: bp.sum(x, axis=0), lambda x: x.sum(0), ((5, 8),)),
    "gelu": (lambda x: bp.gelu(x), lambda x: jax.nn.gelu(x, approximate=False), ((5, 8),)),
    "multiply": (lambda x, y: bp.multiply(x, y), jnp.multiply, ((5, 8), (8,))),
}  # fmt: skip


@pytest.mark.parametrize("name", LIKE_JAX)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_jax_vmap_and_gradient_are_like_jax(name: str, dtype: str) -> None:
    ours, theirs, shapes = LIKE_JAX[name]
    arrays = tuple(array(3, *shape, dtype=dtype) for shape in shapes)
    near = {"rtol": 1e-4, "atol": 1e-5} if dtype == "float32" else {"rtol": 1e-10, "atol": 1e-12}
    for batched in (tuple(0 for _ in arrays), (0, *(None for _ in arrays[1:]))):
        own = tuple(x if axis == 0 else x[0] for x, axis in zip(arrays, batched))
        got, want = (jax.jit(jax.vmap(f, batched))(*own) for f in (ours, theirs))
        np.testing.assert_allclose(got, want, **near)
    if all_ops()[name.split()[0]].gradient is None:
        return
    for wrap in (jax.grad, lambda f: jax.vmap(jax.grad(f))):
        own = arrays if wrap is not jax.grad else tuple(x[0] for x in arrays)
        got, want = (wrap(lambda *a, f=f: (f(*a) ** 2).sum())(*own) for f in (ours, theirs))
        np.testing.assert_allclose(got, want, **near)


def test_jax_vmap_is_one_call_where_an_axis_is_free() -> None:
    x, w = array(3, 5, 8), array(8, 3)
    for function, loops in (
        (lambda x: bp.gelu(x), 0),
        (lambda x: bp.softmax(x, axis=0), 0),
        (lambda x: bp.matmul(x, w), 0),
        (lambda x: bp.rms_norm(x), 0),
        (lambda x: bp.sum(x), 1),
    ):
        assert str(jax.make_jaxpr(jax.vmap(function))(x)).count("scan[") == loops
    moved = jax.vmap(lambda x: bp.softmax(x, axis=0), in_axes=2, out_axes=1)(x)
    np.testing.assert_array_equal(moved[:, 4], bp.softmax(np.asarray(x[:, :, 4]), axis=0, device="cpu"))


def test_jax_gradient_through_a_layer_equals_jax() -> None:
    x, w, g = array(4, 8), array(8, 8), array(8)

    def ours(w: Any, g: Any) -> Any:
        return (bp.rms_norm(bp.matmul(x, w, activation="gelu", bias=g), g, eps=1e-6) ** 2).mean()

    def theirs(w: Any, g: Any) -> Any:
        h = jax.nn.gelu(x @ w + g, approximate=False)
        return ((h * jax.lax.rsqrt((h * h).mean(-1, keepdims=True) + 1e-6) * g) ** 2).mean()

    for got, want in zip(jax.jit(jax.grad(ours, (0, 1)))(w, g), jax.grad(theirs, (0, 1))(w, g)):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(jax.grad(jax.checkpoint(ours))(w, g), jax.grad(theirs)(w, g), rtol=1e-9, atol=1e-12)


def test_jax_statistics_are_constants() -> None:
    made = jax.grad(lambda x: bp.rms_norm(x, stats=True).rstd.sum())(array(4, 6))
    assert not np.asarray(made).any()


# ---- in place --------------------------------------------------------------------------------------------------------------


def test_jax_writes_are_functional_and_donated() -> None:
    source = array(1, 6)

    def put(dest: Any, source: Any) -> Any:
        return bp.write_slice(dest, source, [(2, 3), (0, 6)])

    dest = array(4, 6)
    before = np.array(dest)
    made = jax.jit(put)(dest, source)
    assert np.array_equal(dest, before), "an array of JAX keeps its values"
    before[2] = source
    assert np.array_equal(made, before)
    text = jax.jit(put, donate_argnums=0).lower(dest, source).as_text()
    assert "tf.aliasing_output = 0" in text
    assert "output_operand_alias" in text
    donated = jax.jit(put, donate_argnums=0)(dest, source)
    assert dest.is_deleted()
    assert np.array_equal(donated, before)


def test_jax_kv_append_returns_both_caches() -> None:
    cache, new = jnp.zeros((1, 2, 8, 4)), array(1, 2, 1, 4)
    made = jax.jit(lambda k, v, x, p: bp.kv_append(k, v, x, 2 * x, p))(cache, cache, new, jnp.asarray([3], jnp.int32))
    assert np.array_equal(made[0][:, :, 3:4], new)
    assert np.array_equal(made[1][:, :, 3:4], 2 * new)
    assert float(made[0].sum()) == pytest.approx(float(new.sum()))
    assert not np.asarray(cache).any()


# ---- several devices -------------------------------------------------------------------------------------------------------

SHARDED = """
import jax, numpy as np, baracuda_py as bp
from jax.sharding import Mesh, PartitionSpec as P
assert len(jax.devices()) == 2
mesh = Mesh(np.array(jax.devices()), "i")
x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
w = np.random.default_rng(1).standard_normal((16, 4)).astype(np.float32)
def layer(x, w):
    return jax.lax.psum(bp.matmul(x, w).sum(0), "i")
sharded = jax.jit(jax.shard_map(layer, mesh=mesh, in_specs=(P("i"), P()), out_specs=P()))
np.testing.assert_allclose(sharded(x, w), (x @ w).sum(0), rtol=1e-5, atol=1e-5)
rows = jax.jit(jax.shard_map(lambda x: bp.softmax(x), mesh=mesh, in_specs=P("i"), out_specs=P("i")))
np.testing.assert_array_equal(rows(x), bp.softmax(x, device="cpu"))
assert len(rows(x).addressable_shards) == 2
grads = jax.jit(jax.grad(lambda x, w: (sharded(x, w) ** 2).sum(), (0, 1)))(x, w)
wants = jax.grad(lambda x, w: ((x @ w).sum(0) ** 2).sum(), (0, 1))(x, w)
for got, want in zip(grads, wants):
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
grad = jax.jit(jax.grad(lambda x: (rows(x) ** 2).sum()))(x)
want = jax.grad(lambda x: (jax.nn.softmax(x, -1) ** 2).sum())(x)
np.testing.assert_allclose(grad, want, rtol=1e-4, atol=1e-6)

# and without jax.jit
for inside in (bp.softmax, jax.vmap(bp.softmax)):
    rows = jax.shard_map(inside, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    np.testing.assert_array_equal(rows(x), bp.softmax(x, device="cpu"))
    np.testing.assert_allclose(jax.grad(lambda x: (rows(x) ** 2).sum())(x), want, rtol=1e-4, atol=1e-6)
product = jax.shard_map(bp.matmul, mesh=mesh, in_specs=(P("i"), P()), out_specs=P("i"))
np.testing.assert_allclose(product(x, w), x @ w, rtol=1e-5, atol=1e-5)
"""


def test_jax_shard_map_runs_on_two_devices() -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", SHARDED], env={**os.environ, **flags}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]

"""Every op under jax.jit on the CPU: abstract values, results, and the custom call that carries it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

jax = pytest.importorskip("jax")
jnp = jax.numpy

from baracuda_py.interop.jax.call import signature_of  # noqa: E402
from baracuda_py.interop.jax.handler import TARGET  # noqa: E402
from baracuda_py.plan.registry import all_ops  # noqa: E402

from .arrays import calls_of, copied  # noqa: E402

OPS = tuple(all_ops())


def as_jitted(name: str, given: dict[str, Any], wrap: Any = lambda f: f) -> tuple[Any, tuple[Any, ...]]:
    """A function of the arrays among the arguments that calls the op, and these arrays."""
    signature = signature_of(name)
    held = {n: x for n, x in given.items() if isinstance(x, np.ndarray)}
    others = {n: x for n, x in given.items() if n not in held}

    def call(*arrays: Any) -> Any:
        made = signature.call({**dict(zip(held, arrays)), **others})
        return made if isinstance(made, tuple) else (made,)

    return wrap(call), tuple(held.values())


@pytest.mark.parametrize("name", OPS)
def test_jax_ops_give_what_functions_give(name: str) -> None:
    calls = list(calls_of(name, 1))
    assert calls, "no sample of the op is one that JAX can express"
    with jax.enable_x64(True):
        for given, wanted in calls:
            call, arrays = as_jitted(name, copied(signature_of(name), given), jax.jit)
            shapes = jax.eval_shape(call, *arrays)
            made = call(*map(jnp.asarray, arrays))
            assert len(made) == len(shapes) == len(wanted)
            for got, shape, want in zip(made, shapes, wanted):
                assert (got.shape, got.dtype) == (shape.shape, shape.dtype) == (want.shape, want.dtype)
                if name != "nonzero" or not want.ndim:  # its rows behind the count mean nothing
                    assert np.asarray(got).tobytes() == want.tobytes()


def test_jax_results_are_named_tuples() -> None:
    x = jnp.ones((4, 8))
    made = jax.jit(lambda x: bp.rms_norm(x, stats=True))(x)
    assert type(made)._fields == ("out", "rstd")
    assert isinstance(jax.jit(lambda x: bp.rms_norm(x))(x), jax.Array)


def test_jax_call_is_one_custom_call() -> None:
    text = jax.jit(bp.gelu).lower(jnp.ones(8)).as_text()
    assert text.count("stablehlo.custom_call") == 1
    assert f"@{TARGET}" in text


def test_jax_whole_numbers_keep_their_width() -> None:
    made = jax.jit(lambda x: bp.argmax(x, 1))(jnp.asarray([[1.0, 3.0, 2.0]]))
    assert made.tolist() == [1]
    assert (made + 1).tolist() == [2]


def test_jax_numpy_arrays_and_numbers_mix_with_tracers() -> None:
    w = np.ones((3, 2), np.float32)
    made = jax.jit(lambda x: bp.multiply(bp.matmul(x, w, alpha=2.0), 0.5))(jnp.ones((4, 3)))
    assert (np.asarray(made) == 3).all()


def test_jax_rope_makes_its_frequencies() -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 8)).astype(np.float32)
    for scaling in (None, bp.RopeScaling.linear(8, 2.0)):
        made = jax.jit(lambda x, scaling=scaling: bp.rope(x, scaling=scaling))(x)
        np.testing.assert_array_equal(made, bp.rope(x, scaling=scaling, device="cpu"))


def test_jax_ptx_device_runs_the_kernels() -> None:
    x = np.random.default_rng(0).standard_normal((4, 33)).astype(np.float32)
    with bp.device("ptx"):
        made = jax.jit(lambda x: bp.softmax(x))(x)
        wanted = bp.softmax(x)
    assert np.asarray(made).tobytes() == wanted.tobytes()
    assert np.asarray(made).tobytes() != bp.softmax(x, device="cpu").tobytes()


def test_jax_preference_reaches_the_selection() -> None:
    with pytest.raises(bp.UnsupportedError, match="nonsense"):
        jax.jit(lambda x: bp.softmax(x, pref=bp.PlanPreference(variant="nonsense")))(jnp.ones((4, 8)))


def test_jax_is_imported_by_nobody_but_the_caller() -> None:
    code = (
        "import sys, numpy as np, baracuda_py as bp\n"
        "bp.matmul(np.ones((2, 3)), np.ones((3, 2)), device='cpu')\n"
        "assert 'jax' not in sys.modules and 'baracuda_py.interop' not in sys.modules\n"
        "import jax\n"
        "bp.softmax(jax.numpy.ones((2, 3)), device='cpu')\n"
        "assert 'baracuda_py.interop.jax' not in sys.modules, 'a call that JAX does not trace registers nothing'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

"""Steps by norms of arrays: 200 of them beside the papers' formulas in float64, arrays of several chunks, and norms of 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample

from ...gauntlet import Problem, served

COVERS = ("lamb_update", "lars_update")
SHAPES = ((37,), (5, 7), (), (0, 3), (3, 1, 2), (2, 1100))
STEPS = 200
EMULATED = 2  # of these, the first

Array = np.ndarray[Any, Any]


def _normal(seed: int, dtype: Any = np.float64) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.standard_normal(shape), dtype) for shape in SHAPES]


def _zeros(like: list[Array]) -> list[Array]:
    return [np.zeros_like(x) for x in like]


def _share(p: Array, u: Array, coefficient: float = 1.0, eps: float = 0.0) -> Any:
    norm, other = np.linalg.norm(p.ravel()), np.linalg.norm(u.ravel())
    return coefficient * norm / (other + eps) if norm and other else 1.0


def _lamb(p: Array, g: Array, states: list[Array], step: int, *, lr: float, weight_decay: float) -> None:
    m, v = states
    m[...], v[...] = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    u = m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-6) + weight_decay * p
    p[...] -= lr * _share(p, u) * u


def _lars(
    p: Array, g: Array, states: list[Array], step: int, *, lr: float, weight_decay: float = 0.0,  # noqa: ARG001
    trust_coefficient: float = 1e-3, eps: float = 0.0, nesterov: bool = False,
) -> None:  # fmt: skip
    (buffer,), u = states, g + weight_decay * p
    moved = lr * _share(p, u, trust_coefficient, eps) * u
    buffer[...] = 0.9 * buffer + moved
    p[...] -= moved + 0.9 * buffer if nesterov else buffer


@pytest.mark.parametrize(
    ("name", "formula", "count", "options"),
    [
        ("lamb", _lamb, 2, {"lr": 0.01, "weight_decay": 0.1}),
        ("lamb", _lamb, 2, {"lr": 0.1, "weight_decay": 0.0}),
        ("lars", _lars, 1, {"lr": 0.5, "weight_decay": 0.1}),
        ("lars", _lars, 1, {"lr": 0.1, "trust_coefficient": 0.25, "eps": 0.5, "nesterov": True}),
    ],
    ids=("lamb", "lamb-undecayed", "lars", "lars-nesterov"),
)
def test_normed_rules_take_their_papers_steps(
    name: str, formula: Callable[..., None], count: int, options: dict[str, Any]
) -> None:
    params, wanted, step = _normal(1), _normal(1), np.zeros((), np.float32)
    ours, theirs = ([_zeros(params) for _ in range(count)] for _ in range(2))
    for i in range(STEPS):
        grads = _normal(100 + i)
        getattr(bp, name)(params, grads, *ours, step, device="ptx" if i < EMULATED else "cpu", **options)
        for k, p in enumerate(wanted):
            formula(p, grads[k], [held[k] for held in theirs], i + 1, **options)
    assert step == STEPS
    for got, want in zip([params, *ours], [wanted, *theirs]):
        assert all(np.allclose(a, b, rtol=1e-10, atol=1e-12) for a, b in zip(got, want))


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize(("name", "count"), [("lamb", 2), ("lars", 1)])
def test_normed_lists_are_updated_as_their_arrays(name: str, count: int, device: str) -> None:
    """Bit for bit: each array's norms are its own, and their order is that of its elements."""
    made = [[_normal(seed, np.float32) for seed in range(2)] for _ in range(2)]
    lists, alone = ([*held, *(_zeros(held[0]) for _ in range(count))] for held in made)
    getattr(bp, name)(*lists, np.zeros((), np.float32), lr=0.1, weight_decay=0.1, device=device)
    update = getattr(bp, f"{name}_update")
    for arrays in zip(*alone):
        update(*arrays, np.zeros((), np.float32), lr=0.1, weight_decay=0.1, device=device)
    for got, wanted in zip(lists, alone):
        assert [x.tobytes() for x in got] == [x.tobytes() for x in wanted]


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize(("name", "count"), [("lamb", 2), ("lars", 1)])
def test_normed_rules_of_no_arrays_count_the_step(name: str, count: int, device: str) -> None:
    step = np.zeros((), np.float32)
    getattr(bp, name)([], [], *[[]] * count, step, device=device)
    getattr(bp, name)(
        [np.zeros((0, 2), np.float32)], [None], *[[np.zeros((0, 2), np.float32)]] * count, step, device=device
    )
    assert step == 2


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_normed_ratio_of_a_norm_that_is_0_is_1(device: str) -> None:
    """And another array's norms are no part of it."""
    params = [np.zeros(3, np.float32), np.ones(5, np.float32), np.full(4, 2.0, np.float32)]
    grads = [np.ones(3, np.float32), np.zeros(5, np.float32), np.full(4, -4.0, np.float32)]
    bp.lars(params, grads, _zeros(params), np.zeros((), np.float32), lr=0.5, trust_coefficient=0.25, device=device)
    assert np.array_equal(params[0], np.full(3, -0.5))
    assert np.array_equal(params[1], np.ones(5))
    assert np.allclose(params[2], 2 + 0.5 * 0.25 * (4 / 8) * 4, rtol=1e-6)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_normed_step_of_a_bad_gradient_stays_in_its_array(device: str, bad: float) -> None:
    params = [np.ones(3, np.float32), np.ones(5, np.float32)]
    grads = [np.array([1, bad, 1], np.float32), np.ones(5, np.float32)]
    bp.lars(params, grads, _zeros(params), np.zeros((), np.float32), lr=0.5, device=device)
    assert np.isnan(params[0][1]) and np.isfinite(params[1]).all()
    assert np.isnan(params[0]).all() == np.isnan(bad)


@pytest.mark.parametrize(
    ("counts", "row"), [((0, 0, 0), 0), ((1, 1, 0), 2), ((2, 1, 1), 1), ((3, 0, 1), 2), ((2, 0, 2), 2), ((-1, 2, 0), 0)]
)
def test_normed_table_that_counts_wrongly_is_refused(counts: tuple[int, ...], row: int) -> None:
    x = [np.ones(6, np.float32) for _ in range(3)]
    rows = np.array([(2, 2 * i, 8 * i, 8 * i, 8 * i, n) for i, n in enumerate(counts)], np.int64)
    with pytest.raises(bp.InvalidProblemError, match=rf"row {row} of table counts {counts[row]} rows of its array"):
        bp.lars_update(*x, np.zeros((), np.float32), table=rows, device="ptx")
    assert all((a == 1).all() for a in x)


def test_normed_table_without_counts_is_refused() -> None:
    x = [np.ones(6, np.float32) for _ in range(3)]
    with pytest.raises(bp.InvalidProblemError, match=r"give rows of 6: .* and the rows of an array in its first"):
        bp.lars_update(*x, np.zeros((), np.float32), table=np.zeros((1, 5), np.int64), device="ptx")


def test_normed_rules_read_the_master() -> None:
    """Norms are of the parameters in f32, not of those rounded to 16 bits."""
    master = np.array([1 + 2.0**-10, 0, 0], np.float32)
    param, grad = master.astype(np.float16) * 0 + 1, np.array([0, 1, 0], np.float16)
    bp.lars_update(
        param,
        grad,
        np.zeros(3, np.float32),
        np.zeros((), np.float32),
        master=master,
        lr=1.0,
        trust_coefficient=1.0,
        device="ptx",
    )
    assert master[1] == -(1 + 2.0**-10)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_normed_parameters_are_their_masters_rounded(device: str) -> None:
    rng = np.random.default_rng(0)
    params, grads = ([rng.standard_normal(20_000 if device == "cpu" else 500).astype(np.float16)] for _ in range(2))
    masters = [x.astype(np.float32) for x in params]
    step = np.zeros((), np.float32)
    bp.lamb(params, grads, _zeros(masters), _zeros(masters), step, masters=masters, lr=0.01, device=device)
    assert np.array_equal(params[0], masters[0].astype(np.float16))


@pytest.mark.parametrize("missing", ["params", "grads", "exp_avgs", "exp_avg_sqs", "step"])
def test_lists_that_are_none_are_refused(missing: str) -> None:
    names = ("params", "grads", "exp_avgs", "exp_avg_sqs")
    given = {name: [np.ones(3, np.float32)] for name in names} | {"step": np.zeros((), np.float32)}
    with pytest.raises(bp.OperandTypeError, match=f"lamb: {missing} is None"):
        bp.lamb(**(given | {missing: None}), device="cpu")
    with pytest.raises(bp.OperandTypeError, match="grad_norm: grads is None"):
        bp.grad_norm(None, device="cpu")


def test_learning_rate_of_numpy_integers_is_a_number() -> None:
    params, grads = [np.ones(3, np.float32)], [np.ones(3, np.float32)]
    bp.lars(
        params, grads, _zeros(params), np.zeros((), np.float32), lr=np.int64(1), trust_coefficient=1.0, device="cpu"
    )
    assert np.allclose(params[0], 0)


def test_step_size_below_normal_numbers_is_within_the_bound() -> None:
    def one(x: float) -> np.ndarray[Any, Any]:
        return np.array([x], np.float32)

    given = {
        "param": one(1e-20),
        "grad": one(1e-3),
        "exp_avg": one(1e20),
        "exp_avg_sq": one(1e-6),
        "step": np.float32(1),
    }
    operands = {name: np.asarray(x) for name, x in given.items()}
    problem = Problem(get_op("lamb_update"), Sample("small", operands, {"lr": 0.1}), "ptx")
    served(problem, [problem.plan])

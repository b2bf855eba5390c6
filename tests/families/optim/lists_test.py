"""Lists of arrays as one step: any number and sizes, scalars in memory, what is refused and leaves everything as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.optim._table import rows_of

COVERS = ("adam_update", "adamw_update", "sgd_update", "gradient_norm", "gradient_clip")
LENGTHS = (3, 0, 2049, 17, 1)
Lists = list[list[np.ndarray[Any, Any]]]


def _lists(dtype: Any = np.float32, lengths: tuple[int, ...] = LENGTHS) -> Lists:
    rng = np.random.default_rng(5)
    made = [[rng.standard_normal(n).astype(dtype) for n in lengths] for _ in range(3)]
    return [*made, [np.square(x) for x in made[2]]]


def _copies(lists: Lists) -> Lists:
    return [[x.copy() for x in held] for held in lists]


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_lists_are_updated_as_their_arrays(device: str) -> None:
    """Bit for bit: where an element is in a list does not count."""
    lists, alone, step = _lists(), _lists(), np.float32(4).reshape(())
    step = np.array(step)
    assert bp.adamw(*lists, step, lr=0.1, device=device) is None
    assert step == 5
    for i in range(len(LENGTHS)):
        bp.adamw_update(*(held[i] for held in alone), np.array(4, np.float32), lr=0.1, device=device)
    for got, wanted in zip(lists, alone):
        assert [x.tobytes() for x in got] == [x.tobytes() for x in wanted]


def test_lists_take_their_scalars_from_memory() -> None:
    lists, wanted, step = _lists(), _lists(), np.zeros((), np.float32)
    scaled = [lists[0], [4 * g for g in lists[1]], *lists[2:]]
    bp.adamw(*scaled, step, lr=np.array(0.25, np.float32), grad_scale=np.array(4, np.float32), device="ptx")
    bp.adamw(*wanted, np.zeros((), np.float32), lr=0.25, device="ptx")
    assert [x.tobytes() for x in lists[0]] == [x.tobytes() for x in wanted[0]]
    before = _copies(lists)
    bp.adamw(*lists, step, found_inf=np.ones((), np.float32), device="ptx")
    assert step == 1
    assert all(np.array_equal(a, b) for old, new in zip(before, lists) for a, b in zip(old, new))


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_lists_without_gradient_or_elements(device: str) -> None:
    lists, step = _lists(), np.zeros((), np.float32)
    before = _copies(lists)
    grads: list[Any] = [None, *lists[1][1:]]
    bp.adam(lists[0], grads, *lists[2:], step, device=device)
    assert np.array_equal(before[0][0], lists[0][0])
    assert not np.array_equal(before[0][2], lists[0][2])
    bp.adam([], [], [], [], step, device=device)
    assert step == 2


def _changed(of: Callable[[Lists], None]) -> Lists:
    lists = _lists()
    of(lists)
    return lists


@pytest.mark.parametrize(
    ("of", "error", "says"),
    [
        (lambda x: x[1].pop(), bp.InvalidProblemError, "params has 5 arrays and grads 4"),
        (lambda x: x.__setitem__(1, 7), bp.InvalidProblemError, "grads is a int"),
        (lambda x: x[2].__setitem__(2, np.zeros(5, np.float32)), bp.InvalidProblemError, r"exp_avgs\[2\] \(5,\)"),
        (lambda x: x[1].__setitem__(3, x[0][3]), bp.OverlapError, r"grads\[3\] and params\[3\] share|params\[3\] and grads\[3\]"),
        (lambda x: x[0].__setitem__(3, x[0][2][:17]), bp.OverlapError, r"params\[2\]"),
        (lambda x: x[1].__setitem__(3, x[1][3].astype(np.float64)), bp.OperandTypeError, r"grads\[3\] holds f64"),
        (lambda x: x[3][4].setflags(write=False), bp.OperandTypeError, r"exp_avg_sqs\[4\] is written"),
        (lambda x: [held.__setitem__(3, np.repeat(held[3], 2)[::2]) for held in x], bp.InvalidProblemError, "has strides"),
    ],
)  # fmt: skip
def test_lists_that_are_refused(of: Callable[[Any], None], error: type[Exception], says: str) -> None:
    lists = _changed(of)
    held = [x for arrays in lists if isinstance(arrays, list) for x in arrays]
    before, step = [x.copy() for x in held], np.zeros((), np.float32)
    with pytest.raises(error, match=says):
        bp.adamw(*lists, step, device="cpu")
    assert step == 0
    assert all(np.array_equal(a, b) for a, b in zip(before, held))


def _kinds(**of: str) -> Lists:
    names = ("param", "grad", "exp_avg", "exp_avg_sq")
    return [[x.astype(of.get(name, "f4")) for x in held] for name, held in zip(names, _lists())]


OF_LISTS: tuple[tuple[Lists, dict[str, Any], type[bp.BaracudaError], str], ...] = (
    (_kinds(param="i4"), {}, bp.OperandTypeError, r"^adamw: params\[1\] must hold f16"),
    (_kinds(grad="i4"), {}, bp.OperandTypeError, r"^adamw: grads\[1\] must hold f16"),
    (_kinds(grad="f2"), {}, bp.OperandTypeError, r"^adamw: grads\[1\] holds f16 and params\[1\] f32"),
    (_kinds(exp_avg_sq="f8"), {}, bp.OperandTypeError, r"^adamw: exp_avg_sqs\[1\] must hold f32, as exp_avgs\[1\] does"),
    (_lists(), {"masters": _lists()[0]}, bp.OperandTypeError, r"^adamw: masters\[1\] is .* params\[1\] holds f32"),
    (_lists(), {"stochastic": True}, bp.InvalidProblemError, "^adamw: stochastic with a param of f32: .* no master"),
    (_lists(), {"lr": np.zeros(2, "f4")}, bp.InvalidProblemError, "^adamw: lr must have shape"),
    (_lists(), {"lr": -1.0}, bp.InvalidProblemError, "^adamw: lr=-1"),
    (_lists(), {"betas": (0.9, 2)}, bp.InvalidProblemError, r"^adamw: betas\[1\]=2"),
    (_lists(), {"grad_scale": np.zeros(2, "f4")}, bp.InvalidProblemError, "^adamw: grad_scale must have shape"),
    (_lists(), {"seed": "x"}, bp.OperandTypeError, "^adamw: seed must be an integer"),
)  # fmt: skip


@pytest.mark.parametrize(("lists", "options", "error", "says"), OF_LISTS)
def test_lists_errors_name_the_list_and_the_place(
    lists: Lists, options: dict[str, Any], error: type[bp.BaracudaError], says: str
) -> None:
    """Of the first parameter with a gradient, which is the second one here."""
    lists[1][0] = None  # type: ignore[call-overload]
    with pytest.raises(error, match=says):
        bp.adamw(*lists, np.zeros((), np.float32), **options, device="cpu")


def test_lists_errors_count_arrays_without_gradient() -> None:
    params, grads, *states = _lists()
    given: list[Any] = [None, *grads[1:3], grads[3].astype("f8"), grads[4]]
    with pytest.raises(bp.OperandTypeError, match=r"grads\[3\] holds f64, and the first of its list f32"):
        bp.adamw(params, given, *states, np.zeros((), np.float32), device="cpu")


def test_norms_of_lists_name_them() -> None:
    grads, whole = _lists()[1], [np.zeros(3, "i4")]
    for call, says in (
        (lambda: bp.grad_norm(whole, device="cpu"), r"grad_norm: grads\[0\] must hold"),
        (lambda: bp.clip_grad_norm(whole, 1.0, device="cpu"), r"clip_grad_norm: grads\[0\] must hold"),
        (lambda: bp.clip_grad_norm(grads, -1.0, device="cpu"), "clip_grad_norm: max_norm=-1"),
        (lambda: bp.sgd(grads, grads, np.zeros((), "f4"), momentum=0.9, device="cpu"), "share memory"),
        (
            lambda: bp.sgd(grads, _lists()[1], np.zeros((), "f4"), momentum=0.9, device="cpu"),
            "sgd: momentum=0.9 without momentum_buffers: pass zeros of params.0.'s shape",
        ),
    ):
        with pytest.raises(bp.BaracudaError, match=f"^{says}|^sgd: .*{says}"):
            call()


@pytest.mark.parametrize("betas", [0.9, (0.9,), (0.9, 0.9, 0.9)])
def test_betas_of_lists_are_a_pair(betas: Any) -> None:
    with pytest.raises(bp.InvalidProblemError, match="is no pair"):
        bp.adamw(*_lists(), np.zeros((), np.float32), betas=betas, device="cpu")


@pytest.mark.parametrize("row", [(5, 0, 0, 0, 0, 4), (9, 0, 0, 0, 0, 0), (2, 0, 0, 2, 0, 0), (2, 0, 24, 0, 0, 0)])
def test_table_that_reaches_out_is_refused(row: tuple[int, ...]) -> None:
    """In host memory, where it can be read: bytes, elements and gaps."""
    x = [np.zeros(8, np.float32) for _ in range(4)]
    rows = np.array([(4, 0, 16, 16, 16, 16), row], np.int64)
    with pytest.raises(bp.InvalidProblemError, match=r"row [01] of table reaches out of"):
        bp.adamw_update(*x, np.zeros((), np.float32), table=rows, device="ptx")


def test_rows_have_every_element_once() -> None:
    for lengths in ((5,), (0, 0), (2048, 2049, 1), (9_000_000, 3), (40_000_000,)):
        begins = np.cumsum([0, *lengths])[:-1]
        rows = rows_of(lengths, [begins * 4, begins * 2], [4, 2])
        assert rows[:, 0].sum() == sum(lengths) and (rows[:, 0] > 0).all()
        ends = np.cumsum(rows[:, 0])
        for column, size in ((1, 1), (2, 4), (3, 2)):
            assert np.array_equal(rows[:, column], (ends - rows[:, 0]) * size)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_norm_of_a_list_clips_a_step_without_writing(device: str) -> None:
    """By grad_scale, as gradients that were scaled in place."""
    lists, clipped = _lists(np.float64), _lists(np.float64)
    before = [g.copy() for g in lists[1]]
    norm, scale, found_inf = bp.grad_norm(lists[1], max_norm=2.0, device=device)
    assert np.isclose(norm, np.sqrt(sum((g * g).sum() for g in before)), rtol=1e-14)
    assert found_inf == 0
    assert bp.clip_grad_norm(clipped[1], 2.0, device=device) == norm
    for held, options in ((lists, {"grad_scale": scale}), (clipped, {})):
        bp.adamw(*held, np.zeros((), np.float32), device=device, **options)
    assert all(np.array_equal(a, b) for a, b in zip(before, lists[1]))
    assert all(np.allclose(a, b, rtol=1e-6) for a, b in zip(lists[0], clipped[0]))


def test_norm_does_not_depend_on_alignment() -> None:
    """Bit for bit."""
    x = np.random.default_rng(1).standard_normal(9001).astype(np.float32)
    norms = {bp.gradient_norm(y[3:], device="ptx").norm.tobytes() for y in (x, np.concatenate([x[:1], x])[1:])}
    assert len(norms) == 1


def test_norm_that_is_no_number_skips_the_step() -> None:
    lists, step = _lists(), np.zeros((), np.float32)
    lists[1][2][7] = np.inf
    before = _copies(lists)
    _, scale, found_inf = bp.grad_norm(lists[1], max_norm=1.0, device="ptx")
    bp.adamw(*lists, step, grad_scale=scale, found_inf=found_inf, device="ptx")
    assert step == 0
    assert all(np.array_equal(a, b) for old, new in zip(before, lists) for a, b in zip(old, new))


def _risen(seed: int, device: str) -> np.ndarray[Any, Any]:
    """Ones after a step of an eighth of their spacing, which one in eight takes whole."""
    ones = [np.ones(n, np.float32).astype(ml_dtypes.bfloat16) for n in (6, 4093)]
    grads = [np.full(x.shape, -1.0, np.float32) for x in ones]
    bp.sgd(ones, grads, np.zeros((), np.float32), lr=2.0**-10, stochastic=True, seed=seed, device=device)
    return np.concatenate(ones).astype(np.float64)


def test_rounding_by_chance_is_right_on_average() -> None:
    """The emulated kernel's bits are the oracle's, aligned or not; a seed decides them."""
    risen = _risen(1, "ptx")
    assert set(risen) == {1.0, 1.0 + 2.0**-7}
    assert abs(risen.mean() - 1 - 2.0**-10) < 4 * 2.0**-7 * np.sqrt(7 / 64 / risen.size)
    assert np.array_equal(risen, _risen(1, "cpu"))
    assert not np.array_equal(risen, _risen(2, "cpu"))


@pytest.mark.parametrize("moved", range(4), ids=("param", "grad", "exp_avg", "exp_avg_sq"))
def test_step_of_one_array_at_an_odd_address(moved: int) -> None:
    """The vectors of a step go by the alignment of every array, not of the parameters alone."""

    def step(shift: int) -> list[Any]:
        rng = np.random.default_rng(2)
        held = [np.abs(rng.standard_normal(37)).astype(np.float32) for _ in range(4)]
        held[moved] = np.concatenate([held[moved][:shift], held[moved]])[shift:]
        bp.adamw_update(*held, np.zeros((), np.float32), device="ptx")
        return held

    assert all(np.array_equal(a, b) for a, b in zip(step(0), step(1)))

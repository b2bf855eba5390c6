"""Steps with 8-bit states: the maps, every code, lists, what is not finite, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.types import DeviceSpec

from .independent import _dynamic_map

COVERS = (
    "adam8bit_update", "adamw8bit_update", "lion8bit_update", "sgd8bit_update", "rmsprop8bit_update", "adagrad8bit_update",
)  # fmt: skip
LENGTHS = (3, 0, 2049, 257, 1)
BACKENDS = pytest.mark.parametrize("device", ["cpu", "ptx"])
Lists = list[list[np.ndarray[Any, Any]]]


def _blocks(count: int) -> int:
    return -(-count // 256)


def _scalar(x: float = 0) -> np.ndarray[Any, Any]:
    return np.array(x, np.float32)


def _lists() -> Lists:
    rng = np.random.default_rng(5)
    made: Lists = [[rng.standard_normal(n).astype(np.float32) for n in LENGTHS] for _ in range(2)]
    made += [[rng.integers(0, 256, n, np.uint8) for n in LENGTHS] for _ in range(2)]
    return made + [[rng.uniform(0.1, 1, _blocks(n)).astype(np.float32) for n in LENGTHS] for _ in range(2)]


@BACKENDS
def test_lists_with_8_bit_states_are_updated_as_their_arrays(device: str) -> None:
    """Bit for bit."""
    lists, alone = _lists(), _lists()
    assert bp.adamw8bit(*lists, step := _scalar(4), lr=0.1, device=device) is None
    assert step == 5
    for i in range(len(LENGTHS)):
        bp.adamw8bit_update(*(held[i] for held in alone), _scalar(4), lr=0.1, device=device)
    for got, wanted in zip(lists, alone):
        assert [x.tobytes() for x in got] == [x.tobytes() for x in wanted]


def _kept(states: np.ndarray[Any, Any], device: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Codes and absmaxes of a step of Lion that makes the states the gradient."""
    codes, absmax = np.zeros(states.shape, np.uint8), np.zeros(_blocks(states.size), np.float32)
    bp.lion8bit_update(np.zeros_like(states), states, codes, absmax, _scalar(), beta1=0.0, beta2=0.0, device=device)
    return codes, absmax


@BACKENDS
def test_every_number_of_the_map_has_its_code(device: str) -> None:
    """A block of the map itself: of the published numbers, 0 and 1 among them."""
    known = np.array(_dynamic_map(False), np.float32)
    assert known[127] == 0 and known[255] == 1 and np.isclose(known[128], 5.5e-7) and np.isclose(known[0], -0.99296875)
    codes, absmax = _kept(known * np.float32(0.25), device)
    assert codes.tolist() == list(range(256)) and absmax == 0.25


@BACKENDS
def test_blocks_of_zeros_have_the_code_of_zero(device: str) -> None:
    codes, absmax = _kept(np.zeros(300, np.float32), device)
    assert (codes == 127).all() and (absmax == 0).all()


@BACKENDS
def test_codes_at_a_border_are_the_greater(device: str) -> None:
    """Beside those of the f32 numbers next to it."""
    known = np.array(_dynamic_map(False), np.float32)
    border = (known[:-1] + known[1:]) / np.float32(2)
    for x, code in ((border, 1), (np.nextafter(border, np.float32(-2)), 0), (np.nextafter(border, np.float32(2)), 1)):
        codes, _ = _kept(np.append(x, np.float32(1)), device)
        assert codes.tolist() == [*range(code, 255 + code), 255]


@pytest.mark.parametrize("most", [1.0, 0.3, 5e-16, 2.0**-80, 2.0**20, 2.0**21, 1e-38, 3e38])
def test_codes_of_a_block_divide_by_its_greatest_size(most: float) -> None:
    """By the kernel: of the quotient that f32 division gives, beside every border, whether `most` is usual or not."""
    known = np.array(_dynamic_map(False), np.float32)
    border = (known[:-1] + known[1:]) / np.float32(2)
    near = np.concatenate([np.nextafter(border, np.float32(side)) for side in (-2, 2)] + [border])
    blocks = np.ones((-(-near.size // 255), 256), np.float32)
    blocks[:, 1:].flat[: near.size] = near
    states = blocks.reshape(-1) * np.float32(most)
    codes, absmax = _kept(states, "ptx")
    assert (absmax == np.float32(most)).all()
    assert codes.tolist() == np.searchsorted(border, states / np.float32(most), side="right").tolist()


@pytest.mark.parametrize("most", [1.0, 0.7])
def test_codes_of_squares_are_the_nearest(most: float) -> None:
    known = np.array(_dynamic_map(True), np.float32)
    border = (known[:-1] + known[1:]) / np.float32(2)
    roots = np.sqrt(np.concatenate([border * np.float32(1 + k * 2e-7) for k in range(-3, 4)]) * np.float32(most))
    blocks = np.full((-(-roots.size // 255), 256), np.sqrt(np.float32(most)), np.float32)
    blocks[:, 1:].flat[: roots.size] = roots
    grads = blocks.reshape(-1)
    codes, absmax = np.zeros(grads.shape, np.uint8), np.zeros(_blocks(grads.size), np.float32)
    bp.rmsprop8bit_update(np.zeros_like(grads), grads, codes, absmax, _scalar(), alpha=0.0, device="ptx")
    squares = grads * grads
    assert (absmax == squares[0]).all()
    assert codes.tolist() == np.searchsorted(border, squares / squares[0], side="right").tolist()


def test_codes_of_leading_bits_are_the_nearest() -> None:
    """Of numbers of eight leading bits, and of those next to them."""
    known = np.array(_dynamic_map(False), np.float32)
    border = (known[:-1] + known[1:]) / np.float32(2)
    places = (
        np.ldexp(1 + np.arange(128, dtype=np.float32) / 128, np.arange(-26, 0)[:, None]).astype(np.float32).reshape(-1)
    )
    near = np.concatenate([np.nextafter(places, np.float32(side)) for side in (0, 2)] + [places])
    near = np.concatenate([near, -near])
    blocks = np.ones((-(-near.size // 255), 256), np.float32)
    blocks[:, 1:].flat[: near.size] = near
    codes, _ = _kept(blocks.reshape(-1), "ptx")
    assert codes.tolist() == np.searchsorted(border, blocks.reshape(-1), side="right").tolist()


def test_codes_of_small_squares_are_the_nearest() -> None:
    known = np.array(_dynamic_map(True), np.float32)
    border = (known[:-1] + known[1:]) / np.float32(2)
    grads = np.exp(np.random.default_rng(1).uniform(-10, 0, 4096)).astype(np.float32)
    grads[::256] = 1
    grads[3::512] = 0
    codes, absmax = np.zeros(grads.shape, np.uint8), np.zeros(_blocks(grads.size), np.float32)
    bp.rmsprop8bit_update(np.zeros_like(grads), grads, codes, absmax, _scalar(), alpha=0.0, device="ptx")
    assert codes.tolist() == np.searchsorted(border, grads * grads, side="right").tolist()


@BACKENDS
def test_negative_entries_of_squares_have_code_zero(device: str) -> None:
    codes, absmax = np.full(300, 255, np.uint8), np.full(2, -1, np.float32)
    zeros = np.zeros(300, np.float32)
    bp.rmsprop8bit_update(zeros.copy(), zeros, codes, absmax, _scalar(), alpha=0.5, device=device)
    assert (codes == 0).all() and (absmax == 0.5).all()


@BACKENDS
def test_divisors_of_small_eps_are_ieee(device: str) -> None:
    """Roots of subnormal squares, and eps that is 0, or subnormal beside no square at all."""
    grads, codes = np.array([1e-20, -1e-20, 0, 1], np.float32), np.zeros(4, np.uint8)
    for eps, moved in ((0.0, [1, -1, np.nan, 1]), (1e-40, [1, -1, 0, 1]), (1e-30, [1, -1, 0, 1])):
        param, absmax = np.zeros(4, np.float32), np.zeros(1, np.float32)
        bp.rmsprop8bit_update(param, grads, codes * 0, absmax, _scalar(), alpha=0.0, lr=0.5, eps=eps, device=device)
        assert np.allclose(param, -0.5 * np.array(moved), rtol=1e-4, equal_nan=True)


def test_infinite_squares_move_nothing() -> None:
    grads = np.array([1e30, 1, np.nan], np.float32)
    param, codes, absmax = np.ones(3, np.float32), np.zeros(3, np.uint8), np.zeros(1, np.float32)
    bp.rmsprop8bit_update(param, grads, codes, absmax, _scalar(), lr=0.5, device="ptx")
    assert param[0] == 1 and param[1] < 1 and np.isnan(param[2]) and not np.isfinite(absmax[0])


def test_chunks_beyond_the_resident_ctas_are_updated() -> None:
    """By the CTAs of one SM, bit for bit as by those of many."""
    few = replace(DeviceSpec.named("h200"), sms=1).as_emulated()
    lengths = (3, 0, 2049, 257, 4500, 256, 2, 2, 2)

    def lists() -> Lists:
        rng = np.random.default_rng(6)
        made: Lists = [[rng.standard_normal(n).astype(np.float32) for n in lengths] for _ in range(2)]
        made.append([rng.integers(0, 256, n, np.uint8) for n in lengths])
        return [*made, [rng.uniform(0.1, 1, _blocks(n)).astype(np.float32) for n in lengths]]

    got, wanted = lists(), lists()
    bp.lion8bit(*got, _scalar(), lr=0.1, device=few)
    bp.lion8bit(*wanted, _scalar(), lr=0.1, device="ptx")
    for held, other in zip(got, wanted):
        assert [x.tobytes() for x in held] == [x.tobytes() for x in other]


@BACKENDS
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_states_that_are_not_finite_stay_in_their_block(device: str, bad: float) -> None:
    states = np.ones(600, np.float32)
    states[300] = bad
    codes, absmax = _kept(states, device)
    assert np.isfinite(absmax).tolist() == [True, False, True]
    param = np.zeros(600, np.float32)
    bp.lion8bit_update(param, np.zeros_like(param), codes, absmax, _scalar(), beta1=0.5, lr=0.5, device=device)
    assert (param[:256] == -0.5).all() and (param[512:] == -0.5).all()


@BACKENDS
def test_blocks_do_not_depend_on_alignment_and_neighbours(device: str) -> None:
    x = np.random.default_rng(2).standard_normal(700).astype(np.float32)
    codes, absmax = _kept(x, device)
    again = [_kept(np.concatenate([x[:1], x])[1:], device), _kept(x[256:].copy(), device)]
    assert np.array_equal(codes, again[0][0]) and np.array_equal(absmax, again[0][1])
    assert np.array_equal(codes[256:], again[1][0]) and np.array_equal(absmax[1:], again[1][1])


@pytest.mark.parametrize(
    ("place", "value", "error", "says"),
    [
        (2, np.zeros(300, np.float32), bp.OperandTypeError, "exp_avg"),
        (4, np.zeros(3, np.float32), bp.InvalidProblemError, "exp_avg_absmax"),
        (4, np.zeros(2, np.float64), bp.OperandTypeError, "exp_avg_absmax"),
        (5, np.zeros((1, 2), np.float32), bp.InvalidProblemError, "exp_avg_sq_absmax"),
    ],
)
def test_8_bit_states_that_are_refused(place: int, value: Any, error: type[Exception], says: str) -> None:
    arrays = [np.ones(300, np.float32), np.ones(300, np.float32), *(np.zeros(300, np.uint8) for _ in range(2))]
    arrays += [np.zeros(2, np.float32) for _ in range(2)]
    arrays[place] = value
    for function, given in ((bp.adamw8bit_update, arrays), (bp.adamw8bit, [[x] for x in arrays])):
        with pytest.raises(error, match=says):
            function(*given, _scalar(), device="ptx")
    assert (arrays[0] == 1).all()


def test_table_of_blocks_that_reaches_out_is_refused() -> None:
    arrays = [np.ones(600, np.float32), np.ones(600, np.float32), np.zeros(600, np.uint8), np.zeros(3, np.float32)]
    for row in ((600, 0, 0, 0, 0, 4), (257, 0, 0, 0, 0, 8), (5, 0, 0, 0, 0, 2)):
        with pytest.raises(bp.InvalidProblemError, match="row 0 of table reaches out of exp_avg_absmax"):
            bp.lion8bit_update(*arrays, _scalar(), table=np.array([row], np.int64), device="ptx")


def test_momentum_of_a_rule_without_a_buffer_is_refused() -> None:
    arrays = [np.ones(300, np.float32), np.ones(300, np.float32), np.zeros(300, np.uint8), np.zeros(2, np.float32)]
    with pytest.raises(bp.InvalidProblemError, match=r"momentum=0.5 without a momentum_buffer: give momentum=0"):
        bp.rmsprop8bit_update(*arrays, _scalar(), momentum=0.5, device="ptx")
    assert (arrays[0] == 1).all()


@BACKENDS
@pytest.mark.parametrize("name", ["sgd8bit", "rmsprop8bit", "adagrad8bit"])
def test_lists_with_one_8_bit_state_are_updated_as_their_arrays(name: str, device: str) -> None:
    lists, alone = ([held[i] for i in (0, 1, 2, 4)] for held in (_lists(), _lists()))
    getattr(bp, name)(*lists, _scalar(4), lr=0.1, device=device)
    for i in range(len(LENGTHS)):
        getattr(bp, f"{name}_update")(*(held[i] for held in alone), _scalar(4), lr=0.1, device=device)
    for got, wanted in zip(lists, alone):
        assert [x.tobytes() for x in got] == [x.tobytes() for x in wanted]

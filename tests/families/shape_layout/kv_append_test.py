"""kv_append: both layouts, every position, both caches, and its refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import baracuda_py as bp
from baracuda_py.types import ElementKind

from ...arena import Slot, as_bytes, host
from ...gauntlet import readable

COVERS = ("kv_append",)
NAMES = ("k_cache", "v_cache", "k", "v", "positions")


def device_of(backend: str) -> Any:
    return "cpu" if backend == "cpu" else None


def arrays(
    layout: str, kind: ElementKind, *, batch: int = 3, heads: int = 2, length: int = 11, tokens: int = 2, dim: int = 8
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    extents = {"B": batch, "H": heads, "S": length, "D": dim}

    def bits(count: int) -> np.ndarray:
        shape = [count if axis == "S" else extents[axis] for axis in layout]
        return rng.integers(0, 256, (*shape, kind.dtype.itemsize), dtype=np.uint8).view(kind.dtype).reshape(shape)

    return {"k_cache": bits(length), "v_cache": bits(length), "k": bits(tokens), "v": bits(tokens)}


def check(backend: str, layout: str, given_arrays: dict[str, np.ndarray], positions: np.ndarray) -> None:
    slots = {name: Slot(x, backend) for name, x in {**given_arrays, "positions": positions}.items()}
    axis = layout.index("S")
    limit, tokens = given_arrays["k_cache"].shape[axis], given_arrays["k"].shape[axis]
    fits = [0 <= p <= limit - tokens for p in positions.tolist()]
    own = None if all(fits) else Slot(np.full(len(fits), -7, np.int32), backend).operand  # without it the host raises
    result = bp.kv_append(*(slots[n].operand for n in NAMES), layout=layout, status=own, device=device_of(backend))
    assert result.k_cache is slots["k_cache"].operand
    assert result.v_cache is slots["v_cache"].operand
    status = host(result.status)
    assert status.dtype == np.int32
    assert status.tolist() == [0 if ok else 1 for ok in fits]
    for cache, new in (("k_cache", "k"), ("v_cache", "v")):
        wanted = slots[cache].initial.copy()
        view, source = as_bytes(slots[cache].view(wanted)), as_bytes(slots[new].view(slots[new].initial))
        for b, (p, ok) in enumerate(zip(positions.tolist(), fits)):
            for t in range(tokens if ok else 0):
                for h in range(given_arrays["k"].shape[layout.index("H")]):
                    if layout == "BHSD":
                        view[b, h, p + t] = source[b, h, t]
                    else:
                        view[b, p + t, h] = source[b, t, h]
        assert np.array_equal(slots[cache].image(), wanted), f"{cache} is wrong"
    for name in ("k", "v", "positions"):
        assert np.array_equal(slots[name].image(), slots[name].initial)


@pytest.mark.parametrize("layout", ["BHSD", "BSHD"])
@pytest.mark.parametrize("kind", [bp.BF16, bp.F16, bp.F32, bp.F64, bp.U8, bp.FP8_E4M3, bp.COMPLEX128], ids=str)
@pytest.mark.parametrize("dim", [1, 7, 64, 128])
def test_both_layouts(backend: str, layout: str, kind: ElementKind, dim: int) -> None:
    for dtype in (np.int32, np.int64):
        check(backend, layout, arrays(layout, kind, dim=dim), np.array([0, 9, 4], dtype))


@pytest.mark.parametrize("layout", ["BHSD", "BSHD"])
def test_positions_out_of_range_write_nothing_of_that_sequence(backend: str, layout: str) -> None:
    positions = np.array([-1, 10, 9, 0, 2**31, -(2**63)], np.int64)
    check(backend, layout, arrays(layout, bp.BF16, batch=6), positions)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("bad", [-1, 10, 2**40, -(2**63)])
def test_host_raises_for_positions_out_of_range(device: str, bad: int) -> None:
    made = {**arrays("BHSD", bp.BF16), "positions": np.array([0, 9, bad])}
    before = {name: x.copy() for name, x in made.items()}
    with pytest.raises(bp.InvalidProblemError) as caught:
        bp.kv_append(*(made[n] for n in NAMES), device=device)
    readable(caught.value, "kv_append", f"positions[2] = {bad} is out of range")
    readable(caught.value, "kv_append", "which have 11 places per sequence: give 0 to 9")
    plan = bp.KvAppendPlan.select(bp.KvAppendDescriptor.of(**made), device=device)
    with pytest.raises(bp.InvalidProblemError, match="out of range"):
        plan.run(**made)
    assert all(np.array_equal(as_bytes(x), as_bytes(before[name])) for name, x in made.items())


@pytest.mark.parametrize("tokens", [0, 1, 5, 11])
def test_none_one_and_all_tokens(backend: str, tokens: int) -> None:
    check(backend, "BHSD", arrays("BHSD", bp.F32, tokens=tokens), np.zeros(3, np.int64))


def test_caches_that_lie_differently(backend: str) -> None:
    """A padded key cache, a permuted value cache, new tokens that are views of one projection."""
    made = arrays("BHSD", bp.BF16, dim=16)
    padded = np.zeros((3, 2, 11, 24), made["k_cache"].dtype)
    padded[..., :16] = made["k_cache"]
    made["k_cache"] = padded[..., :16]
    made["v_cache"] = np.ascontiguousarray(made["v_cache"].transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    both = np.concatenate([made["k"], made["v"]], axis=-1)
    made["k"], made["v"] = both[..., :16], both[..., 16:]
    check(backend, "BHSD", made, np.array([1, 9, 10]))


def wrapped(made: dict[str, np.ndarray], layout: str, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both caches as they should be, one token at a time."""
    axis, caches = layout.index("S"), (made["k_cache"].copy(), made["v_cache"].copy())
    for cache, new in zip(caches, (made["k"], made["v"])):
        for b, position in enumerate(positions.tolist()):
            for t in range(new.shape[axis] if position >= 0 else 0):
                place = (position + t) % cache.shape[axis]
                np.moveaxis(cache[b], axis - 1, 0)[place] = np.moveaxis(new[b], axis - 1, 0)[t]
    return caches


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("layout", ["BHSD", "BSHD"])
@pytest.mark.parametrize(
    ("tokens", "dim", "kind"), [(3, 8, bp.F16), (2, 5, bp.F32), (1, 7, bp.U8), (0, 4, bp.F32), (11, 4, bp.F64)]
)
def test_kv_append_wraps_positions(device: str, layout: str, tokens: int, dim: int, kind: ElementKind) -> None:
    made = arrays(layout, kind, batch=5, tokens=tokens, dim=dim)
    positions, status = np.array([0, 10, 2**40 + 3, -1, 2**63 - 1]), np.full(5, -7, np.int32)
    wanted = wrapped(made, layout, positions)
    bp.kv_append(*made.values(), positions, layout=layout, wrap=True, status=status, device=device)
    for cache, right in zip((made["k_cache"], made["v_cache"]), wanted):
        assert np.array_equal(as_bytes(cache), as_bytes(right))
    assert status.tolist() == [0, 0, 0, 1, 0]


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_kv_append_wrap_takes_caches_of_different_layouts(device: str) -> None:
    made = arrays("BHSD", bp.BF16, dim=16)
    made["v_cache"] = np.ascontiguousarray(made["v_cache"].transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    made["k"] = np.concatenate([made["k"], made["v"]], axis=-1)[..., :16]
    positions = np.array([9, 10, 21], np.int32)
    wanted = wrapped(made, "BHSD", positions)
    bp.kv_append(*made.values(), positions, wrap=True, device=device)
    assert np.array_equal(as_bytes(made["k_cache"]), as_bytes(wanted[0]))
    assert np.array_equal(as_bytes(made["v_cache"]), as_bytes(wanted[1]))


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_kv_append_wrap_refuses_negative_positions(device: str) -> None:
    made = arrays("BHSD", bp.F32)
    before = made["k_cache"].copy()
    with pytest.raises(bp.InvalidProblemError) as caught:
        bp.kv_append(*made.values(), np.array([0, -2, 5]), wrap=True, device=device)
    readable(caught.value, "kv_append", "positions[1] = -2 is negative, and wrap=True counts tokens from 0")
    assert np.array_equal(as_bytes(made["k_cache"]), as_bytes(before))
    with pytest.raises(bp.InvalidProblemError, match="12 tokens do not fit"):
        bp.kv_append(*arrays("BHSD", bp.F32, tokens=12).values(), np.zeros(3, np.int64), wrap=True, device=device)


def test_kv_append_wrap_is_a_flag_of_the_plan() -> None:
    plans = [
        bp.KvAppendPlan.select(bp.KvAppendDescriptor((4, 3, 17, 64), 3, "bf16", wrap=w), device="h200")
        for w in (False, True)
    ]
    assert [plan.kernels[0].name.partition("<")[0] for plan in plans] == ["append_runs", "append_wrapped"]
    assert plans[0] != plans[1] and bp.Plan.from_json(plans[1].to_json()) == plans[1]
    for wrong in (1, "yes", None):
        with pytest.raises(bp.InvalidProblemError, match=r"wrap=.*: give True or False"):
            bp.KvAppendDescriptor((4, 3, 17, 64), 3, "bf16", wrap=wrong)


@given(
    st.sampled_from(["BHSD", "BSHD"]), st.integers(1, 4), st.integers(1, 3), st.integers(1, 9), st.integers(1, 20), st.data()
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_random_shapes(layout: str, batch: int, heads: int, length: int, dim: int, data: st.DataObject) -> None:
    tokens = data.draw(st.integers(0, length))
    positions = np.array(data.draw(st.lists(st.integers(-2, length + 1), min_size=batch, max_size=batch)), np.int64)
    made = arrays(layout, bp.F16, batch=batch, heads=heads, length=length, tokens=tokens, dim=dim)
    check("cpu", layout, made, positions)


REFUSED: list[tuple[str, dict[str, Any], type[bp.BaracudaError], str]] = [
    ("k of another kind", {"k": np.zeros((3, 2, 2, 8), np.float32)}, bp.OperandTypeError, "k must hold bf16"),
    ("v of other heads", {"v": np.zeros((3, 3, 2, 8), bp.BF16.dtype)}, bp.InvalidProblemError, "v must have shape"),
    ("k of rank 3", {"k": np.zeros((2, 2, 8), bp.BF16.dtype)}, bp.InvalidProblemError, "k has rank 3"),
    ("too many tokens", {"k": np.zeros((3, 2, 12, 8), bp.BF16.dtype)}, bp.InvalidProblemError, "12 tokens do not fit"),
    ("float positions", {"positions": np.zeros(3, np.float32)}, bp.OperandTypeError, "positions must hold i32 or i64"),
    ("two positions", {"positions": np.zeros(2, np.int64)}, bp.InvalidProblemError, "positions must have shape"),
    (
        "caches that differ",
        {"v_cache": np.zeros((3, 2, 12, 8), bp.BF16.dtype)},
        bp.InvalidProblemError,
        "v_cache must have shape",
    ),
]


@pytest.mark.parametrize(("label", "wrong", "error", "says"), REFUSED, ids=[r[0] for r in REFUSED])
def test_refusals(backend: str, label: str, wrong: dict[str, Any], error: type[bp.BaracudaError], says: str) -> None:
    del label
    made = {**arrays("BHSD", bp.BF16), "positions": np.zeros(3, np.int64), **wrong}
    slots = {name: Slot(x, backend) for name, x in made.items()}
    with pytest.raises(error) as caught:
        bp.kv_append(*(slots[n].operand for n in NAMES), device=device_of(backend))
    readable(caught.value, "kv_append", says)
    assert all(np.array_equal(slot.image(), slot.initial) for slot in slots.values())


def test_an_unknown_layout_lists_the_known_ones(backend: str) -> None:
    slots = [Slot(x, backend) for x in (*arrays("BHSD", bp.BF16).values(), np.zeros(3, np.int64))]
    with pytest.raises(bp.InvalidProblemError, match="BHSD, BSHD"):
        bp.kv_append(*(s.operand for s in slots), layout="SBHD", device=device_of(backend))


@pytest.mark.parametrize("tokens", [2.7, 2.0, "2", None, [2]])
def test_tokens_are_counted_in_whole_numbers(tokens: Any) -> None:
    with pytest.raises(bp.InvalidProblemError, match=r"tokens=.* is not an integer"):
        bp.KvAppendDescriptor((3, 2, 11, 8), tokens, "bf16")
    assert bp.KvAppendDescriptor((3, 2, 11, 8), np.int64(2), "bf16").tokens == 2  # type: ignore[arg-type]


def test_kv_append_asks_to_contiguize_strided_positions(backend: str) -> None:
    made = {**arrays("BHSD", bp.BF16), "positions": np.zeros(6, np.int64)[::2]}
    slots = {name: Slot(x, backend) for name, x in made.items()}
    with pytest.raises(bp.InvalidProblemError) as caught:
        bp.kv_append(*(slots[n].operand for n in NAMES), device=device_of(backend))
    assert caught.value.fix == "contiguize it"  # the descriptor has no strides for it


def test_one_array_for_both_caches_is_refused(backend: str) -> None:
    made = arrays("BHSD", bp.BF16)
    cache = Slot(made["k_cache"], backend)
    rest = [Slot(x, backend).operand for x in (made["k"], made["v"], np.zeros(3, np.int64))]
    with pytest.raises(bp.OverlapError, match="k_cache is written and shares memory with v_cache"):
        bp.kv_append(cache.operand, cache.operand, *rest, device=device_of(backend))
    inside = cache.operand[:, :, :2]
    other = Slot(made["v_cache"], backend).operand
    with pytest.raises(bp.OverlapError):
        bp.kv_append(cache.operand, other, inside, rest[1], rest[2], device=device_of(backend))
    assert np.array_equal(cache.image(), cache.initial)

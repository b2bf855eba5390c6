"""What elementwise kernels and appends make the device do, carried out in NumPy: every candidate and configuration writes
each element once, with what the oracle says, by accesses on multiples of their width."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops._launch import THREADS, divisor, grid_of, index_type
from baracuda_py.plan.candidate import steps_of
from baracuda_py.plan.select import assess
from baracuda_py.types import DeviceSpec, PlanPreference

from ..arena import Slot
from .shape_layout.walk import Memory, divide, run

Array = np.ndarray[Any, Any]
H200 = DeviceSpec.named("h200")
STEPS = (1, 1, 1, 1, 2, 3, -1)  # along an axis, of the array that a view is cut from


def laid(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, *, offset: int, steps: tuple[int, ...] = STEPS
) -> Array:
    """Random small integers in a view whose first element is `offset` bytes beyond a multiple of 16 (or further, where a
    step is not 1): permuted, stepped, reversed, rows padded; with a step of 0, broadcast."""
    order = list(rng.permutation(len(shape))) if rng.random() < 0.3 else list(range(len(shape)))
    taken = [int(steps[rng.integers(len(steps))]) for _ in shape]
    extents = [max(1, shape[a] * abs(taken[a])) + (int(rng.choice([0, 0, 1, 4])) if taken[a] else 0) for a in order]
    size = np.dtype(dtype).itemsize
    memory = np.empty(int(np.prod(extents)) * size + 32, np.uint8)
    memory = memory[(-memory.ctypes.data) % 16 + offset :]
    whole = np.ndarray(extents, dtype, memory.data)
    whole[...] = rng.integers(0, 100, extents)
    view = whole.transpose(np.argsort(order)) if shape else whole
    for axis, (n, step) in enumerate(zip(shape, taken)):
        cut = (
            slice(None, 1)
            if step == 0
            else slice(None, n * step, step)
            if step > 0
            else slice(n - 1, None, -1)
            if n
            else slice(0, 0)
        )
        view = view[(slice(None),) * axis + (cut,)]
    return np.broadcast_to(view, shape) if 0 in taken else view


def launched(desc: Any, plan: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The steps of every candidate and configuration that serves."""
    canonical = desc.canonical()
    for a in assess(plan.candidates, canonical, PlanPreference(), H200):
        if a.feasibility:
            yield f"{a.candidate.variant}[{a.config}]", steps_of(a.candidate, canonical, H200, a.config)


def check(desc: Any, plan: Any, slots: dict[str, Slot], function: Any = None, *, least: int = 1) -> None:
    """Every launch leaves what the reference leaves, and writes no byte twice."""
    for slot in slots.values():
        slot.reset()
    plan.select(desc, device="cpu").run(**{name: slot.operand for name, slot in slots.items()})
    wanted = {name: slot.image() for name, slot in slots.items()}
    count, moved = 0, dict(zip((o.name for o in desc.operands), desc.displacements()))
    for label, steps in launched(desc, plan):
        memory = {name: Memory(slot, slot.initial.copy(), moved[name]) for name, slot in slots.items()}
        for step in steps:
            run(step, memory, function)
        for name, held in memory.items():
            assert np.array_equal(held.image, wanted[name]), f"{label} leaves another {name}: {desc}"
            once = len(steps) if name == "status" else 1  # which every launch reports
            assert held.written.max() <= once, f"{label} writes {name} twice"
        count += 1
    assert count >= least, f"only {count} configurations serve {desc}"


# ---- elementwise ------------------------------------------------------------------------------------------------------


def maps(rng: np.random.Generator) -> tuple[Any, Any, dict[str, Slot], Any]:
    dtype = np.dtype(rng.choice(["u1", "i2", "f4", "f8"]))
    rank = int(rng.integers(0, 4))
    shape = tuple(int(rng.choice([1, 2, 3, 8, 16, 33, 64])) for _ in range(rank))
    dense = rng.random() < 0.4
    steps = (1,) if dense else STEPS

    def array(own: tuple[int, ...], *more: int) -> Slot:
        offset = dtype.itemsize * int(rng.choice([0, 0, 1, 2, 4])) % 16
        return Slot(laid(rng, own, dtype, offset=offset, steps=(*steps, *more)), "cpu")

    if rng.random() < 0.4:
        slots = {"out": array(shape), "x": array(shape, *(() if dense else (0,)))}
        return bp.UnaryPlan, bp.UnaryDescriptor.of("neg", slots["x"].operand, slots["out"].operand), slots, np.negative
    second = tuple(1 if rng.random() < 0.3 else n for n in shape[int(rng.integers(0, rank + 1)) if not dense else 0 :])
    slots = {"out": array(shape), "x1": array(shape, *(() if dense else (0, 0))), "x2": array(second)}
    operands = [slots[name].operand for name in ("x1", "x2", "out")]
    return bp.BinaryPlan, bp.BinaryDescriptor.of("subtract", *operands), slots, np.subtract


def test_walked_elementwise_launches_match_numpy() -> None:
    rng = np.random.default_rng(3)
    seen = set()
    for _ in range(250):
        plan, desc, slots, function = maps(rng)
        if plan is bp.UnaryPlan and desc.element is bp.U8:
            function = lambda x: (-x.astype(np.int64)).astype(np.uint8)  # noqa: E731
        check(desc, plan, slots, function)
        for _, steps in launched(desc, plan):
            name, _, arguments = steps[0].kernel.entry.partition("<")
            seen.add((name, arguments.split(", ")[3]))
    wanted = {("map_contiguous", v) for v in "1248"} | {("map_strided", v) for v in "124"}
    assert wanted <= seen, "some widths were never taken"


def test_walked_broadcast_input_is_read_as_one_element() -> None:
    """Whichever of the inputs it is; the others are whole vectors."""
    rng = np.random.default_rng(0)
    for first, second in ((64, 64), (1, 64), (64, 1)):
        slots = {
            "out": Slot(np.zeros((5, 64), np.float32), "cpu"),
            "x1": Slot(rng.integers(0, 9, (5, first)).astype(np.float32), "cpu"),
            "x2": Slot(rng.integers(0, 9, (5, second)).astype(np.float32), "cpu"),
        }
        operands = [slots[name].operand for name in ("x1", "x2", "out")]
        check(bp.BinaryDescriptor.of("subtract", *operands), bp.BinaryPlan, slots, np.subtract)


def test_contiguous_looks_at_every_operand() -> None:
    dense, transposed, short = np.zeros((8, 16), np.float32), np.zeros((16, 8), np.float32).T, np.zeros(16, np.float32)
    for x1, x2, out in (
        (transposed, dense, dense),
        (dense, transposed, dense),
        (dense, dense, transposed),
        (dense, short, dense),
    ):
        variants = {
            label.partition("[")[0] for label, _ in launched(bp.BinaryDescriptor.of("add", x1, x2, out), bp.BinaryPlan)
        }
        assert variants == {"strided"}


# ---- indices ----------------------------------------------------------------------------------------------------------


def test_division_by_multiplication_is_exact() -> None:
    rng = np.random.default_rng(0)
    extents = [1, 2, 3, 7, 641, 2**16 + 1, 2**31 - 1, *(int(x) for x in rng.integers(1, 2**31, 200))]
    for d in extents:
        last = (2**31 - 1) // d * d  # the largest multiple
        n = np.concatenate([rng.integers(0, 2**31, 60), [0, d - 1, min(d, last), 2**31 - 1, last, last - 1]])
        assert np.array_equal(divide(n, divisor(d, "u32").data, "u32"), n.astype(np.uint64) // np.uint64(d)), d


def test_32_bits_count_what_a_cta_goes_beyond() -> None:
    """Of 2**31 indices, all that a CTA's threads form: Divisor32 divides no more."""
    beyond = THREADS * 64
    assert [index_type(n) for n in (1, 2**31 - beyond - 1, 2**31 - beyond, 2**31, 2**32)] == [
        "u32",
        "u32",
        "u64",
        "u64",
        "u64",
    ]


def test_grids_cover_every_item() -> None:
    for items, per_cta in itertools.product((1, 255, 256, 257, 1000), (1, 128, 256)):
        (ctas, *rest) = grid_of(items, per_cta)
        assert (ctas - 1) * per_cta < items <= ctas * per_cta and rest == [1, 1]
    assert grid_of(0, 256) == (1, 1, 1)


# ---- appends ----------------------------------------------------------------------------------------------------------


def appended(rng: np.random.Generator) -> tuple[Any, dict[str, Slot]]:
    layout = str(rng.choice(["BHSD", "BSHD"]))
    axis, dtype = layout.index("S"), np.dtype(rng.choice(["u1", "f2", "f4", "f8", "c16"]))
    cache = tuple(int(rng.choice([1, 2, 3, 8, 20])) for _ in range(4))
    tokens = int(rng.integers(0, cache[axis] + 1))
    new = tuple(tokens if a == axis else n for a, n in enumerate(cache))

    def array(shape: tuple[int, ...]) -> Slot:
        steps = (1,) if rng.random() < 0.6 else (1, 1, 2, -1)
        return Slot(laid(rng, shape, dtype, offset=int(rng.choice([0, 0, 1, 2, 3, 4, 6, 8, 12])), steps=steps), "cpu")

    slots = {name: array(shape) for name, shape in (("k_cache", cache), ("v_cache", cache), ("k", new), ("v", new))}
    positions = rng.integers(-1, cache[axis] + 2, cache[0]).astype(rng.choice(["i4", "i8"]))
    slots["positions"] = Slot(positions, "cpu")
    desc = bp.KvAppendDescriptor.of(*(slot.operand for slot in slots.values()), layout=layout)
    return desc, slots | {"status": Slot(np.full(cache[0], -7, np.int32), "cpu")}


def test_walked_appends_match_the_oracle() -> None:
    rng = np.random.default_rng(5)
    parts = set()
    for _ in range(150):
        desc, slots = appended(rng)
        check(desc, bp.KvAppendPlan, slots)
        ((_, steps),) = launched(desc, bp.KvAppendPlan)
        parts.add(len(steps))
    assert parts == {1, 2}


def test_walked_dynamic_windows_match_the_oracle() -> None:
    rng = np.random.default_rng(7)
    for _ in range(200):
        dtype = np.dtype(rng.choice(["u1", "f2", "f4", "f8", "c16"]))
        shape = tuple(int(rng.choice([1, 2, 5, 8, 16])) for _ in range(int(rng.integers(1, 4))))
        ranges = [tuple(int(x) for x in sorted(rng.integers(0, n + 1, 2))) for n in shape]
        axis = int(rng.integers(len(shape)))
        offset = [int(rng.choice([0, 0, 1, 2, 3, 4, 6, 8, 12])) for _ in range(2)]
        slots = {
            "dest": Slot(laid(rng, shape, dtype, offset=offset[0], steps=(1, 1, 2)), "cpu"),
            "source": Slot(laid(rng, tuple(b - a for a, b in ranges), dtype, offset=offset[1]), "cpu"),
            "start": Slot(np.array(rng.integers(-1, shape[axis] + 2), np.int64), "cpu"),
            "status": Slot(np.array(-7, np.int32), "cpu"),
        }
        dest, source = slots["dest"].operand, slots["source"].operand
        check(bp.WriteSliceDescriptor.of(dest, source, ranges, dynamic_axis=axis), bp.WriteSlicePlan, slots)


# ---- what may not be written, on the short path -----------------------------------------------------------------------


@pytest.mark.parametrize("strides", [None, (40, 2)])
def test_write_slice_largest_start_keeps_the_window_in_dest(strides: tuple[int, ...] | None) -> None:
    desc = bp.WriteSliceDescriptor((10, 20), [(0, 3), (0, 4)], "f32", dest_strides=strides).canonical()
    row, col = (s * 4 for s in strides or (20, 1))
    for start in ((0, 0), (7, 16), (7, 0), (0, 16), (3, 5)):
        assert desc.resolve({"start": start}) == ((start[0] * row + start[1] * col, 0), {})
    for start in ((8, 0), (0, 17), (10, 0), (0, 20), (-1, 0), (0, -1), (7, 16, 0), (7,)):
        with pytest.raises(bp.InvalidProblemError):
            desc.resolve({"start": start})


def test_dynamic_window_has_any_start_along_its_axis() -> None:
    """So that a source anywhere there is refused, and nothing else of dest."""
    dest = np.zeros((8, 10), np.float32)
    start = np.array(0, np.int64)
    for source in (dest[6:7, 2:5], dest[0:1, 2:5], dest[5:6, 4:7]):
        with pytest.raises(bp.OverlapError):
            bp.write_slice(dest, source, [(0, 1), (2, 5)], dynamic_axis=0, start=start, device="cpu")
    bp.write_slice(dest, dest[6:7, 5:8], [(0, 1), (2, 5)], dynamic_axis=0, start=start, device="cpu")
    with pytest.raises(bp.OverlapError):
        bp.write_slice(dest, dest[0:3, 7:10], [(0, 3), (0, 3)], dynamic_axis=1, start=start, device="cpu")

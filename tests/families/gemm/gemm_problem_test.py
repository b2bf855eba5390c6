"""The normalised product: evaluated on raw memory as a kernel walks it, it is NumPy's product, in every layout."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

import baracuda_py as bp
from baracuda_py.numerics.rounding import round_to
from baracuda_py.ops.products.epilogue import batch_struct, packed_strides
from baracuda_py.ops.products.gemm import Gemm, Matrix
from baracuda_py.plan import get_op

from ...arena import Slot
from ...gauntlet import Problem, named, samples_of

Array = np.ndarray[Any, Any]
ACTIVATIONS: dict[str, Any] = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu": lambda x: x * scipy.special.ndtr(x),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * scipy.special.expit(x),
}


# ---- a kernel in NumPy -----------------------------------------------------------------------------------------------


def offsets(matrix: Matrix, gemm: Gemm, z: int, rows: int, cols: int) -> Array:
    """Where the elements of batch `z` are stored, in elements from the first: by the structs that a kernel is given."""
    row, col, *steps = struct.unpack("<5q", packed_strides(matrix).data)
    middle, inner = struct.unpack("<2I", batch_struct(gemm).data)
    place = (z // (middle * inner), z // inner % middle, z % inner)
    start = sum(i * s for i, s in zip(place, steps))
    return np.add.outer(np.arange(rows) * row, np.arange(cols) * col) + start


class Memory:
    """An operand's whole memory by elements, counted from its first."""

    def __init__(self, image: Array, slot: Slot) -> None:
        size = slot.dtype.itemsize
        phase, self.start = slot.offset % size, slot.offset // size
        self.flat = image[phase : phase + (len(image) - phase) // size * size].view(slot.dtype)

    def read(self, places: Array) -> Array:
        return self.flat[self.start + places].astype(np.longdouble)

    def write(self, places: Array, values: Array) -> None:
        self.flat[self.start + places] = values


def emulate(desc: Any, slots: Mapping[str, Slot], images: Mapping[str, Array]) -> None:
    """Evaluates ``desc.gemm`` on the operands' memory: one product a batch, every element reached through the walks."""
    gemm: Gemm = desc.gemm
    memory = {name: Memory(images[name], slots[name]) for name in slots}
    element = desc.layout("out").element
    for z in range(gemm.batches):

        def read(x: Matrix, rows: int, cols: int, z: int = z) -> Array:
            return memory[x.operand].read(offsets(x, gemm, z, rows, cols))

        def scales(name: str, rows: int, cols: int) -> Any:
            """An operand's scales by element: every 128th place has the next, along each axis of its blocks."""
            if name not in gemm.scales:
                return 1.0
            by = {"a": (1, 128), "b": (128, 128)}[gemm.scales[name].operand[-1]] if gemm.blocked else (1, 1)
            if gemm.blocked and gemm.transposed:
                by = by[::-1]
            row, col = np.arange(rows) // by[0], np.arange(cols) // by[1]
            if not gemm.blocked:  # lines do not change along k
                row, col = (row, col * 0) if name == "scale_a" else (row * 0, col)
            if not (rows and cols):
                return 1.0
            return read(gemm.scales[name], row[-1] + 1, col[-1] + 1)[np.ix_(row, col)]

        with np.errstate(all="ignore"):
            a = read(gemm.a, gemm.m, gemm.k) * scales("scale_a", gemm.m, gemm.k)
            b = read(gemm.b, gemm.k, gemm.n) * scales("scale_b", gemm.k, gemm.n)
            x = desc.alpha * (a @ b)
            if "c" in gemm.addends and desc.beta:
                x = x + desc.beta * read(gemm.addends["c"], gemm.m, gemm.n)
            if "bias" in gemm.addends:
                x = x + read(gemm.addends["bias"], gemm.m, gemm.n)
            x = x if desc.activation is bp.Activation.IDENTITY else x.astype(np.float64)
            x = ACTIVATIONS[desc.activation.value](x)
            if "residual" in gemm.addends:
                x = x + read(gemm.addends["residual"], gemm.m, gemm.n)
        result = round_to(x if element is bp.F64 else x.astype(np.float64), element)
        memory[gemm.out.operand].write(offsets(gemm.out, gemm, z, gemm.m, gemm.n), result)


@pytest.mark.parametrize("op", ["matmul", "matmul_tc", "matmul_tc_bf16_async"])
def test_every_sample_walked_is_the_product(op: str, everything: bool) -> None:
    for sample in samples_of(get_op(op), everything=everything, count=60):
        problem = Problem(get_op(op), sample, "cpu")
        if problem.desc.gemm.m * problem.desc.gemm.n * problem.desc.gemm.k > 1 << 24:
            continue  # long doubles take their time; every layout is there in small
        with named(sample.label):
            images = problem.images()
            emulate(problem.desc, problem.slots, images)
            problem.check_images(images)


def test_a_wrong_walk_is_noticed() -> None:
    sample = next(s for s in samples_of(get_op("matmul"), everything=True) if s.label == "f32 RC 33x40x50+3")
    problem = Problem(get_op("matmul"), sample, "cpu")
    gemm = problem.desc.gemm
    b = Matrix(gemm.b.operand, gemm.b.element, gemm.b.row, gemm.b.col - 1, gemm.b.batch, gemm.b.align)
    problem.desc.__dict__["gemm"] = Gemm(
        gemm.m, gemm.n, gemm.k, gemm.batch, gemm.a, b, gemm.out, gemm.addends, gemm.transposed
    )
    images = problem.images()
    emulate(problem.desc, problem.slots, images)
    with pytest.raises(AssertionError, match="break"):
        problem.check_images(images)


# ---- shapes ----------------------------------------------------------------------------------------------------------

EXTENTS = st.sampled_from([0, 1, 2, 3])


@given(st.lists(EXTENTS, max_size=4).map(tuple), st.lists(EXTENTS, max_size=4).map(tuple))
@settings(max_examples=400, deadline=None)
def test_result_shapes_and_refusals_match_numpy(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    desc = bp.MatmulDescriptor(a, b, "f32", "f32")
    try:
        wanted = np.matmul(np.zeros(a, np.float32), np.zeros(b, np.float32)).shape
    except ValueError:
        with pytest.raises(bp.InvalidProblemError) as caught:
            bp.MatmulPlan.select(desc, device="cpu")
        assert str(a[:-2]) in str(caught.value) or str(a) in str(caught.value)
        return
    assert desc.shape == wanted
    assert bp.MatmulPlan.select(desc, device="cpu").desc.layout("out").shape == wanted


@st.composite
def products(draw: st.DrawFn) -> dict[str, Array]:
    """Operands that agree, each laid out anyhow: axes permuted, stepped, reversed, batch axes broadcast."""
    m, n, k = (draw(st.integers(0, 5)) for _ in range(3))
    batch = draw(st.lists(st.integers(1, 3), max_size=3).map(tuple))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))

    def laid(shape: tuple[int, ...]) -> Array:
        order = draw(st.permutations(range(len(shape))))
        steps = [draw(st.sampled_from([1, 1, 2, -1])) for _ in shape]
        whole = rng.integers(-4, 5, [shape[x] * abs(steps[x]) for x in order]).astype(np.float32)
        return np.asarray(whole).transpose(np.argsort(order))[tuple(slice(None, None, t) for t in steps)]

    def lead() -> tuple[int, ...]:
        kept = tuple(1 if draw(st.booleans()) else x for x in batch)
        return kept[draw(st.integers(0, len(kept))) :]

    a = laid((k,)) if draw(st.integers(0, 5)) == 0 else laid((*lead(), m, k))
    b = laid((k,)) if draw(st.integers(0, 5)) == 0 else laid((*lead(), k, n))
    shape = np.matmul(np.zeros(a.shape, bool), np.zeros(b.shape, bool)).shape
    operands = {"a": a, "b": b}
    if draw(st.booleans()):
        rank = draw(st.integers(0, len(shape)))
        own = shape[len(shape) - rank :]
        operands["bias"] = laid(tuple(1 if draw(st.booleans()) else x for x in own))
    if draw(st.booleans()):
        operands["residual"] = laid(shape)
    out = laid(shape)
    if 0 not in shape or draw(st.booleans()):
        operands["out"] = out
    return operands


@given(products())
@settings(max_examples=300, deadline=None)
def test_products_of_any_layout_match_numpy(operands: dict[str, Array]) -> None:
    """Small integers, so that every sum is exact: the walk, the oracle and NumPy agree to the bit."""
    slots = {name: Slot(x, "cpu", poison=name == "out") for name, x in operands.items()}
    given = {name: slot.operand for name, slot in slots.items()}
    desc = bp.MatmulDescriptor.of(**given)
    wanted = np.matmul(operands["a"], operands["b"]) + operands.get("bias", 0)
    wanted = np.asarray(wanted + operands.get("residual", 0))
    got = bp.matmul(given["a"], given["b"], **{n: x for n, x in given.items() if n not in ("a", "b")}, device="cpu")
    np.testing.assert_array_equal(got, wanted)
    if "out" not in slots:
        return
    slots["out"].reset()
    images = {name: slot.image() for name, slot in slots.items()}
    emulate(desc, slots, images)
    assert np.array_equal(images["out"], slots["out"].expected(wanted.astype(np.float32)))


# ---- what the normalised product is ----------------------------------------------------------------------------------


def described(a: Array, b: Array, **others: Any) -> Gemm:
    return bp.MatmulDescriptor.of(a, b, **others).gemm


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def test_row_and_column_major_operands_keep_their_order() -> None:
    for a_order, b_order in itertools.product("CF", repeat=2):
        gemm = described(np.array(zeros(6, 8), order=a_order), np.array(zeros(8, 10), order=b_order))  # type: ignore[call-overload]
        assert (gemm.m, gemm.n, gemm.k, gemm.batch, gemm.transposed) == (6, 10, 8, (), False)
        assert (gemm.a.row, gemm.a.col) == ((8, 1) if a_order == "C" else (1, 6))
        assert (gemm.b.row, gemm.b.col) == ((10, 1) if b_order == "C" else (1, 8))
        assert (gemm.out.row, gemm.out.col) == (10, 1)


def test_a_column_major_result_is_the_transposed_product() -> None:
    gemm = described(zeros(6, 8), zeros(8, 10), out=zeros(10, 6).T, bias=zeros(10))
    assert (gemm.m, gemm.n, gemm.k, gemm.transposed) == (10, 6, 8, True)
    assert (gemm.a.operand, gemm.b.operand) == ("b", "a")
    assert (gemm.out.row, gemm.out.col) == (6, 1)
    assert (gemm.addends["bias"].row, gemm.addends["bias"].col) == (1, 0), "a row of biases is a column now"


@pytest.mark.parametrize("lead", [(3,), (2, 3), (2, 3, 4)])
def test_a_batch_that_shares_b_is_one_taller_product(lead: tuple[int, ...]) -> None:
    gemm = described(zeros(*lead, 5, 8), zeros(8, 10), residual=zeros(*lead, 5, 10), bias=zeros(10))
    assert (gemm.m, gemm.n, gemm.k, gemm.batch) == (5 * math.prod(lead), 10, 8, ())
    assert gemm.addends["bias"].row == 0


def test_the_last_token_of_every_sequence_is_one_product() -> None:
    """x[:, -1:, :] @ w: single rows of a large pitch."""
    x = zeros(4, 7, 8)
    gemm = described(x[:, -1:, :], zeros(8, 10))
    assert (gemm.m, gemm.batch, gemm.a.row) == (4, (), 56)


def test_what_does_not_follow_on_stays_a_batch() -> None:
    gapped = zeros(3, 6, 8)[:, :5]
    assert described(gapped, zeros(8, 10)).batch == (3,)
    assert described(zeros(3, 5, 8), zeros(3, 8, 10)).batch == (3,)
    assert described(zeros(5, 8), zeros(3, 8, 10)).batch == (3,)
    heads = zeros(2, 24, 3, 8).transpose(0, 2, 1, 3)  # [B, H, S, D] of [B, S, H, D]
    assert described(heads, zeros(2, 3, 8, 10)).batch == (2, 3)
    assert described(zeros(2, 3, 4, 5, 8), zeros(2, 3, 4, 8, 10)).batch == (24,), "axes that follow on are one"


def test_vectors_are_a_row_and_a_column() -> None:
    left, right, both = (
        described(zeros(9), zeros(9, 4)), described(zeros(4, 9), zeros(9)), described(zeros(9), zeros(9)),
    )  # fmt: skip
    assert [(g.m, g.n, g.k) for g in (left, right, both)] == [(1, 4, 9), (4, 1, 9), (1, 1, 9)]
    assert described(zeros(3, 4, 9), zeros(9)).m == 12


def test_a_single_row_or_column_bars_no_vector_access() -> None:
    """The stride along an axis of one element is never taken, so that it must not count as misaligned."""
    for a, b in ((zeros(9), zeros(9, 4)), (zeros(1, 9), zeros(9, 4))):
        gemm = described(a, b)
        assert gemm.a.aligned(16, along=1)
        assert gemm.a.row >= 9
    gemm = described(zeros(4, 9), zeros(9))
    assert gemm.b.row == 1
    assert gemm.b.aligned(16, along=0)
    assert gemm.b.col >= 9


def test_alignment_counts_strides_and_the_first_element() -> None:
    assert described(zeros(6, 8), zeros(8, 12)).a.aligned(16, along=1)
    assert not described(zeros(6, 9), zeros(9, 12)).a.aligned(16, along=1)
    assert not described(zeros(6, 12)[:, 1:9], zeros(8, 12)).a.aligned(16, along=1)
    assert not described(zeros(6, 8), zeros(3, 8, 13)[:, :, :12]).b.aligned(16, along=1)
    assert described(zeros(2, 6, 8)[:, ::2], zeros(8, 12)).a.aligned(16, along=1)


def test_work_and_traffic() -> None:
    gemm = described(zeros(3, 5, 8), zeros(3, 8, 10), bias=zeros(10))
    assert gemm.flops == 2 * 3 * 5 * 8 * 10
    assert gemm.nbytes == 4 * (3 * 5 * 8 + 3 * 8 * 10 + 3 * 5 * 10 + 10)
    shared = described(zeros(3, 5, 8)[:, :4], zeros(8, 10))
    assert shared.nbytes == 4 * (3 * 4 * 8 + 8 * 10 + 3 * 4 * 10), "a shared operand counts once"

"""What descriptors make of their fields: integers, names and numbers as users give them, and problems that no memory holds."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops._function import function_of
from baracuda_py.plan import Plan
from baracuda_py.plan.descriptor import Descriptor, Slot, described
from baracuda_py.types import ElementKind, OpCategory

from ..gauntlet import readable

DEVICE = "h200"
NOTHING: tuple[Any, ...] = (
    "12",
    b"12",
    {1, 2},
    {1: 2},
    iter((1, 2)),
    (1.0, 2),
    (True, 2),
    ("1", 2),
    3,
    None,
    np.array([1.5]),
)


def unary(**given: Any) -> Any:
    return bp.UnaryDescriptor(**{"kind": "neg", "shape": (8, 16), "element": "f32"} | given)


def binary(**given: Any) -> Any:
    same = {"x1_shape": (8, 16), "x2_shape": (8, 16), "x1_element": "f32", "x2_element": "f32"}
    return bp.BinaryDescriptor(**{"kind": "add"} | same | given)


def copy(**given: Any) -> Any:
    return bp.ContiguizeDescriptor(**{"shape": (8, 16), "element": "f32"} | given)


def window(**given: Any) -> Any:
    return bp.WriteSliceDescriptor(**{"dest_shape": (8, 16), "ranges": ((1, 3), (0, 16)), "element": "f32"} | given)


def append(**given: Any) -> Any:
    return bp.KvAppendDescriptor(**{"cache_shape": (2, 3, 8, 16), "tokens": 1, "element": "f32"} | given)


def product(**given: Any) -> Any:
    same = {"a_shape": (8, 16), "b_shape": (16, 8), "a_element": "f16", "b_element": "f16"}
    return bp.MatmulDescriptor(**same | given)


FAMILY: dict[type, type[Plan[Any]]] = {
    bp.UnaryDescriptor: bp.UnaryPlan, bp.BinaryDescriptor: bp.BinaryPlan, bp.ContiguizeDescriptor: bp.ContiguizePlan,
    bp.WriteSliceDescriptor: bp.WriteSlicePlan, bp.KvAppendDescriptor: bp.KvAppendPlan,
    bp.MatmulDescriptor: bp.MatmulPlan,
}  # fmt: skip


def select(desc: Any) -> Any:
    return FAMILY[type(desc)].select(desc, device=DEVICE)


def refused(make: Callable[..., Any], error: type[bp.BaracudaError], *words: str, **given: Any) -> None:
    with pytest.raises(error) as caught:
        select(make(**given))
    readable(caught.value, *words)


# ---- sequences and integers ------------------------------------------------------------------------------------------

SEQUENCES = ((unary, "shape"), (binary, "x2_shape"), (copy, "x_strides"), (window, "dest_shape"), (append, "cache_shape"),
             (product, "b_strides"))  # fmt: skip


@pytest.mark.parametrize(("make", "field"), SEQUENCES)
def test_what_is_no_sequence_of_integers(make: Any, field: str) -> None:
    for value in NOTHING:
        if value is None and (field.endswith("strides") or field == "x2_shape"):  # C order; a number
            continue
        refused(make, bp.InvalidProblemError, field, "not a sequence of integers", **{field: value})


@pytest.mark.parametrize(
    "shape", [[8, 16], np.array([8, 16]), (np.int64(8), np.uint8(16)), range(8, 17, 8)], ids=lambda x: type(x).__name__
)
def test_sequences_of_integers(shape: Any) -> None:
    desc = unary(shape=shape)
    assert desc == unary() and hash(desc) == hash(unary())
    assert all(type(n) is int for n in desc.shape)
    assert select(desc) == select(unary())


ALIGNS = ((unary, "x_align"), (binary, "out_align"), (copy, "x_align"), (window, "dest_align"), (append, "k_align"),
          (product, "a_align"))  # fmt: skip


@pytest.mark.parametrize(("make", "field"), ALIGNS)
def test_what_is_no_alignment(make: Any, field: str) -> None:
    for value in (True, "8", 8.0, np.array(8), (8,), np.bool_(True)):
        refused(make, bp.InvalidProblemError, field, "not an integer", **{field: value})
    for value in (0, -8, 12, 3, 24):
        refused(make, bp.InvalidProblemError, field, "no alignment", "power of two", **{field: value})
    refused(make, bp.InvalidProblemError, field, "beyond 64 bits", **{field: 1 << 64})


@pytest.mark.parametrize(("make", "field"), ALIGNS)
def test_alignments_are_numbers_of_any_sort(make: Any, field: str) -> None:
    plan = select(make(**{field: np.int64(8)}))
    assert type(getattr(plan.desc, field)) is int
    assert Plan.from_json(plan.to_json()) == plan == select(make(**{field: 8}))
    assert select(make(**{field: 256})).sku == select(make(**{field: 16})).sku


def test_counts_and_axes() -> None:
    for value in (2.7, "2", None, True):
        refused(append, bp.InvalidProblemError, "tokens", "not an integer", tokens=value)
    for value in ("0", 0.0, [0]):
        refused(window, bp.InvalidProblemError, "dynamic_axis", "not an integer", dynamic_axis=value)
    refused(window, bp.InvalidProblemError, "dynamic_axis", "axis of dest", dynamic_axis=2)


def test_starts_of_a_call() -> None:
    dest, source = np.zeros((8, 16), np.float32), np.ones((2, 16), np.float32)
    plan = bp.WriteSlicePlan.select(bp.WriteSliceDescriptor.of(dest, source, [(0, 2), (0, 16)]), device="cpu")
    for start in (5, "10", {1, 0}, (1.0, 0), (np.array(1), 0), iter((1, 0)), (1,), (1 << 70, 0)):
        assert not plan.can_implement(dest=dest, source=source, start=start)
        with pytest.raises(bp.InvalidProblemError, match="start"):
            plan.run(dest=dest, source=source, start=start)
    assert not dest.any()
    for start in ([1, 0], np.array([1, 0]), (np.int32(1), 0)):
        dest[...] = 0
        plan.run(dest=dest, source=source, start=start)
        assert dest.sum(1).tolist() == [0, 16, 16, 0, 0, 0, 0, 0]


# ---- names and numbers -----------------------------------------------------------------------------------------------


def test_names_that_are_nearly_right() -> None:
    refused(unary, bp.InvalidProblemError, "UnaryDescriptor: kind='rellu'", "did you mean 'relu' or", kind="rellu")
    refused(binary, bp.InvalidProblemError, "kind='plus'", "one of add, subtract", kind="plus")
    refused(product, bp.InvalidProblemError, "matmul: activation='gelo'", "did you mean 'gelu'", activation="gelo")
    refused(product, bp.InvalidProblemError, "name='matmul_tk'", "'matmul_tc'", name="matmul_tk")
    refused(append, bp.InvalidProblemError, "cache_layout='BSDH'", "BHSD", cache_layout="BSDH")
    with pytest.raises(bp.InvalidProblemError, match="kind='plus'"):
        bp.BinaryDescriptor.of("plus", np.ones(3), np.ones(3))  # type: ignore[arg-type]
    for value in (None, 3, [], bp.BinaryKind.ADD, b"relu"):
        refused(unary, bp.InvalidProblemError, "UnaryDescriptor: kind", "one of neg", kind=value)


def test_what_is_no_element_kind() -> None:
    for value in (None, 3, [], {}, "float23", ">f4", np.dtype("i4,f4"), object, np.zeros(3)):
        refused(unary, bp.OperandTypeError, "not an element kind", element=value)
        refused(product, bp.OperandTypeError, "not an element kind", a_element=value)
    refused(binary, bp.OperandTypeError, "not an element kind", out_element=[])


def test_what_is_no_number() -> None:
    for value in ("1", None, [1], np.array(1.0), 1j):
        refused(product, bp.OperandTypeError, "alpha must be a number", alpha=value)
    for value in (10**400, -(10**400)):
        refused(product, bp.InvalidProblemError, "alpha is an integer of 1329 bits", alpha=value)
    assert product(alpha=np.float32(0.5)) == product(alpha=0.5)
    assert product(alpha=np.float32("nan")) == product(alpha=float("nan"))


def test_an_operand_that_is_missing_is_named() -> None:
    with pytest.raises(bp.InvalidProblemError, match="matmul: operand 'b' is missing"):
        bp.matmul(np.ones((2, 2), np.float32), None, device="cpu")


# ---- problems that no memory holds -----------------------------------------------------------------------------------

HUGE: tuple[tuple[Any, dict[str, Any]], ...] = (
    (unary, {"shape": (1 << 62, 8)}), (unary, {"shape": (1 << 61,), "element": "f64"}), (unary, {"x_strides": (1 << 62, 1)}),
    (unary, {"x_strides": (-(1 << 62), 1)}), (unary, {"shape": (1 << 40, 0, 1 << 40)}),
    (binary, {"x1_shape": (1 << 33, 1), "x2_shape": (1, 1 << 31)}), (copy, {"shape": (1 << 62, 8), "element": "s4"}),
    (copy, {"x_strides": (1, (1 << 63) - 1)}), (window, {"dest_strides": ((1 << 63) - 1, 1)}),
    (window, {"source_strides": (1 << 62, 1)}), (append, {"cache_shape": (1 << 20, 1 << 20, 1 << 20, 8)}),
    (product, {"a_shape": (1 << 62, 16)}), (product, {"a_shape": (1 << 32, 1), "b_shape": (1, 1 << 31)}),
    (product, {"b_strides": (1 << 62, 1)}),
)  # fmt: skip


@pytest.mark.parametrize(("make", "given"), HUGE)
def test_what_no_memory_holds(make: Any, given: dict[str, Any]) -> None:
    refused(make, bp.InvalidProblemError, "2**63 bytes", **given)


@pytest.mark.parametrize(("make", "field"), SEQUENCES)
@pytest.mark.parametrize(
    "value", [1 << 63, -(1 << 63), 10**400, 10**5000], ids=["2**63", "-2**63", "10**400", "10**5000"]
)
def test_integers_beyond_64_bits(make: Any, field: str, value: int) -> None:
    refused(make, bp.InvalidProblemError, field, "beyond 64 bits", **{field: (value, 16)})


def test_too_many_axes() -> None:
    assert select(unary(shape=(1,) * 64)).kernels
    refused(unary, bp.InvalidProblemError, "shape has 65 axes", "64 at most", shape=(1,) * 65)
    refused(copy, bp.InvalidProblemError, "shape has 10000 axes", shape=(1,) * 10000)
    refused(window, bp.InvalidProblemError, "axes", dest_shape=(1,) * 70, ranges=[(0, 1)] * 70)


@pytest.mark.parametrize("shape", [(1 << 32, 1, 8, 1), (1 << 33, 2, 8, 1)])
def test_no_tokens_for_very_many_sequences(shape: tuple[int, ...]) -> None:
    """More sequences than 32 bits count, though nothing is copied."""
    plan = select(append(cache_shape=shape, tokens=0, element="u8"))
    assert plan.selection.steps and repr(plan)


@described(Slot("out", "out"), Slot("x", takes=(ElementKind.F32,)))
class MaskedDescriptor(Descriptor):
    """x times `factor`, and 0 where x is `ignore_index`: made up for this test."""

    shape: tuple[int, ...]
    element: ElementKind
    ignore_index: int = -100
    factor: float = 1.0

    name = "masked"
    values = ("ignore_index", "factor")


def _masked(desc: MaskedDescriptor, x: Any) -> Any:
    assert type(desc.ignore_index) is int and type(desc.factor) is float
    return np.where(x == desc.ignore_index, 0, x * np.float64(desc.factor))


class MaskedPlan(Plan[MaskedDescriptor]):
    descriptor = MaskedDescriptor
    category = OpCategory.UNARY_ELEMENTWISE
    reference = _masked


@function_of(MaskedPlan)
def masked(x: Any, /, *, ignore_index: int = -100, factor: float = 1.0) -> Any:
    """x times factor, and 0 where x is ignore_index."""


def test_descriptor_values_are_ints_where_declared() -> None:
    """At construction, in a call's own values, and in a function that is called again."""
    desc = MaskedDescriptor((3,), "f32", ignore_index=np.int16(7), factor=2)
    assert desc.scalars({}) == {"ignore_index": 7, "factor": 2.0}
    assert [type(value) for value in desc.at({"ignore_index": np.int64(3)}).scalars({}).values()] == [int, float]
    assert desc.canonical().ignore_index == -100
    for bad, error in (
        (1.0, bp.OperandTypeError),
        (np.ones(()), bp.OperandTypeError),
        (1 << 63, bp.InvalidProblemError),
    ):
        with pytest.raises(error, match="ignore_index"):
            desc.scalars({"ignore_index": bad})
    x = np.array([1, 2, -100], np.float32)
    for ignore_index, wanted in ((-100, [1, 2, 0]), (2, [1, 0, -100]), (1, [0, 2, -100]), (2, [1, 0, -100])):
        assert masked(x, ignore_index=ignore_index, device="cpu").tolist() == wanted
    with pytest.raises(bp.OperandTypeError, match="ignore_index must be an integer"):
        masked(x, ignore_index=2.5, device="cpu")


def test_descriptor_operand_is_its_layout() -> None:
    desc = bp.MatmulDescriptor(
        (8, 16), (16, 4), "bf16", "bf16", b_strides=(1, 16), bias_shape=(4,), bias_element="bf16"
    )
    assert desc.b == desc.layout("b") and desc.b.strides == (1, 16) and desc.b.element is bp.BF16
    assert desc.bias is not None and desc.bias.shape == (4,) and desc.residual is None
    with pytest.raises(AttributeError):
        desc.b = desc.a  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(desc)) == desc and "b" not in desc.to_dict()

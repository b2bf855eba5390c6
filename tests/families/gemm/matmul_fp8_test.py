"""matmul of fp8: exact small sums, every kind of scale, what is refused, and what promotion is worth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample
from baracuda_py.types import ElementKind

from ...arena import Slot, host
from ...gauntlet import Problem, named, readable
from .independent import check_matmul

COVERS = ("matmul",)
Array = np.ndarray[Any, Any]
EIGHTS = (bp.FP8_E4M3, bp.FP8_E5M2)
H200 = "h200"


def device_of(backend: str) -> Any:
    return "cpu" if backend == "cpu" else None


def whole(*shape: int, kind: ElementKind = bp.FP8_E4M3, seed: int = 0) -> Array:
    """Small integers, which both kinds hold and which sum exactly."""
    return np.random.default_rng(seed + sum(shape)).integers(-3, 4, shape).astype(kind.dtype)


def product(a: Array, b: Array) -> Array:
    return np.asarray(a.astype(np.float64) @ b.astype(np.float64))


def call(backend: str, operands: dict[str, Array], **options: Any) -> Any:
    slots = {name: Slot(x, backend) for name, x in operands.items()}
    given = {name: slot.operand for name, slot in slots.items()}
    return bp.matmul(given.pop("a"), given.pop("b"), **given, **options, device=device_of(backend))


def refused(
    backend: str, error: type[bp.BaracudaError], *words: str, options: dict[str, Any], **operands: Array
) -> None:
    with pytest.raises(error) as caught:
        call(backend, operands, **options)
    assert type(caught.value) is error
    readable(caught.value, "matmul", *words)


@pytest.mark.parametrize("first", EIGHTS, ids=str)
@pytest.mark.parametrize("second", EIGHTS, ids=str)
@pytest.mark.parametrize("math", ["fp8", "fp8_fast"])
def test_sums_of_small_integers_are_exact(backend: str, first: ElementKind, second: ElementKind, math: str) -> None:
    """Of 14 bits even, where |sum| stays below 2**13."""
    a, b = whole(33, 512, kind=first), whole(80, 512, kind=second).T
    got = host(call(backend, {"a": a, "b": b}, math=math, out_dtype="f32"))
    np.testing.assert_array_equal(got, product(a, b))


def test_the_result_is_bf16_unless_said(backend: str) -> None:
    a, b = whole(8, 32), whole(16, 32).T
    got = host(call(backend, {"a": a, "b": b}))
    assert ElementKind.of(got.dtype) is bp.BF16
    np.testing.assert_array_equal(got.astype(np.float64), product(a, b))


@pytest.mark.parametrize("k", [128, 320, 1040])
def test_scales_by_blocks_are_those_of_their_block(backend: str, k: int) -> None:
    """Powers of two, one exponent a block, so that every product is exact and a block's neighbour would show."""
    m, n = 70, 272
    blocks = -(-k // 128)
    scale_a = 2.0 ** (np.arange(m * blocks).reshape(m, blocks) % 3)
    scale_b = 2.0 ** (np.arange(blocks * 3).reshape(blocks, 3) % 4)
    a, b = whole(m, k), whole(n, k).T
    wide_a = a.astype(float) * np.repeat(scale_a, 128, 1)[:, :k]
    wide_b = b.astype(float) * np.repeat(np.repeat(scale_b, 128, 0)[:k], 128, 1)[:, :n]
    scales = {"scale_a": scale_a.astype(np.float32), "scale_b": scale_b.astype(np.float32)}
    got = host(call(backend, {"a": a, "b": b, **scales}, out_dtype="f32"))
    np.testing.assert_array_equal(got, wide_a @ wide_b)


@pytest.mark.parametrize("lines", ["rows", "columns", "both", "tensor"])
def test_scales_of_rows_and_columns(backend: str, lines: str) -> None:
    m, n, k = 65, 48, 144
    rows, columns = 2.0 ** (np.arange(m) % 5)[:, None], 2.0 ** (np.arange(n) % 7)[None]
    scales = {}
    if lines in ("rows", "both"):
        scales["scale_a"] = rows
    if lines in ("columns", "both"):
        scales["scale_b"] = columns
    if lines == "tensor":
        scales = {"scale_a": np.array(4.0), "scale_b": np.array([[0.5]])}
    a, b = whole(m, k), whole(n, k).T
    wanted = product(a, b) * scales.get("scale_a", 1.0) * scales.get("scale_b", 1.0)
    got = host(call(backend, {"a": a, "b": b, **{n: x.astype(np.float32) for n, x in scales.items()}}, out_dtype="f32"))
    np.testing.assert_array_equal(got, wanted)


BATCHES: tuple[tuple[int, ...], ...] = ((), (3,), (1,), (2, 1), (1, 3), (2, 3))


def _shapes_of(rng: np.random.Generator) -> dict[str, tuple[int, ...]]:
    """a, b and none to both scales: matrices, batches of them that broadcast, and vectors, with each kind of scale."""
    m, n = rng.choice((1, 2, 5, 129, 130), 2)
    k = int(rng.choice((0, 1, 40, 128, 129, 300)))
    vectors = rng.integers(0, 2, 2) * (rng.random() < 0.6)
    m, n = (1 if one else int(extent) for one, extent in zip(vectors, (m, n)))
    first, second = (BATCHES[i] for i in rng.integers(0, len(BATCHES), 2))
    a, b = (k,) if vectors[0] else (*first, m, k), (k,) if vectors[1] else (*second, k, n)
    whole = np.broadcast_shapes(a[:-2], b[:-2])
    blocks = -(-k // 128)
    kinds = {"scale_a": ((1, 1), (m, 1), (m, blocks)), "scale_b": ((1, 1), (1, n), (blocks, -(-n // 128)))}
    found = {"a": a, "b": b}
    by_blocks, given = rng.random() < 0.3, rng.integers(0, 2, 2)
    for name, there in zip(kinds, (1, 1) if by_blocks else given):
        lead = whole[len(whole) - rng.integers(0, len(whole) + 1) :]
        lead = tuple(1 if rng.random() < 0.3 else extent for extent in lead)
        own = kinds[name][2 if by_blocks else rng.integers(0, 2)]
        if there:
            found[name] = () if own == (1, 1) and not lead and rng.random() < 0.3 else (*lead, *own)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_scales_of_vectors_and_batches_by_other_means(seed: int) -> None:
    """25 mixes of vectors, batches that broadcast and kinds of scales, each against sums of its own rows and columns."""
    rng = np.random.default_rng(seed)
    for _ in range(25):
        shapes = _shapes_of(rng)
        operands = {
            name: (rng.standard_normal(shape) if name in "ab" else rng.uniform(0.5, 2.0, shape)).astype(
                bp.FP8_E4M3.dtype if name in "ab" else np.float32
            )
            for name, shape in shapes.items()
        }
        problem = Problem(get_op("matmul"), Sample(str(shapes), operands, {"out_dtype": "f32"}), "cpu")
        with named(str(shapes)):
            check_matmul(problem)
            problem.reset()
            problem.plan.run(**problem.operands)
            problem.check_images(problem.images())


@pytest.mark.parametrize("shape", [(33,), (33, 2), (32, 1), (1, 33), (2, 33, 1)])
def test_a_scale_that_is_none(backend: str, shape: tuple[int, ...]) -> None:
    operands = {"a": whole(33, 384), "b": whole(40, 384).T, "scale_a": np.ones(shape, np.float32)}
    refused(backend, bp.InvalidProblemError, "scale_a", str(shape), "(33, 1)", "(33, 3)", options={}, **operands)


def test_scales_of_different_kinds(backend: str) -> None:
    operands = {"a": whole(33, 384), "b": whole(40, 384).T, "scale_a": np.ones((33, 3), np.float32)}
    words = ("scale_a", "scale_b", "different kinds", "(33, 3)", "(3, 1)")
    refused(backend, bp.InvalidProblemError, *words, options={}, **operands)
    operands["scale_b"] = np.ones((1, 40), np.float32)
    refused(backend, bp.InvalidProblemError, *words, options={}, **operands)


def test_scales_of_another_type_or_of_other_operands(backend: str) -> None:
    eights = {"a": whole(8, 16), "b": whole(16, 8)}
    refused(backend, bp.OperandTypeError, "scale_b holds f64", "cast", options={}, **eights, scale_b=np.ones((1, 8)))
    halves = {"a": whole(8, 16, kind=bp.BF16), "b": whole(16, 8, kind=bp.BF16)}
    one = np.ones((1, 1), np.float32)
    refused(backend, bp.OperandTypeError, "scale_a", "only fp8", "alpha", options={}, **halves, scale_a=one)


def test_fp8_mixes_with_nothing_else(backend: str) -> None:
    refused(backend, bp.OperandTypeError, "fp8_e4m3", "bf16", options={}, a=whole(8, 16), b=whole(16, 8, kind=bp.BF16))
    eights = {"a": whole(8, 16), "b": whole(16, 8)}
    refused(backend, bp.OperandTypeError, "fp8_e4m3", "f64", options={"out_dtype": "f64"}, **eights)
    refused(backend, bp.OperandTypeError, "fp8_e4m3", "tf32", "fp8", options={"math": "tf32"}, **eights)


def described(k: int, math: str, **changes: Any) -> Any:
    strides = {"b_strides": (1, k)}
    return bp.MatmulDescriptor((256, k), (k, 512), "fp8_e4m3", "fp8_e4m3", math=math, **(strides | changes))


def test_promotion_bounds_the_error_whatever_k() -> None:
    """The bound of promoted sums, relative to |A||B|, hardly grows with K; of the tensor cores' own it grows in proportion."""

    def coefficient(k: int, math: str) -> float:
        plan = bp.MatmulPlan.select(described(k, math), bp.PlanPreference(backend="bespoke"), device=H200)
        return float(plan.precision_guarantee.bound.terms[0].coefficient)

    assert coefficient(16384, "fp8") < 1.01 * coefficient(512, "fp8")
    assert coefficient(16384, "fp8_fast") > 31 * coefficient(512, "fp8_fast")
    assert coefficient(128, "fp8") < 1.01 * coefficient(128, "fp8_fast") + 2


def test_blocks_of_a_result_in_columns_are_refused() -> None:
    """The blocks of b are wider than those of a, and a result in columns is the transposed product."""
    desc = bp.MatmulDescriptor(
        (256, 256), (256, 128), "fp8_e4m3", "fp8_e4m3", out_element="bf16", out_strides=(1, 256), b_strides=(1, 256),
        scale_a_shape=(256, 2), scale_b_shape=(2, 1), scale_a_element="f32", scale_b_element="f32", scale_a_strides=(1, 256),
    )  # fmt: skip
    with pytest.raises(bp.UnsupportedError, match="go with the result's columns"):
        bp.MatmulPlan.select(desc, device="h200")
    assert bp.MatmulPlan.select(replace(desc, out_strides=None), device="h200").sku.variant == "wgmma"


def test_elsewhere_it_is_refused_with_the_reason() -> None:
    with pytest.raises(bp.UnsupportedError) as caught:
        bp.MatmulPlan.select(described(512, "fp8"), device="sm_80")
    readable(caught.value, "matmul", "sm_90a")


@pytest.mark.parametrize("math", ["fp8", "fp8_fast"])
def test_scales_by_blocks_are_served_by_kernels_that_compile(math: str) -> None:
    """Each block has a scale of its own, so that sums of slabs are added up in f32 however products are to be summed."""
    rows = -(-1024 // 4) * 4
    desc = bp.MatmulDescriptor(
        (1024, 4096), (4096, 4096), "fp8_e4m3", "fp8_e4m3", b_strides=(1, 4096), math=math, scale_a_shape=(1024, 32),
        scale_b_shape=(32, 32), scale_a_strides=(1, rows), scale_a_element="f32", scale_b_element="f32",
    )  # fmt: skip
    plan = bp.MatmulPlan.select(desc, device=H200)
    assert "BlockScaled" in str(plan.compile().kernels)
    assert (
        plan.precision_guarantee.bound
        == bp.MatmulPlan.select(replace(desc, math="fp8"), device=H200).precision_guarantee.bound
    )

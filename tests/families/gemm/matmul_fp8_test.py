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

from ...arena import host
from ...gauntlet import Problem, named, readable
from .calls import Call, whole
from .independent import check_matmul

COVERS = ("matmul",)
Array = np.ndarray[Any, Any]
EIGHTS = (bp.FP8_E4M3, bp.FP8_E5M2)
H200 = "h200"


def product(a: Array, b: Array) -> Array:
    return np.asarray(a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("first", EIGHTS, ids=str)
@pytest.mark.parametrize("second", EIGHTS, ids=str)
@pytest.mark.parametrize("math", ["fp8", "fp8_fast"])
def test_sums_of_small_integers_are_exact(backend: str, first: ElementKind, second: ElementKind, math: str) -> None:
    """Of 14 bits even, where |sum| stays below 2**13."""
    a, b = whole(33, 512, kind=first), whole(80, 512, kind=second).T
    got = host(Call(backend, a=a, b=b)(math=math, out_dtype="f32"))
    np.testing.assert_array_equal(got, product(a, b))


def test_the_result_is_bf16_unless_said(backend: str) -> None:
    a, b = whole(8, 32, kind=bp.FP8_E4M3), whole(16, 32, kind=bp.FP8_E4M3).T
    got = host(Call(backend, a=a, b=b)())
    assert ElementKind.of(got.dtype) is bp.BF16
    np.testing.assert_array_equal(got.astype(np.float64), product(a, b))


@pytest.mark.parametrize("k", [128, 320, 1040])
def test_scales_by_blocks_are_those_of_their_block(backend: str, k: int) -> None:
    """Powers of two, one exponent a block, so that every product is exact and a block's neighbour would show."""
    m, n = 70, 272
    blocks = -(-k // 128)
    scale_a = 2.0 ** (np.arange(m * blocks).reshape(m, blocks) % 3)
    scale_b = 2.0 ** (np.arange(blocks * 3).reshape(blocks, 3) % 4)
    a, b = whole(m, k, kind=bp.FP8_E4M3), whole(n, k, kind=bp.FP8_E4M3).T
    wide_a = a.astype(float) * np.repeat(scale_a, 128, 1)[:, :k]
    wide_b = b.astype(float) * np.repeat(np.repeat(scale_b, 128, 0)[:k], 128, 1)[:, :n]
    scales = {"scale_a": scale_a.astype(np.float32), "scale_b": scale_b.astype(np.float32)}
    got = host(Call(backend, a=a, b=b, **scales)(out_dtype="f32"))
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
    a, b = whole(m, k, kind=bp.FP8_E4M3), whole(n, k, kind=bp.FP8_E4M3).T
    wanted = product(a, b) * scales.get("scale_a", 1.0) * scales.get("scale_b", 1.0)
    call = Call(backend, a=a, b=b, **{n: x.astype(np.float32) for n, x in scales.items()})
    got = host(call(out_dtype="f32"))
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


TYPE, PROBLEM = bp.OperandTypeError, bp.InvalidProblemError
KINDS = ("scale_a", "scale_b", "different kinds", "(33, 3)", "(3, 1)")
SMALL = {"a": whole(8, 16, kind=bp.FP8_E4M3), "b": whole(16, 8, kind=bp.FP8_E4M3)}
LARGE = {"a": whole(33, 384, kind=bp.FP8_E4M3), "b": whole(40, 384, kind=bp.FP8_E4M3).T}
HALVES = {"a": whole(8, 16, kind=bp.BF16), "b": whole(16, 8, kind=bp.BF16)}
# Operands, options, the error, and what it says.
REFUSED: dict[str, tuple[dict[str, Array], dict[str, Any], type[bp.BaracudaError], tuple[str, ...]]] = {
    **{
        f"scale_a {shape}": (
            LARGE | {"scale_a": np.ones(shape, np.float32)}, {}, PROBLEM, ("scale_a", str(shape), "(33, 1)", "(33, 3)"))
        for shape in ((33,), (33, 2), (32, 1), (1, 33), (2, 33, 1))
    },
    "scale_a by blocks alone": (LARGE | {"scale_a": np.ones((33, 3), np.float32)}, {}, PROBLEM, KINDS),
    "scale_b by columns": (
        LARGE | {"scale_a": np.ones((33, 3), np.float32), "scale_b": np.ones((1, 40), np.float32)}, {}, PROBLEM, KINDS),
    "scale_b of f64": (SMALL | {"scale_b": np.ones((1, 8))}, {}, TYPE, ("scale_b holds f64", "cast")),
    "scale_a of bf16": (HALVES | {"scale_a": np.ones((1, 1), np.float32)}, {}, TYPE, ("scale_a", "only fp8", "alpha")),
    "fp8 and bf16": ({"a": SMALL["a"], "b": HALVES["b"]}, {}, TYPE, ("fp8_e4m3", "bf16")),
    "to f64": (SMALL, {"out_dtype": "f64"}, TYPE, ("fp8_e4m3", "f64")),
    "by tf32": (SMALL, {"math": "tf32"}, TYPE, ("fp8_e4m3", "tf32", "fp8")),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_fp8_refusals(backend: str, name: str) -> None:
    operands, options, error, words = REFUSED[name]
    Call(backend, **operands).refused(error, *words, **options)


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
    """Each block has a scale of its own, so that sums of k_blocks are added up in f32 however products are to be summed."""
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

"""matmul_backward: against float64, at ragged sizes, and what it refuses. Finite differences are in the gauntlet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import all_ops, get_op
from baracuda_py.samples.sample import values
from baracuda_py.types import ElementKind

from ...arena import Slot, host
from .calls import Call, device_of

COVERS = ("matmul",)
Array = np.ndarray[Any, Any]
FLOATS = (bp.F16, bp.BF16, bp.F32, bp.F64)
RAGGED = [(1, 1, 1), (7, 5, 3), (17, 9, 33), (65, 63, 127), (1, 129, 8), (129, 1, 15), (64, 64, 64), (130, 72, 255)]
EMPTY = [(0, 4, 3), (3, 0, 4), (3, 4, 0), (0, 0, 0)]


def problem(a: tuple[int, ...], b: tuple[int, ...], kind: ElementKind = bp.F32, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    shape = np.matmul(np.zeros(a, bool), np.zeros(b, bool)).shape
    return {name: values(rng, s, kind, 1.0) for name, s in (("grad", shape), ("a", a), ("b", b))}


def run(backend: str, operands: dict[str, Array], **options: Any) -> tuple[Array, Array]:
    """Both gradients; the operands are in guarded memory and are not changed."""
    call = Call(backend, **operands)
    got = call(**options)
    call.unchanged()
    assert isinstance(got, bp.MatmulGradients)
    assert (got[0] is got.grad_a, got[1] is got.grad_b) == (True, True)
    return host(got.grad_a), host(got.grad_b)


def check(backend: str, got: Array, first: Array, second: Array) -> None:
    """`got` is ``first @ second`` within what the plan of that product promises."""
    desc = bp.MatmulDescriptor.of(first, second, out_dtype=ElementKind.of(got.dtype))
    plan = bp.MatmulPlan.select(desc, device="cpu" if backend == "cpu" else None)
    wide = np.asarray(bp.MatmulPlan.reference(desc, a=first, b=second))
    plan.precision_guarantee.check(got.reshape(wide.shape), wide, {"a": first, "b": second}, measures=plan.measured())


# ---- against float64 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [*RAGGED, *EMPTY], ids=str)
def test_gradients_at_ragged_sizes(backend: str, kind: ElementKind, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    x = problem((m, k), (k, n), kind)
    for out_dtype in (None, "f32") if kind.bits < 64 else (None,):
        grad_a, grad_b = run(backend, x, out_dtype=out_dtype)
        assert grad_a.shape == (m, k) and grad_b.shape == (k, n)
        assert grad_a.dtype == grad_b.dtype == (kind.dtype if out_dtype is None else np.float32)
        check(backend, grad_a, x["grad"], x["b"].T)
        check(backend, grad_b, x["a"].T, x["grad"])


@pytest.mark.parametrize("orders", ["CCC", "FCF", "CFC", "FFF"])
def test_operands_of_any_order(backend: str, orders: str) -> None:
    x = problem((33, 20), (20, 18), bp.BF16)
    laid = {name: np.array(v, order=o) for (name, v), o in zip(x.items(), orders)}  # type: ignore[call-overload]
    laid["grad"] = np.repeat(laid["grad"], 2, axis=1)[:, ::2]
    grad_a, grad_b = run(backend, laid)
    check(backend, grad_a, x["grad"], x["b"].T)
    check(backend, grad_b, x["a"].T, x["grad"])


def test_the_gradient_of_a_sum(backend: str) -> None:
    """KAIO's case: a gradient of ones, here one element broadcast by zero strides. dA = 1 Bᵀ, dB = Aᵀ 1."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-3, 4, (32, 16)).astype(np.float32), rng.integers(-3, 4, (16, 24)).astype(np.float32)
    grad_a, grad_b = run(backend, {"grad": np.broadcast_to(np.float32(1), (32, 24)), "a": a, "b": b})
    assert np.array_equal(grad_a, np.tile(b.sum(1), (32, 1)))
    assert np.array_equal(grad_b, np.tile(a.sum(0)[:, None], (1, 24)))


def test_f32_gradients_of_16_bit_operands_are_rounded_once(backend: str) -> None:
    """1 + 2**-11 is lost in bf16 and kept in f32."""
    a = np.array([[1.0], [2.0**-11]], bp.BF16.dtype)
    grad, b = np.ones((2, 1), bp.BF16.dtype), np.ones((1, 1), bp.BF16.dtype)
    assert float(run(backend, {"grad": grad, "a": a, "b": b})[1][0, 0]) == 1.0
    assert float(run(backend, {"grad": grad, "a": a, "b": b}, out_dtype="f32")[1][0, 0]) == 1 + 2.0**-11


# ---- vectors and batches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((9,), (9, 5)), ((4, 9), (9,)), ((9,), (9,)), ((3, 4, 9), (9,)), ((0,), (0,)), ((2, 3, 4, 9), (9,)),
        ((3, 4, 9), (3, 9, 5)), ((2, 3, 4, 9), (2, 3, 9, 5)), ((1, 4, 9), (9, 5)), ((4, 9), (1, 1, 9, 5)),
        ((3, 4, 9), (9, 5)), ((2, 3, 4, 9), (9, 5)), ((3, 4, 9), (1, 9, 5)), ((3, 4, 9), (1, 1, 9, 5)),
        ((0, 4, 9), (9, 5)), ((3, 1, 9), (9, 1)),
    ],
)  # fmt: skip
def test_vectors_and_batches(backend: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """The sum over whatever axes were broadcast, by einsum on integers, to the bit."""
    rng = np.random.default_rng(1)
    x = {name: rng.integers(-3, 4, v.shape).astype(np.float32) for name, v in problem(a, b).items()}
    grad_a, grad_b = run(backend, x)
    left = x["a"][None] if len(a) == 1 else x["a"]
    right = x["b"][:, None] if len(b) == 1 else x["b"]
    g = x["grad"].reshape(*np.broadcast_shapes(left.shape[:-2], right.shape[:-2]), left.shape[-2], right.shape[-1])
    wide_a, wide_b = np.einsum("...mn,...kn->...mk", g, right), np.einsum("...mk,...mn->...kn", left, g)
    for got, wide, own in ((grad_a, wide_a, left.shape), (grad_b, wide_b, right.shape)):
        lead = wide.ndim - len(own)
        axes = (*range(lead), *(lead + i for i, n in enumerate(own) if n == 1 and wide.shape[lead + i] != 1))
        wanted = wide.sum(axis=axes, keepdims=True).reshape(got.shape)
        assert np.array_equal(got, wanted)
    assert grad_a.shape == a and grad_b.shape == b


def test_a_shared_weight_gets_one_product() -> None:
    """No transpose and no batch is put in memory: the products are of views of the operands."""
    x = problem((3, 4, 9), (9, 5))
    desc = bp.MatmulBackwardDescriptor.of(x["grad"], x["a"], x["b"])
    parts = [(part.a_shape, part.b_shape) for part in desc.parts.values()]
    assert parts == [((3, 4, 5), (5, 9)), ((9, 12), (12, 5))]
    for product, part, names in zip(desc.products.values(), desc.parts.values(), (("grad", "b"), ("a", "grad"))):
        for view, name, layout in zip((product.first, product.second), names, (part.layout("a"), part.layout("b"))):
            seen = view.of(x[name])
            assert np.shares_memory(seen, x[name]) and view.name == name
            assert seen.shape == layout.shape and tuple(s // 4 for s in seen.strides) == layout.strides


def test_a_buffer_goes_in(backend: str) -> None:
    x = problem((6, 8), (8, 10), bp.BF16)
    slots = [Slot(v, backend).operand for v in x.values()]
    wrapped = [bp.GpuBuffer.view(v, bp.BF16) for v in slots]
    plain, buffered = (bp.matmul_backward(*v, device=device_of(backend)) for v in (slots, wrapped))
    for one, other in zip(plain, buffered):
        assert np.array_equal(host(one).view(np.uint16), host(other).view(np.uint16))


# ---- what it refuses -------------------------------------------------------------------------------------------------


def test_a_gradient_of_another_type_or_shape(backend: str) -> None:
    x = problem((4, 5), (5, 6), bp.BF16)
    f32 = {**x, "grad": x["grad"].astype(np.float32)}
    Call(backend, **f32).refused(bp.OperandTypeError, "grad holds f32", "bf16", "cast grad to bf16")
    Call(backend, **{**x, "a": x["a"].astype(np.float32)}).refused(bp.OperandTypeError, "a holds f32 and b holds bf16")
    for shape in ((6, 4), (4, 6, 1), (24,)):
        wrong = {**x, "grad": x["grad"].reshape(shape)}
        Call(backend, **wrong).refused(bp.InvalidProblemError, "grad must have", "(4, 6)", str(shape))
    Call(backend, **{**x, "b": x["b"][:4]}).refused(bp.InvalidProblemError, "(4, 5)", "(4, 6)", "agree on K")
    integers = {name: np.ones(v.shape, np.int8) for name, v in x.items()}
    Call(backend, **integers).refused(bp.OperandTypeError, "i8", "cast it to a float type")
    Call(backend, **x).refused(bp.OperandTypeError, "bf16", "f64", out_dtype="f64")


@pytest.mark.parametrize(
    ("a", "b", "name", "axes"),
    [
        ((4, 5), (3, 5, 6), "a", "(0,)"), ((2, 1, 4, 5), (1, 3, 5, 6), "a", "(1,)"),
        ((2, 3, 4, 5), (3, 5, 6), "b", "(0,)"), ((5,), (3, 5, 6), "a", "(0,)"),
    ],
)  # fmt: skip
def test_broadcasts_that_would_need_a_copy(
    backend: str, a: tuple[int, ...], b: tuple[int, ...], name: str, axes: str
) -> None:
    product = "matmul(grad, b.swapaxes(-1, -2)" if name == "a" else "matmul(a.swapaxes(-1, -2), grad"
    Call(backend, **problem(a, b)).refused(bp.UnsupportedError, name, f"sum {product}", f"over the axes {axes}")


def test_a_shared_weight_with_rows_that_do_not_follow_on(backend: str) -> None:
    x = problem((3, 4, 5), (5, 6))
    gapped = {**x, "a": np.repeat(x["a"], 2, axis=1)[:, :4]}
    Call(backend, **gapped).refused(bp.UnsupportedError, "in a the rows", "contiguize a", "over the axes (0,)")


def test_a_gradient_names_operands_and_outputs_of_an_op() -> None:
    named = [op for op in all_ops().values() if op.gradient is not None and op.gradient.op]
    assert {op.name for op in named} >= {"matmul", "matmul_tc"}
    for op in named:
        gradient = op.gradient
        assert gradient is not None
        backward_of, forward_of = get_op(gradient.op).plan.descriptor, op.plan.descriptor
        roles = {operand.name: operand.role for operand in backward_of.signature_operands}
        assert {*gradient.gradients, *gradient.saved} <= {o.name for o in forward_of.signature_operands}
        assert all(
            roles[name] == "in" for name in (gradient.grad, *(gradient.renames.get(n, n) for n in gradient.saved))
        )
        assert all(roles[name] == "out" for name in gradient.gradients.values())


# ---- its plan --------------------------------------------------------------------------------------------------------


def test_a_plan_of_it_is_saved_bound_and_explained() -> None:
    desc = bp.MatmulBackwardDescriptor((64, 96), (96, 128), *("bf16",) * 3)  # type: ignore[arg-type]
    plan = bp.MatmulBackwardPlan.select(desc, device="h200")
    again = bp.Plan.from_json(plan.to_json())
    assert again == plan and again.sku == plan.sku and again.selection.steps == plan.selection.steps
    assert "grad_a=" in str(plan.sku) and "grad_b=" in str(plan.sku) and len(plan.kernels) >= 2
    assert plan.capture_safe and plan.deterministic and plan.explain().rows[0].chosen
    assert {"two_products", "tc", "tc_async", "wgmma"} <= {row.variant for row in plan.explain() if row.admitted}
    fixed = bp.MatmulBackwardPlan.select(desc, bp.PlanPreference(variant="tc"), device="h200")
    assert {launch.kernel.file for launch in fixed.selection.launches} == {"gemm/tc.cu"}
    invariant = bp.MatmulBackwardPlan.select(desc, bp.PlanPreference(batch_invariant=True), device="h200")
    assert invariant.precision_guarantee.of("grad_b").batch_invariant
    with pytest.raises(bp.InvalidProblemError, match="there is no output 'out': ask of one of grad_a, grad_b"):
        plan.precision_guarantee.of("out")

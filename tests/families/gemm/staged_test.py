"""wgmma_padded: when the variant is chosen or refused, and the whole product on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import Plan, get_op
from baracuda_py.plan.about.tune import admissible
from baracuda_py.runtime.gpu.device import spec_of
from baracuda_py.runtime.steps import Launch, Ptr, Scratch, Struct, TensorMap
from baracuda_py.samples import Sample
from baracuda_py.types import DeviceSpec, ElementKind, PlanPreference

from ...gauntlet import Part, Problem, in_parts, named, readable, served, warm
from .staged_copy_test import ALONG_K, BLOCKED, LAYOUTS, by_kind, odd

COVERS = ("matmul",)
Array = np.ndarray[Any, Any]
H200 = DeviceSpec.named("h200")
PADDED = PlanPreference(variant="wgmma_padded")
RAGGED = [((4095, 4097, 4093), ("a", "b")), ((777, 1333, 2049), ("a", "b")), ((8192, 8191, 8200), ("b",))]  # M, N, K


def described(m: int, n: int, k: int, kind: str = "bf16", **fields: Any) -> Any:
    return bp.MatmulDescriptor((m, k), (k, n), kind, kind, **fields)


# ---- selection -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "names"), RAGGED)
def test_ragged_products_are_multiplied_from_copies(shape: tuple[int, int, int], names: tuple[str, ...]) -> None:
    m, n, k = shape
    plan = bp.MatmulPlan.select(described(*shape), device=H200)
    assert plan.sku.variant == "wgmma_padded" and plan.capture_safe
    lines = {"a": (m, k), "b": (k, n)}
    assert plan.workspace_size == sum(lines[x][0] * -(-lines[x][1] * 2 // 128) * 128 for x in names)
    text = f"staged={'+'.join(names)}"
    assert text in str(plan.sku) and text in repr(plan.explain())
    rows = {row.variant: row for row in plan.explain()}
    assert not rows["wgmma"].admitted and names[0] in rows["wgmma"].reason and "pad" in rows["wgmma"].fix
    moved = sum(rows_ * cols * 2 for rows_, cols in (lines[x] for x in names)) + plan.workspace_size
    assert plan.cost.bytes == 2 * (m * k + k * n + m * n) + moved
    assert plan.cost.seconds < min(r.microseconds for r in plan.explain() if r.admitted and not r.chosen) * 1e-6


def maps(args: Sequence[Any]) -> list[TensorMap]:
    """The tensor maps among arguments, of boxes too."""
    each = (field for arg in args for field in (arg.fields if isinstance(arg, Struct) else (arg,)))
    return [x for x in each if isinstance(x, TensorMap)]


def test_every_launch_of_a_product_reads_the_copies() -> None:
    """The last wave's as well, where it is one of its own."""
    counts = set()
    for plan in admissible(bp.MatmulPlan, described(8192, 8191, 8200), PADDED, H200):
        copy, *products = (step for step in plan.selection.steps if isinstance(step, Launch))
        regions = {(x.of.offset, x.of.nbytes) for x in maps(products[0].args) if isinstance(x.of, Scratch)}
        assert regions and "pad" in copy.kernel.file
        for product in products:
            read = [x.of for x in maps(product.args[:2])]
            assert {(x.offset, x.nbytes) for x in read if isinstance(x, Scratch)} == regions
            assert {x.operand for x in read if isinstance(x, Ptr)} == {"a"}  # whose lines begin on 16 bytes
        counts.add(len(products))
    assert counts == {1, 2}


@pytest.mark.parametrize(("kind", "math", "size"), [("f32", "tf32", 4096), ("fp8_e4m3", None, 8192)])
def test_rows_of_b_are_transposed_for_tf32_and_fp8(kind: str, math: Any, size: int) -> None:
    def desc(**fields: Any) -> Any:
        return described(size, size, size, kind, math=math, **fields)

    itemsize = ElementKind.of(kind).bits // 8
    plan = bp.MatmulPlan.select(desc(), PlanPreference(backend="bespoke"), device=H200)
    assert plan.sku.variant == "wgmma_padded" and "staged=b.T" in str(plan.sku)
    assert plan.workspace_size == size * size * itemsize
    rows = {row.variant: row for row in plan.explain()}
    assert "b is not contiguous along K" in rows["wgmma"].reason and "K innermost" in rows["wgmma"].fix
    along = bp.MatmulPlan.select(desc(b_strides=(1, size)), PlanPreference(backend="bespoke"), device=H200)
    assert along.sku.variant == "wgmma" and plan.cost.bytes == along.cost.bytes + 2 * plan.workspace_size
    assert along.cost.seconds < plan.cost.seconds < along.cost.seconds + 60e-6
    both = bp.MatmulPlan.select(desc(a_strides=(1, size)), PADDED, device=H200)
    assert both.sku.config is not None and "staged=a.T+b.T" in both.sku.config.split()


def test_small_products_are_not_worth_a_copy() -> None:
    for shape in ((5, 32, 89), (100, 100, 100), (1, 4097, 255)):  # the first as an H200 measured it
        assert bp.MatmulPlan.select(described(*shape), device=H200).sku.variant != "wgmma_padded"


def test_staged_copy_and_product_wait_for_each_other() -> None:
    """Every launch may begin early and waits for the one before it, so that the scratch can be used again at once."""
    plan = bp.MatmulPlan.select(described(777, 1333, 2049), device=H200)
    copy, product = plan.selection.steps
    assert isinstance(copy, Launch) and isinstance(product, Launch)
    assert copy.pdl and product.pdl
    regions = [x.of for x in maps(product.args) if isinstance(x.of, Scratch)]
    to = [f for x in copy.args if isinstance(x, Struct) for f in x.fields if isinstance(f, Scratch)]
    assert set(regions) == set(to) and len(set(to)) == 2
    low, high = sorted(set(regions), key=lambda x: x.offset)
    assert low.offset + low.nbytes <= high.offset and high.offset % 128 == 0
    assert not [x for x in maps(product.args) if isinstance(x.of, Ptr) and x.of.operand != "out"]


@pytest.mark.parametrize(
    ("desc", "device", "reason"),
    [
        (described(4096, 4096, 4096), "h200", "no operand needs a copy"),
        (described(4095, 4097, 4093), "sm_80", "sm_90a only"),
        (described(4095, 4097, 4093), "sm_100a", "sm_90a only"),
        (described(95, 97, 93, "f32"), "h200", "does not multiply in f32"),
        (described(95, 97, 0), "h200", "nothing to multiply"),
        (described(95, 97, 93, name="matmul_tc_bf16"), "h200", "fixes variant 'tc'"),
    ],
)
def test_what_it_refuses(desc: Any, device: str, reason: str) -> None:
    with pytest.raises(bp.UnsupportedError) as caught:
        bp.MatmulPlan.select(desc, PADDED, device=device)
    answers = str(caught.value).partition("preference. ")[2].split("; ")
    mine = next(answer for answer in answers if "wgmma_padded" in answer.partition(": ")[0].split(", "))
    assert reason in mine


def test_a_workspace_that_is_too_small_admits_what_needs_none() -> None:
    desc = described(777, 1333, 2049)
    needed = bp.MatmulPlan.select(desc, device=H200).workspace_size
    assert bp.MatmulPlan.select(desc, PlanPreference(max_workspace_bytes=needed), device=H200).workspace_size == needed
    plan = bp.MatmulPlan.select(desc, PlanPreference(max_workspace_bytes=needed - 1), device=H200)
    assert plan.sku.variant != "wgmma_padded"
    row = next(r for r in plan.explain() if r.variant == "wgmma_padded")
    assert f"needs {needed} bytes of workspace" in row.reason


def test_staged_batch_invariance_is_that_of_wgmma() -> None:
    """One row of an odd pitch goes to wgmma without a copy, more go to wgmma_padded: the same sums."""
    pref = PlanPreference(batch_invariant=True)
    for n, k in ((72, 1023), (129, 1023), (4096, 1024)):
        for m in (1, 2, 65, 300):
            plan = bp.MatmulPlan.select(described(m, n, k), pref, device=H200)
            assert plan.sku.variant in ("wgmma", "wgmma_padded")
            promises = {r.variant for r in plan.explain() if r.admitted}
            assert promises <= {"wgmma", "wgmma_padded"}


@pytest.mark.parametrize(("kind", "math"), [("f32", "tf32"), ("fp8_e4m3", None), ("fp8_e5m2", "fp8_fast")])
def test_one_family_promises_batch_invariance(kind: str, math: Any) -> None:
    """On sm_90a wgmma and its copies, whatever M, the layout and the pitches; elsewhere tc_async, which serves no fp8."""
    pref = PlanPreference(batch_invariant=True)
    for n, k in ((72, 1024), (129, 1023), (4096, 1)):
        for m in (1, 2, 65, 300):
            for strides in ({}, {"a_strides": (1, m)}, {"b_strides": (1, k)}):
                desc = described(m, n, k, kind, math=math, **strides)
                plan = bp.MatmulPlan.select(desc, pref, device=H200)
                assert {r.variant for r in plan.explain() if r.admitted} <= {"wgmma", "wgmma_padded"}
                if kind == "f32":
                    other = bp.MatmulPlan.select(desc, pref, device="sm_80")
                    assert {r.variant for r in other.explain() if r.admitted} == {"tc_async"}


def test_a_saved_plan_is_the_same_plan() -> None:
    plan = bp.MatmulPlan.select(described(777, 1333, 2049), device=H200)
    again = bp.MatmulPlan.from_json(plan.to_json())
    assert again == plan and again.sku == plan.sku and again.selection.steps == plan.selection.steps


# ---- on the device ---------------------------------------------------------------------------------------------------


def plans_of(desc: Any, count: int | None) -> list[Plan[Any]]:
    return admissible(bp.MatmulPlan, desc, PADDED, spec_of(None), per_variant=count)


def of_16_bits(kind: ElementKind) -> Iterator[Sample]:
    """Products of odd extents and addresses, into results of several pitches."""
    for m, n, k in ((130, 1031, 517), (65, 257, 129), (301, 66, 4093), (64, 255, 64)):
        a, b = odd(m, k, kind=kind), odd(k, n, kind=kind, offset=1)
        bias, residual = odd(n, kind=kind), odd(m, n, kind=kind)
        label = f"{kind} {m}x{n}x{k}"
        yield Sample(label, {"a": a, "b": b})
        yield Sample(f"{label} to f32", {"a": a, "b": b}, {"out_dtype": "f32"})
        every = {"a": a, "b": b, "bias": bias, "residual": residual}
        yield Sample(f"{label} all", every, {"activation": "gelu", "alpha": 0.5})
        for spare in (0, 1, 2, 3):  # pitches of the result that are odd, even, and even with an odd last column
            yield Sample(f"{label}+{spare}", {"a": a, "b": b, "out": np.zeros((m, n + spare), kind.dtype)[:, :n]})
        yield Sample(f"{label} in columns", {"a": a, "b": b, "out": np.zeros((n, m), kind.dtype).T})


def along_k(kind: ElementKind) -> Iterator[Sample]:
    """Every layout of a type that is multiplied along K alone, and odd extents."""
    options = {"math": "tf32"} if kind is bp.F32 else {"out_dtype": "f32"}
    for name, (operands, _) in by_kind(kind).items():
        yield Sample(f"{kind} {name}", operands, options)
    if kind is bp.FP8_E4M3:
        for name, (operands, copies) in BLOCKED.items():
            if copies:
                yield Sample(f"{kind} scales {name}", operands, options)
    for m, n, k in ((130, 1031, 517), (300, 272, 1040)):
        for label, a, b in (
            ("rr", odd(m, k, kind=kind), odd(k, n, kind=kind, offset=1)),
            ("cr", odd(k, m, kind=kind).T, odd(k, n, kind=kind)),
        ):
            yield Sample(f"{kind} {m}x{n}x{k} {label}", {"a": a, "b": b}, options)


def in_every_layout() -> Iterator[Sample]:
    for name, (operands, _) in LAYOUTS.items():
        if operands["a"].dtype.itemsize == 2:
            yield Sample(name, operands)


ON_DEVICE: dict[str, Callable[[], Iterator[Sample]]] = {
    "layouts": in_every_layout,
    **{str(kind): partial(of_16_bits, kind) for kind in (bp.BF16, bp.F16)},
    **{str(kind): partial(along_k, kind) for kind in ALONG_K},
}


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ON_DEVICE)
def test_products_from_copies(name: str, everything: bool) -> None:
    """The cheapest configurations (with --all every one) within the guarantee, inputs and guard bytes as they were."""
    problems = [Problem(get_op("matmul"), sample, "cuda") for sample in ON_DEVICE[name]()]
    taken = [(problem, plans_of(problem.desc, None if everything else 3)) for problem in problems]
    assert all(plans for _, plans in taken)
    warm([plan for _, plans in taken for plan in plans])
    for problem, plans in taken:
        with named(problem.sample.label):
            served(problem, plans)


@pytest.mark.gpu
@pytest.mark.timeout(600)
@in_parts(2)
def test_every_tile_leaves_a_ragged_result_whole(part: Part) -> None:
    """All tiles, in rows and in columns, on one product whose result ends in the middle of every tile."""
    a, b = odd(333, 577), odd(577, 419)
    problem = Problem(get_op("matmul"), Sample("", {"a": a, "b": b}), "cuda")
    plans = part.of(plans_of(problem.desc, None))
    warm(plans)
    for plan in plans:
        with named(str(plan.sku)):
            problem.reset()
            plan.run(**problem.operands)
            problem.check_images(problem.images(), plan)


@pytest.mark.gpu
def test_staged_sums_are_those_of_wgmma() -> None:
    """The same bits as wgmma gives for the operands padded by hand."""
    import cupy

    a, b = (cupy.asarray(x.view(np.uint16)).view(x.dtype) for x in (odd(130, 517), odd(517, 1031)))
    by_hand = []
    for x in (a, b):
        wide = cupy.zeros((x.shape[0], -(-x.shape[1] // 8) * 8), np.uint16)
        wide[:, : x.shape[1]] = x.view(np.uint16)
        by_hand.append(wide.view(x.dtype)[:, : x.shape[1]])
    invariant = PlanPreference(batch_invariant=True)
    mine, other = (bp.MatmulPlan.select(bp.MatmulDescriptor.of(*pair), invariant) for pair in ((a, b), by_hand))
    assert (mine.sku.variant, other.sku.variant) == ("wgmma_padded", "wgmma")
    got, wanted = mine.run(a=a, b=b), other.run(a=by_hand[0], b=by_hand[1])
    assert bool((got.view(np.uint16) == wanted.view(np.uint16)).all())


@pytest.mark.gpu
def test_calls_in_a_row_share_one_workspace() -> None:
    """A copy waits for the product that still reads the scratch: many calls on two sets of operands, plain and in a graph."""
    import cupy

    shapes = [(777, 1333, 2049), (1100, 900, 1001)]
    given, plans = [], []
    for m, n, k in shapes:
        operands = {"a": odd(m, k), "b": odd(k, n)}
        given.append({name: cupy.asarray(x.view(np.uint16)).view(x.dtype) for name, x in operands.items()})
        plans.append(bp.MatmulPlan.select(bp.MatmulDescriptor.of(**given[-1]), PADDED))
    workspace = cupy.empty(max(p.workspace_size for p in plans), np.uint8)
    alone = [plan.run(**x).view(np.uint16).copy() for plan, x in zip(plans, given)]
    bounds = [plan.bind(**x, workspace=workspace) for plan, x in zip(plans, given)]
    outs = []
    for _ in range(20):
        for bound in bounds:
            outs.append((bound().view(np.uint16), bound))
            bound.result.view(np.uint16)[...] += 0  # a plain kernel in between, and the next without
            bound()
        for wanted, bound in zip(alone, bounds):
            assert bool((bound.result.view(np.uint16) == wanted).all())
    held = bp.Graph(*bounds, *bounds)
    for bound in bounds:
        bound.result.view(np.uint16)[...] = 0
    for _ in range(10):
        held.launch()
    cupy.cuda.Device().synchronize()
    for wanted, bound in zip(alone, bounds):
        assert bool((bound.result.view(np.uint16) == wanted).all())


@pytest.mark.gpu
def test_a_workspace_out_of_line_is_refused() -> None:
    import cupy

    a, b = (cupy.asarray(x.view(np.uint16)).view(x.dtype) for x in (odd(65, 67), odd(67, 41)))
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(a, b), PADDED)
    with pytest.raises(bp.MisalignedOperandError) as caught:
        plan.run(a=a, b=b, workspace=cupy.empty(plan.workspace_size + 1, np.uint8)[1:])
    readable(caught.value, "matmul", "workspace", "16 bytes")

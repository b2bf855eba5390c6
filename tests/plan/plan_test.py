"""The lifecycle: select for every arch with no GPU, explanations, plans as values, the plan cache, preferences."""

from __future__ import annotations

import contextlib
import inspect
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.call.cache import PlanCache, plan_cache
from baracuda_py.plan import Cost, Feasibility, Plan, all_ops, get_op
from baracuda_py.plan.candidate import OK, Candidate
from baracuda_py.runtime.compile.compiler import Resources
from baracuda_py.runtime.gpu import driver
from baracuda_py.types import DeviceSpec, PlanPreference, known_devices

from ..gauntlet import Problem, readable, samples_of

OPS = list(all_ops())
every_op = pytest.mark.parametrize("op", OPS)
ARCHES = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_100a", "sm_103", "sm_120", "h100", "h200", "cpu")


@cache  # arches vary slower than ops
def descriptors(op: str, count: int = 10) -> list[Any]:
    return [Problem(get_op(op), sample, "cpu").desc for sample in samples_of(get_op(op), count=count)]


# ---- select ----------------------------------------------------------------------------------------------------------


@every_op
@pytest.mark.parametrize("device", ARCHES)
def test_select_needs_no_gpu(op: str, device: str) -> None:
    for desc in descriptors(op):
        eight = "fp8" in str(getattr(desc, "a_element", "")) and device not in ("sm_90a", "h100", "h200", "cpu")
        with pytest.raises(bp.UnsupportedError, match="sm_90a") if eight else contextlib.nullcontext():
            plan = get_op(op).plan.select(desc, device=device)
        if eight:
            continue  # products of fp8 are Hopper's
        assert plan.device.tier is plan.sku.arch
        assert (plan.sku.backend is bp.BackendKind.REFERENCE) == (device == "cpu")
        assert plan.cost.seconds >= 0
        assert plan.cost.bytes >= 0
        assert plan.workspace_size >= 0
        assert plan.provenance == "model" or plan.provenance
        assert f"@{plan.device.arch}" in str(plan.sku)
        assert op in str(plan.sku)


@every_op
def test_a_plan_explains_itself_and_its_repr_never_raises(op: str) -> None:
    for desc in descriptors(op):
        for device in ("sm_90a", "cpu"):
            plan = get_op(op).plan.select(desc, device=device)
            text, markup = repr(plan), plan._repr_html_()
            assert type(plan).__name__ in text
            assert str(plan.sku) in text
            assert markup.count("<table>") == markup.count("</table>") == 1
            table = plan.explain()
            assert sum(row.chosen for row in table) == 1
            assert {row.variant for row in table} == {c.variant for c in plan.all_candidates()}
            for row in table:
                assert row.admitted or row.reason, f"{row.variant} is rejected without a reason"
                assert row.admitted == (row.microseconds is not None) or not row.admitted
            assert len(plan.explain(configs=True)) >= len(table)
            assert plan.sku.variant in repr(table)
            assert table._repr_html_().startswith("<p>")


@every_op
def test_the_chosen_candidate_is_the_cheapest_admitted(op: str) -> None:
    for desc in descriptors(op):
        table = get_op(op).plan.select(desc, device="h200").explain(configs=True)
        admitted = [row for row in table if row.admitted]
        chosen = next(row for row in table if row.chosen)
        assert chosen.microseconds == min(row.microseconds or 0.0 for row in admitted)


def test_without_a_gpu_the_default_device_says_what_to_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baracuda_py.runtime.gpu.driver.device_count", lambda: 0)
    monkeypatch.setattr("baracuda_py.runtime.gpu.device.device_count", lambda: 0)
    if driver.cupy_or_none() is None:
        pytest.skip("CuPy is not installed: another message, tested in runtime_test.py")
    desc = descriptors("add", 2)[-1]
    with pytest.raises(bp.UnsupportedError) as caught:
        bp.BinaryPlan.select(desc)
    readable(caught.value, 'device="cpu"', 'device="sm_90a"', "CUDA device")
    with pytest.raises(bp.UnsupportedError, match="CUDA device"):
        bp.Device(0)


@pytest.mark.parametrize("device", [1.5, object(), ("cpu",), "sm_12", "gpu"])
def test_a_device_that_is_none_is_refused(device: Any) -> None:
    with pytest.raises(bp.UnsupportedError) as caught:
        bp.BinaryPlan.select(descriptors("add", 2)[-1], device=device)
    assert "device" in str(caught.value)


def test_select_refuses_the_descriptor_of_another_family() -> None:
    with pytest.raises(
        bp.InvalidProblemError, match=r"BinaryPlan\.select: expected a BinaryDescriptor, got UnaryDescriptor"
    ):
        bp.BinaryPlan.select(descriptors("exp", 2)[-1], device="cpu")  # type: ignore[arg-type]


def test_the_device_context_nests_and_ends() -> None:
    x = np.ones(3, np.float32)
    with bp.device("cpu"):
        assert bp.exp(x).dtype == np.float32
        with bp.device("sm_90a"), pytest.raises(bp.BaracudaError):
            bp.exp(x)
        assert isinstance(bp.exp(x), np.ndarray)
    with pytest.raises(bp.BaracudaError):
        bp.exp(x)


# ---- values ----------------------------------------------------------------------------------------------------------


@every_op
def test_plans_hash_compare_pickle_and_go_through_json(op: str) -> None:
    seen: dict[Plan[Any], str] = {}
    for desc in descriptors(op):
        for device in ("sm_90a", "h200", "cpu"):
            plan = get_op(op).plan.select(desc, device=device)
            for again in (
                pickle.loads(pickle.dumps(plan)),
                Plan.from_json(plan.to_json()),
                get_op(op).plan.select(desc, device=device),
            ):
                assert again == plan
                assert hash(again) == hash(plan)
                assert again.sku == plan.sku
                assert again.provenance == plan.provenance
                assert again.selection.steps == plan.selection.steps or device == "cpu"
            seen[plan] = str(plan.sku)
        assert pickle.loads(pickle.dumps(desc)) == desc
        assert desc.canonical() == desc.canonical().canonical()
    assert len(seen) >= 3


def test_a_restored_plan_is_not_ranked_again() -> None:
    desc = bp.WriteSliceDescriptor((64, 64), [(0, 32), (0, 32)], "f32")
    default = bp.WriteSlicePlan.select(desc, device="h200")
    other = bp.WriteSlicePlan.select(desc, PlanPreference(variant="elements"), device="h200")
    assert default.sku.variant != "elements"
    assert Plan.from_json(other.to_json()).sku.variant == "elements"
    assert default != other
    gone = (
        other.to_json()
        .replace('"elements"', '"vanished"')
        .replace('"variant": "vanished", "math"', '"variant": null, "math"')
    )
    with pytest.raises(bp.UnsupportedError, match="vanished"):
        Plan.from_json(gone)
    with pytest.raises(bp.UnsupportedError, match="not a plan of this library"):
        Plan.from_json(default.to_json().replace("baracuda_py.ops", "os.path"))


@every_op
def test_a_signature_names_the_operands(op: str) -> None:
    kind = get_op(op).plan
    for method in ("run", "bind", "can_implement"):
        parameters = inspect.signature(getattr(kind, method)).parameters
        for operand in kind.descriptor.signature_operands:  # type: ignore[attr-defined]
            assert operand.name in parameters, f"{method} does not name {operand.name}"
        assert all(p.kind is p.KEYWORD_ONLY for n, p in parameters.items() if n != "self")
        assert getattr(kind, method).__doc__
    assert "stream" in inspect.signature(kind.run).parameters


def test_families_do_not_share_signatures() -> None:
    assert "x1" not in inspect.signature(bp.UnaryPlan.run).parameters
    assert "x1" in inspect.signature(bp.BinaryPlan.run).parameters


# ---- preferences -----------------------------------------------------------------------------------------------------


@every_op
def test_every_admitted_variant_can_be_preferred(op: str) -> None:
    for desc in descriptors(op):
        table = get_op(op).plan.select(desc, device="sm_90a").explain()
        for row in table:
            pref = PlanPreference(variant=row.variant)
            if row.admitted or row.reason.startswith("serves only where"):  # to name it is to ask for it
                assert get_op(op).plan.select(desc, pref, device="sm_90a").sku.variant == row.variant
            else:
                with pytest.raises(bp.UnsupportedError):
                    get_op(op).plan.select(desc, pref, device="sm_90a")


def test_impossible_preference_lists_candidates_and_reasons() -> None:
    desc = bp.WriteSliceDescriptor((64, 64), [(0, 32), (0, 32)], "f32")
    for pref in (
        PlanPreference(backend=bp.BackendKind.NCCL),
        PlanPreference(math="tf32"),
        PlanPreference(variant="whole_dest"),
    ):  # type: ignore[arg-type]
        with pytest.raises(bp.UnsupportedError) as caught:
            bp.WriteSlicePlan.select(desc, pref, device="h200")
        for candidate in bp.WriteSlicePlan.all_candidates():
            assert candidate.variant in str(caught.value).partition("preference. ")[2]
    with pytest.raises(bp.UnsupportedError, match="no variant is called 'fast': choose among whole_dest"):
        bp.WriteSlicePlan.select(desc, PlanPreference(variant="fast"), device="h200")


def test_a_device_chooses_the_host_only_by_its_name() -> None:
    desc = descriptors("add", 2)[-1]
    with pytest.raises(bp.UnsupportedError):
        bp.BinaryPlan.select(desc, PlanPreference(variant="reference"), device="h200")
    with pytest.raises(bp.UnsupportedError):
        bp.BinaryPlan.select(desc, PlanPreference(variant="contiguous"), device="cpu")


@pytest.mark.parametrize("pref", ["tc", {"variant": "tc"}, ["tc"], 3, PlanPreference, True], ids=repr)
def test_a_preference_is_a_plan_preference(pref: Any) -> None:
    """A name alone is refused with the way to say it: it might be a variant's or a back end's."""
    with pytest.raises(bp.InvalidProblemError, match="pref must be a PlanPreference, got") as caught:
        bp.UnaryPlan.select(descriptors("exp", 2)[-1], pref, device="h200")
    if pref == "tc":
        assert "PlanPreference(variant='tc')" in str(caught.value)


class Unstable(Candidate[Any]):
    """Serves everything at no cost, and promises nothing beyond one call."""

    variant = "unstable"

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        return OK

    def cost(self, desc: Any, device: DeviceSpec, config: Any) -> Cost:
        return Cost(0, 0, 0.0)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Any) -> bp.PrecisionGuarantee:
        return replace(bp.UnaryPlan.reference_guarantee(desc), **dict.fromkeys(WISHES.values(), False))


WISHES = {
    "deterministic": "deterministic",
    "bit_stable": "bit_stable_on_same_hardware",
    "batch_invariant": "batch_invariant",
    "exact_weights": "exact_weights",
}


@pytest.mark.parametrize("wish", WISHES)
def test_a_wish_excludes_who_does_not_promise_it(wish: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheapest candidate breaks every promise: it is taken only where none is asked for."""
    monkeypatch.setattr(bp.UnaryPlan, "candidates", (*bp.UnaryPlan.candidates, Unstable()))
    desc = descriptors("exp", 2)[-1]
    nothing = PlanPreference(deterministic=False)
    assert bp.UnaryPlan.select(desc, nothing, device="h200").sku.variant == "unstable"
    plan = bp.UnaryPlan.select(desc, replace(nothing, **{wish: True}), device="h200")
    assert plan.sku.variant != "unstable"
    row = next(row for row in plan.explain() if row.variant == "unstable")
    assert row.reason and row.fix == f"{wish}=False"


@pytest.mark.parametrize("wish", WISHES)
def test_each_wish_is_for_a_promise_of_its_own(wish: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate that breaks another promise is still taken."""

    class Nearly(Unstable):
        broken = ""

        def guarantee(self, desc: Any, device: DeviceSpec, config: Any) -> bp.PrecisionGuarantee:
            return replace(bp.UnaryPlan.reference_guarantee(desc), **{self.broken: False})

    monkeypatch.setattr(bp.UnaryPlan, "candidates", (*bp.UnaryPlan.candidates, Nearly()))
    desc, pref = descriptors("exp", 2)[-1], replace(PlanPreference(deterministic=False), **{wish: True})
    for other, promise in WISHES.items():
        Nearly.broken = promise
        taken = bp.UnaryPlan.select(desc, pref, device="h200").sku.variant
        assert (taken == "unstable") == (other != wish), (wish, other)


def test_a_plan_is_verified_with_the_values_of_the_call() -> None:
    a, b = (np.random.default_rng(i).standard_normal((8, 8)).astype(np.float32) for i in range(2))
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(a, b), device="cpu")
    plan.verify(a=a, b=b, alpha=3.0)


def test_strides_of_axes_of_extent_one_are_ignored() -> None:
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("neg", (1, 64), "f32"), device="cpu")
    x = np.lib.stride_tricks.as_strided(np.ones(64, np.float32), (1, 64), (4096, 4))
    assert (plan.run(x=x) == -1).all()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_operand_must_be_as_aligned_as_in_its_plan(device: str) -> None:
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("neg", (64,), "f32"), device=device)
    memory = np.zeros(512, np.uint8)
    first = -memory.ctypes.data % 16
    x, less = (memory[first + by : first + by + 256].view(np.float32) for by in (0, 8))
    assert plan.can_implement(x=x)
    assert isinstance(plan.can_implement(x=less).error, bp.MisalignedOperandError)


@pytest.mark.parametrize("device", ["h200", "sm_80", "cpu"])
def test_an_empty_problem_needs_no_workspace(device: str) -> None:
    for shapes in (((0, 16), (16, 16)), ((16, 16), (16, 0)), ((0, 4, 8), (0, 8, 4))):
        desc = bp.MatmulDescriptor(*shapes, "bf16", "bf16")  # type: ignore[arg-type]
        plan = bp.MatmulPlan.select(desc, PlanPreference(max_workspace_bytes=0), device=device)
        assert plan.workspace_size == 0 and plan.kernels == ()


# ---- what no machine can address ---------------------------------------------------------------------------------------

FAR: list[tuple[str, dict[str, Any]]] = [
    ("exp", {"shape": (1 << 61,), "element": "f32"}),
    ("exp", {"shape": (10**5000,), "element": "f32"}),
    ("exp", {"shape": (0, 1 << 40, 1 << 40), "element": "f32"}),
    ("exp", {"shape": (2, 2), "element": "f32", "x_strides": (-(1 << 62), 1)}),
    ("add", {"x1_shape": (1 << 40, 1), "x2_shape": (1, 1 << 40), "x1_element": "f32", "x2_element": "f32"}),
    ("matmul", {"a_shape": (1 << 40, 4), "b_shape": (4, 1 << 40), "a_element": "bf16", "b_element": "bf16"}),
]


@pytest.mark.parametrize("device", ["h200", "cpu"])
@pytest.mark.parametrize(("op", "given"), FAR)
def test_a_problem_that_no_memory_holds_is_refused(op: str, given: dict[str, Any], device: str) -> None:
    """So that whatever is selected can be shown: a plan's repr never raises."""
    with pytest.raises(bp.InvalidProblemError, match=r"beyond 64 bits|2\*\*63 bytes"):
        get_op(op).plan.select(get_op(op).describe(**given), device=device)


@pytest.mark.parametrize("device", ["h200", "sm_80", "cpu"])
def test_the_largest_problems_are_shown(device: str) -> None:
    for desc in (
        bp.UnaryDescriptor("exp", ((1 << 61) - 1,), "f32"),  # type: ignore[arg-type]
        bp.UnaryDescriptor("neg", (2, 2), "i8", x_strides=(-(1 << 62), 1)),  # type: ignore[arg-type]
        bp.MatmulDescriptor((1 << 22, 64), (64, 1 << 22), "bf16", "bf16"),  # type: ignore[arg-type]
    ):
        family = next(op.plan for op in all_ops().values() if op.plan.descriptor is type(desc))
        try:
            plan = family.select(desc, device=device)
        except bp.UnsupportedError:
            continue
        assert str(plan.sku) in repr(plan) and plan._repr_html_() and repr(plan.explain())


# ---- the class and the plan --------------------------------------------------------------------------------------------


def test_a_class_is_asked_by_select() -> None:
    """The method of a plan, called on its class with a descriptor, says how it is meant."""
    desc = bp.MatmulDescriptor((8, 8), (8, 8), "f32", "f32")  # type: ignore[arg-type]
    with pytest.raises(
        bp.InvalidProblemError, match=r"MatmulPlan\.can_implement is asked of a selected plan"
    ) as caught:
        bp.MatmulPlan.can_implement(desc, device="h200")  # type: ignore[arg-type]
    assert "plan = MatmulPlan.select(desc, device=...)" in str(caught.value)


# ---- the plan cache --------------------------------------------------------------------------------------------------


def test_a_cache_drops_the_plan_least_recently_used() -> None:
    cache = PlanCache(limit=3)
    device = DeviceSpec.named("sm_90a")

    def desc(n: int) -> Any:
        return bp.UnaryDescriptor("exp", (n,), "f32").canonical()  # type: ignore[arg-type]

    first = cache.selection(bp.UnaryPlan, desc(1), None, device)
    for n in (2, 3):
        cache.selection(bp.UnaryPlan, desc(n), None, device)
    assert cache.selection(bp.UnaryPlan, desc(1), None, device) is first
    cache.selection(bp.UnaryPlan, desc(4), None, device)
    assert cache.info().plans == 3
    assert cache.selection(bp.UnaryPlan, desc(1), None, device) is first
    before = cache.info().misses
    cache.selection(bp.UnaryPlan, desc(2), None, device)
    assert cache.info().misses == before + 1
    cache.clear()
    assert cache.info()[:4] == (0, 0, 0, 0)


def test_a_plan_is_of_the_device_that_it_was_asked_for() -> None:
    """GPUs of one arch differ in what is fast: in their SMs, and so in waves and parts of K."""
    cache = PlanCache()
    whole = DeviceSpec.named("h200")
    part = replace(whole, name="a part of it", sms=16)
    desc = bp.MatmulDescriptor((512, 4096), (4096, 512), "bf16", "bf16").canonical()
    for _ in range(2):
        for device in (whole, part):
            assert cache.selection(bp.MatmulPlan, desc, None, device).device == device
    assert cache.info().plans == 2


def test_the_same_problem_is_selected_once() -> None:
    plan_cache.clear()
    for _ in range(5):
        bp.exp(np.ones((4, 5), np.float32), device="cpu")
    assert plan_cache.info().plans == 1
    bp.exp(np.ones((5, 4), np.float32), device="cpu")
    bp.exp(np.ones((4, 5), np.float64), device="cpu")
    bp.log(np.ones((4, 5), np.float32), device="cpu")
    assert plan_cache.info().plans == 4


def test_threads_share_the_cache_and_select_alike() -> None:
    plan_cache.clear()
    wanted = {n: np.exp(np.full(n, 1.0)).astype(np.float32) for n in range(1, 40)}
    gate = threading.Barrier(8)

    def work(seed: int) -> list[bp.Plan[Any]]:
        gate.wait()
        plans = []
        for n in np.random.default_rng(seed).permutation(list(wanted)):
            got = bp.exp(np.ones(int(n), np.float32), device="cpu")
            assert np.array_equal(got, wanted[int(n)])
            plans.append(bp.UnaryPlan.select(bp.UnaryDescriptor("exp", (int(n),), "f32"), device="h200"))  # type: ignore[arg-type]
        return plans

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(8)))
    assert plan_cache.info().plans == len(wanted)
    assert all(set(r) == set(results[0]) for r in results)


def test_one_plan_runs_in_many_threads() -> None:
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("square", (64,), "f32"), device="cpu")  # type: ignore[arg-type]

    def work(value: int) -> bool:
        x = np.full(64, value, np.float32)
        return bool((plan.run(x=x) == value * value).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(200)))


# ---- what a plan shows -----------------------------------------------------------------------------------------------


def test_kernels_show_source_ptx_and_resources() -> None:
    plan = bp.BinaryPlan.select(descriptors("add", 3)[1], device="sm_90a")
    (kernel,) = plan.kernels
    assert "struct Op" in kernel.source
    assert ".target sm_90a" in kernel.ptx
    assert isinstance(kernel.resources, Resources)
    assert 0 < kernel.resources.registers <= 255
    assert kernel.grid[0] >= 1
    assert kernel.block[0] in (64, 128, 256) and kernel.block[1:] == (1, 1)
    assert kernel.name in repr(kernel)
    assert plan.launch_config[0].grid == kernel.grid
    assert plan.shared_memory_bytes == kernel.shared_memory_bytes == 0
    assert plan.capture_safe
    assert plan.deterministic


def test_a_host_plan_has_no_kernel_and_no_graph() -> None:
    plan = bp.BinaryPlan.select(descriptors("add", 3)[1], device="cpu")
    assert plan.kernels == ()
    assert not plan.capture_safe
    with pytest.raises(bp.InvalidProblemError, match=r"pass plan\.bind"):
        bp.Graph(plan)  # type: ignore[arg-type]


def test_bound_plans_update_and_keep_their_operands() -> None:
    x, y = np.arange(4, dtype=np.float32), np.full(4, 3, np.float32)
    plan = bp.BinaryPlan.select(get_op("add").of(x1=x, x2=x), device="cpu")
    bound = plan.bind(x1=x, x2=x)
    first = bound()
    assert np.array_equal(first, x * 2)
    assert bound.update(x2=y)() is first, "the output it allocated stays the one it writes"
    assert np.array_equal(first, x + 3)
    assert "bound" in repr(bound)
    with pytest.raises(bp.InvalidProblemError):
        bound.update(x2=np.ones(5, np.float32))
    assert np.array_equal(bound(), x + 3), "a refused update changes nothing"


def test_known_devices_are_selectable() -> None:
    for name in known_devices():
        assert bp.UnaryPlan.select(bp.UnaryDescriptor("exp", (8,), "f32"), device=name).sku  # type: ignore[arg-type]


@pytest.mark.gpu
def test_autotune_times_and_is_remembered(fresh_cache: Any) -> None:  # noqa: ARG001
    import cupy

    a, b, out = (cupy.ones((512, 512), np.float32) for _ in range(3))
    op = get_op("add")
    plan = op.plan.select(op.of(x1=a, x2=b, out=out))
    assert plan.provenance == "model"
    assert plan.profile(x1=a, x2=b, out=out, repeats=5) > 0
    tuned = plan.autotune(x1=a, x2=b, out=out)
    assert tuned.provenance.startswith("tuned ")
    again = op.plan.select(plan.desc)
    assert (again.provenance, again.sku) == (tuned.provenance, tuned.sku)
    assert (out == 1).all(), "written operands are timed on copies"
    tuned.verify(x1=a, x2=b, out=out)

"""Plans from outside: JSON and pickles that were cut, edited or written by another version are refused by name, or are right."""

from __future__ import annotations

import copy
import json
import math
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.plan import Plan, all_ops, get_op
from baracuda_py.plan.candidate import steps_of
from baracuda_py.plan.select import assess, checked
from baracuda_py.types import PlanPreference

from ..gauntlet import Problem, samples_of

DEVICES = ("h200", "sm_80", "sm_120", "cpu", "ptx:h200")
CASES, BOUNDED = 5000, 200


@lru_cache(maxsize=1)
def saved() -> list[str]:
    """Plans of every op, for several devices, with preferences, and of other variants than the cheapest."""
    texts = []
    for name in all_ops():
        for i, sample in enumerate(samples_of(get_op(name), count=5)):
            desc = Problem(get_op(name), sample, "cpu").desc
            device = DEVICES[i % len(DEVICES)]
            pref = PlanPreference(deterministic=False, max_workspace_bytes=1 << 40) if i % 2 else None
            try:
                plan = get_op(name).plan.select(desc, pref, device=device)
            except bp.UnsupportedError:  # products of fp8 are Hopper's
                plan = get_op(name).plan.select(desc, pref, device="h200")
            texts.append(plan.to_json())
    desc = bp.MatmulDescriptor((64, 32), (32, 48), "f16", "f16", activation="gelu", bias_shape=(48,), alpha=0.5)
    texts += [
        bp.MatmulPlan.select(desc, PlanPreference(variant=variant), device="sm_90a").to_json()
        for variant in ("tc", "tc_async", "simt", "wgmma")
    ]
    return texts


# ---- the fuzz ----------------------------------------------------------------------------------------------------------


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything inside a JSON value."""
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


WORDS = (
    "", "f32", "bf16", "s4", "bin", "fp8_e4m3", "complex64", "float31", "exp", "add", "pow", "relu", "gelu", "tf32", "fp8_fast",
    "sm_80", "sm80", "sm_90a", "sm90a", "host", "cpu", "h200", "tc", "simt", "elements", "vectorised", "reference", "map",
    "contiguous", "128x64", "nan", "-inf", "BSHD", "matmul", "matmul_tc", "evil<script>", "a\nb", "\ud800", "x" * 300,
    "baracuda_py.ops.gemm.matmul:MatmulPlan", "baracuda_py.ops.elementwise.unary:UnaryPlan", "baracuda_py.ops.gemm.matmul:np",
    "baracuda_py.ops.gemm.matmul:matmul", "baracuda_py.ops.absent:Plan", "baracuda_py.plan.plan:Plan", "os:system",
    "baracuda_py.ops...gemm:X", "baracuda_py.ops:", "tuned 2026-01-01", "shipped",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 3, 5, 7, 8, 12, 16, 17, 64, 4096, 10**9, 2**31 - 1, 2**31, 2**32, 2**62, 2**63, -(2**63), 2**64, 10**40,
    -(10**40), 10**400, 0.0, -0.0, 0.5, 1.0, 2.5, 1e300, -1e-300, math.nan, math.inf, -math.inf,
)  # fmt: skip


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def odd(rng: random.Random) -> Any:
    return rng.choice(
        (
            lambda: rng.choice(NUMBERS),
            lambda: rng.choice(NUMBERS),
            lambda: rng.choice(WORDS),
            lambda: rng.choice((None, True, False, [], {}, [[]], {"a": 1}, deep(200))),
            lambda: [rng.choice(NUMBERS) for _ in range(rng.randrange(5))],
            lambda: [[rng.choice(NUMBERS[:14]), rng.choice(NUMBERS[:14])] for _ in range(rng.randrange(4))],
        )
    )()


def tampered(rng: random.Random, text: str, other: str) -> str:
    """One to three changes to a saved plan."""
    data, donor = json.loads(text), json.loads(other)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        section = rng.choice(("descriptor", "descriptor", "descriptor", "device", "preference", None))
        within = [p for p in places(data) if section is None or p[0] == section]
        if not within:
            continue
        path = rng.choice(within)
        holder, key, present = at(data, path[:-1]), path[-1], at(data, path)
        kind = rng.randrange(8)
        if kind == 0 and isinstance(holder, dict):
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[rng.choice(("newer", "", "a_align ", "self", "__class__"))] = odd(rng)
        elif kind == 2:
            twin = rng.choice(within)
            holder[key] = copy.deepcopy(at(data, twin)) if len(twin) >= len(path) else odd(rng)
        elif kind == 3 and isinstance(present, int):
            holder[key] = present + rng.choice((-2, -1, 1, 2, 8, 1000, 2**20)) * rng.choice((1, max(present, 1)))
        elif kind == 4 and isinstance(present, list):
            holder[key] = rng.choice(
                (present[:-1], present[::-1], present * 2, [*present, 1], [str(v) for v in present])
            )
        elif kind == 5:
            try:
                holder[key] = copy.deepcopy(at(donor, path))
            except (KeyError, IndexError, TypeError):
                holder[key] = odd(rng)
        elif kind == 6:
            holder[key] = rng.choice((str(present), [present], {"value": present}, present == 1))
        else:
            holder[key] = odd(rng)
    text = json.dumps(data)
    if rng.random() < 0.08:
        cut = rng.randrange(len(text))
        text = rng.choice((text[:cut], text[:cut] + rng.choice('{}[]",:0eN\x00') + text[cut + 1 :], text + "}"))
    return text


@lru_cache(maxsize=4096)
def served(plan: Plan[Any]) -> bool:
    """Whether `select` could have made this plan: its problem is valid, its candidate serves it, and it lowers."""
    canonical = checked(plan.desc)
    (candidate,) = (c for c in plan.all_candidates() if c.variant == plan.sku.variant)
    answers = assess([candidate], canonical, plan.pref, plan.device, only=plan.sku.config)
    steps_of(candidate, canonical, plan.device, answers[0].config)
    return bool(answers[0].feasibility)


def test_no_tampering_gets_past_the_checks_of_select(bounded: bool) -> None:
    """Each is refused by a typed error, or is a plan that `select` could have made, which is saved and shown as any other."""
    rng, texts = random.Random(20260), saved()
    outcomes, count = {"refused": 0, "restored": 0, "the same": 0}, BOUNDED if bounded else CASES
    for case in range(count):
        original = rng.choice(texts)
        text = tampered(rng, original, rng.choice(texts))
        try:
            plan: Plan[Any] | None = Plan.from_json(text)
        except bp.BaracudaError as error:
            said, plan = str(error), None
        except Exception as error:
            raise AssertionError(f"case {case}: {type(error).__name__}: {error}: {text[:800]}") from error
        if plan is None:
            assert 20 < len(said) < 1200, f"case {case}: {said}"
            outcomes["refused"] += 1
            continue
        assert served(plan), f"case {case}: {text[:800]}"
        assert Plan.from_json(plan.to_json()) == plan
        assert str(plan.sku) in repr(plan)
        outcomes["the same" if plan.to_json() == original else "restored"] += 1
    # Of 600 cases 29 to 48 are restored, by the seed and by the order of ops: far fewer would mean that nothing gets that far.
    assert outcomes["refused"] > count // 2 and outcomes["restored"] > count // 40, outcomes


# ---- single tamperings -------------------------------------------------------------------------------------------------


def window() -> Plan[Any]:
    desc = bp.WriteSliceDescriptor((4, 8), [(0, 2), (0, 8)], "f32")  # type: ignore[arg-type]
    return bp.WriteSlicePlan.select(desc, device="h200")


def changed(plan: Plan[Any], /, **changes: Any) -> str:
    """A plan's JSON with values put in at dotted paths; ``...`` deletes."""
    data = json.loads(plan.to_json())
    for path, value in changes.items():
        *within, key = path.split("__")
        holder = at(data, tuple(within))
        holder.pop(key, None)
        if value is not ...:
            holder[key] = value
    return json.dumps(data)


@pytest.mark.parametrize("ranges", [[[1000, 1002], [0, 8]], [[-1000, -998], [0, 8]], [[3, 5], [0, 8]], [[0, 2]]])
def test_a_window_outside_its_destination_is_not_restored(ranges: Any) -> None:
    with pytest.raises(bp.InvalidProblemError, match="write_slice"):
        Plan.from_json(changed(window(), descriptor__ranges=ranges))


BROKEN: list[Any] = [
    None, b"{}", 7, "", "nonsense", "null", "[]", "3", "{", "{}", "[" * 100_000, '{"a":' * 50_000, "1" * 10_000, "NaN",
]  # fmt: skip


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: repr(text)[:12])
def test_what_is_no_saved_plan_is_refused(text: Any) -> None:
    with pytest.raises(
        bp.InvalidProblemError, match=r"Plan\.from_json: this is no saved plan: .*: pass what"
    ) as caught:
        Plan.from_json(text)
    assert len(str(caught.value)) < 320


@pytest.mark.parametrize("field", ["plan", "descriptor", "preference", "device", "variant", "config", "provenance"])
@pytest.mark.parametrize("value", [..., None, 3, ["x"], "a\nb"], ids=str)
def test_every_field_is_needed_and_of_its_sort(field: str, value: Any) -> None:
    with pytest.raises(bp.InvalidProblemError, match="this is no saved plan: "):
        Plan.from_json(changed(window(), **{field: value}))


@pytest.mark.parametrize(
    "name",
    [
        "os:system", "baracuda_py.ops.absent:Plan", "baracuda_py.ops.gemm.matmul:matmul", "baracuda_py.ops.gemm.matmul:Plan",
        "baracuda_py.ops.gemm.matmul:Absent", "baracuda_py.plan.plan:Plan", "baracuda_py.cli.main:main", "antigravity:x",
        "baracuda_py.ops..gemm:X", "baracuda_py.ops.gemm.matmul:MatmulPlan:x", ".ops.gemm.matmul:MatmulPlan",
    ],
)  # fmt: skip
def test_only_families_of_this_library_are_looked_up(name: str) -> None:
    before = set(sys.modules)
    with pytest.raises(bp.UnsupportedError, match="is not a plan of this library: "):
        Plan.from_json(changed(window(), plan=name))
    assert all(m.startswith("baracuda_py.") for m in set(sys.modules) - before)


@pytest.mark.parametrize("module", ["quantized.int4", "quantized.absent", "absent"])
def test_from_json_finds_plans_of_moved_modules(module: str) -> None:
    """`ops.quantized.int4` was the plan's module, and is a package now."""
    desc = bp.Int4MatmulDescriptor(**bp.Int4MatmulPlan.probes[0])
    plan = bp.Int4MatmulPlan.select(desc, device="h200")
    assert Plan.from_json(changed(plan, plan=f"baracuda_py.ops.{module}:Int4MatmulPlan")) == plan


@pytest.mark.parametrize("place", ["newer", "descriptor__newer", "preference__newer", "device__newer"])
def test_saved_plan_of_a_newer_version_is_refused(place: str) -> None:
    plan = window()
    with pytest.raises(bp.UnsupportedError, match="newer, of which this version knows nothing") as caught:
        Plan.from_json(changed(plan, **{place: 1}))
    assert f"select now chooses {plan.sku}" in str(caught.value)


def test_a_variant_that_does_not_serve_is_not_restored() -> None:
    """Though it exists: the candidate is asked again."""
    plan = bp.BinaryPlan.select(bp.BinaryDescriptor("add", (8,), (8,), "f32", "f32"), device="h200")  # type: ignore[arg-type]
    desc = bp.BinaryDescriptor("add", (8, 8), (8, 8), "f32", "f32", x1_strides=(1, 8))  # type: ignore[arg-type]
    strided = bp.BinaryPlan.select(desc, device="h200")
    assert plan.sku.variant != strided.sku.variant
    with pytest.raises(bp.UnsupportedError, match="does not serve it: select now chooses") as caught:
        Plan.from_json(changed(strided, variant=plan.sku.variant, config=plan.sku.config))
    assert str(strided.sku) in str(caught.value)
    for config in ("", "vector=3 unroll=1 threads=128", "nonsense"):
        with pytest.raises(bp.UnsupportedError, match="does not serve it"):
            Plan.from_json(changed(plan, config=config))
    with pytest.raises(bp.UnsupportedError, match="does not serve it"):  # nor against what was insisted on
        Plan.from_json(changed(plan, preference__variant="strided"))


NOT_A_DEVICE = (..., None, 0, -1, "", [], [["f32"]], [[["f32"], 1]], {"f32": 1}, "sm_75", 10**400)
DEVICE_FIELDS = ("name", "arch", "tier", "sms", "shared_bytes", "l2_bytes", "bandwidth", "rates")
POSSIBLE = (("l2_bytes", 0), ("name", "sm_75"))


@pytest.mark.parametrize(
    ("field", "value"), [(f, v) for f in DEVICE_FIELDS for v in NOT_A_DEVICE if (f, v) not in POSSIBLE], ids=str
)
def test_a_device_that_cannot_be_is_refused(field: str, value: Any) -> None:
    with pytest.raises((bp.InvalidProblemError, bp.UnsupportedError)):
        Plan.from_json(changed(window(), **{f"device__{field}": value}))


def test_every_way_back_is_checked() -> None:
    """A pickle holds the same text; a copy is the plan itself, which nothing can change."""
    plan = window()
    wrong = pickle.dumps(plan).replace(b'"ranges": [[0, 2]', b'"ranges": [[9, 9]')
    with pytest.raises(bp.InvalidProblemError, match="write_slice"):
        pickle.loads(wrong)
    assert copy.copy(plan) is plan and copy.deepcopy([plan])[0] is plan


# ---- what is saved -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [math.nan, -math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e300])
def test_every_number_comes_back(alpha: float) -> None:
    """In valid JSON, which has no word for NaN and the infinities."""

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is not JSON")

    plan = bp.MatmulPlan.select(bp.MatmulDescriptor((8, 8), (8, 8), "f64", "f64", alpha=alpha), device="h200")  # type: ignore[arg-type]
    json.loads(plan.to_json(), parse_constant=refuse)
    again = Plan.from_json(plan.to_json())
    assert again == plan and hash(again) == hash(plan)
    assert math.copysign(1.0, again.desc.alpha) == math.copysign(1.0, alpha) or math.isnan(alpha)


def test_numpy_integers_are_saved_as_numbers() -> None:
    import numpy as np

    plain = bp.UnaryDescriptor("exp", (64,), "f32", x_align=8)  # type: ignore[arg-type]
    desc = replace(plain, shape=(np.int64(64),), x_align=np.int64(8))
    for device in ("h200", "cpu"):
        plan = bp.UnaryPlan.select(desc, device=device)
        assert plan == bp.UnaryPlan.select(plain, device=device) == Plan.from_json(plan.to_json())


# ---- values ------------------------------------------------------------------------------------------------------------


def test_a_plan_cannot_be_changed() -> None:
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("exp", (64,), "f32"), device="cpu")  # type: ignore[arg-type]
    before, text = hash(plan), repr(plan)
    attempts: list[Callable[[], Any]] = [
        lambda: setattr(plan, "device", None),
        lambda: setattr(plan, "provenance", "measured"),
        lambda: setattr(plan, "sku", None),
        lambda: setattr(plan, "fresh", 1),
        lambda: delattr(plan, "desc"),
        lambda: delattr(plan, "sku"),
    ]
    for attempt in attempts:
        with pytest.raises(AttributeError, match="UnaryPlan"):
            attempt()
    assert (hash(plan), repr(plan)) == (before, text)
    assert plan.cost is plan.cost and plan.precision_guarantee is plan.precision_guarantee, "what it worked out is kept"


def test_a_plan_is_equal_by_all_that_decides_it() -> None:
    desc = bp.MatmulDescriptor((64, 64), (64, 64), "f16", "f16")  # type: ignore[arg-type]
    plan = bp.MatmulPlan.select(desc, PlanPreference(variant="tc"), device="h200")
    others = [
        bp.MatmulPlan.select(desc, replace(plan.pref, max_workspace_bytes=1 << 40), device="h200"),
        bp.MatmulPlan.select(desc, plan.pref, device="sm_90a"),
        bp.MatmulPlan.select(replace(desc, alpha=2.0), plan.pref, device="h200"),
        next(
            Plan.from_json(changed(plan, config=row.config)) for row in configs(plan) if row.config != plan.sku.config
        ),
    ]
    assert [o.sku.config for o in others[:2]] == [plan.sku.config] * 2
    for other in others:
        assert other != plan and hash(other) != hash(plan)
    assert len({plan, *others, Plan.from_json(plan.to_json())}) == 5


def test_saved_plan_refuses_a_number_of_another_type() -> None:
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor((64, 64), (64, 64), "f16", "f16"), device="h200")  # type: ignore[arg-type]
    saved = json.loads(plan.to_json())
    assert saved["descriptor"]["alpha"] == 1 and saved["descriptor"]["a_shape"] == [64, 64]
    for field, value in (("alpha", 1), ("a_shape", [64, 64.0]), ("a_shape", [64, True])):
        with pytest.raises(bp.InvalidProblemError):
            Plan.from_json(json.dumps(saved | {"descriptor": saved["descriptor"] | {field: value}}))


def configs(plan: Plan[Any]) -> list[Any]:
    return [row for row in plan.explain(configs=True) if row.admitted and row.variant == plan.sku.variant]


def test_an_edited_configuration_is_not_the_models_choice() -> None:
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor((64, 512), (512, 256), "f16", "f16"), device="h200")
    assert plan.provenance == bp.MatmulPlan.from_json(plan.to_json()).provenance == "model"
    other = next(row for row in plan.explain(configs=True) if row.admitted and not row.chosen)
    saved = json.loads(plan.to_json()) | {"variant": other.variant, "config": other.config}
    edited = bp.MatmulPlan.from_json(json.dumps(saved))
    assert edited.provenance == "asked for"
    (chosen,) = (row for row in edited.explain(configs=True) if row.chosen)
    assert (chosen.variant, chosen.config) == (other.variant, other.config)
    assert chosen.reason == "chosen: asked for when it was planned"

"""Projections to queries, keys and values, beyond the gauntlet: both kinds of weights in one plan, rotated and refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.types import PlanPreference

from .int4_test import packed

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(5)
FREQUENCIES = np.array([1, 0.25], np.float32)
WIDTHS = (16, 8, 5)


def eight(*lead: int, k: int = 48, dtype: Any = np.float16) -> dict[str, Any]:
    """Operands with i8 weights."""
    made: dict[str, Any] = {"x": rng.standard_normal((*lead, k)).astype(dtype)}
    for part, n in zip("qkv", WIDTHS):
        made[f"w{part}"] = rng.integers(-90, 90, (n, k)).astype(np.int8).T
        made[f"scale_{part}"] = rng.uniform(0.01, 0.02, n).astype(np.float32)
    return made


def four(*lead: int) -> dict[str, Any]:
    """Operands with int4 weights."""
    given = {f"w{part}": packed("tiled", 64, n, 64) for part, n in zip("qkv", WIDTHS)}
    return {"x": rng.standard_normal((*lead, 64)).astype(np.float16), **given}


@pytest.mark.parametrize("weights", ["int8", "int4"])
@pytest.mark.parametrize("lead", [(), (5,), (2, 3), (2, 1, 3)])
def test_rotated_output_is_projected_and_then_rotated(weights: str, lead: tuple[int, ...]) -> None:
    """The same bits, whatever the leading axes; values are unchanged."""
    given, project = (eight(*lead), bp.qkv_project_int8) if weights == "int8" else (four(*lead), bp.qkv_project_int4)
    plain = project(**given, device="ptx")
    found = project(**given, inv_freq=FREQUENCIES, head_dim=8, device="ptx")
    tokens = lead[-1] if lead else 1
    for x, made in zip(plain[:2], found[:2]):
        heads = x.reshape(-1, tokens, x.shape[-1] // 8, 8)
        wanted = bp.rope(heads, inv_freq=FREQUENCIES, layout="BSHD", device="ptx")
        assert np.array_equal(made, wanted.reshape(x.shape))
    assert np.array_equal(found.v, plain.v)


@pytest.mark.parametrize("positions", [(3,), (2, 3)])
def test_positions_are_of_all_leading_axes_or_of_the_last(positions: tuple[int, ...]) -> None:
    """A token that tables do not have is reported, and what would be rotated is 0."""
    angles = np.arange(6, dtype=np.float32)[:, None] * FREQUENCIES
    given = eight(2, 3) | {"cos": np.cos(angles), "sin": np.sin(angles), "head_dim": 8}
    at = np.arange(1, 1 + int(np.prod(positions)), dtype=np.int32).reshape(positions)
    own = np.full(positions, -7, np.int32)  # without it the host raises
    found = bp.qkv_project_int8(**given, positions=at, status=own, device="ptx")
    outside = np.broadcast_to(at, (2, 3)) >= 6
    assert np.array_equal(found.status, at >= 6)
    assert not found.q[outside][:, :4].any() and found.q[outside][:, 4:8].any() == outside.any()
    rotated = bp.qkv_project_int8(**given, positions=at, status=own, device="cpu")
    assert np.allclose(found.k.astype(float), rotated.k.astype(float), atol=0.02)
    for device in ("cpu", "ptx"):
        with pytest.raises(bp.InvalidProblemError, match=r"qkv_project_int8: positions\[.*\] = 9 is out of range"):
            bp.qkv_project_int8(**given, positions=np.full(positions, 9), device=device)


def test_outputs_may_lie_side_by_side() -> None:
    """Columns of one array, as attention takes them."""
    whole = np.zeros((4, sum(WIDTHS)), np.float16)
    ends = np.cumsum((0, *WIDTHS))
    outs = {part: whole[:, a:b] for part, a, b in zip("qkv", ends, ends[1:])}
    given = eight(4) | {"inv_freq": FREQUENCIES, "head_dim": 8}
    bp.qkv_project_int8(**given, **outs, device="ptx")
    assert np.array_equal(whole, np.concatenate(bp.qkv_project_int8(**given, device="ptx"), axis=1))


def test_outputs_may_be_unaligned() -> None:
    """On two bytes: what is rotated is read and written by single columns."""
    given = eight(4) | {"inv_freq": FREQUENCIES, "head_dim": 8}
    stored = {part: np.zeros(4 * n + 8, np.float16) for part, n in zip("qkv", WIDTHS)}
    first = {part: (2 - x.ctypes.data) % 16 // 2 for part, x in stored.items()}
    outs = {p: x[first[p] : first[p] + 4 * n].reshape(4, n) for (p, x), n in zip(stored.items(), WIDTHS)}
    made = bp.qkv_project_int8(**given, **outs, device="ptx")
    assert all(map(np.array_equal, made, bp.qkv_project_int8(**given, device="ptx")))


def test_positions_that_are_not_evenly_spaced_are_refused() -> None:
    given = eight(2, 3, 4) | {"inv_freq": FREQUENCIES, "head_dim": 8}
    positions = np.zeros((3, 2, 4), np.int32).transpose(1, 0, 2)
    with pytest.raises(bp.UnsupportedError, match="positions are not evenly spaced: pass positions in C order"):
        bp.qkv_project_int8(**given, positions=positions, device="ptx")


def test_one_plan_serves_both_kinds_of_weights() -> None:
    for given, weights in ((eight(4), "int8"), (_arrays(four(4)), "int4")):
        desc = bp.QkvProjectDescriptor.of(**given, weights=weights, **({"widths": WIDTHS} if weights == "int4" else {}))
        plan = bp.QkvProjectPlan.select(desc, device="h200")
        assert plan.desc.op == f"qkv_project_{weights}" and bp.QkvProjectPlan.from_json(plan.to_json()) == plan
        assert f"weights are {weights}" in str(plan.explain())


def test_why_a_kernel_does_not_turn_is_explained() -> None:
    desc = bp.QkvProjectDescriptor.of(**eight(1), inv_freq=FREQUENCIES, head_dim=8)
    plan = bp.QkvProjectPlan.select(desc, device="h200")
    assert plan.sku.variant == "then_rope" and "fused" in str(plan.sku.config)
    assert "pairs are not of one CTA" in str(plan.explain())
    with pytest.raises(bp.UnsupportedError, match="then_rope"):
        bp.QkvProjectPlan.select(desc, PlanPreference(variant="fused"), device="h200")


def _arrays(given: dict[str, Any]) -> dict[str, Any]:
    """PackedInt4s as their arrays, of a group of all K."""
    made = {"x": given["x"], "group_size": 64}
    for part in "qkv":
        made |= {f"w{part}": given[f"w{part}"].codes, f"scales_{part}": given[f"w{part}"].scales}
    return made


ANGLES = {"inv_freq": FREQUENCIES, "head_dim": 8}
REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no heads": ({"inv_freq": FREQUENCIES}, bp.InvalidProblemError, "give the columns of a head"),
    "broken heads": (ANGLES | {"head_dim": 12}, bp.InvalidProblemError, "q has 16 columns"),
    "more pairs than columns": (ANGLES | {"head_dim": 2}, bp.InvalidProblemError, "the rotation: 2 pairs"),
    "heads without angles": ({"head_dim": 8}, bp.InvalidProblemError, "head_dim was given and no angles"),
    "positions alone": ({"positions": np.zeros(3, np.int32)}, bp.InvalidProblemError, "positions was given"),
    "positions of others": (
        ANGLES | {"positions": np.zeros(4, np.int32)},
        bp.InvalidProblemError,
        "the rotation: positions has shape",
    ),
    "one table": ({"head_dim": 8, "cos": np.ones((9, 2), np.float32)}, bp.InvalidProblemError, "angles are given by cos"),
    "no finite factor": (ANGLES | {"attention_factor": np.inf}, bp.InvalidProblemError, "attention_factor"),
    "an unknown style": (ANGLES | {"style": "thirds"}, bp.InvalidProblemError, "half"),
    "sums as they are": (ANGLES | {"x": np.ones((3, 48), np.int8)} | dict.fromkeys(("scale_q", "scale_k", "scale_v")),
                         bp.InvalidProblemError, "results of i32 are not rotated"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_rotations_are_refused_in_words(case: str) -> None:
    more, error, words = REFUSED[case]
    for device in ("cpu", "ptx"):
        with pytest.raises(error, match=words):
            bp.qkv_project_int8(**eight(3) | more, device=device)


def test_what_other_weights_have_is_refused() -> None:
    fields = {"x_shape": (3, 48), "element": "f16", "weights": "int8"}
    shapes = {f"w{part}_shape": (48, n) for part, n in zip("qkv", WIDTHS)}
    scales = {f"scale_{part}_{what}": x for part in "qkv" for what, x in (("shape", ()), ("element", "f32"))}
    bp.QkvProjectDescriptor(**fields, **shapes, **scales).validate()
    for more in ({"zeros_q_element": "u8"}, {"group_size": 64}, {"widths": WIDTHS}):
        with pytest.raises(bp.InvalidProblemError, match="is of int4 weights"):
            bp.QkvProjectDescriptor(**fields, **shapes, **scales, **more).validate()
    four_bits = {"x_shape": (3, 64), "element": "f16", "weights": "int4", "widths": WIDTHS, "group_size": 64}
    bp.QkvProjectDescriptor(**four_bits).validate()
    for more in ({"dynamic": True}, {"scale_x_shape": (), "scale_x_element": "f32"}):
        with pytest.raises(bp.InvalidProblemError, match="is of int8 weights"):
            bp.QkvProjectDescriptor(**four_bits, **more).validate()
    with pytest.raises(bp.InvalidProblemError, match="in C order"):
        bp.QkvProjectDescriptor(**four_bits, wq_strides=(1, 1, 1, 1)).validate()
    with pytest.raises(bp.InvalidProblemError, match="widths of q, k and v"):
        bp.QkvProjectDescriptor(**four_bits | {"widths": (16, 8)}).validate()


@pytest.mark.parametrize("lead", [(2, 0), (0, 3), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_no_tokens_in_several_axes(lead: tuple[int, ...], dynamic: bool) -> None:
    """Axes of nothing are evenly spaced, whatever their strides; so are their scales."""
    weights = {f"w{part}": np.ones((16, 8), np.int8) for part in "qkv"}
    scales = {f"scale_{part}": np.ones(8, np.float32) for part in "qkv"}
    turn = {"inv_freq": np.ones(2, np.float32), "head_dim": 4}
    x = np.ones((*lead, 16), np.float16)
    for more in ({}, turn):
        made = bp.qkv_project_int8(x, **weights, **scales, **more, dynamic=dynamic, device="ptx")
        assert [one.shape for one in made] == [(*lead, 8)] * 3
    codes, of_tokens = np.ones((*lead, 16), np.int8), np.ones(lead, np.float32)
    made = bp.matmul_int8(codes, weights["wq"], of_tokens, scales["scale_q"], device="ptx")
    assert made.shape == (*lead, 8)


@pytest.mark.parametrize("turns", [False, True])
def test_uneven_rows_are_refused_with_their_reason(turns: bool) -> None:
    given = {"x": np.asfortranarray(np.ones((2, 3, 16), np.float16))}
    given |= {f"w{part}": np.ones((16, 8), np.int8) for part in "qkv"}
    given |= {f"scale_{part}": np.ones(8, np.float32) for part in "qkv"}
    more = {"inv_freq": np.ones(2, np.float32), "head_dim": 4} if turns else {}
    with pytest.raises(bp.UnsupportedError, match=r"qkv_project_int8: of q: the rows .* are not evenly spaced"):
        bp.qkv_project_int8(**given, **more, device="ptx")


def test_qkv_bound_excludes_overflow_before_rotation() -> None:
    """A pair (-80000, 1) by nearly a quarter turn is one that f16 holds, and was infinite on the way."""
    given: dict[str, Any] = {"x": np.ones((1, 16), np.float16), "inv_freq": np.full(1, 1.5, np.float32)}
    given["positions"] = np.ones(1, np.int32)
    for part in "qkv":
        given |= {f"w{part}": np.full((16, 4), 100, np.int8), f"scale_{part}": np.ones(4, np.float32)}
    given["scale_q"] = np.array([-50, 0.01, 1, 1], np.float32)
    desc = bp.QkvProjectDescriptor.of(**given, head_dim=2)
    plan = bp.QkvProjectPlan.select(desc, device="ptx")
    made, wide = plan.run(**given), plan.reference(desc, **given)
    assert np.isinf(made.q[0, 0]) and abs(wide[0][0, 0]) < 60000
    for name, one, exact in zip("qkv", made, wide):
        plan.precision_guarantee.of(name).check(one, exact, given, measures=plan.measured(None, name))

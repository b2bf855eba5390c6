"""paged_kv_append and copy_pages: what is quantised, changed lengths, random batches, both variants, and their refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import baracuda_py as bp
from baracuda_py.ops.cache.samples import angles, append_operands
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample
from baracuda_py.types import ElementKind

from ...arena import as_bytes
from ...gauntlet import admissible, readable
from ...gauntlet.aspects import served
from ...gauntlet.problem import Problem
from .independent import paged_kv_append as independent

COVERS = ("paged_kv_append", "copy_pages")
DEVICES = ("cpu", "ptx")
FLOATS = (bp.F16, bp.BF16, bp.F32)
ALL = {sample.label: sample for sample in get_op("paged_kv_append").samples({})}


def operands(**more: Any) -> dict[str, Any]:
    return append_operands(np.random.default_rng(3), (3, 20), 2, **more)


def written(made: dict[str, Any], device: str, **options: Any) -> dict[str, Any]:
    """What a call gives, on copies of the written operands, by name."""
    fresh = {name: x.copy() if name.endswith(("_pages", "_scales")) else x for name, x in made.items()}
    result = bp.paged_kv_append(**fresh, **options, device=device)
    assert all(getattr(result, name) is fresh[name] for name in fresh if name.endswith(("_pages", "_scales")))
    return {name: np.array(getattr(result, name)) for name in result._fields}


# ---- quantisation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("element", FLOATS, ids=str)
@pytest.mark.parametrize("stored", [bp.I8, bp.FP8_E4M3], ids=str)
def test_quantized_token_is_near_itself(device: str, element: ElementKind, stored: ElementKind) -> None:
    """Within half a step of its scale; of fp8, within 2**-4 of itself or half its least step, 2**-10 of the scale."""
    made = operands(element=element, pages_element=stored, dim=40)
    got = written(made, device)
    assert got["status"].tolist() == [0, 0]
    for part in ("k", "v"):
        for b, length in enumerate(made["lengths"].tolist()):
            for i in range(2):
                page, slot = made["page_table"][b, (length + i) // 16], (length + i) % 16
                scale = got[f"{part}_scales"][page, slot].astype(np.float64)[:, None]
                x = made[part][b, i].astype(np.float64)
                error = np.abs(got[f"{part}_pages"][page, slot].astype(np.float64) * scale - x)
                allowed = scale / 2 if stored is bp.I8 else np.maximum(np.abs(x) / 16, scale / 1024)
                assert (error <= allowed * (1 + 1e-6)).all()
                most = 127 if stored is bp.I8 else 448
                assert np.allclose(scale[:, 0], np.abs(x).max(axis=1) / most, rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_codes_that_are_known(device: str) -> None:
    """Ties to even, both ends, what does not fit, and NaN, under a given scale of 0.5."""
    made = operands(element=bp.F32, pages_element=bp.I8, dim=8, given=True)
    made["k_scale"][:] = made["v_scale"][:] = 0.5
    made["k"][:] = [0.25, 0.75, -0.25, 63.5, 64.0, -np.inf, np.nan, -0.0]
    got = written(made, device)
    page, slot = made["page_table"][0, 0], 3
    assert got["k_pages"][page, slot, 0].tolist() == [0, 2, 0, 127, 127, -127, 0, 0]
    made = operands(element=bp.F32, pages_element=bp.FP8_E4M3, dim=8, given=True)
    made["k_scale"][:] = made["v_scale"][:] = 0.5
    made["k"][:] = [0.5, 224.0, 232.0, -np.inf, np.nan, 2.0**-11, 2.0**-10, 0.53125]
    got = written(made, device)
    codes = got["k_pages"][made["page_table"][0, 0], 3, 0].view(np.uint8)
    assert codes.tolist() == [0x38, 0x7E, 0x7E, 0xFE, 0x7F, 0x00, 0x01, 0x38]


@pytest.mark.parametrize("device", DEVICES)
def test_a_row_of_zeros_has_scale_one(device: str) -> None:
    made = operands(pages_element=bp.I8)
    made["k"][:] = 0
    got = written(made, device)
    page = made["page_table"][0, 0]
    assert (got["k_scales"][page, 3] == 1).all()
    assert not got["k_pages"][page, 3].any()


# ---- lengths that change ---------------------------------------------------------------------------------------------


def test_a_bound_append_follows_lengths_and_tables_that_change() -> None:
    """As a captured graph does: the launch is made once, and what it reads is changed in place."""
    size, heads, dim, pages = 4, 2, 8, 12
    made = {part: np.zeros((pages, size, heads, dim), np.float32) for part in ("k_pages", "v_pages")}
    k = np.zeros((2, heads, dim), np.float32)
    table, lengths = np.full((2, 4), -1, np.int32), np.zeros(2, np.int32)
    offsets, status = np.array([0, 1, 2], np.int32), np.zeros(2, np.int32)
    named = {**made, "k": k, "v": k.copy(), "page_table": table, "lengths": lengths, "cu_seqlens": offsets}
    plan = bp.PagedKvAppendPlan.select(bp.PagedKvAppendDescriptor.of(**named), device="ptx")
    bound = plan.bind(**named, status=status)
    for step in range(9):
        for b in range(2):
            table[b, step // size] = 2 * (step // size) + b  # the pages of both alternate
        k[:] = step + 1
        bound()
        assert status.tolist() == [0, 0]
        lengths += 1
    for b in range(2):
        kept = made["k_pages"][[b, 2 + b, 4 + b]].reshape(-1, heads, dim)[:9]
        assert (kept == np.arange(1, 10)[:, None, None]).all()


# ---- every sample, any batch ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("turn", "sample"), list(enumerate(ALL.values())), ids=ALL.keys())
def test_every_sample(turn: int, sample: Sample) -> None:
    """By every other configuration, emulated, and the oracle against an independent implementation: the gauntlet takes a part of
    the samples."""
    independent(Problem(get_op("paged_kv_append"), sample, "cpu"))
    problem = Problem(get_op("paged_kv_append"), sample, "ptx")
    served(problem, admissible(problem)[turn % 2 :: 2])


@given(st.data())
@settings(max_examples=15, deadline=None, derandomize=True)
def test_random_batches(data: st.DataObject) -> None:
    """Every configuration of both variants, emulated, and the oracle, against an independent implementation."""
    draw = data.draw
    lengths = draw(st.lists(st.integers(0, 20), min_size=1, max_size=4))
    new: Any = draw(st.integers(0, 4))
    if draw(st.booleans()):
        new = draw(st.lists(st.integers(0, 9), min_size=len(lengths), max_size=len(lengths)))
    element = draw(st.sampled_from([*FLOATS, bp.I8]))
    stored = draw(st.sampled_from([element, bp.I8, bp.FP8_E4M3])) if element.is_float else element
    options = {"layout": draw(st.sampled_from(["NHD", "HND"]))}
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    made = append_operands(
        rng, lengths, new, size=draw(st.integers(1, 9)), heads=draw(st.integers(1, 3)),
        dim=draw(st.sampled_from([1, 5, 8, 24, 40])), v_dim=draw(st.sampled_from([0, 3, 16])), element=element,
        pages_element=stored, given=draw(st.booleans()), **options,
    )  # fmt: skip
    if draw(st.booleans()):
        b = draw(st.integers(0, len(lengths) - 1))
        made["page_table"][b, draw(st.integers(0, made["page_table"].shape[1] - 1))] = draw(
            st.sampled_from([-1, 10**6])
        )
    if element.is_float and element.bits > 8 and draw(st.booleans()):
        most = min(made["k"].shape[-1] // 2, 8)
        given = draw(st.integers(1, most)) if most else 0
        made |= angles(rng, given, draw(st.sampled_from([15, 90]))) if given else {}
        options["style"] = draw(st.sampled_from(["half", "interleaved"]))
    independent(Problem(get_op("paged_kv_append"), Sample("random", made, options), "cpu"))
    problem = Problem(get_op("paged_kv_append"), Sample("random", made, options), "ptx")
    assert {plan.sku.variant for plan in admissible(problem)} <= {"one_launch", "checked_ahead"}
    served(problem, admissible(problem))


def test_a_prompt_is_checked_ahead_and_a_token_is_not() -> None:
    def chosen(tokens: int, page: int) -> str:
        desc = bp.PagedKvAppendDescriptor(
            (4096, page, 8, 128), (4096, page, 8, 128), (4, tokens, 8, 128), (4, 4096 // page), "bf16", "bf16"
        )
        return bp.PagedKvAppendPlan.select(desc, device="h200").sku.variant

    assert chosen(1, 64) == chosen(1, 1) == "one_launch"
    assert chosen(4096, 16) == "checked_ahead"


def test_of_many_tokens_several_heads_are_taken_together() -> None:
    """All of them where they are contiguous, and few where they are rotated by the same angles or strided."""

    def chosen(requests: int, tokens: int, pages: tuple[int, ...] = (512, 64, 8, 128), **more: Any) -> str:
        shape = (requests, tokens, 8, 128)
        desc = bp.PagedKvAppendDescriptor(pages, pages, shape, (requests, 8), "bf16", "bf16", **more)
        return str(bp.PagedKvAppendPlan.select(desc, device="h200").sku.config)

    assert chosen(64, 1) == "heads=1 vector=8 lanes=16"
    assert chosen(16, 1024) == "heads=8 vector=8 lanes=32"
    assert chosen(16, 1024, inv_freq_shape=(64,)) == "heads=2 vector=8 lanes=8"
    strided = chosen(16, 1024, (512, 8, 64, 128), pages_layout="HND")
    assert strided == "heads=4 vector=8 lanes=16"


# ---- rotated keys --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["half", "interleaved"])
@pytest.mark.parametrize("stored", [bp.BF16, bp.I8, bp.FP8_E4M3], ids=str)
@pytest.mark.parametrize("tables", [False, True])
def test_rotated_keys_match_rope_bit_for_bit(style: str, stored: ElementKind, tables: bool) -> None:
    """At usual angles, by a scaling of Llama 3.1, stored and quantised, with and without positions; tables end at the last."""
    rng = np.random.default_rng(5)
    made = append_operands(rng, (3, 20), (2, 5), pages_element=stored, dim=40)
    scaling = bp.RopeScaling.llama3(24)
    given: dict[str, Any] = {"inv_freq": scaling.inv_freq}
    if tables:
        angle = np.arange(25)[:, None] * scaling.inv_freq.astype(np.float64)
        given = {"cos": np.cos(angle).astype(np.float32), "sin": np.sin(angle).astype(np.float32)}
    own = np.concatenate([length + np.arange(n) for length, n in zip((3, 20), (2, 5))])
    for positions in (own, rng.integers(0, 25, 7)):
        held = {} if positions is own else {"positions": positions.astype(np.int32)}
        got = written(made, "ptx", **held, **given, style=style, attention_factor=1.25)
        rotated = bp.rope(
            made["k"], positions, **given, style=style, layout="THD", attention_factor=1.25, device="ptx"
        )  # fmt: skip
        wanted = written({**made, "k": rotated.out if tables else rotated}, "ptx")
        for name, x in wanted.items():
            assert np.array_equal(as_bytes(got[name]), as_bytes(x)), name


def test_bounds_of_codes_notice_a_key_that_is_not_rotated() -> None:
    """And one rotated by its neighbour's position."""
    made = operands(element=bp.F16, pages_element=bp.I8)
    given = angles(np.random.default_rng(1), 32)
    desc = bp.PagedKvAppendDescriptor.of(**made, **given)
    plan = bp.PagedKvAppendPlan.select(desc, device="ptx")
    read = {name: x for name, x in (made | given).items() if not name.endswith(("_pages", "_scales"))}
    wide = dict(zip(("k_pages", "v_pages", "k_scales", "v_scales", "status"), plan.reference(desc, **made, **given)))
    for wrong in ({}, {"positions": np.array([[4, 5], [20, 21]])}):
        got = written(made, "ptx", **(given | wrong if wrong else {}))
        for name in ("k_pages", "k_scales"):
            measures = plan.measured(output=name)
            with pytest.raises(AssertionError, match="elements break"):
                plan.precision_guarantee.of(name).check(got[name], wide[name], read, measures=measures)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("heads", "columns"), [(0, 8), (2, 0)])
def test_requests_without_rows_have_a_status(device: str, heads: int, columns: int) -> None:
    pages, k, status = shaped(3, 4, heads, columns), shaped(3, 1, heads, columns), np.full(3, 7, np.int32)
    table = np.array([[0], [0], [9]], np.int32)
    bp.paged_kv_append(pages, pages.copy(), k, k, table, np.array([0, 4, 0], np.int32), status=status, device=device)
    assert status.tolist() == [0, 1, 2]


# ---- refusals ----------------------------------------------------------------------------------------------------------


def shaped(*shape: int, element: ElementKind = bp.BF16) -> np.ndarray[Any, Any]:
    return np.zeros(shape, element.dtype)


SCALES = {"k_scales": shaped(5, 16, 2, element=bp.F32), "v_scales": shaped(5, 16, 2, element=bp.F32)}
BYTES = {"k_pages": shaped(5, 16, 2, 64, element=bp.I8), "v_pages": shaped(5, 16, 2, 64, element=bp.I8)}
INV_FREQ = {"inv_freq": np.ones(8, np.float32)}
REFUSED: list[tuple[str, dict[str, Any], type[bp.BaracudaError], str]] = [
    ("pages of rank 3", {"k_pages": shaped(5, 16, 64)}, bp.InvalidProblemError, "k_pages has shape"),
    ("other values' pages", {"v_pages": shaped(6, 16, 2, 64)}, bp.InvalidProblemError, "v_pages has shape"),
    ("pages of no slots", {"k_pages": shaped(5, 0, 2, 64), "v_pages": shaped(5, 0, 2, 64)}, bp.InvalidProblemError, "0 slots"),
    ("other heads", {"k": shaped(2, 2, 3, 64)}, bp.InvalidProblemError, "k has 3 heads"),
    ("other columns", {"k": shaped(2, 2, 2, 60)}, bp.InvalidProblemError, "2 heads of 60"),
    ("other columns of v", {"v": shaped(2, 2, 2, 60)}, bp.InvalidProblemError, "v must have shape"),
    ("other requests", {"k": shaped(3, 2, 2, 64), "v": shaped(3, 2, 2, 64)}, bp.InvalidProblemError, "k has 3 requests"),
    ("k of rank 3, no offsets", {"k": shaped(2, 2, 64), "v": shaped(2, 2, 64)}, bp.InvalidProblemError, "k has shape"),
    ("offsets with rank 4", {"cu_seqlens": np.zeros(3, np.int32)}, bp.InvalidProblemError, "k has shape"),
    ("few offsets", {"k": shaped(4, 2, 64), "v": shaped(4, 2, 64), "cu_seqlens": np.zeros(2, np.int32)},
     bp.InvalidProblemError, "cu_seqlens must have shape"),
    ("wide offsets", {"k": shaped(4, 2, 64), "v": shaped(4, 2, 64), "cu_seqlens": np.zeros(3, np.int64)},
     bp.OperandTypeError, "cu_seqlens must hold i32"),
    ("strided offsets", {"k": shaped(4, 2, 64), "v": shaped(4, 2, 64), "cu_seqlens": np.zeros(6, np.int32)[::2]},
     bp.InvalidProblemError, "cu_seqlens"),
    ("a wide table", {"page_table": np.zeros((2, 3), np.int64)}, bp.OperandTypeError, "page_table must hold i32"),
    ("a flat table", {"page_table": np.zeros(2, np.int32)}, bp.InvalidProblemError, "page_table has shape"),
    ("float lengths", {"lengths": np.zeros(2, np.float32)}, bp.OperandTypeError, "lengths must hold i32"),
    ("three lengths", {"lengths": np.zeros(3, np.int32)}, bp.InvalidProblemError, "lengths must have shape"),
    ("tokens of another kind", {"k": shaped(2, 2, 2, 64, element=bp.F16), "v": shaped(2, 2, 2, 64, element=bp.F16)},
     bp.OperandTypeError, "k holds f16 and k_pages bf16"),
    ("scales of what is stored", SCALES, bp.InvalidProblemError, "k_scales was passed and bf16 is stored as it is"),
    ("no scales", BYTES, bp.InvalidProblemError, "i8 pages need scales, got none"),
    ("half the scales", {**BYTES, "k_scales": SCALES["k_scales"]}, bp.InvalidProblemError, "got k_scales"),
    ("both sorts", {**BYTES, **SCALES, "k_scale": np.ones(2, np.float32), "v_scale": np.ones(2, np.float32)},
     bp.InvalidProblemError, "got k_scales, v_scales, k_scale, v_scale"),
    ("positions without angles", {"positions": np.zeros((2, 2), np.int32)}, bp.InvalidProblemError, "positions was passed"),
    ("half the tables", {"cos": np.zeros((9, 8), np.float32)}, bp.InvalidProblemError, "angles are given by cos"),
    ("both sorts of angles", {"cos": np.zeros((9, 8), np.float32), "sin": np.zeros((9, 8), np.float32), **INV_FREQ},
     bp.InvalidProblemError, "angles are given by inv_freq and cos"),
    ("too many pairs", {"inv_freq": np.zeros(33, np.float32)}, bp.InvalidProblemError, "33 pairs, and a head of k has 64"),
    ("positions of another shape", {"positions": np.zeros(4, np.int32), **INV_FREQ}, bp.InvalidProblemError, "positions"),
    ("rotated bytes", {"k_pages": shaped(5, 16, 2, 64, element=bp.I8), "v_pages": shaped(5, 16, 2, 64, element=bp.I8),
                      "k": shaped(2, 2, 2, 64, element=bp.I8), "v": shaped(2, 2, 2, 64, element=bp.I8), **INV_FREQ},
     bp.OperandTypeError, "inv_freq was passed and k holds i8"),
    ("an unknown style", {"style": "neox", **INV_FREQ}, bp.InvalidProblemError, "half, interleaved"),
    ("a factor of no size", {"attention_factor": np.inf, **INV_FREQ}, bp.InvalidProblemError, "attention_factor=inf"),
    ("f16 scales", {**BYTES, **{n: x.astype(np.float16) for n, x in SCALES.items()}}, bp.OperandTypeError, "must hold f32"),
]  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("label", "wrong", "error", "says"), REFUSED, ids=[r[0] for r in REFUSED])
def test_refusals(device: str, label: str, wrong: dict[str, Any], error: type[bp.BaracudaError], says: str) -> None:
    del label
    named = {
        "k_pages": shaped(5, 16, 2, 64), "v_pages": shaped(5, 16, 2, 64), "k": shaped(2, 2, 2, 64), "v": shaped(2, 2, 2, 64),
        "page_table": np.zeros((2, 3), np.int32), "lengths": np.zeros(2, np.int32), **wrong,
    }  # fmt: skip
    with pytest.raises(error) as caught:
        bp.paged_kv_append(**named, device=device)
    readable(caught.value, "paged_kv_append", says)


def test_an_unknown_layout_lists_the_known_ones() -> None:
    with pytest.raises(bp.InvalidProblemError, match="NHD, HND"):
        bp.paged_kv_append(**operands(), layout="DHN", device="cpu")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"k_pages": shaped(3, 4)}, "k_pages has shape"),
        ({"v_pages": shaped(7, 4, 3, 8)}, "v_pages has shape"),
        ({"k_pages": shaped(0, 7, 4, 2, 8), "v_pages": shaped(0, 7, 4, 2, 8)}, "one layer or more"),
        ({"k_scales": shaped(7, 4, 2, element=bp.F32)}, "one of k_scales and v_scales"),
        ({"dest": np.zeros(2, np.int32)}, "dest must have shape"),
    ],
)
def test_refused_copies(wrong: dict[str, Any], says: str) -> None:
    named = {"k_pages": shaped(7, 4, 2, 8), "v_pages": shaped(7, 4, 2, 8), "source": np.zeros(3, np.int32),
             "dest": np.zeros(3, np.int32), **wrong}  # fmt: skip
    with pytest.raises(bp.BaracudaError) as caught:
        bp.copy_pages(**named, device="cpu")
    readable(caught.value, "copy_pages", says)


def test_a_page_that_is_not_in_one_piece_is_refused() -> None:
    pages = shaped(7, 4, 2, 16)[..., ::2]
    with pytest.raises(bp.UnsupportedError, match="does not lie in one piece"):
        bp.copy_pages(pages, shaped(7, 4, 2, 8), np.zeros(1, np.int32), np.ones(1, np.int32), device="ptx")

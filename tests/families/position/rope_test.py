"""rope: every configuration, positions far out, tables, both operands, in place, refusals; published frequencies.

The frequencies' formulas are written here a second time, in mpmath, as papers and transformers' documentation of
`modeling_rope_utils` state them.
"""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.position import _pairs
from baracuda_py.plan import get_op
from baracuda_py.types import PlanPreference

from ...gauntlet import Problem, admissible, readable, served

BF16 = bp.BF16.dtype
Array = np.ndarray[Any, Any]
rng = np.random.default_rng(5)


def normal(*shape: int, dtype: Any = np.float32) -> Array:
    return rng.standard_normal(shape).astype(dtype)


def frequencies(dim: int, base: float = 10000.0) -> Array:
    return np.array([base ** (-2 * i / dim) for i in range(dim // 2)], np.float32)


@pytest.mark.parametrize("op", ["rope", "rope_backward"])
@pytest.mark.parametrize("label", ["qwen", "gpt-j", "bf16 half tables", "f64 interleaved far", "f32 stepped"])
def test_every_configuration(op: str, label: str) -> None:
    sample = next(s for s in get_op(op).samples({}) if label in s.label)
    problem = Problem(get_op(op), sample, "ptx")
    plans = admissible(problem)
    assert len(plans) >= 3
    served(problem, plans)


# ---- angles --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("position", [0, 1, 131071, 1 << 20, 1 << 30, (1 << 30) - 1, (1 << 39) + 12345, -(1 << 20) - 1])
def test_angles_far_out(dtype: str, position: int) -> None:
    """Of pairs (1, 0): the results are cos and sin of the exact product, to 4 units of what is computed in."""
    x = np.zeros((1, 64), dtype)
    x[:, :32] = 1
    inv_freq = frequencies(64)
    inv_freq[:4] = np.float32(1) + np.float32(2.0**-23) * np.arange(4, dtype=np.float32)  # all 24 digits
    got = bp.rope(x, np.array([position]), inv_freq=inv_freq, device="ptx")[0]
    near = 2.0 ** (-22 if dtype == "float32" else -51)
    with mpmath.workdps(60):
        for i, f in enumerate(inv_freq):
            angle = mpmath.mpf(position) * mpmath.mpf(float(f))
            assert abs(float(got[i]) - mpmath.cos(angle)) <= near, (i, got[i])
            assert abs(float(got[32 + i]) - mpmath.sin(angle)) <= near, (i, got[32 + i])


def test_small_angles_are_good_to_two_units() -> None:
    """All over the quarters and their ends: pairs (1, 0) in f32, beside mpmath."""
    angles = np.concatenate([np.linspace(-7, 7, 1001), np.pi / 4 * np.arange(-9, 10)]).astype(np.float32)
    x = np.zeros((1, 2 * len(angles)), np.float32)
    x[:, : len(angles)] = 1
    got = bp.rope(x, np.array([1]), inv_freq=angles, device="ptx")[0].astype(np.float64)
    wide = angles.astype(np.float64)
    assert np.abs(got - np.concatenate([np.cos(wide), np.sin(wide)])).max() <= 2.1 * 2.0**-24


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zeros_of_cosine_and_sine_keep_their_digits(dtype: str) -> None:
    """Near multiples of pi / 2 (numerators of the continued fraction of pi, and halves): relative errors stay small."""
    x = np.array([[1, 0]] * 8, dtype)
    at = np.array([11, 22, 355, 710, 104348, 5419351, 80143857, 245850922])
    got = bp.rope(x, at, inv_freq=np.ones(1, np.float32), device="ptx")
    unit = 2.0 ** (-24 if dtype == "float32" else -53)
    with mpmath.workdps(60):
        for position, (cosine, sine) in zip(at.tolist(), got.tolist()):
            for found, right in ((cosine, mpmath.cos(position)), (sine, mpmath.sin(position))):
                assert abs(found - right) <= 4 * unit * abs(right), (position, found)


def test_a_position_does_not_depend_on_the_others() -> None:
    x = normal(3, 2, 40, 128, dtype=BF16)
    whole = bp.rope(x, device="ptx")
    for offset in (0, 7, 39):
        one = bp.rope(np.ascontiguousarray(x[1:2, :1, offset : offset + 1]), offset=offset, device="ptx")
        assert np.array_equal(one.view(np.uint16), whole[1:2, :1, offset : offset + 1].view(np.uint16))


@pytest.mark.parametrize("style", ["half", "interleaved"])
def test_scores_depend_on_distance_alone(style: str) -> None:
    """What the embedding is for: (R_m q) . (R_n k) is a function of m - n."""
    q, k = normal(1, 64, dtype=np.float64), normal(1, 64, dtype=np.float64)
    scores = []
    for m, n in ((3, 0), (1003, 1000), (1 << 20, (1 << 20) - 3)):
        a, b = (bp.rope(x, np.array([p]), style=style, device="ptx") for x, p in ((q, m), (k, n)))
        scores.append(float((a * b).sum()))
    assert max(scores) - min(scores) <= 1e-12


def test_the_gradient_undoes_the_rotation() -> None:
    x, at = normal(2, 5, 3, 32, dtype=np.float64), rng.integers(0, 1 << 20, (2, 5))
    options: dict[str, Any] = {"layout": "BSHD", "style": "interleaved", "rotary_dim": 24, "device": "ptx"}
    rotated = bp.rope(x, at, **options)
    assert not np.allclose(rotated[..., :24], x[..., :24])
    assert np.abs(bp.rope_backward(rotated, at, **options) - x).max() <= 2.0**-49
    grad = normal(*x.shape, dtype=np.float64)
    back = bp.rope_backward(grad, at, attention_factor=1.5, **options)
    forth = bp.rope(x, at, attention_factor=1.5, **options)
    assert abs(float((grad * forth).sum() - (back * x).sum())) <= 1e-11


# ---- operands ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["half", "interleaved"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, BF16])
def test_layouts_agree(style: str, dtype: Any) -> None:
    """The same tokens in every layout, bit for bit; q and k in one launch or in two."""
    q, k, at = normal(2, 6, 5, 32, dtype=dtype), normal(2, 6, 3, 32, dtype=dtype), rng.integers(0, 9999, (2, 6))
    options: dict[str, Any] = {"style": style, "rotary_dim": 16, "device": "ptx"}
    both = bp.rope(q, at, k=k, layout="BSHD", **options)
    for x, wanted in ((q, both.out), (k, both.k_out)):
        heads = np.swapaxes(x, 1, 2)
        for given in (heads, np.ascontiguousarray(heads)):
            assert np.array_equal(np.swapaxes(bp.rope(given, at, **options), 1, 2).view("u1"), wanted.view("u1"))
        for b in range(2):
            assert np.array_equal(bp.rope(x[b], at[b], layout="THD", **options).view("u1"), wanted[b].view("u1"))
            assert np.array_equal(bp.rope(x[b], at[b], layout="BSHD", **options).view("u1"), wanted[b].view("u1"))
            one = bp.rope(np.ascontiguousarray(x[b, :, 0]), at[b], **options)
            assert np.array_equal(one.view("u1"), np.ascontiguousarray(wanted[b, :, 0]).view("u1"))


def test_torch_tensors_as_its_users_rotate_them() -> None:
    """The half-split formula of torch models, in f64: x cos + cat(-x2, x1) sin with columns of the tables twice."""
    torch = pytest.importorskip("torch")
    q, at = torch.randn(2, 4, 9, 64, dtype=torch.float64), torch.arange(100, 109)
    angle = torch.outer(at.double(), torch.from_numpy(frequencies(64)).double())
    cos, sin = (torch.cat([part, part], dim=-1) for part in (angle.cos(), angle.sin()))
    x1, x2 = q[..., :32], q[..., 32:]
    wanted = q * cos + torch.cat([-x2, x1], dim=-1) * sin
    for device in ("cpu", "ptx"):
        got = bp.rope(q, at, device=device)
        assert isinstance(got, torch.Tensor)
        assert (got - wanted).abs().max() <= 1e-13


def test_outputs_that_lie_otherwise() -> None:
    q, k = normal(4, 3, 16), normal(4, 2, 16)
    wanted = bp.rope(q, k=k, layout="THD", device="cpu")
    out, k_out = np.empty((4, 3, 32), np.float32)[..., ::2], np.empty((16, 2, 4), np.float32).T
    got = bp.rope(q, k=k, layout="THD", out=out, k_out=k_out, device="ptx")
    assert got.out is out and got.k_out is k_out
    for a, b in zip(got, wanted):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6)


@pytest.mark.parametrize("rotary_dim", [48, 64])
def test_in_place(rotary_dim: int) -> None:
    q, k = normal(3, 4, 64, dtype=BF16), normal(3, 2, 64, dtype=BF16)
    wanted = bp.rope(q, k=k, layout="THD", rotary_dim=rotary_dim, device="ptx")
    got = bp.rope(q, k=k, layout="THD", rotary_dim=rotary_dim, out=q, k_out=k, device="ptx")
    assert got.out is q and got.k_out is k
    for a, b in zip(got, wanted):
        assert np.array_equal(a.view(np.uint16), b.view(np.uint16))
    with pytest.raises(bp.OverlapError, match="k_out"):
        bp.rope(q, k=k, layout="THD", out=np.empty_like(q), k_out=q[:, :2], device="cpu")


def test_tables_of_frequencies_give_what_frequencies_give() -> None:
    x, at = normal(2, 7, 4, 64), rng.integers(0, 50, 7)
    angle = np.arange(50)[:, None] * frequencies(64).astype(np.float64)
    tables = {"cos": np.cos(angle).astype(np.float32), "sin": np.sin(angle).astype(np.float32)}
    got = bp.rope(x, at, layout="BSHD", **tables, device="ptx")
    assert not got.status.any()
    np.testing.assert_allclose(got.out, bp.rope(x, at, layout="BSHD", device="ptx"), rtol=0, atol=3e-6)


@pytest.mark.parametrize("bad", [-1, 9, 1 << 40, -(1 << 63), (1 << 63) - 1])
@pytest.mark.parametrize("batched", [False, True])
def test_position_outside_of_the_tables_is_reported_and_not_read(bad: int, batched: bool) -> None:
    x, k = normal(3, 2, 4, 16), normal(3, 1, 4, 16)
    tables = {"cos": normal(9, 4), "sin": normal(9, 4)}
    at = np.array([0, bad, 8, 1])
    at = np.stack([at, at[::-1], at]) if batched else at
    for device in ("cpu", "ptx"):
        got = bp.rope(x, at, k=k, **tables, status=np.full(at.shape, -7, np.int32), device=device)
        assert np.array_equal(got.status, at == bad)
        wrong = np.broadcast_to(at == bad, (3, 4))
        for rotated, given in ((got.out, x), (got.k_out, k)):
            rows = np.swapaxes(rotated, 1, 2)
            assert not rows[wrong][..., :8].any() and rows[~wrong][..., :8].all()
            assert np.array_equal(rotated[..., 8:], given[..., 8:])


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("op", ["rope", "rope_backward"])
@pytest.mark.parametrize(
    "at", [[0, -1, 8], [[0, 1, 8], [0, 9, 2]], [0, 1, 1 << 40]], ids=["negative", "batched", "far"]
)
def test_host_raises_for_positions_outside_tables(device: str, op: str, at: Any) -> None:
    x, tables = normal(2, 2, 3, 16), {"cos": normal(9, 4), "sin": normal(9, 4)}
    positions = np.array(at)
    place = tuple(np.argwhere((positions < 0) | (positions > 8))[0].tolist())
    with pytest.raises(bp.InvalidProblemError) as caught:
        getattr(bp, op)(x, positions, **tables, device=device)
    readable(caught.value, op, f"positions[{', '.join(map(str, place))}] = {positions[place]} is out of range")
    readable(caught.value, op, "cos and sin have 9 rows: give positions of 0 to 8")


def test_host_raises_for_an_offset_outside_tables() -> None:
    x, tables = normal(2, 3, 16), {"cos": normal(9, 4), "sin": normal(9, 4)}
    for device in ("cpu", "ptx"):
        assert not bp.rope(x, **tables, offset=6, device=device).status.any()
        with pytest.raises(bp.InvalidProblemError, match="rope: token 2 is at position 9, which is out of range"):
            bp.rope(x, **tables, offset=7, device=device)
        with pytest.raises(bp.InvalidProblemError, match=r"positions\[1\] = 3 plus offset 6 is out of range"):
            bp.rope(x, np.array([0, 3, 0]), **tables, offset=6, device=device)


def test_values_are_no_part_of_the_kernel() -> None:
    x = normal(5, 16)
    for offset, factor in ((0, 1.0), (-3, 1.0), (12345, 0.5), (1 << 40, 2.0)):
        got = bp.rope(x, offset=offset, attention_factor=factor, device="ptx")
        wanted = bp.rope(x, np.arange(5) + offset, device="cpu") * np.float32(factor)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=4e-6)
    desc = bp.RopeDescriptor.of(x, inv_freq=frequencies(16))
    other = bp.RopeDescriptor.of(x, inv_freq=frequencies(16), offset=9, attention_factor=2.0)
    assert desc.canonical() == other.canonical()


def test_counts_of_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pairs, "index_type", lambda _count: "u64")
    x, at = normal(2, 3, 7, 40), np.arange(14).reshape(2, 7)
    plan = bp.RopePlan.select(bp.RopeDescriptor.of(x, positions=at, inv_freq=frequencies(24)), device="ptx")
    assert "u64" in plan.kernels[0].name
    got = plan.run(x=x, positions=at, inv_freq=frequencies(24))
    np.testing.assert_allclose(got, bp.rope(x, at, rotary_dim=24, device="cpu"), rtol=0, atol=2e-6)


def test_rope_angles_are_shared_by_heads() -> None:
    large = bp.RopeDescriptor(
        (4, 32, 4096, 128), "bf16", k_shape=(4, 8, 4096, 128), k_element="bf16", inv_freq_shape=(64,)
    )
    small = bp.RopeDescriptor((1, 32, 1, 128), "bf16", inv_freq_shape=(64,), inv_freq_element="f32")
    plans = [bp.RopePlan.select(desc, device="h200") for desc in (large, small)]
    assert [plan.sku.config for plan in plans] == ["vector=8 heads=2 rounds=2", "vector=8 heads=1 rounds=1"]
    again = bp.RopePlan.select(large, PlanPreference(deterministic=True), device="h200")
    assert again.deterministic and again.capture_safe and again.precision_guarantee.batch_invariant


# ---- refusals ------------------------------------------------------------------------------------------------------

X = np.ones((2, 3, 4, 8), np.float32)
F = np.ones(4, np.float32)
T = np.ones((9, 4), np.float32)
REFUSED: list[tuple[str, dict[str, Any], type[bp.BaracudaError], str]] = [
    ("rank", {"x": np.ones(8)}, bp.InvalidProblemError, "must have shape"),
    ("THD of 4", {"layout": "THD"}, bp.InvalidProblemError, "layout THD"),
    ("layout", {"layout": "SBHD"}, bp.InvalidProblemError, "BHSD, BSHD, THD"),
    ("style", {"style": "neox"}, bp.InvalidProblemError, "half, interleaved"),
    ("integers", {"x": X.astype(int)}, bp.OperandTypeError, "x must hold"),
    ("k of another batch", {"k": X[:1]}, bp.InvalidProblemError, "only their head counts may differ"),
    ("k of another width", {"k": X[..., :6]}, bp.InvalidProblemError, "only their head counts may differ"),
    ("k of another dtype", {"k": X.astype(np.float16)}, bp.OperandTypeError, "k must hold f32, got f16"),
    ("positions", {"positions": np.arange(3)}, bp.InvalidProblemError, "shape (4,) or (2, 4)"),
    ("a position", {"positions": np.array(3)}, bp.InvalidProblemError, "shape (4,) or (2, 4)"),
    ("positions of floats", {"positions": np.ones(4)}, bp.OperandTypeError, "positions must hold i32 or i64"),
    ("too many", {"inv_freq": np.ones(5, np.float32)}, bp.InvalidProblemError, "give 1 to 4 pairs"),
    ("none", {"inv_freq": F[:0]}, bp.InvalidProblemError, "give 1 to 4 pairs"),
    ("wide inv_freq", {"inv_freq": F.astype(float)}, bp.OperandTypeError, "inv_freq must hold f32"),
    ("flat", {"inv_freq": F.reshape(2, 2)}, bp.InvalidProblemError, "give [rotary_dim / 2]"),
    ("columns twice", {"cos": np.ones((9, 8), np.float32), "sin": np.ones((9, 8), np.float32)},
     bp.InvalidProblemError, "there twice"),
    ("one table", {"sin": T}, bp.InvalidProblemError, "angles are given by sin"),
    ("tables apart", {"cos": T, "sin": T[:8]}, bp.InvalidProblemError, "[positions, rotary_dim / 2]"),
    ("tables laid out apart", {"cos": T, "sin": np.asfortranarray(T)}, bp.InvalidProblemError, "kernels read both by the same"),
    ("tables of two kinds", {"cos": T, "sin": T.astype(float)}, bp.OperandTypeError, "cast both to f32"),
    ("tables of f64", {"cos": T.astype(float), "sin": T.astype(float)}, bp.OperandTypeError, "cast both to f32"),
    ("odd width", {"x": X[..., :7]}, bp.InvalidProblemError, "rope: rotary_dim=7, the columns of a head"),
    ("odd rotary_dim", {"rotary_dim": 3}, bp.InvalidProblemError, "rope: rotary_dim=3: "),
    ("long rotary_dim", {"rotary_dim": 10}, bp.InvalidProblemError, "give 1 to 4 pairs"),
    ("base", {"base": -1.0}, bp.InvalidProblemError, "base=-1.0"),
    ("scaling", {"scaling": 2.0}, bp.InvalidProblemError, "scaling is a float"),
    ("half a position", {"offset": 0.5}, bp.InvalidProblemError, "offset=0.5"),
    ("far", {"offset": 1 << 54}, bp.InvalidProblemError, "below 2**53"),
    ("factor", {"attention_factor": float("nan")}, bp.InvalidProblemError, "attention_factor=nan"),
    ("factor beyond f32", {"attention_factor": -1e39}, bp.InvalidProblemError, "a number that f32 holds"),
    ("text", {"x": "text"}, bp.OperandTypeError, "x: expected an array"),
]  # fmt: skip


@pytest.mark.parametrize(("label", "given", "error", "says"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refusals(label: str, given: dict[str, Any], error: type[bp.BaracudaError], says: str) -> None:
    del label
    operands = {"x": X, **given}
    out = np.full(X.shape, 7, np.float32)
    with pytest.raises(error) as caught:
        bp.rope(operands.pop("x"), **operands, out=out, device="cpu")
    readable(caught.value, "rope", says)
    assert (out == 7).all()


# ---- frequencies ---------------------------------------------------------------------------------------------------

pi = mpmath.pi


def plain(i: int, dim: int, base: Any) -> Any:
    return mpmath.mpf(base) ** (-mpmath.mpf(2 * i) / dim)


def ramp(x: Any) -> Any:
    return min(max(x, mpmath.mpf(0)), mpmath.mpf(1))


def yarn(
    i: int, dim: int, factor: Any, original: int, base: Any, fast: Any = 32, slow: Any = 1, *, whole: bool = True
) -> Any:
    def pair(turns: Any) -> Any:  # of which wavelength `turns` are within the context: 2 pi base**(2 i / d) = L / turns
        return dim * mpmath.log(original / (2 * pi * turns)) / (2 * mpmath.log(base))

    low, high = pair(fast), pair(slow)
    if whole:
        low, high = mpmath.floor(low), mpmath.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    kept = 1 - ramp((i - low) / (high - low))
    return plain(i, dim, base) * (kept + (1 - kept) / factor)


def llama3(i: int, dim: int, factor: Any, original: int, base: Any, low: Any = 1, high: Any = 4) -> Any:
    own = plain(i, dim, base)
    wavelength = 2 * pi / own
    if wavelength < mpmath.mpf(original) / high:
        return own
    if wavelength > mpmath.mpf(original) / low:
        return own / factor
    smooth = (original / wavelength - low) / (high - low)
    return (1 - smooth) * own / factor + smooth * own


SHORT, LONG = [1 + 0.01 * i for i in range(48)], [1.5 + 0.7 * i for i in range(48)]
S = bp.RopeScaling
FREQUENCIES: dict[str, tuple[Any, int, Any, Any]] = {
    "plain": (S.plain(128), 128, lambda i, d: plain(i, d, 10000), 1),
    "plain, base 500000": (S.plain(64, 500000.0), 64, lambda i, d: plain(i, d, 500000), 1),
    "linear": (S.linear(128, 4.0), 128, lambda i, d: plain(i, d, 10000) / 4, 1),
    "ntk": (S.ntk(128, 8.0), 128, lambda i, d: plain(i, d, 10000 * mpmath.mpf(8) ** (mpmath.mpf(d) / (d - 2))), 1),
    "dynamic ntk": (
        S.dynamic_ntk(128, 2.0, 6000, 4096), 128,
        lambda i, d: plain(i, d, 10000 * (2 * mpmath.mpf(6000) / 4096 - 1) ** (mpmath.mpf(d) / (d - 2))), 1,
    ),
    "dynamic ntk, short": (S.dynamic_ntk(128, 2.0, 4000, 4096), 128, lambda i, d: plain(i, d, 10000), 1),
    "yarn": (S.yarn(128, 16.0, 4096), 128, lambda i, d: yarn(i, d, 16, 4096, 10000), 0.1 * mpmath.log(16) + 1),
    "yarn, gpt-oss": (
        S.yarn(64, 32.0, 4096, 150000.0, truncate=False), 64,
        lambda i, d: yarn(i, d, 32, 4096, 150000, whole=False), 0.1 * mpmath.log(32) + 1,
    ),
    "yarn, DeepSeek-V2": (
        S.yarn(64, 40.0, 4096, mscale=0.707, mscale_all_dim=1.0), 64, lambda i, d: yarn(i, d, 40, 4096, 10000),
        (0.0707 * mpmath.log(40) + 1) / (0.1 * mpmath.log(40) + 1),
    ),
    "longrope, long": (
        S.longrope(96, SHORT, LONG, 4097, 4096, 131072), 96, lambda i, d: plain(i, d, 10000) / LONG[i],
        mpmath.sqrt(1 + mpmath.log(32) / mpmath.log(4096)),
    ),
    "longrope, short": (
        S.longrope(96, SHORT, LONG, 4096, 4096, 131072), 96, lambda i, d: plain(i, d, 10000) / SHORT[i],
        mpmath.sqrt(1 + mpmath.log(32) / mpmath.log(4096)),
    ),
    "llama 3.1": (S.llama3(128), 128, lambda i, d: llama3(i, d, 8, 8192, 500000), 1),
    "llama 3.2": (S.llama3(64, 32.0), 64, lambda i, d: llama3(i, d, 32, 8192, 500000), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", FREQUENCIES)
def test_frequencies_are_the_published_ones(name: str) -> None:
    """Each the nearest f32, but for one in a thousand that is between two; the factor to 15 digits."""
    found, dim, formula, factor = FREQUENCIES[name]
    assert found.inv_freq.dtype == np.float32 and found.inv_freq.shape == (dim // 2,)
    with mpmath.workdps(40):
        for i, f in enumerate(found.inv_freq):
            wanted = formula(i, dim)
            assert abs(mpmath.mpf(float(f)) - wanted) <= wanted * mpmath.mpf(2) ** -24 * (1 + mpmath.mpf(2) ** -20), i
        assert abs(found.attention_factor - factor) <= 1e-15 * factor


def test_ends_of_scaling() -> None:
    """What the papers say of the fastest and the slowest pair; values of Llama 3.1 8B and of a YaRN of 16 as known."""
    ntk, linear = S.ntk(128, 8.0).inv_freq, S.linear(128, 8.0).inv_freq
    assert ntk[0] == 1 and ntk[-1] == pytest.approx(linear[-1], rel=1e-6)
    stretched = S.yarn(128, 16.0, 4096).inv_freq
    own = S.plain(128).inv_freq
    assert np.array_equal(stretched[:20], own[:20])
    np.testing.assert_allclose(stretched[47:], own[47:] / 16, rtol=1e-6)
    llama, own = S.llama3(128).inv_freq, S.plain(128, 500000.0).inv_freq
    assert np.array_equal(llama[:29], own[:29])
    np.testing.assert_allclose(llama[35:], own[35:] / 8, rtol=1e-6)  # from a wavelength of 8218 on
    assert ((llama[29:35] < own[29:35]) & (llama[29:35] > own[29:35] / 8)).all()


def test_rope_scaling_factor_and_frequencies_reach_the_kernel() -> None:
    x = normal(1, 2, 5, 128)
    scaling = S.yarn(128, 16.0, 4096)
    got = bp.rope(x, scaling=scaling, offset=50000, device="ptx")
    wanted = bp.rope(
        x, inv_freq=scaling.inv_freq, attention_factor=scaling.attention_factor, offset=50000, device="cpu"
    )
    np.testing.assert_allclose(got, wanted, rtol=0, atol=4e-6)
    other = bp.rope(x, scaling=scaling, attention_factor=1.0, offset=50000, device="ptx")
    np.testing.assert_allclose(other * np.float32(scaling.attention_factor), got, rtol=0, atol=4e-6)
    partial = bp.rope(x, scaling=S.plain(64), device="ptx")
    assert np.array_equal(partial, bp.rope(x, rotary_dim=64, device="ptx"))


def test_frequencies_are_not_to_be_written() -> None:
    given = frequencies(8)
    held = S(given, 2.0)
    given[:] = 0
    assert held.inv_freq[0] == 1 and held.attention_factor == 2.0
    with pytest.raises(ValueError, match="read-only"):
        held.inv_freq[0] = 3


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: S.plain(7), "dim=7"),
        (lambda: S.plain(0), "dim=0"),
        (lambda: S.plain(8, 0.0), "base=0"),
        (lambda: S.linear(8, 0.0), "factor=0"),
        (lambda: S.linear(8, float("inf")), "factor=inf"),
        (lambda: S.ntk(2, 2.0), "use linear"),
        (lambda: S.yarn(8, 2.0, 0), "original_max_position_embeddings=0"),
        (lambda: S.yarn(8, 2.0, 4096, 1.0), "more than 1"),
        (lambda: S.longrope(8, [1] * 4, [1] * 3, 9, 8, 16), "long_factor of shape"),
        (lambda: S.longrope(8, [1] * 4, [0] * 4, 9, 8, 16), "4 positive numbers"),
        (lambda: S.llama3(8, low_freq_factor=4.0), "turns"),
        (lambda: S(np.ones((2, 2)), 1.0), "inv_freq has shape"),
    ],
)
def test_frequencies_that_cannot_be(made: Any, says: str) -> None:
    with pytest.raises(bp.InvalidProblemError) as caught:
        made()
    readable(caught.value, says)

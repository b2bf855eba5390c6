"""What plans of `device="cpu"` promise of attention and rotations: terms cancel, scores are large, places far; beside mpmath."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest

import baracuda_py as bp

Array = np.ndarray[Any, Any]
BF16, F32, F64 = (np.dtype(x) for x in (ml_dtypes.bfloat16, np.float32, np.float64))
DIGITS = 150
TRIES = 24  # problems of each kind
ROWS, KEYS, D, D_V = 3, 5, 4, 2
EXP = np.vectorize(mpmath.exp, otypes=[object])
TANH = np.vectorize(mpmath.tanh, otypes=[object])
TO_MPF = np.vectorize(lambda x: mpmath.mpf(float(x)), otypes=[object])
LEAST = mpmath.mpf(2) ** -16000  # below which a long double is 0 here
TO_LONG = np.vectorize(lambda x: np.longdouble(mpmath.nstr(x, 30) if abs(x) > LEAST else 0), otypes=[np.longdouble])


def holds(plan: Any, arrays: dict[str, Array], exact: dict[str, Any]) -> None:
    """Every result is within its bound of the exact one; `exact` has one for each but the status."""
    got = plan.run(**arrays)
    written = [o.name for o in plan.operands if o.written]
    assert set(written) - {"status"} == set(exact)
    results = dict(zip(written, got if isinstance(got, tuple) else (got,)))
    for name, one in ((name, np.asarray(results[name])) for name in exact):
        wide = TO_LONG(np.asarray(exact[name], object)).reshape(one.shape)
        plan.precision_guarantee.of(name).check(one, wide, arrays, measures=plan.measured(None, name))


# ---- problems of attention: q, k, v and the options of a call ---------------------------------------------------------


@dataclass
class Drawn:
    """Operands from a normal distribution, for a kind of problem to change, and the options of the call."""

    rng: Any
    q: Array
    k: Array
    v: Array
    options: dict[str, Any] = field(default_factory=dict)


def _cancelling_values(p: Drawn) -> None:
    """Two keys with equal scores, whose values differ in sign."""
    p.k[1] = p.k[3]
    p.v[1] = p.v[1] * 2.0 ** p.rng.integers(10, 60)
    p.v[3] = -p.v[1]


def _cancelling_scores(p: Drawn) -> None:
    """Products of q and k that are large and cancel."""
    large = 2.0 ** p.rng.integers(4, 24)
    p.q[:, 0], p.q[:, 1], p.k[:, 0], p.k[:, 1] = large, -large, large, large


def _large_scores(p: Drawn) -> None:
    """Scores up to 2**80, neighbouring ones among them."""
    p.q *= 2.0 ** p.rng.integers(0, 40)
    p.k *= 2.0 ** p.rng.integers(0, 40)
    p.k[2] = p.k[0] * (1 + 2.0 ** -p.rng.integers(1, 24))
    p.v[0] = 0


def _equal_scores(p: Drawn) -> None:
    """The same products in another order: two scores that are equal and far above 2**53 differ by more than exp sees."""
    p.q[:] = p.q[:, :1] * 2.0**40
    p.k[0] = np.abs(p.k[0]) * 2.0 ** np.array([20, 28, 36, 23])
    p.k[1] = p.rng.permutation(p.k[0])
    p.v[p.rng.integers(2)] = 0


def _sinks(p: Drawn) -> None:
    """Sinks far above and below the scores."""
    p.options["sinks"] = p.rng.standard_normal(1) * 100


def _far(p: Drawn) -> None:
    """A slope that makes scores large, and two keys that weigh as much."""
    p.options["alibi_slopes"] = np.array([[2.0 ** -p.rng.integers(0, 40)]])
    p.options["offset"] = float(2 ** p.rng.integers(1, 30))
    p.v[-2] = -p.v[-1] * 2.0 ** p.rng.integers(0, 20)


def _capped(p: Drawn) -> None:
    """A softcap, of scores that are small and large beside it."""
    p.options["softcap"] = float(2.0 ** p.rng.integers(-4, 8))
    p.q *= 2.0 ** p.rng.integers(-4, 12)
    p.v[1], p.k[1] = -p.v[0], p.k[0] * (1 + 2.0**-7)


def _lse_near_zero(p: Drawn) -> None:
    """Each key's score is close to -log(KEYS), so that the logarithm of the sum and the highest score cancel."""
    p.q[:], p.k[:] = 0, 0
    p.q[:, 0], p.k[:, 0] = 1, -np.log(float(KEYS))
    p.options["scale"] = 1.0


def _faint(p: Drawn) -> None:
    """Weights and values at the end of the range."""
    p.q *= 2.0 ** p.rng.integers(3, 7)
    p.v *= 2.0 ** float(p.rng.integers(-145, -110))


PROBLEMS: dict[str, Callable[[Drawn], None]] = {
    "cancelling values": _cancelling_values,
    "cancelling scores": _cancelling_scores,
    "large scores": _large_scores,
    "equal scores": _equal_scores,
    "sinks": _sinks,
    "far": _far,
    "capped": _capped,
    "lse near zero": _lse_near_zero,
    "faint": _faint,
}


def problem(kind: str, dtype: Any, seed: int) -> tuple[dict[str, Array], dict[str, Any]]:
    """q, k, v in `dtype`, and options with the operands among them."""
    rng = np.random.default_rng(seed)
    p = Drawn(rng, *(rng.standard_normal(shape) for shape in ((ROWS, D), (KEYS, D), (KEYS, D_V))))
    PROBLEMS[kind](p)
    extra = {name: p.options.pop(name).astype(np.float32) for name in ("sinks", "alibi_slopes") if name in p.options}
    return {"q": p.q.astype(dtype), "k": p.k.astype(dtype), "v": p.v.astype(dtype), **extra}, p.options


class Exact:
    """The forward op in mpmath: scores, their derivative by q k, lse and out, of q at `offset` and everything seen."""

    def __init__(self, desc: Any, q: Array, k: Array, v: Array, alibi_slopes: Any = None, sinks: Any = None) -> None:
        self.q, self.k, self.v = (TO_MPF(x) for x in (q, k, v))
        self.scale = mpmath.mpf(float(desc.factor))
        offset = int(desc.offset) if getattr(desc, "offset_given", False) else len(k) - len(q)
        self.distance = TO_MPF(np.arange(len(k))[None, :] - (np.arange(len(q))[:, None] + offset))
        self.scores, self.derivative = self.scale * (self.q @ self.k.T), mpmath.mpf(1)
        if desc.softcapped:
            cap = mpmath.mpf(float(desc.softcap))
            of_cap = TANH(self.scores / cap)
            self.scores, self.derivative = cap * of_cap, 1 - of_cap**2
        if alibi_slopes is not None:
            self.scores = self.scores + TO_MPF(np.float64(alibi_slopes)).item() * self.distance
        self.sink = mpmath.mpf("-inf") if sinks is None else TO_MPF(np.float64(sinks)).item()
        top = np.maximum(self.scores.max(axis=1), self.sink)
        terms = EXP(self.scores - top[:, None])
        whole = terms.sum(axis=1) + EXP(self.sink - top)
        self.out = (terms / whole[:, None]) @ self.v
        self.lse = np.vectorize(mpmath.log, otypes=[object])(whole) + top

    def gradients(self, grad: Array, out: Array, lse: Array) -> dict[str, Any]:
        """Of given results."""
        pulled, made, log = (TO_MPF(x) for x in (grad, out, lse))
        weights, of_sinks = np.minimum(EXP(self.scores - log[:, None]), 1), np.minimum(EXP(self.sink - log), 1)
        delta = (pulled * made).sum(axis=1)
        added = weights * (pulled @ self.v.T - delta[:, None])
        inner = added * self.derivative
        return {
            "grad_q": self.scale * (inner @ self.k),
            "grad_k": self.scale * (inner.T @ self.q),
            "grad_v": weights.T @ pulled,
            "grad_sinks": -(of_sinks * delta).sum(),
            "grad_alibi_slopes": (added * self.distance).sum(),
        }


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("dtype", [BF16, F32, F64], ids=str)
def test_attention_of_the_host(kind: str, dtype: Any) -> None:
    for seed in range(TRIES):
        arrays, options = problem(kind, dtype, seed)
        desc = bp.AttentionDescriptor.of(**arrays, **options, return_lse=True)
        with mpmath.workdps(DIGITS):
            exact = Exact(desc, **arrays)
            holds(bp.AttentionPlan.select(desc, device="cpu"), arrays, {"out": exact.out, "lse": exact.lse})


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("dtype", [BF16, F32, F64], ids=str)
@pytest.mark.parametrize("paged", [False, True])
def test_decoding_of_the_host(kind: str, dtype: Any, paged: bool) -> None:
    """The last query of each problem, over a cache and over pages that hold more keys."""
    for seed in range(TRIES):
        arrays, options = problem(kind, dtype, seed)
        last = arrays["q"][-1:]
        rest = {name: x for name, x in arrays.items() if name not in "qkv"}
        options.pop("offset", None)  # the query is at the end
        k, v = (np.concatenate([arrays[name], np.full_like(arrays[name][:3], np.nan)]) for name in "kv")
        given = {"q": last[None, None], **rest, "lengths": np.array([KEYS], np.int32)}
        family: Any = bp.DecodeAttentionPlan
        if paged:
            family, table = bp.PagedAttentionPlan, np.array([[1, 0]], np.int32)
            pages = {f"{n}_pages": np.stack([x[4:], x[:4]])[:, :, None] for n, x in (("k", k), ("v", v))}
            given |= {**pages, "page_table": table}
        else:
            given |= {"k": k[None, None], "v": v[None, None]}
        desc = family.descriptor.of(**given, **options, return_lse=True)
        with mpmath.workdps(DIGITS):
            exact = Exact(desc, **{**arrays, "q": last})
            holds(family.select(desc, device="cpu"), given, {"out": exact.out, "lse": exact.lse})


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("dtype", [BF16, F32, F64], ids=str)
def test_attention_backward_of_the_host(kind: str, dtype: Any) -> None:
    """The results that it takes are rounded; the sum of a gradient's terms, and a weight's pull, all but vanish in places."""
    for seed in range(TRIES):
        arrays, options = problem(kind, dtype, seed)
        results = bp.attention(*(arrays[n] for n in "qkv"), return_lse=True, device="cpu", **options,
                               **{n: x for n, x in arrays.items() if n not in "qkv"})  # fmt: skip
        grad = np.random.default_rng(seed + 1000).standard_normal((ROWS, D_V))
        grad[1] = -grad[0] * (1 + 2.0**-20)
        given = {**arrays, "grad": grad.astype(dtype), "out": results[0], "lse": results[1]}
        needs = ("alibi_slopes",) if "alibi_slopes" in arrays else ()
        desc = bp.AttentionBackwardDescriptor.of(**given, **options, needs=needs)
        with mpmath.workdps(DIGITS):
            exact = Exact(desc, **arrays).gradients(given["grad"], *results)
            plan = bp.AttentionBackwardPlan.select(desc, device="cpu")
            written = [o.name for o in plan.operands if o.written]
            holds(plan, given, {name: exact[name] for name in written})


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_merged_attention_of_the_host(dtype: Any) -> None:
    """Parts of equal weight whose results cancel, and lse whose sum is close to 1."""
    for seed in range(TRIES):
        rng = np.random.default_rng(seed)
        outs = rng.standard_normal((4, ROWS, D_V))
        outs[1] *= 2.0 ** rng.integers(10, 60)
        outs[2] = -outs[1]
        lses = (rng.standard_normal((4, ROWS)) * 2.0 ** rng.integers(0, 6)).astype(np.float32)
        lses[2] = lses[1]
        if seed % 2:
            lses[:] = -np.log(4)
        arrays = {"outs": outs.astype(dtype), "lses": lses}
        plan = bp.MergeAttentionPlan.select(bp.MergeAttentionDescriptor.of(**arrays), device="cpu")
        with mpmath.workdps(DIGITS):
            terms = EXP(TO_MPF(lses))
            out = (terms[:, :, None] * TO_MPF(arrays["outs"])).sum(axis=0) / terms.sum(axis=0)[:, None]
            lse = np.vectorize(mpmath.log, otypes=[object])(terms.sum(axis=0))
            holds(plan, arrays, {"out": out, "lse": lse})


# ---- rotations --------------------------------------------------------------------------------------------------------


def nearest_ratio(tangent: Any, digits: int) -> tuple[int, int]:
    """The last convergent a / b of the continued fraction of |tangent| with a and b below 2**digits."""
    rest, a, b = abs(tangent), (0, 1), (1, 0)
    while True:
        whole = int(mpmath.floor(rest))
        a, b = (a[1], whole * a[1] + a[0]), (b[1], whole * b[1] + b[0])
        if max(a[1], b[1]) >= 2**digits:
            return a[0], b[0]
        rest = 1 / (rest - whole)


@pytest.mark.parametrize("op", ["rope", "rope_backward"])
@pytest.mark.parametrize("tables", [False, True], ids=["angles", "tables"])
@pytest.mark.parametrize("dtype", [BF16, F32, F64], ids=str)
def test_rope_of_the_host(dtype: Any, tables: bool, op: str) -> None:
    """Pairs (a, b) whose ratio is as near to the angle's tangent as numbers of the type can be, at positions near and far, so
    that a cos - b sin all but vanishes."""
    rng, digits = np.random.default_rng(7), {BF16: 8, F32: 24, F64: 53}[dtype]
    count, factor = 12 * TRIES, 1.1
    at = rng.integers(1, 2.0 ** rng.uniform(1, 39, count), dtype=np.int64)
    frequency = np.float32(rng.uniform(0.5, 1))
    with mpmath.workdps(DIGITS):
        angles = [mpmath.mpf(int(n)) * mpmath.mpf(float(frequency)) for n in at]
        pairs = [(mpmath.cos(angle), mpmath.sin(angle)) for angle in angles]
        rotated_by: dict[str, Array] = {"inv_freq": np.array([frequency])}
        if tables:
            table = [np.array([[float(pair[i])] for pair in pairs], np.float32) for i in range(2)]
            rotated_by, at = {"cos": table[0], "sin": table[1]}, np.arange(count)
            pairs = list(zip(*(TO_MPF(one[:, 0]) for one in table)))
        x = np.zeros((count, 2), dtype)
        for row, (cosine, sine) in zip(x, pairs):
            a, b = nearest_ratio(sine / cosine, digits)
            sign = 1 if (sine > 0) == (cosine > 0) else -1
            row[:] = float(a), float(b * (-sign if op == "rope_backward" else sign))
        first = "x" if op == "rope" else "grad"
        arrays = {first: x, "positions": at, **rotated_by}
        family: Any = bp.RopePlan if op == "rope" else bp.RopeBackwardPlan
        plan = family.select(family.descriptor.of(**arrays, attention_factor=factor), device="cpu")
        way = -1 if op == "rope_backward" else 1
        wide, by = TO_MPF(x), mpmath.mpf(factor)
        exact = np.array([
            [by * (a * c - way * b * s), by * (b * c + way * a * s)] for (a, b), (c, s) in zip(wide, pairs)
        ])  # fmt: skip
        holds(plan, arrays, {"out" if op == "rope" else "grad_x": exact})

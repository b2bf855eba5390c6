"""Samples of optimizer steps: every kind, odd lengths, the first and later steps, skipped steps, tables of parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ...samples.sample import Sample, values
from ...types import ElementKind

__all__ = [
    "adafactor",
    "adagrad",
    "adam",
    "blockwise",
    "clip",
    "lamb",
    "lars",
    "lion",
    "muon",
    "norm",
    "rmsprop",
    "sgd",
]

BF16, F16, F32, F64 = ElementKind.BF16, ElementKind.F16, ElementKind.F32, ElementKind.F64
Array = np.ndarray[Any, Any]
NOTHING: Mapping[str, Array] = MappingProxyType({})
LENGTHS = (37, 0, 5, 300, 1)  # of the parts of a table
COUNTS = (1, 3, 0, 0, 1)  # of those of an array, in its first


def one(x: float) -> Array:
    return np.asarray(x, np.float32)


def table_of(sizes: Sequence[int], lengths: Sequence[int], gap: int) -> tuple[int, Array]:
    """The elements that arrays need, and the rows of parts of these lengths, so many elements behind each other's ends."""
    begins = np.cumsum([gap, *(n + gap for n in lengths)])
    firsts = np.cumsum([0, *lengths])
    rows = [(n, first, *(int(b) * size for size in sizes)) for n, first, b in zip(lengths, firsts, begins)]
    return int(begins[-1]), np.array(rows, np.int64)


class _Maker:
    """Makes samples of one optimizer, whose states are named; squares are positive. Parts are `counted` for arrays."""

    def __init__(self, seed: int, always: Sequence[str], squares: Sequence[str] = (), *, counted: bool = False) -> None:
        self.rng, self.always, self.squares = np.random.default_rng(seed), tuple(always), squares
        self.counted = counted

    def __call__(
        self, label: str, shape: tuple[int, ...], kind: ElementKind, state: ElementKind = F32, *,
        grad: ElementKind | None = None, step: float = 0, states: Sequence[str] = (), master: bool = False,
        scalars: Mapping[str, Array] = NOTHING, gap: int = 0, lengths: Sequence[int] = LENGTHS,
        counts: Sequence[int] = COUNTS, **options: Any,
    ) -> Sample:  # fmt: skip
        """`states` are further ones. With a `gap`, parts of arrays, so many elements between them."""
        names, table = (*self.always, *states), None
        kinds = [kind, grad or kind, *[state] * len(names), *([F32] if master else [])]
        if gap:
            count, table = table_of([k.bits // 8 for k in kinds], lengths, gap)
            shape = (count,)
            table = np.column_stack([table, counts]) if self.counted else table
        given = {"param": values(self.rng, shape, kind, 1.0), "grad": values(self.rng, shape, grad or kind, 0.5)}
        for name in names:
            x = values(self.rng, shape, state, 0.1)
            given[name] = np.abs(x) if name in self.squares else x
        given |= {"master": values(self.rng, shape, F32, 1.0)} if master else {}
        given |= {"step": one(step), **scalars, **({} if table is None else {"table": table})}
        return Sample(f"{label} {kind}{list(shape)}", given, options)


def adam(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Moments of either kind, AMSGrad, masters, scalars in memory, parts, a step that is skipped."""
    most = ("max_exp_avg_sq",)
    sample = _Maker(seed, ("exp_avg", "exp_avg_sq"), ("exp_avg_sq", *most))
    yield sample("first", (7, 43), F32, step=0)
    yield sample("AMSGrad", (1100,), F32, step=6, states=most, weight_decay=0.25, maximize=True)
    yield sample("moments of its kind", (517,), BF16, BF16, step=3, lr=0.5, beta1=0.0)
    yield sample("master", (61, 9), BF16, master=True, step=99, grad=F32, scalars={"learning_rate": one(0.125)})
    yield sample("scaled", (130,), F16, step=2, scalars={"grad_scale": one(1024), "found_inf": one(0)}, eps=0.5)
    yield sample("skipped", (130,), F32, step=2, scalars={"found_inf": one(1)})
    yield sample("double", (133,), F64, F64, step=4, states=most, weight_decay=0.1)
    yield sample("parts", (), F32, step=1, gap=4)
    yield sample("parts unaligned", (), F16, F16, step=1, gap=3, states=most, master=True)
    yield sample("by chance", (301,), BF16, step=5, lr=0.01, stochastic=True, seed=-3)
    yield sample("none", (0, 3), F32, step=5)
    if full:
        yield sample("one", (), F64, F64, step=1e5)
        yield sample("parts by chance", (), BF16, BF16, gap=5, lr=0.01, stochastic=True, seed=1 << 40)
        yield sample("parts", (), BF16, step=8, gap=8, master=True, maximize=True)
        yield sample("half moments", (77,), F16, F16, step=8, beta2=0.5)


def blockwise(
    states: Sequence[str], tried: Mapping[str, Any], fixed: Any, seed: int = 0, *, full: bool = False  # noqa: ARG001
) -> Iterator[Sample]:  # fmt: skip
    """8-bit states: whole blocks and parts of one, aligned or not, first and later steps, of zeros, a step that is skipped.
    `tried` are options of one sample."""
    rng, parts = np.random.default_rng(seed), (700, 0, 5, 300, 1)

    def sample(
        label: str, shape: tuple[int, ...], kind: ElementKind, *, grad: ElementKind | None = None, step: float = 0,
        master: bool = False, gap: int = 0, zero: bool = False, scalars: Mapping[str, Array] = NOTHING, **options: Any,
    ) -> Sample:  # fmt: skip
        sizes, more = [k.bits // 8 for k in (kind, grad or kind)] + [1] * len(states), dict(scalars)
        if gap:
            count, table = table_of([*sizes, *([4] if master else [])], parts, gap)
            entries = 4 * np.cumsum([1, *(-(-n // 256) for n in parts[:-1])])
            places = [entries[:, None]] * len(states)
            at = 2 + len(sizes)
            shape, more["table"] = (count,), np.hstack([table[:, :at], *places, table[:, at:]]).astype(np.int64)
        count = int(np.prod(shape))
        given = {"param": values(rng, shape, kind, 1.0), "grad": values(rng, shape, grad or kind, 0.5)}
        given |= {name: rng.integers(0, 256, shape, np.uint8) for name in states}
        given |= {
            f"{name}_absmax": (not zero) * np.exp(rng.uniform(-4, 0, -(-count // 256))).astype(np.float32)
            for name in states
        }
        given |= {"master": values(rng, shape, F32, 1.0)} if master else {}
        return Sample(f"{label} {kind}{list(shape)}", given | {"step": one(step), **more}, options)

    yield sample("first", (7, 43), F32, zero=True)
    yield sample("later", (2100,), F32, step=6, weight_decay=0.25, maximize=True, lr=0.125)
    yield sample("master", (61, 9), BF16, master=True, step=99, grad=F32, scalars={"learning_rate": one(0.125)})
    yield sample("scaled", (512,), F16, step=2, scalars={"grad_scale": one(1024), "found_inf": one(0)})
    yield sample("skipped", (130,), F32, step=2, scalars={"found_inf": one(1)})
    yield sample("double", (300,), F64, step=4, weight_decay=0.1, **tried)
    yield sample("parts", (), F32, step=1, gap=304)
    yield sample("parts unaligned", (), F16, step=1, gap=301, master=True)
    yield sample("by chance", (301,), BF16, step=5, lr=0.01, stochastic=True, seed=-3)
    yield sample("none", (0, 3), F32, step=5)
    if full:
        yield sample("one", (), F64, step=1e5)
        yield sample("parts by chance", (), BF16, gap=305, lr=0.01, stochastic=True, seed=1 << 40)
        yield sample("parts", (), BF16, step=8, gap=304, master=True, maximize=True, grad=F32)


def sgd(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """With and without momentum, its first step, masters, parts."""
    sample, buffer = _Maker(seed, ()), ("momentum_buffer",)
    yield sample("plain", (7, 43), F32, weight_decay=0.1, lr=0.5)
    yield sample("first", (130,), F32, states=buffer, momentum=0.9, dampening=0.5, lr=0.25, maximize=True)
    yield sample("later", (517,), BF16, BF16, states=buffer, step=3, momentum=0.75, dampening=0.5, lr=0.25)
    yield sample("Nesterov", (133,), F64, F64, states=buffer, step=7, momentum=0.9, nesterov=True, weight_decay=0.1)
    yield sample(
        "parts unaligned", (), F16, states=buffer, step=1, gap=3, master=True, momentum=0.5, lr=0.1,
        scalars={"grad_scale": one(16)},
    )  # fmt: skip
    if full:
        yield sample("parts", (), F32, gap=4, scalars={"learning_rate": one(0.5)})
        yield sample("skipped", (130,), F32, scalars={"found_inf": one(2)})


def rmsprop(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Centred, with momentum, and both."""
    sample = _Maker(seed, ("square_avg",), ("square_avg",))
    yield sample("plain", (7, 43), F32, weight_decay=0.1)
    yield sample("centred", (517,), F32, states=("grad_avg",), alpha=0.5, maximize=True)
    yield sample("momentum", (130,), BF16, BF16, states=("momentum_buffer",), momentum=0.75, lr=0.25)
    yield sample("both", (133,), F64, F64, states=("grad_avg", "momentum_buffer"), momentum=0.9, step=9)
    yield sample("parts unaligned", (), F16, states=("grad_avg",), gap=3, master=True, lr=0.1, eps=0.25)
    if full:
        yield sample("parts", (), F32, gap=4, scalars={"learning_rate": one(0.5), "grad_scale": one(4)})
        yield sample("skipped", (130,), F32, scalars={"found_inf": one(2)})


def adagrad(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """The first and later steps of a rate that decays."""
    sample = _Maker(seed, ("state_sum",), ("state_sum",))
    yield sample("first", (7, 43), F32, lr_decay=0.5)
    yield sample("later", (133,), F64, F64, step=9, lr_decay=0.25, weight_decay=0.1)
    yield sample("sums of its kind", (517,), BF16, BF16, step=3, maximize=True, lr=0.25)
    yield sample("parts unaligned", (), F16, gap=3, master=True, lr=0.1, eps=0.25)
    if full:
        yield sample("parts", (), F32, gap=4, scalars={"learning_rate": one(0.5), "grad_scale": one(4)})
        yield sample("skipped", (130,), F32, scalars={"found_inf": one(2)})


def lion(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Signs of either kind, and of zero."""
    sample = _Maker(seed, ("exp_avg",))
    yield sample("f32", (7, 43), F32, lr=0.25, weight_decay=0.5)
    yield sample("averages of its kind", (517,), BF16, BF16, lr=0.01, maximize=True, stochastic=True)
    yield sample("double", (133,), F64, F64, step=9, beta1=0.5)
    yield sample("parts unaligned", (), F16, gap=3, master=True, lr=0.1, beta2=0.5)
    x = np.array([1, -2, 0.5, 3], np.float32)
    nothing = {name: np.zeros_like(x) for name in ("grad", "exp_avg")}
    yield Sample("zeros", {"param": x, **nothing, "step": one(0)}, {"lr": 0.5})
    if full:
        yield sample("parts", (), F32, gap=4, scalars={"learning_rate": one(0.5), "grad_scale": one(4)})
        yield sample("skipped", (130,), F32, scalars={"found_inf": one(2)})


def lamb(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Moments of either kind, several chunks, masters, scalars in memory, arrays of parts, norms of 0."""
    sample = _Maker(seed, ("exp_avg", "exp_avg_sq"), ("exp_avg_sq",), counted=True)
    yield sample("first", (7, 43), F32, step=0)
    yield sample("chunks", (6001,), F32, step=6, weight_decay=0.25, maximize=True)
    yield sample("moments of its kind", (517,), BF16, BF16, step=3, lr=0.5, beta1=0.0)
    yield sample("master", (61, 9), BF16, master=True, step=99, grad=F32, scalars={"learning_rate": one(0.125)})
    yield sample("scaled", (130,), F16, step=2, scalars={"grad_scale": one(1024), "found_inf": one(0)}, eps=0.5)
    yield sample("skipped", (130,), F32, step=2, scalars={"found_inf": one(1)})
    yield sample("double", (133,), F64, F64, step=4, weight_decay=0.1)
    yield sample("parts", (), F32, step=1, gap=4, weight_decay=0.1)
    yield sample("parts unaligned", (), F16, F16, step=1, gap=3, master=True)
    yield sample("by chance", (301,), BF16, step=5, lr=0.01, stochastic=True, seed=-3)
    yield from _zeros("exp_avg", "exp_avg_sq")
    yield sample("none", (0, 3), F32, step=5)
    if full:
        yield sample("one", (), F64, F64, step=1e5)
        yield sample("parts by chance", (), BF16, BF16, gap=5, lr=0.01, stochastic=True, seed=1 << 40)
        yield sample("half moments", (77,), F16, F16, step=8, beta2=0.5)


def lars(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Either momentum, several chunks, masters, arrays of parts, norms of 0."""
    sample = _Maker(seed, ("momentum_buffer",), counted=True)
    yield sample("plain", (7, 43), F32, weight_decay=0.1, lr=0.5)
    yield sample("chunks", (6001,), F32, momentum=0.5, lr=0.25, maximize=True)
    yield sample("buffer of its kind", (517,), BF16, BF16, step=3, trust_coefficient=0.5, lr=0.25)
    yield sample("Nesterov", (133,), F64, F64, step=7, nesterov=True, weight_decay=0.1, eps=0.125)
    yield sample("parts", (), F32, gap=4, scalars={"learning_rate": one(0.5)})
    yield sample("parts unaligned", (), F16, step=1, gap=3, master=True, lr=0.1, scalars={"grad_scale": one(16)})
    yield from _zeros("momentum_buffer")
    yield sample("rows", (), F32, gap=1, lengths=[1] * 300, counts=[300] + [0] * 299)
    if full:
        yield sample("by chance", (301,), BF16, BF16, step=5, lr=0.01, stochastic=True, seed=-3, nesterov=True)
        yield sample("skipped", (130,), F32, scalars={"found_inf": one(2)})


def _zeros(*states: str) -> Iterator[Sample]:
    """Parameters of norm 0, and an update of norm 0."""
    x, zeros = np.array([1, -2, 0.5, 3], np.float32), np.zeros(4, np.float32)
    for label, param, grad in (("zeros", zeros, x), ("zero gradient", x, zeros)):
        given = {"param": param, "grad": grad, **dict.fromkeys(states, zeros), "step": one(0)}
        yield Sample(label, {name: a.copy() for name, a in given.items()}, {"lr": 0.5})


def adafactor(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Matrices and vectors, of every kind, one tile and several, a batch, masters, scalars in memory, a step that is skipped."""
    rng = np.random.default_rng(seed)

    def sample(
        label: str, shape: tuple[int, ...], kind: ElementKind, state: ElementKind = F32, *, grad: ElementKind | None = None,
        step: float = 0, master: bool = False, scalars: Mapping[str, Array] = NOTHING, **options: Any,
    ) -> Sample:  # fmt: skip
        given = {"param": values(rng, shape, kind, 1.0), "grad": values(rng, shape, grad or kind, 0.5)}
        shapes = {"row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, *shape[-1:])}
        for name, own in (shapes if len(shape) > 1 else {"variance": shape}).items():
            given[name] = np.abs(values(rng, own, state, 0.1))
        given |= {"master": values(rng, shape, F32, 1.0)} if master else {}
        return Sample(f"{label} {kind}{list(shape)}", {**given, "step": one(step), **scalars}, options)

    yield sample("first", (7, 43), F32)
    yield sample("vector", (1030,), F32, step=6, weight_decay=0.25, maximize=True)
    yield sample("states of its kind", (2, 35, 24), BF16, BF16, step=3, lr=0.5, d=2.0)
    yield sample("tiles", (35, 516), F32, step=9, lr=0.5, eps2=4.0, beta2_decay=-0.5)
    yield sample(
        "master", (61, 9), BF16, master=True, step=99, grad=F32, weight_decay=0.5, scalars={"learning_rate": one(0.125)}
    )
    yield sample("scaled", (130,), F16, step=2, scalars={"grad_scale": one(4), "found_inf": one(0)}, eps1=0.5, lr=0.5)
    yield sample("skipped", (13, 10), F32, step=2, scalars={"found_inf": one(1)})
    yield sample("double", (19, 7), F64, F64, step=4, weight_decay=0.1, eps1=1e-30)
    yield sample("none", (0, 3), F32, step=5)
    if full:
        yield sample("one", (), F64, F64, step=1e5)
        yield sample("small matrices", (5, 4, 3, 3), F16, F16, step=1)
        yield sample("vector of masters", (77,), F16, F16, master=True, step=8, beta2_decay=0.0)


def muon(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Wide and tall matrices, every kind; iterations few enough for a bound, and torch's own; masters, a rate in memory."""
    rng = np.random.default_rng(seed)

    def sample(
        label: str, shape: tuple[int, int], kind: ElementKind, state: ElementKind = F32, *, master: bool = False,
        scalars: Mapping[str, Array] = NOTHING, **options: Any,
    ) -> Sample:  # fmt: skip
        given = {"param": values(rng, shape, kind, 1.0), "grad": values(rng, shape, kind, 0.5)}
        given |= {"momentum_buffer": values(rng, shape, state, 0.1)}
        given |= {"master": values(rng, shape, F32, 1.0)} if master else {}
        return Sample(f"{label} {kind}{list(shape)}", {**given, **scalars}, {"lr": 0.5, **options})

    yield sample("normalized", (7, 343), F32, ns_steps=0, momentum=0.25)
    yield sample("one", (16, 24), F16, master=True, ns_steps=1, nesterov=False, momentum=0.75)
    yield sample("tall", (33, 12), BF16, BF16, ns_steps=1, adjust_lr_fn="match_rms_adamw", eps=50.0, weight_decay=0.9)
    yield sample("two", (9, 17), F32, ns_steps=2, scalars={"learning_rate": one(0.125)})
    yield sample("five", (10, 24), F32)
    yield sample("double", (6, 5), F64, F64, ns_steps=1, weight_decay=0.0, ns_coefficients=(1.5, -0.5, 0.0))
    yield sample("none", (0, 3), F32)
    if full:
        yield sample("column", (19, 1), F16, F16, ns_steps=1)
        zeros = np.zeros((4, 5), np.float32)
        yield Sample("zeros", {"param": zeros + 1, "grad": zeros, "momentum_buffer": zeros.copy()}, {"ns_steps": 1})


def norm(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every kind, odd lengths, several chunks, parts, no numbers, scales in memory."""
    for one_sample in _gradients(seed, full=full):
        given, options = dict(one_sample.operands), dict(one_sample.options)
        if "scaled" in one_sample.label:
            given["grad_scale"] = one(64)
        yield Sample(one_sample.label, given, options)


def clip(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """The same, clipped."""
    yield from _gradients(seed, full=full)


def _gradients(seed: int, *, full: bool) -> Iterator[Sample]:
    rng = np.random.default_rng(seed)
    yield Sample("f32[7, 43]", {"grad": values(rng, (7, 43), F32)}, {"max_norm": 1.0})
    yield Sample("scaled bf16[6001]", {"grad": values(rng, (6001,), BF16)}, {"max_norm": 0.5})
    yield Sample("within f64[133]", {"grad": values(rng, (133,), F64)}, {"max_norm": 1e6})
    count, table = table_of([2], LENGTHS, 3)
    yield Sample("parts f16", {"grad": values(rng, (count,), F16), "table": table}, {"max_norm": 2.0})
    yield Sample("infinite f32", {"grad": np.array([1, np.inf, 0], np.float32)}, {"max_norm": 2.0})
    yield Sample("NaN f16", {"grad": np.array([1, np.nan, 0], np.float16)}, {"max_norm": 2.0})
    yield Sample("none f32", {"grad": np.zeros((0, 2), np.float32)}, {"max_norm": 2.0})
    if full:
        yield Sample("zeros bf16", {"grad": np.zeros(9, BF16.dtype)}, {"max_norm": 0.0})
        yield Sample("large f32", {"grad": np.full(5, 1e30, np.float32)}, {"max_norm": 1.0})
        count, table = table_of([4], LENGTHS, 4)
        yield Sample("scaled parts f32", {"grad": values(rng, (count,), F32), "table": table}, {"max_norm": 2.0})

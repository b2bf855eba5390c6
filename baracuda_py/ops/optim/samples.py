"""Samples of optimizer steps: every kind, odd lengths, the first and later steps, skipped steps, tables of parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...samples.sample import Sample, values
from ...types import ElementKind

__all__ = ["adam"]

BF16, F16, F32, F64 = ElementKind.BF16, ElementKind.F16, ElementKind.F32, ElementKind.F64
Array = np.ndarray[Any, Any]
LENGTHS = (37, 0, 5, 300, 1)  # of the parts of a table


def one(x: float) -> Array:
    return np.asarray(x, np.float32)


def table_of(sizes: Sequence[int], lengths: Sequence[int], gap: int) -> tuple[int, Array]:
    """The elements that arrays need, and the rows of parts of these lengths, so many elements behind each other's ends."""
    begins = np.cumsum([gap, *(n + gap for n in lengths)])
    firsts = np.cumsum([0, *lengths])
    rows = [(n, first, *(int(b) * size for size in sizes)) for n, first, b in zip(lengths, firsts, begins)]
    return int(begins[-1]), np.array(rows, np.int64)


def adam(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Moments of either kind, AMSGrad, masters, scalars in memory, parts, a step that is skipped."""
    rng = np.random.default_rng(seed)

    def sample(
        label: str, shape: tuple[int, ...], kind: ElementKind, state: ElementKind = F32, *, grad: ElementKind | None = None,
        step: int = 0, amsgrad: bool = False, master: bool = False, scalars: Any = (), parts: int = 0, **options: Any,
    ) -> Sample:  # fmt: skip
        grad = grad or kind
        kinds = [kind, grad, *[state] * (3 if amsgrad else 2), *([F32] if master else [])]
        table = None
        if parts:
            count, table = table_of([k.bits // 8 for k in kinds], LENGTHS, parts)
            shape = (count,)
        given = {"param": values(rng, shape, kind, 1.0), "grad": values(rng, shape, grad, 0.5)}
        given |= {"exp_avg": values(rng, shape, state, 0.1)}
        names = ("exp_avg_sq", *(["max_exp_avg_sq"] if amsgrad else []))
        given |= {name: np.abs(values(rng, shape, state, 0.1)) for name in names}
        if master:
            given["master"] = values(rng, shape, F32, 1.0)
        given["step"] = one(step)
        given |= dict(scalars)
        if table is not None:
            given["table"] = table
        return Sample(f"{label} {kind}{list(shape)}", given, options)

    yield sample("first", (7, 43), F32, step=0)
    yield sample("AMSGrad", (1100,), F32, step=6, amsgrad=True, weight_decay=0.25, maximize=True)
    yield sample("moments of its kind", (517,), BF16, BF16, step=3, lr=0.5, beta1=0.0)
    yield sample("master", (61, 9), BF16, master=True, step=99, grad=F32, scalars={"learning_rate": one(0.125)})
    yield sample("scaled", (130,), F16, step=2, scalars={"grad_scale": one(1024), "found_inf": one(0)}, eps=0.5)
    yield sample("skipped", (130,), F32, step=2, scalars={"found_inf": one(1)})
    yield sample("double", (133,), F64, F64, step=4, amsgrad=True, weight_decay=0.1)
    yield sample("parts", (), F32, step=1, parts=4)
    yield sample("parts unaligned", (), F16, F16, step=1, parts=3, amsgrad=True, master=True)
    yield sample("none", (0, 3), F32, step=5)
    if full:
        yield sample("one", (), F64, F64, step=1e5)
        yield sample("parts", (), BF16, step=8, parts=8, master=True, maximize=True)
        yield sample("half moments", (77,), F16, F16, step=8, beta2=0.5)

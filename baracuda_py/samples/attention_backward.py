"""Samples of attention's gradients: those of attention, with a gradient, and out and lse as they would have been saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..types import ElementKind
from . import attention as forward
from .sample import Sample, values

__all__ = ["backward", "saved"]

UNKNOWN = ("return_lse",)  # options of the forward op alone
LARGE = ("d128 GQA", "MLA", "many blocks", "d256, causal")
F16, BF16 = ElementKind.F16, ElementKind.BF16


Forward = Callable[[Any, Any], tuple[Any, Any]]  # operands and options of the forward op to its out and lse


def backward(computed: Forward, fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Every problem of attention, but that the largest are smaller; heads that share keys, in ragged sequences too."""
    rng = np.random.default_rng(seed + 1)
    samples = [x for x in forward.attention(fixed, seed, full=full) if not any(name in x.label for name in LARGE)]
    for sample in (*samples, *_own(rng)):
        options = {name: x for name, x in sample.options.items() if name not in UNKNOWN}
        yield Sample(sample.label, saved(computed, rng, sample.operands, options), options)


def _own(rng: np.random.Generator) -> Iterator[Sample]:
    causal = {"causal": True}
    yield Sample("bf16 d128 GQA, causal", forward.qkv(rng, BF16, 1, (4, 2), 70, 83, 128), causal)
    yield Sample("f16 d256", forward.qkv(rng, F16, 1, (2, 1), 40, 70, 256), causal)
    yield Sample("bf16 many blocks, negative scale", forward.qkv(rng, BF16, 1, (1, 1), 150, 270, 32), {"scale": -0.2})
    yield Sample("bf16 d192 d_v128", forward.qkv(rng, BF16, 1, (1, 1), 33, 66, 192, 128), {})
    yield Sample("bf16 MLA", forward.qkv(rng, BF16, 1, (2, 1), 3, 20, 288, 264), causal)
    starts = {
        "cu_seqlens_q": np.array([0, 7, 7, 40, 41], np.int32),
        "cu_seqlens_k": np.array([0, 30, 35, 35, 100], np.int32),
    }
    made = {n: values(rng, s, F16, 1.0) for n, s in (("q", (41, 4, 64)), ("k", (100, 2, 64)), ("v", (100, 2, 32)))}
    sinks = rng.standard_normal(4).astype(np.float32)
    yield Sample("f16 ragged GQA, sinks", {**made, **starts, "sinks": sinks}, {"layout": "THD", "window": (40, 0)})
    yield from _biases(rng)


def _biases(rng: np.random.Generator) -> Iterator[Sample]:
    """With the gradients of what is added to scores: whole, and along axes that it is broadcast along."""
    slopes = np.array([0.5, 0.0625], np.float32)

    def masked(element: ElementKind, *shape: int) -> dict[str, Any]:
        return {**forward.qkv(rng, element, 2, (2, 1), 33, 34, 8), "mask": values(rng, shape, element, 1.0)}

    yield Sample(
        "f32 grad_mask", masked(ElementKind.F32, 2, 2, 33, 34), {"causal": True, "softcap": 2.0, "needs": ("mask",)}
    )
    yield Sample("f32 grad_mask of keys", masked(ElementKind.F32, 2, 1, 1, 34), {"needs": ("mask",)})
    both = {"window": (20, 3), "needs": ("mask", "alibi_slopes")}
    yield Sample("f16 grad_mask of queries, grad_alibi_slopes", {**masked(F16, 33, 1), "alibi_slopes": slopes}, both)


def saved(computed: Forward, rng: np.random.Generator, operands: Any, options: Any) -> dict[str, Any]:
    """The operands of the gradient: those of the forward op, a gradient, and what the forward op gives, rounded."""
    out, lse = computed(operands, options)
    element = ElementKind.of(operands["q"].dtype)
    of_stats = np.float64 if element is ElementKind.F64 else np.float32
    grad = values(rng, out.shape, element, 1.0)
    return {**operands, "grad": grad, "out": out.astype(element.dtype), "lse": lse.astype(of_stats)}

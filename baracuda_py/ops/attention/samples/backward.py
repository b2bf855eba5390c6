"""Samples of attention's gradients: problems of attention, with a gradient, and out and lse as they would have been saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, values
from ....types import ElementKind
from . import forward

__all__ = ["backward", "saved"]

UNKNOWN = ("return_lse",)  # options of the forward op alone
LARGE = ("d128 GQA", "MLA", "many blocks", "d256, causal")
F16, BF16, F32, F64 = ElementKind.F16, ElementKind.BF16, ElementKind.F32, ElementKind.F64


Forward = Callable[[Any, Any], tuple[Any, Any]]  # operands and options of the forward op to its out and lse


def backward(computed: Forward, fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """A problem of each path of the kernels, small; with `full` those of attention too, the largest of them smaller."""
    rng = np.random.default_rng(seed + 1)
    samples = [*_few(rng)]
    if full:
        given = forward.attention(fixed, seed, full=True)
        samples += [*(x for x in given if not any(name in x.label for name in LARGE)), *_larger(rng)]
    for sample in samples:
        options = {name: x for name, x in sample.options.items() if name not in UNKNOWN}
        yield Sample(sample.label, saved(computed, rng, sample.operands, options), options)


def _few(rng: np.random.Generator) -> Iterator[Sample]:
    """By tensor cores, and one by one. The first, those at thirds and the last are run as every variant, and for other arches."""
    yield Sample("bf16 50 x 70", forward.qkv(rng, BF16, 1, (2, 2), 50, 70, 64))
    yield Sample("bf16 one by one", forward.qkv(rng, BF16, 1, (1, 1), 1, 1, 16))
    yield Sample("f16 d80 d_v96 GQA", forward.qkv(rng, F16, 1, (2, 1), 35, 45, 80, 96), {"causal": True})
    yield Sample("bf16 many keys", forward.qkv(rng, BF16, 1, (1, 1), 3, 2100, 64))
    yield Sample("f16 d256", forward.qkv(rng, F16, 1, (1, 1), 40, 70, 256), {"causal": True})
    wide = forward.qkv(rng, BF16, 1, (2, 1), 9, 13, 24, layout="BSHD")
    odd = {n: x[..., 1:17] for n, x in wide.items()}
    yield Sample("bf16 BSHD, rows at odd places", odd, {"causal": True, "layout": "BSHD"})
    yield Sample(
        "f32 one head of rank 2", {n: x[0, 0] for n, x in forward.qkv(rng, F32, 1, (1, 1), 20, 20, 24).items()}
    )
    sinks = {**forward.qkv(rng, BF16, 1, (2, 2), 45, 77, 64), "sinks": forward.cast(rng.standard_normal(2), BF16)}
    yield Sample("bf16 sinks of its type, window", sinks, {"causal": True, "window": (15, 0)})
    blocks = forward.qkv(rng, BF16, 1, (1, 1), 70, 270, 32)
    yield Sample("bf16 many blocks, negative scale", blocks, {"scale": -0.2, "causal": True, "offset": 200})
    starts = {
        "cu_seqlens_q": np.array([0, 7, 7, 40, 41], np.int32),
        "cu_seqlens_k": np.array([0, 30, 35, 35, 100], np.int32),
    }
    made = {n: values(rng, s, BF16, 1.0) for n, s in (("q", (41, 4, 64)), ("k", (100, 2, 64)), ("v", (100, 2, 32)))}
    made["sinks"] = rng.standard_normal(4).astype(np.float32)
    yield Sample("bf16 ragged GQA, sinks", {**made, **starts}, {"layout": "THD", "window": (40, 0)})
    capped = {"softcap": 5.0, "causal": True, "window": (31, None)}
    added = rng.standard_normal((45, 77)).astype(np.float32)
    added[7] = -np.inf
    yield Sample("f16 d32, capped, mask", {**forward.qkv(rng, F16, 1, (1, 1), 45, 77, 32), "mask": added}, capped)
    slopes = np.array([0.5, 0.0625], np.float32)
    hidden = rng.random((2, 1, 45, 77)) < 0.5
    hidden[:, :, 5] = False
    biased = {**forward.qkv(rng, BF16, 2, (2, 2), 45, 77, 64), "mask": hidden, "alibi_slopes": slopes}
    yield Sample("bf16 alibi, bool mask", biased, {"causal": True, "offset": 3})
    kept = {**forward.qkv(rng, BF16, 1, (2, 2), 70, 144, 64), "mask": rng.random((1, 2, 70, 144)) < 0.5}
    yield Sample("bf16 capped, bool mask", kept, {"softcap": 3.0, "causal": True})
    far = {**forward.qkv(rng, F16, 1, (2, 1), 33, 130, 128), "alibi_slopes": slopes}
    yield Sample("f16 d128 alibi, capped", far, {"softcap": 5.0})
    masked = {**forward.qkv(rng, BF16, 1, (2, 1), 45, 77, 64), "mask": forward.cast(rng.random((1, 2, 45, 1)), BF16)}
    masked["block_mask"] = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 1]], bool)[None, None]
    yield Sample("bf16 masks of its type and of blocks", masked, {"block_size": (16, 32)})
    few = forward.qkv(rng, F32, 2, (2, 1), 9, 21, 32)
    yield Sample("f32 alibi a sequence, scale", {**few, "alibi_slopes": np.stack([slopes, slopes * 2])}, {"scale": 0.3})
    features = {
        "sinks": rng.standard_normal(2).astype(np.float32),
        "alibi_slopes": slopes,
        "mask": hidden[:, :, :9, :21],
    }
    features |= {"block_mask": np.ones((2, 1, 1, 1), bool)}
    everything = {"causal": True, "window": (12, 0), "softcap": 3.0, "offset": 8, "block_size": (16, 32)}
    yield Sample("f64 everything", {**forward.qkv(rng, F64, 2, (2, 1), 9, 21, 16), **features}, everything)
    yield Sample("bf16 5 x 0", forward.qkv(rng, BF16, 1, (2, 1), 5, 0, 16))
    yield Sample("bf16 0 x 5", forward.qkv(rng, BF16, 1, (2, 1), 0, 5, 16))
    yield from _biases(rng)


def _larger(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample("bf16 d128 GQA, causal", forward.qkv(rng, BF16, 1, (4, 2), 70, 83, 128), {"causal": True})
    yield Sample("bf16 many queries", forward.qkv(rng, BF16, 1, (1, 1), 150, 270, 32), {})
    yield Sample("bf16 d192 d_v128", forward.qkv(rng, BF16, 1, (1, 1), 33, 66, 192, 128), {})
    yield Sample("bf16 MLA", forward.qkv(rng, BF16, 1, (2, 1), 3, 20, 288, 264), {"causal": True})


def _biases(rng: np.random.Generator) -> Iterator[Sample]:
    """With the gradients of what is added to scores: whole, and along axes that it is broadcast along."""
    slopes = np.array([0.5, 0.0625], np.float32)

    def masked(element: ElementKind, *shape: int, keys: int = 34) -> dict[str, Any]:
        return {**forward.qkv(rng, element, 2, (2, 1), 33, keys, 8), "mask": values(rng, shape, element, 1.0)}

    yield Sample(
        "f32 grad_mask", masked(ElementKind.F32, 2, 2, 33, 34), {"causal": True, "softcap": 2.0, "needs": ("mask",)}
    )
    blocks = {"block_mask": np.array([[1, 0], [0, 1], [1, 1]], bool)[None, None]}
    keys = {**masked(ElementKind.F32, 2, 1, 1, 34), **blocks}
    yield Sample("f32 grad_mask of keys, blocks", keys, {"needs": ("mask",), "block_size": (16, 32)})
    both = {"window": (20, 3), "needs": ("mask", "alibi_slopes")}
    # Without sinks a row's gradients add up to 0: distances from any key would do
    queries = {**masked(F16, 33, 1, keys=66), "alibi_slopes": slopes, "sinks": 2 * slopes}
    yield Sample("f16 grad_mask of queries, grad_alibi_slopes, sinks", queries, both)


def saved(computed: Forward, rng: np.random.Generator, operands: Any, options: Any) -> dict[str, Any]:
    """The operands of the gradient: those of the forward op, a gradient, and what the forward op gives, rounded."""
    out, lse = computed(operands, options)
    element = ElementKind.of(operands["q"].dtype)
    of_stats = np.float64 if element is ElementKind.F64 else np.float32
    grad = values(rng, out.shape, element, 1.0)
    return {**operands, "grad": grad, "out": out.astype(element.dtype), "lse": lse.astype(of_stats)}

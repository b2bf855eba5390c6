"""Samples of bags: both forms of ids, empty and long bags, padding, weights, layouts, and what is out of range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, layouts, values
from ....types import ElementKind

__all__ = ["backward", "embedding_bag"]

KINDS = (ElementKind.F32, ElementKind.BF16, ElementKind.F16, ElementKind.F64)
REDUCTIONS = ("sum", "mean", "max")
SHAPES = (  # weight, entries, bags
    ((20, 64), 90, 7),
    ((11, 33), 60, 40),
    ((50, 8), 200, 5),
    ((7, 3), 40, 1),
    ((4, 260), 9, 3),
    ((9, 5), 0, 3),
)


def embedding_bag(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every kind and reduction, both kinds of id, three forms of bags, long bags, layouts, and ids and offsets out of range."""
    rng = np.random.default_rng(seed)
    for i, (shape, entries, bags) in enumerate(SHAPES):
        for j, reduce in enumerate(REDUCTIONS):
            element, last = KINDS[(i + j) % len(KINDS)], bool((i + j) % 2)
            ids = rng.integers(0, shape[0], entries).astype((np.int64, np.int32)[i % 2])
            offsets = np.sort(rng.integers(0, entries + 1, bags + last)).astype((np.int64, np.int32)[j % 2])
            operands = {"input": ids, "weight": values(rng, shape, element), "offsets": offsets}
            options = {"reduce": reduce, "include_last_offset": last, "mode": ("drop", "status")[(i + j) % 2]}
            if reduce == "sum" and i % 2 == 0:
                operands["per_sample_weights"] = values(rng, ids.shape, element)
            yield Sample(f"{element}{list(shape)} entries {entries} bags {bags} {reduce}", operands, options)
    for j, reduce in enumerate(REDUCTIONS):
        for element in KINDS if full else (KINDS[j],):
            ids, weight = rng.integers(0, 20, (6, 9)), values(rng, (20, 24), element)
            yield Sample(f"{element} rows of ids, {reduce}", {"input": ids, "weight": weight}, {"reduce": reduce})
        padded = {"input": rng.integers(0, 4, (9, 3)), "weight": values(rng, (4, 12), KINDS[j])}
        yield Sample(f"padding, {reduce}", padded, {"reduce": reduce, "padding_idx": -2})
        ids, weight = rng.integers(0, 30, 900), values(rng, (30, 5 + j), KINDS[-1 - j])
        long = {"input": ids, "weight": weight, "offsets": np.array([0, 2, 2, 300, 880])}
        yield Sample(f"long bags, {reduce}", long, {"reduce": reduce})
        tied = rng.integers(-2, 3, (20, 12)).astype(np.float32)
        tied[3, :4], tied[7] = (np.nan, np.inf, -np.inf, -0.0), -np.inf
        some = {"input": rng.integers(0, 20, (7, 5)), "weight": tied}
        yield Sample(f"ties, NaN and infinities, {reduce}", some, {"reduce": reduce})
        beyond = {
            "input": np.array([[0, 19, 20], [-1, 3, 3], [2**40, -(2**40), 99]]),
            "weight": values(rng, (20, 6), KINDS[0]),
        }
        yield Sample(f"ids out of range, {reduce}", beyond, {"reduce": reduce, "mode": "status"})
    ids, weight = rng.integers(0, 20, 30), values(rng, (20, 12), ElementKind.F32)
    weights = values(rng, (6, 5), ElementKind.F32)
    yield Sample(
        "weights of rows of ids",
        {"input": ids.reshape(6, 5), "weight": weight, "per_sample_weights": weights},
        {"reduce": "sum"},
    )
    for name, view in layouts(weight).items():
        yield Sample(f"weight {name}", {"input": ids[:20] % len(view), "weight": view, "offsets": np.array([0, 9])}, {})
    for label, given in (("decreasing", [0, 9, 8]), ("beyond", [0, 31]), ("negative", [-1, 9])):
        refused = {"input": ids, "weight": weight, "offsets": np.array(given)}
        yield Sample(f"offsets {label}", refused, {"mode": "status"})


def backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """The samples of the reduction with a gradient, and its layouts; more rows than two digits of a key count, and equal ids."""
    rng = np.random.default_rng(seed + 1)
    for sample in embedding_bag(fixed, seed, full=full):
        weight = sample.operands["weight"]
        if sample.options.get("reduce") != "max" or weight.flags.c_contiguous:
            yield _with_gradient(rng, sample)
    ids, weight = rng.integers(0, 20, (5, 6)), values(rng, (20, 12), ElementKind.F32)
    for name, view in layouts(values(rng, (5, 12), ElementKind.F32)).items():
        if view.shape == (5, 12):
            yield Sample(f"grad {name}", {"grad": view, "input": ids, "weight": weight}, {})
    equal = np.broadcast_to(np.float32(1), (5, 12))
    yield Sample("equal grads", {"grad": equal, "input": ids, "weight": weight}, {"reduce": "max"})
    alike = {"input": np.full((30, 20), 3), "weight": weight}
    for reduce in REDUCTIONS:
        yield _with_gradient(rng, Sample(f"equal ids, {reduce}", alike, {"reduce": reduce}))
    many = {"input": rng.integers(0, 70_000, (4, 8)), "weight": np.zeros((70_000, 1), np.float32)}
    yield _with_gradient(rng, Sample("three digits", many, {}))


def _with_gradient(rng: np.random.Generator, sample: Sample) -> Sample:
    weight, offsets = sample.operands["weight"], sample.operands.get("offsets")
    last = sample.options.get("include_last_offset", False)
    bags = len(sample.operands["input"]) if offsets is None else len(offsets) - last
    grad = values(rng, (bags, weight.shape[1]), ElementKind.of(weight.dtype))
    return Sample(sample.label, {"grad": grad, **sample.operands}, sample.options)

"""Samples beside the ops' own, chosen to reach what a kernel can do: tails of several elements, rings of stages that wrap, batches
that split K, edges, appends of nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from baracuda_py.samples import Sample
from baracuda_py.samples.sample import values
from baracuda_py.types import ElementKind

__all__ = ["WANTED"]

BF16, F16, F32 = ElementKind.BF16, ElementKind.F16, ElementKind.F32


def _products(element: ElementKind) -> Iterator[Sample]:
    rng = np.random.default_rng(5)

    def product(a: tuple[int, ...], b: tuple[int, ...], columns: bool = True, **options: Any) -> Sample:
        left, right = values(rng, a, element, 1.0), values(rng, b, element, 1.0)
        label = f"{element} {list(a)}{list(b)}{' columns' if columns else ''}"
        return Sample(label, {"a": left, "b": right.swapaxes(-1, -2) if columns else right}, options)

    if element is BF16:
        yield product((64, 5120), (72, 5120))  # a ring of stages that wraps
        yield product((130, 72), (72, 200), False)  # tiles with edges on every side
        yield product((200, 136), (264, 136))  # several tiles
    yield product((3, 2, 2056), (3, 40, 2056))  # few rows, a batch, K in parts
    yield product((3, 2, 1030), (3, 1030, 40), False)


def _append() -> Iterator[Sample]:
    rng = np.random.default_rng(5)
    caches = {name: values(rng, (3, 2, 9, 8), F16) for name in ("k_cache", "v_cache")}
    none = {name: values(rng, (3, 2, 0, 8), F16) for name in ("k", "v")}
    yield Sample("no tokens", caches | none | {"positions": np.array([0, 9, 10], np.int64)}, {"layout": "BHSD"})


def _maps() -> Iterator[Sample]:
    rng = np.random.default_rng(5)
    for element, count in ((F32, 4099), (F16, 8197), (ElementKind.F64, 2051)):
        yield Sample(f"{element}[{count}]", {"x": values(rng, (count,), element)})


WANTED: dict[str, list[Sample]] = {
    "matmul": [*_products(BF16), *_products(F32)],
    "kv_append": [*_append()],
    "neg": [*_maps()],
}

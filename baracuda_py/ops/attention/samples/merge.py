"""Samples of merging: layouts, types, parts that saw nothing, few rows and many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, values
from ....types import ElementKind

__all__ = ["merge_attention"]

F16, BF16, F32 = ElementKind.F16, ElementKind.BF16, ElementKind.F32


def merge_attention(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Layouts and types; lse of distant values, down to -inf."""
    rng = np.random.default_rng(seed)

    def sample(
        label: str, element: ElementKind, shape: tuple[int, ...], stats: tuple[int, ...], **options: Any
    ) -> Sample:
        lses = np.asarray(rng.standard_normal((shape[0], *stats)) * 8, np.float32)
        return Sample(label, {"outs": values(rng, shape, element, 1.0), "lses": lses}, options)

    yield sample("bf16 two parts", BF16, (2, 2, 3, 5, 64), (2, 3, 5))
    yield sample("f16 BSHD", F16, (3, 2, 5, 3, 72), (2, 3, 5), layout="BSHD")
    yield sample("f32 THD", F32, (2, 11, 2, 128), (2, 11), layout="THD")
    yield sample("f32 one head", F32, (1, 9, 33), (9,))
    yield sample("bf16 many parts, 6 columns", BF16, (70, 4, 6), (4,))
    yield sample("bf16 many rows", BF16, (2, 1, 40, 40, 16), (1, 40, 40))
    yield sample("f16 no rows", F16, (2, 0, 8), (0,))
    unseen = sample("f32 parts that saw nothing", F32, (5, 6, 40), (6,))
    unseen.operands["lses"][[0, 3]] = -np.inf
    unseen.operands["lses"][:, 2] = -np.inf
    unseen.operands["outs"][[0, 3]] = np.nan
    yield unseen
    wide = sample("bf16 rows apart", BF16, (6, 2, 3, 72), (2, 3), layout="THD")
    lses = np.ascontiguousarray(wide.operands["lses"].transpose(2, 1, 0)).transpose(2, 1, 0)
    yield Sample(wide.label, {"outs": wide.operands["outs"].swapaxes(1, 2)[..., 1:66], "lses": lses}, wide.options)
    if full:
        yield sample("bf16 large", BF16, (2, 2, 8, 1000, 128), (2, 8, 1000))

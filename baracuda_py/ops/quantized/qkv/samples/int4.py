"""Samples of projections to queries, keys and values with int4 weights: widths that differ, zero points, biases, orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .....samples.sample import Sample, values
from .....types import ElementKind
from ...int4.samples import weight

__all__ = ["project"]

F16, BF16 = ElementKind.F16, ElementKind.BF16


def project(_fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """One token and several, ragged widths, what only some of the three have, a foreign layout."""
    rng = np.random.default_rng(seed)

    def sample(m: int, k: int, widths: tuple[int, ...], group: int, element: ElementKind, **of: Any) -> Sample:
        operands: dict[str, Any] = {"x": values(rng, (m, k), element, 1.0)}
        pairs = of.pop("pairs", 0)
        biased = of.pop("biased", "")
        layout = of.pop("layout", "tiled")
        for part, n in zip("qkv", widths):
            arrays, _ = weight(rng, layout, k, n, group, **of)
            operands[f"w{part}"] = arrays.pop("codes")
            operands |= {f"{name}_{part}": x for name, x in arrays.items()}
            operands |= {f"bias_{part}": values(rng, (n,), element, 1.0)} if part in biased else {}
        label = f"{element} {m}x{'+'.join(map(str, widths))}x{k} {layout}" + "".join(f" {name}" for name in of)
        options = {"widths": widths, "group_size": group, "layout": layout}
        if pairs:
            operands["inv_freq"] = np.float32(0.5) ** np.arange(pairs, dtype=np.float32)
            options["head_dim"], label = 2 * pairs, f"{label} turned"
        return Sample(label, operands, options)

    yield sample(1, 128, (34, 18, 2), 128, F16)
    yield sample(7, 64, (64, 16, 16), 32, BF16, zeros=True, biased="qkv")
    yield sample(17, 64, (48, 14, 13), 64, F16)
    yield sample(3, 64, (16, 16, 16), 64, F16, order=True, biased="q")
    yield sample(2, 64, (24, 8, 8), 64, BF16, zeros=True, layout="gptq")
    if full:
        for m in (2, 4, 8, 16, 17, 65):
            yield sample(m, 256, (130, 34, 30), 128, (F16, BF16)[m % 2], zeros=True)
    yield sample(3, 64, (16, 8, 6), 64, BF16, pairs=4)
    yield sample(0, 64, (16, 16, 16), 64, F16)

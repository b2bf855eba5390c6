"""Queries, keys and values of the same tokens: three products of reference/int4.py."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ..types import PrecisionGuarantee
from . import int4

__all__ = ["MEASURES", "guarantee", "project"]

Array: TypeAlias = np.ndarray[Any, Any]


def _own(arrays: dict[str, Array], part: str) -> dict[str, Array]:
    """The operands of one of the products, by the product's names."""
    ours = {"x": "x", "codes": f"w{part}"} | {name: f"{name}_{part}" for name in ("scales", "zeros", "order", "bias")}
    return {name: arrays[own] for name, own in ours.items() if own in arrays}


def project(desc: Any, **arrays: Array) -> tuple[Array, ...]:
    """q, k and v, wide."""
    return tuple(int4.matmul(desc.part(part), **_own(arrays, part)) for part in desc.outputs)


def _of_output(measure: Any) -> Any:
    def measured(desc: Any, output: str, **arrays: Array) -> Any:
        return measure(desc.part(output), **_own(arrays, output))

    return measured


MEASURES = {name: _of_output(measure) for name, measure in int4.MEASURES.items()}


def guarantee(desc: Any) -> PrecisionGuarantee:
    return PrecisionGuarantee.by_output(**{part: int4.guarantee(desc.part(part)) for part in desc.outputs})

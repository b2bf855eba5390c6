"""Products on operands in guarded memory: results by the function's name, and refusals, which write nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.types import ElementKind

from ...arena import Slot
from ...gauntlet import readable

__all__ = ["Call", "device_of", "whole"]

Array = np.ndarray[Any, Any]
POSITIONAL = "grad", "a", "b"


def device_of(backend: str) -> Any:
    return "cpu" if backend == "cpu" else None


def whole(*shape: int, kind: ElementKind = bp.F32, seed: int = 0) -> Array:
    """Small integers: every kind holds them, and products and sums of them are exact."""
    return np.random.default_rng(seed + sum(shape)).integers(-3, 4, shape).astype(kind.dtype)


class Call:
    """Operands in guarded memory and a call on them; afterwards, that nothing was written."""

    def __init__(self, backend: str, **operands: Any) -> None:
        self.slots = {n: Slot(x, backend) for n, x in operands.items()}
        self.device = device_of(backend)
        self.op = "matmul_backward" if "grad" in operands else "matmul"

    def __call__(self, op: str = "", **options: Any) -> Any:
        given = {n: s.operand for n, s in self.slots.items()}
        first = [given.pop(n) for n in POSITIONAL if n in given]
        return getattr(bp, op or self.op)(*first, **given, **options, device=self.device)

    def refused(self, error: type[bp.BaracudaError], *words: str, op: str = "", **options: Any) -> None:
        with pytest.raises(error) as caught:
            self(op, **options)
        assert type(caught.value) is error
        readable(caught.value, op or self.op, *words)
        self.unchanged()

    def unchanged(self) -> None:
        for name, slot in self.slots.items():
            assert np.array_equal(slot.image(), slot.initial), f"{name} was written"

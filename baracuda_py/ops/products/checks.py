"""Checks that several variants of matmul make before they accept a problem."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

from ...plan.candidate import OK, Change, Feasibility, no
from ...types import ArchSku, DeviceSpec, ElementKind, MathPrecision
from .gemm import BATCH_RANK, Gemm

__all__ = [
    "MOST_CTAS", "TMA_INDEX_BITS", "WARPGROUP_MATHS", "admitted", "cast", "countable", "extent_limit", "fixed", "launchable",
    "on_hopper", "relaid", "takes_any_m",
]  # fmt: skip

MOST_CTAS = 2**31 - 1  # of a one-dimensional grid
_STEP = 1 << 16  # more than any kernel advances along an axis at once
TMA_INDEX_BITS = 31  # of TMA's coordinates
# What Hopper's warpgroup instructions multiply.
WARPGROUP_MATHS = (MathPrecision.BF16, MathPrecision.F16, MathPrecision.TF32, MathPrecision.FP8, MathPrecision.FP8_FAST)


def fixed(desc: Any, variant: str) -> Feasibility:
    """Whether the descriptor's name leaves `variant` a choice."""
    if desc.variant not in (None, variant):
        return no(f"{desc.op} fixes variant {desc.variant!r}", "use matmul", Change({"name": "matmul"}))
    return OK


def admitted(desc: Any, variant: str, maths: Collection[MathPrecision]) -> Feasibility:
    """Whether a variant that multiplies in `maths` may serve the problem as far as name, precision and batch go."""
    if not (named := fixed(desc, variant)):
        return named
    if desc.precision not in maths:
        reason = f"does not multiply in {desc.precision}"
        other = next((math for math in desc.maths if math in maths), None)
        return no(reason, change=Change({"math": other})) if other else no(reason, *cast(desc))
    if len(desc.gemm.batch) > BATCH_RANK:
        reason = f"{len(desc.gemm.batch)} batch axes that do not merge; kernels walk {BATCH_RANK}"
        return no(reason, *relaid(desc, lambda moved: len(moved.gemm.batch) <= BATCH_RANK))
    return OK


def on_hopper(device: DeviceSpec) -> Feasibility:
    """Whether the device has Hopper's warpgroup instructions."""
    if device.tier is ArchSku.SM90A:
        return OK
    hopper = "ptx:sm_90a" if device.emulated else "sm_90a"
    change = Change(device=DeviceSpec.named(hopper))
    return no("warpgroup instructions exist on sm_90a only", f'device="{hopper}"', change)


def cast(desc: Any) -> tuple[str, Change | None]:
    """A fix for unscaled fp8 operands: a cast to a type that every variant multiplies. Empty for other operands."""
    if desc.a_element.bits != 8 or desc.gemm.scales:
        return "", None
    fresh = {f"{name}_{what}": None for name in ("a", "b") for what in ("strides", "align")}
    return "a cast to f16", Change({"a_element": ElementKind.F16, "b_element": ElementKind.F16, "math": None, **fresh})


def relaid(desc: Any, serves: Callable[[Any], bool]) -> tuple[str, Change | None]:
    """A fix that makes `serves` true: the fewest operands put into C order, or else copied without broadcasting, because batch
    axes that are partly broadcast cannot be merged. Empty where neither helps."""
    for change in (_in_order, _in_full):
        for names in _subsets(desc):
            fields: dict[str, Any] = {}
            for name in names:
                fields |= change(desc, name)
            moved = replace(desc, **fields)
            if serves(moved):
                return " and ".join(_said(name, desc, moved) for name in names), Change(fields)
    return "", None


def _subsets(desc: Any) -> Iterator[tuple[str, ...]]:
    names = [operand.name for operand in desc.operands]
    for count in range(1, len(names) + 1):
        yield from combinations(names, count)


def _in_order(_desc: Any, name: str) -> dict[str, Any]:
    return {f"{name}_strides": None}


def _in_full(desc: Any, name: str) -> dict[str, Any]:
    order, shape = _in_order(desc, name), desc.shape
    if name in ("a", "b"):
        own = desc.layout(name).shape
        if len(own) < 3:  # shared by every product, which is always served
            return order
        vectors = (len(desc.a_shape) == 1) + (len(desc.b_shape) == 1)
        shape = (*shape[: len(shape) - 2 + vectors], *own[-2:])
    return order if name == "out" else order | {f"{name}_shape": shape}


def _said(name: str, desc: Any, moved: Any) -> str:
    if name == "out":
        return "pass out in C order"
    shape = moved.layout(name).shape
    if shape == desc.layout(name).shape:
        return f"contiguize {name}"
    return f"pass contiguize(cupy.broadcast_to({name}, {shape})) for {name}"


def extent_limit(bits: int) -> int:
    """The exclusive limit of an extent: indices of `bits` bits hold it plus the largest step that a kernel takes past the end."""
    return (1 << bits) - _STEP


def takes_any_m(gemm: Gemm) -> bool:
    """Whether wgmma or, over copies, wgmma_padded takes the product whatever the number of rows: the same sums in both."""
    return 0 < gemm.k < extent_limit(TMA_INDEX_BITS)


def countable(gemm: Gemm, bits: int) -> Feasibility:
    """Whether every extent fits indices of `bits` bits."""
    for name, extent in (("M", gemm.m), ("N", gemm.n), ("K", gemm.k), ("the batch", gemm.batches)):
        if extent >= extent_limit(bits):
            return no(f"{name} is {extent}, and the kernel's indices count to 2**{bits} - {_STEP}")
    return OK


def launchable(ctas: int) -> Feasibility:
    """Whether a one-dimensional grid holds so many CTAs."""
    return OK if ctas <= MOST_CTAS else no(f"{ctas} CTAs, and a launch has at most {MOST_CTAS}")

"""Rotary embedding of projected queries and keys: the problem of `rope`, in place, and what it makes of a product's bound."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ....plan.descriptor import Layout
from ....tensor.axes import merge_axes
from ....types import Componentwise, InvalidProblemError, PrecisionGuarantee, UnsupportedError
from ...position.angles import check_factor, terms_of
from ...position.rope import RopeDescriptor

__all__ = ["OF_ANGLES", "check_heads", "rotated", "rotation_of"]

SLACK = 1.01  # of what errors of a product grow by by being rotated and rounded again
OWN = ("positions", "inv_freq", "cos", "sin")
# Fields that mean something beside angles only.
OF_ANGLES: dict[str, Any] = {"head_dim": None, "positions_shape": None, "style": "half", "attention_factor": 1.0}
ROTATED = {"q": "", "k": "k_"}  # ours, and the beginning of its fields' names there


def check_heads(desc: Any) -> None:
    """Raises where the columns of q or k are not whole heads, or results cannot be rotated."""
    if desc.head_dim is None or desc.head_dim < 2:
        raise InvalidProblemError(
            f"{desc.op}: head_dim={desc.head_dim}, and angles were given", "give the columns of a head, such as 128"
        )
    check_factor(desc.op, {"attention_factor": desc.attention_factor})
    for part in ROTATED:
        width = getattr(desc, f"{part}_shape")[-1]
        if width % desc.head_dim:
            raise InvalidProblemError(
                f"{desc.op}: {part} has {width} columns, which are no whole heads of {desc.head_dim}",
                f"give a head_dim that divides {width}",
            )
    if not desc.layout("q").element.is_float:
        raise InvalidProblemError(
            f"{desc.op}: angles were given, and results of {desc.layout('q').element} are not rotated",
            "leave either out",
        )


def _folded(desc: Any, name: str, shape: tuple[int, ...], steps: tuple[int, ...]) -> tuple[int, int]:
    """Strides of leading axes as [batch, tokens]."""
    batch, (outer,) = merge_axes(shape[:-1], [steps[:-1]])
    if len(batch) > 1 and 0 not in batch:
        raise UnsupportedError(
            f"{desc.op}: the leading axes of {name} are not evenly spaced", f"pass {name} in C order"
        )
    return (outer[0] if batch else shape[-1] * steps[-1]), steps[-1]


def _extents(desc: Any) -> tuple[int, int]:
    """Of batch and tokens."""
    lead = desc.x_shape[:-1]
    return math.prod(lead[:-1]), (lead[-1] if lead else 1)


def _heads(desc: Any, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Extents and strides of an output as [batch, tokens, heads, columns]."""
    layout: Layout = desc.layout(name)
    *lead, width = layout.shape
    *steps, column = layout.strides
    outer = _folded(desc, name, tuple(lead), tuple(steps)) if lead else (width * column, width * column)
    return (*_extents(desc), width // desc.head_dim, desc.head_dim), (*outer, desc.head_dim * column, column)


def rotation_of(desc: Any) -> RopeDescriptor:
    """q and k rotated in place, in one launch."""
    given: dict[str, Any] = {name: getattr(desc, name) for name in ("style", "attention_factor")}
    for part, there in ROTATED.items():
        extents, strides = _heads(desc, part)
        own, out = ("shape", "x") if part == "q" else ("k_shape", "k")
        given |= {own: extents, f"{out}_strides": strides, f"{there}out_strides": strides}
        given |= dict.fromkeys((f"{out}_align", f"{there}out_align"), desc.layout(part).align)
    for name in OWN:
        for what in ("shape", "element", "strides", "align"):
            if hasattr(RopeDescriptor, f"{name}_{what}"):
                given[f"{name}_{what}"] = getattr(desc, f"{name}_{what}")
    positions = desc.positions_shape
    if positions is not None and positions == desc.x_shape[:-1] and len(positions) > 1:
        given["positions_shape"] = _extents(desc)
        given["positions_strides"] = _folded(desc, "positions", positions, desc.layout("positions").strides)
    return RopeDescriptor(element=desc.layout("q").element, head_layout="BSHD", **given)


def rotated(desc: Any, product: PrecisionGuarantee) -> PrecisionGuarantee:
    """Of q or k: errors of both members of a pair add up as its angle says, and then come those of the rotation itself."""
    bound = product.bound
    assert isinstance(bound, Componentwise), "results that are turned are floats"
    of_pairs = (replace(t, coefficient=SLACK * t.coefficient, measure=f"rotated_{t.measure}") for t in bound.terms)
    own = (
        t if t.measure == "abs_result" else replace(t, measure=f"rope_{t.measure}")
        for t in terms_of(desc.rotation, "abs_result")
    )
    whole = Componentwise((*of_pairs, *own), bound.source, f"rotated_{bound.outside or 'unbounded'}")
    return replace(product, bound=whole, probable=None)

"""Inside jax.shard_map: the axes of the mesh along which arrays vary. Results vary along all axes along which an operand does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax

__all__ = ["as_varying", "varying_axes"]


def varying_axes(avals: Iterable[Any]) -> frozenset[str]:
    """The axes along which one of some abstract values varies; none outside of jax.shard_map."""
    return frozenset().union(*(getattr(aval, "vma", frozenset()) for aval in avals))


def as_varying(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arrays as varying along the same axes, so that the gradient of one that does not is summed over the devices."""
    avals = [jax.typeof(x) for x in arrays]
    axes = varying_axes(avals)
    missing = [tuple(axes - varying_axes([aval])) for aval in avals]
    return tuple(jax.lax.pcast(x, own, to="varying") if own else x for x, own in zip(arrays, missing))

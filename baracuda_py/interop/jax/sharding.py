"""Inside jax.shard_map: the axes of the mesh along which arrays vary. Results vary along all axes along which an operand does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

__all__ = ["as_varying", "varying_as"]


def _varying_axes(avals: Iterable[Any]) -> frozenset[str]:
    """The axes along which one of some abstract values varies; none outside of jax.shard_map."""
    return frozenset().union(*(_axes(aval) for aval in avals))


def _axes(aval: Any) -> frozenset[str]:
    kind = getattr(aval, "manual_axis_type", None)
    return getattr(aval, "vma", frozenset()) if kind is None else kind.varying


def varying_as(avals: Sequence[Any], rank: int) -> dict[str, Any]:
    """The arguments by which the abstract value of a result of that rank varies as the operands do, in this version of JAX."""
    most = max(avals, key=lambda aval: len(_axes(aval)), default=None)
    if most is None or not _axes(most):
        return {}
    name = "manual_axis_type" if hasattr(most, "manual_axis_type") else "vma"
    sharding = NamedSharding(most.sharding.mesh, PartitionSpec(*(None,) * rank))
    return {"sharding": sharding, name: getattr(most, name)}


def as_varying(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arrays as varying along the same axes, so that the gradient of one that does not is summed over the devices."""
    avals = [jax.typeof(x) for x in arrays]
    axes = _varying_axes(avals)
    missing = [tuple(axes - _varying_axes([aval])) for aval in avals]
    return tuple(jax.lax.pcast(x, own, to="varying") if own else x for x, own in zip(arrays, missing))

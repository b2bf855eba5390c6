"""torch.vmap of the custom ops. Where an op has a free leading axis the batch is put there, and one call does all; other ops are
called once for each element of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...types import OpCategory, UnsupportedError
from .schema import Signature

__all__ = ["batched"]

_ELEMENTWISE = (OpCategory.UNARY_ELEMENTWISE, OpCategory.BINARY_ELEMENTWISE, OpCategory.TERNARY_ELEMENTWISE)


def batched(
    signature: Signature, overload: Callable[[str], Any], name: str, info: Any, in_dims: Sequence[Any], *arguments: Any
) -> tuple[Any, Any]:
    """The result of a call on a batch, and where the batch is in it."""
    if signature.written:
        raise UnsupportedError(
            f"{name}: it writes to {', '.join(signature.written)}, which torch.vmap cannot batch",
            "call it outside torch.vmap, on the whole batch",
        )
    size = info.batch_size
    if not size:  # the layouts of results are those of an element of zeros
        one = (x if d is None else x.new_zeros([1, *x.movedim(d, 0).shape[1:]]) for x, d in zip(arguments, in_dims))
        made, places = batched(
            signature, overload, name, info._replace(batch_size=1), [None if d is None else 0 for d in in_dims], *one
        )
        return (made[:0] if signature.single else [x[:0] for x in made]), places
    if signature.op.plan.category in _ELEMENTWISE:
        made = overload(name)(*_in_front(arguments, in_dims))
        return made, 0
    calls = [
        overload(name)(*(x if d is None else x.select(d, i) for x, d in zip(arguments, in_dims))) for i in range(size)
    ]
    if signature.single:
        return torch.stack(calls), 0
    return [torch.stack(parts) for parts in zip(*calls)], [0] * len(calls[0])


def _in_front(arguments: Sequence[Any], in_dims: Sequence[Any]) -> list[Any]:
    """The operands of an elementwise op with the batch as the first axis, aligned to the others' ranks."""
    ranks = [x.dim() - (d is not None) for x, d in zip(arguments, in_dims) if isinstance(x, torch.Tensor)]
    most = max(ranks)

    def moved(x: Any, d: Any) -> Any:
        if d is None:
            return x
        x = x.movedim(d, 0)
        return x.reshape(x.shape[0], *(1,) * (most - x.dim() + 1), *x.shape[1:])

    return [moved(x, d) for x, d in zip(arguments, in_dims)]

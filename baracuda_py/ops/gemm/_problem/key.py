"""The key under which tuned matmul plans are stored: a text of the problem's structure without M."""

from __future__ import annotations

from typing import Any

from ....plan.descriptor import Layout, ProblemKey
from ....tensor.axes import c_strides

__all__ = ["problem_key"]


def problem_key(desc: Any) -> ProblemKey:
    """The key of a canonical product: ``a=bf16[M,4096]:rows:16 b=... out=...`` and what is asked for besides.

    Unused fields are left out, so a field added later invalidates no record. M and dense strides are spelled as
    words: products that differ in M alone have one text. A vector as `a` has no M.
    """
    ranged = len(desc.a_shape) > 1
    words = [desc.op, desc.precision.value, desc.activation.value]
    for operand in desc.operands:
        words.append(f"{operand.name}={_spelled(operand.name, desc.layout(operand.name), desc, ranged)}")
    return ProblemKey(" ".join(words), desc.a_shape[-2] if ranged else 0, "M")


def _spelled(name: str, x: Layout, desc: Any, ranged: bool) -> str:
    extents = [str(extent) for extent in x.shape]
    # The axis of M, where the operand has it: of out and what broadcasts onto it the one before N, if there is an N.
    axis = -2 if name in ("a", "scale_a") or len(desc.b_shape) > 1 else -1
    if ranged and name not in ("b", "scale_b") and len(x.shape) >= -axis and x.shape[axis] == desc.a_shape[-2]:
        extents[axis] = "M"
    return f"{x.element}[{','.join(extents)}]:{_order(x)}:{x.align}"


def _order(x: Layout) -> str:
    """The memory order: dense rows, dense columns, or the strides."""
    if x.strides == c_strides(x.shape, x.element):
        return "rows"
    if len(x.shape) > 1:
        is_transposed = c_strides((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.element)
        if x.strides == (*is_transposed[:-2], is_transposed[-1], is_transposed[-2]):
            return "columns"
    return ",".join(map(str, x.strides))

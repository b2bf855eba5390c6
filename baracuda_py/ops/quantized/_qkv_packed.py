"""The int4 weights of a projection as a caller gives them: three PackedInt4, or their arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...packed.int4 import PackedInt4
from ...tensor import Tensor
from ...types import InvalidProblemError
from ._int4_weight import arrays_of, extents_of, taken_weight
from ._qkv_weights import PARTS, WEIGHTS

__all__ = ["arrays_of_each", "packing_of"]

OF_EACH = ("N of q", "N of k", "N of v")
PACKED = ("codes", "scales", "zeros", "order")  # of a product with int4 weights


def _called(part: str) -> dict[str, str]:
    """The arrays of one weight, as the projection calls them."""
    return {name: ours for name, ours in WEIGHTS["int4"].operands(part).items() if name in PACKED}


def arrays_of_each(
    op: str, given: Mapping[str, Any], widths: Any, group_size: int | None, layout: Any, *, reads: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays of the three weights by the projection's names, and what describes them: `widths`, `group_size` and `layout`.

    What `reads` says, `arrays_of` does.
    """
    operands: dict[str, Any] = {}
    kinds = []
    for part in PARTS:
        called = _called(part)
        codes, scales, zeros, order = (given.get(called[name]) for name in PACKED)
        own, described_by = arrays_of(
            f"{op}: w{part}", codes, scales, zeros, order, None, group_size, layout, reads=reads
        )
        operands |= {called[name]: x for name, x in own.items()}
        kinds.append({name: described_by[name] for name in ("group_size", "layout")})
    widths = None if widths is None else extents_of(op, "widths", widths, OF_EACH)
    packed = [given.get(f"w{part}") for part in PARTS]
    if all(isinstance(weight, PackedInt4) for weight in packed):
        held = tuple(weight.shape[1] for weight in packed if weight is not None)
        if widths not in (None, held):
            raise InvalidProblemError(f"{op}: widths={widths}, and the weights have {held}", "leave widths out")
        widths = held
    if any(kind != kinds[0] for kind in kinds):
        shown = ", ".join(sorted({f"{kind['layout']} {kind['group_size']}" for kind in kinds}))
        raise InvalidProblemError(
            f"{op}: weights of layouts and groups {shown}", "pack all three alike, or call matmul_int4 three times"
        )
    return operands, {"widths": widths, **kinds[0]}


def packing_of(
    op: str, tensors: Mapping[str, Tensor], widths: tuple[int, ...] | None, group_size: int, layout: Any
) -> dict[str, Any]:
    """The fields of int4 weights, whose arrays must be what the layout has."""
    if not tensors["x"].shape:
        raise InvalidProblemError(f"{op}: x has rank 0", "pass x of shape (..., K)")
    of_k, found = tensors["x"].shape[-1], []
    for i, part in enumerate(PARTS):
        own = {name: tensors[ours] for name, ours in _called(part).items() if ours in tensors}
        if "scales" not in own:
            raise InvalidProblemError(f"{op}: operand 'scales_{part}' is missing", f"pass scales_{part}=...")
        given = None if widths is None else (of_k, widths[i])
        packing, shape = taken_weight(f"{op}: w{part}", own, layout, given, group_size, of_k)
        found.append(shape[1])
    return {"widths": tuple(found), "packing": packing}

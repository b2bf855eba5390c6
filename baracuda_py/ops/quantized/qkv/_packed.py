"""The int4 weights of a projection as a caller gives them: three PackedInt4, or their arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....packed.int4 import Int4Layout, PackedInt4
from ....tensor import Tensor
from ....types import InvalidProblemError
from ..int4.weight import arrays_of, extents_of, taken_weight
from ._weights import PARTS, WEIGHTS

__all__ = ["arrays_of_each", "packing_of"]

OF_EACH = ("N of q", "N of k", "N of v")
PACKED = ("codes", "scales", "zeros", "order")  # of a product with int4 weights

# Of each weight: its arrays as the projection calls them.
CALLED = {
    part: {name: ours for name, ours in WEIGHTS["int4"].operands(part).items() if name in PACKED} for part in PARTS
}


def arrays_of_each(
    op: str, given: Mapping[str, Any], widths: Any, group_size: int | None, layout: Any, *, reads: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays of the three weights by the projection's names, and what describes them: `widths`, `group_size` and `layout`.

    What `reads` says, `arrays_of` does.
    """
    operands: dict[str, Any] = {}
    kinds: list[tuple[Any, int]] = []
    held: dict[str, int] = {}  # columns of those that are packed
    for part, renames in CALLED.items():
        codes, scales, zeros, order = (given.get(renames[name]) for name in PACKED)
        own, described_by = arrays_of(
            f"{op}: w{part}", codes, scales, zeros, order, None, group_size, layout, reads=reads
        )
        operands |= {renames[name]: x for name, x in own.items()}
        kinds.append((described_by["layout"], described_by["group_size"]))
        if isinstance(codes, PackedInt4):
            held[part] = codes.shape[1]
    widths = None if widths is None else extents_of(op, "widths", widths, OF_EACH)
    if widths is None and len(held) == len(PARTS):
        widths = tuple(held.values())
    for i, part in enumerate(PARTS):
        if widths is not None and held.get(part, widths[i]) != widths[i]:
            fix = "leave widths out" if len(held) == len(PARTS) else f"give q, k and v's N, {held[part]} for {part}"
            raise InvalidProblemError(f"{op}: widths={widths}, and w{part} has N={held[part]}", fix)
    if not kinds[0] == kinds[1] == kinds[2]:
        shown = ", ".join(sorted({f"{packing} {size}" for packing, size in kinds}))
        raise InvalidProblemError(
            f"{op}: weights of layouts and groups {shown}", "pack all three alike, or call matmul_int4 three times"
        )
    (layout, group_size), *_ = kinds
    return operands, {"widths": widths, "group_size": group_size, "layout": layout}


def packing_of(
    op: str, tensors: Mapping[str, Tensor], widths: tuple[int, ...] | None, group_size: int, layout: Any
) -> dict[str, Any]:
    """The fields of int4 weights, whose arrays must be what the layout has."""
    if not tensors["x"].shape:
        raise InvalidProblemError(f"{op}: x has rank 0", "pass x of shape (..., K)")
    of_k, found = tensors["x"].shape[-1], []
    for i, (part, renames) in enumerate(CALLED.items()):
        own = {name: tensors[ours] for name, ours in renames.items() if ours in tensors}
        if "scales" not in own:
            raise InvalidProblemError(f"{op}: operand 'scales_{part}' is missing", f"pass scales_{part}=...")
        if widths is None and Int4Layout.of(layout, f"{op}: layout") is Int4Layout.TILED:
            raise InvalidProblemError(
                f"{op}: widths are missing", "pass the N of q, k and v: layout 'tiled' has N filled up"
            )
        given = None if widths is None else (of_k, widths[i])
        packing, shape = taken_weight(f"{op}: w{part}", own, layout, given, group_size, of_k)
        found.append(shape[1])
    return {"widths": tuple(found), "packing": packing}

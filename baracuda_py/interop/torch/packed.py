"""Packed weights among the arguments of a traced call: their arrays and what describes them are arguments of their own, as a
custom op takes them. Dynamo traces this."""

from __future__ import annotations

from typing import Any

from ...packed.gguf import PackedGguf
from ...packed.int4 import PackedInt4
from ...packed.nf4 import PackedNf4
from .schema import Signature

__all__ = ["unpacked"]

_INT4 = ("codes", "scales", "zeros", "order")
_NF4 = ("codes", "absmax", "scales", "offset")
_PARTS = ("q", "k", "v")


def unpacked(signature: Signature, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments with packed weights as the arguments that their arrays have."""
    if not any(isinstance(x, (PackedInt4, PackedNf4, PackedGguf)) for x in given.values()):
        return given
    made = dict(given)
    widths: list[int] = []
    for name, value in given.items():
        if isinstance(value, PackedInt4):
            part = name.removeprefix("w")
            if part in _PARTS:  # one weight of a projection
                places = [name, f"scales_{part}", f"zeros_{part}", f"order_{part}"]
                widths.append(value.shape[1])
            else:
                places = [name, "scales", "zeros", "order"]
                made["shape"] = value.shape
            made.update({place: getattr(value, array) for place, array in zip(places, _INT4)})
            made["group_size"], made["layout"] = value.group_size, value.layout
        elif isinstance(value, PackedNf4):
            made.update({array: getattr(value, array) for array in _NF4})
            made["block_size"] = value.block_size
        elif isinstance(value, PackedGguf):
            made[name] = value.blocks
            if "format" in signature.names:
                made["format"] = value.format
    if len(widths) == len(_PARTS) and made.get("widths") is None:
        made["widths"] = tuple(widths)
    return made

"""ONNX's op types by the functions of this library. Shapes, axes and other small integers of a node are read on the host, as a
compiler reads them; what a node computes of its data is a call."""

from __future__ import annotations

from typing import Any

from . import elementwise as _elementwise
from . import places as _places
from . import rows as _rows
from .cases import Node
from .table import MAPPED

__all__ = ["MAPPED", "run"]

assert _elementwise and _places and _rows  # each fills in its part of the table


def run(op_type: str, node: Node) -> tuple[Any, ...]:
    made = MAPPED[op_type](node, *node.inputs)
    return made if isinstance(made, tuple) else (made,)

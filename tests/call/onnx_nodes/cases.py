"""The cases of an op type as the `onnx` package makes them: attributes, inputs and expected outputs."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Node", "cases_of", "op_types"]

Array: TypeAlias = "np.ndarray[Any, Any]"
PACKAGE = "onnx.backend.test.case.node"
# Modules whose name is not that of the op type in lower case.
MODULES = {"And": "and_", "Not": "not_", "Or": "or_", "Range": "rangeop"}


@dataclass(frozen=True)
class Node:
    """A case: one node. Inputs that it leaves out are None."""

    name: str
    attributes: Mapping[str, Any]
    inputs: Sequence[Any]
    outputs: Sequence[Array]
    wanted: int  # outputs that the node has, with those that it leaves out
    rtol: float
    atol: float

    def get(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)


def op_types() -> set[str]:
    """The op types of ONNX's own domain."""
    defs = importlib.import_module("onnx.defs")
    return {schema.name for schema in defs.get_all_schemas() if not schema.domain}


def cases_of(op_type: str) -> list[Node]:
    """The cases of one node of that op type. The same module makes cases of the node as a function of others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package = importlib.import_module(PACKAGE)
        known = {name.replace("_", ""): name for _, name, _ in pkgutil.iter_modules(package.__path__)}
        importlib.import_module(f"{PACKAGE}.{MODULES.get(op_type) or known[op_type.lower()]}")
    made = (case for case in package._NodeTestCases if len(case.model.graph.node) == 1)
    return [_node(case) for case in made if case.model.graph.node[0].op_type == op_type]


def _node(case: Any) -> Node:
    helper, node = importlib.import_module("onnx.helper"), case.model.graph.node[0]
    attributes = {a.name: _plain(helper.get_attribute_value(a)) for a in node.attribute}
    ((given, outputs),) = case.data_sets
    held = iter(map(_array, given))
    inputs = [next(held) if name else None for name in node.input]
    return Node(case.name, attributes, inputs, tuple(map(_array, outputs)), len(node.output), case.rtol, case.atol)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return _array(value) if hasattr(value, "raw_data") else value


def _array(x: Any) -> Any:
    """A tensor's message as an array."""
    return importlib.import_module("onnx.numpy_helper").to_array(x) if hasattr(x, "raw_data") else x

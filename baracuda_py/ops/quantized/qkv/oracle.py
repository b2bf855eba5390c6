"""Queries, keys and values of the same tokens: three products of the weights' own oracle, then a rotation of position's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from ....types import PrecisionGuarantee
from ...position import oracle as position
from ..int4 import oracle as int4
from ..int8 import oracle as int8

__all__ = ["MEASURES", "guarantee", "project"]

Array: TypeAlias = np.ndarray[Any, Any]
PRODUCTS: dict[str, ModuleType] = {"int8": int8, "int4": int4}
OF_ROPE = {"q": ("x", "out"), "k": ("k", "k_out")}  # what is rotated, and into what
ANGLES = ("positions", "inv_freq", "cos", "sin")
NEARLY = 0.99  # of a type's largest number: what errs may be beyond it


def _own(desc: Any, arrays: Mapping[str, Array], part: str) -> dict[str, Array]:
    """The operands of one of the products, by the product's names."""
    renames = desc.kind.operands(part)
    return {name: arrays[own] for name, own in renames.items() if own in arrays}


def _projected(desc: Any, arrays: Mapping[str, Array], part: str) -> Array:
    """A product, wide."""
    return np.asarray(PRODUCTS[desc.weights].matmul(desc.part(part), **_own(desc, arrays, part)))


def _angles(desc: Any, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The rotation's operands that do not depend on x."""
    held = {name: arrays[name] for name in ANGLES if name in arrays}
    shape = desc.rotation.positions_shape
    return held if shape is None else held | {"positions": held["positions"].reshape(shape)}


def _as_heads(desc: Any, x: Array, part: str) -> Array:
    rotation = desc.rotation
    return x.reshape(rotation.shape if part == "q" else rotation.k_shape)


def project(desc: Any, **arrays: Array) -> tuple[Array, ...]:
    """q, k and v, wide; and the status where there are tables."""
    q, k, v = (_projected(desc, arrays, part) for part in desc.outputs)
    if not desc.rotates:
        return q, k, v
    heads = {"x": _as_heads(desc, q, "q"), "k": _as_heads(desc, k, "k")}
    rotated, rotated_k, *status = position.rope(desc.rotation, **heads, **_angles(desc, arrays))
    return rotated.reshape(q.shape), rotated_k.reshape(k.shape), v, *(one.reshape(desc.tokens) for one in status)


# ---- measures ----------------------------------------------------------------------------------------------------------


def _of_output(name: str) -> Callable[..., Any]:
    def measured(desc: Any, output: str, **arrays: Array) -> Any:
        return PRODUCTS[desc.weights].MEASURES[name](desc.part(output), **_own(desc, arrays, output))

    return measured


def _of_rope(name: str, desc: Any, output: str, arrays: Mapping[str, Array], values: Array) -> Array:
    """A measure of the rotation of `values`, which are in the place of a product."""
    read, written = OF_ROPE[output]
    heads = {read: _as_heads(desc, values, output)}
    return np.asarray(position.MEASURES[name](desc.rotation, output=written, **heads, **_angles(desc, arrays))).reshape(
        values.shape
    )


def _rotated(name: str) -> Callable[..., Any]:
    """A product's measure, of both members of a pair as the angle weighs them."""

    def measured(desc: Any, output: str, **arrays: Array) -> Any:
        wide = _projected(desc, arrays, output)
        own: Any = np.abs(wide)
        if name == "smallest_normal":
            own = desc.layout(output).element.smallest_normal
        elif name != "abs_result":
            own = MEASURES[name](desc, output, **arrays)
        values = np.broadcast_to(np.asarray(own, np.float64), wide.shape)
        pairs = _of_rope("abs_pair", desc, output, arrays, np.ones(wide.shape)) > 0
        return np.where(pairs, _of_rope("abs_products", desc, output, arrays, values), values)

    return measured


def _rope(name: str) -> Callable[..., Any]:
    """A measure of the rotation of what is projected."""

    def measured(desc: Any, output: str, **arrays: Array) -> Any:
        return _of_rope(name, desc, output, arrays, _projected(desc, arrays, output))

    return measured


def _outside(name: str) -> Callable[..., Any]:
    """Whether either member of a pair is outside of the product's bound or beyond the type in which it is rotated, or the pair
    outside of the rotation's bound."""

    def measured(desc: Any, output: str, **arrays: Array) -> Any:
        wide = _projected(desc, arrays, output)
        own = np.abs(wide) > NEARLY * desc.layout(output).element.largest
        own = own | np.asarray(MEASURES[name](desc, output, **arrays), bool) if name else own
        both = _of_rope("abs_pair", desc, output, arrays, own.astype(np.float64)) > 0
        return both | own | _of_rope("unbounded", desc, output, arrays, wide)

    return measured


_NAMES = dict.fromkeys(name for product in PRODUCTS.values() for name in product.MEASURES)
MEASURES: dict[str, Callable[..., Any]] = {name: _of_output(name) for name in _NAMES}
MEASURES |= {f"rope_{name}": _rope(name) for name in ("abs_products", "abs_pair", "smallest_normal")}
MEASURES |= {f"rotated_{name}": _rotated(name) for name in (*_NAMES, "abs_result", "smallest_normal")}
MEASURES |= {f"rotated_{name}": _outside(name) for name in _NAMES if name.startswith("beyond")}
MEASURES["rotated_unbounded"] = _outside("")


def guarantee(desc: Any, part: str) -> PrecisionGuarantee:
    """What the oracle promises of one of the products."""
    promised: PrecisionGuarantee = PRODUCTS[desc.weights].guarantee(desc.part(part))
    return promised

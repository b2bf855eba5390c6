"""The outputs of a call as fake tensors, from the layouts of its descriptor.

A descriptor has whole numbers for sizes. Where sizes are symbols, the problem is described for several values of each, and
every extent of an output that follows one of the inputs' symbolic extents at all of them is that extent. So nothing is
specialised, except extents that follow none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ...plan.descriptor import Descriptor, Layout
from ...tensor.axes import c_strides
from ...tensor.dispatch import describing
from ...tensor.pytorch import dtype_of
from ...types import BaracudaError, UnsupportedError
from .schema import Signature

__all__ = ["Outputs", "describe", "fake_outputs", "outputs_of"]

FACTORS = (2, 3, 5)  # by which a symbol's value is multiplied, to see which extents follow it
UNKNOWN = 256  # the value of a symbol that has none yet


class Outputs(NamedTuple):
    """What a call returns: the names of what it writes, in order, and the layouts of those that it allocates."""

    written: tuple[str, ...]
    layouts: Mapping[str, Layout]


def describe(signature: Signature, given: Mapping[str, Any]) -> Descriptor:
    """The descriptor of a call whose tensors may be on the meta device."""
    token = describing.set(True)
    try:
        return signature.call(given).desc.canonical()  # type: ignore[no-any-return]
    finally:
        describing.reset(token)


def outputs_of(signature: Signature, given: Mapping[str, Any]) -> Outputs:
    """The outputs of a call whose sizes are numbers."""
    if given.get("trim", "trim" in signature.names) and given.get("size") is None:
        raise UnsupportedError(
            f"{signature.name}: the device counts the result's rows, which a traced call cannot wait for",
            "pass trim=False",
        )
    desc = describe(signature, given)
    written = [o for o in desc.operands if o.written and not o.optional]
    made = {o.name: desc.layout(o.name) for o in written if o.role == "out" and given.get(o.name) is None}
    return Outputs(tuple(o.name for o in written), made)


def fake_outputs(signature: Signature, given: Mapping[str, Any]) -> tuple[Outputs, list[Any]]:
    """The outputs of a call with fake tensors, allocated on the device of its first tensor."""
    first = next(x for x in given.values() if isinstance(x, torch.Tensor))
    symbols = _symbols(given.values())
    with _disable_current_modes():
        base = outputs_of(signature, _meta(given, partial(_at, values=symbols)))
        others = list(_at_other_values(signature, given, symbols, base)) if symbols else []
    followed = _Followed(given, symbols, [values for values, _ in others])
    made = []
    for name, layout in base.layouts.items():
        shape = [
            followed.extent(n, [outputs.layouts[name].shape[axis] for _, outputs in others], first)
            for axis, n in enumerate(layout.shape)
        ]
        made.append(_empty(signature.name, name, layout, shape, first.device))
    return base, made


def _empty(op: str, name: str, layout: Layout, shape: list[Any], device: torch.device) -> Any:
    dtype = dtype_of(layout.element)
    if dtype is None or layout.element.packed:
        raise UnsupportedError(
            f"{op}: {name} holds {layout.element}, which torch has no dtype for", "call it outside torch.compile"
        )
    order = sorted(range(len(shape)), key=lambda axis: (-layout.strides[axis], axis))
    dense = c_strides(tuple(layout.shape[axis] for axis in order))
    if tuple(layout.strides[axis] for axis in order) != dense:
        return torch.empty_strided(shape, layout.strides, dtype=dtype, device=device)
    if order == list(range(len(shape))):
        return torch.empty(shape, dtype=dtype, device=device)
    made = torch.empty([shape[axis] for axis in order], dtype=dtype, device=device)
    return made.permute([order.index(axis) for axis in range(len(shape))])


# ---- symbols -----------------------------------------------------------------------------------------------------------


def _numbers(values: Any) -> Iterator[Any]:
    """All sizes, strides and whole numbers among arguments."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield from value.shape
            yield from value.stride()
        elif isinstance(value, (list, tuple)):
            yield from _numbers(value)
        elif isinstance(value, torch.SymInt):
            yield value


def _symbols(values: Any) -> dict[Any, int]:
    """The symbols of sizes and their present values."""
    found: dict[Any, int] = {}
    for n in _numbers(values):
        if not isinstance(n, torch.SymInt):
            continue
        known = getattr(n.node.shape_env, "backed_var_to_val", None)
        known = n.node.shape_env.var_to_val if known is None else known
        for symbol in n.node.expr.free_symbols:
            found[symbol] = int(known.get(symbol, UNKNOWN))
    return found


def _at(n: Any, values: Mapping[Any, int]) -> int:
    return int(n.node.expr.xreplace(dict(values))) if isinstance(n, torch.SymInt) else n


def _meta(given: Mapping[str, Any], number: Callable[[Any], int]) -> dict[str, Any]:
    """The arguments with tensors without memory, and sizes that are numbers. The values of floats do not matter."""

    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            shape, strides = [number(n) for n in value.shape], [number(n) for n in value.stride()]
            return torch.empty_strided(shape, strides, dtype=value.dtype, device="meta")
        if isinstance(value, (list, tuple)):
            return type(value)(plain(x) for x in value)
        if isinstance(value, torch.SymFloat):
            return 1.0
        return number(value) if isinstance(value, torch.SymInt) else value

    return {name: plain(value) for name, value in given.items()}


def _at_other_values(
    signature: Signature, given: Mapping[str, Any], symbols: Mapping[Any, int], base: Outputs
) -> Iterator[tuple[Mapping[Any, int], Outputs]]:
    """The outputs with symbols at other values, as far as the problem is defined there: each symbol alone, those of equal value
    together (the lengths of keys and of values, say, must agree), and all of them."""
    alone = [{symbol} for symbol in symbols]
    equal = [{s for s, n in symbols.items() if n == value} for value in set(symbols.values())]
    groups = {frozenset(group) for group in (*alone, *equal, set(symbols))}
    for group, factor in itertools.product(sorted(groups, key=lambda group: (len(group), str(group))), FACTORS):
        values = {symbol: max(1, n) * factor if symbol in group else n for symbol, n in symbols.items()}
        try:
            outputs = outputs_of(signature, _meta(given, partial(_at, values=values)))
        except BaracudaError:
            continue
        if outputs.written == base.written:
            yield values, outputs


class _Followed:
    """The inputs' symbolic extents, and their values at each description of the problem."""

    def __init__(
        self, given: Mapping[str, Any], symbols: Mapping[Any, int], others: Sequence[Mapping[Any, int]]
    ) -> None:
        shapes = [n for x in given.values() if isinstance(x, torch.Tensor) for n in x.shape]
        plain = [n for x in given.values() for n in (x if isinstance(x, (list, tuple)) else [x])]
        candidates = [n for n in (*shapes, *plain) if isinstance(n, torch.SymInt)]
        self._extents = [(n, _at(n, symbols), [_at(n, values) for values in others]) for n in candidates]
        self._symbols = symbols
        self._varied = all(any(values[symbol] != n for values in others) for symbol, n in symbols.items())

    def extent(self, value: int, values: list[int], first: Any) -> Any:
        """The symbolic extent that an output's extent follows; its number if it follows none."""
        if self._varied and all(other == value for other in values):
            return value
        for n, at, others in self._extents:
            if at == value and others == values and (values or not self._symbols):
                return n
        for (n, at, others), (m, by, more) in itertools.combinations_with_replacement(self._extents, 2):
            if at * by == value and [a * b for a, b in zip(others, more)] == values and values:
                return n * m
        return self._specialised(value)

    def _specialised(self, value: int) -> int:
        """Fixes every symbol at its present value, by guards."""
        for n, _, _ in self._extents:
            int(n)
        return value

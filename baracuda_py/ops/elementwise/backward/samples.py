"""Samples of gradients of elementwise functions: those of the function, its result if that is saved, and a gradient of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ....numerics.rounding import round_to
from ....samples.sample import Sample, strided_like, values
from ....types import ElementKind

__all__ = ["backward"]


def backward(row: Any, *about: Any, **options: Any) -> Iterator[Sample]:
    """The samples, that of one shape and no broadcast first: it reaches every variant."""
    yield from sorted(_backward(row, *about, **options), key=lambda sample: "f32[1023]" not in sample.label)


def _backward(
    row: Any,
    inputs: Mapping[str, str],
    forward: Callable[..., Iterator[Sample]],
    fixed: Any,  # noqa: ARG001
    seed: int = 0,
    *,
    full: bool = False,
) -> Iterator[Sample]:
    """For `row`, the row of the gradient; `inputs` has the function's operand for each of its arguments."""
    rng, had = np.random.default_rng(seed + 7), set[str]()
    for index, sample in enumerate(forward({"kind": row.forward.name}, seed, full=full)):
        given = {**sample.operands, **sample.options}
        named = {argument: given[name] for argument, name in inputs.items() if name in given}
        data = [x for name, x in named.items() if isinstance(x, np.ndarray) and name not in row.forward.of_own_kind]
        kinds = [ElementKind.of(x.dtype) for x in data]
        if not data or any(kind not in row.domain for kind in kinds):
            continue
        if not any(f"grad_{name}" in row.formulas for name, x in named.items() if isinstance(x, np.ndarray)):
            continue  # the gradient is that of a number
        if not full and (sample.label in had or not _tells_more(sample.label, kinds)):
            continue
        had.add(sample.label)
        kind, shape = row.kind_of(kinds), np.broadcast_shapes(*(np.shape(x) for x in named.values()))
        params = {name: given[name] for name in row.params if name in given}
        operands = {name: x for name, x in named.items() if name in row.arguments}
        grad = values(rng, shape, kind)
        like = next((x for x in data if x.shape == shape and x.dtype == grad.dtype), None)
        operands["grad"] = strided_like(grad, like) if like is not None and index % 2 and grad.size else grad
        if row.takes_result:
            operands[row.saved_result] = _result(row.forward, named, params, kind)
        arrays = {name: x for name, x in operands.items() if isinstance(x, np.ndarray)}
        numbers = {name: x for name, x in operands.items() if not isinstance(x, np.ndarray)}
        yield Sample(sample.label, arrays, numbers | params)


def _tells_more(label: str, kinds: list[ElementKind]) -> bool:
    """Whether a sample is of f32, of several kinds, or has values of its own: of other kinds one shape and one layout do."""
    own = label.removeprefix(str(kinds[0]))
    repeated = (own.startswith("[") and "1023" not in own) or own in (" C", " padded", " reversed", " F")
    return kinds[0] is ElementKind.F32 or len(set(kinds)) > 1 or not repeated


def _result(row: Any, named: Mapping[str, Any], params: Mapping[str, float], kind: ElementKind) -> Any:
    """The function's result, rounded to its kind."""
    with np.errstate(all="ignore"):
        wide = [np.asarray(x).astype(np.float64) for x in named.values()]
        return round_to(np.asarray(row.oracle(*wide, **params)), kind)

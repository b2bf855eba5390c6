"""The example of an op: a program that calls its public function on one of its small samples."""

from __future__ import annotations

import inspect
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plan.registry import Op
from ...samples.sample import Packed, Sample
from ...types import BaracudaError, ElementKind

__all__ = ["Example", "example_of"]

SAMPLES = 160  # an op's first samples, among which the example is chosen
LITERALS = 40  # integers that an example writes out, because their values matter: positions, lengths, tables
LARGE = 10_000  # integers from here on are codes, and random ones do as well
LEAST = 8  # elements of an example's operands, where a sample has as many
WIDTH = 110  # columns of a line


@dataclass(frozen=True)
class Example:
    """A program, and the results that it makes: their names, shapes and kinds."""

    text: str
    results: tuple[tuple[str, tuple[int, ...], ElementKind], ...]


def example_of(op: Op) -> Example | None:
    """The example of an op; None if none of its samples is an array program of a few lines."""
    found = [sample for sample in itertools.islice(op.samples(op.fixed), SAMPLES) if _suits(op, sample)]
    return _written(op, min(found, key=_rank)) if found else None


def _rank(sample: Sample) -> tuple[bool, bool, int, int, int]:
    """The order of preference: more than a few elements first, 32-bit floats, then rows and columns, few options, few bytes."""
    arrays = list(sample.operands.values())
    single = any(x.dtype == np.float32 for x in arrays)
    return (
        sum(x.size for x in arrays) < LEAST,
        not single,
        abs(max(x.ndim for x in arrays) - 2),
        len(sample.options),
        sum(x.size * x.dtype.itemsize for x in arrays),
    )


def _suits(op: Op, sample: Sample) -> bool:
    arrays = list(sample.operands.values())
    if any(isinstance(x, Packed) or not isinstance(x, np.ndarray) or x.size == 0 for x in arrays):
        return False
    if any(_literal(x) is None for x in sample.options.values()):
        return False
    return _status(op, sample) is None or "status" in inspect.signature(op.function).parameters


def _status(op: Op, sample: Sample) -> tuple[int, ...] | None:
    """The shape of the call's status, if it has one. On the host, a call that sets a status that it was not given raises."""
    desc = _described(op, sample)
    found = [operand for operand in desc.operands if operand.name == "status" and operand.written]
    return desc.layout("status").shape if found else None


def _described(op: Op, sample: Sample) -> Any:
    return op.of_sample(dict(sample.operands), sample.options)


def _literal(value: Any) -> str | None:
    """The value as it is written in Python; None if it is an array or another object."""
    if isinstance(value, (tuple, list)):
        parts = [_literal(part) for part in value]
        return None if None in parts else f"({', '.join(map(str, parts))}{',' * (len(parts) == 1)})"
    if isinstance(value, str):
        return json.dumps(value)
    if value is None or isinstance(value, (bool, int, float)):
        finite = not isinstance(value, float) or math.isfinite(value)
        return repr(value) if finite else None
    return None


def _array(x: np.ndarray[Any, Any]) -> str:
    """An expression that makes an array of the same shape and type: with the same values for a few integers, else random."""
    kind = x.dtype.kind
    if not x.shape:
        return f"np.asarray({x.item()!r}, {_dtype(x)})"
    if kind in "iu" and x.size <= LITERALS and x.ndim <= 2 and np.abs(x.astype(np.float64)).max() < LARGE:
        return f"np.array({x.tolist()}, {_dtype(x)})"
    if kind == "b":
        return f"rng.integers(0, 2, {x.shape}).astype(bool)"
    if kind in "iu":
        low, high = int(x.min()), int(x.max())
        return f"rng.integers({low}, {high}, {x.shape}, {_dtype(x)}, endpoint=True)"
    if kind == "c":
        return f"rng.standard_normal({x.shape}).astype({_dtype(x)})"
    drawn = f"rng.standard_normal({x.shape})"
    positive = bool((x.astype(np.float64) > 0).all())
    return f"{f'np.abs({drawn})' if positive else drawn}.astype({_dtype(x)})"


def _assigned(name: str, x: np.ndarray[Any, Any]) -> str:
    """The line that makes the array; several, a row each, where it is long."""
    line = f"{name} = {_array(x)}"
    if len(line) <= WIDTH or x.ndim != 2:
        return line
    rows = "\n".join(f"        {row}," for row in x.tolist())
    return f"{name} = np.array(\n    [\n{rows}\n    ],\n    {_dtype(x)},\n)"


def _dtype(x: np.ndarray[Any, Any]) -> str:
    name = x.dtype.name
    return f'"{name}"' if x.dtype.kind in "iufcb" else f"ml_dtypes.{name}"


def _call(op: Op, sample: Sample) -> Iterator[str]:
    """The arguments of the call, in the order of the function's parameters."""
    for parameter in inspect.signature(op.function).parameters.values():
        name = op.arguments.get(parameter.name, parameter.name)
        if name in sample.operands or (name == "status" and _status(op, sample) is not None):
            said = _identifier(name)
        elif name in sample.options:
            said = str(_literal(sample.options[name]))
        else:
            continue
        yield said if parameter.kind is parameter.POSITIONAL_ONLY else f"{parameter.name}={said}"


def _identifier(name: str) -> str:
    return f"{name}_" if name in ("bp", "np", "rng") else name


def _written(op: Op, sample: Sample) -> Example:
    arrays: Mapping[str, np.ndarray[Any, Any]] = sample.operands
    made = [_assigned(_identifier(name), x) for name, x in arrays.items()]
    if (shape := _status(op, sample)) is not None and "status" not in arrays:
        made.append(f'status = np.empty({shape}, "int32")')
    arguments = [*_call(op, sample), 'device="ptx"']
    call = f"result = bp.{op.name}({', '.join(arguments)})"
    if len(call) > WIDTH:
        call = "\n".join([f"result = bp.{op.name}(", *(f"    {argument}," for argument in arguments), ")"])
    body = "\n".join([*made, call])
    lines = ["import numpy as np", "", "import baracuda_py as bp", ""]
    if "ml_dtypes." in body:
        lines.insert(0, "import ml_dtypes")
    if "rng." in body:
        lines.append("rng = np.random.default_rng(0)")
    return Example("\n".join([*lines, body, ""]), tuple(_results(op, sample)))


def _results(op: Op, sample: Sample) -> Iterator[tuple[str, tuple[int, ...], ElementKind]]:
    """The results of the call: its outputs, and the operands that are updated in place."""
    try:
        desc = _described(op, sample).canonical()
    except BaracudaError:
        return
    for operand in desc.operands:
        if operand.written and not operand.optional:
            layout = desc.layout(operand.name)
            yield operand.name, layout.shape, layout.element

"""Samples of the registry as arguments that a traced call of JAX can have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from baracuda_py.interop.jax.call import signature_of
from baracuda_py.interop.signature import Signature
from baracuda_py.plan.registry import get_op
from baracuda_py.types import BaracudaError

__all__ = ["calls_of", "copied"]

LARGEST = 20_000  # bytes of an operand
SEEN = 60  # samples of an op that are looked at


def calls_of(name: str, most: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """Arguments of the op's function in C order, and what the reference gives."""
    signature, op = signature_of(name), get_op(name)
    renamed = {operand: argument for argument, operand in op.arguments.items()}
    found = 0
    for sample in islice(op.samples(op.fixed), SEEN):
        given = {renamed.get(n, n): x for n, x in {**sample.operands, **sample.options}.items()}
        given = {n: np.ascontiguousarray(x) if isinstance(x, np.ndarray) and x.ndim else x for n, x in given.items()}
        if name == "kv_append":
            given["positions"] = given["positions"] % 5  # every sample has one that is out of range
        if name == "nonzero":
            given["trim"] = False
        if found < most and _is_expressible(signature, given) and (wanted := _reference(signature, given)) is not None:
            found += 1
            yield given, wanted


def _is_expressible(signature: Signature, given: Mapping[str, Any]) -> bool:
    held = [x for x in given.values() if isinstance(x, np.ndarray)]
    return (
        set(given) <= set(signature.names)
        and all((x.nbytes <= LARGEST and x.dtype.kind != "V") or x.dtype.itemsize <= 2 for x in held)
        and not any(given.get(n) is not None for n in (*signature.given_outputs, "status"))
        and all(isinstance(given.get(n), np.ndarray) for n in signature.required)
        and not any(type(x).__name__ == "GpuBuffer" for x in given.values())
    )


def _reference(signature: Signature, given: Mapping[str, Any]) -> Any:
    """The function's result on the host; None for a sample that it refuses, or whose results JAX has no dtype for."""
    try:
        made = signature.call({**copied(signature, given), "device": "cpu"})
    except BaracudaError:
        return None
    results = made if isinstance(made, tuple) else (made,)
    return results if all(isinstance(x, np.ndarray) for x in results) else None


def copied(signature: Signature, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with copies of what the call writes."""
    return {n: x.copy() if n in signature.written and isinstance(x, np.ndarray) else x for n, x in given.items()}

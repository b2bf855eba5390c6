"""Samples of the registry as torch tensors, and the arguments of custom ops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch

from baracuda_py.interop.torch.schema import Signature, signature_of
from baracuda_py.plan.registry import get_op
from baracuda_py.tensor.pytorch import dtype_of
from baracuda_py.types import BaracudaError, ElementKind

__all__ = ["calls_of", "differentiable_calls_of", "tensor"]

LARGEST = 200_000  # bytes of an operand
POSITIVE = ("sqrt", "rsqrt", "log", "pow", "xlogy")  # ops that give NaN below zero
SKIPS_NAN = "nan"  # how the names of ops begin whose samples hold NaN, and whose results need not
SEEN = 60  # samples of an op that are looked at


def tensor(x: Any) -> Any:
    """The array as a tensor over the same memory; None if torch has no such array."""
    if not isinstance(x, np.ndarray):
        return x
    try:
        dtype = dtype_of(ElementKind.of(x.dtype))
        if dtype is None or any(stride < 0 for stride in x.strides):
            return None
        if not x.flags.writeable:
            x = x.copy(order="K")
        if x.dtype.isbuiltin == 1:
            return torch.from_numpy(x)
        return torch.from_numpy(x.view(f"u{x.itemsize}")).view(dtype)
    except (TypeError, ValueError, BaracudaError):
        return None


def calls_of(name: str, most: int) -> Iterator[dict[str, Any]]:
    """Arguments of the op's function, of samples that a custom op can express: small, finite, without positions out of range."""
    signature, op = signature_of(name), get_op(name)
    renamed = {operand: argument for argument, operand in op.arguments.items()}
    found = 0
    for sample in islice(op.samples(op.fixed), SEEN):
        arrays = {renamed.get(n, n): x for n, x in {**sample.operands, **sample.options}.items()}
        given = {n: tensor(x) for n, x in arrays.items()}
        if name == "kv_append" and isinstance(given["positions"], torch.Tensor):
            given["positions"] = given["positions"] % 5  # every sample has one that is out of range
        if name in POSITIVE:
            given = {n: x.abs() if isinstance(x, torch.Tensor) else x for n, x in given.items()}
        if found < most and _is_expressible(signature, arrays, given):
            found += 1
            yield given if name != "nonzero" else {**given, "trim": False}


def differentiable_calls_of(name: str, most: int) -> Iterator[dict[str, Any]]:
    """Those that have a gradient: of floats."""
    op = get_op(name)
    assert op.gradient is not None
    passed = (*op.gradient.gradients, *op.gradient.unchanged)
    operands = {op.arguments.get(n, n): n for n in passed} | {n: n for n in passed}

    def has_gradient(given: Mapping[str, Any]) -> bool:
        floats = [x for n, x in given.items() if op.arguments.get(n, n) in operands and isinstance(x, torch.Tensor)]
        return any(x.is_floating_point() for x in floats)

    return islice((given for given in calls_of(name, SEEN) if has_gradient(given)), most)


def _is_expressible(signature: Signature, arrays: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    held = [x for x in arrays.values() if isinstance(x, np.ndarray)]
    return (
        set(given) <= set(signature.names)
        and all(x.nbytes <= LARGEST and (_is_finite(x) or signature.name.startswith(SKIPS_NAN)) for x in held)
        and all(given[n] is not None or x is None for n, x in arrays.items())
        and all(isinstance(given.get(n), torch.Tensor) for n in signature.required)
        and _runs(signature, given)
    )


def _is_finite(x: Any) -> bool:
    return x.dtype.kind in "iub" or bool(np.isfinite(x if x.dtype.kind == "c" else x.astype(np.float64)).all())


def _runs(signature: Signature, given: Mapping[str, Any]) -> bool:
    """Whether the reference takes the sample and gives no NaN: some hold positions out of range, which the host refuses."""
    copies = {n: x.clone() if n in signature.written else x for n, x in given.items()}
    try:
        made = signature.call({**copies, "device": "cpu"})
    except BaracudaError:
        return False
    results = [x for x in (made if isinstance(made, tuple) else (made,)) if isinstance(x, torch.Tensor)]
    return signature.name == "nonzero" or not any(bool(x.to(torch.float64).isnan().any()) for x in results)

"""Keeps torch.compile from tracing this library: a call in a compiled function is a graph break."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

__all__ = ["untraced"]

P = ParamSpec("P")
R = TypeVar("R")


def untraced(function: Callable[P, R]) -> Callable[P, R]:
    """A wrapper of `function` that TorchDynamo does not trace into.

    Dynamo would trace a call down to addresses and driver calls, and replace NumPy by torch. It is looked up among the loaded
    modules and never imported.
    """
    made: list[Callable[P, R]] = []

    @wraps(function)
    def call_untraced(*args: P.args, **kwargs: P.kwargs) -> R:
        if "torch._dynamo" not in sys.modules or "torch" not in sys.modules:
            return function(*args, **kwargs)
        if not made:
            made.append(_outside_dynamo(function))
        return made[0](*args, **kwargs)

    return call_untraced


def _outside_dynamo(function: Any) -> Any:
    return sys.modules["torch"].compiler.disable(function)

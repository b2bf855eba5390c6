"""Keeping torch.compile out: a call in a compiled function is a graph break, not a trace through this library's Python."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

__all__ = ["untraced"]

P = ParamSpec("P")
R = TypeVar("R")


def untraced(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which runs as it is written even where TorchDynamo traces its caller.

    Dynamo would follow a call down to addresses and drivers, and turn the NumPy that it meets into torch. It is found where
    a program has loaded it, and never imported.
    """
    made: list[Callable[P, R]] = []

    @wraps(function)
    def call_untraced(*args: P.args, **kwargs: P.kwargs) -> R:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if not made:
            made.append(_outside_dynamo(function))
        return made[0](*args, **kwargs)

    return call_untraced


def _outside_dynamo(function: Any) -> Any:
    return sys.modules["torch"].compiler.disable(function)

"""Which OpInfo of PyTorch's own tests is which op here, how its samples are calls of the op, and which samples are none.

A row's `call` takes what torch's function takes. It raises `NotOurs` with the reason for a sample that has no such call;
`refuses` names, with the reason, what the op's function must refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["KINDS", "NotOurs", "Row", "taking"]

# What every op refuses of whole numbers and of bool, if it has no kernel for them: the error names a kind that it has one for.
KINDS = "is not supported: cast it"


class NotOurs(Exception):
    """A sample that is no call of the op."""


@dataclass(frozen=True)
class Row:
    """`info` is the OpInfo's name and, after a colon, its variant."""

    info: str
    call: Callable[..., Any]
    refuses: Mapping[str, str] = field(default_factory=dict)  # by what the error's text has, the reason
    rounds: bool = False  # whether numbers are rounded to the arrays' kind, as NumPy does and torch does not
    # rtol and atol of gradients, of several float32 operations each, beside those in float64.
    gradient: tuple[float, float] = (1e-4, 1e-5)
    leading: int | None = None  # how many of the leading operands have a gradient; None: every one


def taking(ours: Callable[..., Any], drop: tuple[str, ...] = ()) -> Callable[..., Any]:
    """A call with the same arguments. One in `drop`, which the op does not have, makes the sample none of ours."""

    def call(*args: Any, **kwargs: Any) -> Any:
        for name in drop:
            if kwargs.get(name) is not None:
                raise NotOurs(f"{name} is no argument of the op")
        return ours(*args, **{name: x for name, x in kwargs.items() if name not in drop})

    return call

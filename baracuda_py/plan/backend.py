"""What runs an emulated plan's steps on the host: two protocols, and the backend that implements them.

A layer above registers a function that makes the backend; it is called when a plan first needs it. So `plan` names no backend.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from ..runtime.steps import Step
from ..tensor import Tensor
from ..types import UnsupportedError

__all__ = ["Backend", "Program", "backend", "register"]


class Program(Protocol):
    """The steps of one plan, ready to run."""

    def run(
        self, tensors: Mapping[str, Tensor], written: Collection[str], values: Mapping[str, Any], workspace: int,
        *, accesses: bool = False, flops: float = 0.0, nbytes: float = 0.0,
    ) -> Any:  # fmt: skip
        """Runs the steps on the host memory of the operands (by name), and returns a report. `values` are the run-time values,
        `workspace` the bytes of scratch. With `accesses` the report counts memory transactions; `flops` and `nbytes` are the
        predicted cost, by which a backend may refuse."""


class Backend(Protocol):
    """Makes programs of plans' steps."""

    def program(self, op: str, steps: Sequence[Step], operands: Sequence[str], arch: str) -> Program:
        """A program of `steps`, whose operands have the names `operands`, with kernels of `arch`."""


_made: dict[str, Backend] = {}
_makers: dict[str, Callable[[], Backend]] = {}
PTX = "ptx"


def register(make: Callable[[], Backend]) -> None:
    """Makes `make` the source of the backend of emulated plans, instead of the one before."""
    _makers[PTX] = make
    _made.pop(PTX, None)


def backend(op: str) -> Backend:
    """The backend of emulated plans; UnsupportedError, for a plan of `op`, where none is registered."""
    if PTX not in _made:
        if PTX not in _makers:
            raise UnsupportedError(
                f"{op}: no backend is registered that runs emulated plans", "choose device='cpu', or run it on a GPU"
            )
        _made[PTX] = _makers[PTX]()
    return _made[PTX]

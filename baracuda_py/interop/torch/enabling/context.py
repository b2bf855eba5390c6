"""`enable`: this library's kernels in a block of code, under torch functions that it names.

A TorchFunctionMode sees every call of torch's Python functions in its thread, in whatever module they were imported, and methods
of tensors. torch.compile traces it. It costs each such call about a microsecond, those of other functions and of attributes
such as `x.shape` among them; `install` costs other calls nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch._subclasses.fake_tensor import is_fake
from torch.overrides import TorchFunctionMode

from ....types import BaracudaError, CompileError, DriverError, InternalError
from .report import Passed, Report
from .rules import rules_of

__all__ = ["Enabled", "enable", "serve_eagerly"]

FAULTS = (CompileError, DriverError, InternalError)  # errors that are no refusal of an operand


def enable(*names: str) -> Enabled:
    """Makes torch's functions run this library's kernels inside ``with enable("rms_norm", "attention"):``, in this thread.

    Names: rms_norm, layer_norm, softmax, log_softmax, silu, gelu, linear, matmul, attention (scaled_dot_product_attention). A
    call that the op does not take is passed on to torch. The object that is returned has a `report` of all calls, with the
    reason of each that was passed on. Raises InvalidProblemError for an unknown name.
    """
    return Enabled(names)


class Enabled:
    """A context manager that may be entered again, and from several threads. `report` counts the calls of all of them."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.report = Report()
        self._served: dict[Any, tuple[str, Callable[..., Any]]] = {
            function: (rule.name, serve) for rule in rules_of(names) for function, serve in rule.functions.items()
        }
        self._modes: list[Any] = []

    def __enter__(self) -> Self:
        mode = _Mode(self._served, self.report)
        mode.__enter__()
        self._modes.append(mode)
        return self

    def __exit__(self, *error: Any) -> None:
        self._modes.pop().__exit__(*error)

    def __repr__(self) -> str:
        return f"enable({', '.join(map(repr, self.names))})\n{self.report}"


class _Mode(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    def __init__(self, served: dict[Any, tuple[str, Callable[..., Any]]], report: Report) -> None:
        super().__init__()
        self._served, self._report = served, report

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        known = self._served.get(func)
        if known is None:
            return func(*args, **kwargs)
        if torch.compiler.is_dynamo_compiling():
            return _trace(self._report, known[0], known[1], func, args, kwargs)
        return serve_eagerly(self._report, known[0], known[1], lambda: func(*args, **kwargs), args, kwargs)


def serve_eagerly(
    report: Report, name: str, serve: Callable[..., Any], otherwise: Callable[[], Any], args: Any, kwargs: Any
) -> Any:
    """The result of a call: this library's, or torch's own where the op refuses the operands."""
    try:
        result = serve(*args, **kwargs)
    except Passed as passed:
        reason = str(passed)
    except FAULTS:
        raise
    except (BaracudaError, TypeError) as refused:  # TypeError: parameters that the rule does not have
        reason = str(refused)
    else:
        (report.count_traced if is_fake(result) else report.count_served)(name)
        return result
    report.count_passed(name, reason)
    return otherwise()


# ---- traces --------------------------------------------------------------------------------------------------------------


def _trace(report: Report, name: str, serve: Callable[..., Any], func: Any, args: Any, kwargs: Any) -> Any:
    """The same while Dynamo traces: only `Passed` falls to torch, because a refusal of the op is an error of the trace."""
    try:
        result = serve(*args, **kwargs)
    except Passed:
        _note_passed(report, name)
        return func(*args, **kwargs)
    _note_traced(report, name)
    return result


def _note_passed(report: Report, name: str) -> None:
    report.count_passed(name, "while it was traced")


def _note_traced(report: Report, name: str) -> None:
    report.count_traced(name)


for _note in (_note_passed, _note_traced):
    _note._dynamo_marked_constant = True  # type: ignore[attr-defined]  # Dynamo carries it out while it traces

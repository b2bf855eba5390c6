"""The errors that the library raises, all subclasses of :class:`BaracudaError`.

A message names the op, the operand, the expected and the given value, and a fix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = [
    "BaracudaError",
    "BufferTooSmallError",
    "CompileError",
    "DeviceMismatchError",
    "DriverError",
    "InternalError",
    "InvalidProblemError",
    "MisalignedOperandError",
    "OperandTypeError",
    "OutOfPagesError",
    "OverlapError",
    "Renamed",
    "UnsupportedError",
    "WorkspaceTooSmallError",
]

MAX_SHOWN_CHARS = 120


class BaracudaError(Exception):
    """Base of the library's errors: `reason` says what is wrong, `fix` how to fix it."""

    def __init__(self, reason: str, fix: str = "") -> None:
        self.args = (f"{reason}: {fix}" if fix else reason,)  # TorchDynamo cannot trace a call of Exception.__init__
        self.reason = reason
        self.fix = fix

    def __reduce__(self) -> tuple[Any, ...]:
        state = {k: v for k, v in self.__dict__.items() if k not in ("reason", "fix")}
        return _restore, (type(self), self.reason, self.fix, state)


def _restore(kind: type[BaracudaError], reason: str, fix: str, state: dict[str, Any]) -> BaracudaError:
    error = kind.__new__(kind)
    BaracudaError.__init__(error, reason, fix)
    error.__dict__.update(state)
    return error


class InvalidProblemError(BaracudaError, ValueError):
    """A shape, rank, stride or range is wrong, or an operand is missing or unknown."""


class OperandTypeError(BaracudaError, TypeError):
    """A dtype is wrong, an output is read-only, or a host array was passed to a GPU plan (or the reverse)."""


class MisalignedOperandError(BaracudaError, ValueError):
    """An operand's address is less aligned than the selected kernel needs."""


class DeviceMismatchError(BaracudaError, ValueError):
    """Operands are on different devices, or on a device that the plan was not selected for."""


class OverlapError(BaracudaError, ValueError):
    """A written operand shares bytes with another operand, or with itself."""


class _SizeError(BaracudaError, ValueError):
    def __init__(self, reason: str, needed: int, got: int, fix: str = "") -> None:
        super().__init__(reason, fix)
        self.needed = needed
        self.got = got


class BufferTooSmallError(_SizeError):
    """A buffer holds fewer bytes (`got`) than its shape and strides reach (`needed`)."""


class WorkspaceTooSmallError(_SizeError):
    """`workspace=` holds fewer bytes (`got`) than the plan's `workspace_size` (`needed`)."""


class OutOfPagesError(BaracudaError, RuntimeError):
    """A paged cache has too few pages: `needed` more are required, `free` are free, and `evictable` are held only by cached
    prefixes. Nothing was changed."""

    def __init__(self, reason: str, needed: int, free: int, evictable: int, fix: str = "") -> None:
        super().__init__(reason, fix)
        self.needed = needed
        self.free = free
        self.evictable = evictable


class UnsupportedError(BaracudaError, NotImplementedError):
    """The library cannot do this: an unknown arch or variant, a preference that no candidate satisfies, a missing library."""


class CompileError(BaracudaError, RuntimeError):
    """A kernel did not compile; `log` holds the compiler's whole output."""

    def __init__(self, reason: str, log: str = "", fix: str = "") -> None:
        super().__init__(reason, fix)
        self.log = log


class DriverError(BaracudaError, RuntimeError):
    """A call of the CUDA driver or runtime failed; `code` and `name` are CUDA's."""

    def __init__(self, reason: str, code: int = -1, name: str = "", fix: str = "") -> None:
        super().__init__(reason, fix)
        self.code = code
        self.name = name


class InternalError(BaracudaError, RuntimeError):
    """A defect of baracuda_py, whatever was passed. Nothing was launched."""


def shown(value: Any) -> str:
    """`value` as text for messages: its repr, shortened; only the type for arrays and objects with the default repr."""
    kind = type(value)
    try:
        array = hasattr(kind, "__dlpack__") or hasattr(kind, "__cuda_array_interface__")
        text = "" if array else repr(value)  # printing an array may synchronise
    except Exception:
        text = ""
    if not text or " at 0x" in text:
        return f"an object of type {kind.__name__}"
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 3]}..."


class Renamed:
    """A context in which errors of the function `inner` become errors of `outer`, whose words are `reworded`."""

    def __init__(self, inner: str, outer: str, reworded: Callable[[str], str] = str) -> None:
        self.inner, self.outer, self.reworded = inner, outer, reworded

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if not isinstance(error, BaracudaError) or not error.reason.startswith(f"{self.inner}: "):
            return
        error.reason = f"{self.outer}: {self.reworded(error.reason.removeprefix(f'{self.inner}: '))}"
        error.fix = self.reworded(error.fix)
        error.args = (f"{error.reason}: {error.fix}" if error.fix else error.reason,)

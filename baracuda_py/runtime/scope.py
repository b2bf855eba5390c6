"""What applies to the calls of a context: a device, a preference, and what answers the calls in place of a launch.

A thread without a scope of its own has that of the process, which `set_device` and the variable BARACUDA_DEVICE set.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, ContextDecorator
from contextvars import ContextVar, Token
from typing import Any, NamedTuple, Protocol, TypedDict, Unpack

from ..types import DeviceSpec, PlanPreference, UnsupportedError

__all__ = [
    "UNSCOPED",
    "VARIABLE",
    "PendingCall",
    "Recording",
    "Scope",
    "current",
    "default_device",
    "is_recording",
    "preference",
    "process",
    "recordings",
    "replaced",
    "scoped_preference",
]

VARIABLE = "BARACUDA_DEVICE"


class PendingCall(NamedTuple):
    """A described call, before anything is selected or launched. `operands` has the operands and the run-time values that were
    given; `preference` and `device` are those that hold for the call."""

    plan: Any
    desc: Any
    operands: dict[str, Any]
    stream: Any
    preference: PlanPreference | None
    device: DeviceSpec


class Recording(Protocol):
    """What keeps the calls of a context for replays. It launches them as well, and returns their results."""

    def run(self, selection: Any, operands: dict[str, Any], workspace: Any, stream: Any) -> Any:
        """A call of ``plan.run``."""

    def launch(self, bound: Any, stream: Any) -> Any:
        """A call of a bound plan."""


class Scope(NamedTuple):
    """What a context says about the calls in it. `intercept` answers a call of a function in place of a launch; `recording`
    answers those of plans, too."""

    device: Any = None
    preference: PlanPreference | None = None
    intercept: Callable[[PendingCall], Any] | None = None
    recording: Recording | None = None

    def applied(self, pref: Any, device: Any) -> tuple[Any, Any]:
        """The preference and the device of a call that was given these."""
        if device is None:
            device = self.device if self.device is not None else process.read().device
        return (self.preference if pref is None else merged(self.preference, pref)), device


UNSCOPED = Scope()
_UNREAD = Scope()  # the process's scope before the environment was read


class _Process:
    """The scope of threads and contexts that have none of their own."""

    def __init__(self) -> None:
        self.scope = _UNREAD
        self._environment = ""

    def read(self) -> Scope:
        """The process's scope; the environment is read at the first use."""
        if self.scope is _UNREAD:
            named = self._environment = os.environ.get(VARIABLE, "").strip()
            self.scope = Scope(f"cuda:{named}" if named.isdecimal() else named) if named else UNSCOPED
        return self.scope

    def is_environment(self, device: Any) -> bool:
        """Whether `device` is what the environment says."""
        return bool(self._environment) and device is self.read().device

    def set(self, device: Any) -> None:
        self._environment = ""
        self.scope = UNSCOPED if device is None else Scope(device)

    def forget(self) -> None:
        """Has the environment read again."""
        self.scope = _UNREAD


process = _Process()
_scopes: ContextVar[Scope] = ContextVar("baracuda_scope")
_entered: ContextVar[tuple[Token[Scope], ...]] = ContextVar("baracuda_entered", default=())  # what ends each open scope
# The scope of this context, else the argument. A method of the variable itself, because every call of a function needs it.
current = _scopes.get
# The recordings in progress in any context, so that a call of a plan looks for its own only while there is one.
recordings: list[Recording] = []


def default_device() -> Any:
    """The device that ``device=None`` means: that of the innermost ``with bp.device(...)``, else the process's, else None (the
    current CUDA device)."""
    return current(UNSCOPED).applied(None, None)[1]


def scoped_preference(pref: Any) -> Any:
    """The preference of a selection that was given `pref`, in this context."""
    return current(UNSCOPED).applied(pref, "")[0]


def is_recording() -> bool:
    """Whether the calls of this context are recorded."""
    return current(UNSCOPED).recording is not None


class _Changed(ContextDecorator, AbstractContextManager[None]):
    """A context with another scope. It may be entered again, inside itself and in other threads as well."""

    def __init__(self, change: Callable[[Scope], Scope]) -> None:
        self._change = change

    def __enter__(self) -> None:
        token = _scopes.set(self._change(current(UNSCOPED)))
        _entered.set((*_entered.get(), token))

    def __exit__(self, *error: object) -> None:
        *outer, token = _entered.get()
        _entered.set(tuple(outer))
        _scopes.reset(token)


def replaced(**fields: Any) -> AbstractContextManager[None]:
    """A context whose scope has other fields."""
    return _Changed(lambda scope: scope._replace(**fields))


# ---- preferences ----------------------------------------------------------------------------------------------------------


class _Scoped(TypedDict, total=False):
    """The preferences that a context can set: requirements on results and memory, which every op can be asked for."""

    deterministic: bool
    bit_stable: bool
    batch_invariant: bool
    exact_weights: bool
    max_workspace_bytes: int | None


def preference(**wanted: Unpack[_Scoped]) -> AbstractContextManager[None]:
    """A context in which every function and every ``Plan.select`` has these preferences.

    >>> with bp.preference(batch_invariant=True):  # doctest: +SKIP
    ...     y = bp.matmul(x, w)

    What the call itself says (``pref=``) wins over the context, field by field, and an inner context over an outer one. It
    holds for the current thread (or asyncio task) only. `backend`, `variant` and `math` name kernels of single ops, so they are
    given to a call.
    """
    known = _Scoped.__annotations__
    for name in wanted:
        if name not in known:
            raise UnsupportedError(
                f"preference({name}=...) is not a preference of a whole context; those are {', '.join(known)}",
                f"pass pref=PlanPreference({name}=...) to the calls that need it"
                if name in PlanPreference.__dataclass_fields__
                else "",
            )
    own = PlanPreference(**wanted)
    return _Changed(lambda scope: scope._replace(preference=merged(scope.preference, own)))


def merged(outer: PlanPreference | None, own: Any) -> Any:
    """`own`, with the fields of `outer` that it was not given. What is no preference stays as it is, to be refused."""
    if outer is None or not isinstance(own, PlanPreference) or outer.given <= own.given:
        return own
    fields = {name: getattr(outer, name) for name in outer.given} | {name: getattr(own, name) for name in own.given}
    return PlanPreference(**fields)

"""``bp.matmul.plan(...)``, ``.of(...)``, ``.bind(...)``: what a call of a public function would select, without a launch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NoReturn

from ...runtime.scope import PendingCall, default_device, replaced
from ...types import InternalError

__all__ = ["answer_about"]

ANY_GPU = "sm_90a"  # where a descriptor is asked for without a device: what it says of arrays is the same for every GPU


class _Described(BaseException):
    """Carries a described call out of the function that made it, past what the function does with a result."""

    def __init__(self, call: PendingCall) -> None:
        self.call = call


def _stop(call: PendingCall) -> NoReturn:
    raise _Described(call)


def _described(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> PendingCall:
    """The first call that the function makes for these arguments."""
    with replaced(intercept=_stop, recording=None):
        try:
            function(*args, **kwargs)
        except _Described as found:
            return found.call
    raise InternalError(f"{function.__name__} made no call", "this is a defect of the library: please report it")


def answer_about(function: Callable[..., Any]) -> None:
    """Gives the public function of an op its `of`, `plan` and `bind`, which take the same arguments."""

    def of(*args: Any, **kwargs: Any) -> Any:
        """The descriptor of such a call: the problem that these arguments state. Needs no GPU, and reads no element."""
        with nullcontext() if default_device() is not None else replaced(device=ANY_GPU):
            return _described(function, args, kwargs).desc

    def plan(*args: Any, **kwargs: Any) -> Any:
        """The plan that such a call would run, with `pref` and `device` as the call would have them. Nothing is compiled,
        allocated or launched."""
        call = _described(function, args, kwargs)
        return call.plan.select(call.desc, call.preference, device=call.device)

    def bind(*args: Any, **kwargs: Any) -> Any:
        """Such a call, bound: compiled, loaded, validated and packed once, with its outputs allocated; calling the result only
        launches it."""
        call = _described(function, args, kwargs)
        return call.plan.select(call.desc, call.preference, device=call.device).bind(**call.operands)

    for asked in (of, plan, bind):
        asked.__wrapped__ = function  # type: ignore[attr-defined]  # its signature
        asked.__qualname__ = f"{function.__name__}.{asked.__name__}"
        setattr(function, asked.__name__, asked)

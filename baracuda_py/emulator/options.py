"""Options of a plan for ``device="ptx"``: the order of threads and copies, the checks, and the size limits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal, TypeAlias, get_args

from ..types import InvalidProblemError, UnsupportedError
from ..types.errors import shown
from ..types.keeping import complete

__all__ = ["PATIENCE", "Copies", "Options", "Order", "current_options", "emulation"]

Order: TypeAlias = Literal["lockstep", "random"]
Copies: TypeAlias = Literal["late", "early", "random"]
SEEDS = 1 << 64
PATIENCE = 120.0  # the longest estimated duration of a run without `force`, in seconds
MEMORY = 256 << 20  # the most bytes of operands and scratch that are copied without `force`
FLOPS, BYTES = 5e7, 5e7  # per second: rough estimates, rather too low


@dataclass(frozen=True)
class Options:
    """How the emulator runs. Raises InvalidProblemError for an unknown value.

    `order` is ``"lockstep"`` (every thread takes each step together while no branch divides them) or ``"random"``: one warp
    at a time, drawn by `seed`. Asynchronous copies arrive as `copies` says: as ``"late"`` or as ``"early"`` as they may, or at
    a ``"random"`` moment, drawn by `seed` too. Without `checks` races and uninitialised values are not detected; bounds are
    always checked. `force` runs a problem that would take minutes.
    """

    order: Order = "lockstep"
    seed: int = 0
    copies: Copies = "late"
    checks: bool = True
    force: bool = False

    def __post_init__(self) -> None:
        for name, known in (("order", get_args(Order)), ("copies", get_args(Copies))):
            if type(getattr(self, name)) is not str or getattr(self, name) not in known:
                raise self._refused(name, f"give one of {', '.join(map(repr, known))}")
        seed: Any = self.seed
        if type(seed) is bool or not isinstance(seed, Integral) or not 0 <= int(seed) < SEEDS:
            raise self._refused("seed", f"give an int from 0 to {SEEDS - 1}")
        complete(self, seed=int(seed))
        for name in ("checks", "force"):
            if type(getattr(self, name)) is not bool:
                raise self._refused(name, "give True or False")

    def refuse_large(self, op: str, held: int, flops: float, nbytes: float) -> None:
        """UnsupportedError, unless forced, if a problem of that many operations and bytes of traffic would take minutes, or if
        its operands and scratch span more memory (`held` bytes) than the limit."""
        seconds = flops / FLOPS + nbytes / BYTES
        if not self.force and (seconds > PATIENCE or held > MEMORY):
            copied = f" and copy the {held >> 20} MiB that its operands and scratch span" if held > MEMORY else ""
            raise UnsupportedError(
                f"{op}: emulating this problem would take about {max(seconds, 1):.0f} s{copied}",
                "take a smaller one, or say that it is meant: with bp.emulation(force=True), run --force",
            )

    def _refused(self, name: str, fix: str) -> InvalidProblemError:
        return InvalidProblemError(f"emulation: {name}={shown(getattr(self, name))}", fix)


DEFAULTS = Options()
_current: ContextVar[Options] = ContextVar("baracuda_emulation", default=DEFAULTS)


def current_options() -> Options:
    """The options of the innermost ``with bp.emulation(...)``, else the defaults."""
    return _current.get()


@contextlib.contextmanager
def emulation(
    *,
    order: Order | None = None,
    seed: int | None = None,
    copies: Copies | None = None,
    checks: bool | None = None,
    force: bool | None = None,
) -> Iterator[Options]:
    """``with bp.emulation(order="random", seed=3):`` sets how plans for ``device="ptx"`` run in this context.

    Options that are not given are inherited from the enclosing context, or have the defaults of :class:`Options`: lockstep,
    seed 0, late copies, checks. InvalidProblemError for a value that an option may not have.
    """
    named: dict[str, Any] = {"order": order, "seed": seed, "copies": copies, "checks": checks, "force": force}
    token = _current.set(replace(_current.get(), **{name: x for name, x in named.items() if x is not None}))
    try:
        yield _current.get()
    finally:
        _current.reset(token)

"""A stand-in for the emulator's engine, which notes what it is made of and given: for tests of everything around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from baracuda_py.call.cache import plan_cache
from baracuda_py.emulator.options import Options, current_options
from baracuda_py.plan import backend
from baracuda_py.runtime.steps import Step

__all__ = ["Engine", "Ran", "stand_in"]


@dataclass
class Ran:
    """What a run was given; the values of its operands as they were."""

    tensors: dict[str, Any]
    arrays: dict[str, Any]
    written: set[str]
    values: dict[str, Any]
    workspace: int
    options: Options
    accesses: bool


@dataclass
class Reported:
    text: str
    lines: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text


@dataclass
class Program:
    engine: Engine

    def run(
        self,
        tensors: Any,
        written: Any,
        values: Any,
        workspace: int,
        *,
        accesses: bool = False,
        flops: float = 0.0,
        nbytes: float = 0.0,
    ) -> Reported:
        return self.engine.run(dict(tensors), set(written), dict(values), workspace, current_options(), accesses)


class Engine:
    """A backend of emulated plans: puts what `effect` makes of the arrays (by default 7) into what is written. Raises `error`
    where one is set."""

    def __init__(self) -> None:
        self.programs: list[tuple[Any, ...]] = []
        self.ran: list[Ran] = []
        self.error: Exception | None = None
        self.effect: Callable[[dict[str, Any]], Any] = lambda _arrays: 7
        self.lines: dict[str, int] = {}

    def program(self, op: str, steps: Sequence[Step], operands: Sequence[str], arch: str) -> Program:
        self.programs.append((op, tuple(steps), tuple(operands), arch))
        return Program(self)

    def run(self, tensors: dict[str, Any], written: set[str], *rest: Any) -> Reported:
        arrays = {name: t.array() for name, t in tensors.items() if not t.element.packed}
        self.ran.append(Ran(tensors, {name: np.array(x) for name, x in arrays.items()}, written, *rest))
        if self.error is not None:
            raise self.error
        for name in written & arrays.keys():
            arrays[name][...] = self.effect(arrays)
        return Reported(f"report {len(self.ran)}", self.lines)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The stand-in in the engine's place, for the life of a fixture."""
    engine = Engine()
    monkeypatch.setitem(backend._made, backend.PTX, engine)
    plan_cache.clear()
    yield engine
    plan_cache.clear()

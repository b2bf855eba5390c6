"""The implementation of `plan.run`: operand layouts are validated on their first call and launched without checks on later
calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..plan.selection import Selection
from ..runtime.scope import UNSCOPED, current, recordings
from ..tensor.pytorch import note_written
from .host import run_on_host
from .operands.key import detect_frameworks, read
from .paths.ready import MISSED, Ready
from .paths.resolve import resolve

__all__ = ["Caller"]

MAX_READY_LAYOUTS = 256  # operand layouts that a caller keeps


class Caller:
    """Runs one selection; thread-safe."""

    __slots__ = ("_names", "_on_host", "_ready", "_selection", "_unmoved", "_values")

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._on_host = selection.device.host_memory
        self._names, self._values = selection.names, selection.values
        # Displacements and launch values where a call gives no run-time values.
        self._unmoved: tuple[tuple[int, ...], Mapping[str, Any]] = ((), {})
        if not self._on_host:
            self._unmoved = selection.desc.resolve({})
        self._ready: dict[Any, Ready] = {}

    def __call__(self, operands: dict[str, Any], workspace: Any, stream: Any) -> Any:
        """Validates new layouts, launches, and returns the result."""
        if recordings and (recording := current(UNSCOPED).recording) is not None:
            return recording.run(self._selection, operands, workspace, stream)
        if self._on_host:
            return run_on_host(self._selection, operands)
        moved = 0
        shifts, values = self._unmoved
        if len(operands) != len(self._names):  # run-time values may be among them
            for name in self._values:
                moved += name in operands
            if moved:
                shifts, values = self._selection.desc.resolve(operands)
        key: list[Any] = []
        pointers: list[int] = []
        ordinal = read(map(operands.get, self._names), shifts, key, pointers)
        if ordinal is not None and workspace is None:
            ready = self._ready.get(tuple(key))
            if ready is not None and ready.operand_count == len(operands) - moved:  # so every name is an operand
                result = ready.launch(operands, pointers, values, stream, ordinal)
                if result is not MISSED:
                    return result
        return self._checked(operands, workspace, stream)

    def _checked(self, operands: dict[str, Any], workspace: Any, stream: Any) -> Any:
        """The long path, with every check. Its recipe is kept for the next call with these layouts."""
        detect_frameworks()
        selection = self._selection
        ready = resolve(selection, operands, workspace, stream)
        result = selection.result(ready.launch())
        note_written(map(operands.get, selection.written))
        given = {name: operands.get(name) for name in self._names}
        key: list[Any] = []
        if read(given.values(), selection.desc.resolve(operands)[0], key, []) is not None:
            while len(self._ready) >= MAX_READY_LAYOUTS:
                self._ready.pop(next(iter(self._ready)), None)
            self._ready[tuple(key)] = Ready(selection, ready.recipe, given, ready.made)
        return result

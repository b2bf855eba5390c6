"""Errors of a function that another one calls, said of that one and of its arguments."""

from __future__ import annotations

from collections.abc import Callable

from ..types import BaracudaError

__all__ = ["Renamed"]


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

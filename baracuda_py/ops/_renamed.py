"""Errors of a function that another one calls, said of that one and of its arguments."""

from __future__ import annotations

from collections.abc import Mapping

from ..types import BaracudaError

__all__ = ["Renamed"]


class Renamed:
    """A context in which errors of the function `inner` become errors of `outer`; `texts` are replaced in them by others."""

    def __init__(self, inner: str, outer: str, texts: Mapping[str, str] | None = None) -> None:
        self.inner, self.outer, self.texts = inner, outer, texts or {}

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if not isinstance(error, BaracudaError) or not error.reason.startswith(f"{self.inner}: "):
            return
        reason, fix = f"{self.outer}: {error.reason.removeprefix(f'{self.inner}: ')}", error.fix
        for text, own in self.texts.items():
            reason, fix = reason.replace(text, own), fix.replace(text, own)
        error.reason, error.fix = reason, fix
        error.args = (f"{reason}: {fix}" if fix else reason,)

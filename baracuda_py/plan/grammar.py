"""How configurations are written and parsed: ``128x256 cluster=2 stages=4 ping_pong transposed``.

A configuration is a frozen dataclass whose fields are made by `term`. It prints as text and is parsed from it:
extents of a tile come first, joined by ``x``; then ``name=value``, where the value is not the default; then the names of flags
that are set. A tuple of numbers is joined by ``x``, one of names by ``+``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any, Self, dataclass_transform, get_type_hints

from ..types import InvalidProblemError

__all__ = ["Config", "glossary", "term"]


def term(words: str, *, default: Any = MISSING, leads: bool = False, hidden: bool = False) -> Any:
    """A field of a configuration. `words` are its explanation in the glossary. A field that `leads` is an extent of the tile; a
    `hidden` field follows from the problem and is not printed."""
    metadata = {"words": words, "leads": leads, "hidden": hidden}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, field_specifiers=(term,))
class Config:
    """Base of configurations: subclasses are frozen dataclasses whose text is their identity."""

    def __str__(self) -> str:
        values = [(f, getattr(self, f.name)) for f in _spelled(type(self))]
        lead = "x".join(str(value) for f, value in values if f.metadata["leads"])
        rest = [(f, value) for f, value in values if not f.metadata["leads"] and value != f.default]
        named = [f"{f.name}={_text(value)}" for f, value in rest if value is not True]
        return " ".join([*([lead] if lead else []), *named, *(f.name for f, value in rest if value is True)])

    @classmethod
    def parse(cls, text: str, **hidden: Any) -> Self:
        """The configuration that prints as `text`; `hidden` has the fields that are not printed. Raises InvalidProblemError if
        no configuration of this class prints so."""
        known = {f.name: f for f in _spelled(cls)}
        hints = get_type_hints(cls)
        leads = [name for name, f in known.items() if f.metadata["leads"]]
        values: dict[str, Any] = {}
        try:
            words = text.split(" ") if text else []
            if leads:
                values |= dict(zip(leads, map(int, words.pop(0).split("x")), strict=True))
            for word in words:
                name, equals, value = word.partition("=")
                values[known[name].name] = _value(value, hints[name]) if equals else True
            found = cls(**values, **hidden)
        except (KeyError, ValueError, TypeError, IndexError):
            found = None
        if found is None or str(found) != text:
            raise InvalidProblemError(
                f"{text!r:.80} spells no configuration of {cls.__name__}",
                f"extents first, then of {', '.join(n for n in known if n not in leads)}",
            )
        return found


def _spelled(kind: type[Any]) -> list[dataclasses.Field[Any]]:
    return [f for f in fields(kind) if not f.metadata["hidden"]]


def _text(value: Any) -> str:
    if not isinstance(value, tuple):
        return str(value)
    return ("x" if all(isinstance(v, int) for v in value) else "+").join(map(str, value))


def _value(text: str, hint: Any) -> Any:
    if hint is int:
        return int(text)
    if hint is str:
        return text
    if hint == tuple[int, int]:
        return tuple(map(int, re.fullmatch(r"(\d+)x(\d+)", text).groups()))  # type: ignore[union-attr]
    if hint == tuple[str, ...]:
        return tuple(text.split("+"))
    raise TypeError(hint)


def _kinds(kind: type[Any]) -> Iterator[type[Any]]:
    for below in kind.__subclasses__():
        yield below
        yield from _kinds(below)


def glossary() -> str:
    """All terms of the ops' configurations with their explanations, one per line."""
    from .registry import all_ops  # imported here, because families import this module

    all_ops()  # loads them
    said: dict[str, list[str]] = {}
    for kind in _kinds(Config):
        for f in _spelled(kind):
            words = said.setdefault("MxN..." if f.metadata["leads"] else f.name, [])
            if f.metadata["words"] not in words:
                words.append(f.metadata["words"])
    width = max(map(len, said), default=0)
    return "\n".join(f"{name.ljust(width)}  {'; '.join(words)}" for name, words in sorted(said.items()))

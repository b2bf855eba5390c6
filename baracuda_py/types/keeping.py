"""Frozen dataclasses: fields that `__post_init__` completes, and hashes of many fields, computed once per instance."""

from __future__ import annotations

import enum
from dataclasses import fields
from typing import Any, TypeVar

__all__ = ["cached_hash", "complete", "said_fields"]

C = TypeVar("C", bound=type)
_HASH = "_hash"


def complete(made: Any, **fields: Any) -> None:
    """Sets fields of a frozen dataclass that is being made: in its `__post_init__`, or of a copy without another reference."""
    made.__dict__.update(fields)


def said_fields(made: Any) -> str:
    """A dataclass as the call that makes it, in one line, without the fields at their defaults."""
    held = ((f.name, getattr(made, f.name), f.default) for f in fields(made))
    named = (
        f"{name}={(x.value if isinstance(x, enum.Enum) else x)!r}"
        for name, x, default in held
        if x is not default and x != default
    )
    return f"{type(made).__name__}({', '.join(named)})"


def cached_hash(cls: C) -> C:
    """Makes instances of a frozen dataclass cache their hash. The hash is not pickled or copied, because strings hash
    differently in another process."""
    known: Any = cls
    fresh, names = known.__hash__, tuple(field.name for field in fields(known))

    def kept(self: Any) -> int:
        held = self.__dict__
        found: int | None = held.get(_HASH)
        if found is None:
            found = held[_HASH] = fresh(self)
        return found

    def state(self: Any) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in names}

    known.__hash__, known.__getstate__ = kept, state
    return cls

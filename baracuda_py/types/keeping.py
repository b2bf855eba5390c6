"""Hashes of frozen dataclasses with many fields, computed once per instance."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

__all__ = ["cached_hash"]

C = TypeVar("C", bound=type)
_HASH = "_hash"


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

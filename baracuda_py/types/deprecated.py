"""Old names of public fields, which keep working for one release with a DeprecationWarning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

__all__ = ["renamed_fields"]

C = TypeVar("C", bound=type)


def renamed_fields(**names: str) -> Callable[[C], C]:
    """Makes a dataclass accept old names of its fields: `names` maps each old name to the new one.

    An old name works as a keyword argument and as an attribute, and warns. Passing both names is a TypeError.
    """

    def decorate(cls: C) -> C:
        known: Any = cls
        construct = known.__init__

        @wraps(construct)
        def construct_renamed(self: Any, *args: Any, **given: Any) -> None:
            for old in names.keys() & given.keys():
                new = names[old]
                if new in given:
                    raise TypeError(
                        f"{cls.__name__}: {old}= is the old name of {new}=, and both were given: pass {new}="
                    )
                _warn(cls, old, new)
                given[new] = given.pop(old)
            construct(self, *args, **given)

        known.__init__ = construct_renamed
        for old, new in names.items():
            setattr(known, old, property(_reader(cls, old, new)))
        return cls

    return decorate


def _reader(cls: type, old: str, new: str) -> Callable[[Any], Any]:
    def read(self: Any) -> Any:
        _warn(cls, old, new)
        return getattr(self, new)

    return read


def _warn(cls: type, old: str, new: str) -> None:
    warnings.warn(f"{cls.__name__}.{old} is now called {new}", DeprecationWarning, stacklevel=3)

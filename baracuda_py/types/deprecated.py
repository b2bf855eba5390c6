"""Old names of public fields, arguments, variants and configurations, which keep working for one release with a
DeprecationWarning."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

__all__ = ["present_config", "present_variant", "renamed_arguments", "renamed_fields"]

# Variants, and words of configurations, by their old names.
_VARIANTS = {"anywhere": "unaligned", "quantised": "quantized", "dequantised": "dequantized"}
_TERMS = _VARIANTS | {"apart": "specialized", "quantise": "quantize", "dequantise": "dequantize"}
_TERM = re.compile(rf"\b(?:{'|'.join(_TERMS)})\b")

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])


def renamed_fields(**names: str) -> Callable[[C], C]:
    """Makes a dataclass accept old names of its fields: `names` maps each old name to the new one.

    An old name works as a keyword argument and as an attribute, and warns. Passing both names is a TypeError.
    """

    def decorate(cls: C) -> C:
        known: Any = cls
        construct = known.__init__

        @wraps(construct)
        def construct_renamed(self: Any, *args: Any, **given: Any) -> None:
            _rename(cls, names, given)
            construct(self, *args, **given)

        known.__init__ = construct_renamed
        for old, new in names.items():
            setattr(known, old, property(_reader(cls, old, new)))
        return cls

    return decorate


def renamed_arguments(**names: str) -> Callable[[F], F]:
    """Makes a function accept old names of its arguments: `names` maps each old name to the new one."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            _rename(function, names, given)
            return function(*args, **given)

        return cast(F, call)

    return decorate


def present_variant(owner: str, name: str) -> str:
    """The present name of a variant; `owner` is named in the warning about an old one."""
    if name not in _VARIANTS:
        return name
    new = _VARIANTS[name]
    warnings.warn(f"{owner}: the variant {name} is now called {new}", DeprecationWarning, stacklevel=4)
    return new


def present_config(text: str) -> str:
    """A configuration's text with the present names of its terms."""
    return _TERM.sub(lambda found: _TERMS[found[0]], text)


def _rename(owner: Any, names: Mapping[str, str], given: dict[str, Any]) -> None:
    """Moves what was given by old names to the new ones."""
    for old in names.keys() & given.keys():
        new = names[old]
        if new in given:
            raise TypeError(f"{owner.__qualname__}: {old}= is the old name of {new}=, and both were given: pass {new}=")
        _warn(owner, old, new)
        given[new] = given.pop(old)


def _reader(cls: type, old: str, new: str) -> Callable[[Any], Any]:
    def read(self: Any) -> Any:
        _warn(cls, old, new, stacklevel=3)
        return getattr(self, new)

    return read


def _warn(owner: Any, old: str, new: str, *, stacklevel: int = 4) -> None:
    warnings.warn(f"{owner.__qualname__}: {old} is now called {new}", DeprecationWarning, stacklevel=stacklevel)

"""Problems whose gradient is refused, of ops that have one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["has_none"]

REDUCED = {"scatter": ("prod", "mean", "max", "min")}


def has_none(name: str, given: Mapping[str, Any]) -> bool:
    """Whether the problem of these arguments has no gradient."""
    return given.get("reduce") in REDUCED.get(name, ())

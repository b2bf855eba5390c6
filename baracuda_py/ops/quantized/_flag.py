"""Options that are True or False."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...types import InvalidProblemError
from ...types.errors import shown

__all__ = ["flag"]


def flag(value: Any, what: str) -> bool:
    """A bool, NumPy's among them; InvalidProblemError for anything else."""
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidProblemError(f"{what}={shown(value)} is neither True nor False", "give one of them")
    return bool(value)

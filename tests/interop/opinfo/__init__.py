"""PyTorch's own samples of its functions (OpInfo) as calls of ours: a row for each op that torch has."""

from . import numbers, training
from .row import KINDS, NotOurs, Row

__all__ = ["KINDS", "ROWS", "WITHOUT", "NotOurs", "Row"]

ROWS: dict[str, Row] = {**numbers.ROWS, **training.ROWS}
WITHOUT: dict[str, str] = {**numbers.WITHOUT, **training.WITHOUT}

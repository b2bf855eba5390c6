"""What lines that are picked, or reduced in order, take of the memory's bandwidth."""

from __future__ import annotations

from .._fitted import Fitted

__all__ = ["LineCosts"]


class LineCosts(Fitted, table="rows.take_along_axis"):
    bandwidth_efficiency: float

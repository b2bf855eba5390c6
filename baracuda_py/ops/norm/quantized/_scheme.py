"""What quantized norms and gates have in common: scales of rows or of groups, configurations, the guarantee."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ....types import Componentwise, ElementKind, InvalidProblemError, PrecisionGuarantee, Term, Ulp
from ....types.vocabulary import MathPrecision
from ..._rows import RowConfig, Rows, row_configs

__all__ = ["FLOATS", "SCHEMES", "CodedRows", "coded_configs", "guarantee", "is_whole"]

F32 = ElementKind.F32
FLOATS = (ElementKind.F16, ElementKind.BF16, F32)
SCHEMES = ("row", "group")
GROUP_SIZES = (32, 64, 128)
SOURCE = "the bound of the values; a code differs only where the value divided by its scale lies that near to a tie"


class CodedRows:
    """The scales' part of a descriptor: `per` is "row" (one scale for what is normalised together) or "group" (one for
    `group_size` adjacent elements along the last axis)."""

    name: str
    per: str
    group_size: int | None
    row_shape: Any
    length: Any

    @property
    def codes_element(self) -> ElementKind:
        return ElementKind.FP8_E4M3 if self.name.endswith("_fp8") else ElementKind.I8

    @property
    def code_type(self) -> str:
        """The C++ type of a code."""
        return "e4m3" if self.codes_element is ElementKind.FP8_E4M3 else "i8"

    @property
    def group(self) -> int:
        """Columns that share a scale; 0 for whole rows."""
        return self.group_size or 0

    @property
    def scales_shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.row_shape
        return (*shape, self.length // max(1, self.group)) if self.per == "group" else shape

    def check_scheme(self, rank: int) -> None:
        """Raises InvalidProblemError for scales that these rows of `rank` axes cannot have."""
        if (self.group_size is not None) != (self.per == "group"):
            fix = "give group_size=128" if self.per == "group" else 'leave it out, or give per="group"'
            raise InvalidProblemError(f"{self.name}: per={self.per!r} and group_size={self.group_size}", fix)
        if self.per == "row":
            return
        if self.group not in GROUP_SIZES:
            raise InvalidProblemError(f"{self.name}: group_size={self.group_size}", f"give one of {GROUP_SIZES}")
        if rank != 1:
            raise InvalidProblemError(
                f'{self.name}: per="group", and rows of {rank} axes', "normalise along the last axis alone"
            )
        if self.length % self.group:
            raise InvalidProblemError(
                f"{self.name}: group_size={self.group} does not divide rows of {self.length}",
                f"pad rows to {-(-self.length // self.group) * self.group}",
            )


def is_whole(desc: Any, rows: Rows) -> bool:
    """Whether columns are accessed by whole vectors."""
    return not desc.group or rows.vector(desc.element) == rows.widest(desc.element)


def coded_configs(desc: Any, rows: Rows, inputs: int) -> Iterable[RowConfig]:
    """As for any row; a group's columns are held by adjacent lanes of one warp."""
    if not desc.group:
        yield from row_configs(rows.length, rows.vector(desc.element), desc.element, inputs, streams=512)
        return
    vector = rows.widest(desc.element)
    least = desc.group // vector
    for config in row_configs(rows.length, vector, desc.element, inputs, streams=512):
        if config.lanes >= least:
            yield config
        else:
            yield replace(config, lanes=least, items=max(1, -(-rows.length // (vector * least))))


def guarantee(desc: Any) -> PrecisionGuarantee:
    """Codes are those of the exact values except near ties, scales within the values' error."""

    def promised(bound: Componentwise | Ulp) -> PrecisionGuarantee:
        return PrecisionGuarantee.fixed_order(MathPrecision.F32, F32, bound)

    parts = {
        "codes": promised(Componentwise((Term(1.0, F32, "code_error"),), SOURCE, "undetermined")),
        "scales": promised(Componentwise((Term(1.0, F32, "scale_error"),), SOURCE, "undetermined")),
        "residual_out": promised(Ulp(0.5)),
    }
    return PrecisionGuarantee.by_output(**{o.name: parts[o.name] for o in desc.operands if o.written})

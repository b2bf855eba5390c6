"""What norms and their gradients have in common: the table of norms, rows along the last axes, operands that may be absent."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ...plan.descriptor import Descriptor, integers
from ...types import ElementKind, InvalidProblemError, OperandTypeError
from ...types.errors import shown
from ...types.keeping import complete
from .._function import CallArgs
from .._rows import Rows, computed_in, rows_of

__all__ = ["TABLE", "Normed", "Part", "Parted", "asked", "described_by", "probes"]


@dataclass(frozen=True)
class Row:
    """One norm: whether the mean is taken away, and what it says of itself."""

    name: str
    centered: bool
    formula: str


TABLE = {row.name: row for row in (
    Row("rms_norm", False, "x / sqrt(mean(x**2) + eps) * weight"),
    Row("layer_norm", True, "(x - mean(x)) / sqrt(var(x) + eps) * weight + bias"),
)}  # fmt: skip
NEEDS = {"residual_out": "residual", "grad_weight": "weight"}


class Part(NamedTuple):
    """What an operand that may be absent holds, and whether it is there: True: always, False: never, None: as asked."""

    kind: ElementKind
    there: bool | None = None


class Parted(Descriptor):
    """A problem with operands that may be absent, of floats."""

    element: ElementKind
    suffix: ClassVar[str] = ""  # of the ops' names
    flagged: ClassVar[tuple[str, ...]] = ()  # the operands that a kernel's WITH has bits for

    def parts(self) -> Mapping[str, Part]:
        """The operands that may be absent."""
        raise NotImplementedError

    def complete_parts(self) -> None:
        """Fills in the kinds of operands that are always there."""
        for name, part in self.parts().items():
            if part.there and self.kind(name) is None:
                complete(self, **{f"{name}_element": part.kind})

    @classmethod
    def refuse_half(cls, op: str, given: Collection[str]) -> None:
        """Raises where one of the outputs mean and rstd is given alone: a call has both, or neither."""
        pair = [name for name in ("mean", "rstd") if name in cls.slot_of and cls.slot_of[name].role == "out"]
        if len(pair) == 2 and len(missing := [name for name in pair if name not in given]) == 1:
            there = next(name for name in pair if name in given)
            raise InvalidProblemError(
                f"{op}: {there} is given without {missing[0]}", f"pass {missing[0]} too, or stats=True, which makes it"
            )

    @property
    def computed(self) -> ElementKind:
        return computed_in(self.element).element

    @property
    def flags(self) -> int:
        """The kernels' WITH."""
        return sum(1 << i for i, name in enumerate(self.flagged) if self.has(name))

    def kind(self, name: str) -> ElementKind | None:
        """What an optional operand holds; None where there is none."""
        held: ElementKind | None = getattr(self, f"{name}_element")
        return held

    def check(self) -> None:
        for name, part in self.parts().items():
            if (held := self.kind(name)) is None:
                continue
            if part.there is False:
                other = f"call layer_norm{self.suffix}" if name not in NEEDS else f"pass {NEEDS[name]} too"
                raise InvalidProblemError(f"{self.op}: there is no {name}", f"leave it out, or {other}")
            if held != part.kind:
                raise OperandTypeError(
                    f"{self.op}: {name} must hold {part.kind}, got {held}", f"cast it to {part.kind}"
                )


class Normed(Parted):
    """What forward and backward have in common: rows are the elements along the last axes, those of `normalized_shape`."""

    shape: tuple[int, ...]
    normalized_shape: tuple[int, ...] | None
    name: str
    taken_by_kernel: ClassVar[tuple[str, ...]]  # operands, in order

    def __post_init__(self) -> None:
        self._names_op(tuple(name + self.suffix for name in TABLE), "name")
        super().__post_init__()
        if self.normalized_shape is None:
            complete(self, normalized_shape=self.shape[-1:])
        self.complete_parts()

    @property
    def centered(self) -> bool:
        return TABLE[self.name.removesuffix(self.suffix)].centered

    @property
    def rank(self) -> int:
        """Axes along a row."""
        return len(self.normalized_shape or ())

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape[: len(self.shape) - self.rank]

    @property
    def length(self) -> int:
        return math.prod(self.normalized_shape or ())

    def check(self) -> None:
        if not self.rank or self.shape[-self.rank :] != self.normalized_shape:
            raise InvalidProblemError(
                f"{self.op}: normalized_shape {self.normalized_shape} is not how x's shape {self.shape} ends",
                "give the extents of x's last axes, at least one",
            )
        super().check()

    def spread(self, name: str) -> tuple[int, ...] | None:
        """An operand's strides over all axes of x; None where it is absent."""
        if name not in {operand.name for operand in self.operands}:
            return None
        layout, extra = self.layout(name), len(self.shape)
        if len(layout.shape) == extra:
            return layout.strides
        missing = (0,) * (extra - len(layout.shape))
        return (*layout.strides, *missing) if name in ("mean", "rstd") else (*missing, *layout.strides)

    def rows(self, *, ordered: bool = False) -> Rows:
        """Columns are counted in C order where `ordered`, else in the order of memory."""
        along = range(len(self.shape) - self.rank, len(self.shape))
        strides = {name: self.spread(name) for name in self.taken_by_kernel}
        return rows_of(self, self.shape, along, strides, ("mean", "rstd", "scales"), ordered=ordered)


def described_by(descriptor: type[Normed]) -> Callable[..., Normed]:
    """What describes a call of a norm's function; `stats`: also rstd where it is not given. What is no operand is a field."""

    def of(
        *, name: str, normalized_shape: tuple[int, ...] | None = None, stats: bool = False, **operands: Any
    ) -> Normed:
        if isinstance(shape := operands.get("weight"), (tuple, list)):  # torch's order of arguments
            raise OperandTypeError(
                f"{name}: weight is the {type(shape).__name__} {shown(shape)}, not an array",
                f"pass a shape by name: normalized_shape={shown(shape)}, and weight=... if there is one",
            )
        options = {field: operands.pop(field) for field in [*operands] if field not in descriptor.slot_of}
        tensors = descriptor.taken(name, operands)
        x, weight = tensors["x"], tensors.get("weight")
        if normalized_shape is None and weight is not None and weight.shape != x.shape[-len(weight.shape) :]:
            raise InvalidProblemError(
                f"{name}: weight has shape {weight.shape}, and x of shape {x.shape} does not end with it",
                "pass a weight of the extents of x's last axes",
            )
        options |= {} if normalized_shape is None else {"normalized_shape": normalized_shape}
        if not stats and any(row.centered and name.startswith(norm) for norm, row in TABLE.items()):
            descriptor.refuse_half(name, tensors)
        if stats and "rstd" not in tensors:
            options["rstd_element"] = computed_in(tensors["x"].element).element
        return descriptor.of_tensors(tensors, name=name, **options)

    return of


def asked(
    descriptor: type[Normed], name: str, operands: Mapping[str, Any], made: Collection[str],
    normalized_shape: Sequence[int] | None,
) -> CallArgs:  # fmt: skip
    """What a gradient's function asks for: the operands that are given, and those of `made` that are not."""
    axes = None if normalized_shape is None else integers(normalized_shape, f"{name}: normalized_shape")
    given = {n: x for n, x in operands.items() if x is not None or n in made}

    def describe() -> Normed:
        return described_by(descriptor)(name=name, normalized_shape=axes, stats="rstd" in given, **given)

    return given, describe, (name, axes, tuple(given)), None, None


def probes(rows: int) -> tuple[dict[str, Any], ...]:
    """Small problems with weights, resident and streamed, and one of strided columns."""
    lengths = ((element, n) for element in ("f32", "bf16", "f64") for n in (100, 4096, 50257))
    weighted = ({"shape": (rows, n), "element": element, "weight_element": element} for element, n in lengths)
    return *weighted, {"shape": (6, 40), "element": "f32", "x_strides": (1, 6)}

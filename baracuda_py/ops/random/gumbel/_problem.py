"""What gumbel_softmax and its gradient have in common: rows of scores, each with noise by its position."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Layout
from ....runtime.steps import Kernel, Launch, Packed, Ptr, Run, Step
from ....types import DeviceSpec, ElementKind, InvalidProblemError, PrecisionGuarantee
from ..._axis import AlongAxis
from ..._launch import index_scalar
from ..._rows import RowConfig, Rows, computed_in, row_configs, row_cost, rows_of
from .._drawn import BLOCK, PHILOX_INSTRUCTIONS, VALUES, Positioned

__all__ = ["FILE", "SOURCE", "Noisy", "RowsOfScores"]

FILE = "random/gumbel_softmax.cu"
SOURCE = "the bound of softmax (ops/softmax/_guarantee.py), and the rounding of (x + g) / tau"
INDEX = "index"  # the kernel's operand of an element's index in C order
LEAST_TAU, GREATEST_TAU = 1e-30, 1e30
ELEMENT_INSTRUCTIONS = 60  # of the noise and of softmax, beside Philox; estimated from the source


class Noisy(AlongAxis, Positioned):
    """Rows along `axis` of an x of `shape`, to whose elements Gumbel noise is added, divided by `tau`."""

    tau: float

    derived = ("scale",)
    arrays: ClassVar[tuple[str, ...]]  # the kernel's operands of x's shape, in its order
    inputs: ClassVar[int]

    @property
    def bits(self) -> int:
        """Random bits of an element."""
        return 64 if self.element is ElementKind.F64 else 32

    @property
    def step(self) -> int:
        """Elements in C order from one along the axis to the next."""
        return math.prod(self.shape[self.axis + 1 :]) if self.shape else 1

    @property
    def template(self) -> str:
        """Types and what is computed, as the kernel takes them."""
        return f"{self.element.number}, {computed_in(self.element).cuda}, {self.element.digits}"

    def in_place(self, written: str, read: str) -> bool:
        """The result may be in place of an array of its shape: a thread writes elements that it alone has read."""
        return read in self.arrays

    def layout(self, name: str) -> Layout:
        """Of an operand; of INDEX that of a byte per element in C order, which is no operand."""
        return Layout((), (), ElementKind.U8) if name == INDEX else super().layout(name)

    def rows(self) -> Rows:
        strides: dict[str, tuple[int, ...] | None] = {name: self.layout(name).strides for name in self.arrays}
        strides[INDEX] = tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))
        return rows_of(self, self.shape, self.along, strides, (INDEX,))

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        made = super().scalars(given)
        if not LEAST_TAU <= made["tau"] <= GREATEST_TAU:
            raise InvalidProblemError(
                f"{self.op}: tau={made['tau']} is not between {LEAST_TAU:g} and {GREATEST_TAU:g}",
                "give a positive temperature, such as 1.0",
            )
        return made

    def resolve(self, given: Mapping[str, Any]) -> tuple[tuple[int, ...], Mapping[str, Any]]:
        values = self.scalars(given)
        return self.displacements(), {**values, "scale": 1 / values["tau"]}


class RowsOfScores(Candidate[Any]):
    """A group of threads per row, which stays in registers with its noise where it fits; else each pass draws the noise again."""

    variant = "rows"
    kernel: ClassVar[str]

    def configs(self, desc: Noisy, device: DeviceSpec) -> Iterable[RowConfig]:
        rows, computed = desc.rows(), computed_in(desc.element).element
        block = BLOCK // desc.bits
        vector = block if desc.step == 1 and rows.vector(desc.element) >= block else 1
        return row_configs(desc.extent, vector, computed, desc.inputs)

    def cost(self, desc: Noisy, device: DeviceSpec, config: RowConfig) -> Cost:
        passes = 1 if config.resident else 1 + desc.inputs
        drawn = passes * (ELEMENT_INSTRUCTIONS + PHILOX_INSTRUCTIONS / config.vector)
        return row_cost(device, desc.rows(), desc.nbytes, config, desc.element, instructions=drawn)

    def guarantee(self, desc: Noisy, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        depth = config.depth(desc.extent)
        return self.promised(desc, depth, depth // config.vector + 1)

    @staticmethod
    def promised(desc: Any, depth: int, scalings: int) -> PrecisionGuarantee:
        """For so many additions and scalings of a term."""
        raise NotImplementedError

    def lower(self, desc: Noisy, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        rows = desc.rows()
        entry = config.entry(self.kernel, self.types(desc), rows.template)
        args = (
            *rows.counts, Run("scale", computed_in(desc.element).numpy), *(Run(name) for name in VALUES),
            index_scalar(desc.step, "u64"), rows.places(), *(Ptr(name) for name in desc.arrays),
            Ptr("position") if desc.has("position") else Packed(bytes(8)),
        )  # fmt: skip
        return (Launch(Kernel(FILE, entry), config.grid(rows.count), (config.threads, 1, 1), args),)

    def types(self, desc: Any) -> str:
        """The kernel's own template arguments."""
        return str(desc.template)

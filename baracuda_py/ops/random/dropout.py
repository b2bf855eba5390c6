"""dropout and its gradient, without a mask: which elements are kept follows from their positions (kernels/random/dropout.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...plan.descriptor import Slot
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...runtime.steps import Run, Step
from ...types import (
    Componentwise,
    DeviceSpec,
    ElementKind,
    InvalidProblemError,
    OperandTypeError,
    PrecisionGuarantee,
    Term,
)
from .._function import function_of
from .._rows import FLOATS, computed_in
from . import oracle, samples
from ._by_position import ByPosition
from ._drawn import Positioned, positioned

__all__ = [
    "DropoutBackwardDescriptor",
    "DropoutBackwardPlan",
    "DropoutDescriptor",
    "DropoutPlan",
    "dropout",
    "dropout_backward",
]


class Dropped(Positioned):
    """Elements of `shape`, each 0 with probability `p`, else divided by 1 - p."""

    derived = ("threshold", "scale")
    made: ClassVar[str] = "out"
    read: ClassVar[str] = "x"

    @property
    def arrays(self) -> tuple[str, str, str]:
        """What the kernel takes: the result, what it is of, and what is added, which is read only where there is one."""
        return self.made, self.read, "residual" if "residual" in self.slot_of and self.has("residual") else self.read

    def in_place(self, written: str, read: str) -> bool:
        """The result may be in place of what it is of, or of the residual."""
        return read in self.arrays

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        made = super().scalars(given)
        if not 0 <= made["p"] <= 1:
            raise InvalidProblemError(f"{self.op}: p={made['p']} is no probability", "give a number from 0 to 1")
        return made

    def resolve(self, given: Mapping[str, Any]) -> tuple[tuple[int, ...], Mapping[str, Any]]:
        values = self.scalars(given)
        p = values["p"]
        scale = 1 / (1 - p) if p < 1 else 0.0
        return self.displacements(), {**values, "threshold": round(p * 2**32), "scale": scale}


class DropByPosition(ByPosition):
    launches = ("random/dropout.cu:dropout",)
    instructions, single_instructions = 6, 16

    def arrays(self, desc: Dropped) -> tuple[str, ...]:
        return desc.arrays

    def guarantee(self, desc: Dropped, device: DeviceSpec, config: int) -> PrecisionGuarantee:
        """1 - p and the scale are rounded, and the result once, of 16 bits by way of f32."""
        computed = computed_in(desc.element)
        terms = [Term(2.0, computed.element, "scaled")]
        if desc.element.bits == 16:
            terms.append(Term(1.0, ElementKind.F32, "abs_result"))
        bound = Componentwise.rounded(terms, desc.element, "Higham, section 2.2")
        return PrecisionGuarantee.fixed_order(computed.math, computed.element, bound)

    def lower(self, desc: Dropped, device: DeviceSpec, config: int) -> tuple[Step, ...]:
        computed, (_, read, added) = computed_in(desc.element), desc.arrays
        types, flags = (desc.element.number, computed.cuda), (str(added != read).lower(),)
        numbers = Run("threshold", "uint64"), Run("scale", computed.numpy)
        return self.launch(desc, device, config, types, flags, *numbers)


@positioned(
    Slot("out", "out", takes=FLOATS),
    Slot("x", takes=FLOATS),
    Slot("residual", optional=True, takes=FLOATS, shape="shape"),
)
class DropoutDescriptor(Dropped):
    """x of `shape`, elements of which become 0 with probability `p`; a residual is added."""

    p: float = 0.5

    name = "dropout"

    def check(self) -> None:
        kind = self.element_of("residual")
        if kind not in (None, self.element):
            raise OperandTypeError(
                f"dropout: residual must hold {self.element}, as x does, got {kind}", f"cast it to {self.element}"
            )


class DropoutPlan(Plan[DropoutDescriptor]):
    """Dropout: operands `out`, `x`, and as the problem has them `residual`, `position`."""

    descriptor = DropoutDescriptor
    candidates = (DropByPosition(),)
    measures = oracle.DROPPED
    reference = oracle.dropout
    reference_guarantee = oracle.guarantee
    probes = (
        {"shape": (999,), "element": "f32"},
        {"shape": (33, 7), "element": "bf16", "residual_element": "bf16"},
        {"shape": (40,), "element": "f64"},
    )


@function_of(DropoutPlan)
def dropout(
    x: Any, p: float = 0.5, *, residual: Any = None, seed: int = 0, offset: int = 0, subsequence: int = 0,
    position: Any = None,
) -> Any:  # fmt: skip
    """x / (1 - p) where the element is kept, 0 where it is dropped, which it is with probability `p`; and `residual` added.

    x, residual: arrays of one shape and kind (f16, bf16, f32, f64), any strides; out may be either. Element i, in C order, is
    dropped where the 32 random bits at position offset + i of the stream (seed, subsequence) are less than round(p * 2**32): the
    same ones for every kind, layout and device. No mask is stored: `dropout_backward` with the same arguments drops the same
    elements. Dropped ones are 0 even where x is NaN or infinite; p = 0 returns x, and p = 1 zeros. There is no training flag: for
    inference leave the call out. position: an array of one i64 in x's memory, which is added to `offset` when the kernel runs
    (`take_position`). Raises InvalidProblemError for a `p` outside [0, 1].
    """


@positioned(Slot("grad_x", "out", takes=FLOATS), Slot("grad", takes=FLOATS))
class DropoutBackwardDescriptor(Dropped):
    """The gradient of dropout's x, of `shape`, from that of its result."""

    p: float = 0.5

    name = "dropout_backward"
    made, read = "grad_x", "grad"


class DropoutBackwardPlan(Plan[DropoutBackwardDescriptor]):
    """The gradient of dropout: operands `grad_x`, `grad`, and `position` where the offset is in memory."""

    descriptor = DropoutBackwardDescriptor
    candidates = (DropByPosition(),)
    measures = oracle.DROPPED
    reference = oracle.dropout_backward
    reference_guarantee = oracle.guarantee
    probes = ({"shape": (999,), "element": "f32"}, {"shape": (33, 7), "element": "bf16"})


@function_of(DropoutBackwardPlan)
def dropout_backward(
    grad: Any, p: float = 0.5, *, seed: int = 0, offset: int = 0, subsequence: int = 0, position: Any = None,
    grad_x: Any = None,
) -> Any:  # fmt: skip
    """The gradient of `dropout` with respect to x: grad / (1 - p) where the element was kept, else 0.

    grad: as x of `dropout`, and all other arguments those of that call, from which it follows which elements were kept. The
    gradient of a residual is `grad` itself.
    """


register(
    Op(
        "dropout",
        DropoutPlan,
        dropout,
        samples.dropout,
        gradient=Gradient("dropout_backward", ("position",), {"x": "grad_x"}),
        peers={"torch": "dropout"},
    )
)
register(Op("dropout_backward", DropoutBackwardPlan, dropout_backward, samples.dropout_backward))

"""dropout and its gradient, without a mask: which elements are kept follows from their positions (kernels/random/dropout.cu)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ...plan.candidate import Candidate, Cost
from ...plan.descriptor import Slot
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...runtime.steps import Kernel, Launch, Packed, Ptr, Run, Step
from ...tensor.axes import merge_axes
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
from .._launch import THREADS, index_scalar, index_type, pack_dims
from .._rows import FLOATS, computed_in
from . import oracle, samples
from ._drawn import CHUNK, PHILOX_INSTRUCTIONS, VALUES, Positioned, grid_stride, positioned

__all__ = [
    "DropoutBackwardDescriptor",
    "DropoutBackwardPlan",
    "DropoutDescriptor",
    "DropoutPlan",
    "dropout",
    "dropout_backward",
]

WORDS = 4  # of a Philox block, one per element
ELEMENT_INSTRUCTIONS = 6  # estimated from the source, not counted


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


class DropByPosition(Candidate[Dropped]):
    """One launch: a thread has chunks of one Philox block or two, in accesses of 16 bytes; or of single elements where an operand
    is not contiguous or not aligned to 16 bytes."""

    variant = "philox"
    launches = ("random/dropout.cu:dropout",)

    def configs(self, desc: Dropped, device: DeviceSpec) -> Iterable[int]:
        size = desc.element.bits // 8
        whole = _merged(desc)[1] == ((size,),) * 3 and all(desc.layout(name).align >= CHUNK for name in desc.arrays)
        return (max(WORDS, CHUNK // size) if whole else -WORDS,)

    def cost(self, desc: Dropped, device: DeviceSpec, config: int) -> Cost:
        element = ELEMENT_INSTRUCTIONS + PHILOX_INSTRUCTIONS / WORDS + (0 if config > 0 else 16)
        return Cost.streaming(device, desc.nbytes, instructions=desc.count * element)

    def guarantee(self, desc: Dropped, device: DeviceSpec, config: int) -> PrecisionGuarantee:
        """1 - p and the scale are rounded, and the result once, of 16 bits by way of f32."""
        computed = computed_in(desc.element)
        terms = [Term(2.0, computed.element, "scaled")]
        if desc.element.bits == 16:
            terms.append(Term(1.0, ElementKind.F32, "abs_result"))
        bound = Componentwise.rounded(terms, desc.element, "Higham, section 2.2")
        return PrecisionGuarantee.fixed_order(computed.math, computed.element, bound)

    def lower(self, desc: Dropped, device: DeviceSpec, config: int) -> tuple[Step, ...]:
        index, width, computed = index_type(desc.count), abs(config), computed_in(desc.element)
        extents, strides = ((), ((), (), ())) if config > 0 else _merged(desc)
        made, read, added = desc.arrays
        args = (
            Ptr(made), Ptr(read), Ptr(added), index_scalar(desc.count, index), *(Run(name) for name in VALUES),
            Ptr("position") if desc.has("position") else Packed(bytes(8)), Run("threshold", "uint64"),
            Run("scale", computed.numpy), pack_dims(extents, strides, index),
        )  # fmt: skip
        with_residual = "true" if added != read else "false"
        entry = f"dropout<{index}, {desc.element.number}, {computed.cuda}, {width}, {len(extents)}, {with_residual}>"
        grid = grid_stride(desc.count, width, device)
        return (Launch(Kernel("random/dropout.cu", entry), grid, (THREADS, 1, 1), args),)


def _merged(desc: Dropped) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Extents, and strides in bytes of the three arrays."""
    size = desc.element.bits // 8
    given = [tuple(s * size for s in desc.layout(name).strides) for name in desc.arrays]
    extents, strides = merge_axes(desc.shape, given)
    return (extents, strides) if extents else ((1,), ((size,),) * 3)


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

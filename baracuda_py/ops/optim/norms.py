"""gradient_norm and gradient_clip: the norm of gradients, and gradients scaled to a norm at most (kernels/optim/norm.cu)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ...numerics.guarantee import widely
from ...plan.candidate import Candidate, Cost
from ...plan.descriptor import Descriptor, Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...runtime.steps import Arg, Kernel, Launch, Ptr, Run, Scratch, Step
from ...tensor import Tensor
from ...types import DeviceSpec, ElementKind, InvalidProblemError, PrecisionGuarantee
from .._function import function_of
from .._rows import FLOATS, computed_in
from . import _guarantee, oracle, samples
from ._table import THREADS, check_table, chunk_of, depth_of, refuse_rows

__all__ = [
    "GradientClipDescriptor",
    "GradientClipPlan",
    "GradientNormDescriptor",
    "GradientNormPlan",
    "gradient_clip",
    "gradient_norm",
]

FILE = "optim/norm.cu"
TOTAL_THREADS = 512  # as in the kernel
F32 = ElementKind.F32


def _scalar(name: str, role: str, element: str | ElementKind, *, optional: bool = False) -> Slot:
    takes = (F32,) if optional else ()
    return Slot(
        name, role, optional=optional, takes=takes, shape="scalar_shape", element=element, strided=False, aligned=False
    )  # fmt: skip


TABLE = Slot("table", optional=True, element=ElementKind.I64, strided=False, aligned=False)


class NormProblem(Descriptor):
    """The norm of an array of `shape`, or, with a table, of the parts of it that its rows name."""

    shape: tuple[int, ...]
    element: ElementKind
    max_norm: float

    arrays: ClassVar[tuple[str, ...]] = ("grad",)

    @property
    def scalar_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def computed(self) -> ElementKind:
        """The kind of the norm."""
        return computed_in(self.element).element

    @property
    def empty(self) -> bool:
        """Never: the norm of nothing is 0."""
        return False

    @property
    def chunks(self) -> int:
        shape = self.shape_of("table")
        return -(-math.prod(self.shape) // self.chunk) if shape is None else shape[0]

    @property
    def chunk(self) -> int:
        return chunk_of(math.prod(self.shape))

    @property
    def depth(self) -> int:
        """Additions that a square goes through, at most."""
        return depth_of(math.prod(self.shape), self.chunks, TOTAL_THREADS)

    def check(self) -> None:
        check_table(self)

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        made = super().scalars(given)
        if not made["max_norm"] >= 0:
            raise InvalidProblemError(f"{self.op}: max_norm={made['max_norm']}", "give a number of 0 or more")
        return made

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        refuse_rows(self, tensors, {"grad": self.slot_of["grad"].role != "in"})


@described(
    Slot("grad", takes=FLOATS, strided=False, aligned=False), _scalar("norm", "out", "computed"),
    _scalar("scale", "out", F32), _scalar("found_inf", "out", F32), _scalar("grad_scale", "in", "", optional=True), TABLE,
)  # fmt: skip
class GradientNormDescriptor(NormProblem):
    """The norm of an array of `shape` over a scale, and what an optimizer divides by so that it is `max_norm` at most."""

    shape: tuple[int, ...]
    element: ElementKind
    max_norm: float = 1e38

    name = "gradient_norm"
    values = ("max_norm",)


@described(Slot("grad", "inout", takes=FLOATS, strided=False, aligned=False), _scalar("norm", "out", "computed"), TABLE)
class GradientClipDescriptor(NormProblem):
    """An array of `shape`, scaled so that its norm is `max_norm` at most."""

    shape: tuple[int, ...]
    element: ElementKind
    max_norm: float = 1.0

    name = "gradient_clip"
    values = ("max_norm",)


class NormChunks(Candidate[NormProblem]):
    """A CTA per chunk and one that adds up; clipping takes a third launch."""

    variant = "chunks"
    launches: ClassVar[tuple[str, ...]] = (f"{FILE}:optim_squares", f"{FILE}:optim_total")

    def cost(self, desc: NormProblem, device: DeviceSpec, config: str) -> Cost:
        moved = Cost.streaming(device, desc.element.nbytes(math.prod(desc.shape)) * (2 * len(self.launches) - 3))
        return Cost(moved.bytes, 0, moved.seconds + device.overhead * (len(self.launches) - 1), moved.limit)

    def guarantee(self, desc: NormProblem, device: DeviceSpec, config: str) -> PrecisionGuarantee:
        return _guarantee.of_norm(desc)

    def lower(self, desc: NormProblem, device: DeviceSpec, config: str) -> tuple[Step, ...]:
        null, computed = np.uint64(0), computed_in(desc.element)
        sums = Scratch.named("sums", ElementKind.F64.nbytes(max(desc.chunks, 1)))
        parts: tuple[Arg, ...] = (
            Ptr("grad"), Ptr("table") if desc.has("table") else null, np.uint64(math.prod(desc.shape)), np.uint32(desc.chunk),
        )  # fmt: skip
        clips = len(self.launches) == 3
        factor = Scratch.named("factor", computed.element.nbytes(1)) if clips else null
        width, one = 128 // desc.element.bits, (1, 1, 1)
        grid, block = (desc.chunks, 1, 1), (THREADS, 1, 1)
        args: tuple[Arg, ...] = (
            sums, np.uint32(desc.chunks), Ptr("norm"), *(null if clips else Ptr(name) for name in ("scale", "found_inf")),
            Ptr("grad_scale") if desc.slot_of.get("grad_scale") and desc.has("grad_scale") else null,
            Run("max_norm", "float64"), factor,
        )  # fmt: skip
        total = Launch(Kernel(FILE, f"optim_total<{computed.cuda}>"), one, (TOTAL_THREADS, 1, 1), args)
        if not desc.chunks:
            return (total,)
        squares = Kernel(FILE, f"optim_squares<{desc.element.number}, {width}>")
        steps = (Launch(squares, grid, block, (sums, *parts)), total)
        scaled = Kernel(FILE, f"optim_scaled<{desc.element.number}, {computed.cuda}, {width}>")
        return (*steps, Launch(scaled, grid, block, (*parts, factor))) if clips else steps


class ClipChunks(NormChunks):
    """The same, and a CTA per chunk that scales it."""

    launches = (*NormChunks.launches, f"{FILE}:optim_scaled")


def _of_reference(desc: Any) -> PrecisionGuarantee:
    return widely(_guarantee.of_norm(desc), desc)


class GradientNormPlan(Plan[GradientNormDescriptor]):
    """The norm of gradients: operands `grad`, `norm`, `scale`, `found_inf`, and as the problem has them `grad_scale`, `table`."""

    descriptor = GradientNormDescriptor
    candidates = (NormChunks(),)
    measures = oracle.NORM_MEASURES
    reference = oracle.gradient_norm
    reference_guarantee = _of_reference
    probes = ({"shape": (999,), "element": "f32"}, {"shape": (999,), "element": "bf16", "table_shape": (3, 3)})


class GradientClipPlan(Plan[GradientClipDescriptor]):
    """Gradients scaled to a norm at most: operands `grad` in place, `norm`, and `table` where the problem has one."""

    descriptor = GradientClipDescriptor
    candidates = (ClipChunks(),)
    measures = oracle.NORM_MEASURES
    reference = oracle.gradient_clip
    reference_guarantee = _of_reference
    probes = ({"shape": (999,), "element": "f32"}, {"shape": (999,), "element": "f64", "table_shape": (3, 3)})


@function_of(GradientNormPlan)
def gradient_norm(
    grad: Any, *, max_norm: float = 1e38, grad_scale: Any = None, table: Any = None, norm: Any = None, scale: Any = None,
    found_inf: Any = None,
) -> Any:  # fmt: skip
    """The Euclidean norm of a gradient over `grad_scale`, and the scalars by which an optimizer clips it, in device memory.

    grad: a C-ordered array (f16, bf16, f32, f64). Squares are added in f64, in an order that the lengths alone fix. grad_scale:
    an f32 scalar, 1 if not given. max_norm: 0 or more, a run-time value. norm: f32 scalar (f64 for f64). scale: f32 scalar,
    grad_scale times (norm + 1e-6) / max_norm where that is more than 1, by default for norms above 1e38 alone: with it as its
    `grad_scale` an optimizer takes the gradient that torch.nn.utils.clip_grad_norm_ leaves, and the gradient stays.
    found_inf: f32 scalar, 1 where the norm is infinite or NaN, else 0. table: int64 rows (elements, number of the first, where
    it begins in bytes), as of `adamw_update`; `grad_norm` makes it from a list. Returns the named tuple (norm, scale,
    found_inf), allocated if not given.
    """


@function_of(GradientClipPlan)
def gradient_clip(grad: Any, *, max_norm: float = 1.0, table: Any = None, norm: Any = None) -> Any:
    """Scales a gradient in place so that its norm is `max_norm` at most, as torch.nn.utils.clip_grad_norm_.

    grad: a C-ordered array (f16, bf16, f32, f64), times max_norm / (norm + 1e-6) where that is less than 1. max_norm: 0 or more,
    a run-time value. norm, table: as of `gradient_norm`, which spares the pass over gradients where an optimizer follows.
    Returns the named tuple (grad, norm).
    """


register(Op("gradient_norm", GradientNormPlan, gradient_norm, samples.norm, peers={"torch": "nn.utils.get_total_norm"}))
register(
    Op("gradient_clip", GradientClipPlan, gradient_clip, samples.clip, peers={"torch": "nn.utils.clip_grad_norm_"})
)

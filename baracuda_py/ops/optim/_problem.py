"""What the steps of all optimizers share: operands, checks, the rows of a list, and the launches (kernels/optim/update.cu)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ...plan.candidate import Candidate, Cost
from ...plan.descriptor import Descriptor
from ...plan.fields import flag
from ...runtime.steps import Arg, Kernel, Launch, Ptr, Run, Scratch, Step, Struct
from ...tensor import Tensor
from ...types import DeviceSpec, ElementKind, InvalidProblemError, OperandTypeError, PrecisionGuarantee
from .._rows import computed_in
from . import _guarantee
from ._rule import Rule
from ._table import BLOCK, LEAD, THREADS, check_table, chunk_of, depth_of, refuse_rows

__all__ = [
    "FILE",
    "NormedCandidate",
    "UpdateCandidate",
    "UpdateProblem",
    "array_bases",
    "check_elements",
    "pointer_of",
    "step_counted",
]

FILE = "optim/update.cu"
ARRAYS, HYPER, SCALARS = 6, 5, 11  # as in the kernel, the scalars of a step included


def check_elements(desc: Any, states: tuple[str, ...] | None = None) -> None:
    """Raises OperandTypeError for `states` (all by default), a gradient or a master of kinds that a step does not take."""
    computed = computed_in(desc.element).element
    for name in desc.kept if states is None else states:
        kind = desc.layout(name).element
        if kind not in (computed, desc.element) or kind is not desc.state_kind:
            raise OperandTypeError(
                f"{desc.op}: {name} holds {kind}, where param holds {desc.element} and {desc.kept[0]} {desc.state_kind}",
                f"give all states as {computed} or all as {desc.element}",
            )
    if desc.layout("grad").element not in (computed, desc.element):
        raise OperandTypeError(
            f"{desc.op}: grad holds {desc.layout('grad').element} and param {desc.element}",
            "cast it to " + " or ".join(dict.fromkeys(map(str, (desc.element, computed)))),
        )
    if desc.has("master") and desc.element.bits != 16:
        raise OperandTypeError(
            f"{desc.op}: master is the f32 copy of 16-bit parameters, and param holds {desc.element}",
            "leave it out",
        )


class UpdateProblem(Descriptor):
    """A step of an array of `shape`, or, with a table, of the parts of it that its rows name."""

    shape: tuple[int, ...]
    element: ElementKind
    grad_element: ElementKind | None
    maximize: bool
    stochastic: bool
    lr: float
    seed: int

    rule: ClassVar[Rule]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each((*self.rule.flags, "maximize", "stochastic"), flag)

    @property
    def rule_type(self) -> str:
        """The rule's type in C++."""
        has = {name: self.has(name) for name in self.rule.arrays} | {
            name: getattr(self, name) for name in self.rule.flags
        }
        return f"optim::{self.rule.cuda.format(**{name: str(x).lower() for name, x in has.items()})}"

    @property
    def scalar_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def kept(self) -> tuple[str, ...]:
        """The states that the problem has."""
        return tuple(name for name in self.rule.arrays if self.has(name))

    @property
    def arrays(self) -> tuple[str, ...]:
        """The arrays of one length, in the order of the kernel and of a table's columns."""
        return ("param", "grad", *self.kept, *self.rule.absmaxes, *(["master"] if self.has("master") else []))

    @property
    def blocks(self) -> tuple[int, ...]:
        """The shape of an absmax."""
        return (-(-math.prod(self.shape) // BLOCK),)

    def element_bytes(self, name: str) -> float:
        """The bytes of an array for each element."""
        return self.layout(name).element.bits / 8 / (BLOCK if name in self.rule.absmaxes else 1)

    @property
    def chunks(self) -> int | None:
        """The rows of the table, if there is one."""
        shape = self.shape_of("table")
        return None if shape is None else shape[0]

    @property
    def empty(self) -> bool:
        """Never: a step of nothing is counted."""
        return False

    @property
    def state_kind(self) -> ElementKind:
        return self.layout(self.kept[0]).element if self.kept else computed_in(self.element).element

    def default_element(self, name: str) -> ElementKind:
        return self.element if name == "grad" else computed_in(self.element).element

    def check(self) -> None:
        check_elements(self, () if self.rule.blockwise else None)
        if self.stochastic and (self.element is not ElementKind.BF16 or self.has("master")):
            given = "a master" if self.has("master") else f"a param of {self.element}"
            raise InvalidProblemError(
                f"{self.op}: stochastic with {given}", "it rounds bf16 parameters that have no master: leave it out"
            )
        check_table(self, counted=self.rule.normed)

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        made = super().scalars(given)
        self.rule.refuse_values(self.op, made)
        if made.get("momentum") and "momentum_buffer" in self.rule.arrays and not self.has("momentum_buffer"):
            raise InvalidProblemError(
                f"{self.op}: momentum={made['momentum']} without momentum_buffer",
                "pass zeros of param's shape at first",
            )
        if self.rule.refuse is not None:
            self.rule.refuse(self, made)
        return made

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        written = {name: name != "grad" for name in self.arrays}
        refuse_rows(self, tensors, written, counted=self.rule.normed, blocks=self.rule.absmaxes)

    @property
    def chunk(self) -> int:
        """Elements of a CTA."""
        return chunk_of(math.prod(self.shape))

    @property
    def ctas(self) -> int:
        return -(-math.prod(self.shape) // self.chunk) if self.chunks is None else self.chunks

    @property
    def depth(self) -> int:
        """Additions that a square of a norm goes through, at most."""
        return depth_of(math.prod(self.shape), self.ctas, THREADS)

    def vector(self) -> int:
        """Elements of a thread's turn: 16 bytes of the widest array."""
        return min(*(16 * 8 // self.layout(name).element.bits for name in self.arrays))


def pointer_of(desc: UpdateProblem, name: str) -> Arg:
    """An operand's address, 0 if the problem lacks it."""
    return Ptr(name) if desc.has(name) else np.uint64(0)


def array_bases(desc: UpdateProblem, most: int) -> Struct:
    """The addresses of a problem's arrays, in a kernel's room for `most`."""
    return Struct((*map(Ptr, desc.arrays), *[np.uint64(0)] * (most - len(desc.arrays))))


def step_counted(desc: UpdateProblem) -> tuple[Launch, Scratch]:
    """The launch that counts the step, and where it puts what all elements share."""
    computed = computed_in(desc.element)
    shared = Scratch.named("scalars", computed.element.nbytes(SCALARS))
    hyper: tuple[Arg, ...] = (*(Run(name, "float64") for name in ("lr", *desc.rule.hyper)),)
    scalars = (pointer_of(desc, name) for name in ("learning_rate", "grad_scale", "found_inf"))
    args: tuple[Arg, ...] = (
        shared, Ptr("step"), *scalars, *hyper, *[np.float64(0)] * (HYPER + 1 - len(hyper)), np.uint32(desc.maximize),
    )  # fmt: skip
    kernel = Kernel(FILE, f"optim_step<{desc.rule_type}, {computed.cuda}>")
    return Launch(kernel, (1, 1, 1), (1, 1, 1), args), shared


class UpdateCandidate(Candidate[UpdateProblem]):
    """Two launches: one thread counts the step, and a CTA per chunk updates its elements."""

    variant = "chunks"
    launches: ClassVar[tuple[str, ...]] = (f"{FILE}:optim_step", f"{FILE}:optim_update")

    def cost(self, desc: UpdateProblem, device: DeviceSpec, config: str) -> Cost:
        once = sum(map(desc.element_bytes, desc.arrays))
        written = once - desc.layout("grad").element.bits // 8
        count = math.prod(desc.shape) if desc.chunks is None else desc.chunks * chunk_of(0)
        read = once if desc.rule.normed else 0
        moved = Cost.streaming(device, round(count * (once + written + read)))
        return Cost(moved.bytes, 0, moved.seconds + device.overhead * (len(self.launches) - 1), moved.limit)

    def guarantee(self, desc: UpdateProblem, device: DeviceSpec, config: str) -> PrecisionGuarantee:
        return _guarantee.of_update(desc)

    def lower(self, desc: UpdateProblem, device: DeviceSpec, config: str) -> tuple[Step, ...]:
        computed, null, place = computed_in(desc.element), np.uint64(0), partial(pointer_of, desc)
        counted, shared = step_counted(desc)
        if not desc.ctas:
            return (counted,)
        bases = array_bases(desc, ARRAYS)
        kinds = (desc.element, desc.layout("grad").element, desc.state_kind)
        listed, by_chance, normed = (str(x).lower() for x in (desc.has("table"), desc.stochastic, desc.rule.normed))
        parts = (
            desc.rule_type,
            *(kind.number for kind in kinds),
            computed.cuda,
            str(desc.has("master")).lower(),
            listed,
        )
        whole: tuple[Arg, ...] = (
            bases, place("table"), np.uint64(math.prod(desc.shape)), np.uint32(desc.chunk), shared,
        )  # fmt: skip
        grid, block = (desc.ctas, 1, 1), (THREADS, 1, 1)
        steps: list[Step] = [counted]
        sizes: Arg = null
        if desc.rule.normed:
            sums = Scratch.named("sums", ElementKind.F64.nbytes(2 * desc.ctas))
            sizes = Scratch.named("step_sizes", computed.element.nbytes(desc.ctas))
            squares = Kernel(FILE, f"optim_norms<{', '.join((*parts, str(desc.vector())))}>")
            of_arrays = Kernel(FILE, f"optim_step_sizes<{desc.rule_type}, {computed.cuda}>")
            columns = np.uint32(LEAD + len(desc.arrays) + 1)
            args = (sums, place("table"), columns, np.uint32(desc.ctas), shared, sizes)
            steps += [
                Launch(squares, grid, block, (*whole, sums)),
                Launch(of_arrays, grid if desc.has("table") else (1, 1, 1), block, args),
            ]
        kernel = Kernel(FILE, f"optim_update<{', '.join((*parts, by_chance, normed, str(desc.vector())))}>")
        return (*steps, Launch(kernel, grid, block, (*whole, sizes, Run("seed"))))


class NormedCandidate(UpdateCandidate):
    """Four launches: a thread counts, a CTA per chunk adds up squares, one per array makes step sizes, one per chunk updates."""

    launches = (f"{FILE}:optim_step", f"{FILE}:optim_norms", f"{FILE}:optim_step_sizes", f"{FILE}:optim_update")

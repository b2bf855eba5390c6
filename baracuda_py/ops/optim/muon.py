"""muon_update: a step of Muon on a matrix, by products in bf16 (kernels/optim/muon.cu)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ...numerics.guarantee import widely
from ...plan.candidate import Candidate, Cost
from ...plan.descriptor import Descriptor, Slot, described
from ...plan.fields import flag, integer, scalar
from ...plan.lowering import Sub
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...plan.selection import Selection, selected
from ...runtime.steps import Arg, Kernel, Launch, Ptr, Run, Scratch, Step
from ...types import (
    BackendKind,
    Componentwise,
    DeviceSpec,
    ElementKind,
    InvalidProblemError,
    OperandTypeError,
    PlanPreference,
    PrecisionGuarantee,
    Term,
)
from .._function import function_of
from .._rows import FLOATS, computed_in
from ..gemm.matmul import MatmulDescriptor, MatmulPlan
from . import oracle, samples
from ._guarantee import SOURCE
from ._problem import check_elements
from ._rule import MOST

__all__ = ["MuonUpdateDescriptor", "MuonUpdatePlan", "muon_update", "refuse_options", "refuse_values"]

FILE = "optim/muon.cu"
THREADS, CTAS = 256, 1024  # of a CTA, as in the kernel; at most: no device changes it, and so no order of additions
COEFFICIENTS = (3.4445, -4.775, 2.0315)  # of Keller Jordan's iteration, as torch has them
MOST_STEPS = 99  # as in torch
RATIOS = ("original", "match_rms_adamw")
OURS = PlanPreference(backend=BackendKind.BESPOKE)
BF16, F32, F64 = ElementKind.BF16, ElementKind.F32, ElementKind.F64


def refuse_values(op: str, values: Mapping[str, float]) -> None:
    """Raises for run-time values that are out of range."""
    for name, value in values.items():
        if not 0 <= value <= MOST:
            raise InvalidProblemError(f"{op}: {name}={value}", "give a number of 0 or more that f32 holds")


def refuse_options(op: str, ns_coefficients: Any, ns_steps: Any, adjust_lr_fn: Any) -> None:
    """Raises for an iteration, or an adjustment of the learning rate, that there is not."""
    numbers = _numbers(ns_coefficients, f"{op}: ns_coefficients")
    if len(numbers) != 3 or not all(abs(x) <= MOST for x in numbers):
        raise InvalidProblemError(f"{op}: ns_coefficients={ns_coefficients}", "give three numbers that f32 holds")
    if not 0 <= integer(ns_steps, f"{op}: ns_steps") <= MOST_STEPS:
        raise InvalidProblemError(f"{op}: ns_steps={ns_steps}", f"give 0 to {MOST_STEPS}")
    if adjust_lr_fn not in (None, *RATIOS):
        known = ", ".join(map(repr, RATIOS))
        raise InvalidProblemError(f"{op}: adjust_lr_fn={adjust_lr_fn!r} is unknown", f"give None or one of {known}")


def _numbers(given: Any, what: str) -> tuple[float, ...]:
    if not isinstance(given, (tuple, list)):
        raise OperandTypeError(f"{what}={given!r} is no tuple", "give (a, b, c)")
    return tuple(scalar(x, what) for x in given)


def _slot(name: str, role: str = "inout", **more: Any) -> Slot:
    return Slot(name, role, strided=False, **more)


@described(
    _slot("param", takes=FLOATS),
    _slot("momentum_buffer", takes=FLOATS, element="state_element"),
    _slot("master", optional=True, takes=(F32,), shape="shape"),
    _slot("grad", "in", takes=FLOATS, element="grad_element"),
    _slot("learning_rate", "in", optional=True, takes=(F32,), shape="scalar_shape", aligned=False),
)
class MuonUpdateDescriptor(Descriptor):
    """A step of Muon on a matrix of `shape`, with ns_steps iterations of X to a X + (b G + c G G) X, where G is X times its
    transpose, or for more rows than columns of X to a X + X (b G + c G G), where G is its transpose times X."""

    shape: tuple[int, ...]
    element: ElementKind
    grad_element: ElementKind | None = None
    state_element: ElementKind | None = None
    nesterov: bool = True
    ns_coefficients: tuple[float, ...] = COEFFICIENTS
    ns_steps: int = 5
    adjust_lr_fn: str | None = None
    lr: float = 1e-3
    weight_decay: float = 0.1
    momentum: float = 0.95
    eps: float = 1e-7

    name = "muon_update"
    values = ("lr", "weight_decay", "momentum", "eps")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("nesterov",), flag)
        self._each(("ns_coefficients",), _numbers)

    @property
    def scalar_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def kept(self) -> tuple[str, ...]:
        return ("momentum_buffer",)

    @property
    def arrays(self) -> tuple[str, ...]:
        return ("param", "grad", "momentum_buffer", *(["master"] if self.has("master") else []))

    @property
    def state_kind(self) -> ElementKind:
        return self.layout("momentum_buffer").element

    def default_element(self, name: str) -> ElementKind:
        return self.element if name == "grad" else computed_in(self.element).element

    def check(self) -> None:
        if len(self.shape) != 2:
            raise InvalidProblemError(
                f"{self.op}: param has shape {self.shape}", "pass a matrix; other parameters take adamw"
            )
        refuse_options(self.op, self.ns_coefficients, self.ns_steps, self.adjust_lr_fn)
        check_elements(self)

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        made = super().scalars(given)
        refuse_values(self.op, made)
        return made

    @property
    def ratio(self) -> float:
        """What the learning rate of the orthogonalised update is multiplied by."""
        rows, columns = self.shape
        if self.adjust_lr_fn == "match_rms_adamw":
            return 0.2 * math.sqrt(max(rows, columns))
        return math.sqrt(max(1.0, rows / max(columns, 1)))

    @property
    def width(self) -> int:
        """Adjacent elements of a thread: 16 bytes of the widest array."""
        return min(128 // self.layout(name).element.bits for name in self.arrays)

    @property
    def vectors(self) -> bool:
        """Whether a thread's elements are one access in every array."""
        layouts = [self.layout(name) for name in self.arrays]
        return math.prod(self.shape) % self.width == 0 and all(x.align >= self.width * x.natural for x in layouts)

    @property
    def ctas(self) -> int:
        return min(CTAS, -(-math.prod(self.shape) // (THREADS * self.width)))


@dataclass(frozen=True)
class Products:
    """A configuration: the products of an iteration, of the matrix X and the smaller of its two Gram matrices."""

    gram: Selection
    polynomial: Selection
    product: Selection

    def __str__(self) -> str:
        return " ".join(f"{name}={part.candidate.variant}" for name, part in vars(self).items())


class NewtonSchulz(Candidate[MuonUpdateDescriptor]):
    """Two launches ahead of ns_steps times three products, and one behind them. No matrix is transposed in memory."""

    variant = "newton_schulz"
    launches: ClassVar[tuple[str, ...]] = (
        *(f"{FILE}:muon_{name}" for name in ("momentum", "normalize", "update")),
        *dict.fromkeys(k for c in MatmulPlan.candidates if c.backend is BackendKind.BESPOKE for k in c.launches),
    )

    def configs(self, desc: MuonUpdateDescriptor, device: DeviceSpec) -> Iterable[Products]:
        (rows, columns), small = desc.shape, min(desc.shape)
        a, b, c = desc.ns_coefficients
        wide, swapped, gram = (rows, columns), (columns, rows), (small, small)
        transposed: dict[str, Any] = {"b_strides": (1, columns)} if rows <= columns else {"a_strides": (1, columns)}
        of_gram = (wide, swapped) if rows <= columns else (swapped, wide)
        of_product = (gram, wide) if rows <= columns else (wide, gram)

        def product(shapes: tuple[Any, Any], addend: tuple[int, ...] | None = None, **more: Any) -> Selection:
            added: dict[str, Any] = {} if addend is None else {"c_shape": addend, "c_element": BF16}
            desc = MatmulDescriptor(shapes[0], shapes[1], BF16, BF16, BF16, **added, **more)
            return selected(MatmulPlan, desc, OURS, device)

        yield Products(
            product(of_gram, **transposed),
            product((gram, gram), gram, alpha=c, beta=b),
            product(of_product, wide, beta=a),
        )

    def cost(self, desc: MuonUpdateDescriptor, device: DeviceSpec, config: Products) -> Cost:
        parts = [part.cost for part in (config.gram, config.polynomial, config.product)]
        size = {name: desc.layout(name).element.bits // 8 for name in desc.arrays}
        once = size["grad"] + 2 * sum(n for name, n in size.items() if name != "grad") + 4 * BF16.bits // 8
        moved = Cost.streaming(device, math.prod(desc.shape) * once)
        seconds = moved.seconds + 2 * device.overhead + desc.ns_steps * sum(part.seconds for part in parts)
        return Cost(moved.bytes, desc.ns_steps * sum(part.flops for part in parts), seconds, parts[0].limit)

    def guarantee(self, desc: MuonUpdateDescriptor, device: DeviceSpec, config: Products) -> PrecisionGuarantee:
        return _guarantee(desc)

    def lower(self, desc: MuonUpdateDescriptor, device: DeviceSpec, config: Products) -> tuple[Step | Sub, ...]:
        return tuple(_steps(desc, config))


def _steps(desc: MuonUpdateDescriptor, config: Products) -> Iterator[Step | Sub]:
    (rows, columns), count, null = desc.shape, np.uint64(math.prod(desc.shape)), np.uint64(0)
    x, other = (Scratch.named(name, BF16.nbytes(int(count))) for name in ("x", "other"))
    gram, polynomial = (Scratch.named(name, BF16.nbytes(min(desc.shape) ** 2)) for name in ("gram", "polynomial"))
    sums, computed = Scratch.named("sums", F64.nbytes(desc.ctas)), computed_in(desc.element).cuda

    def launch(name: str, types: tuple[Any, ...], args: tuple[Arg, ...]) -> Launch:
        said = ", ".join(str(t).lower() if isinstance(t, bool) else str(t) for t in (*types, desc.vectors, desc.width))
        return Launch(Kernel(FILE, f"muon_{name}<{said}>"), (desc.ctas, 1, 1), (THREADS, 1, 1), (count, *args))

    kinds = (desc.layout("grad").element.number, desc.state_kind.number, computed, desc.nesterov)
    yield launch("momentum", kinds, (Ptr("momentum_buffer"), Ptr("grad"), x, Run("momentum", "float64"), sums))
    yield launch("normalize", (), (x, sums, np.uint32(desc.ctas), Run("eps", "float64")))
    for _ in range(desc.ns_steps):
        yield Sub(config.gram, {"a": x, "b": x, "out": gram})
        yield Sub(config.polynomial, {"a": gram, "b": gram, "c": gram, "out": polynomial})
        first, second = (polynomial, x) if rows <= columns else (x, polynomial)
        yield Sub(config.product, {"a": first, "b": second, "c": x, "out": other})
        x, other = other, x
    master, rate = ((Ptr(name) if desc.has(name) else null) for name in ("master", "learning_rate"))
    scalars = (rate, Run("lr", "float64"), Run("weight_decay", "float64"), np.float64(desc.ratio))
    yield launch("update", (desc.element.number, computed, desc.has("master")), (Ptr("param"), master, x, *scalars))


def _guarantee(desc: MuonUpdateDescriptor) -> PrecisionGuarantee:
    """What is lost is as `oracle.muon` derives it: of the parameter in unit roundoffs of bf16, in which the iteration is."""
    computed = computed_in(desc.element)

    def promise(name: str, *terms: Term) -> PrecisionGuarantee:
        bound = Componentwise.rounded(terms, desc.layout(name).element, SOURCE, "beyond")
        return PrecisionGuarantee.fixed_order(computed.math, F32, bound, batch_invariant=False)

    of_param = (Term(1.0, BF16, "iterated"), Term(1.0, computed.element, "lost"))
    parts = {name: promise(name, *of_param) for name in ("param", "master") if desc.has(name)}
    parts["momentum_buffer"] = replace(
        promise("momentum_buffer", Term(1.0, computed.element, "lost")), accumulator=computed.element
    )
    return PrecisionGuarantee.by_output(**{o.name: parts[o.name] for o in desc.operands if o.written})


class MuonUpdatePlan(Plan[MuonUpdateDescriptor]):
    """A step of Muon: operands `param` and `momentum_buffer` in place, `grad`, and as the problem has them `master` in place and
    `learning_rate`."""

    descriptor = MuonUpdateDescriptor
    candidates = (NewtonSchulz(),)
    measures = oracle.MUON_MEASURES
    reference = oracle.muon_update
    probes = ({"shape": (48, 64), "element": "f32"}, {"shape": (33, 17), "element": "bf16", "master_element": "f32"})

    @staticmethod
    def reference_guarantee(desc: Any) -> PrecisionGuarantee:
        return widely(_guarantee(desc), desc)


@function_of(MuonUpdatePlan)
def muon_update(
    param: Any, grad: Any, momentum_buffer: Any, *, master: Any = None, lr: float = 1e-3, weight_decay: float = 0.1,
    momentum: float = 0.95, nesterov: bool = True, ns_coefficients: tuple[float, ...] = COEFFICIENTS, eps: float = 1e-7,
    ns_steps: int = 5, adjust_lr_fn: str | None = None, learning_rate: Any = None,
) -> Any:  # fmt: skip
    """A step of Muon on one matrix, in place: as torch.optim.Muon in formula, roundings and defaults.

    K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024; J. Liu et al., arXiv:2502.16982. param: a
    C-ordered matrix [A, B] (f16, bf16, f32, f64). momentum_buffer: the running mean of the gradient, with weight 1 - momentum
    for the newest; of param's kind or f32 (f64 for f64). grad: of param's kind or f32 (f64), not written. The update is this
    mean, or, nesterov, the gradient moved to it by `momentum`. X, the update in bf16 over its norm, eps or more, is replaced
    ns_steps times by a X + (b G + c G G) X, where G is X times its transpose and (a, b, c) are ns_coefficients: products of bf16
    with f32 sums, whose results are bf16. param loses lr * weight_decay of itself, and X times lr times sqrt(max(1, A / B)), or,
    for adjust_lr_fn="match_rms_adamw", times lr times 0.2 * sqrt(max(A, B)). lr, weight_decay, momentum and eps are run-time
    values; learning_rate, an f32 scalar in device memory, is read in place of lr when the kernel runs. master: the parameters in
    f32, from which 16-bit ones are then rounded. The bits are the same at every call. From the second iteration on, roundings to
    bf16 may be amplified to the size of X, and no error bound is promised of param, as torch's own differ on every device.
    Returns the named tuple of the written operands. Raises InvalidProblemError for numbers out of range, and for arrays that are
    no matrices.
    """


register(Op("muon_update", MuonUpdatePlan, muon_update, samples.muon, peers={"torch": "optim.Muon"}))

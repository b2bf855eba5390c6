"""sparsemax and entmax15 along any axis. A row of the table is an op."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from ....numerics.guarantee import widely
from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Gradient, Op, register
from ....runtime.steps import Step
from ....types import Componentwise, DeviceSpec, ElementKind, OpCategory, PrecisionGuarantee, Term
from ..._axis import AlongAxis
from ..._function import function_of
from ..._rows import FLOATS, RowConfig, computed_in, row_configs, row_cost
from . import oracle, samples

__all__ = [
    "SOURCE", "TABLE", "RowsSparse", "SparsePlan", "SparseSoftmax", "SparseSoftmaxDescriptor", "SparseSoftmaxPlan",
    "entmax15", "sparsemax",
]  # fmt: skip

FILE = "softmax/sparse.cu"
SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, section 4.2"
TABLE = {"sparsemax": "max(x - t, 0)", "entmax15": "max(x / 2 - t, 0)**2"}  # op: what it computes


class SparseSoftmax(AlongAxis):
    """What forward and backward have in common."""

    name: str

    @property
    def squared(self) -> bool:
        return self.name.startswith("entmax15")

    @property
    def template(self) -> str:
        """Types and what is computed, as kernels take them."""
        return f"{self.element.number}, {computed_in(self.element).cuda}, {str(self.squared).lower()}"


@described(Slot("out", "out", takes=FLOATS), Slot("x", takes=FLOATS))
class SparseSoftmaxDescriptor(SparseSoftmax):
    """`name` of an x of `shape` along `axis`, counted from the end if negative."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: int = -1
    name: str = "sparsemax"

    def __post_init__(self) -> None:
        self._names_op(tuple(TABLE), "name")
        super().__post_init__()

    def promised(self, depth: int) -> PrecisionGuarantee:
        """With d additions a term: f(t), a sum of terms that add up to 1, errs by (d + 4) u near its root, and t by that divided
        by f', which is 1 at least. z, t and their difference are 1 at most where they count, and take a rounding each; a square
        doubles what s <= 1 errs by, and f' = 2 sum s is 2 at least then."""
        computed = computed_in(self.element)
        terms = Term(depth + 12.0, computed.element, "one"), Term(1.0, computed.element, "abs_result")
        bound = Componentwise.rounded(terms, self.element, SOURCE)
        return PrecisionGuarantee.fixed_order(computed.math, computed.element, bound)


class RowsSparse(Candidate[Any]):
    """A group of threads per row, which stays in registers where it fits."""

    variant = "rows"
    kernel: ClassVar[str]
    instructions: ClassVar[float]

    def __init_subclass__(cls) -> None:
        cls.launches = (f"{FILE}:{cls.kernel}",)

    def guarantee(self, desc: Any, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        return desc.promised(config.depth(desc.extent))  # type: ignore[no-any-return]

    def cost(self, desc: Any, device: DeviceSpec, config: RowConfig) -> Cost:
        return row_cost(device, desc.rows(), desc.nbytes, config, desc.element, instructions=self.instructions)

    def lower(self, desc: Any, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        return (desc.rows().launch(FILE, self.kernel, desc.template, config),)


class RowsSparseSoftmax(RowsSparse):
    """A group of threads per row, which stays in registers where it fits; else each of Newton's steps reads it again."""

    kernel, instructions = "sparse_softmax", 60.0

    def configs(self, desc: SparseSoftmaxDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        return row_configs(desc.extent, desc.rows().vector(desc.element), desc.element)


class SparsePlan(Plan[Any]):
    """What the plans of sparse softmax and of its gradient share."""

    category = OpCategory.SOFTMAX

    @staticmethod
    def reference_guarantee(desc: Any) -> PrecisionGuarantee:
        return widely(desc.promised(1), desc, desc.extent)


class SparseSoftmaxPlan(SparsePlan):
    """sparsemax or entmax15 along an axis: operands `x` and `out`."""

    descriptor = SparseSoftmaxDescriptor
    candidates = (RowsSparseSoftmax(),)
    measures = oracle.MEASURES
    probes = (
        *({"shape": (3, n), "element": e} for e in ("f32", "bf16", "f64") for n in (100, 4096, 50257)),
        {"shape": (6, 40), "element": "f32", "x_strides": (1, 6), "name": "entmax15"},
    )
    reference = oracle.sparse


def _along(x: Any, /, axis: int = -1) -> Any: ...


_DOC = """{name}: {formula} along an axis, of which t makes the sum 1. What is far below the largest element is exactly 0.

x: an array of any shape and strides (f16, bf16, f32, f64), fastest along the innermost axis. axis: counted from the end if
negative.
out: an array of x's shape and dtype, x itself included; allocated in C order if not given. Computed in f32 (f64 for f64) and
rounded once; the error is absolute: some ulps of 1 (`plan.guarantee`). t comes of Newton's steps, of which a row takes a few, and
at most log2(n) + 14 (f64: 28); long rows are read again for each. A row that holds NaN or +inf, or -inf alone, is NaN.
Returns out. Raises InvalidProblemError for an axis that there is not.
"""


def _published(name: str) -> Callable[..., Any]:
    """The function of a row of the table, which is registered."""
    doc = _DOC.format(name=name, formula=TABLE[name])
    function = function_of(SparseSoftmaxPlan, called=name, doc=doc, name=name)(_along)
    gradient = Gradient(f"{name}_backward", ("out",), {"x": "grad_x"}, renames={"out": "y"})
    register(Op(name, SparseSoftmaxPlan, function, samples.sparse, {"name": name}, gradient))
    return function


sparsemax = _published("sparsemax")
entmax15 = _published("entmax15")

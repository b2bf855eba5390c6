"""What a running sum is, and its error bound."""

from __future__ import annotations

from ...plan.descriptor import Slot, described
from ...types import Componentwise, ElementKind, OperandTypeError, PrecisionGuarantee, Term
from .._axis import AlongAxis
from .._rows import FLOATS, computed_in

__all__ = ["CumsumDescriptor", "promised"]

INTEGERS = tuple(kind for kind in ElementKind if kind.is_integer and not kind.packed)
SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, section 4.2"


@described(Slot("out", "out", element="out_element"), Slot("x", takes=(*FLOATS, *INTEGERS)))
class CumsumDescriptor(AlongAxis):
    """The sums of an x of `shape` up to each element along `axis`, counted from the end if negative."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: int = -1
    out_element: ElementKind | None = None

    name = "cumsum"

    def default_element(self, name: str) -> ElementKind:
        return self.summed if self.element.is_integer else self.element

    @property
    def summed(self) -> ElementKind:
        """The kind that sums are computed in."""
        if self.element.is_integer:
            return ElementKind.U64 if self.element.value[0] == "u" else ElementKind.I64
        return computed_in(self.element).element

    def check(self) -> None:
        super().check()
        wanted = self.default_element("out")
        if self.out_element not in (None, wanted):
            raise OperandTypeError(
                f"{self.op}: out must hold {wanted}, got {self.out_element}", f"pass an out of {wanted}"
            )

    @property
    def backwards(self) -> bool:
        """Whether it goes from the last element on."""
        return False

    @property
    def template(self) -> str:
        """Types of x, out and sums, as kernels take them."""
        return f"{self.element.number}, {self.layout('out').element.number}, {self.state}"

    @property
    def state(self) -> str:
        """The CUDA type of what is put together."""
        return self.summed.number

    @property
    def total(self) -> ElementKind:
        """A kind of the size of that type."""
        return self.summed

    @property
    def prelude(self) -> str:
        """The text put before the kernels' files."""
        return ""

    def promised(self, depth: int) -> PrecisionGuarantee:
        """What results promise whose terms go through `depth` additions at most."""
        return promised(self, depth)


def promised(desc: CumsumDescriptor, depth: int) -> PrecisionGuarantee:
    """What sums promise whose terms go through `depth` additions at most, u being the unit roundoff of what is computed in.

    Each result is a sum of its own, in a tree of that depth: it errs by depth u sum|terms up to it| (N. J. Higham, *Accuracy and
    Stability of Numerical Algorithms*, 2nd ed., section 4.2), and by one rounding to its type. Integers wrap, as in NumPy.
    """
    if desc.element.is_integer:
        return PrecisionGuarantee.exact(desc.layout("out").element)
    computed = computed_in(desc.element)
    sums = Term(depth + 1.0, computed.element, "abs_sum")  # one more for terms of higher order
    bound = Componentwise.rounded((sums,), desc.element, SOURCE, "overflowing")
    return PrecisionGuarantee.fixed_order(computed.math, computed.element, bound, batch_invariant=True)

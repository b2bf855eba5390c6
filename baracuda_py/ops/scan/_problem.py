"""What a running sum is, and its error bound."""

from __future__ import annotations

from typing import Any, ClassVar

from ...plan.descriptor import Slot, described
from ...plan.fields import flag
from ...types import Componentwise, ElementKind, InvalidProblemError, OperandTypeError, PrecisionGuarantee, Term
from .._axis import AlongAxis
from .._rows import FLOATS, computed_in
from ._exclusive import shifted_fields
from ._reversed import reversed_layouts

__all__ = ["LATER", "NAMES", "CumsumDescriptor", "check_flags", "promised"]

INTEGERS = tuple(kind for kind in ElementKind if kind.is_integer and not kind.packed)
NAMES = {"x": "x", "out": "out"}  # operands of the forward scan
LATER = ("out",)  # operands of an exclusive scan that leave out the first element
SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, section 4.2"


def check_flags(desc: Any) -> None:
    """Raises where `reverse` or `exclusive` is no bool."""
    for name in ("reverse", "exclusive"):
        given = getattr(desc, name)
        if given is not True and given is not False:
            raise InvalidProblemError(f"{desc.op}: {name} must be True or False, got {given!r}", "give a bool")


@described(Slot("out", "out", element="out_element"), Slot("x", takes=(*FLOATS, *INTEGERS)))
class CumsumDescriptor(AlongAxis):
    """The sums of an x of `shape` up to each element along `axis`, counted from the end if negative; from each one on where
    `reverse`, and of all but the element itself where `exclusive`."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: int = -1
    reverse: bool = False
    exclusive: bool = False
    out_element: ElementKind | None = None

    name = "cumsum"
    edge: ClassVar[float] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("reverse", "exclusive"), flag)

    def default_element(self, name: str) -> ElementKind:
        return self.summed if self.element.is_integer else self.element

    @property
    def summed(self) -> ElementKind:
        """The kind that sums are computed in."""
        if self.element.is_integer:
            return ElementKind.U64 if self.element.value[0] == "u" else ElementKind.I64
        return computed_in(self.element).element

    def check(self) -> None:
        check_flags(self)
        super().check()
        wanted = self.default_element("out")
        if self.out_element not in (None, wanted):
            raise OperandTypeError(
                f"{self.op}: out must hold {wanted}, got {self.out_element}", f"pass an out of {wanted}"
            )

    @property
    def backwards(self) -> bool:
        """Whether it goes from the last element on."""
        return self.reverse

    def in_place(self, written: str, read: str) -> bool:
        """An exclusive scan's results go to the places of elements that are yet to be read."""
        return not self.exclusive

    def reversed(self) -> CumsumDescriptor:
        """The forward scan of the reversed views."""
        fields: dict[str, Any] = {"out_element": self.out_element, **reversed_layouts(self, NAMES)}
        return CumsumDescriptor(self.shape, self.element, self.axis, **fields)

    def inclusive(self) -> CumsumDescriptor:
        """The scan of all elements but one, each counted itself."""
        return CumsumDescriptor(**shifted_fields(self, LATER), out_element=self.out_element)

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

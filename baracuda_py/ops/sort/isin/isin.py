"""isin: which elements are among others, by sort and binary search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Descriptor, Slot, described
from ....plan.fields import flag
from ....plan.lowering import Sub
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....plan.selection import Selection, selected
from ....runtime.steps import Fill, Ptr, Scratch, Step
from ....tensor.axes import c_strides, merge_axes
from ....types import BinaryKind, DeviceSpec, ElementKind, OpCategory
from ..._function import function_of
from ...elementwise.binary import BinaryDescriptor, BinaryPlan
from ...indexing.select import IndexSelectDescriptor, IndexSelectPlan
from ...shape_layout.contiguize import ContiguizeDescriptor, ContiguizePlan
from ..searchsorted import SearchsortedDescriptor, SearchsortedPlan
from ..topk import KEYS
from ..whole.sort import SortDescriptor, SortPlan
from . import oracle, samples

__all__ = ["IsinDescriptor", "IsinPlan", "isin"]

BOOL = ElementKind.BOOL
MOST_I32 = 1 << 31  # elements whose places are all int32
PARTS: tuple[type[Plan[Any]], ...] = (ContiguizePlan, SortPlan, SearchsortedPlan, IndexSelectPlan, BinaryPlan)


@described(
    Slot("out", "out", element=BOOL, shape="elements_shape", strided=False),
    Slot("elements", takes=KEYS, element="element"),
    Slot("test_elements", takes=KEYS, element="element"),
)
class IsinDescriptor(Descriptor):
    """elements of `elements_shape`, each looked for among those of `test_elements_shape`. `invert`: whether it is not there."""

    elements_shape: tuple[int, ...]
    test_elements_shape: tuple[int, ...]
    element: ElementKind
    invert: bool = False

    name = "isin"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("invert",), flag)

    @property
    def tested(self) -> int:
        """How many elements there are to be equal to."""
        return math.prod(self.test_elements_shape)


@dataclass(frozen=True)
class Parts:
    """A configuration: what copies test_elements where no stride leads along them, sorts them, finds the place of each element
    among them, picks what is there, and compares."""

    copy: Selection | None
    sort: Selection
    search: Selection
    pick: Selection
    compare: Selection

    @property
    def each(self) -> Iterator[tuple[str, Selection]]:
        held = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ((name, part) for name, part in held if part is not None)

    def __str__(self) -> str:
        return " ".join(f"{name}={part.candidate.variant}" for name, part in self.each)


class BySearch(Candidate[IsinDescriptor]):
    """test_elements sorted through scratch, the place of each element found there, and compared with what is at that place."""

    variant = "search"
    launches = tuple(
        dict.fromkeys(launch for plan in PARTS for candidate in plan.all_candidates() for launch in candidate.launches)
    )

    def configs(self, desc: IsinDescriptor, device: DeviceSpec) -> Iterable[Parts | None]:
        if not desc.tested or 0 in desc.elements_shape:
            yield None
            return
        elements, tested, count = desc.layout("elements"), desc.layout("test_elements"), desc.tested
        extents, (strides,) = merge_axes(tested.shape, [tested.strides])
        copy, of_line = None, {}
        if len(extents) > 1:
            given: dict[str, Any] = {"x_strides": tested.strides, "x_align": tested.align}
            copy = selected(ContiguizePlan, ContiguizeDescriptor(tested.shape, desc.element, **given), None, device)
        else:
            of_line = {"x_strides": strides or (1,), "x_align": tested.align}
        index = ElementKind.I32 if count < MOST_I32 else ElementKind.I64
        shape, layout = desc.elements_shape, (elements.strides, elements.align)
        order: Any = SortDescriptor
        search: Any = SearchsortedDescriptor
        pick: Any = IndexSelectDescriptor
        compare: Any = BinaryDescriptor
        kind = BinaryKind("not_equal" if desc.invert else "equal")
        yield Parts(
            copy,
            selected(SortPlan, order((count,), desc.element, index_dtype=index, **of_line), None, device),
            selected(
                SearchsortedPlan,
                search((count,), shape, desc.element, index, values_strides=layout[0], values_align=layout[1]),
                None, device,
            ),
            selected(IndexSelectPlan, pick((count,), shape, desc.element, index, 0, "clip"), None, device),
            selected(
                BinaryPlan,
                compare(kind, shape, shape, desc.element, desc.element, x1_strides=layout[0], x1_align=layout[1],
                        out_strides=c_strides(shape), out_align=desc.layout("out").align),
                None, device,
            ),
        )  # fmt: skip

    def cost(self, desc: IsinDescriptor, device: DeviceSpec, config: Parts | None) -> Cost:
        if config is None:
            return Cost.streaming(device, math.prod(desc.elements_shape))
        costs = [part.cost for _, part in config.each]
        longest = max(costs, key=lambda cost: cost.seconds)
        return Cost(
            sum(c.bytes for c in costs),
            sum(c.flops for c in costs),
            sum(c.seconds for c in costs),
            longest.limit,
        )

    def lower(self, desc: IsinDescriptor, device: DeviceSpec, config: Parts | None) -> tuple[Step | Sub, ...]:
        found, elements = math.prod(desc.elements_shape), Ptr("elements")
        if config is None:
            return (Fill(Ptr("out"), int(desc.invert), found),) if found else ()
        index = ElementKind.I32 if desc.tested < MOST_I32 else ElementKind.I64
        nbytes = desc.element.nbytes(desc.tested)
        ordered, order = Scratch.named("sorted", nbytes), Scratch.named("order", index.nbytes(desc.tested))
        places, nearest = (
            Scratch.named("places", index.nbytes(found)),
            Scratch.named("nearest", desc.element.nbytes(found)),
        )
        copied, steps = Scratch.named("copy of test_elements", nbytes), []
        if config.copy:
            steps = [Sub(config.copy, {"x": Ptr("test_elements"), "out": copied})]
        tested = copied if config.copy else Ptr("test_elements")
        return (
            *steps,
            Sub(config.sort, {"x": tested, "values": ordered, "indices": order}),
            Sub(config.search, {"sorted_sequence": ordered, "values": elements, "out": places}),
            Sub(config.pick, {"x": ordered, "index": places, "out": nearest}),
            Sub(config.compare, {"x1": elements, "x2": nearest, "out": Ptr("out")}),
        )


class IsinPlan(Plan[IsinDescriptor]):
    """Which elements are among others: operands `elements`, `test_elements` and `out`."""

    descriptor = IsinDescriptor
    category = OpCategory.SORT
    candidates = (BySearch(),)
    probes = (
        {"elements_shape": (33, 70), "test_elements_shape": (40,), "element": "f32"},
        {"elements_shape": (5000,), "test_elements_shape": (9, 700), "element": "i64", "invert": True},
        {
            "elements_shape": (7,),
            "test_elements_shape": (30, 20),
            "element": "bf16",
            "test_elements_strides": (21, 1),
        },
    )
    reference = oracle.isin


@function_of(IsinPlan)
def isin(elements: Any, test_elements: Any, *, invert: bool = False) -> Any:
    """Whether each of `elements` is equal to one of `test_elements`, as numpy.isin and torch.isin: bools of elements' shape.

    elements, test_elements: arrays of one kind (f16, bf16, f32, f64 or integers), of any shapes and strides; the latter are
    sorted through scratch memory, then each element is searched for. A NaN is equal to nothing, -0.0 equals 0.0, and nothing is
    among none. invert: whether each is not. Nothing waits for the device.
    out: bools in C order; allocated if not given. Returns out. Raises OperandTypeError where the kinds differ.
    """


register(Op("isin", IsinPlan, isin, samples.isin, peers={"cupy": "isin", "torch": "isin"}))

"""relayout_int4: the arrays of an int4 weight from one layout to another."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np

from ....packed.int4 import BYTES, Int4Layout, check_places, check_problem, check_zeros, host_values, shapes_of
from ....plan.candidate import Candidate, Cost, Feasibility
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....runtime.steps import Kernel, Launch, Ptr, Step
from ....types import DeviceSpec, ElementKind, OpCategory
from ..._function import CallArgs, function_of
from ..._launch import grid_of
from .._arguments import pointer
from .._conversion_costs import ConversionCosts
from . import oracle, samples
from .weight import HALVES, SLOTS, WORDS, Int4Weight, cuda_layout, extents_of, groups_fit, taken_weight

__all__ = ["RelayoutInt4Descriptor", "RelayoutInt4Plan", "relayout_int4"]

THREADS = 256
BYTE_OR_WORD = (ElementKind.U8, *WORDS)


@described(
    Slot("out", "out", takes=BYTE_OR_WORD, shape="to_codes_shape", strided=False),
    Slot("out_scales", "out", takes=HALVES, shape="to_scales_shape", element="scales_element", strided=False),
    Slot("out_zeros", "out", optional=True, takes=BYTE_OR_WORD, shape="to_points_shape", strided=False),
    *SLOTS,
    Slot("gather", optional=True, takes=(ElementKind.I32,), shape="places_shape", strided=False, aligned=False),
)
class RelayoutInt4Descriptor(Int4Weight):
    """A weight of `shape` (K, N) in layout `packing`, to be in layout `to`. `out_zeros_element` says that it has zero points."""

    shape: tuple[int, ...]
    group_size: int = 128
    packing: Int4Layout = Int4Layout.GPTQ
    to: Int4Layout = Int4Layout.TILED
    codes_element: ElementKind = ElementKind.U32
    scales_element: ElementKind = ElementKind.F16
    out_element: ElementKind | None = None

    name = "relayout_int4"
    needed: ClassVar[tuple[str, ...]] = ("group_size",)

    @classmethod
    def of(
        cls, codes: Any, scales: Any, zeros: Any = None, gather: Any = None, *, out: Any = None, out_scales: Any = None,
        out_zeros: Any = None, shape: Any = None, group_size: int = 128, layout: Any = Int4Layout.GPTQ,
        to: Any = Int4Layout.TILED,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout."""
        named = {"codes": codes, "scales": scales, "zeros": zeros, "gather": gather}
        named |= {"out": out, "out_scales": out_scales, "out_zeros": out_zeros}
        tensors = cls.taken(cls.name, named)
        packing, shape = taken_weight(cls.name, tensors, layout, shape, group_size)
        to = Int4Layout.of(to, f"{cls.name}: to")
        options: dict[str, Any] = {"shape": shape, "group_size": group_size, "packing": packing, "to": to}
        if zeros is not None and out_zeros is None:
            options["out_zeros_element"] = ElementKind.U8 if to in BYTES else ElementKind.I32
        return cls.of_tensors(tensors, **options)

    @property
    def weight_shape(self) -> tuple[int, int]:
        return self.as_weight(self.shape)

    @property
    def to_shapes(self) -> dict[str, tuple[int, ...]]:
        return shapes_of(self.to, self.weight_shape, self.group_size)

    @property
    def to_codes_shape(self) -> tuple[int, ...]:
        return self.to_shapes["codes"]

    @property
    def to_scales_shape(self) -> tuple[int, ...]:
        return self.to_shapes["scales"]

    @property
    def to_points_shape(self) -> tuple[int, ...]:
        return self.to_shapes["zeros"]

    def default_element(self, name: str) -> ElementKind:
        """As the formats' own tools hold them."""
        if self.to is Int4Layout.PLAIN:
            return ElementKind.U8
        return ElementKind.I32 if self.to in (Int4Layout.AWQ, Int4Layout.GPTQ) else ElementKind.U32

    def check(self) -> None:
        self.check_weight()
        check_problem(self.op, self.to, self.weight_shape, self.group_size)
        check_zeros(self.op, self.to, self.weight_shape, zeros=self.has("zeros"), order=False)
        self.check_kinds(self.to, "out", "out_zeros")
        self.check_pair("zeros", "out_zeros")


class ByWords(Candidate[RelayoutInt4Descriptor]):
    """A thread a word of the new layout, and one eight scales and zero points."""

    variant = "words"
    launches = ("quantized/int4_pack.cu:repack", "quantized/int4_pack.cu:repack_groups")

    def supports(self, desc: RelayoutInt4Descriptor, device: DeviceSpec) -> Feasibility:
        return groups_fit(desc)

    def cost(self, desc: RelayoutInt4Descriptor, device: DeviceSpec, config: Any) -> Cost:
        efficiency = ConversionCosts.of(device).int4_relayout_efficiency
        return Cost.streaming(device, desc.nbytes, efficiency=efficiency)

    def lower(self, desc: RelayoutInt4Descriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        k, n = desc.weight_shape
        words, columns = math.prod(desc.to_codes_shape), desc.to_scales_shape[1]
        layouts = f"{cuda_layout(desc.packing)}, {cuda_layout(desc.to)}"
        codes = (Ptr("codes"), Ptr("out"), pointer(desc, "gather"), np.uint32(k), np.uint32(n), np.uint64(words))
        points = (
            Ptr("scales"), pointer(desc, "zeros"), Ptr("out_scales"), pointer(desc, "out_zeros"), np.uint32(n),
            np.uint32(desc.columns), np.uint32(columns),
        )  # fmt: skip
        kinds = f"{layouts}, {desc.layout('scales').element.number}"
        block = (THREADS, 1, 1)
        return (
            Launch(Kernel("quantized/int4_pack.cu", f"repack<{layouts}>"), grid_of(words, THREADS), block, codes),
            Launch(
                Kernel("quantized/int4_pack.cu", f"repack_groups<{kinds}>"),
                (grid_of(columns, 8 * THREADS)[0], desc.groups, 1), block, points,
            ),
        )  # fmt: skip


class RelayoutInt4Plan(Plan[RelayoutInt4Descriptor]):
    """A weight's arrays in another layout: operands `codes`, `scales`, and as it has them `zeros` and `gather`; `out`,
    `out_scales`, `out_zeros`."""

    descriptor = RelayoutInt4Descriptor
    category = OpCategory.QUANTIZATION
    candidates = (ByWords(),)
    probes = (
        {
            "shape": (128, 48),
            "packing": "gptq",
            "zeros_element": "i32",
            "out_zeros_element": "u8",
            "gather_element": "i32",
        },
        {"shape": (128, 48), "packing": "awq"},
        {"shape": (128, 48), "packing": "kaio"},
        {"shape": (128, 48), "packing": "plain", "codes_element": "u8"},
        {"shape": (128, 48), "packing": "tiled", "to": "awq", "zeros_element": "u8", "out_zeros_element": "i32"},
    )
    reference = oracle.repack


@function_of(RelayoutInt4Plan)
def relayout_int4(
    codes: Any, scales: Any, zeros: Any = None, gather: Any = None, *, shape: Any = None, group_size: int = 128,
    layout: Any = "gptq", to: Any = "tiled", out: Any = None, out_scales: Any = None, out_zeros: Any = None,
) -> CallArgs:  # fmt: skip
    """An int4 weight's codes, scales and zero points in layout `to`; `repack_int4` does it for a PackedInt4.

    codes, scales, zeros: as PackedInt4 has them in `layout`; shape: (K, N), which only "tiled" needs.
    gather: int32 [K], which k of the old layout each k of the new one is; by default the same. It is read on the host to check
    that there are such k's, which waits for the device: this is done once for a weight.
    Returns (out, out_scales), and out_zeros with zeros. A zero point that `to` has no room for loses its upper bits.
    """
    if gather is not None and (places := host_values(gather)) is not None and places.dtype.kind in "iu":
        check_places("relayout_int4: gather", places.ravel(), places.size, "k's")
    operands = {"out": out, "out_scales": out_scales}
    given = {
        "out_zeros": zeros is not None or out_zeros is not None,
        "zeros": zeros is not None,
        "gather": gather is not None,
    }
    named = {"out_zeros": out_zeros, "codes": codes, "scales": scales, "zeros": zeros, "gather": gather}
    operands |= {name: x for name, x in named.items() if given.get(name, True)}
    whole = None if shape is None else extents_of("relayout_int4", "shape", shape, ("K", "N"))
    options = {"shape": whole, "group_size": group_size, "layout": layout, "to": to}
    key = (tuple(operands), *options.values())
    return operands, lambda: RelayoutInt4Descriptor.of(**operands, **options), key, None, None


register(Op("relayout_int4", RelayoutInt4Plan, relayout_int4, samples.relayout_int4))

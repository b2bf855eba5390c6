"""qkv_project_int4: queries, keys and values of the same tokens, of weights of int4 codes."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

from ...packed.int4 import Int4Layout, PackedInt4
from ...plan.descriptor import Descriptor, Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...reference import int4_projection as oracle
from ...samples import int4_projection as samples
from ...types import ElementKind, InvalidProblemError, OpCategory, PrecisionGuarantee
from .._function import Asked, function_of
from ._int4_kernels import Int4Gemv, Int4Mma
from ._int4_projections import FusedInt4, ThreeInt4Products
from ._int4_weight import HALVES, WORDS, arrays_of, extents_of, taken_weight
from .int4 import Int4MatmulDescriptor

__all__ = ["QkvProjectInt4Descriptor", "QkvProjectInt4Plan", "qkv_project_int4"]

PARTS = ("q", "k", "v")
OF_EACH = ("N of q", "N of k", "N of v")
OF_WEIGHT = {
    "codes": "w{}",
    "scales": "scales_{}",
    "zeros": "zeros_{}",
    "order": "order_{}",
    "bias": "bias_{}",
    "out": "{}",
}
U8, I32, F32 = ElementKind.U8, ElementKind.I32, ElementKind.F32


def _slots(part: str) -> tuple[Slot, ...]:
    """What a projection has of its own."""
    return (
        Slot(f"w{part}", takes=(*WORDS, U8), shape=f"codes_shape_{part}", element="codes_element", strided=False),
        Slot(f"scales_{part}", takes=HALVES, shape=f"scales_shape_{part}", element="scales_element", strided=False),
        Slot(f"zeros_{part}", optional=True, takes=(U8, *WORDS), shape=f"points_shape_{part}", strided=False),
        Slot(f"order_{part}", optional=True, takes=(I32,), shape="places_shape", strided=False, aligned=False),
        Slot(f"bias_{part}", optional=True, takes=(*HALVES, F32)),
    )


def _shape_of(part: str, what: str) -> property:
    return property(lambda self: self.part(part).shapes[what])


def _out_shape(i: int) -> property:
    return property(lambda self: (*self.x_shape[:-1], self.widths[i]))


@described(
    *(Slot(part, "out", takes=(*HALVES, F32), shape=f"{part}_shape", element="out_element") for part in PARTS),
    Slot("x", takes=HALVES, element="element"),
    *(slot for part in PARTS for slot in _slots(part)),
)
class QkvProjectInt4Descriptor(Descriptor):
    """q, k, v = x Wq + bias_q, x Wk + bias_k, x Wv + bias_v: x [..., K], weights [K, `widths`] of int4 codes, in one layout."""

    x_shape: tuple[int, ...]
    widths: tuple[int, ...]
    element: ElementKind
    group_size: int = 128
    packing: Int4Layout = Int4Layout.TILED
    codes_element: ElementKind = ElementKind.U32
    scales_element: ElementKind = ElementKind.F16
    out_element: ElementKind | None = None

    name = "qkv_project_int4"
    codes_shape_q, codes_shape_k, codes_shape_v = (_shape_of(part, "codes") for part in PARTS)
    scales_shape_q, scales_shape_k, scales_shape_v = (_shape_of(part, "scales") for part in PARTS)
    points_shape_q, points_shape_k, points_shape_v = (_shape_of(part, "zeros") for part in PARTS)
    q_shape, k_shape, v_shape = map(_out_shape, range(3))

    @classmethod
    def of(
        cls, x: Any, wq: Any, wk: Any, wv: Any, scales_q: Any, scales_k: Any, scales_v: Any, *, zeros_q: Any = None,
        zeros_k: Any = None, zeros_v: Any = None, order_q: Any = None, order_k: Any = None, order_v: Any = None,
        bias_q: Any = None, bias_k: Any = None, bias_v: Any = None, q: Any = None, k: Any = None, v: Any = None,
        widths: Any = None, group_size: int = 128, layout: Any = "tiled", out_dtype: Any = None,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays as they lie."""
        tensors = cls.taken(cls.name, {
            "q": q, "k": k, "v": v, "x": x, "wq": wq, "wk": wk, "wv": wv, "scales_q": scales_q, "scales_k": scales_k,
            "scales_v": scales_v, "zeros_q": zeros_q, "zeros_k": zeros_k, "zeros_v": zeros_v, "order_q": order_q,
            "order_k": order_k, "order_v": order_v, "bias_q": bias_q, "bias_k": bias_k, "bias_v": bias_v,
        })  # fmt: skip
        if not tensors["x"].shape:
            raise InvalidProblemError(f"{cls.name}: x has rank 0", "pass x of shape (..., K)")
        of_k, shapes = tensors["x"].shape[-1], []
        widths = None if widths is None else extents_of(cls.name, "widths", widths, OF_EACH)
        for i, part in enumerate(PARTS):
            named = {name: OF_WEIGHT[name].format(part) for name in ("codes", "scales", "zeros", "order")}
            own = {name: tensors[ours] for name, ours in named.items() if ours in tensors}
            given = None if widths is None else (of_k, widths[i])
            packing, shape = taken_weight(f"{cls.name}: w{part}", own, layout, given, group_size, of_k)
            shapes.append(shape[1])
        options: dict[str, Any] = {"widths": tuple(shapes), "group_size": group_size, "packing": packing}
        options |= {} if out_dtype is None else {"out_element": ElementKind.of(out_dtype)}
        return cls.of_tensors(tensors, **options)

    @property
    def places_shape(self) -> tuple[int, ...]:
        return self.x_shape[-1:]

    @property
    def outputs(self) -> tuple[str, ...]:
        return PARTS

    def default_element(self, name: str) -> ElementKind:
        return self.element

    def part(self, part: str) -> Int4MatmulDescriptor:
        """One of the products."""
        own: dict[str, Any] = {"x_shape": self.x_shape, "n": self.widths[PARTS.index(part)], "x_element": self.element}
        own |= {"x_strides": self.x_strides, "x_align": self.x_align, "out_element": self.out_element}  # type: ignore[attr-defined]
        own |= {name: getattr(self, name) for name in ("group_size", "packing", "codes_element", "scales_element")}
        for theirs, called in OF_WEIGHT.items():
            for what in ("shape", "element", "strides", "align"):
                field = f"{theirs}_{what}"
                if field in Int4MatmulDescriptor.put_in and field != "out_element":
                    own[field] = getattr(self, f"{called.format(part)}_{what}")
        return Int4MatmulDescriptor(**own)

    @cached_property
    def parts(self) -> tuple[tuple[Int4MatmulDescriptor, dict[str, str]], ...]:
        """The products, canonical, and what their operands are called here."""
        return tuple(
            (
                self.part(part).canonical(),
                {"x": "x"} | {theirs: called.format(part) for theirs, called in OF_WEIGHT.items()},
            )
            for part in PARTS
        )

    def check(self) -> None:
        if not self.x_shape or len(self.widths) != 3:
            raise InvalidProblemError(f"{self.op}: widths={self.widths}", "give those of q, k and v")
        for part in PARTS:
            self.part(part).validate()


def _probes() -> Any:
    for m, element, more in (
        (1, "f16", {}), (9, "bf16", {"group_size": 32, "zeros": True}), (100, "bf16", {}), (4096, "f16", {}),
    ):  # fmt: skip
        more, made = dict(more), {"x_shape": (m, 1024), "element": element, "widths": (1024, 256, 128)}
        zeros = more.pop("zeros", False)
        yield {**made, **more, **({f"zeros_{part}_element": "u8" for part in PARTS} if zeros else {})}


class QkvProjectInt4Plan(Plan[QkvProjectInt4Descriptor]):
    """Queries, keys and values of the same tokens: operands `x`, `wq`, `wk`, `wv` (codes), `scales_q` and so on, `q`, `k`, `v`,
    and those of `zeros_q`, `order_q`, `bias_q` and so on that the problem has."""

    descriptor = QkvProjectInt4Descriptor
    category = OpCategory.QUANTIZATION
    candidates = (FusedInt4("fused_gemv", Int4Gemv()), FusedInt4("fused_mma", Int4Mma()), ThreeInt4Products())
    measures = oracle.MEASURES
    probes = tuple(_probes())

    @classmethod
    def reference(cls, desc: QkvProjectInt4Descriptor, **arrays: Any) -> Any:
        return oracle.project(desc, **arrays)

    @classmethod
    def reference_guarantee(cls, desc: QkvProjectInt4Descriptor) -> PrecisionGuarantee:
        return oracle.guarantee(desc)


@function_of(QkvProjectInt4Plan)
def qkv_project_int4(
    x: Any, wq: Any, wk: Any, wv: Any, scales_q: Any = None, scales_k: Any = None, scales_v: Any = None, *, zeros_q: Any = None,
    zeros_k: Any = None, zeros_v: Any = None, order_q: Any = None, order_k: Any = None, order_v: Any = None, bias_q: Any = None,
    bias_k: Any = None, bias_v: Any = None, widths: Any = None, group_size: int | None = None, layout: Any = None,
    out_dtype: Any = None, q: Any = None, k: Any = None, v: Any = None,
) -> Asked:  # fmt: skip
    """Queries, keys and values of the same tokens, x Wq + bias_q and so on, x being read once where one launch does it.

    x: [..., K], f16 or bf16. wq, wk, wv: a PackedInt4 each, of one layout and group size, of widths of their own; or their codes,
    with `scales_q` and so on, `widths` (N of each; only layout "tiled" needs it), `group_size` (128) and `layout` ("tiled").
    Biases, out_dtype: as for `matmul_int4`.
    Returns the named tuple (q, k, v), [..., N] each.
    """
    given = {
        "q": (wq, scales_q, zeros_q, order_q),
        "k": (wk, scales_k, zeros_k, order_k),
        "v": (wv, scales_v, zeros_v, order_v),
    }
    named: dict[str, Any] = {}
    options: dict[str, Any] = {
        "widths": None if widths is None else extents_of("qkv_project_int4", "widths", widths, OF_EACH),
        "group_size": 128,
        "layout": "tiled",
    }
    kinds = set()
    for part, arrays in given.items():
        own, described_by = arrays_of(f"qkv_project_int4: w{part}", *arrays, None, group_size, layout)
        named |= {OF_WEIGHT[name].format(part): x for name, x in own.items()}
        kinds.add((described_by["layout"], described_by["group_size"]))
        options |= {name: described_by[name] for name in ("group_size", "layout")}
    if isinstance(wq, PackedInt4) and isinstance(wk, PackedInt4) and isinstance(wv, PackedInt4):
        own_widths = (wq.shape[1], wk.shape[1], wv.shape[1])
        if options["widths"] not in (None, own_widths):
            raise InvalidProblemError(
                f"qkv_project_int4: widths={options['widths']}, and the weights have {own_widths}", "leave widths out"
            )
        options["widths"] = own_widths
    if len(kinds) > 1:
        raise InvalidProblemError(
            f"qkv_project_int4: weights of layouts and groups {', '.join(sorted(f'{a} {b}' for a, b in kinds))}",
            "pack all three alike, or call matmul_int4 three times",
        )
    named |= {f"bias_{part}": x for part, x in (("q", bias_q), ("k", bias_k), ("v", bias_v)) if x is not None}
    order = QkvProjectInt4Descriptor.slot_of
    every = {"q": q, "k": k, "v": v, "x": x, **named}
    operands = {name: every[name] for name in order if name in every}
    key = (tuple(operands), *options.values(), out_dtype)
    return operands, lambda: QkvProjectInt4Descriptor.of(**operands, **options, out_dtype=out_dtype), key, None, None


register(Op("qkv_project_int4", QkvProjectInt4Plan, qkv_project_int4, samples.project))

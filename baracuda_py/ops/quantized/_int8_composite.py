"""Products in several steps: operands copied so that they lie along K, tokens quantised, or weights dequantised ahead."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...plan.lowering import Place, Sub
from ...plan.registry import get_op
from ...plan.selection import Selection, selected
from ...runtime.steps import Ptr, Scratch
from ...types import BaracudaError, DeviceSpec, ElementKind, MathPrecision, PrecisionGuarantee
from ..gemm.matmul import MatmulDescriptor, MatmulPlan
from ..shape_layout.write_slice import WriteSliceDescriptor, WriteSlicePlan
from ._int8_gemv import LAUNCHES as GEMV_LAUNCHES
from ._int8_guarantee import guarantee
from ._int8_mma import LAUNCHES as MMA_LAUNCHES
from ._int8_problem import CODES, HALVES, Product, Side, group_of
from ._quantise import QuantiseRows
from .quantize_int8 import DequantizeDescriptor, DequantizePlan, QuantizeDescriptor, QuantizePlan

__all__ = ["Dequantised", "Quantised", "Staged"]

PITCH = 16  # bytes of which a copied line is a multiple
COPIES = tuple(dict.fromkeys(kernel for candidate in WriteSlicePlan.candidates for kernel in candidate.launches))


@dataclass(frozen=True)
class Steps:
    """A configuration: what is launched, by name."""

    parts: tuple[tuple[str, Selection], ...]

    def __str__(self) -> str:
        return " ".join(
            f"{name}={part.candidate.variant}" + (f"[{part.config}]" if str(part.config) else "")
            for name, part in self.parts
        )

    @property
    def of(self) -> dict[str, Selection]:
        return dict(self.parts)

    def cost(self, product: Product) -> Cost:
        costs = [part.cost for _, part in self.parts]
        return Cost(product.nbytes, product.flops, sum(cost.seconds for cost in costs), costs[-1].limit)


def _pitch(extent: int) -> int:
    return max(1, -(-extent // PITCH)) * PITCH


class _Composite(Candidate[Any]):
    """One configuration, made of other plans' selections."""

    def parts(self, desc: Any, device: DeviceSpec) -> tuple[tuple[str, Selection], ...]:
        raise NotImplementedError

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Steps]:
        try:
            yield Steps(_parts(self, desc, device))
        except BaracudaError:  # one of its plans has no kernel for this
            return

    def cost(self, desc: Any, device: DeviceSpec, config: Steps) -> Cost:
        return config.cost(desc.product)


@lru_cache(maxsize=256)
def _parts(candidate: _Composite, desc: Any, device: DeviceSpec) -> tuple[tuple[str, Selection], ...]:
    return candidate.parts(desc, device)


def _product_with(desc: Any, device: DeviceSpec, **changed: Any) -> Selection:
    """The same product of other operands, by the best of what serves it."""
    return selected(get_op("matmul_int8").plan, replace(desc, **changed), None, device)


def _rest(desc: Any, **places: Place) -> dict[str, Place]:
    """Where the product's operands are: in `places`, or ours."""
    return {o.name: Ptr(o.name) for o in desc.operands} | places


class Staged(_Composite):
    """Operands that do not lie along K are copied so that they do."""

    variant = "staged"
    launches = (*COPIES, *MMA_LAUNCHES)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if desc.a_element not in CODES:
            return no(f"a holds {desc.a_element}")
        return OK if self._copied(desc) else no("both operands lie along K already", "the variant mma")

    @staticmethod
    def _copied(desc: Any) -> list[str]:
        product: Product = desc.product
        fits = {"a": product.a.pieces(along_row=True), "b": product.b.pieces(along_row=False)}
        return [name for name, piece in fits.items() if piece < PITCH]

    def parts(self, desc: Any, device: DeviceSpec) -> tuple[tuple[str, Selection], ...]:
        product: Product = desc.product
        pitch, made = _pitch(product.k), {}
        for name in self._copied(desc):
            side: Side = getattr(product, name)
            lines, steps = (product.m, (side.row, side.col)) if name == "a" else (product.n, (side.col, side.row))
            copy = WriteSliceDescriptor(
                (lines, product.k), ((0, lines), (0, product.k)), side.element, (pitch, 1), source_strides=steps,
                source_align=side.align,
            )  # type: ignore[call-arg]  # fmt: skip
            made[f"copy_{name}"] = selected(WriteSlicePlan, copy, None, device)
        changed: dict[str, Any] = {}
        if "copy_a" in made:
            lead = desc.a_shape[:-1]
            apart = [pitch * math.prod(lead[axis + 1 :]) for axis in range(len(lead))]
            changed |= {"a_strides": (*apart, 1), "a_align": PITCH}
        if "copy_b" in made:
            changed |= {"b_strides": (1, pitch), "b_align": PITCH}
        return (*made.items(), ("product", _product_with(desc, device, **changed)))

    def guarantee(self, desc: Any, device: DeviceSpec, config: Steps) -> PrecisionGuarantee:
        return guarantee(desc, MathPrecision.INT8)

    def lower(self, desc: Any, device: DeviceSpec, config: Steps) -> tuple[Sub, ...]:
        product: Product = desc.product
        lines = {"a": product.m, "b": product.n}
        subs, places = [], {}
        for name, part in config.parts[:-1]:
            of = name[-1]
            places[of] = Scratch.named(name, lines[of] * _pitch(product.k))
            subs.append(Sub(part, {"dest": places[of], "source": Ptr(of)}))
        return (*subs, Sub(config.of["product"], _rest(desc, **places)))


class Quantised(_Composite):
    """Each row of a is quantised by its own scale, and the codes multiplied: `dynamic`."""

    variant = "quantised"
    launches = tuple(dict.fromkeys((*QuantiseRows.launches, *GEMV_LAUNCHES, *MMA_LAUNCHES, *COPIES)))

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        return OK if desc.dynamic else no("dynamic was not asked for", "dynamic=True")

    def parts(self, desc: Any, device: DeviceSpec) -> tuple[tuple[str, Selection], ...]:
        product: Product = desc.product
        shape, pitch = (product.m, product.k), _pitch(product.k)
        quantise = QuantizeDescriptor(
            shape, product.a.element, x_strides=(product.a.row, product.a.col), x_align=product.a.align, codes_strides=(pitch, 1),
        )  # type: ignore[call-arg]  # fmt: skip
        inner = _product_with(
            desc, device, dynamic=False, a_shape=shape, a_element=ElementKind.I8, a_strides=(pitch, 1), a_align=PITCH,
            scale_a_shape=(product.m,), scale_a_element=ElementKind.F32, out_strides=(product.out.row, product.out.col),
        )  # fmt: skip
        return ("quantise", selected(QuantizePlan, quantise, None, device)), ("product", inner)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Steps) -> PrecisionGuarantee:
        return guarantee(desc, MathPrecision.INT8)

    def lower(self, desc: Any, device: DeviceSpec, config: Steps) -> tuple[Sub, ...]:
        product: Product = desc.product
        codes = Scratch.named("codes", product.m * _pitch(product.k))
        scales = Scratch.named("scales", 4 * product.m)
        return (
            Sub(config.of["quantise"], {"x": Ptr("a"), "codes": codes, "scales": scales}),
            Sub(config.of["product"], _rest(desc, a=codes, scale_a=scales)),
        )


class Dequantised(_Composite):
    """W8A16 of many tokens: weights as floats of a's type, then `matmul`."""

    variant = "dequantised"
    launches = (
        "quantized/quantise.cu:dequantise",
        *dict.fromkeys(k for c in MatmulPlan.candidates for k in c.launches),
    )

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if desc.a_element not in HALVES or desc.dynamic:
            return no("products of bytes need no floats")
        return OK

    @staticmethod
    def _along_k(desc: Any) -> bool:
        """Whether dequantised weights lie along K: as they do now, and where groups along K have scales."""
        return bool(group_of(desc)) or desc.product.b.row == 1

    def parts(self, desc: Any, device: DeviceSpec) -> tuple[tuple[str, Selection], ...]:
        product: Product = desc.product
        b, along_k, group = product.b, self._along_k(desc), group_of(desc)
        shape, steps = ((product.n, product.k), (b.col, b.row)) if along_k else ((product.k, product.n), (b.row, b.col))
        scales = desc.layout("scale_b").strides
        one = all(extent == 1 for extent in desc.scale_b_shape)
        per = "tensor" if one else "group" if group else "row" if along_k else "column"
        dequantise = DequantizeDescriptor(
            shape, ElementKind.I8, desc.a_element, per, group or None, codes_strides=steps, codes_align=b.align,
            scales_strides=() if one else tuple(reversed(scales)) if group else scales[-1:],
        )  # type: ignore[call-arg]  # fmt: skip
        bias = {name: getattr(desc, name) for name in ("bias_shape", "bias_element", "bias_strides", "bias_align")}
        product_ = MatmulDescriptor(
            desc.a_shape, desc.b_shape, desc.a_element, desc.a_element, desc.layout("out").element, desc.activation,
            a_strides=desc.a_strides, a_align=desc.a_align, b_strides=(1, product.k) if along_k else None,
            out_strides=desc.out_strides, out_align=desc.out_align, **bias,
        )  # type: ignore[call-arg]  # fmt: skip
        return (
            ("dequantise", selected(DequantizePlan, dequantise, None, device)),
            ("product", selected(MatmulPlan, product_, None, device)),
        )

    def guarantee(self, desc: Any, device: DeviceSpec, config: Steps) -> PrecisionGuarantee:
        """Weights are rounded once, by which they are 1 % larger at most; sums are those of tensor cores, with what parts of K
        add."""
        additions = 1.01 * (2.0 * desc.product.k + 64.0)
        return guarantee(desc, MathPrecision.of(desc.a_element.value), additions, weights=desc.a_element)

    def lower(self, desc: Any, device: DeviceSpec, config: Steps) -> tuple[Sub, ...]:
        product: Product = desc.product
        weights = Scratch.named("weights", product.a.size * product.k * product.n)
        places = {name: place for name, place in _rest(desc, b=weights).items() if name != "scale_b"}
        return (
            Sub(config.of["dequantise"], {"codes": Ptr("b"), "scales": Ptr("scale_b"), "out": weights}),
            Sub(config.of["product"], places),
        )

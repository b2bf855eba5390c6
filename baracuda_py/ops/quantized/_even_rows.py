"""even_rows: tokens and results whose rows are not evenly spaced are copied, so that the kernels that keep bits take them.

Without it the strides of x would choose between kernels, and so between bits. Serves where batch invariance is asked for.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ...plan.candidate import Feasibility, no
from ...plan.descriptor import Layout
from ...plan.lowering import Place, Sub
from ...plan.registry import get_op
from ...plan.selection import selected
from ...runtime.steps import Ptr, Scratch
from ...tensor.axes import broadcast_strides
from ...types import DeviceSpec, PlanPreference, PrecisionGuarantee
from ..shape_layout.write_slice import WriteSliceDescriptor, WriteSlicePlan
from ._composite import Composite, Parts, Steps

__all__ = ["EvenRows"]


class EvenRows(Composite):
    """x, and a bias that has rows, copied into C order; the product; and its result copied to where it belongs."""

    variant = "even_rows"
    on_request = ("batch_invariant",)

    def __init__(self, *products: Any) -> None:
        every = (*WriteSlicePlan.candidates, *products)
        self.launches = tuple(dict.fromkeys(kernel for each in every for kernel in each.launches))  # type: ignore[misc]

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not desc.gemm.batch:
            return no("rows of x and out are evenly spaced already")
        return super().supports(desc, device)

    @staticmethod
    def _even(desc: Any) -> Any:
        """The problem of the copies."""
        fields = dict.fromkeys(f"{name}_{what}" for name in _copied(desc) for what in ("strides", "align"))
        if "bias" in _copied(desc):
            fields["bias_shape"] = desc.shape
        return replace(desc, out_strides=None, out_align=None, **fields)

    def parts(self, desc: Any, device: DeviceSpec, pref: PlanPreference) -> Parts:
        even = self._even(desc)
        made = {f"copy_{name}": _copy(desc.layout(name), even.layout(name)) for name in _copied(desc)}
        after = _copy(even.layout("out"), desc.layout("out"))
        return (
            *((name, selected(WriteSlicePlan, copy, None, device)) for name, copy in made.items()),
            ("product", selected(get_op(desc.op).plan, even, pref, device)),
            ("copy_out", selected(WriteSlicePlan, after, None, device)),
        )

    def guarantee(self, desc: Any, device: DeviceSpec, config: Steps) -> PrecisionGuarantee:
        return config.of["product"].guarantee

    def lower(self, desc: Any, device: DeviceSpec, config: Steps) -> tuple[Sub, ...]:
        even, product = self._even(desc), config.of["product"]
        places: dict[str, Place] = {o.name: Ptr(o.name) for o in product.operands}
        for name in (*_copied(desc), "out"):
            made = even.layout(name)
            places[name] = Scratch.named(name, made.element.nbytes(math.prod(made.shape)))
        ahead = (Sub(config.of[f"copy_{name}"], {"dest": places[name], "source": Ptr(name)}) for name in _copied(desc))
        return (*ahead, Sub(product, places), Sub(config.of["copy_out"], {"dest": Ptr("out"), "source": places["out"]}))


def _copied(desc: Any) -> tuple[str, ...]:
    """The operands that have rows as the result does."""
    rows = desc.has("bias") and len(desc.layout("bias").shape) > 1
    return ("x", "bias") if rows else ("x",)


def _copy(source: Layout, dest: Layout) -> WriteSliceDescriptor:
    """All of `dest`, of a source that broadcasts onto it."""
    steps = broadcast_strides(source.shape, source.strides, dest.shape)
    return WriteSliceDescriptor(
        dest.shape, tuple((0, extent) for extent in dest.shape), dest.element, dest.strides, dest_align=dest.align,
        source_strides=steps, source_align=source.align,
    )  # type: ignore[call-arg]  # fmt: skip

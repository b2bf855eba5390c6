"""qkv_project_int8, qkv_project_int4: queries, keys and values of the same tokens, rotated on request, in one plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....types import OpCategory, PrecisionGuarantee
from ..._function import CallArgs, SignatureRules, function_of
from ...position.rope import STATUSES
from ..int4.kernels import Int4Gemv, Int4Mma
from . import oracle
from ._int4 import FusedInt4
from ._int8 import FusedGemv
from ._packed import arrays_of_each
from ._problem import QkvProjectDescriptor
from ._projections import ThenRope, ThreeProducts, by_output
from ._rotation import rotated
from ._weights import PARTS
from .samples import int4 as int4_projection
from .samples import int8 as int8_projection

__all__ = ["QkvProjectDescriptor", "QkvProjectPlan", "qkv_project_int4", "qkv_project_int8"]


def _probes() -> Iterator[dict[str, Any]]:
    """Few tokens and many, with what they may have: of either weights, which the ops say."""
    for m, element, more in (
        (1, "bf16", {}), (7, "i8", {}), (512, "bf16", {}), (512, "f16", {"dynamic": True}), (16, "f16", {"out_element": "f32"}),
        (3, "bf16", {"head_dim": 128, "inv_freq_shape": (64,)}),
    ):  # fmt: skip
        made: dict[str, Any] = {"x_shape": (m, 1024), "element": element, **more}
        for part, n in zip(PARTS, (1024, 256, 128)):
            made |= {f"w{part}_shape": (1024, n), f"w{part}_strides": (1, 1024)}
            made |= {f"scale_{part}_shape": (n,), f"scale_{part}_element": "f32"}
            made |= {f"bias_{part}_shape": (n,), f"bias_{part}_element": "f32"} if m == 7 else {}
        yield made
    zeros = {f"zeros_{part}_element": "u8" for part in PARTS}
    for m, element, more in (
        (1, "f16", {}),
        (9, "bf16", {"group_size": 32, **zeros}),
        (100, "bf16", {}),
        (4096, "f16", {}),
    ):
        yield {"x_shape": (m, 1024), "element": element, "widths": (1024, 256, 128), **more}


class QkvProjectPlan(Plan[QkvProjectDescriptor]):
    """Queries, keys and values of the same tokens: operands `x`, `wq`, `wk`, `wv`, `q`, `k`, `v`, and as the problem has them
    `scale_x`, `scale_q` (of i8 weights), `scales_q`, `zeros_q`, `order_q` (of int4 codes), `bias_q`, those of k and v, and
    `positions`, `inv_freq` or `cos`, `sin` and `status`."""

    descriptor = QkvProjectDescriptor
    statuses = STATUSES
    category = OpCategory.GEMM
    candidates = (
        FusedGemv(), FusedInt4("fused_gemv", Int4Gemv()), FusedInt4("fused_mma", Int4Mma()), ThreeProducts(), ThenRope(),
    )  # fmt: skip
    measures = oracle.MEASURES
    probes = tuple(_probes())
    reference = oracle.project

    @staticmethod
    def reference_guarantee(desc: QkvProjectDescriptor) -> PrecisionGuarantee:
        each = {part: oracle.guarantee(desc, part) for part in PARTS}
        return by_output(
            desc, [rotated(desc, one) if desc.rotates and part != "v" else one for part, one in each.items()]
        )


_DOC = """Queries, keys and values of the same tokens: {sums}, and likewise of k and v; x is read once where one launch
does it.

{operands}
inv_freq, or cos and sin: the angles of `rope`; then q and k are turned, in heads of head_dim columns, at `positions` (int32 or
int64, of x's leading shape or of its last leading axis; by default 0, 1, ... along that axis). style, attention_factor and the
output `status`, which is there with tables: as for `rope`.
Returns the named tuple (q, k, v), [..., N] each, all of one dtype{dtype}.
"""
_INT8 = _DOC.format(
    sums="x wq * scale_q + bias_q", dtype=": by default x's, of bytes f32 (i32 without scales)",
    operands="""x: [..., K], f16 or bf16, or i8 or u8 with `scale_x`. wq, wk, wv: [K, N] of i8, each of a width of its own, as
grouped queries have them. Scales, biases, `out_dtype`, `dynamic`: as for `matmul_int8`.""",
)  # fmt: skip
_INT4 = _DOC.format(
    sums="x Wq + bias_q", dtype=": by default x's",
    operands="""x: [..., K], f16 or bf16. wq, wk, wv: a PackedInt4 each, of one layout and group size, of widths of their own; or
their codes, with `scales_q` and so on, `widths` (N of each; only layout "tiled" needs it), `group_size` (128) and `layout`
("tiled"). Biases, out_dtype: as for `matmul_int4`.""",
)  # fmt: skip


@function_of(QkvProjectPlan, doc=_INT8, rules=SignatureRules(wanted={"status": "cos"}), weights="int8")
def qkv_project_int8(
    x: Any, wq: Any, wk: Any, wv: Any, scale_q: Any = None, scale_k: Any = None, scale_v: Any = None, *, scale_x: Any = None,
    bias_q: Any = None, bias_k: Any = None, bias_v: Any = None, positions: Any = None, inv_freq: Any = None, cos: Any = None,
    sin: Any = None, head_dim: int | None = None, style: str = "half", attention_factor: float = 1.0, out_dtype: Any = None,
    dynamic: bool = False, q: Any = None, k: Any = None, v: Any = None, status: Any = None,
) -> Any:  # fmt: skip
    """Its docstring is made above."""


@function_of(QkvProjectPlan, doc=_INT4)
def qkv_project_int4(
    x: Any, wq: Any, wk: Any, wv: Any, scales_q: Any = None, scales_k: Any = None, scales_v: Any = None, *, zeros_q: Any = None,
    zeros_k: Any = None, zeros_v: Any = None, order_q: Any = None, order_k: Any = None, order_v: Any = None, bias_q: Any = None,
    bias_k: Any = None, bias_v: Any = None, positions: Any = None, inv_freq: Any = None, cos: Any = None, sin: Any = None,
    head_dim: int | None = None, style: str = "half", attention_factor: float = 1.0, widths: Any = None,
    group_size: int | None = None, layout: Any = None, out_dtype: Any = None, q: Any = None, k: Any = None, v: Any = None,
    status: Any = None,
) -> CallArgs:  # fmt: skip
    weights = {
        "wq": wq, "wk": wk, "wv": wv, "scales_q": scales_q, "scales_k": scales_k, "scales_v": scales_v, "zeros_q": zeros_q,
        "zeros_k": zeros_k, "zeros_v": zeros_v, "order_q": order_q, "order_k": order_k, "order_v": order_v,
    }  # fmt: skip
    arrays, options = arrays_of_each("qkv_project_int4", weights, widths, group_size, layout, reads=True)
    operands = {
        "x": x, **arrays, "bias_q": bias_q, "bias_k": bias_k, "bias_v": bias_v, "positions": positions, "inv_freq": inv_freq,
        "cos": cos, "sin": sin, "q": q, "k": k, "v": v, "status": status,
    }  # fmt: skip
    options |= {"out_dtype": out_dtype, "head_dim": head_dim, "style": style, "attention_factor": attention_factor}
    made = {"q", "k", "v", "x", "wq", "wk", "wv"} | ({"status"} if cos is not None else set())
    held = {
        name: operands[name] for name in QkvProjectDescriptor.slot_of if name in made or operands.get(name) is not None
    }

    def describe() -> QkvProjectDescriptor:
        return QkvProjectDescriptor.of(**held, **options, weights="int4")

    return held, describe, ("int4", *options.values(), tuple(held)), None, None


register(Op("qkv_project_int8", QkvProjectPlan, qkv_project_int8, int8_projection.project, {"weights": "int8"}))
register(Op("qkv_project_int4", QkvProjectPlan, qkv_project_int4, int4_projection.project, {"weights": "int4"}))

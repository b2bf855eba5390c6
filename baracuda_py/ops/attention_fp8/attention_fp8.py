"""attention_fp8: softmax(scale q k^T) v of e4m3 operands, each with a scale per tensor and per head; forward only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...types import ElementKind, InvalidProblemError, MathPrecision, OpCategory, OperandTypeError, PrecisionGuarantee
from .._function import SignatureRules, function_of
from ..attention.forward import sides
from ..attention.problem import F32_MAX, Attended
from . import _guarantee, oracle, samples
from ._scales import SCALES
from ._simt import Simt
from ._wgmma import Wgmma

__all__ = ["AttentionFp8Descriptor", "AttentionFp8Plan", "attention_fp8"]

E4M3, BF16, F32, I32 = ElementKind.FP8_E4M3, ElementKind.BF16, ElementKind.F32, ElementKind.I32
RESULTS = (ElementKind.F16, BF16, F32)
NUMBERS = tuple(SCALES.values())
FIELDS = (
    "q_shape", "k_shape", "v_shape", "element", "order", "causal", "window", "softcapped", "offset_given", "max_seqlen_q",
    "max_seqlen_k", "out_element", "scale", "softcap", "offset", *NUMBERS,
)  # fmt: skip


@described(
    Slot("out", "out", takes=RESULTS),
    Slot("lse", "out", optional=True, takes=(F32,), shape="stats_shape"),
    Slot("q", takes=(E4M3,), element="element"),
    Slot("k", takes=(E4M3,), element="element"),
    Slot("v", takes=(E4M3,), element="element"),
    Slot("q_scales", optional=True, takes=(F32,)),
    Slot("k_scales", optional=True, takes=(F32,)),
    Slot("v_scales", optional=True, takes=(F32,)),
    Slot("cu_seqlens_q", optional=True, element=I32, strided=False, aligned=False),
    Slot("cu_seqlens_k", optional=True, element=I32, strided=False, aligned=False),
    fields=FIELDS,
)
class AttentionFp8Descriptor(Attended):
    """q, k and v of e4m3 in an `order` ("BHSD", "BSHD" or "THD"; of rank 2, one head of one sequence), and their scales.

    `softcapped` and `offset_given` say that these values are given at run time; `lse_element` that lse is an output;
    `out_element` is bf16 by default.
    """

    block_size: ClassVar[None] = None  # type: ignore[misc]
    math: ClassVar[None] = None  # type: ignore[misc]
    out_element: ElementKind | None = None
    q_scale: float = 1.0
    k_scale: float = 1.0
    v_scale: float = 1.0
    values: ClassVar[tuple[str, ...]] = ("scale", "softcap", "offset", *NUMBERS)
    name = "attention_fp8"

    @classmethod
    def of(
        cls, q: Any, k: Any, v: Any, *, out: Any = None, lse: Any = None, q_scales: Any = None, k_scales: Any = None,
        v_scales: Any = None, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, causal: bool = False,
        scale: float | None = None, window: Sequence[int | None] | None = None, softcap: float | None = None,
        offset: float | None = None, q_scale: float = 1.0, k_scale: float = 1.0, v_scale: float = 1.0,
        max_seqlen_q: int | None = None, max_seqlen_k: int | None = None, layout: str = "BHSD", return_lse: bool = False,
        out_dtype: Any = None,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout, and of the function's arguments."""
        tensors = cls.taken(cls.name, {
            "out": out, "lse": lse, "q": q, "k": k, "v": v, "q_scales": q_scales, "k_scales": k_scales, "v_scales": v_scales,
            "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k,
        })  # fmt: skip
        options: dict[str, Any] = {
            "order": layout, "causal": causal, "window": sides(window, f"{cls.name}: window"), "max_seqlen_q": max_seqlen_q,
            "max_seqlen_k": max_seqlen_k, "element": tensors["q"].element, "softcapped": softcap is not None,
            "offset_given": offset is not None, "q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale,
        }  # fmt: skip
        options |= {n: x for n, x in (("scale", scale), ("softcap", softcap), ("offset", offset)) if x is not None}
        if return_lse and lse is None:
            options["lse_element"] = F32
        wanted = None if out_dtype is None else ElementKind.of(out_dtype)
        if out is not None and wanted not in (None, tensors["out"].element):
            held = tensors["out"].element
            raise OperandTypeError(f"{cls.name}: out holds {held} and out_dtype is {wanted}", "give one of them")
        if out is None and wanted is not None:
            options["out_element"] = wanted
        return cls.of_tensors(tensors, **options)

    @property
    def empty(self) -> bool:
        """Without sequences all rows belong to no sequence."""
        return super().empty or not self.batch

    @property
    def precision(self) -> MathPrecision:
        return MathPrecision.FP8_FAST

    def default_element(self, name: str) -> ElementKind:
        return BF16 if name == "out" else self.element

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> Any:
        for name in NUMBERS:
            if not abs(values.get(name, 1.0)) <= F32_MAX:  # NaN neither
                raise InvalidProblemError(f"{op}: {name}={values[name]}", "give a number that f32 holds")
        return super().check_values(op, values, operands)

    def check(self) -> None:
        self._check_shapes()
        self._check_masks()
        for name in SCALES:
            shape, heads = self.shape_of(name), self.heads if name == "q_scales" else self.kv_heads
            if shape not in (None, (heads,), (self.batch, heads)):
                raise InvalidProblemError(
                    f"{self.op}: {name} has shape {shape}", f"pass one per head: {(heads,)} or {(self.batch, heads)}"
                )
        self.scalars({})


class AttentionFp8Plan(Plan[AttentionFp8Descriptor]):
    """Attention of e4m3 operands: operands `q`, `k`, `v`, `out`, and as the problem has them `lse`, `q_scales`, `k_scales`,
    `v_scales`, `cu_seqlens_q` and `cu_seqlens_k`; values `scale`, `softcap`, `offset`, `q_scale`, `k_scale` and `v_scale`."""

    descriptor = AttentionFp8Descriptor
    category = OpCategory.ATTENTION
    candidates = (Wgmma(), Simt())
    measures = oracle.MEASURES
    probes = (
        *(
            {"q_shape": (2, 4, 100, d), "k_shape": (2, 2, 130, d), "v_shape": (2, 2, 130, d), "element": E4M3, "causal": True}
            for d in (64, 128, 256)
        ),
        {
            "q_shape": (70, 4, 64), "k_shape": (90, 1, 64), "v_shape": (90, 1, 32), "element": E4M3, "order": "THD",
            "cu_seqlens_q_shape": (4,), "cu_seqlens_k_shape": (4,), "lse_element": "f32", "softcapped": True,
            "k_scales_shape": (1,), "out_element": "f32",
        },
    )  # fmt: skip
    reference = oracle.attend

    @staticmethod
    def reference_guarantee(desc: AttentionFp8Descriptor) -> PrecisionGuarantee:
        return oracle.guarantee(desc, _guarantee.plain(desc, 1))


@function_of(AttentionFp8Plan, rules=SignatureRules(reads={"window": sides}))
def attention_fp8(
    q: Any, k: Any, v: Any, *, q_scale: float | None = None, k_scale: float | None = None, v_scale: float | None = None,
    q_scales: Any = None, k_scales: Any = None, v_scales: Any = None, causal: bool = False, scale: float | None = None,
    window: Sequence[int | None] | None = None, softcap: float | None = None, cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
    offset: int | None = None, layout: str = "BHSD", return_lse: bool = False, out_dtype: Any = None, out: Any = None,
    lse: Any = None,
) -> Any:  # fmt: skip
    """Attention of 8-bit operands, forward only: softmax(scale q k^T) v, of every head of every sequence.

    q: [B, Hq, Sq, D], k: [B, Hkv, Sk, D], v: [B, Hkv, Sk, Dv], fp8_e4m3, in the layouts of `attention`; any strides but a
    contiguous last axis. Rows on multiples of 16 bytes are fast. Query head h reads head h // (Hq // Hkv) of k and v.
    q_scale, k_scale, v_scale: numbers that q, k and v are multiplied with, run-time values. q_scales: f32 [Hq] or [B, Hq],
    k_scales and v_scales: f32 [Hkv] or [B, Hkv], one per head (and sequence), multiplied too.
    causal, scale, window, softcap, offset, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k: as `attention` has them.
    out_dtype: bf16 (the default), f16 or f32. Rows that see nothing are 0, their lse -inf.
    Returns out, q's shape with Dv columns, or with `return_lse` (or given `lse`) the named tuple (out, lse): lse is the natural
    logarithm of the denominator, f32, as `attention` has it.
    On sm_90a (head dims up to 256, multiples of 16) tensor cores multiply e4m3: weights are rounded to e4m3, 2**-4 of each, and
    sums over keys keep about 14 bits, as fp8_fast does for `matmul`. Other problems and archs are computed in f32. Rotating q and
    k by one orthogonal matrix, such as a Hadamard matrix with random signs, before they are quantized leaves scores unchanged
    and spreads outliers over the columns. NaN and infinities are met as by `attention`.
    """


register(Op("attention_fp8", AttentionFp8Plan, attention_fp8, samples.attend))

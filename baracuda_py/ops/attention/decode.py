"""attention_decode: a few tokens a sequence against caches of its keys and values, of their present lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...types import (
    ElementKind,
    InvalidProblemError,
    OpCategory,
    OperandTypeError,
    PrecisionGuarantee,
)
from .._function import SignatureRules, function_of
from ._decode.latent_keys import LatentKeys
from ._decode.latent_wgmma import LatentWgmma
from ._decode.simt_keys import SimtKeys
from ._decode.split_keys import SplitKeys
from ._problem import guarantee as _guarantee
from ._problem.attended import F32_MAX, FLOATS, Attended, OperandStrides, computed
from .forward import sides
from .oracle import decode as oracle
from .samples import decode as samples

__all__ = ["DecodeAttentionDescriptor", "DecodeAttentionPlan", "Decoding", "attention_decode"]

CACHED = (*FLOATS, ElementKind.FP8_E4M3, ElementKind.FP8_E5M2, ElementKind.I8)  # what caches hold
I32, F32 = ElementKind.I32, ElementKind.F32


class Decoding(Attended):
    """What decoding has in common, with or without pages: causal, the last token being the last key of its sequence."""

    causal: ClassVar[bool] = True  # type: ignore[misc]
    offset_given: ClassVar[bool] = False  # type: ignore[misc]
    block_size: ClassVar[None] = None  # type: ignore[misc]
    max_seqlen_q: ClassVar[int | None] = None  # type: ignore[misc]
    max_seqlen_k: ClassVar[None] = None  # type: ignore[misc]
    math: ClassVar[None] = None  # type: ignore[misc]
    out_element: ElementKind | None = None
    cache_element: ElementKind | None = None
    k_scale: float = 1.0
    v_scale: float = 1.0
    values: ClassVar[tuple[str, ...]] = ("scale", "softcap", "k_scale", "v_scale")
    behind: ClassVar[tuple[str, ...]] = ("out_element", "cache_element", "scale", "softcap", "k_scale", "v_scale")
    tensor_cores: ClassVar[bool] = False  # whether the op's name asks for them
    paged: ClassVar[bool] = False
    page_keys: ClassVar[int] = 1
    pages: ClassVar[int] = 0
    checked: ClassVar[int] = 0  # sequences whose pages are looked at

    @property
    def empty(self) -> bool:
        """Without sequences all tokens belong to no sequence."""
        return super().empty or not self.batch

    def default_element(self, name: str) -> ElementKind:
        return self.element

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> Any:
        for name in ("k_scale", "v_scale"):
            if not abs(values.get(name, 1.0)) <= F32_MAX:  # NaN neither
                raise InvalidProblemError(f"{op}: {name}={values[name]}", "give a number that f32 holds")
        return super().check_values(op, values, operands)

    # ---- scales of keys and values --------------------------------------------------------------------------------

    @property
    def cached(self) -> ElementKind:
        """What caches hold."""
        return self.layout(self.caches[0]).element

    @property
    def caches(self) -> tuple[str, str]:
        """Keys' and values' operands."""
        return ("k_pages", "v_pages") if self.paged else ("k", "v")

    @property
    def scaled(self) -> bool:
        """Whether each key or value has a scale of its own."""
        return any(len(self.shape_of(name) or ()) > 1 for name in ("k_scales", "v_scales"))

    @property
    def cache_axes(self) -> tuple[int, int]:
        """Where heads and keys are in a cache, or in its scales."""
        return self.head_axis, self.row_axis

    def scales_strides(self, name: str) -> OperandStrides:
        """The steps of scales, one per head or one per key; nothing where there are none."""
        if not self.has(name):
            return OperandStrides(0, 0, 0)
        strides, (heads, keys) = self.layout(name).strides, self.cache_axes
        return (
            OperandStrides(0, strides[0], 0)
            if len(strides) == 1
            else OperandStrides(strides[0], strides[heads], strides[keys])
        )

    def _check_scales(self) -> None:
        for cache, name in zip(self.caches, ("k_scales", "v_scales")):
            shape, known = self.shape_of(name), self.shape_of(cache)
            if shape is None or known is None:
                continue
            if self.cached.bits != 8:
                raise InvalidProblemError(
                    f"{self.op}: {name} of caches of {self.cached}", "leave it out, or give a number"
                )
            if shape not in ((self.kv_heads,), known[:-1]):
                raise InvalidProblemError(
                    f"{self.op}: {name} has shape {shape}",
                    f"pass one a head, {(self.kv_heads,)}, or a key: {known[:-1]}",
                )

    def resolve(self, given: Mapping[str, Any]) -> tuple[tuple[int, ...], Mapping[str, Any]]:
        return self.displacements(), {**self.scalars(given), "offset": 0.0}

    def check(self) -> None:
        super().check()
        if self.layout("out").element not in (self.element, computed(self.element)):
            known = " or ".join(dict.fromkeys(map(str, (self.element, computed(self.element)))))
            raise OperandTypeError(f"{self.op}: out holds {self.layout('out').element}", f"pass one of {known}")
        if self.cached.bits != 8 and self.cached is not self.element:
            raise OperandTypeError(
                f"{self.op}: {self.caches[0]} holds {self.cached} and q {self.element}",
                "pass caches of q's type or of 8 bits",
            )
        sums = computed(self.element)
        if self.has("lse") and self.layout("lse").element is not sums:
            raise OperandTypeError(f"{self.op}: lse holds {self.layout('lse').element}", f"pass one of {sums}")
        self._check_scales()
        lengths = self.shape_of("lengths")
        if lengths not in (None, (self.batch,)):
            raise InvalidProblemError(
                f"{self.op}: lengths has shape {lengths}", f"pass one a sequence: ({self.batch},)"
            )


@described(
    Slot("out", "out", takes=FLOATS),
    Slot("lse", "out", optional=True, shape="stats_shape"),
    Slot("q", takes=FLOATS, element="element"),
    Slot("k", takes=CACHED, element="cache_element"),
    Slot("v", takes=CACHED, element="cache_element"),
    Slot("lengths", optional=True, takes=(I32,), strided=False, aligned=False),
    Slot("k_scales", optional=True, takes=(F32,)),
    Slot("v_scales", optional=True, takes=(F32,)),
    Slot("alibi_slopes", optional=True, takes=(F32,)),
    Slot("sinks", optional=True, takes=FLOATS),
    fields=("q_shape", "k_shape", "v_shape", "element", "order", "window", "softcapped", *Decoding.behind),
)
class DecodeAttentionDescriptor(Decoding):
    """q of a few tokens a sequence, k and v caches of `k_shape` and `v_shape`, in an `order` ("BHSD" or "BSHD"); these hold
    `cache_element`, by default that of q.

    `softcapped` says that a softcap is given at run time; `lse_element` that lse is an output.
    """

    name = "attention_decode"

    @classmethod
    def of(
        cls, q: Any, k: Any, v: Any, lengths: Any = None, *, out: Any = None, lse: Any = None, k_scales: Any = None,
        v_scales: Any = None, alibi_slopes: Any = None, sinks: Any = None, scale: float | None = None,
        window: Sequence[int | None] | None = None, softcap: float | None = None, k_scale: float = 1.0,
        v_scale: float = 1.0, layout: str = "BHSD", return_lse: bool = False,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout, and of the function's arguments."""
        tensors = cls.taken(cls.name, {
            "out": out, "lse": lse, "q": q, "k": k, "v": v, "lengths": lengths, "k_scales": k_scales, "v_scales": v_scales,
            "alibi_slopes": alibi_slopes, "sinks": sinks,
        })  # fmt: skip
        options: dict[str, Any] = {
            "order": layout, "window": sides(window, f"{cls.name}: window"), "element": tensors["q"].element,
            "softcapped": softcap is not None, "k_scale": k_scale, "v_scale": v_scale,
        }  # fmt: skip
        options |= {n: x for n, x in (("scale", scale), ("softcap", softcap)) if x is not None}
        if return_lse and lse is None:
            options["lse_element"] = computed(tensors["q"].element)
        return cls.of_tensors(tensors, **options)

    def check(self) -> None:
        if self.order == "THD":
            raise InvalidProblemError(f"{self.op}: layout 'THD'", 'pass caches as "BHSD" or "BSHD"')
        if len(self.q_shape) != 4:
            raise InvalidProblemError(f"{self.op}: q has shape {self.q_shape}", f"pass rank 4, {self.order}")
        super().check()


class DecodeAttentionPlan(Plan[DecodeAttentionDescriptor]):
    """Attention of a few tokens a sequence: operands `q`, `k`, `v`, `out`, and as the problem has them `lse`, `lengths`,
    `k_scales`, `v_scales`, `alibi_slopes` and `sinks`; values `scale`, `softcap`, `k_scale` and `v_scale`."""

    descriptor = DecodeAttentionDescriptor
    category = OpCategory.ATTENTION
    candidates = (SplitKeys(), LatentKeys(), LatentWgmma(), SimtKeys())
    measures = oracle.MEASURES
    probes = (
        *(
            {"q_shape": (b, 8, t, d), "k_shape": (b, 2, s, d), "v_shape": (b, 2, s, d), "element": e, "lengths_shape": (b,)}
            for b, t, s, d, e in ((2, 1, 300, 64, "bf16"), (1, 1, 8192, 128, "f16"), (3, 4, 5000, 128, "bf16"))
        ),
        {"q_shape": (2, 16, 1, 576), "k_shape": (2, 1, 90, 576), "v_shape": (2, 1, 90, 512), "element": "bf16"},
        {"q_shape": (2, 1, 4, 256), "k_shape": (2, 50, 2, 256), "v_shape": (2, 50, 2, 256), "element": "bf16",
         "order": "BSHD", "lse_element": "f32", "softcapped": True, "window": (20, 0)},
    )  # fmt: skip
    reference = oracle.decode

    @staticmethod
    def reference_guarantee(desc: DecodeAttentionDescriptor) -> PrecisionGuarantee:
        return oracle.guarantee(desc, _guarantee.forward(desc, dot=desc.d, keys=desc.most_k, blocks=1))


@function_of(DecodeAttentionPlan, rules=SignatureRules(reads={"window": sides}))
def attention_decode(
    q: Any, k: Any, v: Any, lengths: Any = None, *, scale: float | None = None,
    window: Sequence[int | None] | None = None, softcap: float | None = None, alibi_slopes: Any = None, sinks: Any = None,
    k_scale: float | None = None, v_scale: float | None = None, k_scales: Any = None, v_scales: Any = None,
    layout: str = "BHSD", return_lse: bool = False, out: Any = None, lse: Any = None,
) -> Any:  # fmt: skip
    """Attention of the last few tokens of every sequence with all of its keys and values, those tokens' own included.

    q: [B, Hq, T, D], k: [B, Hkv, S, D], v: [B, Hkv, S, Dv] (`layout` "BHSD"), or with T and S before the heads ("BSHD"): floats,
    with any strides but a contiguous last axis; S is what the caches have room for. f16 and bf16 whose rows
    begin on multiples of 16 bytes are fast. lengths: device int32 [B], the keys in use of each sequence, read at launch and
    clamped to S; by default S. The caches hold nothing else that counts. Token t stands at key lengths - T + t and sees the keys
    up to there; query head h reads head h // (Hq // Hkv).
    Caches may hold fp8_e4m3, fp8_e5m2 or i8, and are multiplied with the numbers k_scale and v_scale (run-time values) and with
    k_scales and v_scales: f32, one a head [Hkv], or one a key and head, in the shape of the caches without their last axis (those
    of values below 256 where q holds f16, in which weights are multiplied with them).
    scale, window, softcap, alibi_slopes, sinks, lse: as `attention` has them. Tokens that see nothing are 0, their lse -inf.
    Returns out, q's shape with Dv columns, or with `return_lse` (or given `lse`) the named tuple (out, lse): lse is f32
    [B, Hq, T], f64 where q is. Given, out may hold f32.
    Scores and sums are f32 (f64 of f64); tensor cores take weights rounded to q's dtype for the second product. With
    pref.batch_invariant a sequence's bits depend neither on the others nor on how many tokens come at once.
    """


register(
    Op(
        "attention_decode",
        DecodeAttentionPlan,
        attention_decode,
        samples.attention_decode,
        peers={"torch": "nn.functional.scaled_dot_product_attention"},
    )
)

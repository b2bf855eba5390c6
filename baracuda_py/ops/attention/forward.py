"""attention: softmax(scale q k^T) v of whole sequences, with masks and changes of scores; lse on request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from ...plan.descriptor import Slot, described, integers
from ...plan.fields import integer
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...types import (
    ElementKind,
    InvalidProblemError,
    MathPrecision,
    OpCategory,
    OperandTypeError,
    PlanPreference,
    PrecisionGuarantee,
)
from ...types.keeping import complete
from .._function import DerivedArgs, SignatureRules, function_of
from ._forward.flash import HALVES
from ._forward.simt import Simt
from ._forward.tc import Tc
from ._forward.wgmma import FlashBesideWgmma, Wgmma
from ._problem import guarantee as _guarantee
from ._problem.attended import FLOATS, SHORT_KEYS, Attended, computed
from .oracle import forward as oracle
from .samples import forward as samples

__all__ = [
    "AttentionDescriptor",
    "AttentionPlan",
    "attention",
    "attention_flash",
    "attention_flash_causal",
    "attention_tc",
    "attention_tc_causal",
]

I32, F32 = ElementKind.I32, ElementKind.F32
NAMED = ("attention_tc", "attention_tc_causal", "attention_flash", "attention_flash_causal")


@described(
    Slot("out", "out", takes=FLOATS),
    Slot("lse", "out", optional=True, shape="stats_shape"),
    Slot("q", takes=FLOATS, element="element"),
    Slot("k", takes=FLOATS, element="element"),
    Slot("v", takes=FLOATS, element="element"),
    Slot("mask", optional=True, takes=(*FLOATS, ElementKind.BOOL)),
    Slot("block_mask", optional=True, element=ElementKind.BOOL),
    Slot("alibi_slopes", optional=True, element=F32),
    Slot("sinks", optional=True, takes=FLOATS),
    Slot("cu_seqlens_q", optional=True, element=I32, strided=False, aligned=False),
    Slot("cu_seqlens_k", optional=True, element=I32, strided=False, aligned=False),
    fields=(*Attended.ahead, "out_element", *Attended.behind),
)
class AttentionDescriptor(Attended):
    """q, k and v in an `order` ("BHSD", "BSHD" or "THD"; of rank 2, one head of one sequence), and what changes their scores.

    `softcapped` and `offset_given` say that these values are given at run time; `lse_element` that lse is an output;
    `block_size` goes with `block_mask_shape`; `math` is how f32 is multiplied, "f32" (the default) or "tf32". A `name` that
    ends in "causal" makes it so; under "attention_tc" operands hold 16 bits and out f32.
    """

    out_element: ElementKind | None = None
    name: str = "attention"

    def __post_init__(self) -> None:
        self._names_op(("attention", *NAMED), "name")
        if self.name.endswith("causal"):
            complete(self, causal=True)
        super().__post_init__()

    @classmethod
    def of(
        cls, q: Any, k: Any, v: Any, *, out: Any = None, lse: Any = None, mask: Any = None, block_mask: Any = None,
        alibi_slopes: Any = None, sinks: Any = None, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None,
        causal: bool = False, scale: float | None = None, window: Sequence[int | None] | None = None,
        softcap: float | None = None, offset: float | None = None, block_size: Sequence[int] | None = None,
        max_seqlen_q: int | None = None, max_seqlen_k: int | None = None, layout: str = "BHSD", return_lse: bool = False,
        math: MathPrecision | str | None = None, name: str = "attention",
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout, and of the function's arguments."""
        tensors = cls.taken(name, {
            "out": out, "lse": lse, "q": q, "k": k, "v": v, "mask": mask, "block_mask": block_mask,
            "alibi_slopes": alibi_slopes, "sinks": sinks, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k,
        })  # fmt: skip
        options: dict[str, Any] = {
            "order": layout, "causal": causal, "window": sides(window, f"{name}: window"), "block_size": block_size, "math": math,
            "max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k, "name": name, "element": tensors["q"].element,
            "softcapped": softcap is not None, "offset_given": offset is not None,
        }  # fmt: skip
        options |= {n: x for n, x in (("scale", scale), ("softcap", softcap), ("offset", offset)) if x is not None}
        if return_lse and lse is None:
            options["lse_element"] = computed(tensors["q"].element)
        return cls.of_tensors(tensors, **options)

    @property
    def tensor_cores(self) -> bool:
        """Whether the name asks for them."""
        return self.name.startswith("attention_tc")

    @property
    def empty(self) -> bool:
        """Without sequences all rows belong to no sequence."""
        return super().empty or not self.batch

    def default_element(self, name: str) -> ElementKind:
        return F32 if name == "out" and self.tensor_cores else self.element

    def check(self) -> None:
        super().check()
        if self.tensor_cores and self.element not in HALVES:
            raise OperandTypeError(
                f"{self.op}: q must hold f16 or bf16, got {self.element}", "cast it, or use attention"
            )
        if self.causal and self.name in NAMED and not self.name.endswith("causal"):
            raise InvalidProblemError(f"{self.op}: causal=True", f"use {self.name}_causal")
        if self.layout("out").element not in (self.element, computed(self.element)):
            raise OperandTypeError(
                f"{self.op}: out holds {self.out_element}", f"pass one of {self.element} or {computed(self.element)}"
            )
        if self.has("lse") and self.layout("lse").element is not computed(self.element):
            raise OperandTypeError(
                f"{self.op}: lse holds {self.layout('lse').element}", f"pass one of {computed(self.element)}"
            )


def sides(window: Any, what: str) -> tuple[int, int] | None:
    """Keys to the left and to the right, -1 for all of them; None where nothing is left out."""
    if window is None:
        return None
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise InvalidProblemError(
            f"{what} is {type(window).__name__}", "give keys to the left and to the right, such as (4095, 0)"
        )
    left, right = (-1 if n is None else integer(n, what) for n in window)
    return left, right


class AttentionPlan(Plan[AttentionDescriptor]):
    """Attention of whole sequences: operands `q`, `k`, `v`, `out`, and as the problem has them `lse`, `mask`, `block_mask`,
    `alibi_slopes`, `sinks`, `cu_seqlens_q` and `cu_seqlens_k`; values `scale`, `softcap` and `offset`."""

    descriptor = AttentionDescriptor
    category = OpCategory.ATTENTION
    candidates = (FlashBesideWgmma(), Wgmma(), Tc(), Simt())
    measures = oracle.MEASURES
    probes = (
        *(
            {"q_shape": (2, 4, 100, d), "k_shape": (2, 2, 130, d), "v_shape": (2, 2, 130, d), "element": e, "causal": True}
            for e in ("bf16", "f32", "f64")
            for d in (64, 128)
        ),
        {
            "q_shape": (70, 4, 64), "k_shape": (90, 1, 64), "v_shape": (90, 1, 32), "element": "f16", "order": "THD",
            "cu_seqlens_q_shape": (4,), "cu_seqlens_k_shape": (4,), "lse_element": "f32", "window": (20, 0),
        },
        {"q_shape": (40, 576), "k_shape": (50, 576), "v_shape": (50, 512), "element": "bf16", "softcapped": True},
    )  # fmt: skip
    reference = oracle.attention

    @staticmethod
    def reference_guarantee(desc: AttentionDescriptor) -> PrecisionGuarantee:
        return oracle.guarantee(desc, _guarantee.forward(desc, dot=desc.d, keys=desc.most_k, blocks=1))


def _multiplied(pref: Any, math: Any = None) -> tuple[Any]:
    """How products are formed: a preference for TF32 counts, too."""
    if math is None and isinstance(pref, PlanPreference) and pref.math is MathPrecision.TF32:
        math = pref.math
    return (math,)


def _signature_rules(*takes: str, **reads: Callable[[Any, str], Any]) -> SignatureRules:
    """How arguments are read; `takes` are the parameters that say how products are formed."""
    return SignatureRules(reads={"window": sides, **reads}, derived=DerivedArgs(("math",), takes, _multiplied))


@function_of(AttentionPlan, rules=_signature_rules("pref", "math", block_size=integers), name="attention")
def attention(
    q: Any, k: Any, v: Any, *, causal: bool = False, scale: float | None = None,
    window: Sequence[int | None] | None = None, softcap: float | None = None, alibi_slopes: Any = None, mask: Any = None,
    block_mask: Any = None, block_size: Sequence[int] | None = None, sinks: Any = None, cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
    offset: int | None = None, layout: str = "BHSD", return_lse: bool = False, math: MathPrecision | str | None = None,
    out: Any = None, lse: Any = None,
) -> Any:  # fmt: skip
    """Attention: softmax(scale q k^T) v, of every head of every sequence.

    q: [B, Hq, Sq, D], k: [B, Hkv, Sk, D], v: [B, Hkv, Sk, Dv] (`layout` "BHSD"), or with S before H ("BSHD"), or [T, H, D] of
    sequences one behind the other ("THD"), which begin at `cu_seqlens_q` and `cu_seqlens_k` (device int32 [B + 1], read at
    launch and clamped to T; `max_seqlen_q` and `max_seqlen_k`, by default T, say how long the longest is: queries
    beyond need not be computed, and rows of no sequence are left unchanged, but by the reference backend, which makes them 0).
    f16, bf16, f32 or f64; any strides but a contiguous last axis. Of rank 2 they are one head of one
    sequence. Query head h reads head h // (Hq // Hkv) of k and v.
    scale: by default 1 / sqrt(D). softcap c: s becomes c tanh(s / c). alibi_slopes: f32 [Hq] or [B, Hq]; s += slope (j - (i +
    offset)). mask: broadcasts to [B, Hq, Sq, Sk]; added (q's dtype or f32), or bool, True where a key takes part.
    causal: query i sees keys j <= i + offset; offset is by default Sk - Sq of each sequence, so that the last query sees the last
    key. window (left, right): also i + offset - left <= j <= i + offset + right; None or -1: all on that side.
    block_mask: bool [B or 1, Hq or 1, ceil(Sq / m), ceil(Sk / n)] with `block_size` (m, n): blocks that are False are left out.
    sinks: [Hq], f32 or q's dtype: a logit in each row's denominator that has no value. scale, softcap and offset are run-time
    values. Rows that see nothing are 0, their lse -inf (sinks: the sink).
    Returns out, q's shape with Dv columns, or with `return_lse` (or given `lse`) the named tuple (out, lse): lse is the natural
    logarithm of the denominator, f32 (f64 for f64), [B, Hq, Sq], of "THD" [Hq, T]. Given, out may hold f32.
    Scores and sums are f32 (f64 for f64); 16-bit kernels on tensor cores round weights to q's dtype for the second product. f32
    is multiplied as f32 unless math="tf32" (or pref.math) asks for TF32: tensor cores, every factor rounded to 11 digits. Values
    are multiplied by weights of 0 too: NaN and infinities in keys and values of its own sequence and head may reach a row that
    does not see them; keys and values behind the last that any query sees by causal, window and offset are not read, and may be
    uninitialized. On tensor cores softcap errs by up to 2**-21 c, whatever the score: a huge c does not stand for none. Scores
    of 2**22 and more differ by half of one in f32, and weights of keys beside the highest are as uncertain; results are finite.
    """


_PEERS = {"torch": "nn.functional.scaled_dot_product_attention"}
_MORE = ("mask", "block_mask", "alibi_slopes", "sinks", "cu_seqlens_q", "cu_seqlens_k")  # as far as a problem has them
_GRADIENT = Gradient(
    "attention_backward",
    saved=("q", "k", "v", "out", "lse", *_MORE),
    gradients={name: f"grad_{name}" for name in ("q", "k", "v", "sinks", "mask", "alibi_slopes")},
)
register(Op("attention", AttentionPlan, attention, samples.attention, gradient=_GRADIENT, peers=_PEERS))
_DOC = """{what} attention{of}, as `attention`: q [S, D] or [B, Hq, S, D], k and v alike; the result is {result}.

{short}scale: by default 1 / sqrt(D). layout, window, softcap, mask, offset, return_lse: as for `attention`.
"""


def _named(name: str) -> Any:
    """The function of a name that says whether it is causal, registered."""

    def template(
        q: Any, k: Any, v: Any, *, scale: float | None = None, window: Sequence[int | None] | None = None,
        softcap: float | None = None, mask: Any = None, offset: int | None = None, layout: str = "BHSD",
        return_lse: bool = False, out: Any = None, lse: Any = None,
    ) -> Any:  # fmt: skip
        """Gets a docstring below."""

    narrow = "tc" in name
    what, of = "Causal" if "causal" in name else "Full", " of f16 or bf16 on tensor cores" if narrow else ""
    short = f"Up to {SHORT_KEYS} keys: all scores in shared memory, one softmax; of more keys, whatever is fastest.\n"
    result = "f32" if narrow else "of q's dtype"
    doc = _DOC.format(what=what, of=of, result=result, short=short if narrow else "")
    function = function_of(AttentionPlan, called=name, doc=doc, rules=_signature_rules("pref"), name=name)(template)
    register(Op(name, AttentionPlan, function, samples.named, {"name": name}, peers=_PEERS))
    return function


attention_tc, attention_tc_causal, attention_flash, attention_flash_causal = map(_named, NAMED)

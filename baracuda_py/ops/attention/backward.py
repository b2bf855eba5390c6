"""attention_backward: the gradients of attention with respect to q, k, v and sinks, from the saved out and lse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self

from ...plan.descriptor import Slot, described, integers, scalar
from ...plan.plan import Plan
from ...plan.registry import Op, get_op, register
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
from .._function import CallArgs, function_of
from ._backward import guarantee as _backward_guarantee
from ._backward.flash import FlashBackward
from ._backward.gradients import BIASES
from ._backward.simt import SimtBackward
from ._backward.wgmma import WgmmaBackward
from ._problem.attended import FLOATS, Attended, computed
from .forward import sides
from .oracle import backward as oracle
from .oracle import forward as forward_oracle
from .samples import backward as samples

__all__ = ["AttentionBackwardDescriptor", "AttentionBackwardPlan", "attention_backward"]

I32, F32 = ElementKind.I32, ElementKind.F32


@described(
    Slot("grad_q", "out", takes=FLOATS, shape="q_shape", element="element"),
    Slot("grad_k", "out", takes=FLOATS, shape="k_shape", element="element"),
    Slot("grad_v", "out", takes=FLOATS, shape="v_shape", element="element"),
    Slot("grad_sinks", "out", optional=True, shape="sinks_shape"),
    Slot("grad_mask", "out", optional=True, shape="mask_shape"),
    Slot("grad_alibi_slopes", "out", optional=True, shape="alibi_slopes_shape"),
    Slot("grad", takes=FLOATS, shape="out_shape", element="element"),
    Slot("q", takes=FLOATS, element="element"),
    Slot("k", takes=FLOATS, element="element"),
    Slot("v", takes=FLOATS, element="element"),
    Slot("out", takes=FLOATS, shape="out_shape", element="element"),
    Slot("lse", shape="stats_shape", element="lse_element"),
    Slot("mask", optional=True, takes=(*FLOATS, ElementKind.BOOL)),
    Slot("block_mask", optional=True, element=ElementKind.BOOL),
    Slot("alibi_slopes", optional=True, element=F32),
    Slot("sinks", optional=True, takes=FLOATS),
    Slot("cu_seqlens_q", optional=True, element=I32, strided=False, aligned=False),
    Slot("cu_seqlens_k", optional=True, element=I32, strided=False, aligned=False),
    fields=(*Attended.ahead, "lse_element", *Attended.behind),
)
class AttentionBackwardDescriptor(Attended):
    """The problem of `AttentionDescriptor` with what it saved, out and lse, and the gradient of out. With sinks there is a
    grad_sinks; grad_mask and grad_alibi_slopes are there where they have an element."""

    lse_element: ElementKind | None = None
    name: str = "attention_backward"

    def __post_init__(self) -> None:
        self._names_op(("attention_backward",), "name")
        super().__post_init__()
        if self.lse_element is None:
            complete(self, lse_element=computed(self.element))
        sinks: ElementKind | None = self.sinks_element  # type: ignore[attr-defined]
        if sinks is not None and self.grad_sinks_element is None:  # type: ignore[attr-defined]
            complete(self, grad_sinks_element=sinks)

    @classmethod
    def of(
        cls, grad: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *, grad_q: Any = None, grad_k: Any = None,
        grad_v: Any = None, grad_sinks: Any = None, grad_mask: Any = None, grad_alibi_slopes: Any = None, mask: Any = None,
        block_mask: Any = None, alibi_slopes: Any = None, sinks: Any = None, cu_seqlens_q: Any = None,
        cu_seqlens_k: Any = None, causal: bool = False, scale: float | None = None,
        window: Sequence[int | None] | None = None, softcap: float | None = None, offset: float | None = None,
        block_size: Sequence[int] | None = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
        layout: str = "BHSD", math: MathPrecision | str | None = None, needs: Sequence[str] = (),
        name: str = "attention_backward",
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout, and of the function's arguments."""
        tensors = cls.taken(name, {
            "q": q, "k": k, "v": v, "grad": grad, "out": out, "lse": lse, "mask": mask, "block_mask": block_mask,
            "alibi_slopes": alibi_slopes, "sinks": sinks, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k,
            "grad_q": grad_q, "grad_k": grad_k, "grad_v": grad_v, "grad_sinks": grad_sinks, "grad_mask": grad_mask,
            "grad_alibi_slopes": grad_alibi_slopes,
        })  # fmt: skip
        options: dict[str, Any] = {
            "order": layout, "causal": causal, "window": sides(window, f"{name}: window"), "block_size": block_size, "math": math,
            "max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k, "name": name, "element": tensors["q"].element,
            "softcapped": softcap is not None, "offset_given": offset is not None,
        }  # fmt: skip
        options |= {n: x for n, x in (("scale", scale), ("softcap", softcap), ("offset", offset)) if x is not None}
        for needed in _needed(name, needs):
            options[f"grad_{needed}_element"] = tensors[needed].element if needed in tensors else F32
        return cls.of_tensors(tensors, **options)

    def check(self) -> None:
        super().check()
        if not self.heads:
            raise InvalidProblemError(
                f"{self.op}: q has 0 heads and k {self.kv_heads}", "give q one or more for each of k's"
            )
        wanted = {"lse": computed(self.element)}
        for name in ("sinks", *BIASES):
            if self.has(f"grad_{name}"):
                if self.shape_of(name) is None:
                    raise InvalidProblemError(
                        f"{self.op}: there is no grad_{name} without {name}", f"leave it out, or pass {name}"
                    )
                wanted[f"grad_{name}"] = self.layout(name).element
        if wanted.get("grad_mask") is ElementKind.BOOL:
            raise OperandTypeError(
                f"{self.op}: mask holds bool, which has no gradient",
                "leave grad_mask out, or pass a mask that is added",
            )
        for name, kind in wanted.items():
            if self.layout(name).element is not kind:
                raise OperandTypeError(f"{self.op}: {name} holds {self.layout(name).element}", f"pass one of {kind}")

    @property
    def flops(self) -> float:
        """Five products for the forward op's two."""
        return 2.0 * self.pairs() * (3 * self.d + 2 * self.d_v)


def _needed(op: str, needs: Sequence[str]) -> tuple[str, ...]:
    """The names that are asked for; InvalidProblemError for one that is none."""
    needs = (needs,) if isinstance(needs, str) else tuple(needs)
    for name in needs:
        if name not in BIASES:
            raise InvalidProblemError(f"{op}: needs={name!r}", f"name {' or '.join(map(repr, BIASES))}")
    return needs


class AttentionBackwardPlan(Plan[AttentionBackwardDescriptor]):
    """The gradients of attention: operands `grad`, `q`, `k`, `v`, `out`, `lse`, `grad_q`, `grad_k`, `grad_v`, and as the problem
    has them `mask`, `block_mask`, `alibi_slopes`, `sinks` and `grad_sinks`, `cu_seqlens_q` and `cu_seqlens_k`, and on
    request `grad_mask` and `grad_alibi_slopes`; values `scale`, `softcap` and `offset`."""

    descriptor = AttentionBackwardDescriptor
    category = OpCategory.ATTENTION
    candidates = (
        FlashBackward("fast", ordered=False), FlashBackward("deterministic", ordered=True), SimtBackward(),
        WgmmaBackward("wgmma", ordered=True), WgmmaBackward("wgmma_fast", ordered=False),
    )  # fmt: skip
    measures = oracle.MEASURES
    probes = (
        *(
            {"q_shape": (2, 4, 100, d), "k_shape": (2, 2, 130, d), "v_shape": (2, 2, 130, d), "element": e, "causal": True}
            for e in ("bf16", "f32", "f64")
            for d in (64, 128, 256)
        ),
        {
            "q_shape": (70, 4, 64), "k_shape": (90, 1, 64), "v_shape": (90, 1, 32), "element": "f16", "order": "THD",
            "cu_seqlens_q_shape": (4,), "cu_seqlens_k_shape": (4,), "window": (20, 0), "sinks_shape": (4,),
            "sinks_element": "f32",
        },
    )  # fmt: skip
    reference = oracle.backward

    @staticmethod
    def reference_guarantee(desc: AttentionBackwardDescriptor) -> PrecisionGuarantee:
        return forward_oracle.guarantee(desc, _backward_guarantee.backward(desc))


@function_of(AttentionBackwardPlan)
def attention_backward(
    grad: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *, causal: bool = False, scale: float | None = None,
    window: Sequence[int | None] | None = None, softcap: float | None = None, alibi_slopes: Any = None, mask: Any = None,
    block_mask: Any = None, block_size: Sequence[int] | None = None, sinks: Any = None, cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
    offset: int | None = None, layout: str = "BHSD", math: MathPrecision | str | None = None, needs: Sequence[str] = (),
    grad_q: Any = None, grad_k: Any = None, grad_v: Any = None, grad_sinks: Any = None, grad_mask: Any = None,
    grad_alibi_slopes: Any = None, pref: PlanPreference | None = None,
) -> CallArgs:  # fmt: skip
    """The gradients of `attention` with respect to q, k, v and sinks, and where `needs` names them "mask" and "alibi_slopes".

    grad, out: as `attention` gives out, of q's dtype: the gradient of its result, and that result. lse: as it gives with
    `return_lse`, f32 (f64 for f64). All else is as it was there. Weights are recomputed as min(exp(score - lse), 1): lse must be
    of this very problem. It is f32: weights err by |lse| 2**-24 of themselves, 1 % at scores of 2**17, as in any backward pass
    that keeps no more than lse.
    Returns the named tuple (grad_q, grad_k, grad_v), with sinks (.., grad_sinks), then (.., grad_mask, grad_alibi_slopes) where
    they are needed or given, each of the shape and dtype of what it is the gradient of, and allocated if not given; grad_k and
    grad_v are summed over the query heads that share keys, grad_mask and grad_alibi_slopes, by plain multiply-adds in a fixed
    order, over the axes along which mask and slopes are broadcast. A mask of bools has no gradient. Gradients of tokens of no
    sequence are not written: in what is allocated they mean nothing.
    Scores and sums are f32 (f64 for f64); 16-bit kernels on tensor cores round weights and the scores' gradients to q's dtype
    for the second products.
    """
    numbers_ = {"scale": scale, "softcap": softcap, "offset": offset}
    values: dict[str, Any] = {n: scalar(x, f"attention_backward: {n}") for n, x in numbers_.items() if x is not None}
    Attended.check_values("attention_backward", values, {})
    if math is None and isinstance(pref, PlanPreference) and pref.math is MathPrecision.TF32:
        math = pref.math
    options: dict[str, Any] = {
        "causal": causal, "window": sides(window, "attention_backward: window"), "max_seqlen_q": max_seqlen_q,
        "block_size": None if block_size is None else integers(block_size, "attention_backward: block_size"),
        "max_seqlen_k": max_seqlen_k, "layout": layout, "math": math, "needs": _needed("attention_backward", needs),
    }  # fmt: skip
    operands = {
        "grad_q": grad_q, "grad_k": grad_k, "grad_v": grad_v, "grad_sinks": grad_sinks, "grad_mask": grad_mask,
        "grad_alibi_slopes": grad_alibi_slopes, "grad": grad, "q": q, "k": k,
        "v": v, "out": out, "lse": lse, "mask": mask, "block_mask": block_mask, "alibi_slopes": alibi_slopes,
        "sinks": sinks, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k,
    }  # fmt: skip
    made = {"grad_q", "grad_k", "grad_v", "grad", "q", "k", "v", "out", "lse"}
    made |= (set() if sinks is None else {"grad_sinks"}) | {f"grad_{name}" for name in options["needs"]}
    given = {name: x for name, x in operands.items() if x is not None or name in made}

    def describe() -> AttentionBackwardDescriptor:
        return AttentionBackwardDescriptor.of(**operands, **options, **values)

    return given, describe, (tuple(given), tuple(values), *options.values()), values, None


def forward(operands: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[Any, Any]:
    """out and lse of `attention`, as its oracle gives them."""
    op = get_op("attention")
    options = {name: x for name, x in options.items() if name != "needs"} | {"return_lse": True}
    out, lse = op.plan.reference(op.of_sample(dict(operands), options), **operands)
    return out, lse


register(Op("attention_backward", AttentionBackwardPlan, attention_backward, partial(samples.backward, forward)))

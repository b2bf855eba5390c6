"""No argument of a public function is ignored: where it has no meaning it is refused, and nothing is written."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import all_ops, get_op

F32 = np.float32


def product(**more: Any) -> tuple[Any, ...]:
    return (np.ones((3, 4), F32), np.ones((4, 5), F32)), more


def window(**more: Any) -> tuple[Any, ...]:
    return (np.zeros(4, F32), np.ones(1, F32), [(0, 1)]), more


TABLES = {"cos": np.ones((3, 2), F32), "sin": np.ones((3, 2), F32)}


def turned(**more: Any) -> tuple[Any, ...]:
    return (np.ones((3, 4), F32),), more


PAGES, IDS = [np.zeros((3, 4, 1, 8), F32), np.zeros((3, 4, 1, 8), F32)], np.arange(2, dtype=np.int32)


def pages(**more: Any) -> tuple[Any, ...]:
    new = [np.ones((1, 2, 1, 8), F32), np.ones((1, 2, 1, 8), F32)]
    return (*PAGES, *new, IDS[:1].reshape(1, 1), IDS[:1]), more


def bytes_(**more: Any) -> tuple[Any, ...]:
    return (np.ones((3, 8), np.int8), np.ones((8, 4), np.int8)), more


def halves(**more: Any) -> tuple[Any, ...]:
    return (np.ones((3, 8), np.float16), *[np.ones((8, 4), np.int8)] * 3, *[np.ones(4, F32)] * 3), more


def heads(**more: Any) -> tuple[Any, ...]:
    return tuple(np.ones((1, 2, 9, 16), F32) for _ in "qkv"), more


WEIGHT = bp.PackedInt4("plain", (32, 4), 32, np.zeros((32, 4), np.uint8), np.ones((1, 4), np.float16))


def packed(**more: Any) -> tuple[Any, ...]:
    return (np.ones((3, 32), np.float16), WEIGHT), more


NF4 = bp.PackedNf4((4, 64), np.zeros((4, 32), np.uint8), np.ones(4, F32))


def packed_nf4(**more: Any) -> tuple[Any, ...]:
    return (np.ones((3, 64), np.float16), NF4), more


GGUF = bp.PackedGguf(np.zeros((4, 144), np.uint8), "Q4_K", (4, 256))


def gguf(**more: Any) -> tuple[Any, ...]:
    return (np.ones((3, 256), np.float16), GGUF), more


def three(**more: Any) -> tuple[Any, ...]:
    return (np.ones((3, 32), np.float16), WEIGHT, WEIGHT, WEIGHT), more


IDLE: list[tuple[str, Any, type[bp.BaracudaError], str]] = [
    ("write_slice", window(start=np.array(3)), bp.InvalidProblemError, "start was given and no dynamic_axis"),
    (
        "write_slice",
        window(status=np.array(7, np.int32)),
        bp.InvalidProblemError,
        "status was given and no dynamic_axis",
    ),
    ("write_slice", window(dynamic_axis=0), bp.InvalidProblemError, "operand 'start' is missing"),
    (
        "take_along_axis",
        ((np.zeros(3), np.zeros(2, np.int64)), {"mode": "clip", "status": np.array(7, np.int32)}),
        bp.InvalidProblemError,
        "no operand 'status'",
    ),
    ("matmul", product(beta=0.5), bp.InvalidProblemError, "there is no c"),
    ("matmul", product(scale_a=np.ones((1, 1), F32)), bp.OperandTypeError, "only fp8 is scaled"),
    ("matmul", product(scale_b=np.ones((1, 5), F32)), bp.OperandTypeError, "only fp8 is scaled"),
    ("matmul", product(math="fp8_fast"), bp.OperandTypeError, "f32 is not multiplied in fp8_fast"),
    (
        "matmul",
        product(out_dtype="f16", out=np.zeros((3, 5), F32)),
        bp.OperandTypeError,
        "out holds f32 and out_dtype is f16",
    ),
    (
        "matmul",
        product(pref=bp.PlanPreference(variant="wgmma")),
        bp.UnsupportedError,
        "not the preferred variant 'wgmma'",
    ),
    ("matmul_int4", packed(group_size=64), bp.InvalidProblemError, "leave group_size out"),
    ("matmul_int4", packed(layout="gptq"), bp.InvalidProblemError, "leave layout out"),
    *(
        ("matmul_int4", packed(**{name: x}), bp.InvalidProblemError, f"{name} was passed beside")
        for name, x in {**WEIGHT.operands, "zeros": WEIGHT.codes, "order": IDS, "shape": (32, 4)}.items()
        if name != "codes"
    ),
    ("matmul_nf4", packed_nf4(block_size=128), bp.InvalidProblemError, "leave block_size out"),
    *(
        ("matmul_nf4", packed_nf4(**{name: NF4.absmax}), bp.InvalidProblemError, f"{name} was passed beside")
        for name in ("absmax", "scales", "offset")
    ),
    *(
        ("qkv_project_int4", three(**{f"{name}_{part}": IDS}), bp.InvalidProblemError, f"{name} was passed beside")
        for name in ("scales", "zeros", "order")
        for part in "qkv"
    ),
    ("qkv_project_int4", three(widths=(4, 4, 8)), bp.InvalidProblemError, "leave widths out"),
    *(
        ("qkv_project_int4", three(**{name: x}), bp.InvalidProblemError, f"{name} was given and no angles")
        for name, x in {"head_dim": 4, "positions": IDS, "style": "interleaved", "attention_factor": 2.0}.items()
    ),
    ("qkv_project_int4", three(status=IDS[:1]), bp.InvalidProblemError, "no operand 'status'"),
    ("matmul_gguf", gguf(format="Q4_0"), bp.InvalidProblemError, "leave format out"),
    ("dequantize_gguf", ((GGUF,), {"shape": (4, 256)}), bp.InvalidProblemError, "leave shape out"),
    (
        "quantize_int4",
        ((np.ones((32, 4), F32),), {"group_size": 32, "least_zero": 1}),
        bp.InvalidProblemError,
        "least_zero was given",
    ),
    (
        "relayout_int4",
        (
            tuple(WEIGHT.operands.values()),
            {"layout": "plain", "group_size": 32, "out_zeros": np.zeros((1, 16), np.uint8)},
        ),
        bp.InvalidProblemError,
        "out_zeros without zeros",
    ),
    ("rms_norm", ((np.ones((2, 3)),), {"residual_out": np.ones((2, 3))}), bp.InvalidProblemError, "pass residual too"),
    (
        "rms_norm_backward",
        ((np.ones((2, 3)), np.ones((2, 3)), None, np.ones(2)), {"grad_weight": np.ones(3)}),
        bp.InvalidProblemError,
        "there is no grad_weight",
    ),
    ("rope", turned(base=1e6, inv_freq=np.ones(2, F32)), bp.InvalidProblemError, "base was given beside"),
    ("rope", turned(rotary_dim=2, **TABLES), bp.InvalidProblemError, "rotary_dim was given beside"),
    ("rope", turned(scaling=bp.RopeScaling.plain(4), **TABLES), bp.InvalidProblemError, "scaling was given beside"),
    ("rope", turned(inv_freq=np.ones(2, F32), **TABLES), bp.InvalidProblemError, "by inv_freq and cos and sin"),
    ("rope", turned(cos=np.ones((3, 2), F32)), bp.InvalidProblemError, "angles are given by cos"),
    ("rope", turned(k_out=np.ones((3, 4), F32)), bp.InvalidProblemError, "k_out was given and no k"),
    ("rope", turned(status=np.ones(3, np.int32)), bp.InvalidProblemError, "no operand 'status'"),
    ("rope_backward", turned(grad_k=np.ones((3, 4), F32)), bp.InvalidProblemError, "grad_k was given and no k_grad"),
    *(
        ("paged_kv_append", pages(**{name: np.ones(shape, F32)}), bp.InvalidProblemError, "stored as it is")
        for part in "kv"
        for name, shape in ((f"{part}_scales", (3, 4, 1)), (f"{part}_scale", (1,)))
    ),
    (
        "copy_pages",
        ((*PAGES, IDS[:1], IDS[1:2]), {"k_scales": np.ones((3, 4, 1), F32)}),
        bp.InvalidProblemError,
        "both or neither",
    ),
    ("paged_kv_append", pages(cu_seqlens=np.zeros(2, np.int32)), bp.InvalidProblemError, "k has shape"),
    ("attention", heads(block_size=(16, 16)), bp.InvalidProblemError, "block_size without block_mask"),
    (
        "attention",
        heads(block_mask=np.ones((1, 1, 1, 1), bool)),
        bp.InvalidProblemError,
        "block_mask with block_size=None",
    ),
    ("attention", heads(max_seqlen_q=5), bp.InvalidProblemError, "max_seqlen_q=5"),
    ("attention", heads(max_seqlen_k=5), bp.InvalidProblemError, "max_seqlen_k=5"),
    ("attention", heads(cu_seqlens_q=np.zeros(2, np.int32)), bp.InvalidProblemError, "cu_seqlens_q is given"),
    ("attention", heads(cu_seqlens_k=np.zeros(2, np.int32)), bp.InvalidProblemError, "cu_seqlens_k is given"),
    (
        "attention_backward",
        ((*(np.ones((1, 2, 9, 16), F32),) * 5, np.ones((1, 2, 9), F32)), {"grad_sinks": np.ones(2, F32)}),
        bp.InvalidProblemError,
        "operand 'sinks' is missing",
    ),
    ("matmul_int8", bytes_(dynamic=True), bp.OperandTypeError, "quantised already"),
    ("matmul_int8", bytes_(zero_b=np.ones(4, F32)), bp.OperandTypeError, "a zero point is a code"),
    ("matmul_int8", bytes_(zero_a=np.ones(4, np.int8)), bp.InvalidProblemError, "no zero point"),
    ("qkv_project_int8", halves(scale_x=np.ones(3, F32)), bp.InvalidProblemError, "not quantised"),
    *(
        ("quantize_int8", turned(**more), error, says)
        for more, error, says in (
            ({"group_size": 2}, bp.InvalidProblemError, "group_size=2"),
            ({"per": "channel"}, bp.InvalidProblemError, "row"),
            ({"zeros": np.ones(3, np.uint8)}, bp.InvalidProblemError, "a zero point is a code"),
            ({"dtype": "i16"}, bp.OperandTypeError, "codes must hold"),
            ({"scales": np.ones(4, F32)}, bp.InvalidProblemError, "scales"),
            ({"codes": np.ones((4, 3), np.int8)}, bp.InvalidProblemError, "codes"),
        )
    ),
    ("add", ((np.ones(3), np.ones(3)), {"pref": bp.PlanPreference(math="tf32")}), bp.UnsupportedError, "not tf32"),  # type: ignore[arg-type]
    ("neg", ((np.ones(3),), {"pref": bp.PlanPreference(backend="cublas")}), bp.UnsupportedError, "cublas"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("op", "call", "error", "says"), IDLE, ids=[f"{i} {row[0]}" for i, row in enumerate(IDLE)])
def test_what_has_no_meaning_is_refused(op: str, call: Any, error: type[bp.BaracudaError], says: str) -> None:
    arguments, options = call
    arrays = [x for x in (*arguments, *options.values()) if isinstance(x, np.ndarray)]
    before = [x.copy() for x in arrays]
    with pytest.raises(error, match=says):
        getattr(bp, op)(*arguments, **options, device="cpu")
    assert all(np.array_equal(x, y) for x, y in zip(arrays, before))


def test_every_argument_that_may_have_no_meaning_is_tried() -> None:
    """Those with a default, of every op: a new one is put into the list above, or here if it always means something."""
    always = {"out", "stream", "pref", "device", "layout", "alpha", "c", "bias", "residual", "activation"}
    always |= {"axis", "mode", "largest", "sorted", "values", "indices", "trim", "count"}
    always |= {
        "weight",
        "eps",
        "normalized_shape",
        "stats",
        "rstd",
        "mean",
        "grad_x",
        "grad_bias",
        "keepdims",
        "correction",
    }
    always |= {"positions", "k", "k_grad", "style", "offset", "attention_factor"}
    always |= {"causal", "scale", "window", "softcap", "alibi_slopes", "mask", "sinks", "offset", "return_lse", "lse"}
    always |= {"grad_q", "grad_k", "grad_v", "needs", "grad_mask", "grad_alibi_slopes", "pad", "double_quant"}
    always |= {"lengths", "return_status"}
    always |= {"scale_q", "scale_k", "scale_v", "bias_q", "bias_k", "bias_v", "q", "v", "zero_points"}
    always |= {"symmetric", "scales_dtype", "gather", "to", "out_scales", "q", "v", "bias_q", "bias_k", "bias_v"}
    tried = {name for _, (_, options), _, _ in IDLE for name in options}
    for op in all_ops():
        for name, parameter in inspect.signature(getattr(bp, op)).parameters.items():
            optional = parameter.default is not inspect.Parameter.empty
            known = always | tried | get_op(op).arguments.keys()  # an operand is one by whatever name
            assert not optional or name in known or (op, name) == ("kv_append", "status"), f"{op}: {name}"


def test_a_descriptor_refuses_what_it_would_drop() -> None:
    for more in ({"start": np.array(0)}, {"status": np.array(0, np.int32)}):
        with pytest.raises(bp.InvalidProblemError, match="no dynamic_axis"):
            bp.WriteSliceDescriptor.of(np.zeros(4), np.zeros(1), [(0, 1)], **more)

"""Attention of e4m3 operands."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import baracuda_py as bp

from .. import Family, NoMeaning
from .independent import CHECKS

__all__ = ["FAMILY"]


def heads(**more: Any) -> Any:
    return tuple(np.ones((1, 2, 9, 16), ml_dtypes.float8_e4m3fn) for _ in "qkv"), more


FAMILY = Family(
    independent=CHECKS,
    always=(
        "causal",
        "scale",
        "window",
        "softcap",
        "offset",
        "layout",
        "return_lse",
        "lse",
        "out_dtype",
        "q_scale",
        "k_scale",
        "v_scale",
        "q_scales",
        "k_scales",
        "v_scales",
    ),
    wanted=("attention-fp8-one-block",),
    no_meaning=(
        NoMeaning("attention_fp8", heads(max_seqlen_q=5), bp.InvalidProblemError, "max_seqlen_q=5"),
        NoMeaning("attention_fp8", heads(max_seqlen_k=5), bp.InvalidProblemError, "max_seqlen_k=5"),
        NoMeaning(
            "attention_fp8", heads(cu_seqlens_q=np.zeros(2, np.int32)), bp.InvalidProblemError, "cu_seqlens_q is given"
        ),
        NoMeaning(
            "attention_fp8", heads(cu_seqlens_k=np.zeros(2, np.int32)), bp.InvalidProblemError, "cu_seqlens_k is given"
        ),
    ),
)

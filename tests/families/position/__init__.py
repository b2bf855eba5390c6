"""Rotary embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

import baracuda_py as bp

from .. import Family, NoMeaning
from .independent import CHECKS

F32 = np.float32
TABLES = {"cos": np.ones((3, 2), F32), "sin": np.ones((3, 2), F32)}


def tokens(**more: Any) -> Any:
    return (np.ones((3, 4), F32),), more


__all__ = ["FAMILY"]

FAMILY = Family(
    independent=CHECKS,
    always=("positions", "k", "k_grad", "grad_x", "style", "layout", "offset", "attention_factor"),
    no_meaning=(
        NoMeaning("rope", tokens(base=1e6, inv_freq=np.ones(2, F32)), bp.InvalidProblemError, "base was given beside"),
        NoMeaning("rope", tokens(rotary_dim=2, **TABLES), bp.InvalidProblemError, "rotary_dim was given beside"),
        NoMeaning(
            "rope",
            tokens(scaling=bp.RopeScaling.plain(4), **TABLES),
            bp.InvalidProblemError,
            "scaling was given beside",
        ),
        NoMeaning(
            "rope", tokens(inv_freq=np.ones(2, F32), **TABLES), bp.InvalidProblemError, "by inv_freq and cos and sin"
        ),
        NoMeaning("rope", tokens(cos=np.ones((3, 2), F32)), bp.InvalidProblemError, "angles are given by cos"),
        NoMeaning("rope", tokens(k_out=np.ones((3, 4), F32)), bp.InvalidProblemError, "k_out was given and no k"),
        NoMeaning("rope", tokens(status=np.ones(3, np.int32)), bp.InvalidProblemError, "no operand 'status'"),
        NoMeaning(
            "rope_backward",
            tokens(grad_k=np.ones((3, 4), F32)),
            bp.InvalidProblemError,
            "grad_k was given and no k_grad",
        ),
    ),
    small={
        "rope": ("gpt-j bf16",),
        "rope_backward": ("gpt-j bf16",),
    },
    cases={
        "rope_test.py::test_angles_far_out": 4,
        "rope_test.py::test_every_configuration": 0,
        "rope_test.py::test_layouts_agree": 0,
    },
)

"""Scalings of numbers that make no frequencies are refused, by errors of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

S = bp.RopeScaling


@pytest.mark.parametrize(
    "make",
    [
        lambda: S(np.array([1.0, np.nan])),
        lambda: S([np.inf]),  # type: ignore[arg-type]
        lambda: S("abc"),  # type: ignore[arg-type]
        lambda: S([[1], [1, 2]]),  # type: ignore[arg-type]
        lambda: S.plain(4, 1e-300),
        lambda: S.ntk(4, 1e200),
        lambda: S.dynamic_ntk(4, 1e200, 10**6, 10),
        lambda: S.longrope(4, [1, 1], [1, 1], 5, 1, 8),
        lambda: S.longrope(4, ["a", "b"], [1, 1], 5, 10, 8),  # type: ignore[list-item]
        lambda: S.yarn(64, 4, 2048, mscale="a", mscale_all_dim=1),  # type: ignore[arg-type]
        lambda: S.yarn(64, 4, 2048, mscale=1, mscale_all_dim=-7.3),
        lambda: S.yarn(64, 4, 2048, mscale=np.ones(2), mscale_all_dim=1),  # type: ignore[arg-type]
        lambda: S.yarn(64, 4, 2048, truncate=np.ones(2)),  # type: ignore[arg-type]
        lambda: S.yarn(64, 4, 2048, attention_factor=np.nan),
        lambda: S.ntk("a", 2.0),  # type: ignore[arg-type]
        lambda: S.dynamic_ntk(64, 2.0, 9, 4, base=None),  # type: ignore[arg-type]
    ],
)
@pytest.mark.filterwarnings("error")
def test_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(bp.BaracudaError, match="rope"):
        make()

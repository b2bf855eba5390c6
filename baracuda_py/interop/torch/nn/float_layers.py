"""`RMSNorm` and `Attention` as torch modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ....plan.registry import get_op

__all__ = ["Attention", "RMSNorm"]

_rms_norm, _attention = get_op("rms_norm").function, get_op("attention").function


class RMSNorm(torch.nn.RMSNorm):  # type: ignore[misc, unused-ignore]
    """torch.nn.RMSNorm by `rms_norm`, with the same parameters. Given a residual, `forward` returns the norm of the sum and the
    sum, computed in one launch."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(normalized_shape, eps, elementwise_affine, device=device, dtype=dtype)

    def forward(self, x: Any, residual: Any = None) -> Any:
        made = _rms_norm(x, self.weight, eps=self.eps, residual=residual, normalized_shape=self.normalized_shape)
        return made if residual is None else (made.out, made.residual_out)


class Attention(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """Attention of queries, keys and values [batch, heads, tokens, columns], with the options of `attention`: causal, scale,
    window, softcap, layout. With `sinks`, a number of query heads, each head has a trained logit without a value."""

    def __init__(
        self, *, causal: bool = False, scale: float | None = None, window: Sequence[int | None] | None = None,
        softcap: float | None = None, layout: str = "BHSD", sinks: int = 0, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.causal, self.scale, self.softcap, self.layout = causal, scale, softcap, layout
        self.window = None if window is None else tuple(window)
        if sinks:
            self.sinks = torch.nn.Parameter(torch.zeros(sinks, device=device, dtype=dtype))
        else:
            self.register_parameter("sinks", None)

    def forward(self, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return _attention(
            q, k, v, causal=self.causal, scale=self.scale, window=self.window, softcap=self.softcap, mask=mask,
            sinks=self.sinks, layout=self.layout,
        )  # fmt: skip

    def extra_repr(self) -> str:
        given = {"causal": self.causal, "scale": self.scale, "window": self.window, "softcap": self.softcap}
        return ", ".join(f"{name}={value}" for name, value in given.items() if value not in (None, False))

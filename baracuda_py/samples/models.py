"""Attention in models that are served, by their published configurations: heads, columns, rotation, windows and what else is new.

What tests, samples and benchmarks name after a model takes its shapes from here.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

__all__ = ["MODELS", "Model"]


class Model(NamedTuple):
    """One layer's attention. `window` and `softcap` are None and `sinks` false where a model has none; of layers that alternate,
    the ones that have them. `rotated` columns turn by base**(-2 i / rotated), in pairs of `style`."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    base: float
    rotated: int
    style: str = "half"
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False
    scale: float | None = None
    latent: bool = False  # values are the keys' first columns, and keys turn before they are put together

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `attention`, `attention_decode` and `paged_attention` beside the operands."""
        window = None if self.window is None else (self.window - 1, 0)
        return {
            name: x
            for name, x in (("window", window), ("softcap", self.softcap), ("scale", self.scale))
            if x is not None
        }

    @property
    def plain(self) -> bool:
        """Whether it is attention as every library has it."""
        return not (self.window or self.softcap or self.sinks or self.latent)


# DeepSeek multiplies its scale with the square of YaRN's 0.1 ln(40) + 1.
_LATENT = (0.1 * math.log(40) + 1) ** 2 / math.sqrt(128 + 64)

MODELS = {
    "Llama-3 8B": Model(32, 32, 8, 128, 128, 500000.0, 128),
    "Llama-3 70B": Model(80, 64, 8, 128, 128, 500000.0, 128),
    "Qwen2.5 7B": Model(28, 28, 4, 128, 128, 1000000.0, 128),
    "Mistral 7B": Model(32, 32, 8, 128, 128, 10000.0, 128, window=4096),
    "Gemma-2 9B": Model(42, 16, 8, 256, 256, 10000.0, 256, window=4096, softcap=50.0, scale=1 / 16),
    "gpt-oss 120B": Model(36, 64, 8, 64, 64, 150000.0, 64, window=128, sinks=True),
    "DeepSeek-V3 MLA": Model(61, 128, 1, 576, 512, 10000.0, 64, "interleaved", scale=_LATENT, latent=True),
}  # fmt: skip

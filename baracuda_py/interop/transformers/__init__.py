"""transformers' models on this library's kernels: `register` makes ``attn_implementation="baracuda"`` known, `swap` puts kernels
under a model's norms, rotations and gated layers, and `BaracudaConfig` has `from_pretrained` make linear layers of few bits."""

from __future__ import annotations

from transformers import AttentionInterface, AttentionMaskInterface

from .attention import attention_forward
from .masks import attention_mask
from .quantizing import BaracudaConfig
from .swapping import Swapped, swap

__all__ = ["BaracudaConfig", "Swapped", "attention_forward", "attention_mask", "register", "swap"]


def register(name: str = "baracuda") -> None:
    """Makes ``attn_implementation=name`` known to transformers: its attention function and its mask function. Call it before the
    model is made; a second call does nothing more."""
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, attention_mask)

"""Forward functions of swapped layers: norms, gated layers, and rotations of queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...plan.registry import get_op

__all__ = ["GATED", "NORMS", "ROTATIONS", "Rotation"]

_rms_norm, _silu_mul, _rope = get_op("rms_norm").function, get_op("silu_mul").function, get_op("rope").function

# ---- norms -----------------------------------------------------------------------------------------------------------------


def _eps(module: Any) -> float:
    return float(getattr(module, "variance_epsilon", getattr(module, "eps", 1e-6)))


def norm(self: Any, hidden_states: Any) -> Any:
    """x / rms(x) * weight (Llama)."""
    return _rms_norm(hidden_states, self.weight, eps=_eps(self)).to(hidden_states.dtype)


def norm_plus_one(self: Any, hidden_states: Any) -> Any:
    """x / rms(x) * (1 + weight) (Gemma)."""
    return _rms_norm(hidden_states, 1.0 + self.weight.float(), eps=_eps(self)).to(hidden_states.dtype)


NORMS: tuple[Callable[..., Any], ...] = (norm, norm_plus_one)

# ---- gated layers -----------------------------------------------------------------------------------------------------------


def gated(self: Any, x: Any) -> Any:
    """down(silu(gate(x)) * up(x)) (Llama)."""
    return self.down_proj(_silu_mul(self.gate_proj(x), self.up_proj(x)))


def gated_in_one(self: Any, hidden_states: Any) -> Any:
    """The same, with gate and up in one product (Phi-3)."""
    gate, up = self.gate_up_proj(hidden_states).chunk(2, dim=-1)
    return self.down_proj(_silu_mul(gate, up))


GATED: tuple[Callable[..., Any], ...] = (gated, gated_in_one)

# ---- rotations --------------------------------------------------------------------------------------------------------------


class Rotation:
    """``apply_rotary_pos_emb`` of a model: queries and keys rotated in one launch by the cosines and sines that the model made.

    `style` says which columns are a pair; `table` how the model repeats cosines: "halves" (all of them twice), "pairs" (each for
    both columns of its pair) or "once".
    """

    def __init__(self, style: str, table: str) -> None:
        self.style, self.table = style, table

    def once(self, cos: Any) -> Any:
        """A model's table with one column per pair, [positions, pairs]."""
        if self.table == "pairs":
            cos = cos[..., ::2]
        elif self.table == "halves":
            cos = cos[..., : cos.shape[-1] // 2]
        return cos.reshape(-1, cos.shape[-1])

    def example(self, cos: Any) -> Any:
        """A table as the model makes it, of one with a column per pair."""
        if self.table == "pairs":
            return cos.repeat_interleave(2, -1)
        return torch.cat((cos, cos), -1) if self.table == "halves" else cos

    def __call__(self, q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> tuple[Any, Any]:
        cosines, sines = self.once(cos), self.once(sin)
        axis = 2 if unsqueeze_dim == 1 else 1
        batch, length = q.shape[0], q.shape[axis]
        positions = None
        if cos.dim() == 3 and cos.shape[0] != 1:
            positions = torch.arange(batch * length, device=q.device, dtype=torch.int32).reshape(batch, length)
        layout = "BHSD" if unsqueeze_dim == 1 else "BSHD"
        made = _rope(q, positions, k=k, cos=cosines, sin=sines, style=self.style, layout=layout)
        return made[0], made[1]


ROTATIONS = tuple(Rotation(style, table) for table in ("halves", "pairs", "once") for style in ("half", "interleaved"))

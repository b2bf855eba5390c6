"""What torch's optimizers with 8-bit states share: states as codes, loaded from torch's and from bitsandbytes'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ....ops.optim.oracle import numbers
from ....types import InvalidProblemError
from ._list_optimizer import TORCH_NAMES, ListOptimizer

__all__ = ["BlockwiseOptimizer"]

BLOCK = 256  # elements that share an absmax


class BlockwiseOptimizer(ListOptimizer):
    """States are uint8 codes, of which 256 share the greatest size among them, an f32: `state` and `state_absmax`. Every
    parameter has such states, however small. It loads its own state dicts, those of torch's optimizer, whose states it quantizes,
    and those of bitsandbytes' blockwise one with blocks of 256."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """A state dict of one of these; codes and f32 are loaded as they are."""
        ids = [i for group in state_dict["param_groups"] for i in group["params"]]
        restored = {i: self._restored(held) for i, held in state_dict["state"].items()}
        super().load_state_dict({**state_dict, "state": restored})
        params = [p for group in self.param_groups for p in group["params"]]
        for i, p in zip(ids, params):
            for name, x in restored.get(i, {}).items():
                if name != "step":
                    shape = p.shape if name in self._keys else x.shape
                    self.state[p][name] = x.to(p.device, copy=True).reshape(shape)

    def dequantized_state_dict(self) -> dict[str, Any]:
        """A state dict with states of f32, as torch's optimizers load it."""
        made = self.state_dict()
        return {**made, "state": {i: self._dequantized(held) for i, held in made["state"].items()}}

    @property
    def _keys(self) -> dict[str, str]:
        """The rule's names of states, by the keys that torch has for them."""
        return {TORCH_NAMES.get(name, name): name for name in self.rule.states}

    def _states(self, group: Mapping[str, Any]) -> list[str]:
        return [*self.rule.states, *self.rule.absmaxes]

    def _laid(self, p: Any, name: str) -> tuple[Sequence[int], Any]:
        if name in self.rule.states:
            return p.shape, torch.uint8
        return (-(-p.numel() // BLOCK),), torch.float32

    def _first(self, p: Any, name: str, group: Mapping[str, Any]) -> Any:
        value = group.get("initial_accumulator_value", 0.0)
        if name not in self.rule.states:
            return torch.full((-(-p.numel() // BLOCK),), value, dtype=torch.float32, device=p.device)
        if value:
            return self._quantized(torch.full_like(p, value, dtype=torch.float32), name)[0]
        return torch.zeros_like(p, dtype=torch.uint8)

    def _restored(self, held: Mapping[str, Any]) -> dict[str, Any]:
        made = {"step": held["step"]} if "step" in held else {}
        for number, (key, name) in enumerate(self._keys.items(), 1):
            x = held.get(key, held.get(f"state{number}"))
            absmax = held.get(f"{key}_absmax", held.get(f"absmax{number}"))
            if x is not None:
                if absmax is None or x.dtype is not torch.uint8:
                    x, absmax = self._quantized(x, name)
                if absmax.numel() != -(-x.numel() // BLOCK):
                    raise InvalidProblemError(
                        f"{type(self).__name__}: {key} has {x.numel()} codes and {absmax.numel()} entries",
                        f"load states of blocks of {BLOCK}",
                    )
                made |= {key: x, f"{key}_absmax": absmax.float()}
        return made

    def _map(self, name: str, device: Any) -> Any:
        return torch.from_numpy(numbers(squares=name in self.rule.squares)).to(device)

    def _quantized(self, x: Any, name: str) -> tuple[Any, Any]:
        """The codes of a state, and the greatest size of each block."""
        known, count = self._map(name, x.device), x.numel()
        blocks = torch.nn.functional.pad(x.reshape(-1).float(), (0, -count % BLOCK)).reshape(-1, BLOCK)
        absmax = blocks.abs().amax(1)
        shares = torch.where(absmax[:, None] == 0, 0, blocks / absmax[:, None])
        codes = torch.bucketize(shares, (known[1:] + known[:-1]) / 2, right=True)
        return codes.reshape(-1)[:count].to(torch.uint8).reshape(x.shape), absmax

    def _dequantized(self, held: Mapping[str, Any]) -> dict[str, Any]:
        own = {*self._keys, *(f"{key}_absmax" for key in self._keys)}
        made = {key: x for key, x in held.items() if key not in own}
        for key, name in self._keys.items():
            if key in held:
                codes, absmax = held[key], held[f"{key}_absmax"].repeat_interleave(BLOCK)
                sized = self._map(name, codes.device)[codes.reshape(-1).int()] * absmax[: codes.numel()]
                made[key] = sized.reshape(codes.shape)
        return made

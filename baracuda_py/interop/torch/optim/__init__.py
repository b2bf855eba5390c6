"""torch's optimizers, and LAMB, LARS and Lion, on this library's steps of lists: one launch for the parameters of a group and a
dtype, behind the one that counts the step; three for LAMB and LARS. Steps of Adafactor and Muon are of one
parameter each.

They take torch's arguments, keep torch's state under torch's names, in the parameters' dtype, and load torch's state dicts. The
step count is a scalar on the parameters' device, and so may the learning rate be: a captured step needs no update. Parameters on
the host need ``with bp.device("cpu")`` or ``"ptx"`` around `step`, as functions do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ....ops.optim import adafactor, muon
from ....ops.optim.rules import RULES, Rule
from ....types import InvalidProblemError, UnsupportedError
from ._blockwise import BlockwiseOptimizer
from ._list_optimizer import ArrayOptimizer, ListOptimizer, own_arguments, pair_of

__all__ = [
    "LAMB",
    "LARS",
    "SGD",
    "Adafactor",
    "Adagrad",
    "Adagrad8bit",
    "Adam",
    "Adam8bit",
    "AdamW",
    "AdamW8bit",
    "Lion",
    "Lion8bit",
    "Muon",
    "RMSprop",
    "RMSprop8bit",
    "SGD8bit",
]

BY_NAME = {rule.name: rule for rule in RULES}


class SGD(ListOptimizer):
    """torch.optim.SGD by `sgd`."""

    rule = BY_NAME["sgd"]

    def __init__(
        self, params: Any, lr: Any = 1e-3, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0,
        nesterov: bool = False, **ways: Any,
    ) -> None:  # fmt: skip
        super().__init__(params, own_arguments(locals()), **ways)


class Adam(ListOptimizer):
    """torch.optim.Adam by `adam`, and by `adamw` for a group with decoupled_weight_decay, as torch's own."""

    rule = BY_NAME["adam"]

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, amsgrad: bool = False, *, decoupled_weight_decay: bool = False, **ways: Any,
    ) -> None:  # fmt: skip
        super().__init__(params, own_arguments(locals()), **ways)

    def _rule_of(self, group: Mapping[str, Any]) -> Rule:
        return BY_NAME["adamw" if group["decoupled_weight_decay"] else "adam"]


class AdamW(Adam):
    """torch.optim.AdamW by `adamw`: the weight decay of loaded groups is decoupled too, as in torch's own."""

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, **ways: Any,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, decoupled_weight_decay=True, **ways)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A loaded state, of torch's Adam as well."""
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


class RMSprop(ListOptimizer):
    """torch.optim.RMSprop by `rmsprop`."""

    rule = BY_NAME["rmsprop"]

    def __init__(
        self, params: Any, lr: Any = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0,
        momentum: float = 0.0, centered: bool = False, **ways: Any,
    ) -> None:  # fmt: skip
        super().__init__(params, own_arguments(locals()), **ways)


class Adagrad(ListOptimizer):
    """torch.optim.Adagrad by `adagrad`."""

    rule = BY_NAME["adagrad"]

    def __init__(
        self, params: Any, lr: Any = 1e-2, lr_decay: float = 0.0, weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0, eps: float = 1e-10, **ways: Any,
    ) -> None:  # fmt: skip
        super().__init__(params, own_arguments(locals()), **ways)


class Lion(ListOptimizer):
    """Lion (X. Chen et al., NeurIPS 2023) by `lion`, which torch lacks."""

    rule = BY_NAME["lion"]

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        **ways: Any,
    ) -> None:
        super().__init__(params, own_arguments(locals()), **ways)


class Adam8bit(BlockwiseOptimizer):
    """Adam with 8-bit states (T. Dettmers et al., ICLR 2022) by `adam8bit`."""

    rule = BY_NAME["adam8bit"]

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, **ways: Any,
    ) -> None:  # fmt: skip
        super().__init__(params, own_arguments(locals()), **ways)


class AdamW8bit(BlockwiseOptimizer):
    """AdamW with 8-bit states by `adamw8bit`."""

    rule = BY_NAME["adamw8bit"]

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, **ways: Any,
    ) -> None:  # fmt: skip
        super().__init__(params, own_arguments(locals()), **ways)


class Lion8bit(BlockwiseOptimizer):
    """Lion with 8-bit states by `lion8bit`."""

    rule = BY_NAME["lion8bit"]

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        **ways: Any,
    ) -> None:
        super().__init__(params, own_arguments(locals()), **ways)


class SGD8bit(BlockwiseOptimizer):
    """SGD with an 8-bit momentum by `sgd8bit`."""

    rule = BY_NAME["sgd8bit"]

    def __init__(
        self, params: Any, lr: Any = 1e-3, momentum: float = 0.9, dampening: float = 0.0, weight_decay: float = 0.0,
        nesterov: bool = False, **ways: Any,
    ) -> None:  # fmt: skip
        super().__init__(params, own_arguments(locals()), **ways)


class RMSprop8bit(BlockwiseOptimizer):
    """RMSprop, neither centred nor with a momentum, with an 8-bit state by `rmsprop8bit`."""

    rule = BY_NAME["rmsprop8bit"]

    def __init__(
        self, params: Any, lr: Any = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0,
        momentum: float = 0.0, **ways: Any,
    ) -> None:  # fmt: skip
        super().__init__(params, own_arguments(locals()), **ways)


class Adagrad8bit(BlockwiseOptimizer):
    """Adagrad with an 8-bit state by `adagrad8bit`."""

    rule = BY_NAME["adagrad8bit"]

    def __init__(
        self, params: Any, lr: Any = 1e-2, lr_decay: float = 0.0, weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0, eps: float = 1e-10, **ways: Any,
    ) -> None:  # fmt: skip
        super().__init__(params, own_arguments(locals()), **ways)


class LAMB(ListOptimizer):
    """LAMB (Y. You et al., ICLR 2020) by `lamb`, which torch lacks; its norms are of each parameter of its own."""

    rule = BY_NAME["lamb"]

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6,
        weight_decay: float = 0.0, **ways: Any,
    ) -> None:  # fmt: skip
        super().__init__(params, own_arguments(locals()), **ways)


class LARS(ListOptimizer):
    """LARS (Y. You, I. Gitman, B. Ginsburg, arXiv:1708.03888) by `lars`, which torch lacks; norms are as of `LAMB`."""

    rule = BY_NAME["lars"]

    def __init__(
        self, params: Any, lr: Any = 1e-3, momentum: float = 0.9, weight_decay: float = 0.0,
        trust_coefficient: float = 1e-3, eps: float = 0.0, nesterov: bool = False, **ways: Any,
    ) -> None:  # fmt: skip
        super().__init__(params, own_arguments(locals()), **ways)


class Adafactor(ArrayOptimizer):
    """torch.optim.Adafactor by `adafactor_update`: six launches for each parameter. eps[0] is by default the machine epsilon of
    each parameter's own dtype."""

    update = staticmethod(adafactor.adafactor_update)

    def __init__(
        self, params: Any, lr: Any = 1e-2, beta2_decay: float = -0.8, eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0, weight_decay: float = 0.0, *, foreach: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, locals())

    def _values(self, group: Mapping[str, Any]) -> dict[str, Any]:
        eps1, eps2 = pair_of(type(self).__name__, "eps", group["eps"])
        numbers = {name: group[name] for name in ("lr", "beta2_decay", "d", "weight_decay")} | {"eps2": eps2}
        return numbers if eps1 is None else {**numbers, "eps1": eps1}

    def _refuse_range(self, values: Mapping[str, Any]) -> None:
        adafactor.refuse_values(type(self).__name__, values)

    def _options(self, group: Mapping[str, Any]) -> dict[str, Any]:
        values = {name: x for name, x in self._values(group).items() if name != "lr"}
        return {**values, "maximize": group["maximize"]}

    def _start(self, p: Any) -> dict[str, Any]:
        step = torch.zeros((), dtype=torch.float32, device=p.device)
        if p.ndim < 2:
            return {"step": step, "variance": torch.zeros_like(p)}
        return {
            "step": step,
            "row_var": p.new_zeros((*p.shape[:-1], 1)),
            "col_var": p.new_zeros((*p.shape[:-2], 1, p.shape[-1])),
        }


class Muon(ArrayOptimizer):
    """torch.optim.Muon by `muon_update`: three launches and three products for each iteration, for each parameter, a matrix."""

    update = staticmethod(muon.muon_update)
    _step_supports_amp_scaling = False  # nor does torch's: torch.amp.GradScaler divides the gradients

    def __init__(
        self, params: Any, lr: Any = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = muon.COEFFICIENTS, eps: float = 1e-7, ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(params, locals())

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """A further group of matrices, whose values are checked."""
        super().add_param_group(param_group)
        for i, p in enumerate(self.param_groups[-1]["params"]):
            if p.ndim != 2:
                del self.param_groups[-1]
                raise InvalidProblemError(
                    f"Muon: params[{i}] has shape {tuple(p.shape)}", "pass matrices, and all others to AdamW"
                )

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A loaded state, of torch's own as well: neither counts steps."""
        super().__setstate__(state)
        for held in self.state.values():
            held.pop("step", None)

    def _flags(self) -> tuple[str, ...]:
        return ("nesterov",)

    def _values(self, group: Mapping[str, Any]) -> dict[str, Any]:
        return {name: group[name] for name in muon.MuonUpdateDescriptor.values}

    def _refuse_range(self, values: Mapping[str, Any]) -> None:
        muon.refuse_values(type(self).__name__, values)

    def _refuse_values(self, group: Mapping[str, Any]) -> None:
        super()._refuse_values(group)
        options = (group[name] for name in ("ns_coefficients", "ns_steps", "adjust_lr_fn"))
        muon.refuse_options(type(self).__name__, *options)
        if group.get("maximize"):
            raise UnsupportedError("Muon: maximize=True", "leave it out, as torch's Muon does")

    def _options(self, group: Mapping[str, Any]) -> dict[str, Any]:
        names = ("weight_decay", "momentum", "nesterov", "ns_coefficients", "eps", "ns_steps", "adjust_lr_fn")
        return {name: group[name] for name in names}

    def _start(self, p: Any) -> dict[str, Any]:
        return {"momentum_buffer": torch.zeros_like(p)}

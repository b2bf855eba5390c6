"""What torch's optimizers on this library's steps share: groups and states as torch has them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar

import torch

from ....ops.optim import lists
from ....ops.optim.rules import Rule, plural
from ....types import DeviceMismatchError, InvalidProblemError, OperandTypeError, UnsupportedError
from ....types.errors import Renamed
from ._checked_group import CheckedGroup, Part

__all__ = ["TORCH_NAMES", "ArrayOptimizer", "ListOptimizer", "own_arguments", "pair_of"]

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
TORCH_NAMES = {"state_sum": "sum", "state_sum_absmax": "sum_absmax"}  # states that torch calls otherwise
CHECKED = "_checked_groups"  # an optimizer's attribute, which no state dict has
ON_REQUEST = {"max_exp_avg_sq": "amsgrad", "grad_avg": "centered", "momentum_buffer": "momentum"}


class ListOptimizer(torch.optim.Optimizer):  # type: ignore[misc, unused-ignore]
    """What the optimizers share. `maximize` ascends. `stochastic` rounds bf16 parameters up or down by chance, by `seed`.
    `foreach`, `fused` and `capturable` are taken and change nothing: all of it is so in any case."""

    rule: ClassVar[Rule]
    _step_supports_amp_scaling = True  # torch.amp.GradScaler passes its scale and found_inf, which the kernel reads

    def __init__(
        self, params: Any, defaults: Mapping[str, Any], *, maximize: bool = False, stochastic: bool = False, seed: int = 0,
        foreach: bool | None = None, fused: bool | None = None, capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        if differentiable:
            raise UnsupportedError(
                f"{type(self).__name__}: differentiable=True", "steps are not differentiated: leave it out"
            )
        ways = {"foreach": foreach, "fused": fused, "capturable": capturable, "differentiable": False}
        super().__init__(params, {**defaults, "maximize": maximize, "stochastic": stochastic, "seed": seed, **ways})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """A further group, whose values are checked."""
        self._refuse_values({**self.defaults, **param_group})
        super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """torch's, in which each parameter has its own step, as in those of torch's optimizers."""
        made = super().state_dict()
        own = {
            i: {key: x.clone() if key == "step" else x for key, x in held.items()} for i, held in made["state"].items()
        }
        return {**made, "state": own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A loaded state: its steps are put on the parameters' devices, one for all parameters of a group that have counted the
        same number."""
        super().__setstate__(state)
        self.__dict__.pop(CHECKED, None)
        for group in self.param_groups:
            for key, default in self.defaults.items():
                group.setdefault(key, default)
            counted: dict[tuple[float, Any], Any] = {}
            for p in group["params"]:
                held = self.state.get(p, {})
                for key in [key for key, x in held.items() if x is None]:
                    del held[key]
                if held:
                    count = float(held.get("step", 1.0))  # torch's SGD keeps none, and a buffer from its first step on
                    made = torch.tensor(count, dtype=torch.float32, device=p.device)
                    held["step"] = counted.setdefault((count, p.device), made)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """A step of every group; returns what `closure` returns, which is called first, with gradients recorded.

        Raises, before any parameter is written, OperandTypeError for a sparse gradient and for complex parameters,
        DeviceMismatchError for a group on several devices, InvalidProblemError for what is not C-ordered and for numbers of a
        group that are out of range; and for a state that does not fit its parameter.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        groups = [(group, self._known_parts(group)) for group in self.param_groups if group["params"]]
        for group, parts in groups:
            if parts is None:
                self._refuse(group)
            else:
                self._refuse_values(group)
        with torch.no_grad():
            for group, parts in groups:
                self._step(group, parts)
        return loss

    def _step(self, group: dict[str, Any], parts: list[Part] | None) -> None:
        rule = self._rule_of(group)
        known = rule.signature_of_lists().parameters.keys() - {"params"}
        options = {name: x for name, x in group.items() if name in known} | dict(self._scalars(group))
        for part in self._new_parts(group) if parts is None else parts:
            getattr(lists, rule.name)(part.params, part.grads, step=part.count, **part.states, **options)

    def _known_parts(self, group: Mapping[str, Any]) -> list[Part] | None:
        """The launches of a group whose tensors are as after its last step, for which nothing is checked again."""
        known = self.__dict__.get(CHECKED, {}).get(id(group))
        return None if known is None else known.parts(self.state, group["params"], self._asked(group))

    def _new_parts(self, group: dict[str, Any]) -> list[Part]:
        """The launches of a group that was checked; they are kept for further steps."""
        keys = {plural(name): TORCH_NAMES.get(name, name) for name in self._states(group)}
        made = []
        for params in self._counted_together(group):
            states = {name: [self.state[p][key] for p in params] for name, key in keys.items()}
            made.append(Part(params, [p.grad for p in params], states, self.state[params[0]]["step"]))
        kept = CheckedGroup(self.state, group["params"], made, tuple(keys.values()), self._asked(group))
        self.__dict__.setdefault(CHECKED, {})[id(group)] = kept
        return made

    def _asked(self, group: Mapping[str, Any]) -> Any:
        """What the checks of tensors depend on beside these."""
        return tuple(self._states(group)), group.get("stochastic", False)

    def _rule_of(self, group: Mapping[str, Any]) -> Rule:
        """The rule of a group, with the states and the values of `rule`."""
        return self.rule

    def _states(self, group: Mapping[str, Any]) -> list[str]:
        """The states of a group's parameters."""
        return [*self.rule.states, *(name for name in self.rule.optional if group[ON_REQUEST[name]])]

    def _scalars(self, group: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """The arguments that may be in device memory, as f32 scalars; a learning rate on the host as a number."""
        device = group["params"][0].device
        for name in ("lr", "grad_scale", "found_inf"):
            x = group["lr"] if name == "lr" else getattr(self, name, None)
            if isinstance(x, torch.Tensor):
                on_host = name == "lr" and x.device.type == "cpu" and device.type != "cpu"
                yield name, float(x) if on_host else x.detach().to(device, torch.float32).reshape(())
            elif x is not None:
                yield name, x

    def _counted_together(self, group: dict[str, Any]) -> Iterable[Sequence[Any]]:
        """The parameters with gradients, by step count and dtypes. Parameters that start together share a count; those of a count
        that have no gradient, or have other dtypes, get their own."""
        given = [p for p in group["params"] if p.grad is not None]
        for p in given:
            for name in self._states(group):
                if (key := TORCH_NAMES.get(name, name)) not in self.state[p]:
                    self.state[p][key] = self._first(p, name, group)
        starting = [p for p in given if "step" not in self.state[p]]
        if starting:
            self._share(starting, torch.zeros((), dtype=torch.float32, device=starting[0].device))
        parts: dict[tuple[int, Any], list[Any]] = {}
        for p in group["params"]:
            if p in self.state:
                kinds = None if p.grad is None else (p.dtype, p.grad.dtype)
                parts.setdefault((id(self.state[p]["step"]), kinds), []).append(p)
        seen = set[int]()
        for (count, _), params in parts.items():
            if count in seen:
                self._share(params, self.state[params[0]]["step"].clone())
            seen.add(count)
        return [params for (_, kinds), params in parts.items() if kinds is not None]

    def _first(self, p: Any, name: str, group: Mapping[str, Any]) -> Any:
        """A state of a parameter that has made no step."""
        return torch.full_like(p, group.get("initial_accumulator_value", 0.0))

    def _share(self, params: Sequence[Any], count: Any) -> None:
        for p in params:
            self.state[p]["step"] = count

    def _values(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """The numbers of a group, by the names that steps have for them."""
        own = ("lr", *self.rule.hyper, "initial_accumulator_value")
        pair = pair_of(type(self).__name__, "betas", group["betas"]) if "betas" in group else ()
        return {key: group[key] for key in own if key in group} | dict(zip(("beta1", "beta2"), pair))

    def _refuse_range(self, values: Mapping[str, Any]) -> None:
        self.rule.refuse_values(type(self).__name__, values)

    def _flags(self) -> tuple[str, ...]:
        """The options of a group that are True or False, beside those that all optimizers have."""
        return self.rule.flags

    def _refuse_values(self, group: Mapping[str, Any]) -> None:
        name, values = type(self).__name__, self._values(group)
        if isinstance(lr := values["lr"], torch.Tensor):
            if lr.numel() != 1:
                raise OperandTypeError(
                    f"{name}: lr is a tensor of shape {tuple(lr.shape)}", "pass a number, or a scalar"
                )
            if lr.device.type == "cpu":
                values["lr"] = float(lr)
            else:
                del values["lr"]  # read where it is
        for key, x in values.items():
            if isinstance(x, bool) or not isinstance(x, Real):
                raise OperandTypeError(f"{name}: {key}={x!r} is no number", "give a float")
        if not isinstance(seed := group.get("seed", 0), int):
            raise OperandTypeError(f"{name}: seed={seed!r} is no integer", "give an int")
        self._refuse_range(values)
        for key in (*self._flags(), "maximize", "stochastic"):
            if not isinstance(group.get(key, False), bool):
                raise OperandTypeError(f"{name}: {key}={group[key]!r} must be True or False", "give a bool")
        if group.get("nesterov") and "dampening" in group and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise InvalidProblemError(
                f"{name}: nesterov with momentum={group['momentum']} and dampening={group['dampening']}",
                "give a momentum, and dampening=0",
            )

    def _refuse_states(self, group: Mapping[str, Any]) -> None:
        """Raises for a state that does not fit its parameter, and for states of two dtypes in one launch."""
        held_as: dict[tuple[Any, ...], tuple[str, Any]] = {}
        for i, p in enumerate(group["params"]):
            held = self.state.get(p)
            if p.grad is None or not held:
                continue
            called = f"{type(self).__name__}: params[{i}]"
            if "step" in held:
                _refuse_state(f"{called}: step", held["step"], p, (), torch.float32)
            for name in self._states(group):
                key = TORCH_NAMES.get(name, name)
                shape, dtype = self._laid(p, name)
                if key in held:
                    x = held[key]
                    _refuse_state(f"{called}: {key}", x, p, shape, dtype)
                    together = (id(held.get("step")), p.dtype, p.grad.dtype)
                    first, kind = held_as.setdefault(together, (f"params[{i}]: {key}", x.dtype))
                    if dtype is None and x.dtype is not kind:
                        raise OperandTypeError(
                            f"{called}: {key} holds {x.dtype}, and {first} {kind}", f"cast it to {kind}"
                        )

    def _laid(self, p: Any, name: str) -> tuple[Sequence[int], Any]:
        """The shape of a state, and its dtype; None for a floating one, which is that of the other states."""
        return p.shape, None

    def _refuse(self, group: Mapping[str, Any]) -> None:
        """Raises for what some launch of the step would refuse, before the first one writes."""
        self._refuse_values(group)
        name, device = type(self).__name__, group["params"][0].device
        for i, p in enumerate(group["params"]):
            if p.grad is not None and p.grad.layout is not torch.strided:
                layout = str(p.grad.layout).removeprefix("torch.")
                raise OperandTypeError(
                    f"{name}: the gradient of params[{i}] is {layout}", "make it dense, p.grad.to_dense()"
                )
            if p.device != device:
                raise DeviceMismatchError(
                    f"{name}: params[0] is on {device} and params[{i}] on {p.device}", "make a group for each device"
                )
            if p.grad is not None and p.dtype not in FLOATS:
                raise OperandTypeError(f"{name}: params[{i}] holds {p.dtype}", "cast it to f16, bf16, f32 or f64")
            if p.grad is not None and group.get("stochastic") and p.dtype is not torch.bfloat16:
                raise OperandTypeError(
                    f"{name}: stochastic=True, and params[{i}] holds {p.dtype}", "make a group of the bf16 parameters"
                )
            for what, x in (("params", p), ("the gradient of params", p.grad)):
                if p.grad is not None and not x.is_contiguous():
                    raise InvalidProblemError(
                        f"{name}: {what}[{i}] of shape {tuple(x.shape)} has strides {x.stride()}",
                        "pass C-ordered tensors, such as x.contiguous()",
                    )
        self._refuse_states(group)


def own_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of groups among a constructor's arguments."""
    return {name: x for name, x in given.items() if name not in ("self", "params", "ways", "__class__")}


def _refuse_state(called: str, x: Any, p: Any, shape: Sequence[int], dtype: Any) -> None:
    """Raises for a state that is not of this shape and dtype (None: a floating one), or lies elsewhere than its parameter."""
    if not isinstance(x, torch.Tensor):
        raise OperandTypeError(f"{called} is {type(x).__name__}", "load the optimizer's own state dict")
    if (x.dtype not in FLOATS) if dtype is None else (x.dtype is not dtype):
        wanted = "f16, bf16, f32 or f64" if dtype is None else str(dtype)
        raise OperandTypeError(
            f"{called} holds {x.dtype}, and must hold {wanted}", "load the optimizer's own state dict"
        )
    if tuple(x.shape) != tuple(shape):
        raise InvalidProblemError(
            f"{called} has shape {tuple(x.shape)}, and {tuple(shape)} is expected", "load the state of this parameter"
        )
    if x.device != p.device:
        raise DeviceMismatchError(
            f"{called} is on {x.device} and its parameter on {p.device}", f"x.to({str(p.device)!r})"
        )
    if not x.is_contiguous():
        raise InvalidProblemError(f"{called} has strides {x.stride()}", "make it C-ordered, such as x.contiguous()")


def pair_of(name: str, what: str, given: Any) -> tuple[Any, Any]:
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise OperandTypeError(f"{name}: {what}={given!r} is no pair", "give two numbers")
    return given[0], given[1]


class ArrayOptimizer(ListOptimizer):
    """What optimizers share whose steps are of one array each: a call of `update` for every parameter, with a state of its own.
    There is no `stochastic`."""

    update: ClassVar[Any]  # the function of one array

    def __init__(self, params: Any, arguments: Mapping[str, Any]) -> None:
        own = own_arguments(arguments)
        super().__init__(params, own, maximize=own.get("maximize", False), foreach=own.get("foreach"))

    def _options(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a step that are not arrays."""
        raise NotImplementedError

    def _flags(self) -> tuple[str, ...]:
        return ()

    def _refuse_values(self, group: Mapping[str, Any]) -> None:
        super()._refuse_values(group)
        if group.get("stochastic"):
            raise UnsupportedError(
                f"{type(self).__name__}: stochastic=True", "leave it out: each result is rounded to nearest"
            )

    def _refuse(self, group: Mapping[str, Any]) -> None:
        super()._refuse(group)
        with torch.no_grad():
            options = self._given(group)
            for i, p in enumerate(group["params"]):
                if p.grad is not None and self.state.get(p):
                    self._refuse_state(f"{type(self).__name__}: params[{i}]", p, options)

    def _refuse_states(self, group: Mapping[str, Any]) -> None:
        """The plan of each step is asked instead, which knows its states."""

    def _refuse_state(self, called: str, p: Any, options: Mapping[str, Any]) -> None:
        """Raises for a state that does not fit its parameter. It is asked again when memory or layouts are others."""
        held = {"param": p, **self.state[p]}
        where = tuple((name, x.data_ptr()) for name, x in held.items() if isinstance(x, torch.Tensor))
        layouts = tuple(
            (x.shape, x.stride(), x.dtype, x.device) for x in (*held.values(), p.grad) if hasattr(x, "stride")
        )
        fitting = self.__dict__.setdefault("_fitting", {})
        if fitting.get(p) == (where, layouts):
            return
        with Renamed(self.update.__name__, called):
            plan = self.update.plan(p, p.grad, **self.state[p], **options)
            arrays = {name: x for name, x in options.items() if isinstance(x, torch.Tensor)}
            if (error := plan.can_implement(grad=p.grad, **held, **arrays).error) is not None:
                raise error
        fitting[p] = where, layouts

    def _start(self, p: Any) -> dict[str, Any]:
        """The state of a parameter that has made no step."""
        raise NotImplementedError

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A loaded state, of torch's own as well."""
        super().__setstate__(state)
        for held in self.state.values():
            if held:
                held["step"] = held["step"].clone()

    def _given(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a step beside a parameter, its gradient and its state."""
        options = self._options(group)
        for name, x in self._scalars(group):
            options["learning_rate" if name == "lr" and isinstance(x, torch.Tensor) else name] = x
        return options

    def _step(self, group: dict[str, Any], parts: list[Part] | None = None) -> None:
        options = self._given(group)
        for p in group["params"]:
            if p.grad is not None:
                if not self.state[p]:
                    self.state[p].update(self._start(p))
                self.update(p, p.grad, **self.state[p], **options)

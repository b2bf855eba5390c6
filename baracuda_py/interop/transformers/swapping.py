"""`swap`: puts kernels under the layers of a model that is already made. A layer is known by what it computes: a candidate is
taken if it gives what the layer gave, on numbers that tell all candidates from one another."""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...types import BaracudaError, InvalidProblemError
from ..torch.nn.quantized import QuantizedLinear
from .layers import GATED, NORMS, ROTATIONS, Rotation

__all__ = ["Swapped", "swap"]

ROTATE = "apply_rotary_pos_emb"
ROWS = 3
KINDS = ("rms_norm", "silu_mul", "rope")


class Swapped:
    """What `swap` did to a model: `swapped` and `kept` count its layers by kind and class, `kept` with the reason. `undo()` puts
    the model's own forwards back."""

    def __init__(self) -> None:
        self.swapped: Counter[tuple[str, str]] = Counter()
        self.kept: Counter[tuple[str, str, str]] = Counter()
        self._modules: list[Any] = []

    def put(self, kind: str, module: Any, forward: Any) -> None:
        module.forward = types.MethodType(forward, module)
        self._modules.append(module)
        self.swapped[kind, type(module).__name__] += 1

    def undo(self) -> None:
        """Puts the model's own forwards back. A second call does nothing."""
        for module in self._modules:
            module.__dict__.pop("forward", None)
        self._modules.clear()

    def __str__(self) -> str:
        rows = [f"{kind:<9} {name:<28} {n:>4}  swapped" for (kind, name), n in sorted(self.swapped.items())]
        rows += [f"{kind:<9} {name:<28} {n:>4}  kept: {why}" for (kind, name, why), n in sorted(self.kept.items())]
        return "\n".join(rows) or "no layer that could be swapped"

    __repr__ = __str__


def swap(model: Any, *kinds: str) -> Swapped:
    """Puts kernels under a model's RMSNorms, gated layers (SwiGLU) and rotations, or those of `kinds`: "rms_norm", "silu_mul",
    "rope".

    Parameters, state dicts and hooks stay unchanged. Each layer's result is compared with the candidate's once, on the device
    that the layer is on; layers on the CPU need ``with bp.device("cpu")``. Layers that no candidate computes are kept, with the
    reason in the object that is returned. A swapped model is compiled, copied and saved by its state dict; `undo()` it before it
    is pickled.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise InvalidProblemError(f"swap: {kind!r} is no kind of layer", f"name some of {', '.join(KINDS)}")
    swapped = Swapped()
    like = _float_of(model)
    for module in model.modules():
        for kind in kinds or KINDS:
            _SWAPS[kind](swapped, module, like)
    return swapped


def _float_of(module: Any, other: Any = None) -> Any:
    """The first parameter of a module that holds floats, else `other`. Layers of few bits have none."""
    return next((p for p in module.parameters() if p.is_floating_point()), other)


def _is_replaced(swapped: Swapped, kind: str, module: Any) -> bool:
    """Whether a layer's forward is not its class's: another library hooked it, or it is swapped already."""
    if "forward" not in module.__dict__:
        return False
    swapped.kept[kind, type(module).__name__, "its forward was replaced before"] += 1
    return True


# ---- kinds ----------------------------------------------------------------------------------------------------------------


def _swap_norm(swapped: Swapped, module: Any, _like: Any) -> None:
    if not type(module).__name__.endswith("RMSNorm") or isinstance(module, torch.nn.RMSNorm):
        return
    weight = getattr(module, "weight", None)
    if weight is None or weight.dim() != 1:
        swapped.kept["rms_norm", type(module).__name__, "no weight of one axis"] += 1
        return
    _try(swapped, "rms_norm", module, NORMS, lambda: (_numbers(weight, ROWS, weight.shape[0]),))


def _swap_gated(swapped: Swapped, module: Any, like: Any) -> None:
    projection = getattr(module, "gate_proj", getattr(module, "gate_up_proj", None))
    if not isinstance(projection, (torch.nn.Linear, QuantizedLinear)) or not hasattr(module, "down_proj"):
        return
    weight = _float_of(module, like)
    _try(swapped, "silu_mul", module, GATED, lambda: (_numbers(weight, ROWS, projection.in_features),))


def _swap_rotation(swapped: Swapped, module: Any, like: Any) -> None:
    forward = types.FunctionType.__get__(type(module).forward, module)
    function: Any = getattr(forward, "__func__", forward)
    while hasattr(function, "__wrapped__"):  # decorators that rename arguments
        function = function.__wrapped__
    if ROTATE not in getattr(getattr(function, "__code__", None), "co_names", ()):
        return
    if _is_replaced(swapped, "rope", module):
        return
    weight = _float_of(module, like)
    found = None if weight is None else _rotation(function.__globals__[ROTATE], weight)
    if found is None:
        swapped.kept["rope", type(module).__name__, "no candidate gives what the layer gives"] += 1
        return
    names = {**function.__globals__, ROTATE: found}
    names.pop("__name__", None)  # by which Dynamo would look for the module's own names
    own = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    own.__kwdefaults__, own.__module__ = function.__kwdefaults__, function.__module__
    swapped.put("rope", module, own)


_SWAPS: dict[str, Callable[[Swapped, Any, Any], None]] = {
    "rms_norm": _swap_norm, "silu_mul": _swap_gated, "rope": _swap_rotation,
}  # fmt: skip

# ---- comparisons ------------------------------------------------------------------------------------------------------------


def _try(
    swapped: Swapped, kind: str, module: Any, candidates: Sequence[Callable[..., Any]], inputs: Callable[[], Any]
) -> None:
    """Swaps a layer's forward for the candidate that gives the same."""
    name = type(module).__name__
    if _is_replaced(swapped, kind, module):
        return
    if any(p.device.type == "meta" for p in module.parameters()):
        swapped.kept[kind, name, "its weights are on the meta device: load them first"] += 1
        return
    with torch.no_grad():
        given = inputs()
        try:
            wanted = type(module).forward(module, *given)
        except (TypeError, AttributeError, RuntimeError) as error:
            swapped.kept[kind, name, f"it takes other inputs: {type(error).__name__}"] += 1
            return
        for candidate in candidates:
            if _gives(lambda candidate=candidate: candidate(module, *given), wanted):  # type: ignore[misc]
                swapped.put(kind, module, candidate)
                return
    swapped.kept[kind, name, "no candidate gives what the layer gives"] += 1


def _gives(call: Callable[[], Any], wanted: Any) -> bool:
    """Whether a call gives such tensors, up to the rounding of their dtype."""
    try:
        made = call()
    except (AttributeError, BaracudaError):
        return False
    pairs = list(zip(made, wanted)) if isinstance(wanted, tuple) else [(made, wanted)]
    return all(
        a.dtype == b.dtype and a.shape == b.shape and _is_close(a.double(), b.double(), torch.finfo(b.dtype).eps)
        for a, b in pairs
    )


def _is_close(a: Any, b: Any, eps: float) -> bool:
    return bool(((a - b).abs() <= 16 * eps * b.abs().max()).all())


def _rotation(function: Callable[..., Any], weight: Any) -> Rotation | None:
    """The rotation that a model's function is, tried on tables of two sequences."""
    q, k = _numbers(weight, 2, 4, ROWS, 16), _numbers(weight, 2, 2, ROWS, 16)
    angles = _numbers(weight, 2, ROWS, 8)
    for candidate in ROTATIONS:
        cos, sin = candidate.example(angles.cos()), candidate.example(angles.sin())
        try:
            with torch.no_grad():
                wanted = function(q, k, cos, sin)
        except (TypeError, RuntimeError):
            continue
        if _gives(lambda c=candidate, cos=cos, sin=sin: c(q, k, cos, sin), wanted):  # type: ignore[misc]
            return candidate
    return None


def _numbers(like: Any, *shape: int) -> Any:
    """Numbers of both signs around one, in the weight's dtype and place."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, device=like.device).mul(0.7).sin() * 1.7).reshape(shape).to(like.dtype)

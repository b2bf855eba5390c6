"""An op's gradient against central differences of the op's own oracle, which knows nothing of the backward op.

The forward problems are the samples of both ops, with their own values and with fresh ones. Descriptors are of f64 wherever the
op takes it, so that both oracles compute in long double. The step is taken in a random direction of one operand at a time, and
every element of the gradient counts. Places without a derivative are avoided: values that are not finite take no step, and a
problem is left out where a result is not finite, where values are so large that the step is lost in them, or where the
differences ahead and behind differ (a corner, or a steep place). Gradients of operands that the forward op broadcasts are summed.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from baracuda_py.plan import Gradient, Op, get_op
from baracuda_py.samples import Packed, Sample
from baracuda_py.types import BaracudaError, ElementKind

__all__ = ["Differentiable", "Oracle", "differentiable"]

Array: TypeAlias = np.ndarray[Any, Any]
Oracle: TypeAlias = Callable[..., Any]
STEP = 2.0**-20
LARGEST = 1e3  # values; beyond, STEP is below what a difference of results resolves
ELEMENTS = range(8, 40_000)  # of all operands of a problem
# Of a function that is not of all numbers: of positive ones, of those between 0 and 1, of those above 1.
DOMAINS: tuple[Callable[[Array], Array], ...] = (
    lambda x: np.abs(x) + 0.25,
    lambda x: 0.1 + 0.8 * np.exp(-np.abs(x)),
    lambda x: np.abs(x) + 1.25,
)
RELATIVE, ABSOLUTE = 1e-7, 1e-10  # of the sizes of the gradient's terms, and of those of <result, its gradient>


def is_float(x: Array) -> bool:
    return x.dtype == np.longdouble or ElementKind.of(x.dtype).is_float


def as_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


@dataclass(frozen=True)
class Differentiable:
    """A forward problem: the inputs and options that the backward op knows of, floats as long doubles, and the element that
    descriptors are of."""

    op: Op
    label: str
    inputs: Mapping[str, Array]
    options: Mapping[str, Any]
    element: ElementKind

    @property
    def gradient(self) -> Gradient:
        assert self.op.gradient is not None
        return self.op.gradient

    @property
    def backward(self) -> Op:
        return _backward_of(self.op)

    @property
    def differentiated(self) -> dict[str, str]:
        """The inputs with a gradient, and the output that holds it."""
        known = {**self.gradient.gradients, **dict.fromkeys(self.gradient.unchanged, self.gradient.grad)}
        return {n: to for n, to in known.items() if n in self.inputs and is_float(self.inputs[n])}

    @cached_property
    def desc(self) -> Any:
        """The forward problem, with the optional outputs that the backward op takes."""
        desc = self._described(self.op, self.inputs)
        wanted = [operand.name for operand in desc.signature_operands if operand.written and operand.optional]
        return _with(desc, {name: self.element for name in wanted if name in self.gradient.saved})

    def _described(self, op: Op, arrays: Mapping[str, Array]) -> Any:
        typed = {}
        for name, x in arrays.items():
            slot = op.plan.descriptor.slot_of.get(name)
            kind = slot.element if slot and isinstance(slot.element, ElementKind) else self.element
            typed[name] = x.astype(kind.dtype, "C") if is_float(x) else x
        given = {"dtype": self.element} if "dtype" in _parameters(op) else {}
        return op.of_sample(typed, {**self.options, **given})

    def results(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """What the forward op's oracle gives for other values of the inputs."""
        names = (operand.name for operand in self.desc.operands if operand.written)
        return dict(zip(names, as_tuple(self.op.plan.reference(self.desc, **inputs))))

    @cached_property
    def own_results(self) -> dict[str, Array]:
        return self.results(self.inputs)

    @cached_property
    def incoming(self) -> dict[str, str]:
        """The backward op's operand for the gradient of each result that counts."""
        given = {next(iter(self.own_results)): self.gradient.grad, **self.gradient.more}
        return {name: given[name] for name in self.own_results if name in given}

    @cached_property
    def grads(self) -> dict[str, Array]:
        """Gradients of the results, random."""
        rng = np.random.default_rng(0)
        return {name: rng.standard_normal(self.own_results[name].shape).astype(np.longdouble) for name in self.incoming}

    @cached_property
    def own_gradients(self) -> dict[str, Array]:
        return self.gradients(self.backward.plan.reference)

    def gradients(self, oracle: Oracle) -> dict[str, Array]:
        """The backward op's outputs as `oracle` gives them."""
        gradient, known = self.gradient, {**self.own_results, **self.inputs}
        if gradient.views is not None:
            views = gradient.views({**self.inputs, **self.options})
            return {to: views[name](self.grads["out"]) for name, to in self.differentiated.items()}
        saved = {gradient.renames.get(n, n): known[n] for n in gradient.saved if n in known}
        operands = {self.incoming[name]: grad for name, grad in self.grads.items()} | saved
        desc = self._described(self.backward, operands)
        absent = {to for to, slot in desc.slot_of.items() if slot.optional and not desc.has(to)}
        optional = [name for name, to in self.differentiated.items() if to in absent]
        desc = _with(desc, {gradient.gradients[name]: self.desc.layout(name).element for name in optional})
        names = (operand.name for operand in desc.operands if operand.written)
        made = {gradient.grad: operands[gradient.grad], **dict(zip(names, as_tuple(oracle(desc, **operands))))}
        if not gradient.broadcast:
            return made
        shapes = {to: self.inputs[name].shape for name, to in self.differentiated.items()}
        return {to: _summed(x, shapes[to]) if to in shapes else x for to, x in made.items()}

    @cached_property
    def smooth(self) -> bool:
        """Whether the differences ahead and behind agree, along a direction of each operand: else central ones say little."""
        rng = np.random.default_rng(2)
        for name in self.differentiated:
            x = self.inputs[name]
            step = STEP * np.where(np.isfinite(x), rng.standard_normal(x.shape), 0).astype(np.longdouble)
            ahead, behind = (self.results({**self.inputs, name: x + s * step}) for s in (1, -1))
            for n in self.incoming:
                first, second = ahead[n] - behind[n], ahead[n] - 2 * self.own_results[n] + behind[n]
                if ((np.abs(second) > 1e-4 * np.abs(first)) & (np.abs(second) > 1e-3 * STEP)).any():
                    return False
        return True

    @cached_property
    def differences(self) -> dict[str, tuple[Array, float]]:
        """For each operand a direction, and how fast the product of results and `grads` grows along it."""
        rng, made = np.random.default_rng(1), {}
        for name in self.differentiated:
            x = self.inputs[name]
            direction = np.where(np.isfinite(x), rng.standard_normal(x.shape), 0).astype(np.longdouble)
            ahead, behind = (self.results({**self.inputs, name: x + s * STEP * direction}) for s in (1, -1))
            grown = sum((grad * (ahead[n] - behind[n])).sum() for n, grad in self.grads.items())
            made[name] = direction, float(grown / (2 * STEP))
        return made

    def complaints(self, oracle: Oracle | None = None) -> list[str]:
        """A line for each operand whose gradient, by `oracle` or by the op's own, disagrees with the differences of the forward
        op's oracle."""
        gradients = self.own_gradients if oracle is None else self.gradients(oracle)
        size = sum(float(np.abs(grad * self.own_results[name]).sum()) for name, grad in self.grads.items())
        found = []
        for name, (direction, wanted) in self.differences.items():
            output = self.differentiated[name]
            if gradients[output].shape != direction.shape:
                found.append(f"{self}: {output} has shape {gradients[output].shape}, and {name} {direction.shape}")
                continue
            with np.errstate(invalid="ignore"):
                terms = gradients[output] * direction
                got, allowed = float(terms.sum()), RELATIVE * float(np.abs(terms).sum()) + ABSOLUTE * size
            if not abs(got - wanted) <= allowed:
                found.append(
                    f"{self}: along a direction of {name}, {output} says {got:.10g}, and differences of "
                    f"{self.op.name} {wanted:.10g}; allowed: {allowed:.3g}"
                )
        return found

    def fresh(self, rng: np.random.Generator, change: Callable[[Array], Array] = np.positive) -> Differentiable:
        """The same problem with other values, changed ones of the normal distribution; those that are not finite stay."""
        inputs = {
            name: np.where(np.isfinite(x), change(rng.standard_normal(x.shape)), x) if is_float(x) else x
            for name, x in self.inputs.items()
        }
        return replace(self, label=f"{self.label}, fresh values", inputs=inputs)

    @property
    def aspects(self) -> set[str]:
        """The operands with their ranks, those that are absent, and the options with their values."""
        given = {f"{name} of rank {x.ndim}" for name, x in self.inputs.items()}
        absent = {f"no {name}" for name in self.gradient.gradients if name not in self.inputs}
        return given | absent | {f"{name}={x!r}" for name, x in self.options.items()}

    def served(self) -> Differentiable | None:
        """The problem of f64, or of its own element where the two ops take no f64. None where they take neither, where a value
        is large, where a result that counts is not finite, or where a part of the gradient is withheld."""
        if any(self.options.get(name) is not None for name in self.gradient.withheld):
            return None
        if any(np.abs(x[np.isfinite(x)]).max(initial=0) > LARGEST for x in self.inputs.values() if is_float(x)):
            return None
        for one in (replace(self, element=ElementKind.F64), self):
            try:
                _ = one.own_gradients
            except BaracudaError:
                continue
            finite = all(np.isfinite(one.own_results[name]).all() for name in one.incoming)
            return one if finite and one.smooth else None
        return None

    def __str__(self) -> str:
        return f"{self.gradient.op} of {self.op.name} [{self.label}]"


def _backward_of(op: Op) -> Op:
    """The op that computes the gradients; the op itself where they are views."""
    assert op.gradient is not None
    return get_op(op.gradient.op) if op.gradient.op else op


def _summed(gradient: Array, shape: tuple[int, ...]) -> Array:
    """The gradient of an operand of `shape` that was broadcast to the gradient's."""
    leading = gradient.ndim - len(shape)
    axes = (*range(leading), *(leading + i for i, n in enumerate(shape) if n == 1))
    with np.errstate(invalid="ignore"):
        return np.asarray(gradient.sum(axis=axes)).reshape(shape)


def _with(desc: Any, elements: Mapping[str, ElementKind]) -> Any:
    """The descriptor with further optional outputs."""
    return replace(desc, **{f"{name}_element": element for name, element in elements.items()})


def _parameters(op: Op) -> set[str]:
    return set(inspect.signature(op.plan.descriptor.of).parameters)  # type: ignore[attr-defined]


def _problem(op: Op, sample: Sample) -> Differentiable | None:
    """What a sample of either op says of the forward problem: without what the gradient is not of (`Gradient`). None where the
    sample lacks an operand, is large, or has next to no elements."""
    assert op.gradient is not None
    back, known = _backward_of(op), {*op.gradient.gradients, *op.gradient.saved, *op.gradient.unchanged}
    slots = {o.name: o for o in op.plan.descriptor.signature_operands if not o.written}
    given = {name: x for name, x in sample.operands.items() if name in slots and name in known}
    if any(name not in given for name, slot in slots.items() if not slot.optional):
        return None
    if any(isinstance(x, Packed) or not x.size for x in given.values()):
        return None
    if sum(x.size for x in given.values()) not in ELEMENTS:
        return None
    kinds = [ElementKind.of(x.dtype) for name, x in given.items() if name in op.gradient.gradients]
    floats = [kind for kind in kinds if kind.is_float]
    if not floats:
        return None
    shared = _parameters(op) & _parameters(back) - given.keys() - {"name"}
    options = {name: x for name, x in sample.options.items() if name in shared and "dtype" not in name}
    inputs = {name: x.astype(np.longdouble if is_float(x) else x.dtype, "C") for name, x in given.items()}
    return Differentiable(op, sample.label, inputs, options, floats[0])


def _with_required(op: Op, sample: Sample) -> Differentiable | None:
    """The same with options that the public function has no default for and the backward op lacks; None without one of these."""
    parameters = inspect.signature(op.function).parameters.values()
    required = {p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL}
    required -= {operand.name for operand in op.plan.descriptor.signature_operands} | {"dtype"}
    required &= _parameters(op) - _parameters(_backward_of(op))
    made = _problem(op, sample)
    if made is None or required - sample.options.keys():
        return None
    return replace(made, options={**made.options, **{name: sample.options[name] for name in required}})


def differentiable(op: Op, seed: int = 0, *, each: int = 1) -> list[Differentiable]:
    """Forward problems of an op with a gradient, from its samples and those of the backward op, small ones first, until every
    operand of every rank and every option was had `each` times; each with its own values, and with fresh ones."""
    assert op.gradient is not None
    rng, had = np.random.default_rng(seed), Counter[str]()
    sources = dict.fromkeys((op.name, _backward_of(op).name))
    made = [_with_required(op, sample) for name in sources for sample in get_op(name).samples(get_op(name).fixed, seed)]
    small = sorted((one for one in made if one is not None), key=lambda one: sum(x.size for x in one.inputs.values()))
    taken = []
    for problem in small:
        if all(had[aspect] >= each for aspect in problem.aspects):
            continue
        served = [one.served() for one in (problem, problem.fresh(rng))]
        for change in DOMAINS:
            served[1] = served[1] or problem.fresh(rng, change).served()
        if usable := [one for one in served if one is not None]:
            had.update(problem.aspects)
            taken += usable
    return taken

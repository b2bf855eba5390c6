"""A sample of an op on one back end: operands in guarded memory, the plan, the answer, and the checks of what was written.

Nothing here knows an op: answers come from `plan.reference`, tolerances from `plan.precision_guarantee`.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from baracuda_py.numerics.rounding import round_to
from baracuda_py.plan import Op, Plan
from baracuda_py.samples import Sample

from ..arena import Slot, as_bytes, host, materialise, poisoned

__all__ = ["Problem", "named", "parameters"]

Array = np.ndarray[Any, Any]


@contextlib.contextmanager
def named(label: str) -> Iterator[None]:
    """Puts the sample's label in front of whatever fails."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"[{label}] {error}") from None
    except Exception as error:
        raise AssertionError(f"[{label}] {type(error).__name__}: {error}") from error


def parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def _once(measure: Callable[..., Array]) -> Callable[..., Array]:
    """The measure, which remembers what it gave last, and of which arrays: `Problem.inputs`, which are read-only."""
    seen: dict[str, Array] = {}
    last: list[Array] = []

    def remembered(**operands: Array) -> Array:
        assert not any(x.flags.writeable for x in operands.values()), "an operand may have changed since"
        if not last or seen.keys() != operands.keys() or any(seen[name] is not x for name, x in operands.items()):
            seen.clear()
            seen.update(operands)
            last[:] = [measure(**operands)]
        return last[0]

    return remembered


@dataclass
class Problem:
    """One sample of an op on one back end: its operands in guarded memory, its plan, and what must come out."""

    op: Op
    sample: Sample
    backend: str

    @cached_property
    def device(self) -> Any:
        return None if self.backend == "cuda" else self.backend

    @cached_property
    def desc(self) -> Any:
        """Read off the operands' layouts (outputs that the sample does not give are left to the op)."""
        known = parameters(self.op.plan.descriptor.of)  # type: ignore[attr-defined]
        arrays = {name: slot.operand for name, slot in self.given.items()}
        return self.op.of(**{k: v for k, v in {**arrays, **self.sample.options}.items() if k in known})

    @cached_property
    def plan(self) -> Plan[Any]:
        return self.op.plan.select(self.desc, device=self.device)

    @cached_property
    def given(self) -> dict[str, Slot]:
        out = self.op.plan.descriptor.slot_of.get("out")  # of gradients an input
        written = out is None or out.role == "out"
        return materialise(self.sample.operands, self.backend, poison=lambda name: name == "out" and written)

    @cached_property
    def slots(self) -> dict[str, Slot]:
        """Every operand, those that a call would allocate included, by name."""
        slots = dict(self.given)
        canonical = self.desc.canonical()
        for operand in self.desc.operands:
            if operand.name not in slots and not operand.optional:
                slots[operand.name] = poisoned(canonical.layout(operand.name), self.backend)
        return {o.name: slots[o.name] for o in self.desc.operands if o.name in slots}

    @property
    def operands(self) -> dict[str, Any]:
        return {name: slot.operand for name, slot in self.slots.items()}

    @property
    def values(self) -> dict[str, Any]:
        """Run-time values that the sample's options carry under the plan's names."""
        return {k: self.sample.options[k] for k in type(self.desc).values if k in self.sample.options}

    @cached_property
    def written(self) -> list[str]:
        return [o.name for o in self.desc.operands if o.written and o.name in self.slots]

    @cached_property
    def inputs(self) -> dict[str, Array]:
        """What is in the operands ahead of a call, on the host, but for those that are only written; read-only."""
        only = [operand.name for operand in self.desc.operands if operand.role == "out"]
        inputs = {name: slot.host() for name, slot in self.slots.items() if name not in only}
        for x in inputs.values():
            x.flags.writeable = False
        return inputs

    @cached_property
    def wide(self) -> dict[str, Array]:
        """The oracle's wide answer for each written operand."""
        inputs = {
            o.name: self.slots[o.name].host() for o in self.desc.operands if o.role != "out" and o.name in self.slots
        }
        results = self.op.plan.reference(self.desc, **inputs)
        return dict(zip(self.written, results if isinstance(results, tuple) else (results,)))

    @cached_property
    def measures(self) -> dict[str, dict[str, Callable[..., Array]]]:
        """For each written operand the plan's measures, each taken once of the same contents: many plans are held to one
        problem."""
        return {
            output: {name: _once(measure) for name, measure in self.plan.measured(output=output).items()}
            for output in self.written
        }

    def reset(self) -> None:
        for slot in self.slots.values():
            slot.reset()

    def images(self) -> dict[str, Array]:
        return {name: slot.image() for name, slot in self.slots.items()}

    # -- checks -------------------------------------------------------------------------------------------------------

    def check_images(self, images: Mapping[str, Array], plan: Plan[Any] | None = None) -> None:
        """Inputs unchanged, outputs within the guarantee (exactly, for what only moves), every other byte as it was."""
        for name in self.slots:
            self.check_image(name, images[name], plan)

    def check_image(self, name: str, image: Array, plan: Plan[Any] | None = None) -> None:
        """The same for one operand, wherever the image was taken."""
        slot, canonical = self.slots[name], self.desc.canonical()
        if name not in self.written:
            assert np.array_equal(image, slot.initial), f"{name} is an input and was changed"
            return
        element = canonical.layout(name).element
        wide, guarantee = self.wide[name], (plan or self.plan).precision_guarantee.of(name)
        if guarantee.exact_for(element):
            _same_bytes(name, image, slot.expected(round_to(wide, element)), slot)
            return
        touched = slot.touched()
        assert np.array_equal(image[~touched], slot.initial[~touched]), f"bytes outside {name} were changed"
        guarantee.check(
            slot.view(image),
            np.asarray(wide).reshape(slot.shape),
            self.inputs,
            output=element,
            measures=self.measures[name],
        )

    def check_unchanged(self) -> None:
        for name, image in self.images().items():
            assert np.array_equal(image, self.slots[name].initial), f"{name} was changed"

    def check_result(self, name: str, result: Any) -> None:
        """An array that the op allocated itself, for the output of that name."""
        guarantee = self.plan.precision_guarantee.of(name)
        array = host(result)
        layout = self.desc.canonical().layout(name)
        assert array.dtype == layout.element.dtype, f"{name} is {array.dtype}, not {layout.element.dtype}"
        assert array.shape == layout.shape, f"{name}'s shape is {array.shape}, not {layout.shape}"
        if name in self.desc.counted:
            array = array[: len(self.wide[name])]
        if guarantee.exact_for(layout.element):
            wanted = np.asarray(round_to(self.wide[name], layout.element)).reshape(array.shape)
            same = np.array_equal(as_bytes(np.ascontiguousarray(array)), as_bytes(np.ascontiguousarray(wanted)))
            assert same, f"{name}, which was allocated, differs from the oracle"
            return
        wide, measures = np.asarray(self.wide[name]).reshape(array.shape), self.measures[name]
        guarantee.check(array, wide, self.inputs, output=layout.element, measures=measures)

    def call_function(self, function: Callable[..., Any] | None = None, **extra: Any) -> Any:
        """The public function on this sample (or another with its arguments), its arguments by position where they have no name
        to give; with a `status` where a host device raises without one."""
        on_host = extra.get("device", self.device) is not None and "status" in self.written
        reports = on_host and bool(np.any(self.wide["status"]))
        given = {
            **({"status": poisoned(self.desc.canonical().layout("status"), self.backend).operand} if reports else {}),
            **{n: s.operand for n, s in self.given.items()},
            **self.sample.options,
            "device": self.device,
            **extra,
        }
        positional, keyword = [], {}
        for parameter in parameters(self.op.function).values():
            name = self.op.arguments.get(parameter.name, parameter.name)
            if name not in given:
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(given[name])
            else:
                keyword[parameter.name] = given[name]
        return (function or self.op.function)(*positional, **keyword)


def _same_bytes(name: str, got: Array, wanted: Array, slot: Slot) -> None:
    if np.array_equal(got, wanted):
        return
    wrong = np.flatnonzero(got != wanted)
    inside = int(slot.touched()[wrong].sum())
    raise AssertionError(
        f"{name}: {wrong.size} bytes are wrong, {wrong.size - inside} of them outside the operand; first at byte "
        f"{int(wrong[0]) - slot.offset}: got {got[wrong[0]]:#04x}, expected {wanted[wrong[0]]:#04x}"
    )

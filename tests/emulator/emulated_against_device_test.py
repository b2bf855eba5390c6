"""What the emulator computes beside what a GPU does, by the same kernels: the same bits wherever results are exact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import Plan, all_ops, get_op
from baracuda_py.plan.about import tune
from baracuda_py.types import PlanPreference

from ..gauntlet import Part, Problem, admissible, in_parts, named, samples_of

pytestmark = pytest.mark.gpu
PER_OP, PER_PRODUCT = 12, 24
ROUNDED = (
    "matmul_int4",
    "matmul_nf4",
    "matmul_gguf",
    "matmul_q4k",
)  # weights that are scaled before they are multiplied: no sum is exact
PRODUCTS = [op for op in all_ops() if "matmul" in op and op not in ROUNDED]
SMOOTH = ("silu", "gelu", "gelu_tanh", "sigmoid", "tanh")  # activations that whole numbers do not make exact


@dataclass
class Compared:
    """How many elements were compared, and how many of them differ."""

    elements: int = 0
    differing: int = 0

    def add(self, problem: Problem, there: dict[str, Any], here: dict[str, Any]) -> bool:
        """Whether the outputs of a problem are the same bits in both images of memory."""
        same = True
        for name in problem.written:
            a, b = (problem.slots[name].view(images[name]) for images in (there, here))
            with np.errstate(invalid="ignore"):
                differ = np.asarray((a != b) & ((a == a) | (b == b)))
            self.elements, self.differing = self.elements + differ.size, self.differing + int(differ.sum())
            same &= there[name].tobytes() == here[name].tobytes()
        return same

    def __str__(self) -> str:
        return f"{self.differing} of {self.elements} elements differ"


def pairs(there: Problem, here: Problem, variants: bool) -> Iterator[tuple[Plan[Any], Plan[Any]]]:
    """The plan that is taken, or one of each variant, on the device and on the emulator; a library's is not emulated."""
    pref = PlanPreference(deterministic=False)
    emulated = tune.admissible(type(there.plan), here.desc, pref, there.plan.device.as_emulated())
    skus = {(plan.sku.variant, plan.sku.config): plan for plan in emulated}
    plans = [there.plan]
    if variants:
        plans = list({plan.sku.variant: plan for plan in reversed(admissible(there))}.values())
    for plan in plans:
        if (plan.sku.variant, plan.sku.config) in skus:
            yield plan, skus[plan.sku.variant, plan.sku.config]


def images(problem: Problem, plan: Plan[Any]) -> dict[str, Any]:
    """Memory after the plan ran on the problem's operands, once it was found to be right."""
    problem.reset()
    plan.run(**problem.operands, **problem.values)
    found = problem.images()
    problem.check_images(found, plan)
    return found


@pytest.mark.parametrize("op", list(all_ops()))
def test_the_emulator_gives_what_the_device_does(op: str, record_property: Callable[[str, object], None]) -> None:
    """Of inexact results both are within the guarantee, and the ledger says how many elements differ."""
    compared = Compared()
    for sample in samples_of(get_op(op), count=PER_OP):
        there, here = Problem(get_op(op), sample, "cuda"), Problem(get_op(op), sample, "ptx")
        for plan, emulated in pairs(there, here, variants=False):
            with named(f"{sample.label} {plan.sku}"):
                same = compared.add(here, images(there, plan), images(here, emulated))
                assert same or not isinstance(plan.precision_guarantee.bound, bp.Exact), "an exact result differs"
    assert compared.elements, "nothing was compared"
    record_property("emulator", str(compared))


@in_parts(4)
@pytest.mark.parametrize("op", PRODUCTS)
def test_products_of_whole_numbers_are_the_same_bits(op: str, part: Part) -> None:
    """Each variant: sums of small whole numbers are exact in every accumulator, so that nothing is left to rounding."""
    compared, rng = Compared(), np.random.default_rng(5)
    for sample in part.of(samples_of(get_op(op), count=PER_PRODUCT)):
        if sample.options.get("activation") in SMOOTH:
            continue
        for name, x in sample.operands.items():
            if not name.startswith("scale"):
                x[...] = rng.choice([-1, 1], x.shape) if "fp8" in sample.label else rng.integers(-3, 4, x.shape)
        there, here = Problem(get_op(op), sample, "cuda"), Problem(get_op(op), sample, "ptx")
        for plan, emulated in pairs(there, here, variants=True):
            with named(f"{sample.label} {plan.sku}"):
                assert compared.add(here, images(there, plan), images(here, emulated)), "an exact result differs"
    assert compared.elements, "nothing was compared"

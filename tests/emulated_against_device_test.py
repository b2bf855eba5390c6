"""What the emulator computes beside what a GPU does, on the same kernels: the same bits wherever results are exact."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import all_ops, get_op
from baracuda_py.runtime.device import spec_of
from baracuda_py.types import UnsupportedError

from .gauntlet import Problem, named, samples_of

PER_OP = 8


@pytest.mark.gpu
@pytest.mark.parametrize("op", list(all_ops()))
def test_the_emulator_gives_what_the_device_does(op: str, record_property: Callable[[str, object], None]) -> None:
    """Of inexact results both are within the guarantee, and how many elements differ is written down."""
    device = spec_of(None)
    differing = elements = 0
    for sample in samples_of(get_op(op), count=PER_OP):
        there, here = Problem(get_op(op), sample, "cuda"), Problem(get_op(op), sample, "ptx")
        try:
            here.plan = get_op(op).plan.select(here.desc, device=device.as_emulated())
        except UnsupportedError:
            continue
        if (there.plan.sku.variant, there.plan.sku.config) != (here.plan.sku.variant, here.plan.sku.config):
            continue  # a library's, which is not emulated
        with named(sample.label):
            for problem in (there, here):
                problem.plan.run(**problem.operands, **problem.values)
                problem.check_images(problem.images())
            for name in here.written:
                results = [p.slots[name].view(p.slots[name].image()) for p in (there, here)]
                same = np.asarray(results[0] == results[1]) | np.asarray(results[0] != results[0])
                if isinstance(here.plan.precision_guarantee.bound, bp.Exact):
                    assert there.slots[name].image().tobytes() == here.slots[name].image().tobytes()
                differing, elements = differing + int((~same).sum()), elements + same.size
    record_property("emulator differs", f"{differing} of {elements}")

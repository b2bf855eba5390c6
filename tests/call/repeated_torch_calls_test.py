"""As repeated_calls_test.py, with torch's tensors, alone and beside CuPy's arrays."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from baracuda_py.plan import all_ops, get_op
from baracuda_py.types import UnsupportedError

from ..gauntlet import Problem, named, samples_of, torch_over
from ..gauntlet.fresh import aligned_copy
from .repeated_calls_test import Launches, Memory, _unread, alike, launches  # noqa: F401
from .simulated import Gpus
from .torch_on_gpu import gpus, on, torch  # noqa: F401

FEW = 2
# Where torch has a device, scratch comes from it, and not from the memory that these tests know by name.
pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="torch has a CUDA device, and these tests simulate one"
)


def tensor(held: Any, slot: Any) -> Any:
    made = torch_over(torch.from_numpy(aligned_copy(held)), slot)
    return made if made is None else on(made)


@pytest.mark.parametrize("op", list(all_ops()))
def test_further_calls_give_kernels_the_same(
    op: str,
    gpus: Gpus,  # noqa: F811
    launches: Launches,  # noqa: F811
    bounded: bool,
) -> None:
    memory, tried = Memory(gpus, tensor), 0
    for sample in samples_of(get_op(op), count=1 if bounded else FEW):
        problem = Problem(get_op(op), sample, "cpu")
        for kind in ("torch", "mixed"):
            for out in (False, True):
                what = f"{sample.label}, {kind}, {'with' if out else 'without'} out"
                with named(what), contextlib.suppress(UnsupportedError):
                    alike(problem, memory, launches, kind, out=out)
                    tried += 1
    assert tried

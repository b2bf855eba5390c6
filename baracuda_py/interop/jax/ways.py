"""How a traced call becomes a custom call of XLA, and why: `explain` says it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...runtime.gpu.device import spec_of
from ...types import DeviceMismatchError, DeviceSpec
from .call import Call, Problem, problem_of, shape_of
from .handler import TARGET, selection_of

__all__ = ["Way", "lower_for_cpu", "lower_for_cuda"]


class Way(NamedTuple):
    """How JAX runs a call. `way` is "handler", a custom call that runs a plan from Python, or "ptx", kernels in the computation
    itself, without Python at run time."""

    op: str
    way: str
    why: str

    def __str__(self) -> str:
        return f"{self.op}: {self.way}, because {self.why}"


def lower_for_cpu(*arrays: Any, call: Call) -> list[Any]:
    """The results of a call on JAX's CPU: by the reference, or by emulated kernels."""
    device = spec_of(call.how.get("device", "cpu"))
    if not device.host_memory:
        raise DeviceMismatchError(
            f"{call.op}: the call is for {device} and JAX compiles it for the CPU",
            'leave device= out, or pass device="cpu" or "ptx"',
        )
    problem = problem_of(call, tuple(map(shape_of, arrays)))
    selection_of(problem, call, device)  # refuses a preference that nothing can honour
    return _through_handler(problem, call, arrays, 0)


def lower_for_cuda(*arrays: Any, call: Call) -> list[Any]:
    """The results of a call on a GPU."""
    problem = problem_of(call, tuple(map(shape_of, arrays)))
    selection = selection_of(problem, call, _gpu_of(call))
    return _through_handler(problem, call, arrays, selection.workspace_size)


def _gpu_of(call: Call) -> DeviceSpec:
    device = spec_of(call.how.get("device"))
    if device.host_memory:
        raise DeviceMismatchError(
            f"{call.op}: the call is for {device} and JAX compiles it for CUDA",
            'leave device= out, or pass an arch: device="sm_90a"',
        )
    return device


def _through_handler(problem: Problem, call: Call, arrays: Any, workspace: int) -> list[Any]:
    types = [jax.ShapeDtypeStruct(x.shape, x.element.dtype) for x in problem.results]
    scratch = [jax.ShapeDtypeStruct((workspace,), jnp.uint8)] if workspace else []
    custom = jax.ffi.ffi_call(TARGET, [*types, *scratch], input_output_aliases=problem.aliases)
    made = custom(*arrays, *map(np.asarray, problem.constants.values()), call=call.text)
    return list(made)[: len(types)]

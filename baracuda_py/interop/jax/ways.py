"""How a traced call becomes a custom call of XLA, and why: `explain` says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...plan.selection import Selection
from ...runtime.gpu.device import spec_of
from ...types import DeviceMismatchError, DeviceSpec, UnsupportedError
from .call import Call, Problem, problem_of, shape_of
from .handler import TARGET, selection_of
from .kernels import KernelCall, kernel_calls
from .ptx import SCRATCH

__all__ = ["PTX", "Way", "lower_for_cpu", "lower_for_cuda", "way_of"]

PTX = "__gpu$xla.gpu.ptx"  # XLA's custom call that launches a kernel of a text


class Way(NamedTuple):
    """How JAX runs a call. `way` is "handler", a custom call that runs a plan from Python, or "ptx", kernels in the computation
    itself, without Python at run time."""

    op: str
    way: str
    why: str

    kernels: tuple[KernelCall, ...] = ()

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
    if problem.desc.empty:
        return [jnp.zeros(x.shape, x.element.dtype) for x in problem.results]
    selection = selection_of(problem, call, _gpu_of(call))
    way = way_of(problem, selection)
    if way.kernels:
        return _through_kernels(problem, way.kernels, arrays, selection.workspace_size)
    return _through_handler(problem, call, arrays, selection.workspace_size)


def way_of(problem: Problem, selection: Selection) -> Way:
    """How a GPU runs a plan."""
    op = problem.desc.op
    shifts, values = problem.desc.resolve(problem.values)
    try:
        kernels = kernel_calls(
            selection,
            dict(zip(selection.names, shifts)),
            problem.written,
            {*problem.places, *problem.constants},
            values,
        )
    except UnsupportedError as error:
        return Way(op, "handler", error.reason)
    untouched = set(problem.written) - {name for kernel in kernels for name in kernel.writes} - set(problem.places)
    if untouched:
        return Way(op, "handler", f"no kernel writes {', '.join(sorted(untouched))}")
    count = f"{len(kernels)} kernels take" if len(kernels) > 1 else "the kernel takes"
    return Way(op, "ptx", f"{count} only addresses and constants", tuple(kernels))


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


def _through_kernels(problem: Problem, kernels: Sequence[KernelCall], arrays: Any, workspace: int) -> list[Any]:
    """The results of kernels one after another. What a kernel writes is a result of its call; the next one takes it as an
    argument and writes it in place."""
    held = {name: arrays[i] for name, i in problem.places.items()}
    held |= {name: jnp.asarray(x) for name, x in problem.constants.items()}
    types = {name: jax.ShapeDtypeStruct(x.shape, x.element.dtype) for name, x in zip(problem.written, problem.results)}
    types[SCRATCH] = jax.ShapeDtypeStruct((workspace,), jnp.uint8)
    for kernel in kernels:
        given = (*kernel.reads, *kernel.begun)
        places = np.arange(len(given), len(given) + len(kernel.writes), dtype=np.int32)
        aliases = {given.index(name): kernel.writes.index(name) for name in kernel.begun}
        custom = jax.ffi.ffi_call(PTX, [types[name] for name in kernel.writes], input_output_aliases=aliases)
        made = custom(
            *(held[name] for name in given), name=kernel.name, kernel_type="ptx", kernel_data=kernel.ptx,
            **_geometry("grid", kernel.grid), **_geometry("block", kernel.block),
            shared_mem_bytes=np.int32(kernel.shared_bytes), output_indices=places,
        )  # fmt: skip
        held.update(zip(kernel.writes, made))
    return [held[name] for name in problem.written]


def _geometry(name: str, extents: tuple[int, int, int]) -> dict[str, np.int32]:
    return {f"{name}_{axis}": np.int32(n) for axis, n in zip("xyz", extents)}

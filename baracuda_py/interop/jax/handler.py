"""The custom call ``baracuda_call``: a handler for the CPU and for CUDA that runs any plan, whose call is a text attribute.

On the CPU it computes with the reference, or with emulated kernels if the call names a device "ptx". On CUDA it launches the
plan's steps on XLA's stream, and XLA provides the scratch as a further result.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

from ...call.cache import plan_cache
from ...call.host import run_on_host
from ...plan.selection import Selection
from ...runtime.gpu.device import spec_of
from ...runtime.gpu.driver import require_gpu
from ...types import (
    BaracudaError,
    DeviceSpec,
    InternalError,
    InvalidProblemError,
    OperandTypeError,
    PlanPreference,
    UnsupportedError,
)
from .call import Call, Problem, problem_of
from .ffi import INTERNAL, INVALID_ARGUMENT, UNIMPLEMENTED, Buffer, Frame, handler

__all__ = ["TARGET", "register_handler", "selection_of"]

TARGET = "baracuda_call"
_kept: list[Any] = []  # C functions that XLA calls
_registering = threading.Lock()
_host = ThreadPoolExecutor(1, "baracuda-jax")  # XLA's threads flush subnormals to zero, which neither backend may


def register_handler() -> None:
    """Registers the custom call for both platforms, once."""
    with _registering:
        if _kept:
            return
        _host.submit(threading.get_ident).result()  # a thread keeps the floating-point mode of the one that starts it
        for platform, run in (("cpu", _run_on_host), ("CUDA", _run_on_device)):
            function = handler(run, _code_of)
            _kept.append(function)
            jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(function), platform=platform)


def selection_of(problem: Problem, call: Call, device: DeviceSpec) -> Selection:
    """The kernel that is selected for a call."""
    pref = PlanPreference.of(call.how.get("pref"))
    return plan_cache.selection(problem.plan, problem.desc.canonical(), pref, device)


def _code_of(error: Exception) -> int:
    if isinstance(error, UnsupportedError):
        return UNIMPLEMENTED
    wrong = isinstance(error, (InvalidProblemError, OperandTypeError))
    return (
        INVALID_ARGUMENT if wrong or (isinstance(error, BaracudaError) and isinstance(error, ValueError)) else INTERNAL
    )


def _read(frame: Frame) -> tuple[Call, Problem]:
    call = Call.of_text(frame.attributes["call"])
    given = frame.arguments[: len(call.arrays)]
    return call, problem_of(call, tuple((b.shape, b.element.dtype) for b in given))


def _placed(problem: Problem, frame: Frame) -> dict[str, Buffer]:
    """The buffer of each operand."""
    count = len(frame.arguments) - len(problem.constants)
    held = {name: frame.arguments[i] for name, i in problem.places.items()}
    held |= dict(zip(problem.constants, frame.arguments[count:]))
    for name, buffer in zip(problem.written, frame.results):
        if name in held and held[name].pointer != buffer.pointer and 0 not in buffer.shape:
            raise InternalError(
                f"{problem.desc.op}: XLA gave {name} and its result different memory",
                "this is a defect of the library: please report it",
            )
        held[name] = buffer
    return held


def _run_on_host(frame: Frame) -> None:
    call, problem = _read(frame)
    selection = selection_of(problem, call, spec_of(call.how.get("device", "cpu")))
    arrays = {n: b.array(writable=n in problem.written) for n, b in _placed(problem, frame).items()}
    _host.submit(run_on_host, selection, {**arrays, **problem.values}).result()


def _run_on_device(frame: Frame) -> None:
    call, problem = _read(frame)
    if problem.desc.empty:
        return
    ordinal, stream = frame.ordinal, frame.stream
    selection = selection_of(problem, call, spec_of(ordinal))
    held = _placed(problem, frame)
    shifts, values = problem.desc.resolve(problem.values)
    pointers = [held[n].pointer + shift if n in held else 0 for n, shift in zip(selection.names, shifts)]
    scratch = frame.results[-1].pointer if selection.workspace_size else 0
    with require_gpu("a custom call of JAX").cuda.Device(ordinal):
        selection.executable(ordinal).run(pointers, values, scratch, stream)


register_handler()

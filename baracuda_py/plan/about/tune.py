"""Times plans: `profile` times one plan, `autotune` finds the fastest admissible one. No other code of the package measures."""

from __future__ import annotations

import datetime
import logging
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ...call.bound import BoundPlan
from ...call.host import prepare
from ...call.results.allocate import BYTE_STORED_KINDS
from ...runtime.gpu.driver import require_cupy
from ...tensor import GpuBuffer, intake
from ...types import BaracudaError, DeviceSpec, InvalidProblemError, PlanPreference, UnsupportedError
from ...types.units import time_text
from ..family import Family
from ..select import assess
from ..selection import Selection
from .tuned import record

__all__ = ["admissible", "autotune", "copy_of", "profile"]

LAUNCHES = 16  # launches per graph, so that host time does not count
MARGIN = 0.95  # a challenger must be 5 % faster
log = logging.getLogger("baracuda_py")
P = TypeVar("P", bound=Family[Any])


def copy_of(x: Any, *, to_gpu: bool = False) -> Any:
    """A copy of an array or GpuBuffer with the same strides and the same address modulo 256: a NumPy array for one in host
    memory, else a CuPy array; with `to_gpu` always a CuPy array on the current device."""
    if isinstance(x, GpuBuffer):
        return GpuBuffer(copy_of(x.array, to_gpu=to_gpu), x.element, x.shape, x.strides, x.offset)
    tensor = intake(x, what="operand")
    dtype, (low, high) = tensor.element.dtype, tensor.interval()
    strides = tuple(s * dtype.itemsize for s in tensor.strides)
    if tensor.on_host and not to_gpu:
        storage = np.empty(high - low + 256, np.uint8)
        start = (low - storage.ctypes.data) % 256 + tensor.pointer - low
        fresh: Any = np.ndarray(tensor.shape, dtype, storage.data, start, strides)
        fresh[...] = tensor.array()
        return fresh
    cupy = require_cupy("copying an operand")
    stream = cupy.cuda.get_current_stream().ptr
    intake(x, what="operand", stream=stream)  # ordered after work that another framework has queued
    pad = low % 256
    memory = cupy.cuda.alloc(high - low + pad)
    if high > low:
        kind = 1 if tensor.on_host else 3  # cudaMemcpyHostToDevice, cudaMemcpyDeviceToDevice
        cupy.cuda.runtime.memcpyAsync(memory.ptr + pad, low, high - low, kind, stream)
    bare = np.dtype(np.uint8) if tensor.element in BYTE_STORED_KINDS else dtype
    fresh = cupy.ndarray(tensor.shape, bare, memory + (pad + tensor.pointer - low), strides)
    return fresh if bare == dtype else GpuBuffer.view(fresh, tensor.element)


def _spared(plan: Selection, operands: Mapping[str, Any]) -> dict[str, Any]:
    """The operands, with copies of those that are written."""
    written = {o.name for o in plan.operands if o.written}
    return {n: copy_of(x) if n in written and x is not None else x for n, x in operands.items()}


def profile(plan: Selection, operands: Mapping[str, Any], repeats: int = 50) -> Any:
    """Seconds per launch in a CUDA graph of 16 launches, with warm caches; for an emulated plan the report of one run."""
    if plan.device.emulated:
        call, _ = prepare(plan, _spared(plan, operands), accesses=True)
        return call(0)
    cupy = _gpu_of(plan, "profile")
    if type(repeats) is not int or repeats < 1:
        raise InvalidProblemError(f"{plan.desc.op}: profile(repeats={repeats!r:.40})", "give an int of 1 or more")
    bound = BoundPlan(plan, _spared(plan, operands), None)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        stream.begin_capture()
        for _ in range(LAUNCHES):
            bound(stream)
        graph = stream.end_capture()
        first, second = cupy.cuda.Event(), cupy.cuda.Event()
        times = []
        graph.launch(stream)
        for _ in range(repeats):
            first.record(stream)
            graph.launch(stream)
            second.record(stream)
            second.synchronize()
            times.append(cupy.cuda.get_elapsed_time(first, second) * 1e-3 / LAUNCHES)
    return float(statistics.median(times))


def admissible(
    kind: type[P], desc: Any, pref: PlanPreference, device: DeviceSpec, *, per_variant: int | None = None
) -> list[P]:
    """A plan for every candidate and configuration that may serve, by predicted time; with `per_variant`, at most that many of
    each variant."""
    return [kind(selection) for selection in _admitted(kind, desc, pref, device, per_variant)]


def _admitted(
    kind: type[Family[Any]], desc: Any, pref: PlanPreference, device: DeviceSpec, per_variant: int | None = None
) -> list[Selection]:
    answers = [a for a in assess(kind.all_candidates(), desc.canonical(), pref, device) if a.feasibility]
    answers.sort(key=lambda a: a.cost.seconds if a.cost else 0.0)
    kept: Counter[str] = Counter()
    admitted = []
    for answer in answers:
        kept[answer.candidate.variant] += 1
        if per_variant is None or kept[answer.candidate.variant] <= per_variant:
            admitted.append(Selection.of(kind, desc, pref, device, answer))
    return admitted


def rivals(plan: Selection, top: int | None) -> list[Selection]:
    """The `top` best predicted plans for the same problem (None: all) whose guarantee is at least that of `plan` for each
    output."""
    every = _admitted(plan.family, plan.desc, plan.pref, plan.device)
    return [rival for rival in every if rival.guarantee.at_least(plan.guarantee)][:top]


def autotune(plan: Selection, operands: Mapping[str, Any], top: int | None) -> Selection:
    """The fastest of `plan` and its rivals; the winner is recorded for `select`."""
    _gpu_of(plan, "autotune")
    if top is not None and (type(top) is not int or top < 1):
        raise InvalidProblemError(
            f"{plan.desc.op}: autotune(top={top!r:.40})", "give an int of 1 or more, or None for all"
        )
    times = {plan: profile(plan, operands, repeats=20)}  # wrong operands raise here
    for rival in _tracked([rival for rival in rivals(plan, top) if rival != plan]):
        try:
            times[rival] = profile(rival, operands, repeats=20)
        except BaracudaError as error:
            log.warning("autotune: %s does not run: %s", rival.sku, error)
    best = min(times, key=lambda rival: times[rival])
    if times[best] > MARGIN * times[plan]:
        best = plan
    tuned = best.known_as(f"tuned {datetime.date.today().isoformat()}")
    log.info("autotune: %s, %s", tuned.sku, time_text(times[best]))
    record(tuned, tuned.provenance)
    return tuned


def _gpu_of(plan: Selection, what: str) -> Any:
    """CuPy, for timing `plan`; UnsupportedError where there is nothing to time it on."""
    if plan.device.host_memory:
        raise UnsupportedError(
            f"{what}: this plan for {plan.desc.op} runs on the host ({plan.device}), and only a GPU is timed",
            f"select it without device={plan.device.name!r}, on a machine with a GPU",
        )
    return require_cupy(what)


def _tracked(plans: Sequence[Selection]) -> Iterator[Selection]:
    """Iterates over the plans, with a progress bar on a terminal's stderr."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        yield from progress.track(plans, description="autotune")

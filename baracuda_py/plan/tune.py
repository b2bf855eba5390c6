"""Timing plans: the only code that measures. `profile` one plan, `autotune` among the admissible ones."""

from __future__ import annotations

import datetime
import logging
import statistics
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runtime.driver import require_gpu
from ..tensor import GpuBuffer, intake
from ..types import BaracudaError, DeviceSpec, PlanPreference
from .select import assess
from .tuned import record

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["admissible", "autotune", "copy_of", "profile"]

LAUNCHES = 16  # a graph, so that the host's own time does not show
MARGIN = 0.95  # a challenger must be 5 % faster
log = logging.getLogger("baracuda_py")


def copy_of(x: Any) -> Any:
    """A copy of a CuPy array or GpuBuffer that keeps strides and alignment to 256 bytes; other objects as they are."""
    if isinstance(x, GpuBuffer):
        return GpuBuffer(copy_of(x.array), x.element, x.shape, x.strides, x.offset)
    cupy = require_gpu("copying an operand")
    if not isinstance(x, cupy.ndarray):
        return x
    low, high = intake(x, what="operand").interval()
    pad = low % 256
    memory = cupy.cuda.alloc(high - low + pad)
    if high > low:
        cupy.cuda.runtime.memcpyAsync(memory.ptr + pad, low, high - low, 3, cupy.cuda.get_current_stream().ptr)
    return cupy.ndarray(x.shape, x.dtype, memory + (pad + x.data.ptr - low), x.strides)


def _bound(plan: Plan[Any], operands: Mapping[str, Any]) -> Any:
    written = {o.name for o in plan.operands if o.written}
    return plan.bind(**{n: copy_of(x) if n in written and x is not None else x for n, x in operands.items()})


def profile(plan: Plan[Any], operands: Mapping[str, Any], repeats: int = 50) -> float:
    """Seconds a launch in a CUDA graph of 16, caches as such repetition leaves them."""
    cupy = require_gpu("profile")
    bound = _bound(plan, operands)
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
    kind: type[Plan[Any]], desc: Any, pref: PlanPreference, device: DeviceSpec, *, per_variant: int | None = None
) -> list[Plan[Any]]:
    """A plan for every candidate and configuration that may serve, the least predicted time first; with `per_variant`, only
    so many of each variant."""
    answers = [a for a in assess(kind._all_candidates(), desc.canonical(), pref, device) if a.feasibility]
    answers.sort(key=lambda a: a.cost.seconds if a.cost else 0.0)
    kept: Counter[str] = Counter()
    plans = []
    for answer in answers:
        kept[answer.candidate.variant] += 1
        if per_variant is None or kept[answer.candidate.variant] <= per_variant:
            plans.append(kind._make(desc, pref, device, answer, "model"))
    return plans


def autotune(plan: Plan[Any], operands: Mapping[str, Any]) -> Any:
    """The fastest admissible plan with at least this plan's guarantee; the winner is remembered for `select`."""
    times: dict[Plan[Any], float] = {}
    for rival in admissible(type(plan), plan.desc, plan.pref, plan.device):
        if not _at_least(rival.precision_guarantee, plan.precision_guarantee):
            continue
        try:
            times[rival] = profile(rival, operands, repeats=20)
        except BaracudaError as error:
            log.warning("autotune: %s does not run: %s", rival.sku, error)
    best = min(times, key=lambda rival: times[rival])
    held = next((rival for rival in times if rival == plan), None)
    if held is not None and times[best] > MARGIN * times[held]:
        best = held
    best.provenance = f"tuned {datetime.date.today().isoformat()}"
    log.info("autotune: %s, %.2f us", best.sku, times[best] * 1e6)
    record(best, best.provenance)
    return best


def _at_least(rival: Any, held: Any) -> bool:
    """Whether `rival` promises everything that `held` does."""
    flags = ("deterministic", "bit_stable_on_same_hardware", "batch_invariant")
    kept = all(getattr(rival, f) >= getattr(held, f) for f in flags)
    return (
        kept
        and rival.flushes_subnormals <= held.flushes_subnormals
        and (rival.bound == held.bound or _tighter(rival, held))
    )


def _tighter(rival: Any, held: Any) -> bool:
    return bool(getattr(rival.bound, "n", np.inf) <= getattr(held.bound, "n", -np.inf))

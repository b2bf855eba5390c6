"""What a call costs the host, and what starting up costs: small operands, so that the GPU never holds the host up."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, median
from time import perf_counter_ns
from typing import Any

import numpy as np

from .floor import Floor, Shape
from .harness import OURS
from .operands import Call, Kit
from .rows import write_slice_plan
from .stats import alternated, paired_ratio
from .target import Target

__all__ = ["CUPY", "HOST_ROWS", "HostRow", "Measured", "call_cost", "calls"]

CALLS_A_BATCH = 200
CUPY = "the same with CuPy operands"
MATMUL = "bp.matmul"
Measured = dict[str, Any]


@dataclass(frozen=True)
class HostRow:
    """One host figure. `measure(kit, batches)` returns the fields of its result line."""

    name: str
    measure: Callable[[Kit, int], Measured]
    targets: tuple[Target, ...] = ()
    group: str = "host"

    @property
    def key(self) -> str:
        """What ``--rows`` matches and what the row is called in results."""
        return f"{self.group}/{self.name}"


# ---- calls ---------------------------------------------------------------------------------------------------


def call_cost(kit: Kit, calls: dict[str, Call], batches: int) -> dict[str, list[float]]:
    """Microseconds a call, a contender and a batch; the order alternates, and the device drains between batches."""
    costs: dict[str, list[float]] = {name: [] for name in calls}
    for name in calls:
        for _ in range(CALLS_A_BATCH):
            calls[name]()
    for index in range(batches):
        for name in alternated(list(calls), index):
            call = calls[name]
            kit.synchronize()
            start = perf_counter_ns()
            for _ in range(CALLS_A_BATCH):
                call()
            costs[name].append((perf_counter_ns() - start) / CALLS_A_BATCH / 1e3)
    kit.synchronize()
    return costs


def calls(make: Callable[[Kit], dict[str, Call]]) -> Callable[[Kit, int], Measured]:
    """A measurement of calls: ours, then its peers."""

    def measure(kit: Kit, batches: int) -> Measured:
        costs = call_cost(kit, make(kit), batches)
        ours = costs.pop(OURS)
        peers = {
            name: {"us": median(theirs), "mean_us": mean(theirs), "ratio": paired_ratio(ours, theirs)}
            for name, theirs in costs.items()
        }
        return {"us": median(ours), "mean_us": mean(ours), "peers": peers}

    return measure


def _window(kit: Kit) -> tuple[Any, Any, Any, Any]:
    """A small destination, the source of a strided window in it, its ranges, and its plan."""
    dest, source, ranges = kit.empty((64, 128), "float32"), kit.normal((64, 64), "float32"), ((0, 64), (32, 96))
    return dest, source, ranges, write_slice_plan(dest, source, ranges)


def _rows(kit: Kit) -> tuple[Any, Any, Any, Any]:
    """A small destination, the source of whole rows in it (one memcpy), their ranges, and their plan."""
    dest, source, ranges = kit.empty((16, 128), "float32"), kit.normal((2, 128), "float32"), ((2, 4), (0, 128))
    return dest, source, ranges, write_slice_plan(dest, source, ranges)


def _bound_kernel(kit: Kit) -> dict[str, Call]:
    dest, source, _, plan = _window(kit)
    kernel = Floor().call(Shape(128, 1, "plain"), (source,), dest)
    return {OURS: plan.bind(dest=dest, source=source), "cupy RawKernel": kernel}


def _bound_memcpy(kit: Kit) -> dict[str, Call]:
    import cupy

    dest, source, _, plan = _rows(kit)
    copy, kind = cupy.cuda.runtime.memcpyAsync, cupy.cuda.runtime.memcpyDeviceToDevice
    to, what, nbytes, stream = dest[2:4].data.ptr, source.data.ptr, source.nbytes, cupy.cuda.get_current_stream().ptr
    return {OURS: plan.bind(dest=dest, source=source), "memcpyAsync": lambda: copy(to, what, nbytes, kind, stream)}


def _plan_run(kit: Kit) -> dict[str, Call]:
    dest, source, _, plan = _window(kit)
    return {OURS: lambda: plan.run(dest=dest, source=source)}


def _write_slice(kit: Kit) -> dict[str, Call]:
    import baracuda_py as bp

    dest, source, ranges, _ = _rows(kit)
    calls: dict[str, Call] = {
        OURS: lambda: bp.write_slice(dest, source, ranges),
        "cupy": lambda: dest.__setitem__(slice(2, 4), source),
    }
    if kit.torch is not None:
        torch_dest, torch_source = kit.as_torch(dest), kit.as_torch(source)
        calls["torch"] = lambda: torch_dest.__setitem__(slice(2, 4), torch_source)
    return calls


def _add(kit: Kit) -> dict[str, Call]:
    import baracuda_py as bp

    a, b = kit.normal((16, 128), "float32"), kit.normal((16, 128), "float32")
    calls: dict[str, Call] = {OURS: lambda: bp.add(a, b), "cupy": lambda: a + b}
    if kit.torch is not None:
        torch_a, torch_b = kit.as_torch(a), kit.as_torch(b)
        calls["torch"] = lambda: torch_a + torch_b
    return calls


def _pair(kit: Kit) -> tuple[Any, Any]:
    return kit.normal((16, 128), "float32"), kit.normal((16, 128), "float32")


def _torch_add(kit: Kit) -> dict[str, Call]:
    import baracuda_py as bp

    a, b = _pair(kit)
    x, y = kit.as_torch(a), kit.as_torch(b)
    return {OURS: lambda: bp.add(x, y), CUPY: lambda: bp.add(a, b), "torch": lambda: x + y}


def _jax_add(kit: Kit) -> dict[str, Call]:
    import jax

    import baracuda_py as bp

    a, b = _pair(kit)
    x, y = jax.dlpack.from_dlpack(a), jax.dlpack.from_dlpack(b)
    return {OURS: lambda: bp.add(x, y), CUPY: lambda: bp.add(a, b), "jax": lambda: x + y}


def _squares(kit: Kit) -> tuple[Any, Any]:
    return kit.normal((128, 128), "float32"), kit.normal((128, 128), "float32")


def _matmul(kit: Kit) -> dict[str, Call]:
    import baracuda_py as bp

    a, b = _squares(kit)
    return {OURS: lambda: bp.matmul(a, b), "cupy": lambda: a @ b}


def _torch_matmul(kit: Kit) -> dict[str, Call]:
    import baracuda_py as bp

    a, b = _squares(kit)
    x, y = kit.as_torch(a), kit.as_torch(b)
    return {OURS: lambda: bp.matmul(x, y), CUPY: lambda: bp.matmul(a, b), "torch": lambda: x @ y}


def _kv_append(kit: Kit) -> dict[str, Call]:
    import cupy

    import baracuda_py as bp

    caches = [kit.empty((2, 4, 64, 64), "float16") for _ in range(2)]
    tokens = [kit.normal((2, 4, 1, 64), "float16") for _ in range(2)]
    at = cupy.zeros(2, "int64")
    x, y, k, v, p = (kit.as_torch(a) for a in (*caches, *tokens, at))
    return {OURS: lambda: bp.kv_append(x, y, k, v, p), CUPY: lambda: bp.kv_append(*caches, *tokens, at)}


def _decode(kit: Kit) -> dict[str, Call]:
    """One launch, for so few keys. Lengths are on the device."""
    import cupy

    import baracuda_py as bp

    q, lengths = kit.normal((2, 8, 1, 64), "float16"), cupy.full(2, 50, np.int32)
    k, v = kit.normal((2, 2, 64, 64), "float16"), kit.normal((2, 2, 64, 64), "float16")
    a, b = _squares(kit)
    return {OURS: lambda: bp.attention_decode(q, k, v, lengths), MATMUL: lambda: bp.matmul(a, b)}


# ---- start-up ------------------------------------------------------------------------------------------------

_IMPORTS = """
from time import perf_counter as now
a = now(); import cupy
b = now(); import baracuda_py
print((now() - b) * 1e6, (b - a) * 1e6)
"""

_FIRST_CALL = """
from time import perf_counter as now
import cupy, baracuda_py as bp
x = cupy.empty((64, 128), "float32"); y = cupy.empty((64, 64), "float32"); out = cupy.empty_like(x)
cupy.cuda.Device().synchronize()
a = now()
{call}
cupy.cuda.Device().synchronize()
print((now() - a) * 1e6)
"""

FIRST_CALLS = {
    "write_slice": "bp.write_slice(x, y, [(0, 64), (32, 96)])",
    "contiguize": "bp.contiguize(x.T, out=out.reshape(128, 64))",
    "add": "bp.add(x, x, out=out)",
    "gelu": "bp.gelu(x, out=out)",
    "pow": "bp.pow(x, x, out=out)",
}


def _fresh(script: str, bytecode: str, cache: str | None = None) -> list[float]:
    """The numbers that `script` prints, run in a process of its own; `bytecode` is a folder for what Python compiles, as an
    installed package has it whatever the environment says."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": bytecode} | ({"BARACUDA_CACHE_DIR": cache} if cache else {})
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False, timeout=120
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return [float(word) for word in done.stdout.split()]


def _import_time(_kit: Kit, batches: int) -> Measured:
    """``import baracuda_py`` in a process that has imported CuPy; the first one, which compiles the sources, is not counted."""
    with tempfile.TemporaryDirectory() as bytecode:
        ours, cupy = zip(*[_fresh(_IMPORTS, bytecode) for _ in range(1 + min(5, batches))][1:])
    return {"us": median(ours), "mean_us": mean(ours), "peers": {}, "import_cupy_us": median(cupy)}


def _first_calls(times: Sequence[float], per_op: dict[str, float]) -> Measured:
    return {"us": median(times), "mean_us": mean(times), "worst_us": max(times), "peers": {}, "per_op_us": per_op}


def _first_call(*, warm: bool) -> Callable[[Kit, int], Measured]:
    """The first call of an op in a fresh process, context and operands made before; the median over the ops.

    `warm` says whether another process has filled the cubin cache, or it is empty. Python's bytecode is there in both.
    """

    def measure(_kit: Kit, _batches: int) -> Measured:
        per_op = {}
        for op, call in FIRST_CALLS.items():
            with tempfile.TemporaryDirectory() as folder:
                script, bytecode, cache = _FIRST_CALL.format(call=call), folder + "/bytecode", folder + "/cache"
                _fresh(script, bytecode, cache if warm else folder + "/another cache")
                per_op[op] = _fresh(script, bytecode, cache)[0]
        return _first_calls(list(per_op.values()), per_op)

    return measure


HOST_ROWS: tuple[HostRow, ...] = (
    HostRow("bound(), one kernel", calls(_bound_kernel), (Target(1.00, against="cupy RawKernel"),)),
    HostRow("bound(), one memcpy", calls(_bound_memcpy), (Target(0.3, "excess", "memcpyAsync"),)),
    HostRow("plan.run", calls(_plan_run), (Target(6, "absolute"),)),
    HostRow("bp.write_slice", calls(_write_slice), (Target(8, "absolute"),)),
    HostRow("bp.add", calls(_add), (Target(1.3, against="cupy"),)),
    HostRow("bp.add, torch operands", calls(_torch_add), (Target(2.0, against="torch"), Target(1.5, "excess", CUPY))),
    HostRow("bp.matmul", calls(_matmul)),
    HostRow(
        "bp.matmul, torch operands", calls(_torch_matmul), (Target(1.0, against="torch"), Target(1.5, "excess", CUPY))
    ),
    HostRow("bp.kv_append, three outputs", calls(_kv_append)),
    HostRow("bp.attention_decode", calls(_decode), (Target(2.0, "excess", MATMUL),)),
    HostRow("bp.add, JAX operands", calls(_jax_add)),
    HostRow("import baracuda_py after cupy", _import_time, (Target(150_000, "absolute"),)),
    HostRow("first call, empty cache", _first_call(warm=False), (Target(600_000, "absolute"),)),
    HostRow("first call, warm cache", _first_call(warm=True), (Target(30_000, "absolute"),)),
)

"""Times a few ops on this machine's GPU: time per launch in a CUDA graph, bandwidth, and CuPy's own function for comparison.

A quick look at one machine. It times warm, back to back; the full suite of a checkout (python -m benchmarks) controls
the cache, the order and the clocks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ...plan.plan import Plan
    from ...plan.registry import Op

__all__ = ["SUMMARY", "arguments", "graph_seconds", "run"]

SUMMARY = "time a few ops on the GPU here, beside CuPy"
DEFAULT = ("write_slice", "contiguize", "add", "gelu")
_KINDS = ("bf16", "f32")
_BYTES, _QUICK_BYTES = 512 << 20, 64 << 20  # an operand; well beyond any L2
_LAUNCHES = 8
_BLOCK = 1 << 20


class Result(NamedTuple):
    """One row: `seconds` per launch, `moved` bytes that must move, `peer` CuPy's seconds if it has the function."""

    op: str
    shape: str
    element: str
    variant: str
    seconds: float
    moved: int
    peer: float | None


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ops", nargs="*", metavar="OP", help=f"ops to time (default: {' '.join(DEFAULT)})")
    parser.add_argument("--quick", action="store_true", help="smaller operands and fewer repeats")
    parser.add_argument("--device", default=None, help="the ordinal of the GPU (default: the current one)")


def run(given: argparse.Namespace) -> int:
    from ...runtime.gpu.device import Device
    from ...runtime.gpu.driver import device_count, require_cupy
    from ...types import UnsupportedError
    from ..problems import resolve_ops
    from ..terminal import console, device_of, progress

    ops = resolve_ops(given.ops, DEFAULT)
    unknown = [op.name for op in ops if op.name not in _BUILDERS and not _elementwise(op)]
    if unknown:
        raise UnsupportedError(
            f"bench has no big problem for {', '.join(unknown)}", "choose write_slice, contiguize or elementwise ops"
        )
    if not device_count():
        raise UnsupportedError("bench times a GPU, and none is usable here", "`env` shows what is missing")
    cupy = require_cupy("bench")
    ordinal = device_of(given.device)
    if ordinal is not None and not isinstance(ordinal, int):
        raise UnsupportedError(f"bench times a GPU that is here, not {given.device!r}", "give its ordinal")
    screen = console()
    with cupy.cuda.Device(ordinal) as current:
        spec = Device(current.id).spec
        size = min(_QUICK_BYTES if given.quick else _BYTES, int(cupy.cuda.runtime.memGetInfo()[0]) // 8)
        repeats = 10 if given.quick else 50
        results = []
        with progress(screen) as bar:
            task = bar.add_task("copy", total=len(ops) * len(_KINDS) + 1)
            copy = copy_bandwidth(size, repeats)
            for op in ops:
                for kind in _KINDS:
                    bar.update(task, advance=1, description=f"{op.name} {kind}")
                    results.append(_time(op, kind, size, repeats))
    _report(screen, results, spec, copy)
    return 0


def copy_bandwidth(size: int, repeats: int) -> float:
    """Bytes per second, read and written, of a device memcpy of `size` bytes."""
    import cupy

    source, dest = cupy.zeros(size, "uint8"), cupy.zeros(size, "uint8")
    return (
        2
        * size
        / graph_seconds(
            lambda: dest.data.copy_from_device_async(source.data, size, cupy.cuda.get_current_stream()), repeats
        )
    )


def graph_seconds(call: Callable[[], Any], repeats: int) -> float:
    """Seconds a call takes inside a CUDA graph of several, the median of `repeats` replays."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        call()
        stream.synchronize()
        stream.begin_capture()
        try:
            for _ in range(_LAUNCHES):
                call()
        finally:
            graph = stream.end_capture()
        graph.launch(stream)
        times = []
        for _ in range(repeats):
            start, stop = cupy.cuda.Event(), cupy.cuda.Event()
            start.record(stream)
            graph.launch(stream)
            stop.record(stream)
            stop.synchronize()
            times.append(float(cupy.cuda.get_elapsed_time(start, stop)) * 1e-3 / _LAUNCHES)
    return median(times)


# ---- problems: operands by name, the window's bytes, and CuPy's call ----------------------------------------------


class Problem(NamedTuple):
    shape: tuple[int, ...]
    operands: Mapping[str, Any]
    options: Mapping[str, Any]
    moved: int
    peer: Callable[[], Any] | None


def _elementwise(op: Op) -> bool:
    return op.plan.category.value in ("unary_elementwise", "binary_elementwise")


def _write_slice(op: Op, dtype: Any, size: int) -> Problem:  # noqa: ARG001
    import cupy

    rows = size // (32 * 128 * dtype.itemsize)
    dest, source = _random((rows, 32, 128), dtype), _random((rows - 1, 31, 127), dtype)
    ranges = [(1, rows), (0, 31), (1, 128)]

    def peer() -> None:
        cupy.copyto(dest[1:, :31, 1:], source)

    return Problem(source.shape, {"dest": dest, "source": source}, {"ranges": ranges}, 2 * source.nbytes, peer)


def _contiguize(op: Op, dtype: Any, size: int) -> Problem:  # noqa: ARG001
    import cupy

    rows = size // (4096 * dtype.itemsize)
    x = _random((4096, rows), dtype).T
    out = cupy.empty(x.shape, dtype)
    return Problem(x.shape, {"x": x, "out": out}, {}, 2 * x.nbytes, lambda: cupy.copyto(out, x))


def _map(op: Op, dtype: Any, size: int) -> Problem:
    import cupy

    names = [o.name for o in op.plan.descriptor.signature_operands if o.role == "in"]
    shape = (size // (4096 * dtype.itemsize), 4096)
    inputs = {name: _random(shape, dtype) for name in names}
    out = cupy.empty(shape, dtype)
    function: Any = getattr(cupy, op.peers.get("cupy", ""), None)
    peer = None if function is None else partial(function, *inputs.values(), out=out)
    return Problem(shape, {**inputs, "out": out}, {}, (len(names) + 1) * out.nbytes, peer)


_BUILDERS: dict[str, Callable[[Any, Any, int], Problem]] = {"write_slice": _write_slice, "contiguize": _contiguize}


def _random(shape: tuple[int, ...], dtype: Any) -> Any:
    """Positive values, so that no special case is timed: one block of them from the host, repeated."""
    import cupy
    import numpy as np

    block = cupy.asarray((np.random.default_rng(0).random(_BLOCK) + 0.5).astype(dtype).view(np.uint8))
    out = cupy.empty(shape, dtype)
    flat = out.reshape(-1).view(np.uint8)
    whole = flat.size // block.size * block.size
    flat[:whole].reshape(-1, block.size)[...] = block
    flat[whole:] = block[: flat.size - whole]
    return out


def _time(op: Op, kind: str, size: int, repeats: int) -> Result:
    import cupy

    from ...types import ElementKind

    element = ElementKind.of(kind)
    build: Callable[[Any, Any, int], Problem] = _BUILDERS.get(op.name) or _map
    problem = build(op, element.dtype, size)
    described = {name: x for name, x in problem.operands.items() if name != "out"}
    plan: Plan[Any] = op.plan.select(op.of(**described, **problem.options))
    seconds = plan.profile(repeats=repeats, **problem.operands)
    peer = None
    if problem.peer is not None:
        try:
            peer = graph_seconds(problem.peer, repeats)
        except Exception:  # CuPy has no such function for this dtype, and raises any exception
            peer = None
    cupy.get_default_memory_pool().free_all_blocks()
    return Result(op.name, str(list(problem.shape)), kind, plan.sku.variant, seconds, problem.moved, peer)


def _report(screen: Any, results: list[Result], spec: Any, copy: float) -> None:
    from ..terminal import rate_text, show_table
    from .demo import checkout

    rows = [
        (
            r.op, r.shape, r.element, r.variant, f"{r.seconds * 1e6:.1f}", f"{r.moved / r.seconds / 1e12:.2f}",
            f"{r.moved / r.seconds / copy:.0%}", "-" if r.peer is None else f"{r.peer * 1e6:.1f}",
            "-" if r.peer is None else f"{r.peer / r.seconds:.2f}x",
        )
        for r in results
    ]  # fmt: skip
    head = ("op", "shape", "dtype", "variant", ">µs", ">TB/s", ">of copy", ">CuPy µs", ">faster by")
    show_table(screen, head, rows, title=str(spec))
    screen.print(f"a device memcpy of that size moves {rate_text(copy)}; times are a launch's in a CUDA graph")
    root = checkout()
    if root is not None and (root / "benchmarks" / "__main__.py").is_file():
        screen.print("the full suite, with torch and cold caches: python -m benchmarks")

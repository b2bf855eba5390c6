"""CUDA graphs of bound plans and functions: captured through CuPy, updated through cuda.bindings."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from ..runtime.gpu.bindings import bindings
from ..runtime.gpu.driver import cupy_or_none, require_gpu
from ..tensor.arrays import ordinal_of
from ..types import DeviceMismatchError, DriverError, InvalidProblemError, UnsupportedError
from .bound import BoundPlan

__all__ = ["Graph"]


class Graph:
    """A CUDA graph that replays its steps in order. All steps use one device, which need not be the current one.

    A step is a bound plan, or a Python function without arguments that calls functions of this library (and of CuPy) on CuPy
    arrays. Such a function is called once, while the graph is captured: a replay repeats its kernels, not its Python. `results`
    holds what it returned; the arrays that it made live as long as the graph, and each replay writes to them again.

    >>> graph = bp.Graph(append, project)          # doctest: +SKIP
    >>> graph.launch()                             # doctest: +SKIP
    >>> graph.update(append, start=(8, 0, 0))      # doctest: +SKIP
    >>> graph = bp.Graph(lambda: bp.gelu(bp.matmul(x, w)))  # doctest: +SKIP
    """

    def __init__(self, *steps: BoundPlan | Callable[[], Any]) -> None:
        for step in steps:
            if not callable(step):
                raise InvalidProblemError(
                    f"Graph: expected bound plans or functions, got {type(step).__name__}",
                    "pass plan.bind(...), or a function without arguments",
                )
        bounds = tuple(step for step in steps if isinstance(step, BoundPlan))
        for bound in bounds:
            sku, device = bound.selection.sku, bound.selection.device
            if device.host_memory:
                raise UnsupportedError(
                    f"Graph: {sku} is bound to the host's memory, on {device}, and a CUDA graph holds what a GPU executes",
                    "call the bound plan itself, or select it for a GPU",
                )
            if not bound.selection.capture_safe:
                raise UnsupportedError(f"Graph: {sku} cannot be captured", "run it outside the graph")
        self._gpu = require_gpu("Graph")
        if len(bounds) < len(steps) and cupy_or_none() is None:
            raise UnsupportedError(
                "Graph: a function's arrays come from a pool of CuPy's while it is captured, and CuPy cannot be imported here",
                "pass bound plans, or capture the function with torch.cuda.graph",
            )
        self.bounds, self._steps = bounds, steps
        self.results: tuple[Any, ...] = ()
        self._ordinal = bounds[0].ordinal if bounds else int(self._gpu.cuda.runtime.getDevice())
        with self._gpu.cuda.Device(self._ordinal):
            self._stream = self._gpu.cuda.Stream(non_blocking=True)
        self._graph = self._capture()

    def _check_device(self, ordinal: int) -> None:
        if ordinal != self._ordinal:
            raise DeviceMismatchError(
                f"Graph: operands are on CUDA device {ordinal} and the graph on device {self._ordinal}",
                "make a graph for each device",
            )

    def _capture(self) -> Any:
        for bound in self.bounds:
            self._check_device(bound.ordinal)
        with self._gpu.cuda.Device(self._ordinal), self._stream:
            self._stream.begin_capture()
            try:
                self.results = tuple(
                    step(self._stream) if isinstance(step, BoundPlan) else step() for step in self._steps
                )
            except BaseException:
                with contextlib.suppress(Exception):  # the error above is more specific than the capture's
                    self._stream.end_capture()
                raise
            return self._stream.end_capture()

    def launch(self, stream: Any = None) -> None:
        """Replays on `stream`, or on CuPy's current one of the graph's device. Asynchronous."""
        with self._gpu.cuda.Device(self._ordinal):
            self._graph.launch(stream if stream is not None else self._gpu.cuda.get_current_stream())
        for bound in self.bounds:
            bound.note_written()

    def update(self, bound: BoundPlan, **operands: Any) -> None:
        """Binds other operands or run-time values to `bound` and puts them into the graph, without building it again.

        The old operands may be freed once work in flight has passed. Where another kernel had to be chosen and the
        driver cannot change the graph in place, the newly captured one takes its place.
        """
        if len(self.bounds) < len(self._steps):
            raise InvalidProblemError(
                "Graph.update: the graph holds functions, whose arrays a new capture would make anew",
                "change the contents of their operands in place, or make a new graph",
            )
        if bound not in self.bounds:
            raise InvalidProblemError("Graph.update: that bound plan is not in this graph", "pass one of graph.bounds")
        there = ordinal_of(operands.values())
        if there is not None:
            self._check_device(there)  # before `bound` changes, so that it still matches the graph if this raises
        driver = bindings()
        bound.update(**operands)
        fresh = self._capture()
        code, *_ = driver.cuGraphExecUpdate(
            driver.CUgraphExec(int(self._graph.graphExec)), driver.CUgraph(int(fresh.graph))
        )
        if code == driver.CUresult.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE:
            self._graph = fresh  # other kernels than before: the new graph replaces the old one
        elif code != driver.CUresult.CUDA_SUCCESS:
            raise DriverError(f"Graph.update: the CUDA driver answered {code.name}", int(code), code.name)

    def __repr__(self) -> str:
        names = (
            str(step.selection.sku) if isinstance(step, BoundPlan) else getattr(step, "__qualname__", repr(step))
            for step in self._steps
        )
        return f"<bp.Graph of {', '.join(names)}>"

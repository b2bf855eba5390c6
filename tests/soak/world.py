"""Where steps are carried out: problems with their oracles, made once; streams; and a gate that captures pass alone."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import baracuda_py as bp
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample
from baracuda_py.types import BaracudaError, UnsupportedError

from ..gauntlet import CudaHome, Fresh, Home, HostHome, Problem
from ..gauntlet.cases import _labels, _made
from .relaid import relaid
from .step import Step

__all__ = ["Gate", "World", "replay"]


class Gate:
    """Many may be inside at once, or one alone: a device must not be waited for while a stream is being captured."""

    def __init__(self) -> None:
        self._state, self._inside = threading.Condition(), 0

    @contextlib.contextmanager
    def __call__(self, *, alone: bool) -> Iterator[None]:
        with self._state:
            self._state.wait_for(lambda: self._inside == 0 if alone else self._inside >= 0)
            self._inside += -1 if alone else 1
        try:
            yield
        finally:
            with self._state:
                self._inside += 1 if alone else -1
                self._state.notify_all()


class World:
    """One process's problems on one device, "cpu", "ptx" (or "ptx:sm_80", ...) or "cuda"."""

    def __init__(self, device: str) -> None:
        self.device, self.gpu = device, device == "cuda"
        self.home: Home = CudaHome() if self.gpu else HostHome()
        self._problems: dict[Any, Problem] = {}
        self._making, self._gate = threading.Lock(), Gate()
        self._streams: list[Any] = []
        with contextlib.suppress(ImportError):
            import torch  # noqa: F401
        torch_ = sys.modules.get("torch")
        self.torch = torch_ is not None and (not self.gpu or torch_.cuda.is_available())

    def problem(self, step: Step) -> Problem:
        """A step's problem with all that is computed once: the plan, the oracle's answer, the inputs. BaracudaError where nothing
        serves it."""
        with self._making:
            made = self._problems.get(step.problem)
            if made is None:
                sample = _made(step.op, False)[_labels(step.op, False).index(step.sample)]
                operands = dict(sample.operands)
                for name, how in step.layouts:
                    operands[name] = relaid(operands[name], how)
                made = Problem(get_op(step.op), Sample(sample.label, operands, sample.options), self.device)
                made.plan, made.slots, made.wide, made.inputs, made.measures  # noqa: B018
                self._problems[step.problem] = made
            return made

    def forget(self, step: Step) -> None:
        with self._making:
            self._problems.pop(step.problem, None)

    def run(self, step: Step) -> None:
        """Carries a step out and checks what came of it; AssertionError where something is wrong."""
        problem = self.problem(step)
        with self._gate(alone="graph" in step.way):
            fresh = Fresh(problem, self.home, step.kind, out=step.out, every=step.way in ("run", "bind", "graph"))
            self._synchronise()
            try:
                with self._current(step):
                    result = getattr(self, f"_{step.way.replace(' ', '_')}")(problem, fresh, step)
            except UnsupportedError:
                if "graph" in step.way:  # not everything can be captured
                    return
                raise
            self._synchronise()
            fresh.check(result)

    def _function(self, problem: Problem, fresh: Fresh, step: Step) -> Any:
        return problem.call_function(**fresh.operands, **self._on(step))

    def _run(self, problem: Problem, fresh: Fresh, step: Step) -> Any:
        return problem.plan.run(**fresh.operands, **problem.values, **self._on(step))

    def _bind(self, problem: Problem, fresh: Fresh, step: Step) -> Any:
        bound = problem.plan.bind(**fresh.operands, **problem.values)
        result = bound(*self._on(step).values())
        self._synchronise()  # while its scratch lives: another stream than the one of `bind` may have been given
        return result

    def _graph(self, problem: Problem, fresh: Fresh, step: Step) -> Any:
        plan, workspace = problem.plan, None
        if plan.workspace_size:
            import cupy

            workspace = cupy.empty(plan.workspace_size, "u1")
        bound = plan.bind(**fresh.operands, **problem.values, workspace=workspace)
        graph = bp.Graph(bound)
        graph.launch(*self._on(step).values())
        self._synchronise()  # while the graph lives
        return bound.result

    def _torch_graph(self, problem: Problem, fresh: Fresh, step: Step) -> Any:
        import torch

        if not all(isinstance(x, torch.Tensor) for x in fresh.operands.values()):
            return self._function(problem, fresh, step)  # CuPy's arrays are not captured on torch's stream
        problem.call_function(**Fresh(problem, self.home, step.kind, out=step.out).operands)  # a capture loads nothing
        self._synchronise()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = problem.call_function(**fresh.operands)
        graph.replay()
        self._synchronise()
        return result

    def _stream(self) -> Any:
        if not self._streams:
            import cupy

            self._streams.append(cupy.cuda.Stream(non_blocking=True))
        return self._streams[0]

    def _on(self, step: Step) -> dict[str, Any]:
        return {"stream": self._stream()} if step.stream == 1 else {}

    def _current(self, step: Step) -> Any:
        return self._stream() if step.stream == 2 else contextlib.nullcontext()

    def _synchronise(self) -> None:
        if self.gpu:
            import cupy

            cupy.cuda.runtime.deviceSynchronize()

    def captures_torch(self) -> bool:
        """Whether functions can be captured by torch here."""
        if not (self.gpu and self.torch):
            return False
        import torch

        x = torch.ones(64, device="cuda")
        try:
            bp.neg(x)
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                bp.neg(x)
        except BaracudaError:
            return False
        return True


def replay(*steps: Step) -> None:
    """Carries steps out one after the other, in a process that has called nothing before."""
    world = World(steps[0].device)
    for step in steps:
        world.run(step)

"""Thinks up calls: problems of every op, opened for a while and then called again and again, in interleaved bursts."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from baracuda_py.plan import all_ops
from baracuda_py.samples import Packed
from baracuda_py.types import BaracudaError, UnsupportedError

from ..gauntlet.cases import _labels, _made
from .relaid import LAYOUTS
from .step import Step
from .world import World

__all__ = ["Drawn"]

BURST, EMULATED_BURST = 5, 2  # calls of one problem that are shuffled among those of others
BATCH_PROBLEMS = 6  # problems of a batch
NEW = {"cuda": 2}  # of them; on a device each brings kernels to compile
ELEMENTS = {"cuda": 40_000, "cpu": 20_000}  # of all operands together
FEW_ELEMENTS = 2_500  # where kernels are emulated
SLOWEST_S = {"cuda": 0.05, "cpu": 0.05}  # an oracle, or an emulated call
EMULATED_S = 1.0


class Drawn:
    """The calls of one job."""

    def __init__(self, world: World, seed: int, ops: Sequence[str] = ()) -> None:
        self.world, self.rng = world, random.Random(seed)
        self.ops = list(ops or all_ops())
        self.rng.shuffle(self.ops)
        self.opened: list[Step] = []
        self.refused = 0
        self.ways = ["function"] * 4 + ["run", "bind"] + (["graph"] if world.gpu else [])
        self.ways += ["torch graph"] if world.captures_torch() else []
        self.kinds = ["plain", "torch", "mixed"] if world.torch else ["plain"]
        self._turn = 0

    def batch(self, *, opens: bool) -> list[Step]:
        """Bursts of calls of a few problems, shuffled: some of the problems new where `opens`."""
        fresh = (
            [made for _ in range(NEW.get(self.world.device, 3)) if (made := self._open()) is not None] if opens else []
        )
        old = self.rng.sample(self.opened, min(len(self.opened), BATCH_PROBLEMS - len(fresh)))
        self.opened += fresh
        burst = BURST if self.world.device in SLOWEST_S else EMULATED_BURST
        steps = [self._varied(step) for step in (*fresh, *old) for _ in range(burst)]
        self.rng.shuffle(steps)
        return steps

    def _varied(self, step: Step) -> Step:
        rng = self.rng
        way = rng.choice(self.ways)
        stream = rng.choice((0, 0, 0, 1, 2)) if self.world.gpu and way != "torch graph" else 0
        return Step(
            step.op, step.sample, step.device, way, rng.choice(self.kinds), rng.random() < 0.4, stream, step.layouts
        )

    def _open(self) -> Step | None:
        """A problem of the op whose turn it is that is small, served, and quickly checked; None where a few tries found none."""
        op = self.ops[self._turn % len(self.ops)]
        self._turn += 1
        for _ in range(4):
            step = self._drawn(op)
            if step is not None and self._serves(step):
                return step
        return None

    def _drawn(self, op: str) -> Step | None:
        rng, samples = self.rng, _made(op, False)
        place = rng.randrange(len(samples))
        operands = samples[place].operands
        arrays = {name: x for name, x in operands.items() if isinstance(x, np.ndarray) and x.size and x.ndim}
        sizes = sum(np.size(x.data if isinstance(x, Packed) else x) for x in operands.values())
        if sizes > ELEMENTS.get(self.world.device, FEW_ELEMENTS):
            return None
        layouts: tuple[tuple[str, str], ...] = ()
        if arrays and rng.random() < 0.5:
            some = rng.sample(sorted(arrays), rng.randint(1, len(arrays)))
            layouts = tuple((name, rng.choice(LAYOUTS)) for name in some)
        return Step(op, _labels(op, False)[place], self.world.device, layouts=layouts)

    def _serves(self, step: Step) -> bool:
        """Whether the problem is taken, and soon checked. A layout that an op refuses is no problem of its."""
        try:
            problem = self.world.problem(step)
            accepted = problem.plan.can_implement(**problem.operands, **problem.values)
            if not accepted:
                raise UnsupportedError(accepted.reason)
            if self.world.device not in SLOWEST_S:
                self.world.run(step)  # compiles and translates
            began = time.perf_counter()
            self._answer(step)
            took = time.perf_counter() - began
        except BaracudaError:
            self.refused += 1
            self.world.forget(step)
            return False
        if took > SLOWEST_S.get(self.world.device, EMULATED_S):
            self.world.forget(step)
            return False
        return True

    def _answer(self, step: Step) -> Any:
        """The oracle's answer once more, or a call where kernels are emulated."""
        problem = self.world.problem(step)
        if self.world.device in SLOWEST_S:
            inputs = {o.name: problem.slots[o.name].host() for o in problem.desc.operands
                      if o.role != "out" and o.name in problem.slots}  # fmt: skip
            return problem.op.plan.reference(problem.desc, **inputs)
        return self.world.run(step)

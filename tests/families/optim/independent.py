"""Steps of optimizers one element at a time, on Python's floats, as torch.optim writes them. No oracle code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...gauntlet import Problem
from ..answers import near

__all__ = ["CHECKS"]

Rule = Callable[..., tuple[float, ...]]


def _host(problem: Problem, name: str) -> np.ndarray[Any, Any]:
    return np.asarray(problem.slots[name].host()).astype(np.float64).reshape(-1)


def _scalar(problem: Problem, name: str, other: float) -> float:
    return float(_host(problem, name)[0]) if name in problem.slots else other


def _places(problem: Problem, names: list[str]) -> Iterator[tuple[int, ...]]:
    """Where each updated element is in every array."""
    if "table" not in problem.slots:
        yield from ((i,) * len(names) for i in range(_host(problem, "param").size))
        return
    sizes = [problem.slots[name].host().dtype.itemsize for name in names]
    for count, _first, *begins in problem.slots["table"].host().tolist():
        yield from (tuple(b // s + i for b, s in zip(begins, sizes)) for i in range(count))


def _check(rule: Rule, states: tuple[str, ...]) -> Callable[[Problem], None]:
    """The check of an optimizer whose `rule` is (problem, lr, step, p, g, *states) -> (p, *states)."""

    def check(problem: Problem) -> None:
        desc = problem.desc
        kept = [name for name in states if name in problem.slots]
        names = ["param", "grad", *kept, *(["master"] if "master" in problem.slots else [])]
        old = {name: _host(problem, name) for name in names}
        new = {name: x.copy() for name, x in old.items() if name != "grad"}
        size = {name: np.abs(x) for name, x in new.items()}
        skipped = _scalar(problem, "found_inf", 0.0) != 0
        step = _scalar(problem, "step", 0.0) + (not skipped)
        lr, scale = _scalar(problem, "learning_rate", desc.lr), _scalar(problem, "grad_scale", 1.0)
        for places in [] if skipped else _places(problem, names):
            at = dict(zip(names, places))
            p, g, *held = (float(old[name][at[name]]) for name in ("param", "grad", *kept))
            p = float(old["master"][at["master"]]) if "master" in at else p
            g = (-g if desc.maximize else g) / scale
            made = dict(zip(("param", *kept), rule(desc, lr, step, p, g, *held)))
            made |= {"master": made["param"]} if "master" in at else {}
            for name, x in made.items():
                new[name][at[name]] = x
                size[name][at[name]] = abs(p) + abs(g) + g * g + sum(map(abs, held)) + abs(x)
        for name, x in new.items():
            near(problem, name, x.reshape(desc.shape), size=size[name].reshape(desc.shape))
        near(problem, "step", step)

    return check


def _adam(
    desc: Any, lr: float, step: float, p: float, g: float, exp_avg: float, exp_avg_sq: float, *most: float
) -> tuple[float, ...]:
    if desc.name == "adamw_update":
        p *= 1 - lr * desc.weight_decay
    else:
        g += desc.weight_decay * p
    exp_avg += (g - exp_avg) * (1 - desc.beta1)
    exp_avg_sq = exp_avg_sq * desc.beta2 + g * g * (1 - desc.beta2)
    greatest = tuple(max(x, exp_avg_sq) for x in most)
    second = greatest[0] if greatest else exp_avg_sq
    denom = math.sqrt(second) / math.sqrt(1 - desc.beta2**step) + desc.eps
    return p - lr / (1 - desc.beta1**step) * exp_avg / denom, exp_avg, exp_avg_sq, *greatest


ADAM = _check(_adam, ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"))
CHECKS: dict[str, Callable[[Problem], None]] = {"adam_update": ADAM, "adamw_update": ADAM}

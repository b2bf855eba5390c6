"""Steps of optimizers, as torch.optim writes them, and norms of gradients, by Python's floats, one element at a time. No
oracle code."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from ...gauntlet import Problem
from ..answers import near
from ..random import word_at

__all__ = ["CHECKS"]

Rule = Callable[..., tuple[float, ...]]
SQUARES = ("exp_avg_sq", "square_avg", "state_sum")


def _host(problem: Problem, name: str) -> np.ndarray[Any, Any]:
    return np.asarray(problem.slots[name].host()).astype(np.float64).reshape(-1)


def _scalar(problem: Problem, name: str, other: float) -> float:
    return float(_host(problem, name)[0]) if name in problem.slots else other


def _places(problem: Problem, names: list[str]) -> Iterator[tuple[int, ...]]:
    """Where each updated element is in every array."""
    if "table" not in problem.slots:
        yield from ((i,) * len(names) for i in range(_host(problem, names[0]).size))
        return
    sizes = [problem.slots[name].host().dtype.itemsize for name in names]
    for count, _first, *begins in problem.slots["table"].host().tolist():
        yield from (tuple(b // s + i for b, s in zip(begins, sizes)) for i in range(count))


def _by_chance(x: float, word: int) -> float:
    """To the bf16 number below |x| or above it: the latter for as many of 2**16 words as x is 2**-16 of their distance away."""
    part, exponent = math.frexp(np.float32(x))
    spacing = math.ldexp(1.0, max(exponent - 8, -133))
    low = math.floor(abs(x) / spacing) * spacing
    away = round((abs(float(np.float32(x))) - low) / spacing * 2**16)
    return math.copysign(low + spacing * (away + word % 2**16 >= 2**16), part)


Elements = list[tuple[float, ...]]  # p, g and the states of each


def _each(rule: Rule) -> Callable[..., Elements]:
    """Of elements one by one, by `rule`: (problem, lr, step, p, g, *states) -> (p, *states)."""
    return lambda desc, lr, step, elements, _arrays: [rule(desc, lr, step, *x) for x in elements]


def _arrays_of(problem: Problem, count: int) -> list[range]:
    """The elements of each array: those of as many rows of the table as its first one says."""
    if "table" not in problem.slots:
        return [range(count)]
    rows, made, first = problem.slots["table"].host().tolist(), list[range](), 0
    for i, row in enumerate(rows):
        if row[-1]:
            made.append(range(first, first := first + sum(n for n, *_ in rows[i : i + row[-1]])))
    return made


def _check(rule: Callable[..., Elements], states: tuple[str, ...]) -> Callable[[Problem], None]:
    """The check of an optimizer whose `rule` is (problem, lr, step, elements, arrays) -> elements without gradients."""

    def check(problem: Problem) -> None:
        desc = problem.desc
        kept = [name for name in states if name in problem.slots]
        names = ["param", "grad", *kept, *(["master"] if "master" in problem.slots else [])]
        blockwise = desc.rule.blockwise
        old = {n: _decoded(problem, n) if blockwise and n in kept else _host(problem, n) for n in names}
        entries = [f"{name}_absmax" for name in kept] if blockwise else []
        listed = [*names[: 2 + len(kept)], *entries, *names[2 + len(kept) :]]
        new = {name: x.copy() for name, x in old.items() if name != "grad"}
        size = {name: np.abs(x) for name, x in new.items()}
        skipped = _scalar(problem, "found_inf", 0.0) != 0
        step = _scalar(problem, "step", 0.0) + (not skipped)
        lr, scale = _scalar(problem, "learning_rate", desc.lr), _scalar(problem, "grad_scale", 1.0)
        found = [] if skipped else [dict(zip(listed, places)) for places in _places(problem, listed)]
        elements: Elements = []
        for at in found:
            p, g, *held = (float(old[name][at[name]]) for name in ("param", "grad", *kept))
            p = float(old["master"][at["master"]]) if "master" in at else p
            elements.append((p, (-g if desc.maximize else g) / scale, *held))
        arrays = _arrays_of(problem, len(elements)) if desc.rule.normed else []
        stepped = rule(desc, lr, step, elements, arrays) if elements else []
        for position, (at, (p, g, *held), values) in enumerate(zip(found, elements, stepped)):
            made = dict(zip(("param", *kept), values))
            if "master" in at:  # in f32, of which the parameter is a copy
                made |= {"master": made["param"], "param": float(np.float32(made["param"]))}
            if desc.stochastic:
                made["param"] = _by_chance(
                    made["param"], word_at({"seed": desc.seed, "subsequence": int(step)}, position, 32)
                )
            for name, x in made.items():
                new[name][at[name]] = x
                size[name][at[name]] = abs(p) + abs(g) + g * g + sum(map(abs, held)) + abs(x)
        for name, x in new.items():
            if blockwise and name in kept:
                _check_codes(problem, name, x, skipped=skipped)
            else:
                near(problem, name, x.reshape(desc.shape), size=size[name].reshape(desc.shape))
        near(problem, "step", step)

    return check


@cache
def _dynamic_map(positive: bool) -> list[float]:
    """As bitsandbytes makes it: means of neighbours among equal steps from 0.1 to 1, times powers of ten, and 0 and 1."""
    made = [0.0, 1.0]
    for i in range(7):
        count = 2 ** (i + positive)
        edges = [0.1 + 0.9 * k / count for k in range(count + 1)]
        means = [10.0 ** (i - 6) * (a + b) / 2 for a, b in pairwise(edges)]
        made += means if positive else [*means, *(-x for x in means)]
    return [float(np.float32(x)) for x in sorted(made)]


def _blocks(problem: Problem, name: str) -> Iterator[tuple[range, int]]:
    """The elements of each block of a state, and where its greatest size is."""
    states = problem.desc.rule.states
    at = 3 + states.index(name)  # behind the number of the first element and two arrays, without the count
    rows = [[_host(problem, "param").size] + [0] * 9]
    for count, *row in problem.slots["table"].host().tolist() if "table" in problem.slots else rows:
        for i, first in enumerate(range(0, count, 256)):
            yield range(row[at] + first, row[at] + min(first + 256, count)), row[at + len(states)] // 4 + i


def _decoded(problem: Problem, name: str) -> np.ndarray[Any, Any]:
    known, codes = _dynamic_map(name in SQUARES), problem.slots[name].host().reshape(-1)
    most, made = problem.slots[f"{name}_absmax"].host(), np.zeros(codes.size)
    for elements, entry in _blocks(problem, name):
        for i in elements:
            made[i] = np.float32(known[codes[i]]) * most[entry]
    return made


def _check_codes(problem: Problem, name: str, states: np.ndarray[Any, Any], *, skipped: bool) -> None:
    """That no code is nearer to a state over the greatest of its block, but for the numbers' own rounding."""
    known = _dynamic_map(name in SQUARES)
    most, old = _host(problem, f"{name}_absmax"), problem.slots[name].host().reshape(-1)
    codes = np.asarray(problem.wide[name]).reshape(-1).astype(int)
    for elements, entry in () if skipped else _blocks(problem, name):
        most[entry] = max(abs(states[i]) for i in elements)
        for i in elements:
            x = states[i] / most[entry] if most[entry] else 0.0
            place = bisect.bisect(known, x)
            best = min(abs(x - y) for y in known[max(place - 1, 0) : place + 1])
            assert abs(x - known[codes[i]]) <= best + 1e-12, f"{name}[{i}]: code {codes[i]} of {x}"
    covered = {i for elements, _ in (() if skipped else _blocks(problem, name)) for i in elements}
    assert all(codes[i] == old[i] for i in range(codes.size) if i not in covered)
    near(problem, f"{name}_absmax", most)


def _norm_of(x: list[float]) -> float:
    return math.sqrt(math.fsum(v * v for v in x))


def _lamb(desc: Any, lr: float, step: float, elements: Elements, arrays: list[range]) -> Elements:
    made: Elements = []
    for own in ([elements[i] for i in array] for array in arrays):
        moments = [
            (m * desc.beta1 + g * (1 - desc.beta1), v * desc.beta2 + g * g * (1 - desc.beta2)) for _, g, m, v in own
        ]
        update = [
            m / (1 - desc.beta1**step) / (math.sqrt(v / (1 - desc.beta2**step)) + desc.eps) + desc.weight_decay * p
            for (p, *_), (m, v) in zip(own, moments)
        ]
        norm, other = _norm_of([p for p, *_ in own]), _norm_of(update)
        share = norm / other if norm and other else 1.0
        made += [(p - lr * share * u, *held) for (p, *_), u, held in zip(own, update, moments)]
    return made


def _lars(desc: Any, lr: float, step: float, elements: Elements, arrays: list[range]) -> Elements:  # noqa: ARG001
    made: Elements = []
    for own in ([elements[i] for i in array] for array in arrays):
        update = [g + desc.weight_decay * p for p, g, _ in own]
        norm, other = _norm_of([p for p, *_ in own]), _norm_of(update)
        share = desc.trust_coefficient * norm / (other + desc.eps) if norm and other else 1.0
        for (p, _, buffer), u in zip(own, update):
            held = desc.momentum * buffer + lr * share * u
            made.append((p - (lr * share * u + desc.momentum * held if desc.nesterov else held), held))
    return made


def _adam(
    desc: Any, lr: float, step: float, p: float, g: float, exp_avg: float, exp_avg_sq: float, *most: float
) -> tuple[float, ...]:
    if desc.name.startswith("adamw"):
        p *= 1 - lr * desc.weight_decay
    else:
        g += desc.weight_decay * p
    exp_avg += (g - exp_avg) * (1 - desc.beta1)
    exp_avg_sq = exp_avg_sq * desc.beta2 + g * g * (1 - desc.beta2)
    greatest = tuple(max(x, exp_avg_sq) for x in most)
    second = greatest[0] if greatest else exp_avg_sq
    denom = math.sqrt(second) / math.sqrt(1 - desc.beta2**step) + desc.eps
    return p - lr / (1 - desc.beta1**step) * exp_avg / denom, exp_avg, exp_avg_sq, *greatest


def _sgd(desc: Any, lr: float, step: float, p: float, g: float, *buffer: float) -> tuple[float, ...]:
    g += desc.weight_decay * p
    if not buffer:
        return (p - lr * g,)
    held = g if step == 1 else desc.momentum * buffer[0] + (1 - desc.dampening) * g
    return p - lr * (g + desc.momentum * held if desc.nesterov else held), held


def _rmsprop(desc: Any, lr: float, step: float, p: float, g: float, square: float, *more: float) -> tuple[float, ...]:  # noqa: ARG001
    g += desc.weight_decay * p
    square, held = desc.alpha * square + (1 - desc.alpha) * g * g, list(more)
    if "grad_avg" in desc.kept:
        held[0] = desc.alpha * held[0] + (1 - desc.alpha) * g
    variance = square - (held[0] ** 2 if "grad_avg" in desc.kept else 0)
    moved = g / ((math.sqrt(variance) if variance >= 0 else math.nan) + desc.eps)
    if "momentum_buffer" in desc.kept:
        moved = held[-1] = desc.momentum * held[-1] + moved
    return p - lr * moved, square, *held


def _adagrad(desc: Any, lr: float, step: float, p: float, g: float, total: float) -> tuple[float, ...]:
    g += desc.weight_decay * p
    total += g * g
    return p - lr / (1 + (step - 1) * desc.lr_decay) * g / (math.sqrt(total) + desc.eps), total


def _lion(desc: Any, lr: float, step: float, p: float, g: float, exp_avg: float) -> tuple[float, ...]:  # noqa: ARG001
    between = exp_avg * desc.beta1 + g * (1 - desc.beta1)
    sign = (between > 0) - (between < 0)
    return p * (1 - lr * desc.weight_decay) - lr * sign, exp_avg * desc.beta2 + g * (1 - desc.beta2)


def _adafactor(problem: Problem) -> None:
    """By matrices of Python's floats; a vector is a matrix of one row without a row's factor."""
    desc, kept = problem.desc, [name for name in ("row_var", "col_var", "variance") if name in problem.slots]
    old = {name: _host(problem, name).tolist() for name in ("param", "grad", *kept)}
    p = _host(problem, "master").tolist() if "master" in problem.slots else old["param"]
    skipped = _scalar(problem, "found_inf", 0.0) != 0
    step = _scalar(problem, "step", 0.0) + (not skipped)
    lr, scale = _scalar(problem, "learning_rate", desc.lr), _scalar(problem, "grad_scale", 1.0)
    new = {name: list(x) for name, x in old.items() if name != "grad"}
    if p and not skipped:
        eps1 = desc.eps1 if desc.eps1 is not None else float(np.finfo(np.float32).eps) * (
            2.0**-29 if problem.desc.element.bits == 64 else 1 if "master" in problem.slots or desc.element.bits == 32
            else 2.0**16 if str(desc.element) == "bf16" else 2.0**13
        )  # fmt: skip
        g = [(-x if desc.maximize else x) / scale for x in old["grad"]]
        moments = _moments(g, old, new, desc.shape, step**desc.beta2_decay, eps1)
        u = [x / math.sqrt(max(v, eps1**2)) for x, v in zip(g, moments)]
        rms = [_norm_of(x) / math.sqrt(len(x)) for x in (p, u)]
        size = max(desc.eps2, rms[0]) * min(lr, 1 / math.sqrt(step)) / max(1.0, rms[1] / desc.d)
        new["param"] = [x * (1 - lr * desc.weight_decay) - size * y for x, y in zip(p, u)]
    if "master" in problem.slots:
        new["master"] = new["param"] if not skipped else p
        new["param"] = [float(np.float32(x)) for x in new["master"]] if not skipped else old["param"]
    for name, x in new.items():
        held = problem.slots[name].host()
        near(problem, name, np.reshape(x, held.shape), size=1 + np.abs(held.astype(np.float64)))
    near(problem, "step", step)


def _moments(
    g: list[float], old: dict[str, list[float]], new: dict[str, list[float]], shape: tuple[int, ...], weight: float, eps1: float,
) -> list[float]:  # fmt: skip
    """Second moments of Adafactor, with its states put in."""

    def advance(name: str, at: int, squares: list[float]) -> float:
        new[name][at] = old[name][at] * (1 - weight) + weight * math.fsum(squares) / len(squares)
        return new[name][at]

    if len(shape) < 2:
        return [advance("variance", i, [x * x]) for i, x in enumerate(g)]
    rows, columns, made = shape[-2], shape[-1], list[float]()
    for m in range(len(g) // (rows * columns)):
        own = [g[(m * rows + r) * columns :][:columns] for r in range(rows)]
        of_rows = [advance("row_var", m * rows + r, [x * x for x in own[r]]) for r in range(rows)]
        of_columns = [advance("col_var", m * columns + c, [x[c] ** 2 for x in own]) for c in range(columns)]
        mean = max(math.fsum(of_rows) / rows, eps1)
        made += [r * c / mean for r in of_rows for c in of_columns]
    return made


def _muon(problem: Problem) -> None:
    """By the singular values of NumPy's decomposition, each of which the iteration changes alone."""
    desc, held = problem.desc, {n: _host(problem, n).reshape(problem.desc.shape) for n in problem.desc.arrays}
    p, lr = held.get("master", held["param"]), _scalar(problem, "learning_rate", desc.lr)
    buffer = held["momentum_buffer"] * desc.momentum + held["grad"] * (1 - desc.momentum)
    update = held["grad"] * (1 - desc.momentum) + buffer * desc.momentum if desc.nesterov else buffer
    left, s, right = np.linalg.svd(update, full_matrices=False)
    s = s / max(math.sqrt(math.fsum(x * x for x in s.tolist())), desc.eps)
    a, b, c = desc.ns_coefficients
    for _ in range(desc.ns_steps):
        s = a * s + b * s**3 + c * s**5
    rows, columns = desc.shape
    ratio = 0.2 * max(rows, columns) ** 0.5 if desc.adjust_lr_fn else max(1.0, rows / columns) ** 0.5
    wanted = p * (1 - lr * desc.weight_decay) - lr * ratio * (left * s) @ right
    found = {"param": wanted, "master": wanted, "momentum_buffer": buffer}
    if "master" in held:
        found["param"] = wanted.astype(np.float32).astype(np.float64)
    for name in ("param", "master", "momentum_buffer"):
        if name in held:
            rounded = 2.0**-22 if name == "param" and "master" in held else 0  # of a master, to f32 at a tie's side
            near(problem, name, found[name], size=1 + np.abs(held[name]) + rounded * 2.0**40)


def _norm(problem: Problem) -> tuple[list[int], float]:
    """The elements that count, and the norm of these."""
    held = _host(problem, "grad")
    places = [i for (i,) in _places(problem, ["grad"])]
    x = [float(held[i]) for i in places]
    odd = [v for v in x if not math.isfinite(v)]
    return places, sum(map(abs, odd)) if odd else math.sqrt(math.fsum(v * v for v in x))


def _gradient_norm(problem: Problem) -> None:
    scale, most = _scalar(problem, "grad_scale", 1.0), problem.desc.max_norm
    norm = _norm(problem)[1] / scale
    near(problem, "norm", norm)
    near(problem, "scale", scale * max(1.0, (norm + 1e-6) / most if most else math.inf) if norm == norm else norm)
    near(problem, "found_inf", float(not math.isfinite(norm)))


def _gradient_clip(problem: Problem) -> None:
    places, norm = _norm(problem)
    wanted = _host(problem, "grad").copy()
    for i in places:
        with np.errstate(all="ignore"):
            wanted[i] *= min(1.0, problem.desc.max_norm / (norm + 1e-6)) if norm == norm else norm
    near(problem, "norm", norm)
    near(problem, "grad", wanted.reshape(problem.desc.shape))


ADAM = _check(_each(_adam), ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"))
ADAM8 = _check(_each(_adam), ("exp_avg", "exp_avg_sq"))
CHECKS: dict[str, Callable[[Problem], None]] = {
    "adam_update": ADAM, "adamw_update": ADAM, "sgd_update": _check(_each(_sgd), ("momentum_buffer",)),
    "rmsprop_update": _check(_each(_rmsprop), ("square_avg", "grad_avg", "momentum_buffer")),
    "adagrad_update": _check(_each(_adagrad), ("state_sum",)), "lion_update": _check(_each(_lion), ("exp_avg",)),
    "lamb_update": _check(_lamb, ("exp_avg", "exp_avg_sq")), "lars_update": _check(_lars, ("momentum_buffer",)),
    "adam8bit_update": ADAM8, "adamw8bit_update": ADAM8, "lion8bit_update": _check(_each(_lion), ("exp_avg",)),
    "sgd8bit_update": _check(_each(_sgd), ("momentum_buffer",)),
    "rmsprop8bit_update": _check(_each(_rmsprop), ("square_avg",)),
    "adagrad8bit_update": _check(_each(_adagrad), ("state_sum",)),
    "adafactor_update": _adafactor, "muon_update": _muon, "gradient_norm": _gradient_norm, "gradient_clip": _gradient_clip,
}  # fmt: skip

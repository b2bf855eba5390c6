"""Rules whose step size is an array's own: LAMB and LARS.

What is lost, in unit roundoffs u of what is computed in, beside what `moments` counts:

- The update U of an element errs by u D, and so its array's norm by u |D|, D taken as a vector: the triangle inequality. Where
  that may be half of the norm, nothing is said of the array. Zeros stay zeros.
- Both norms are of squares added in f64, by `depth` additions at most, which the norm errs by half of (Higham, section 4.2).
- The step size lr * trust_coefficient * |P| / (|U| + eps) errs by what its divisor does, over the least that this may be, and by
  five roundings: of each of its numbers and of the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....types import ElementKind
from .moments import beyond_of, divisor_of, mean_of, quotient_of, squares_of
from .parts import Array, Parts, Step

__all__ = ["lamb", "lars"]

LEAST_NORM, GREATEST_NORM = 1e-140, 1e150  # whose squares are normal numbers of f64


def _norm(x: Array) -> Any:
    return np.sqrt(np.sum(x * x))


def _stepped(
    parts: Parts, update: Array, lost: Array, coefficient: Any = 1, eps: Any = 0
) -> tuple[Array, Array, Array, Array]:
    """An array's step size times its update, what that loses, the step size, and where nothing is said of it."""
    norm, of_update, of_lost = (parts.of_arrays(_norm, x) for x in (parts.param, update, lost))
    zero = (norm == 0) | (of_update == 0)
    size = parts.lr * np.where(zero, 1, coefficient * norm / np.where(zero, 1, of_update + eps))
    least = np.where(zero, 1, of_update + eps - parts.unit * of_lost)
    of_sums = (parts.desc.depth + 8) * (ElementKind.F64.unit_roundoff / parts.unit)
    moved = size * update
    lost = size * lost + np.abs(moved) * (np.where(zero, 0, of_lost / least + of_sums) + 7)
    lost = lost + (2 + np.abs(update)) * parts.tiny  # the product's, and the step size's
    beyond = (of_lost > 0) & (2 * parts.unit * of_lost > of_update) | parts.large(size, moved)
    for x in (norm, of_update):
        beyond |= (x > 0) & (x < LEAST_NORM) | (x > GREATEST_NORM) & np.isfinite(x)
    return moved, lost, size, beyond


def lamb(parts: Parts) -> Step:
    """LAMB."""
    beta1, beta2, eps, weight_decay = parts.hyper()
    g, size = parts.gradient()
    p, old = parts.param, parts.of("exp_avg")
    first, second = mean_of(parts, "exp_avg", beta1, g, size), squares_of(parts, "exp_avg_sq", beta2, g, size)
    divisor = divisor_of(parts, *second, eps, np.sqrt(1 - beta2**parts.step))
    share = 1 / (1 - beta1**parts.step)
    adapted, lost = quotient_of(parts, *first, divisor, share)
    update = adapted + weight_decay * p if weight_decay else adapted
    decayed = weight_decay * np.abs(p) if weight_decay else np.zeros_like(p)
    moving = (np.abs(old) + size > 0) | (decayed > 0)
    lost = np.where(moving, lost + 3 * (np.abs(adapted) + decayed) + parts.tiny, 0)
    moved, of_moved, step_size, beyond = _stepped(parts, update, lost)
    undecided = beyond_of(parts, divisor, size, first[1], second[1], share * first[1] / divisor[0]) & moving
    beyond |= parts.of_arrays(np.any, undecided)
    powers = sum(x / (1 - x) + 1 for x in (beta1**parts.step, beta2**parts.step))
    norms = [parts.of_arrays(_norm, x) for x in (adapted, update)]
    of_norm = np.abs(moved) * np.where(norms[1] > 0, norms[0] / norms[1], 0)
    return Step(
        p - moved, {"exp_avg": first[0], "exp_avg_sq": second[0]},
        {"param": of_moved + 3 * (np.abs(p) + np.abs(moved)) + 4 * parts.tiny, "exp_avg": first[1], "exp_avg_sq": second[1]},
        powers * (step_size * np.abs(adapted) + of_norm), beyond,
    )  # fmt: skip


def lars(parts: Parts) -> Step:
    """LARS, with a momentum of steps, or Nesterov's."""
    momentum, weight_decay, coefficient, eps = parts.hyper()
    update, size = parts.gradient(weight_decay)
    p, old = parts.param, parts.of("momentum_buffer")
    moved, lost, _, beyond = _stepped(parts, update, np.where(size > 0, 5 * size + 2 * parts.tiny, 0), coefficient, eps)
    held = momentum * old + moved
    of_held = lost + 3 * (momentum * np.abs(old) + np.abs(moved)) + 2 * parts.tiny
    step, of_step = held, of_held
    if parts.desc.nesterov:
        step = moved + momentum * held
        of_step = lost + momentum * of_held + 3 * (np.abs(moved) + momentum * np.abs(held)) + 2 * parts.tiny
    of_param = of_step + 3 * (np.abs(p) + np.abs(step)) + 4 * parts.tiny
    beyond = beyond | parts.of_arrays(np.any, parts.large(size)) | parts.large(step)
    return Step(p - step, {"momentum_buffer": held}, {"param": of_param, "momentum_buffer": of_held}, 0, beyond)

"""Rules without a divisor: SGD, and Lion, which moves by signs.

What is lost is counted as in `moments`: every product and sum of a rule by a unit roundoff of its terms' sizes. Where what Lion
takes the sign of is no larger than its error, nothing is said of the parameter.
"""

from __future__ import annotations

import numpy as np

from .parts import Parts, Step

__all__ = ["lion", "sgd"]


def sgd(parts: Parts) -> Step:
    """SGD, with momentum and Nesterov's."""
    momentum, dampening, weight_decay = parts.hyper()
    g, size = parts.gradient(weight_decay)
    p, states, lost = parts.param, {}, {}
    if "momentum_buffer" in parts.given:
        old, share = parts.of("momentum_buffer"), 1 - dampening
        first = parts.step == 1
        held = g if first else momentum * old + share * g
        sizes = size if first else momentum * np.abs(old) + share * size
        states["momentum_buffer"], lost["momentum_buffer"] = held, 9 * sizes + 4 * parts.tiny
        g, size = (g + momentum * held, size + momentum * sizes) if parts.desc.nesterov else (held, sizes)
    moved = parts.lr * g
    lost["param"] = 16 * parts.lr * size + 2 * (np.abs(p) + np.abs(moved)) + (4 + 8 * parts.lr) * parts.tiny
    return Step(p - moved, states, lost, 0, parts.large(size, parts.lr * size))


def lion(parts: Parts) -> Step:
    """Lion."""
    beta1, beta2, weight_decay = parts.hyper()
    g, size = parts.gradient()
    p, old = parts.param, parts.of("exp_avg")
    between, sizes = beta1 * old + (1 - beta1) * g, beta1 * np.abs(old) + (1 - beta1) * size
    lost = {
        "param": 4 * (np.abs(p) + parts.lr) + 2 * parts.tiny,
        "exp_avg": 9 * (beta2 * np.abs(old) + (1 - beta2) * size) + 4 * parts.tiny,
    }
    undecided = np.abs(between) <= parts.unit * (9 * sizes + 4 * parts.tiny)
    made = p * (1 - parts.lr * weight_decay) - parts.lr * np.sign(between)
    return Step(made, {"exp_avg": beta2 * old + (1 - beta2) * g}, lost, 0, undecided | parts.large(size))

"""Rules that divide by the root of a mean or a sum of squares: Adam, RMSprop, Adagrad.

What is lost, in unit roundoffs u of what is computed in, with A the gradient's size, of which it errs by 4 u A; all that a step
shares is computed in f64 and rounded once, to u:

- m + (1 - beta) (g - m) errs by u M, M = |m| + (1 - beta) (A + |m|), from each of its five roundings, and by the gradient's:
  9 u M.
- beta v + (1 - beta) g g errs by 13 u V, V = beta v + (1 - beta) A**2: the square takes the gradient's error twice, and five
  roundings.
- A root errs by d / root or sqrt(d), whichever is less, where what it is of errs by d, as sqrt(x + d) - sqrt(x) <= sqrt(d); by u,
  and over the bias correction by 2 u more. With eps, the divisor follows.
- A quotient errs by what its terms do, over the least that the divisor may be, and by 5 roundings with its factor.
- Powers in bias corrections err by 2 ulp of f64 (CUDA C++ Programming Guide, "Mathematical Functions"), which counts where 1 less
  a power is small: `correction`.
- The parameter takes three roundings. A step whose result is not a normal number loses up to half of the smallest one there is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .parts import Array, Parts, Step

__all__ = ["adagrad", "adam", "beyond_of", "divisor_of", "mean_of", "quotient_of", "rmsprop", "squares_of"]


def mean_of(parts: Parts, name: str, beta: Any, g: Array, size: Array) -> tuple[Array, Array]:
    """A running mean of the gradient, and what it loses."""
    old = parts.of(name)
    lost = 9 * (np.abs(old) + (1 - beta) * (size + np.abs(old))) + 5 * parts.tiny
    return old + (1 - beta) * (g - old), lost  # NaN where old is infinite, as PyTorch's


def squares_of(parts: Parts, name: str, beta: Any, g: Array, size: Array) -> tuple[Array, Array]:
    """A running mean of squares, and what it loses."""
    old = parts.of(name)
    lost = 13 * (beta * np.abs(old) + (1 - beta) * size**2) + 5 * parts.tiny
    return old * beta + (1 - beta) * g * g, lost


def divisor_of(parts: Parts, squares: Array, lost: Array, eps: Any, correction: Any = 1) -> tuple[Array, Array]:
    """The root of `squares` over the correction, and eps; and what it loses."""
    root = np.sqrt(squares)
    of_root = np.minimum(np.sqrt(lost / parts.unit), lost / root) + 3 * root
    divisor = root / correction + eps
    return divisor, of_root / correction + divisor + eps


def quotient_of(
    parts: Parts, over: Array, lost: Array, divisor: tuple[Array, Array], factor: Any = 1
) -> tuple[Array, Array]:
    """`factor` times `over` by a divisor, and what it loses."""
    least = divisor[0] - parts.unit * divisor[1]
    made = factor * (over / divisor[0])
    return made, factor * lost / least + np.abs(made) * (divisor[1] / least + 5) + 4 * parts.tiny


def beyond_of(parts: Parts, divisor: tuple[Array, Array], *sizes: Array) -> Array:
    """Whether the divisor may lose half of itself, or anything is near the end of what is computed in."""
    return np.asarray((2 * parts.unit * divisor[1] > divisor[0]) | parts.large(*sizes, divisor[0]))


def _step(
    parts: Parts, moved: tuple[Array, Array], states: dict[str, tuple[Array, Array]], beyond: Array, *, decay: Any = 1,
    correction: Any = 0,
) -> Step:  # fmt: skip
    """The parameter times `decay` less what it is moved by."""
    p = parts.param
    lost = {"param": moved[1] + 3 * (np.abs(p) + np.abs(moved[0])) + 4 * parts.tiny}
    lost |= {name: state[1] for name, state in states.items()}
    return Step(
        p * decay - moved[0], {name: state[0] for name, state in states.items()}, lost, np.abs(moved[0]) * correction, beyond
    )  # fmt: skip


def adam(parts: Parts, *, decoupled: bool) -> Step:
    """Adam, AdamW, and AMSGrad of either."""
    beta1, beta2, eps, weight_decay = parts.hyper()
    g, size = parts.gradient(0 if decoupled else weight_decay)
    first = mean_of(parts, "exp_avg", beta1, g, size)
    second = squares_of(parts, "exp_avg_sq", beta2, g, size)
    states = {"exp_avg": first, "exp_avg_sq": second}
    if "max_exp_avg_sq" in parts.given:
        second = np.maximum(parts.of("max_exp_avg_sq"), second[0]), second[1]
        states["max_exp_avg_sq"] = second
    divisor = divisor_of(parts, *second, eps, np.sqrt(1 - beta2**parts.step))
    step_size = parts.lr / (1 - beta1**parts.step)
    moved = quotient_of(parts, *first, divisor, step_size)
    powers = (beta1**parts.step, beta2**parts.step)
    beyond = beyond_of(parts, divisor, size, first[1], second[1], step_size * first[1] / divisor[0])
    return _step(
        parts, moved, states, beyond, decay=1 - parts.lr * weight_decay if decoupled else 1,
        correction=sum(x / (1 - x) + 1 for x in powers),
    )  # fmt: skip


def rmsprop(parts: Parts) -> Step:
    """RMSprop; centred, it divides by the root of the variance, which loses what the square of the mean does too."""
    alpha, eps, weight_decay, momentum = parts.hyper()
    g, size = parts.gradient(weight_decay)
    squares = squares_of(parts, "square_avg", alpha, g, size)
    states, variance = {"square_avg": squares}, squares
    if "grad_avg" in parts.given:
        mean = states["grad_avg"] = mean_of(parts, "grad_avg", alpha, g, size)
        of_square = (2 * np.abs(mean[0]) + parts.unit * mean[1]) * mean[1] + 2 * mean[0] ** 2
        variance = squares[0] - mean[0] ** 2, squares[1] + of_square + squares[0] + 2 * parts.tiny
    divisor = divisor_of(parts, *variance, eps)
    moved = quotient_of(parts, g, 4 * size, divisor)
    beyond = beyond_of(parts, divisor, size, squares[1], size / divisor[0]) | (variance[0] < parts.unit * variance[1])
    if "momentum_buffer" in parts.given:
        old = momentum * np.abs(parts.of("momentum_buffer"))
        held = momentum * parts.of("momentum_buffer") + moved[0]
        moved = held, moved[1] + 4 * (old + np.abs(moved[0])) + 3 * parts.tiny
        states["momentum_buffer"] = moved
    stepped = parts.lr * moved[0], parts.lr * (moved[1] + 4 * np.abs(moved[0])) + 2 * parts.tiny
    return _step(parts, stepped, states, beyond)


def adagrad(parts: Parts) -> Step:
    """Adagrad."""
    lr_decay, weight_decay, eps = parts.hyper()
    g, size = parts.gradient(weight_decay)
    old = parts.of("state_sum")
    squares = old + g * g, 11 * (np.abs(old) + size**2) + 3 * parts.tiny
    divisor = divisor_of(parts, *squares, eps)
    moved = quotient_of(parts, g, 4 * size, divisor, parts.lr / (1 + (parts.step - 1) * lr_decay))
    beyond = beyond_of(parts, divisor, size, squares[1], parts.lr * size / divisor[0])
    return _step(parts, moved, {"state_sum": squares}, beyond)

"""The CTC loss by other means: probabilities, not logarithms, of prefixes that end in a blank or in their last label. A gradient
is from the probability with all classes but one of a step left out. No oracle code."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...gauntlet import Problem
from ..answers import given_of, near

__all__ = ["CHECKS", "likelihood"]

Array = np.ndarray[Any, Any]


def likelihood(chances: Array, labels: list[int], blank: int) -> Array:
    """That of the labels, by probabilities [..., T, C] of classes: A. Hannun, Sequence Modeling with CTC, Distill 2017."""
    size = len(labels)
    blanked, labelled = (np.zeros((*chances.shape[:-2], size + 1)) for _ in range(2))
    blanked[..., 0] = 1
    fresh = np.array([j == 0 or labels[j] != labels[j - 1] for j in range(size)], bool)
    for t in range(chances.shape[-2]):
        now = chances[..., t, :]
        grown = labelled[..., 1:] + blanked[..., :-1] + np.where(fresh, labelled[..., :-1], 0)
        blanked = (blanked + labelled) * now[..., blank, None]
        labelled = np.concatenate([np.zeros_like(labelled[..., :1]), grown * now[..., labels]], axis=-1)
    return np.asarray(blanked[..., -1] + labelled[..., -1])


def _sequences(problem: Problem) -> list[Any]:
    """Of each sequence its probabilities and labels; None where it is out of range."""
    given, desc = given_of(problem), problem.desc
    steps, count, classes = desc.shape
    found: list[Any] = []
    for n in range(count):
        length, size = int(given["input_lengths"][n]), int(given["target_lengths"][n])
        fits = 0 <= length <= steps and 0 <= size <= desc.targets_shape[1]
        labels = given["targets"][n, :size].tolist() if fits else [-1]
        found.append(
            (np.exp(given["log_probs"][:length, n]), labels) if all(0 <= y < classes for y in labels) else None
        )
    if desc.has("status"):
        near(problem, "status", int(None in found))
    return found


def _shares(desc: Any, sequences: list[Any]) -> Array:
    return np.array([max(1, len(one[1])) if one and desc.reduction == "mean" else 1 for one in sequences], np.float64)


def _loss(problem: Problem) -> None:
    desc, sequences = problem.desc, _sequences(problem)
    with np.errstate(all="ignore"):
        each = [-np.log(likelihood(*one, desc.blank)) if one else np.nan for one in sequences]
        losses = np.array([0 if desc.zero_infinity and x == np.inf else x for x in each], np.float64)
        losses /= _shares(desc, sequences)
        found = (
            losses
            if desc.reduction == "none"
            else losses.sum() / np.float64(len(losses) if desc.reduction == "mean" else 1)
        )
    near(problem, "out", found, size=1)


def _gradient(problem: Problem) -> None:
    desc, sequences = problem.desc, _sequences(problem)
    over = max(1, len(sequences)) if desc.reduction == "mean" else 1
    grads = np.broadcast_to(given_of(problem)["grad"], desc.row_shape) / over / _shares(desc, sequences)
    found, classes = np.zeros(desc.shape), np.arange(desc.shape[-1])
    for n, one in enumerate(sequences):
        if one is None:
            found[:, n] = np.nan
            continue
        chances, labels = one
        whole = likelihood(chances, labels, desc.blank)
        if whole == 0:
            found[: len(chances), n] = 0 if desc.zero_infinity else np.nan
            continue
        for t in range(len(chances)):
            alone = np.repeat(chances[None], len(classes), 0)
            alone[:, t] = np.diag(chances[t])
            found[t, n] = -grads[n] * likelihood(alone, labels, desc.blank) / whole
    near(problem, "grad_log_probs", found, size=1)


CHECKS = {"ctc_loss": _loss, "ctc_loss_backward": _gradient}

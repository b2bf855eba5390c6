"""The losses of elements: a row is a loss and its derivatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["TABLE", "Row"]

D, M = "(x - target)", "(margin - target * (x - other))"
V = "where(var < 0, log(var), maximum(var, eps))"  # NaN for less than 0


@dataclass(frozen=True)
class Row:
    """A loss and its derivatives, in the notation of `numerics.expression`."""

    name: str
    torch: str
    loss: str
    slope: str
    param: str = ""  # the number that both may name
    takes: str = "any target"
    target_slope: str = ""  # the derivative by target, of a loss that has one
    switches: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)  # all three, where that option is on
    full: str = ""  # is added to the loss with full=True
    full_slope: str = ""  # and to its derivative by target
    third: str = ""  # the operand besides x and target
    third_slope: str = ""  # the derivative by it
    reductions: tuple[str, ...] = ("mean", "sum", "none")


TABLE = {row.name: row for row in (
    Row("mse_loss", "mse_loss", f"{D} * {D}", f"2 * {D}", target_slope=f"-2 * {D}"),
    Row("l1_loss", "l1_loss", f"abs{D}", f"sign{D}", target_slope=f"-sign{D}"),
    Row("smooth_l1_loss", "smooth_l1_loss", f"where(abs{D} < beta, 0.5 * {D} * {D} / beta, abs{D} - 0.5 * beta)",
        f"where(abs{D} < beta, {D} / beta, sign{D})", "beta",
        target_slope=f"-where(abs{D} < beta, {D} / beta, sign{D})"),
    Row("huber_loss", "huber_loss", f"where(abs{D} <= delta, 0.5 * {D} * {D}, delta * (abs{D} - 0.5 * delta))",
        f"where(abs{D} <= delta, {D}, delta * sign{D})", "delta",
        target_slope=f"-where(abs{D} <= delta, {D}, delta * sign{D})"),
    Row("bce", "binary_cross_entropy", "-(target * maximum(log(x), -100) + (1 - target) * maximum(log1p(-x), -100))",
        "(x - target) / maximum(x * (1 - x), 1e-12)", takes="x and target from 0 to 1; NaN where x is beyond",
        target_slope="maximum(log1p(-x), -100) - maximum(log(x), -100)"),
    Row("bce_with_logits", "binary_cross_entropy_with_logits", "(maximum(x, 0) - x * target) + log1p(exp(-abs(x)))",
        "sigmoid(x) - target", takes="target from 0 to 1", target_slope="-x"),
    Row("kl_div", "kl_div", "where(target == 0, 0, target * log(target)) - target * x", "-target",
        takes="x of log-probabilities, target of probabilities, or of their logarithms with log_target=True",
        target_slope="log(target) + 1 - x",
        switches={"log_target": ("exp(target) * (target - x)", "-exp(target)", "exp(target) * (target - x + 1)")},
        reductions=("mean", "sum", "none", "batchmean")),
    Row("soft_margin_loss", "soft_margin_loss", "maximum(-(x * target), 0) + log1p(exp(-abs(x * target)))",
        "-(target * sigmoid(-(x * target)))", takes="target -1 or 1"),
    Row("poisson_nll_loss", "poisson_nll_loss", "x - target * log(x + eps)", "1 - target / (x + eps)", "eps",
        "target of counts; x is the mean, or its logarithm with log_input=True", "-log(x + eps)",
        {"log_input": ("exp(x) - target * x", "exp(x) - target", "-x")},
        "where(target > 1, target * log(target) - target + 0.5 * log(6.283185307179586 * target), 0)",
        "where(target > 1, log(target) + 0.5 / target, 0)"),
    Row("hinge_embedding_loss", "hinge_embedding_loss",
        "where(target == -1, 0, x) + where(target == 1, 0, maximum(margin - x, 0))",
        "where(target == -1, 0, 1) - where((target == 1) | (margin - x < 0), 0, 1)", "margin", "target -1 or 1"),
    Row("gaussian_nll_loss", "gaussian_nll_loss", f"0.5 * (log({V}) + {D} * {D} / {V})", f"{D} / {V}", "eps",
        "var of variances: those below eps count as eps, and have the gradient of eps; NaN for negative ones",
        f"-({D} / {V})", full="0.9189385332046727", third="var", third_slope=f"0.5 * (1 - {D} * {D} / {V}) / {V}"),
    Row("margin_ranking_loss", "margin_ranking_loss", f"maximum({M}, 0)", f"where({M} < 0, 0, -target)", "margin",
        "x and other of two scores, target 1 where x should be the larger and -1 where other should",
        f"where({M} < 0, 0, other - x)", third="other", third_slope=f"where({M} < 0, 0, target)"),
)}  # fmt: skip

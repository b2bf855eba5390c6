"""The losses of rows: an entry says what is added up along a row, what becomes of the sums, and the derivatives.

Texts are in the notation of `numerics.expression`. They name the operands of columns (of `inputs`), the sums, and of the row:
`target`, a number, or of a label the value `own` of the first input there, `weight` and whether a column is `here`, 1 or 0;
`width`, the number of columns, and the numbers of the call. `grad` is the gradient of the row's loss, and `scale` one by what the
reduction divides by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["TABLE", "Formulas", "Row"]


class Formulas(NamedTuple):
    """Sums along a row, the loss in these; the sums that gradients need, and the derivative by each operand in those."""

    sums: Mapping[str, str]
    loss: str
    pulled: Mapping[str, str]
    slopes: Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """A loss; `formulas` are those of its options: p, swap, and whether there is a weight."""

    name: str
    inputs: tuple[str, ...]
    formulas: Callable[[Any], Formulas]
    fields: tuple[str, ...] = ()
    values: tuple[str, ...] = ()  # of the fields, numbers of the launch
    margin: float = 1.0
    target: str = ""  # of a row: "number" or "label"
    weighted: bool = False


def _cosine(_: Any) -> Formulas:
    sums = {"dot": "x1 * x2", "square1": "x1 * x1", "square2": "x2 * x2"}
    one, other = "(square1 + 1e-12)", "(square2 + 1e-12)"
    cosine = f"(dot / sqrt({one} * {other}))"
    loss = f"where(target == 1, 1 - {cosine}, where(target == -1, maximum({cosine} - margin, 0), 0))"
    slope = f"where(target == 1, -1, where((target == -1) & ({cosine} - margin >= 0), 1, 0))"
    pull = f"(grad * scale * {slope})"
    across = f"({pull} / sqrt({one} * {other}))"
    slopes = {
        "x1": f"x2 * {across} - x1 * ({pull} * {cosine} / {one})",
        "x2": f"x1 * {across} - x2 * ({pull} * {cosine} / {other})",
    }
    return Formulas(sums, loss, sums, slopes)


def _triplet(desc: Any) -> Formulas:
    p = desc.p
    pairs = {"near": "(anchor - positive + eps)", "far": "(anchor - negative + eps)"}
    pairs |= {"across": "(positive - negative + eps)"} if desc.swap else {}
    power = {1.0: "abs{0}", 2.0: "{0} * {0}"}.get(p, f"abs{{0}} ** {p!r}")
    root = {1.0: "{}", 2.0: "sqrt({})"}.get(p, f"{{}} ** {1 / p!r}")
    sums = {name: power.format(difference) for name, difference in pairs.items()}
    size = {name: root.format(name) for name in pairs}
    least = f"minimum({size['far']}, {size['across']})" if desc.swap else size["far"]
    excess = f"(margin + {size['near']} - {least})"
    pull = f"where({excess} < 0, 0, grad * scale)"
    shares = {}
    if desc.swap:  # the smaller distance to the negative has the gradient, and each a half of it where they are equal
        one, other = size["far"], size["across"]
        share = f"where({one} < {other}, 1, where({one} == {other}, 0.5, 0))"
        shares = {"far": f" * {share}", "across": f" * (1 - {share})"}

    def moved(pair: str) -> str:
        """The derivative of a distance by the first of its pair, times the pull; 0 where the distance is 0."""
        difference, factor = pairs[pair], f"{pull}{shares.get(pair, '')}"
        if p == 1:
            return f"sign{difference} * ({factor})"
        along = difference if p == 2 else f"sign{difference} * abs{difference} ** {p - 1!r}"
        over = size[pair] if p == 2 else f"({size[pair]}) ** {p - 1!r}"
        return f"{along} * where({pair} == 0, 0, {factor} / {over})"

    near, far = moved("near"), moved("far")
    slopes = {"anchor": f"{near} - {far}", "positive": f"-({near})", "negative": far}
    if desc.swap:
        across = moved("across")
        slopes |= {"positive": f"-({near}) - {across}", "negative": f"{far} + {across}"}
    return Formulas(sums, f"maximum({excess}, 0)", sums, slopes)


def _multi_margin(desc: Any) -> Formulas:
    excess = "(margin - own + x)"
    most = f"maximum({excess}, 0)"
    lost = {1.0: most, 2.0: f"{most} * {most}"}[desc.p]
    slope = {1.0: f"where({excess} > 0, 1, 0)", 2.0: f"2 * {most}"}[desc.p]
    slopes = {"x": f"where(here == 1, -slope, {slope}) * (grad * scale * weight / width)"}
    sums = {"lost": f"where(here == 1, 0, {lost})"}
    return Formulas(sums, "lost * weight / width", {"slope": f"where(here == 1, 0, {slope})"}, slopes)


def _multilabel_soft_margin(desc: Any) -> Formulas:
    weighted = "weight * " if desc.has("weight") else ""
    lost = f"{weighted}((maximum(x, 0) - x * target) + log1p(exp(-abs(x))))"
    slopes = {"x": f"{weighted}(sigmoid(x) - target) * (grad * scale / width)"}
    slopes["target"] = f"-{weighted}x * (grad * scale / width)"
    return Formulas({"lost": lost}, "lost / width", {}, slopes)


TABLE = {row.name: row for row in (
    Row("cosine_embedding_loss", ("x1", "x2"), _cosine, ("margin",), ("margin",), 0.0, "number"),
    Row("triplet_margin_loss", ("anchor", "positive", "negative"), _triplet, ("p", "swap", "margin", "eps"),
        ("margin", "eps")),
    Row("multi_margin_loss", ("x",), _multi_margin, ("p", "margin"), ("margin",), 1.0, "label", weighted=True),
    Row("multilabel_soft_margin_loss", ("x", "target"), _multilabel_soft_margin, weighted=True),
)}  # fmt: skip

"""The multi-label margin loss and its gradient in float64 (long double for f64), and the measures that their bounds name.

A term z = (1 - x[t]) + x[i] errs by u |1 - x[t]| + u |z|, and so does max(0, z), which is 0 where z is far below 0. A sum of
n terms errs by its depth times the sum of the terms (Higham, section 4.2). A gradient counts the terms above 0: the addition of
x[i] keeps the sign of what it is given, so that a term may be taken for one that it is not only where 1 - x[t] is rounded and
|z| <= u |1 - x[t]|.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ....numerics.rounding import wide

__all__ = ["MEASURES", "ended", "evaluate"]

Array: TypeAlias = np.ndarray[Any, Any]


def ended(target: Array) -> Array:
    """Whether a target is -1 or follows the first -1 of its row."""
    return np.maximum.accumulate(np.asarray(target) == -1, axis=-1)


class _Pairs(NamedTuple):
    """The targets of a row and its other classes; of each pair, 1 - x[t] and the term before its maximum with 0."""

    wrong: bool
    targets: Array
    others: Array
    margin: Array  # [targets, 1]
    term: Array  # [targets, others]


def _rows(desc: Any, x: Array, target: Array) -> Iterator[_Pairs]:
    classes = desc.shape[-1]
    values, labels = wide(x, desc.element).reshape(-1, classes), np.asarray(target, np.int64).reshape(-1, classes)
    for row, own, over in zip(values, labels, ended(labels)):
        targets = own[~over]
        wrong = bool(((targets < 0) | (targets >= classes)).any())
        targets = targets[:0] if wrong else targets
        others = np.setdiff1d(np.arange(classes), targets)
        margin = (1 - row[targets])[:, None]
        yield _Pairs(wrong, targets, others, margin, margin + row[others])


def _loss(pairs: _Pairs) -> Any:
    return np.nan if pairs.wrong else np.maximum(pairs.term, 0).sum()


def _spread(desc: Any, pairs: _Pairs, terms: Array, sign: int) -> Array:
    """The sums of a matrix of terms in the places of other classes, and `sign` times those of each target in its place."""
    found = np.zeros(desc.shape[-1], np.longdouble)
    if pairs.wrong:
        return found + np.nan
    found[pairs.others] = terms.sum(0)
    np.add.at(found, pairs.targets, sign * terms.sum(1))
    return found


def _each(desc: Any, values: list[Any], dtype: Any) -> Array:
    """Values of rows: as the result has them, divided by what it is divided by."""
    shape = desc.shape if desc.gradient else desc.row_shape
    found = np.asarray(values, dtype).reshape(shape)
    if desc.gradient or desc.reduction == "none":
        return found
    with np.errstate(all="ignore"):
        return np.asarray(found.sum() / np.asarray(desc.divisor, dtype))


def _pulls(desc: Any, grad: Array) -> Array:
    """What each positive term adds to a gradient, of each row [N, 1]."""
    with np.errstate(all="ignore"):
        pull = wide(grad, desc.element) / np.asarray(desc.divisor, wide(grad, desc.element).dtype) / desc.shape[-1]
    return np.broadcast_to(pull, desc.row_shape).reshape(-1, 1)


def _pulled(desc: Any, grad: Array, counts: Array) -> Array:
    """Counts of positive terms times what each adds, which is nothing where there are none."""
    pull = _pulls(desc, grad)
    rows = counts.reshape(-1, desc.shape[-1])
    return np.where(rows == 0, 0, rows.astype(pull.dtype) * pull).reshape(desc.shape)


def evaluate(desc: Any, x: Array, target: Array, grad: Array | None = None) -> Any:
    """The losses, their sum, or the gradient; and the status: in the order of outputs."""
    dtype = wide(x, desc.element).dtype
    with np.errstate(all="ignore"):
        rows = list(_rows(desc, x, target))
        if grad is None:
            found = {"out": _each(desc, [_loss(row) / np.asarray(desc.shape[-1], dtype) for row in rows], dtype)}
        else:
            counts = _each(
                desc, [_spread(desc, row, (row.term > 0).astype(np.int64), -1) for row in rows], np.longdouble
            )
            found = {"grad_x": _pulled(desc, grad, counts)}
    found["status"] = np.asarray(any(row.wrong for row in rows), np.int32)
    written = tuple(found[operand.name] for operand in desc.operands if operand.written)
    return written if len(written) > 1 else written[0]


# ---- measures ------------------------------------------------------------------------------------------------------


def _tiny(desc: Any) -> Any:
    """What a few roundings of results that are not normal err by, in units of the unit roundoff."""
    return 4 * np.longdouble(desc.computed.smallest_normal)


def _erring(desc: Any, row: _Pairs) -> Any:
    """The error of a row's loss, in units of the unit roundoff."""
    steps = np.abs(row.margin) + np.abs(row.term)
    reached = row.term + 2 * float(desc.computed.unit_roundoff) * steps > 0
    sums = 1.01 * np.where(reached, steps, 0).sum() + (desc.row_depth + 2) * np.maximum(row.term, 0).sum()
    return sums / desc.shape[-1] + _tiny(desc)


def _doubtful(desc: Any, row: _Pairs) -> Array:
    """The terms that may be taken for positive ones and are not, or the other way."""
    rounded = row.margin.astype(desc.computed.dtype).astype(row.margin.dtype) != row.margin
    return np.asarray(rounded & ~(np.abs(row.term) > 1.01 * float(desc.computed.unit_roundoff) * np.abs(row.margin)))


def _propagated(desc: Any, x: Array, target: Array, grad: Array | None = None) -> Array:
    rows = list(_rows(desc, x, target))
    if grad is None:
        return _each(desc, [_erring(desc, row) for row in rows], np.longdouble)
    crossed = _each(desc, [_spread(desc, row, _doubtful(desc, row), 1) for row in rows], np.longdouble)
    counts = _each(desc, [_spread(desc, row, row.term > 0, 1) for row in rows], np.longdouble)
    sums = 8 * np.abs(_pulled(desc, grad, counts)) + np.abs(_pulled(desc, grad, crossed)) / float(
        desc.computed.unit_roundoff
    )
    # the pull itself may be no normal number, and is multiplied by counts
    return np.asarray(sums + _tiny(desc) * (1 + np.abs(counts) + np.abs(crossed)))


def _losses(desc: Any, x: Array, target: Array, grad: Array | None = None) -> Array:  # noqa: ARG001
    return _each(desc, [_loss(row) / desc.shape[-1] for row in _rows(desc, x, target)], np.longdouble)


def _overflowing(desc: Any, x: Array, target: Array, grad: Array | None = None) -> Array:
    """Whether sums leave the range of what is computed in, and are finite."""
    most = desc.computed.largest / 8
    if grad is None:
        sizes = [np.where(row.term > 0, np.abs(row.margin) + row.term, 0).sum() for row in _rows(desc, x, target)]
        found = _each(desc, sizes, np.longdouble) * (1 if desc.reduction == "none" else desc.divisor)
        return np.asarray(np.isfinite(found) & (found > most))
    counts = _each(desc, [_spread(desc, row, row.term > 0, 1) for row in _rows(desc, x, target)], np.longdouble)
    found = np.abs(_pulled(desc, grad, counts))
    return np.asarray(np.isfinite(found) & (found > most))


def _quiet(measure: Callable[..., Array]) -> Callable[..., Array]:
    def measured(desc: Any, **arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            return measure(desc, **arrays)

    return measured


MEASURES: dict[str, Callable[..., Array]] = {
    "propagated": _quiet(_propagated), "losses": _quiet(_losses), "overflowing": _quiet(_overflowing)
}  # fmt: skip

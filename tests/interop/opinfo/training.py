"""Losses and ops of indexing, segments and order among PyTorch's OpInfos."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import baracuda_py as bp

from .row import NotOurs, Row, taking

__all__ = ["ROWS", "WITHOUT"]


def _of_classes(ours: Callable[..., Any]) -> Callable[..., Any]:
    """A loss of rows of classes, which are torch's axis 1 and our last one of two."""

    def call(x: Any, target: Any, weight: Any = None, **kwargs: Any) -> Any:
        if target.is_floating_point():
            raise NotOurs("probabilities in place of labels are not what the op computes")
        rows = x.movedim(1, -1).reshape(-1, x.shape[1]) if x.dim() > 2 else x
        made = ours(rows, target.reshape(-1) if x.dim() > 2 else target, weight, **kwargs)
        return (made.reshape(target.shape) if kwargs.get("reduction") == "none" else made).to(x.dtype)

    return call


def _ctc_loss(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, **kwargs: Any) -> Any:
    given = [torch.as_tensor(x, device=log_probs.device) for x in (input_lengths, target_lengths)]
    # torch's gradient is that of the logarithms' own log_softmax, which changes no value.
    return bp.ctc_loss(log_probs.log_softmax(-1), targets, *given, **kwargs)


def _linear_cross_entropy(hidden: Any, weight: Any, target: Any, bias: Any = None, **kwargs: Any) -> Any:
    if bias is not None or target.is_floating_point() or hidden.dim() != 2 or target.dim() != 1:
        raise NotOurs("the op has no bias, and labels of rows only")
    return taking(bp.linear_cross_entropy, CHUNKS)(hidden, weight, target, **kwargs).to(hidden.dtype)


def _embedding(weight: Any, ids: Any, **kwargs: Any) -> Any:
    if kwargs.get("max_norm") is not None or kwargs.get("scale_grad_by_freq") or kwargs.get("sparse"):
        raise NotOurs("rows are not rescaled, and gradients are dense")
    return bp.embedding(weight, ids, padding_idx=kwargs.get("padding_idx"))


def _indexed(ours: Callable[..., Any]) -> Callable[..., Any]:
    """torch's dim is before the index, and ours at the end; what torch multiplies by `alpha` is multiplied before."""

    def call(x: Any, dim: int, index: Any, *given: Any, alpha: float = 1) -> Any:
        return ours(x, index, *(y if alpha == 1 else y * alpha for y in given), dim)

    return call


def _summed(ours: Callable[..., Any]) -> Callable[..., Any]:
    """A loss, which is f32 here, in torch's dtype: that of the elements."""
    call = taking(ours, drop=("weight", "pos_weight", "size_average", "reduce"))
    return lambda x, *args, **kwargs: call(x, *args, **kwargs).to(x.dtype)


def _gather(x: Any, dim: int, index: Any) -> Any:
    return bp.take_along_axis(x, index, dim, mode="raise" if x.device.type == "cpu" else "drop")


def _take_along_dim(x: Any, index: Any, dim: int | None = None) -> Any:
    if dim is None:
        return _gather(x.reshape(-1), 0, index.reshape(-1))
    return _gather(x, dim, index)


def _scatter(reduce: str) -> Callable[..., Any]:
    def call(x: Any, dim: int, index: Any, src: Any, **kwargs: Any) -> Any:
        if not isinstance(src, torch.Tensor):
            raise NotOurs("a number for every place is none of the op's operands")
        if reduce not in ("set", "add") or kwargs:
            raise NotOurs("the op multiplies nothing, and torch has no gradient of what it reduces here")
        return bp.scatter(x, index, src, dim, reduce=reduce)

    return call


def _scatter_reduce(reduce: str) -> Callable[..., Any]:
    def call(x: Any, dim: int, index: Any, src: Any, _: str, include_self: bool = True) -> Any:
        if not include_self:
            raise NotOurs("the op reduces what stands there too")
        return bp.scatter(x, index, src, dim, reduce=reduce)

    return call


def _ordered(ours: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, dim: Any = -1, descending: bool = False, stable: bool = False) -> Any:
        if not stable:
            raise NotOurs("equal elements are in any order to torch, and in their own to the op")
        return ours(x, dim, descending=descending)

    return call


def _unique(ours: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, dim: int | None = None, **kwargs: Any) -> Any:
        if dim is not None or not kwargs.pop("sorted", True):
            raise NotOurs("slices are not compared, but elements, which are sorted")
        return ours(x, **kwargs)

    return call


def _topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not sorted:
        raise NotOurs("another order")
    return bp.topk(x, k, dim, largest=largest)[0]  # of equal elements torch takes any


def _kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    return bp.kthvalue(x, k, dim, keepdims=keepdim)[0]  # of equal elements torch takes any


def _nonzero(x: Any, as_tuple: bool = False) -> Any:
    if as_tuple:
        raise NotOurs("the op gives an array, a row for each element")
    return bp.nonzero(x)


def _isin(x: Any, tested: Any, assume_unique: bool = False, invert: bool = False) -> Any:  # noqa: ARG001
    return bp.isin(x, tested, invert=invert)


def _median(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    if dim is None:
        return bp.median(x.reshape(-1))[0]
    return bp.median(x, dim, keepdims=keepdim)[0]  # of equal elements torch takes any


def _searchsorted(sequence: Any, values: Any, out_int32: bool = False, right: bool = False, **kwargs: Any) -> Any:
    if kwargs.get("sorter") is not None or out_int32:
        raise NotOurs("the op searches what is sorted, and gives int64")
    return bp.searchsorted(sequence, values, right=right or kwargs.get("side") == "right")


def _bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    if weights is not None:
        raise NotOurs("a sum of weights is `index_add`")
    return bp.bincount(x, max(minlength, int(x.max()) + 1 if x.numel() else 0))


def _histogram(x: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    if min == max:
        min, max = (float(x.min()), float(x.max())) if x.numel() else (0, 1)
    if min == max:
        min, max = min - 1, max + 1
    return bp.histogram(x, bins, min, max).to(x.dtype)  # torch's counts have the elements' dtype


_NN = "nn.functional."
CHUNKS = ("weight", "chunking_strategy", "chunking_method", "options")  # how torch computes it
_KEYS = {"x must hold f16, bf16, f32, f64": "the op has no order of bools"}
_FLOATS = {"must hold f16, bf16, f32 or f64": "the op is of floats, or of numbers"}
_SHAPES = _FLOATS | {
    "must have shape [N, C] or [C]": "torch takes a number for a row of one class",
    "target must have shape (": "torch broadcasts a target, and takes one label of a row as an array",
    "var must have shape": "variances of several elements are one each",
}
_BYTES = {"indices must hold i32 or i64": "torch takes indices of bytes"}
_AXIS = {"has no axis": "torch takes a number for a line", "has 0 axes": "torch takes a number for a line"}
# Losses, and how many of their leading operands have a gradient.
_LOSSES = {
    **dict.fromkeys(("soft_margin_loss", "hinge_embedding_loss", "multi_margin_loss", "multilabel_margin_loss"), 1),
    **dict.fromkeys((
        "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "poisson_nll_loss", "cosine_embedding_loss",
        "multilabel_soft_margin_loss"), 2),
    "gaussian_nll_loss": 3, "margin_ranking_loss": 3, "triplet_margin_loss": 3,
}  # fmt: skip

ROWS: dict[str, Row] = {
    **{name: Row(_NN + name, _summed(getattr(bp, name)), _SHAPES, leading=count) for name, count in _LOSSES.items()},
    "bce": Row(_NN + "binary_cross_entropy", _summed(bp.bce), leading=2),
    "bce_with_logits": Row(_NN + "binary_cross_entropy_with_logits", _summed(bp.bce_with_logits), leading=2),
    "cross_entropy": Row(_NN + "cross_entropy", _of_classes(bp.cross_entropy), leading=1),
    "nll_loss": Row(_NN + "nll_loss", _of_classes(bp.nll_loss), leading=1),
    "ctc_loss": Row(_NN + "ctc_loss", _ctc_loss),
    "linear_cross_entropy": Row(_NN + "linear_cross_entropy", _linear_cross_entropy, leading=2),
    "embedding": Row(_NN + "embedding", _embedding),
    **{
        name: Row(name, _indexed(getattr(bp, name)), _AXIS | _FLOATS)
        for name in ("index_select", "index_add", "index_copy")
    },
    "take_along_axis": Row("gather", _gather, _AXIS | _BYTES),
    "take_along_axis dim": Row("take_along_dim", _take_along_dim, _BYTES),
    "scatter": Row("scatter", _scatter("set"), _AXIS),
    "scatter add": Row("scatter_add", _scatter("add"), _AXIS | _FLOATS),
    "scatter max": Row("scatter_reduce:amax", _scatter_reduce("max"), _AXIS | _FLOATS),
    "scatter min": Row("scatter_reduce:amin", _scatter_reduce("min"), _AXIS | _FLOATS),
    "scatter prod": Row("scatter_reduce:prod", _scatter_reduce("prod"), _AXIS | _FLOATS),
    "scatter mean": Row("scatter_reduce:mean", _scatter_reduce("mean"), _AXIS | _FLOATS),
    "nonzero": Row("nonzero", _nonzero, {"x has no axis": "torch gives an element without indices no columns"}),
    "masked_select": Row("masked_select", bp.masked_select),
    "masked_scatter": Row("masked_scatter", bp.masked_scatter, leading=2),
    "isin": Row("isin", _isin, _KEYS),
    "sort": Row("sort", _ordered(bp.sort)),
    "argsort": Row("argsort", _ordered(bp.argsort)),
    "topk": Row("topk", _topk, _AXIS),
    "kthvalue": Row("kthvalue", _kthvalue, _AXIS),
    "median": Row("median", _median, _AXIS),
    "unique": Row("unique", _unique(bp.unique), _KEYS),
    "unique_consecutive": Row("unique_consecutive", _unique(bp.unique_consecutive), _KEYS),
    "searchsorted": Row("searchsorted", _searchsorted),
    "bincount": Row("bincount", _bincount),
    "histogram": Row("histc", _histogram),
}
WITHOUT: dict[str, str] = {}

"""ONNX's op types of rows: reductions, scans, norms, products, attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import baracuda_py as bp

from .cases import Node
from .table import MAPPED, Array, Mapped, ints, maps

REDUCED: dict[str, Callable[..., Any]] = {
    "ReduceSum": bp.sum, "ReduceMean": bp.mean, "ReduceMax": bp.max, "ReduceMin": bp.min, "ReduceProd": bp.prod,
    "ReduceLogSumExp": bp.logsumexp,
    "ReduceL1": lambda x, axis, **how: bp.norm(x, 1, axis, **how),
    "ReduceL2": lambda x, axis, **how: bp.norm(x, 2, axis, **how),
    "ReduceLogSum": lambda x, axis, **how: bp.log(bp.sum(x, axis, **how)),
    "ReduceSumSquare": lambda x, axis, **how: bp.sum(bp.square(x), axis, **how),
}  # fmt: skip
LOGICAL: dict[Any, Callable[..., Any]] = {bp.max: bp.any, bp.min: bp.all}


def reduced(function: Callable[..., Any]) -> Mapped:
    def made(node: Node, x: Array, axes: Any = None) -> Any:
        find = LOGICAL.get(function, function) if x.dtype == bool else function
        axis = node.get("axes") if axes is None else ints(axes)
        if not axis:
            axis = () if node.get("noop_with_empty_axes", 0) else None
        out = find(x, axis, keepdims=bool(node.get("keepdims", 1)))
        return bp.cast(out, x.dtype) if out.dtype != x.dtype else out

    return made


MAPPED.update({name: reduced(function) for name, function in REDUCED.items()})


@maps("ArgMax", "ArgMin")
def place(node: Node, x: Array) -> Any:
    find, axis = (bp.argmax if "argmax" in node.name else bp.argmin), node.get("axis", 0)
    keep = bool(node.get("keepdims", 1))
    if not node.get("select_last_index", 0):
        return find(x, axis, keepdims=keep)
    return bp.affine(bp.cast(find(bp.flip(x, axis), axis, keepdims=keep), "f64"), -1.0, x.shape[axis] - 1.0).astype(
        "i8"
    )


@maps("GlobalAveragePool", "GlobalMaxPool")
def pooled(node: Node, x: Array) -> Any:
    return (bp.mean if "average" in node.name else bp.max)(x, tuple(range(2, x.ndim)), keepdims=True)


@maps("CumSum", "CumProd")
def cumulative(node: Node, x: Array, axis: Any) -> Any:
    scan, at, start = (bp.cumsum, int(axis), 0) if "cumsum" in node.name else (bp.cumprod, int(axis), 1)
    reverse = node.get("reverse", 0)
    made = scan(bp.flip(x, at) if reverse else x, at)
    made = bp.cast(made, x.dtype) if made.dtype != x.dtype else made
    if node.get("exclusive", 0):
        made = bp.pad(made, [(1, -1) if i == at % x.ndim else (0, 0) for i in range(x.ndim)], constant_values=start)
    return bp.flip(made, at) if reverse else made


@maps("TopK")
def top(node: Node, x: Array, k: Any) -> Any:
    made = bp.topk(x, int(k.item()), node.get("axis", -1), largest=bool(node.get("largest", 1)))
    return made.values, made.indices.astype(np.int64)


@maps("Softmax", "LogSoftmax")
def softmax(node: Node, x: Array) -> Any:
    return (bp.log_softmax if "logsoftmax" in node.name else bp.softmax)(x, node.get("axis", -1))


@maps("Hardmax")
def hardmax(node: Node, x: Array) -> Any:
    axis = node.get("axis", -1)
    made = bp.one_hot(bp.argmax(x, axis), x.shape[axis], x.dtype)
    return bp.contiguize(np.moveaxis(made, -1, axis))


@maps("LpNormalization")
def lp_normalization(node: Node, x: Array) -> Any:
    size = bp.norm(x, node.get("p", 2), node.get("axis", -1), keepdims=True)
    return bp.where(bp.equal(size, np.zeros_like(size)), np.zeros_like(x), bp.divide(x, size))


@maps("MeanVarianceNormalization")
def mean_variance(node: Node, x: Array) -> Any:
    axes = tuple(node.get("axes", (0, 2, 3)))
    centred = bp.subtract(x, bp.mean(x, axes, keepdims=True))
    return bp.divide(centred, bp.affine(bp.std(x, axes, keepdims=True), 1.0, 1e-9))


@maps("LayerNormalization", "RMSNormalization")
def row_norm(node: Node, x: Array, weight: Array, bias: Any = None) -> Any:
    shape, eps = x.shape[node.get("axis", -1) % x.ndim :], node.get("epsilon", 1e-5)
    if "rms" in node.name:
        return bp.rms_norm(x, weight, eps=eps, normalized_shape=shape)
    made = bp.layer_norm(x, weight, bias, eps, normalized_shape=shape, stats=True)
    kept = (*x.shape[: x.ndim - len(shape)], *(1 for _ in shape))
    return (made.out, made.mean.reshape(kept), made.rstd.reshape(kept))[: node.wanted]


@maps("GroupNormalization")
def group_norm(node: Node, x: Array, weight: Array, bias: Array) -> Any:
    return bp.group_norm(x, node.get("num_groups"), weight, bias, node.get("epsilon", 1e-5))


@maps("InstanceNormalization")
def instance_norm(node: Node, x: Array, weight: Array, bias: Array) -> Any:
    return bp.instance_norm(x, weight=weight, bias=bias, eps=node.get("epsilon", 1e-5))


@maps("Gemm")
def gemm(node: Node, a: Array, b: Array, c: Any = None) -> Any:
    a, b = (a.T if node.get("transA", 0) else a), (b.T if node.get("transB", 0) else b)
    return bp.matmul(a, b, alpha=node.get("alpha", 1.0), beta=node.get("beta", 1.0), c=c)


@maps("RotaryEmbedding")
def rotary(node: Node, x: Array, cos: Array, sin: Array, positions: Any = None) -> Any:
    flat, heads = x.ndim == 3, node.get("num_heads", 0)
    q = x.reshape(*x.shape[:2], heads, -1) if flat else x
    batch, length = (q.shape[0], q.shape[1] if flat else q.shape[2])
    if positions is None:  # the caches have the rows of each token
        positions = np.arange(batch * length).reshape(batch, length)
        cos, sin = (table.reshape(-1, table.shape[-1]) for table in (cos, sin))
    style, layout = ("interleaved" if node.get("interleaved", 0) else "half"), ("BSHD" if flat else "BHSD")
    made = bp.rope(q, positions, cos=cos, sin=sin, style=style, layout=layout)
    return (made[0] if isinstance(made, tuple) else made).reshape(x.shape)


@maps("Attention")
def attention(
    node: Node,
    q: Array,
    k: Array,
    v: Array,
    mask: Any = None,
    past_k: Any = None,
    past_v: Any = None,
    lengths: Any = None,
) -> Any:
    flat, past = q.ndim == 3, 0 if past_k is None else past_k.shape[2]
    if node.wanted > 3 or lengths is not None:
        raise bp.UnsupportedError("attention: scores as a result, and lengths of padded keys", "leave them out")
    if flat:
        heads = node.get("q_num_heads"), node.get("kv_num_heads"), node.get("kv_num_heads")
        q, k, v = (bp.contiguize(x.reshape(*x.shape[:2], n, -1).swapaxes(1, 2)) for x, n in zip((q, k, v), heads))
    if past:
        k, v = bp.concatenate([past_k, k], 2), bp.concatenate([past_v, v], 2)
    causal, window = (
        bool(node.get("is_causal", 0)),
        tuple(node.get(f"{side}_window_size", -1) for side in ("left", "right")),
    )
    seen = max(window) >= 0
    out = bp.attention(
        q, k, v, mask=mask, causal=causal, scale=node.get("scale"), softcap=node.get("softcap") or None,
        window=window if seen else None, offset=past if causal or seen else None,
    )  # fmt: skip
    if flat:
        out = bp.contiguize(out.swapaxes(1, 2)).reshape(out.shape[0], out.shape[2], -1)
    return (out, k, v)[: node.wanted]

"""ONNX's op types of shapes, places and sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

import baracuda_py as bp

from .cases import Node
from .table import Array, dtype_of, ints, maps


@maps("Concat")
def concat(node: Node, *x: Array) -> Any:
    return bp.concatenate(x, node.get("axis"))


@maps("Split")
def split(node: Node, x: Array, sizes: Any = None) -> Any:
    axis, parts = node.get("axis", 0), node.get("num_outputs", node.wanted)
    if sizes is not None:
        return tuple(map(bp.contiguize, bp.split(x, np.cumsum(sizes)[:-1], axis)))
    return tuple(map(bp.contiguize, bp.chunk(x, parts, axis)))


@maps("Expand")
def expand(_: Node, x: Array, shape: Array) -> Any:
    return bp.contiguize(bp.broadcast_to(x, np.broadcast_shapes(x.shape, ints(shape))))


@maps("Tile")
def tile(_: Node, x: Array, repeats: Array) -> Any:
    return bp.tile(x, repeats)


@maps("Transpose")
def transpose(node: Node, x: Array) -> Any:
    return bp.contiguize(x.transpose(node.get("perm")))


@maps("Trilu")
def triangle(node: Node, x: Array, k: Any = None) -> Any:
    return (bp.triu if node.get("upper", 1) else bp.tril)(x, 0 if k is None else int(k))


@maps("Slice")
def cut(_: Node, x: Array, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    at: list[slice] = [slice(None)] * x.ndim
    each = [ints(v) for v in (starts, ends)]
    along = ints(axes) if axes is not None else range(len(each[0]))
    for axis, start, end, step in zip(along, *each, ints(steps) if steps is not None else [1] * len(each[0])):
        n = x.shape[axis]
        end = None if step < 0 and end < -n else end
        at[axis] = slice(start, end, step)
    return bp.contiguize(x[tuple(at)])


@maps("Pad")
def pad(node: Node, x: Array, pads: Any, value: Any = None, axes: Any = None) -> Any:
    widths, given = [(0, 0)] * x.ndim, ints(pads)
    along = range(x.ndim) if axes is None else ints(axes)
    for i, axis in enumerate(along):
        widths[axis] = given[i], given[i + len(given) // 2]
    mode = node.get("mode", "constant")
    return bp.pad(x, widths, mode, *([] if value is None else [value.item()]))


@maps("CenterCropPad")
def center(node: Node, x: Array, shape: Any) -> Any:
    """Half of what is too much is cut, or of what is missing is added, in front, rounded down."""
    widths = [(0, 0)] * x.ndim
    for axis, extent in zip(node.get("axes", range(x.ndim)), ints(shape)):
        more = extent - x.shape[axis]
        before = more // 2 if more >= 0 else -(-more // 2)
        widths[axis] = before, more - before
    return bp.pad(x, widths)


@maps("DepthToSpace", "SpaceToDepth")
def blocks(node: Node, x: Array) -> Any:
    (n, c, h, w), b = x.shape, node.get("blocksize")
    if "spacetodepth" in node.name:
        tiles = x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
        tiles = tiles if node.get("mode", "DCR") == "DCR" else tiles.transpose(0, 3, 1, 2, 4, 5)
        return bp.contiguize(tiles).reshape(n, c * b * b, h // b, w // b)
    columns = node.get("mode", "DCR") == "DCR"
    split = (n, b, b, c // b**2, h, w) if columns else (n, c // b**2, b, b, h, w)
    order = (0, 3, 4, 1, 5, 2) if columns else (0, 1, 4, 2, 5, 3)
    return bp.contiguize(x.reshape(split).transpose(order)).reshape(n, c // b**2, h * b, w * b)


@maps("ConstantOfShape")
def constant(node: Node, shape: Any) -> Any:
    value = node.get("value", np.zeros(1, np.float32))
    return bp.full(ints(shape), value.item(), value.dtype)


@maps("EyeLike")
def eye(node: Node, x: Array) -> Any:
    dtype = dtype_of(node.get("dtype")) if node.get("dtype") else x.dtype
    return bp.eye(*x.shape, k=node.get("k", 0), dtype=dtype)


@maps("Range")
def numbers(_: Node, start: Any, limit: Any, delta: Any) -> Any:
    return bp.arange(start.item(), limit.item(), delta.item(), start.dtype)


@maps("OneHot")
def one_hot(node: Node, indices: Array, depth: Any, values: Array) -> Any:
    n, axis = int(depth.item()), node.get("axis", -1)
    held = bp.mod(bp.cast(indices, "i64"), np.array(n))
    inside = bp.logical_and(
        bp.greater_equal(indices, np.array(-n, indices.dtype)), bp.less(indices, np.array(n, indices.dtype))
    )
    made = bp.logical_and(bp.one_hot(held, n, "bool"), inside[..., None])
    return bp.contiguize(np.moveaxis(bp.where(made, values[1:], values[:1]), -1, axis))


@maps("NonZero")
def nonzero(_: Node, x: Array) -> Any:
    found = bp.nonzero(x)
    return bp.contiguize((found[0] if isinstance(found, tuple) else found).T)


@maps("GatherElements")
def gather(node: Node, x: Array, indices: Array) -> Any:
    axis = node.get("axis", 0)
    made = bp.take_along_axis(x, bp.mod(indices, np.array(x.shape[axis], indices.dtype)), axis)
    return made[0] if isinstance(made, tuple) else made


@maps("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshaped(node: Node, x: Array, *_: Any) -> Any:
    return bp.contiguize(x).reshape(node.outputs[0].shape)

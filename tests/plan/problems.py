"""Random problems of every family: extents small and odd, strides of every sign, addresses anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import baracuda_py as bp
from baracuda_py.types import ElementKind

__all__ = ["random_problems"]

Rng = np.random.Generator
MOVED = ("u8", "bf16", "f32", "f64", "complex128", "fp8_e4m3", "bool")


def pick(rng: Rng, *choices: Any) -> Any:
    return choices[rng.integers(len(choices))]


def align_of(rng: Rng, element: str, *, unnatural: float) -> int:
    """Bytes: the element's or more, but sometimes less."""
    size = max(1, ElementKind.of(element).bits // 8)
    least = 1 if rng.random() < unnatural else size
    return int(pick(rng, *(a for a in (1, 2, 4, 8, 16, 16) if a >= least)))


def strides_of(rng: Rng, shape: Sequence[int], *, written: bool = False) -> tuple[int, ...]:
    """C order, permuted, padded, stepped, or (of what is read) reversed or broadcast."""
    order = list(rng.permutation(len(shape))) if rng.random() < 0.4 else list(range(len(shape)))
    strides, step = [0] * len(shape), int(pick(rng, 1, 1, 1, 2))
    for axis in reversed(order):
        strides[axis] = step
        step = step * max(1, shape[axis]) + int(pick(rng, 0, 0, 1, 8))
    if written:
        return tuple(strides)
    return tuple(int(s * pick(rng, 1, 1, 1, 1, 1, 0, -1)) for s in strides)


def extent(rng: Rng) -> int:
    return int(pick(rng, 0, 1, 1, 2, 3, 7, 8, 16, 31, 64, 128, 200, 1024))


def elementwise(rng: Rng, unnatural: float) -> tuple[Any, Any]:
    shape = tuple(extent(rng) for _ in range(rng.integers(0, 4)))
    element = str(pick(rng, "f32", "f16", "bf16", "f64", "i8", "i64"))
    fields: dict[str, Any] = {}
    names = ("x1", "x2") if rng.random() < 0.6 else ("x",)
    shapes = dict.fromkeys((*names, "out"), shape)
    if len(names) == 2 and rng.random() < 0.4:
        shapes["x2"] = tuple(1 if rng.random() < 0.4 else n for n in shape[rng.integers(0, len(shape) + 1) :])
    for name, own in shapes.items():
        fields[f"{name}_align"] = align_of(rng, element, unnatural=unnatural)
        if rng.random() < 0.5:
            fields[f"{name}_strides"] = strides_of(rng, own, written=name == "out")
    if len(names) == 1:
        return bp.UnaryPlan, bp.UnaryDescriptor(str(pick(rng, "neg", "relu")), shape, element, **fields)
    kind = str(pick(rng, "add", "maximum"))
    return bp.BinaryPlan, bp.BinaryDescriptor(kind, shape, shapes["x2"], element, element, **fields)


def copied(rng: Rng, unnatural: float) -> tuple[Any, Any]:
    shape = tuple(extent(rng) for _ in range(rng.integers(0, 4)))
    element = str(pick(rng, *MOVED, "s4"))
    fields = {f"{name}_align": align_of(rng, element, unnatural=unnatural) for name in ("x", "out")}
    return bp.ContiguizePlan, bp.ContiguizeDescriptor(shape, element, strides_of(rng, shape), **fields)


def written(rng: Rng, unnatural: float) -> tuple[Any, Any]:
    shape = tuple(extent(rng) for _ in range(rng.integers(1, 4)))
    element = str(pick(rng, *MOVED, "s4"))
    ranges = tuple(tuple(int(x) for x in sorted(rng.integers(0, n + 1, 2))) for n in shape)
    if rng.random() < 0.3:
        ranges = (ranges[0], *((0, n) for n in shape[1:]))
    fields: dict[str, Any] = {
        f"{name}_align": align_of(rng, element, unnatural=unnatural) for name in ("dest", "source")
    }
    if element != "s4":
        fields["dest_strides"] = strides_of(rng, shape, written=True)
        fields["source_strides"] = strides_of(rng, [b - a for a, b in ranges])
        fields["dynamic_axis"] = pick(rng, None, None, None, int(rng.integers(len(shape))))
    return bp.WriteSlicePlan, bp.WriteSliceDescriptor(shape, ranges, element, **fields)


def appended(rng: Rng, unnatural: float) -> tuple[Any, Any]:
    layout = str(pick(rng, "BHSD", "BSHD"))
    cache = tuple(int(pick(rng, 1, 2, 3, 8, 17)) for _ in range(4))
    axis, element = layout.index("S"), str(pick(rng, *MOVED))
    tokens = int(rng.integers(0, cache[axis] + 1))
    new = tuple(tokens if i == axis else n for i, n in enumerate(cache))
    fields: dict[str, Any] = {}
    for name, shape in (("k_cache", cache), ("v_cache", cache), ("k", new), ("v", new)):
        fields[f"{name}_align"] = align_of(rng, element, unnatural=unnatural)
        if rng.random() < 0.4:
            fields[f"{name}_strides"] = strides_of(rng, shape, written="cache" in name)
    positions = str(pick(rng, "i32", "i64"))
    return bp.KvAppendPlan, bp.KvAppendDescriptor(cache, tokens, element, layout, positions, **fields)


def multiplied(rng: Rng, unnatural: float) -> tuple[Any, Any]:
    m, n, k = (extent(rng) for _ in range(3))
    element = str(pick(rng, "bf16", "f16", "f32", "f64", "fp8_e4m3"))
    batch = tuple(int(pick(rng, 1, 2, 3)) for _ in range(pick(rng, 0, 0, 1, 2, 5)))
    lead = [tuple(1 if rng.random() < 0.3 else x for x in batch) for _ in range(2)]
    shapes = {"a": (*lead[0], m, k), "b": (*lead[1], k, n)}
    result = (*np.broadcast_shapes(*lead), m, n)
    fields: dict[str, Any] = {"activation": str(pick(rng, "identity", "identity", "relu"))}
    if element == "f32":
        fields["math"] = pick(rng, None, "tf32")
    if element in ("bf16", "f16") and not batch and rng.random() < 0.15:
        fields["name"] = {"f16": "matmul_tc", "bf16": "matmul_tc_bf16_async"}[element]
    elif rng.random() < 0.3:
        fields["out_element"] = {"f64": "f64"}.get(element, "f32")
    for name, own in (("bias", result[-1:]), ("c", result), ("residual", result)):
        if rng.random() < 0.2:
            fields |= {f"{name}_shape": own, f"{name}_element": {"fp8_e4m3": "f32"}.get(element, element)}
            shapes[name] = own
    for name, own in {**shapes, "out": result}.items():
        fields[f"{name}_align"] = align_of(
            rng, "f64" if name == "out" else fields.get(f"{name}_element", element), unnatural=unnatural
        )
        if rng.random() < 0.5:
            fields[f"{name}_strides"] = strides_of(rng, own, written=name == "out")
    if element == "fp8_e4m3" and rng.random() < 0.4:
        blocks = rng.random() < 0.5
        k_blocks = -(-k // 128)
        fields |= {
            "scale_a_shape": (m, k_blocks) if blocks else (1, 1), "scale_b_shape": (k_blocks, -(-n // 128)) if blocks else (1, n),
            "scale_a_element": "f32", "scale_b_element": "f32",
        }  # fmt: skip
    return bp.MatmulPlan, bp.MatmulDescriptor(shapes["a"], shapes["b"], element, element, **fields)


FAMILIES = (elementwise, copied, written, appended, multiplied, multiplied)


def random_problems(rng: Rng, count: int, *, unnatural: float = 0.1) -> Iterator[tuple[Any, Any]]:
    """Plan classes and valid descriptors; of `unnatural` operands the address may be between two elements."""
    while count:
        plan, desc = FAMILIES[rng.integers(len(FAMILIES))](rng, unnatural)
        try:
            desc.validate()
        except bp.BaracudaError:
            continue  # an odd window of nibbles, say
        count -= 1
        yield plan, desc

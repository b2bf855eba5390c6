"""A user's program, type-checked by ``mypy --strict`` against the installed wheel; it is not run."""

from __future__ import annotations

from typing import Any

import numpy as np

import baracuda_py as bp


def layer(x: Any, weight: Any, bias: Any) -> Any:
    return bp.matmul(x, weight, bias=bias, activation="gelu", math="f32", pref=bp.PlanPreference(backend="bespoke"))


def plans(tokens: list[int]) -> list[bp.MatmulPlan]:
    found = []
    for m in tokens:
        desc = bp.MatmulDescriptor([m, 4096], [4096, 4096], "bf16", np.float32, out_element=bp.F32, activation="silu")
        found.append(bp.MatmulPlan.select(desc, bp.PlanPreference(math="f32", batch_invariant=True), device="h200"))
    return found


def facts(plan: bp.MatmulPlan) -> tuple[bp.ElementKind, tuple[int, ...], bp.Activation, str, float]:
    desc: bp.MatmulDescriptor = plan.desc
    strides: tuple[int, ...] = desc.a.strides
    bias: tuple[int, ...] = () if desc.bias is None else desc.bias.shape
    assert len(strides) == len(desc.a.shape) and bias == (desc.bias_shape or ())
    return desc.a_element, desc.a_shape, desc.activation, str(plan.precision_guarantee.bound), plan.cost.seconds


def asked(x: Any, w: Any) -> tuple[bp.MatmulPlan, bp.MatmulDescriptor, bp.BoundPlan]:
    with bp.preference(batch_invariant=True, max_workspace_bytes=0):
        plan = bp.matmul.plan(x, w, activation="silu", device="h200")
    return plan, bp.matmul.of(x, w), bp.matmul.bind(x, w, device="cpu")


unary = bp.UnaryPlan.select(bp.UnaryDescriptor("relu", (4,), "f32"), device="cpu")
binary = bp.BinaryDescriptor(bp.BinaryKind.POW, [4], [4], "bf16", bp.BF16)
view = bp.ContiguizeDescriptor(shape=[4, 4], element="s4", x_strides=(1, 4))
window = bp.WriteSliceDescriptor(dest_shape=[8, 4], ranges=[(0, 1), slice(0, 4)], element="bfloat16")
cache = bp.KvAppendDescriptor(cache_shape=(1, 2, 8, 4), tokens=1, element=np.dtype("f2"))
same: bp.WriteSliceDescriptor = bp.WriteSlicePlan.select(window).desc
reason: str = "" if bp.WriteSlicePlan.select(window).can_implement() else "no"
packed = bp.GpuBuffer.view(np.zeros((4, 4), np.uint8), "s4")
with bp.device("cpu"):
    bp.add(packed, packed, out=None)

# What is refused: an ignore that is not needed is an error under --strict, and so are these where all is Any.
bp.UnaryDescriptor("relu", (4,), 7)  # type: ignore[arg-type]
bp.MatmulDescriptor((4, 4), (4, 4), "bf16", "bf16", a_strides=4)  # type: ignore[arg-type]
bp.PlanPreference(batch_invariant="yes")  # type: ignore[arg-type]
bp.matmul(packed, packed, activation=3)  # type: ignore[arg-type]
bp.ContiguizeDescriptor((4, 4), "f32", y_strides=(1, 4))  # type: ignore[call-arg]
bp.MatmulDescriptor((4, 4), (4, 4), "bf16", "bf16").a.strides = (1,)  # type: ignore[misc]

"""A kernel of your own as an op: ``python examples/own_kernel.py`` runs it, emulated, on a machine without a GPU.

An op is a descriptor (which problems there are), a candidate (which kernel serves them, at what cost, how exactly), an oracle and
samples. `register` adds it; then it has a plan, explains itself, is verified, and runs on CuPy, PyTorch and JAX arrays. A package
that names its module in the entry-point group ``baracuda_py.ops`` is found without being imported first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from baracuda_py.ops.toolkit import (
    Candidate,
    Cost,
    Descriptor,
    DeviceSpec,
    ElementKind,
    InOrder,
    Kernel,
    Launch,
    Op,
    Plan,
    PrecisionGuarantee,
    Ptr,
    Run,
    Slot,
    Step,
    Ulp,
    described,
    function_of,
    register,
)
from baracuda_py.samples import Sample
from baracuda_py.samples.sample import values
from baracuda_py.types import MathPrecision

KINDS = (ElementKind.F32, ElementKind.F16, ElementKind.BF16)
FILE = "own/sloped_relu.cu"  # below the folder that `register` is given
THREADS = 256


@described(Slot("out", "out", takes=KINDS), Slot("x", takes=KINDS))
class SlopedReluDescriptor(Descriptor):
    """x of `shape`, and the slope below 0, a run-time value: it influences no choice."""

    shape: tuple[int, ...]
    element: ElementKind
    slope: float = 0.01

    name, values = "sloped_relu", ("slope",)


class Flat(Candidate[SlopedReluDescriptor]):
    """One thread per element."""

    variant = "flat"
    launches = (f"{FILE}:sloped_relu",)
    constraints = (InOrder("out"), InOrder("x"))

    def cost(self, desc: SlopedReluDescriptor, device: DeviceSpec, config: Any) -> Cost:
        return Cost.streaming(device, desc.nbytes, flops=math.prod(desc.shape))

    def guarantee(self, desc: SlopedReluDescriptor, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return PrecisionGuarantee.fixed_order(MathPrecision.F32, ElementKind.F32, Ulp(1.0))

    def lower(self, desc: SlopedReluDescriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        count = math.prod(desc.shape)
        kernel = Kernel(FILE, f"sloped_relu<{desc.element.number}, {THREADS}>")
        args = (Ptr("out"), Ptr("x"), Run("slope", "float32"), np.uint64(count))
        return (Launch(kernel, (-(-count // THREADS), 1, 1), (THREADS, 1, 1), args),)


def oracle(desc: SlopedReluDescriptor, x: Any) -> Any:
    """The result in float64; the kernel takes the slope as f32."""
    wide = x.astype(np.float64)
    return np.where(wide > 0, wide, float(np.float32(desc.slope)) * wide)


def samples(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    rng = np.random.default_rng(seed)
    for kind in KINDS:
        for shape in ((7,), (3, 130), (0, 4)):
            yield Sample(f"{kind}{list(shape)}", {"x": values(rng, shape, kind)})


class SlopedReluPlan(Plan[SlopedReluDescriptor]):
    """Operands `out` and `x`; value `slope`."""

    descriptor = SlopedReluDescriptor
    candidates = (Flat(),)
    reference = oracle
    reference_guarantee = lambda desc: PrecisionGuarantee.fixed_order(MathPrecision.F64, ElementKind.F64, Ulp(1.0))  # noqa: E731
    probes = tuple({"shape": (7,), "element": kind} for kind in KINDS)


@function_of(SlopedReluPlan)
def sloped_relu(x: Any, /, slope: float = 0.01) -> Any:
    """x where it is above 0, slope * x elsewhere.

    x: f32, f16 or bf16, in C order. out: like x; allocated if not given.
    """


register(Op("sloped_relu", SlopedReluPlan, sloped_relu, samples), kernels=Path(__file__).parent / "kernels")


def main() -> None:
    x = np.linspace(-2, 2, 9, dtype=np.float32)
    print(sloped_relu(x, 0.1, device="ptx"))
    plan = SlopedReluPlan.select(SlopedReluDescriptor.of(x, slope=0.1), device="h200")
    print(plan.explain())
    print(SlopedReluPlan.select(plan.desc, device="ptx").verify())


if __name__ == "__main__":
    main()

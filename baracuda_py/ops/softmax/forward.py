"""softmax and log_softmax along any axis. A row of the table is an op."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ...numerics.guarantee import widely
from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...runtime.steps import Kernel, Launch, Step
from ...types import DeviceSpec, ElementKind, OpCategory, PrecisionGuarantee
from .._axis import AlongAxis
from .._columns import ColumnConfig, ColumnCosts
from .._function import function_of
from .._launch import index_scalar, index_type
from .._rows import CLUSTERS, FLOATS, MOST_CTAS, RowConfig, Rows, clustered, computed_in, row_configs, row_cost, share
from .._unaligned import (
    kept_configs,
    kept_rows,
    resident_configs,
    resident_cost,
    resident_launch,
    resident_rows,
    unaligned_launch,
    unaligned_rows,
)
from . import _guarantee, oracle, samples

__all__ = ["SoftmaxDescriptor", "SoftmaxPlan", "log_softmax", "softmax"]

TABLE = {"softmax": "exp(x) / sum(exp(x))", "log_softmax": "x - log(sum(exp(x)))"}  # op: what it computes
LONG_AXIS = (
    1 << 15
)  # from which extent a cluster shares an axis that is not the innermost: one CTA would wait for memory


class Softmaxed(AlongAxis):
    """What forward and backward have in common."""

    name: str

    @property
    def log(self) -> bool:
        return self.name.startswith("log")

    @property
    def template(self) -> str:
        """Types and what is computed, as kernels take them."""
        digits = self.element.digits
        return f"{self.element.number}, {computed_in(self.element).cuda}, {digits}, {str(self.log).lower()}"

    def launch(self, file: str, name: str, config: RowConfig) -> Launch:
        """A kernel of the row toolkit."""
        return self.rows().launch(file, name, self.template, config)


@described(Slot("out", "out", takes=FLOATS), Slot("x", takes=FLOATS))
class SoftmaxDescriptor(Softmaxed):
    """`name` of an x of `shape` along `axis`, counted from the end if negative."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: int = -1
    name: str = "softmax"

    def __post_init__(self) -> None:
        self._names_op(tuple(TABLE), "name")
        super().__post_init__()


class RowsSoftmax(Candidate[SoftmaxDescriptor]):
    """A group of threads a row, which stays in registers where it fits; else maximum and sum come in one pass."""

    variant = "rows"
    launches: ClassVar[tuple[str, ...]] = ("softmax/forward.cu:softmax_rows", "softmax/forward.cu:softmax_rows_cluster")

    def configs(self, desc: SoftmaxDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        for config in row_configs(desc.extent, desc.rows().vector(desc.element), desc.element):
            yield clustered(config, desc.extent, desc.element, device)

    def guarantee(self, desc: SoftmaxDescriptor, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        scalings = 0 if config.resident else config.depth(desc.extent) // config.vector + 1
        return _guarantee.forward(desc.element, log=desc.log, depth=config.depth(desc.extent), scalings=scalings)

    def cost(self, desc: SoftmaxDescriptor, device: DeviceSpec, config: RowConfig) -> Cost:
        return row_cost(device, desc.rows(), desc.nbytes, config, desc.element, instructions=10.0)

    def lower(self, desc: SoftmaxDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        return (desc.launch("softmax/forward.cu", "softmax_rows", config),)


class ResidentSoftmax(RowsSoftmax):
    """A group of threads a row that starts at any address, which stays in registers and goes by aligned words."""

    variant = "unaligned_resident"
    launches = ("softmax/unaligned_resident.cu:softmax_unaligned_resident",)

    def supports(self, desc: SoftmaxDescriptor, device: DeviceSpec) -> Feasibility:
        return resident_rows(desc.rows(), desc.element, 16)

    def configs(self, desc: SoftmaxDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        return resident_configs(desc.rows(), desc.element)

    def cost(self, desc: SoftmaxDescriptor, device: DeviceSpec, config: RowConfig) -> Cost:
        return resident_cost(device, desc.rows(), desc.nbytes, config, instructions=10.0)

    def lower(self, desc: SoftmaxDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        file, name = "softmax/unaligned_resident.cu", "softmax_unaligned_resident"
        return (resident_launch(desc.rows(), file, name, desc.template, config),)


class UnalignedSoftmax(RowsSoftmax):
    """A CTA a row that starts at any address, by aligned words; maximum and sum come in one pass."""

    variant = "unaligned"
    launches: ClassVar[tuple[str, ...]] = (
        "softmax/forward.cu:softmax_unaligned",
        "softmax/forward.cu:softmax_unaligned_cluster",
    )

    def supports(self, desc: SoftmaxDescriptor, device: DeviceSpec) -> Feasibility:
        return unaligned_rows(desc.rows(), desc.element, 16)

    def configs(self, desc: SoftmaxDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        vector, items = Rows.widest(desc.element), 2
        lanes = share(desc.extent // (vector * items))
        config = RowConfig(
            vector, items, min(512, max(128, lanes))
        )  # two CTAs per SM: one reads while the other writes
        yield clustered(config, desc.extent, desc.element, device)

    def guarantee(self, desc: SoftmaxDescriptor, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        depth = config.depth(desc.extent) + 1
        return _guarantee.forward(desc.element, log=desc.log, depth=depth, scalings=depth // config.vector + 2)

    def lower(self, desc: SoftmaxDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        return (unaligned_launch(desc.rows(), "softmax/forward.cu", "softmax_unaligned", desc.template, config),)


class KeptSoftmax(UnalignedSoftmax):
    """A cluster a long row, which is read once and stays in shared memory; maximum and sum come in one pass."""

    variant = "kept"
    launches = ("softmax/forward.cu:softmax_kept_cluster",)

    def supports(self, desc: SoftmaxDescriptor, device: DeviceSpec) -> Feasibility:
        return kept_rows(desc.rows(), desc.element, 1, device)

    def configs(self, desc: SoftmaxDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        return kept_configs(desc.rows(), desc.element, 1, device)


class ColumnsSoftmax(Candidate[SoftmaxDescriptor]):
    """The axis is not the innermost one: threads take neighbours of that and go down the axis."""

    variant = "columns"
    launches = ("softmax/forward.cu:softmax_columns", "softmax/forward.cu:softmax_columns_cluster")

    def supports(self, desc: SoftmaxDescriptor, device: DeviceSpec) -> Feasibility:
        return OK if desc.columns() is not None else no("no other axis lies side by side in out and in x")

    def configs(self, desc: SoftmaxDescriptor, device: DeviceSpec) -> Iterable[ColumnConfig]:
        columns = desc.columns()
        if columns is None:
            return
        warps = min(32, max(4, share(desc.extent // 64)))
        vector = columns.vector(desc.element, max(1, 8 // (warps // 16 or 1)))
        parts = MOST_CTAS if device.tier in CLUSTERS and desc.extent >= LONG_AXIS else 1  # the extent alone decides
        config = ColumnConfig(vector, warps, parts)
        while (
            config.vector > 1 and config.vector * desc.element.bits > 32 and config.ctas(columns.rows) < 2 * device.sms
        ):
            config = replace(config, vector=config.vector // 2)  # narrower, and more CTAs
        yield config

    def guarantee(self, desc: SoftmaxDescriptor, device: DeviceSpec, config: ColumnConfig) -> PrecisionGuarantee:
        depth = -(-desc.extent // (config.warps * config.parts)) + 8 + config.warps + config.parts
        return _guarantee.forward(desc.element, log=desc.log, depth=depth, scalings=depth)

    def cost(self, desc: SoftmaxDescriptor, device: DeviceSpec, config: ColumnConfig) -> Cost:
        size = desc.element.bits // 8
        efficiency = ColumnCosts.of(device).softmax_bandwidth_efficiency * min(1.0, (config.vector * size * 32) / 128)
        spent = 16.0 * desc.nbytes / (2 * size)
        return Cost.streaming(device, desc.nbytes, flops=int(spent), instructions=spent, efficiency=efficiency)

    def lower(self, desc: SoftmaxDescriptor, device: DeviceSpec, config: ColumnConfig) -> tuple[Step, ...]:
        columns = desc.columns()
        assert columns is not None
        rows, index = columns.rows, index_type(math.prod(desc.shape))
        shape = f"{desc.template}, {config.vector}, {config.warps}, {len(rows.rows)}, {index}"
        entry = f"softmax_columns_cluster<{shape}, {config.parts}>" if config.parts > 1 else f"softmax_columns<{shape}>"
        counts = (index_scalar(n, index) for n in (rows.count, rows.length, desc.extent))
        args = (*counts, rows.places(index), *map(np.int64, columns.steps), *rows.pointers())
        grid, block = (config.ctas(rows), 1, 1), (config.threads, 1, 1)
        return (
            Launch(
                Kernel("softmax/forward.cu", entry), grid, block, args, cluster=config.parts if config.parts > 1 else 0
            ),
        )


class SoftmaxPlan(Plan[SoftmaxDescriptor]):
    """Softmax along an axis: operands `x` and `out`."""

    descriptor = SoftmaxDescriptor
    category = OpCategory.SOFTMAX
    candidates = (RowsSoftmax(), ResidentSoftmax(), UnalignedSoftmax(), KeptSoftmax(), ColumnsSoftmax())
    measures = oracle.MEASURES
    probes = (
        *({"shape": (3, n), "element": e} for e in ("f32", "bf16", "f16", "f64") for n in (100, 4096, 50257)),
        {"shape": (6, 40), "element": "f32", "x_strides": (1, 6)},
        {"shape": (3, 700, 40), "element": "bf16", "axis": 1},
    )
    reference = oracle.softmax

    @staticmethod
    def reference_guarantee(desc: SoftmaxDescriptor) -> PrecisionGuarantee:
        return widely(_guarantee.forward(desc.element, log=desc.log, depth=1, scalings=0), desc, desc.extent)


def _along(x: Any, /, axis: int = -1) -> Any: ...


_DOC = """{formula} along an axis, as if in exact arithmetic.

x: an array of any shape and strides (f16, bf16, f32, f64). axis: counted from the end if negative.
out: an array of x's shape and dtype, x itself included; allocated in C order if not given. Computed in f32 (f64 for f64) and
rounded once, in an order that the extent and how x lies decide, and not how many rows or columns there are (a single column
lies like a row). A row that holds NaN or +inf, or -inf alone, is NaN.
Returns out. Raises InvalidProblemError for an axis that there is not.
"""


def _published(name: str) -> Callable[..., Any]:
    """The function of a row of the table, which is registered."""
    function = function_of(SoftmaxPlan, called=name, doc=_DOC.format(formula=TABLE[name]), name=name)(_along)
    gradient = Gradient(f"{name}_backward", ("out",), {"x": "grad_x"}, renames={"out": "y"})
    register(Op(name, SoftmaxPlan, function, samples.softmax, {"name": name}, gradient, {"torch": name}))
    return function


softmax = _published("softmax")
log_softmax = _published("log_softmax")

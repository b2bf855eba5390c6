"""How floats become codes and back (kernels/quantized/quantize.cu)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ....plan.candidate import OK, Candidate, Cost, Feasibility, no
from ....plan.constraints import UnitStride
from ....plan.grammar import Config, term
from ....runtime.steps import Fill, Kernel, Launch, Scratch, Step
from ....types import DeviceSpec, ElementKind, MathPrecision, PrecisionGuarantee, Ulp
from ..._fitted import Fitted
from ..._launch import grid_of, index_scalar
from ..._rows import RowConfig, Rows, row_configs, row_cost, share

__all__ = ["Dequantize", "QuantizeRows", "RangesFirst"]

FILE = "quantized/quantize.cu"
WARP, THREADS = 32, 256
RESIDENT = 4  # CTAs an SM
OF_CODE, OF_SCALE = 8.0, 40.0  # machine instructions (sm_90a) of an element, and of a column's scale


class Costs(Fitted, table="quantized.int8_quantize"):
    bandwidth_efficiency: float
    strided_bandwidth_efficiency: float
    one_load_ratio: float
    few_threads_ratio: float
    atomic_s: float


def code_type(element: ElementKind) -> str:
    """The C++ type of a code."""
    return "e4m3" if element is ElementKind.FP8_E4M3 else element.number


def _types(desc: Any) -> str:
    return f"{desc.element.number}, {code_type(desc.codes_element)}, {_flag(desc.has('zeros'))}"


def _flag(value: bool) -> str:
    return str(value).lower()


class QuantizeRows(Candidate[Any]):
    """One pass: a row, or a group, is held in registers between its range and its codes."""

    variant = "rows"
    launches = (f"{FILE}:quantize_rows",)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        return OK if desc.per in ("row", "group") else no(f'serves per="row" and "group", not {desc.per!r}')

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[RowConfig]:
        rows: Rows = desc.rows()
        return row_configs(rows.length, rows.vector(desc.element), desc.element, streams=512)

    def cost(self, desc: Any, device: DeviceSpec, config: RowConfig) -> Cost:
        return row_cost(device, desc.rows(), desc.moved, config, desc.element, instructions=8.0)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        """Codes and scales are those of the formula, bit for bit."""
        return PrecisionGuarantee.exact(desc.codes_element)

    def lower(self, desc: Any, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        rows: Rows = desc.rows()
        entry = f"quantize_rows<{_types(desc)}, {config.template}, {rows.template}>"
        args = (
            index_scalar(rows.count, rows.index), index_scalar(rows.length, rows.index), rows.places(), *rows.pointers(),
        )  # fmt: skip
        grid = config.grid(rows.count)
        return (Launch(Kernel(FILE, entry), grid, (config.threads, 1, 1), args, pdl=True),)


@dataclass(frozen=True)
class PartConfig(Config):
    """How a CTA takes a part of a matrix."""

    vector: int = term("columns an access")
    lanes: int = term("threads that share a row")
    depth: int = term("rows that a thread has under way", default=4)
    rounds: int = term("times that a CTA takes so many rows", default=1)

    @property
    def stripe(self) -> int:
        """Rows of a CTA."""
        return THREADS // self.lanes * self.depth * self.rounds

    def ctas(self, rows: Rows) -> int:
        return -(-rows.length // (self.lanes * self.vector)) * -(-rows.count // self.stripe)

    @property
    def template(self) -> str:
        return f"{self.vector}, {self.lanes}, {self.depth}, {THREADS}"


def _parts(desc: Any) -> Iterable[PartConfig]:
    """A stripe in one round, of rows that a thread has all under way."""
    rows: Rows = desc.rows()
    vector = rows.vector(ElementKind.F16 if desc.element.bits == 16 else ElementKind.F32)
    lanes = min(WARP, share(-(-rows.length // vector)))
    yield PartConfig(vector, lanes)
    yield PartConfig(vector, lanes, 1)


def _stripes(desc: Any, device: DeviceSpec) -> Iterable[PartConfig]:
    """And longer ones, as long as there are CTAs for all SMs: a CTA finds scales, and joins ranges, once."""
    rows: Rows = desc.rows()
    for config in _parts(desc):
        yield config
    for depth, rounds in itertools.product((4, 8), (2, 4, 8, 16, 32)):
        long = replace(config, depth=depth, rounds=rounds)
        if long.ctas(rows) >= 2 * device.sms:
            yield long


def _seconds(desc: Any, device: DeviceSpec, config: PartConfig, nbytes: int, a_column: float, passes: int) -> float:
    """Of streaming so many bytes in so many passes; `a_column` are instructions of a CTA for each of its columns."""
    rows: Rows = desc.rows()
    ctas, elements = config.ctas(rows), rows.count * rows.length
    costs = Costs.of(device)
    efficiency = costs.bandwidth_efficiency if rows.dense else costs.strided_bandwidth_efficiency
    efficiency = efficiency * min(1.0, config.vector / 4) * (1.0 if config.depth > 1 else costs.one_load_ratio)
    few = min(1.0, ctas * THREADS / (device.sms * 1024))
    waves = ctas / (device.sms * RESIDENT)
    uneven = -(-ctas // (device.sms * RESIDENT)) / waves if 1.0 < waves < 8.0 else 1.0
    threads = ctas * THREADS * config.vector
    instructions = passes * OF_CODE * elements + a_column * threads
    bandwidth = Cost.streaming(device, int(nbytes * uneven), efficiency=efficiency * max(few, costs.few_threads_ratio))
    return max(bandwidth.seconds, device.overhead + instructions / device.rate("issue"))


class RangesFirst(Candidate[Any]):
    """Two passes: the ranges of columns, or of the tensor, then the codes. Serves rows too, as groups of one."""

    variant = "ranges_first"
    launches = (f"{FILE}:find_ranges", f"{FILE}:quantize_ranged")

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        return OK if desc.per in ("tensor", "column") else no(f'serves per="tensor" and "column", not {desc.per!r}')

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[PartConfig]:
        return _stripes(desc, device)

    def cost(self, desc: Any, device: DeviceSpec, config: PartConfig) -> Cost:
        """x twice and codes once; atomics a column and stripe; scales a thread and column."""
        rows: Rows = desc.rows()
        per_column = desc.per == "column"
        twice = int(desc.moved * (1.0 + desc.element.bits / (desc.element.bits + 8)))
        seconds = _seconds(desc, device, config, twice, OF_SCALE if per_column else OF_SCALE / config.vector, 2)
        atomics = 2 * (-(-rows.count // config.stripe) * rows.length if per_column else config.ctas(rows))
        return Cost(desc.moved, 0, seconds + 2 * device.overhead + atomics * Costs.of(device).atomic_s, "bandwidth")

    def guarantee(self, desc: Any, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        """Maxima are the same in any order."""
        return PrecisionGuarantee.exact(desc.codes_element)

    def lower(self, desc: Any, device: DeviceSpec, config: PartConfig) -> tuple[Step, ...]:
        rows: Rows = desc.rows()
        column = _flag(desc.per == "column")
        count = rows.length if desc.per == "column" else 1
        ranges = Scratch(0, 8 * max(1, count))
        # A tensor without columns has a scale too, which the thread of the first one stores: no row of one column
        tall, wide = (rows.count, rows.length) if rows.length or desc.per == "column" else (0, 1)
        sizes = _sizes(rows, config, tall, wide)
        finding = f"find_ranges<{desc.element.number}, {config.template}, {rows.template}, {column}>"
        making = f"quantize_ranged<{_types(desc)}, {config.template}, {rows.template}, {column}>"
        pointers, grid, block = rows.pointers(), grid_of(config.ctas(rows), 1), (THREADS, 1, 1)
        return (
            Fill(ranges, 0, ranges.nbytes),
            Launch(Kernel(FILE, finding), grid, block, (*sizes, ranges, pointers[3])),
            Launch(Kernel(FILE, making), grid, block, (*sizes, *pointers, ranges), pdl=True),
        )


class Dequantize(Candidate[Any]):
    """(code - zero) scale, element by element."""

    variant = "elements"
    launches = (f"{FILE}:dequantize",)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if desc.per == "column":
            return next((said for name in ("scales", "zeros") if not (said := UnitStride(name).of(desc))), OK)
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[PartConfig]:
        return _parts(desc)

    def cost(self, desc: Any, device: DeviceSpec, config: PartConfig) -> Cost:
        seconds = _seconds(desc, device, config, desc.moved, 0.0, 1)
        return Cost(desc.moved, 0, seconds, "bandwidth")

    def guarantee(self, desc: Any, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        """One rounding to f32, and one to the result's type: the oracle's very numbers, any NaN for a NaN."""
        return PrecisionGuarantee.fixed_order(MathPrecision.F32, ElementKind.F32, Ulp(0.0))

    def lower(self, desc: Any, device: DeviceSpec, config: PartConfig) -> tuple[Step, ...]:
        rows: Rows = desc.rows()
        making = f"dequantize<{_types(desc)}, {config.template}, {rows.template}, {_flag(desc.per == 'column')}>"
        codes, scales, zeros, out = rows.pointers()
        grid, block = grid_of(config.ctas(rows), 1), (THREADS, 1, 1)
        args = (*_sizes(rows, config, rows.count, rows.length), codes, scales, zeros, out)
        return (Launch(Kernel(FILE, making), grid, block, args, pdl=True),)


def _sizes(rows: Rows, config: PartConfig, count: int, length: int) -> tuple[Any, ...]:
    """What the kernels of parts begin with."""
    return (*(index_scalar(n, rows.index) for n in (count, length, config.stripe)), rows.places())

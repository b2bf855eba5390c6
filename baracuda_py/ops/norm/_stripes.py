"""How a norm's gradients are computed: persistent CTAs, each a stripe of rows, whose sums over rows come together in the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Scratch, Step
from ...types import DeviceSpec, PrecisionGuarantee
from .._launch import grid_of, index_scalar
from .._rows import CLUSTER_BYTES, CLUSTERS, RowConfig, Rows, computed_in, row_cost, share
from .._unaligned import kept_configs, unaligned_config, unaligned_launch
from . import _guarantee

__all__ = ["LongNormBackward", "StripedNormBackward"]

ROWS, COLUMNS = "norm/backward.cu:norm_backward", "norm/columns.cu:norm_weight_backward"
SUMS = "reduce/stripes.cu:sum_stripes"
LANES = 512  # threads that share a row at most
DOWN = 8  # warps that go down adjacent columns
ADDERS = 32  # warps that add stripes up
PART_BYTES = 112 << 10  # of an input that a CTA keeps: two of them on an SM
STAGES = 4  # rows in shared memory at most


class StripedNormBackward(Candidate[Any]):
    """Stripes of rows, whose sums over rows a second kernel adds up in order. Rows too long for registers are streamed, and
    columns gone down in a kernel of their own."""

    variant = "rows"
    launches: ClassVar[tuple[str, ...]] = (ROWS, COLUMNS, SUMS)

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[RowConfig]:
        """The best known first: two vectors a thread up to 256 threads, then up to 64 bytes of an operand (in accesses of 2
        bytes, 32), and what does not fit 512 threads is streamed."""
        vector = _rows(desc).vector(desc.element)
        deep = {16: 4, 8: 8}.get(vector * desc.element.bits // 8, 16)
        vectors = max(1, -(-desc.length // vector))
        lanes = max(min(share(-(-vectors // 2)), LANES // 2), share(-(-vectors // deep)))
        for more in (lanes, 2 * lanes, 4 * lanes):  # fewer vectors a thread
            if more <= LANES and (more == lanes or (lanes >= 32 and vectors >= more)):
                yield RowConfig(vector, -(-vectors // more), more, True)
        if lanes > 32:
            yield RowConfig(vector, deep, LANES)

    def guarantee(self, desc: Any, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        """A term of a sum over rows goes through its stripe's additions, those of its warps, and the stripes'."""
        stripes, side = _stripes(desc, device, config), config.rows if config.resident else DOWN
        down = -(-_rows(desc).count // (stripes * side)) + side + -(-stripes // ADDERS) + ADDERS
        return _guarantee.backward(desc, config, down)

    def cost(self, desc: Any, device: DeviceSpec, config: RowConfig) -> Cost:
        nbytes = desc.nbytes if config.resident or not desc.flags else desc.nbytes * 5 // 3
        return row_cost(device, _rows(desc), nbytes, config, desc.element, instructions=20.0)

    def lower(self, desc: Any, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        rows, stripes = _rows(desc), _stripes(desc, device, config)
        grad_x, *read = rows.pointers()
        stages = _stages(desc, device, config)
        shape = f"{config.template}, {_ctas(config)}, {stages}"
        types = f"{desc.element.number}, {_weight(desc)}, {computed_in(desc.element).cuda}"
        grid, shared = (
            (stripes, stages * _row_bytes(desc, config)) if config.resident else (config.grid(rows.count)[0], 0)
        )
        args = (*rows.counts, rows.places(), grad_x, _partial(desc, stripes), *read)
        along = Launch(_kernel(ROWS, types, shape, _flags(desc)), (grid, 1, 1), (config.threads, 1, 1), args, shared)
        if not desc.flags:
            return (along,)

        if config.resident:
            return along, _added(desc, stripes)
        return (
            _down(desc, stripes),
            along,
            _added(desc, stripes),
        )  # in this order, since grad_x may be what `_down` reads


class LongNormBackward(StripedNormBackward):
    """A CTA, or a cluster of them, a row too long for registers, at any address; grad and x stay in shared memory where they
    fit. Columns are gone down in a kernel of their own."""

    variant = "long"
    launches = (*(f"{ROWS}_{how}" for how in ("unaligned", "unaligned_cluster", "kept_cluster")), COLUMNS, SUMS)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        rows, weight = _rows(desc), desc.kind("weight")
        if not rows.dense:
            return no("columns do not lie side by side in every operand")
        if weight not in (None, desc.element):
            return no(f"the weight is no {desc.element}")
        if any(config.resident for config in super().configs(desc, device)):
            return no("a row stays in registers")
        if desc.length * desc.element.bits <= 8 * CLUSTER_BYTES and not rows.unaligned(desc.element):
            return no(f"a CTA streams aligned rows of {CLUSTER_BYTES} bytes as fast")
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[RowConfig]:
        """The best known first: one input kept by the smallest cluster of which an SM has two CTAs."""
        rows, nbytes = _rows(desc), desc.length * desc.element.bits // 8
        if device.tier in CLUSTERS and nbytes > CLUSTER_BYTES:
            found = kept_configs(rows, desc.element, 2, device)
            yield from sorted(found, key=lambda of: (of.kept > 1, nbytes > of.ctas * PART_BYTES, of.ctas))
        yield unaligned_config(rows, desc.element, device)

    def lower(self, desc: Any, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        types = f"{desc.element.number}, {computed_in(desc.element).cuda}"
        flags = f"{str(desc.centered).lower()}, {desc.flags}"
        file, _, name = ROWS.partition(":")
        along = unaligned_launch(_rows(desc), file, f"{name}_unaligned", types, config, flags)
        if not desc.flags:
            return (along,)
        stripes = _stripes(desc, device, config)
        return _down(desc, stripes), along, _added(desc, stripes)


def _partial(desc: Any, stripes: int) -> Arg:
    """Sums over the rows of each stripe."""
    parts = desc.flags.bit_count()
    if not parts:
        return Packed(bytes(8))
    return Scratch(0, max(1, stripes * parts * desc.length) * computed_in(desc.element).element.bits // 8)


def _flags(desc: Any) -> str:
    return f"{_rows(desc).template}, {str(desc.centered).lower()}, {desc.flags}"


def _down(desc: Any, stripes: int) -> Launch:
    """Sums down columns, a stripe's each."""
    rows = _rows(desc)
    _, *read = rows.pointers()
    vector = rows.vector(desc.element)
    kernel = _kernel(COLUMNS, desc.element.number, computed_in(desc.element).cuda, str(vector), str(DOWN), _flags(desc))
    height = index_scalar(-(-rows.count // stripes), rows.index)
    across = grid_of(rows.length, 32 * vector)[0]
    args = (*rows.counts, height, rows.places(), _partial(desc, stripes), *read[:-1])
    return Launch(kernel, (across, stripes, 1), (32 * DOWN, 1, 1), args)


def _added(desc: Any, stripes: int) -> Launch:
    """The stripes' sums, added in order."""
    rows, parts = _rows(desc), desc.flags.bit_count()
    outs = [Ptr(name) for name in desc.flagged if desc.has(name)]
    sums = (np.uint32(stripes), rows.counts[1], _partial(desc, stripes), outs[0], outs[-1])
    adders = _kernel(SUMS, computed_in(desc.element).cuda, _weight(desc), str(ADDERS), rows.index)
    return Launch(adders, (grid_of(rows.length, 32)[0], parts, 1), (32 * ADDERS, 1, 1), sums, pdl=True)


def _weight(desc: Any) -> str:
    return str((desc.kind("weight") or desc.kind("grad_bias") or desc.element).number)


def _rows(desc: Any) -> Rows:
    """Sums over rows are counted by column, as stored in grad_weight: in C order."""
    found: Rows = desc.rows(ordered=bool(desc.flags))
    return found


def _kernel(named: str, *template: str) -> Kernel:
    file, _, name = named.partition(":")
    return Kernel(file, f"{name}<{', '.join(template)}>")


def _row_bytes(desc: Any, config: RowConfig) -> int:
    """Bytes of a CTA's share of x and grad; its sums over rows take no more."""
    return int(2 * config.threads * config.items * config.vector * desc.element.bits // 8)


def _ctas(config: RowConfig) -> int:
    """CTAs an SM that registers leave room for."""
    return max(1, (768 if config.items <= 2 else 512) // config.threads)


def _stages(desc: Any, device: DeviceSpec, config: RowConfig) -> int:
    """Rows of x and grad that a group has in shared memory."""
    narrow = config.vector * desc.element.bits < 32  # which cp.async cannot copy
    fit = (device.shared_bytes // _ctas(config) - 2048) // _row_bytes(desc, config)
    return 1 if narrow else max(1, min(STAGES, fit))


def _stripes(desc: Any, device: DeviceSpec, config: RowConfig) -> int:
    """Stripes of rows: as many CTAs as run at once; down columns, as many as keep the device busy, of 32 rows at least."""
    count = _rows(desc).count
    if config.resident:
        return max(1, min(-(-count // config.rows), device.sms * _ctas(config)))
    across: int = -(-desc.length // (32 * _rows(desc).vector(desc.element)))
    return max(1, min(-(-count // 32), -(-device.sms * 8 // across), 65535))

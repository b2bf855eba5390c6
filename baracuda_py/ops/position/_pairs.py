"""pairs: chunks of a token's heads, a cosine and a sine a pair for all of them (kernels/position/rope.cu)."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ...plan.candidate import Candidate, Cost
from ...plan.grammar import Config, term
from ...runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Run, Step
from ...types import Componentwise, DeviceSpec, ElementKind, PrecisionGuarantee
from .._fitted import Fitted
from .._launch import divisor, grid_of, index_scalar, index_type
from .._rows import computed_in
from ._problem import Roped
from .angles import OF_ANGLE, OF_ENTRY, dense, terms_of

__all__ = ["RotatePairs", "guarantee_of"]

KERNEL = "position/rope.cu"
THREADS = 128
WORD = 16  # bytes of the widest access
SHARES = ((1, 1), (2, 1), (4, 1), (2, 2), (1, 4), (2, 4), (1, 8), (4, 2))  # heads at once, and rounds
MOST_PAIRS = 16  # at once: twice as many take 1.3 times as long (H200)
MOST_HEADS = 4  # that share an angle: more save little
THREADS_TO_SATURATE = 512  # threads an SM: below, a token's heads are shared by more of them
# Machine instructions (sm_90a): of a thread, of a head, and of a pair that is rotated.
FIXED, OF_HEAD, OF_PAIR = 200, 24, 10
SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, section 3; kernels/include/position/rotate.cuh for sin and cos"


class Costs(Fitted, table="rows.rope"):
    bandwidth_efficiency: float
    least_vector_ratio: float
    other_share_time_ratio: float


@dataclass(frozen=True)
class PairConfig(Config):
    """How a token's heads are shared out."""

    vector: int = term("pairs that a thread turns of a head")
    heads: int = term("heads a thread at once")
    rounds: int = term("times that it takes so many")

    @property
    def share(self) -> int:
        """Heads a thread."""
        return self.heads * self.rounds


class _Shape(NamedTuple):
    """How many of what; `heads` of either operand."""

    batch: int
    tokens: int
    heads: tuple[int, int]
    rotated: int  # chunks
    chunks: int

    def groups(self, config: PairConfig) -> tuple[int, int]:
        """Of either operand; tokens without heads have one all the same."""
        first, second = (-(-count // config.share) for count in self.heads)
        return (first, second) if first + second else (1, 0)

    def threads(self, config: PairConfig) -> int:
        return self.batch * self.tokens * self.chunks * sum(self.groups(config))


def guarantee_of(desc: Roped) -> PrecisionGuarantee:
    """Of either operand."""
    computed, bound = computed_in(desc.element), Componentwise(terms_of(desc, "abs_result"), SOURCE, "unbounded")
    parts = {name: PrecisionGuarantee.fixed_order(computed.math, computed.element, bound) for name in desc.rotated_into}
    if desc.has("status"):
        parts["status"] = PrecisionGuarantee.exact(ElementKind.I32)
    return PrecisionGuarantee.by_output(**parts)


class RotatePairs(Candidate[Roped]):
    """One launch for both operands: any strides, by element where rows are not dense or not aligned."""

    variant = "pairs"
    launches = (f"{KERNEL}:rope",)

    def configs(self, desc: Roped, device: DeviceSpec) -> Iterable[PairConfig]:
        vector = _vector(desc)
        most = max(_shape(desc, vector).heads)
        return [PairConfig(vector, *share) for share in SHARES if share == (1, 1) or math.prod(share) < 2 * most]

    def cost(self, desc: Roped, device: DeviceSpec, config: PairConfig) -> Cost:
        shape = _shape(desc, config.vector)
        angle = OF_ENTRY if desc.has("cos") else OF_ANGLE
        threads = shape.threads(config)
        a_head = OF_HEAD + config.vector * OF_PAIR
        instructions = threads * (FIXED + config.vector * angle + config.share * a_head)
        full = min(1.0, config.vector * desc.element.bits / (8 * WORD))
        nbytes, flops = _nbytes(desc), threads * config.share * config.vector * 6
        costs = Costs.of(device)
        efficiency = costs.bandwidth_efficiency * max(costs.least_vector_ratio, full)
        cost = Cost.streaming(device, nbytes, flops=flops, instructions=instructions, efficiency=efficiency)
        best = _best(shape, config.vector, device)
        return cost if config == best else replace(cost, seconds=cost.seconds * costs.other_share_time_ratio)

    def guarantee(self, desc: Roped, device: DeviceSpec, config: PairConfig) -> PrecisionGuarantee:
        return guarantee_of(desc)

    def lower(self, desc: Roped, device: DeviceSpec, config: PairConfig) -> tuple[Step, ...]:
        shape, computed = _shape(desc, config.vector), computed_in(desc.element)
        index = index_type(shape.threads(config))
        positions = desc.layout("positions").element if desc.has("positions") else ElementKind.I64
        types = f"{desc.element.number}, {computed.cuda}, {positions.number}, {desc.table_types}"
        entry = f"rope<{types}, {str(desc.inverse).lower()}, {config.vector}, {config.heads}, {index}>"
        outs, reads = _pair(tuple(desc.rotated_into)), _pair(desc.rotated_inputs)
        rows = [_rows(desc, name) for name in (*outs, *reads)]
        pointers = [
            _pointer(desc, n)
            for n in (*outs, "status", *reads, "positions", "cos" if desc.tables else "inv_freq", "sin")
        ]
        args: tuple[Arg, ...] = (
            _packed_shape(desc, shape, config, index), *rows, _packed_angles(desc), *pointers, Run("offset"),
            Run("attention_factor", computed.numpy),
        )  # fmt: skip
        return (Launch(Kernel(KERNEL, entry), grid_of(shape.threads(config), THREADS), (THREADS, 1, 1), args),)


def _best(shape: _Shape, vector: int, device: DeviceSpec) -> PairConfig:
    """The most heads at once and then a thread, as far as registers go and the device is kept busy."""
    saturating = [PairConfig(vector, 1, 1)]
    for heads, rounds in SHARES:
        config = PairConfig(vector, heads, rounds)
        within = heads * vector <= MOST_PAIRS and config.share <= min(MOST_HEADS, max(shape.heads))
        if within and shape.threads(config) >= device.sms * THREADS_TO_SATURATE:
            saturating.append(config)
    return max(saturating, key=lambda config: (config.share, config.heads))


def _pair(names: tuple[str, ...]) -> tuple[str, str]:
    """The names of both operands, "" for a second one that is not there."""
    return (names[0], names[1] if len(names) > 1 else "")


def _pointer(desc: Roped, name: str) -> Arg:
    return Ptr(name) if name and desc.has(name) else np.uint64(0)


def _shape(desc: Roped, vector: int) -> _Shape:
    """An empty batch has one of no heads, whose tokens have a status all the same."""
    batch, tokens, heads = desc.extents
    second = desc.rotated_inputs[1:]
    more = desc.sizes(desc.layout(second[0]).shape)[2] if second else 0
    rotated = desc.half // vector
    passed = -(-(desc.width - 2 * desc.half) // (2 * vector))
    return _Shape(max(batch, 1), tokens, (heads, more) if batch else (0, 0), rotated, rotated + passed)


def _vector(desc: Roped) -> int:
    """The most pairs, as far as an access of 16 bytes goes, that divide the rotated columns and the others, and that every row is
    aligned for."""
    vector = WORD * 8 // desc.element.bits
    while vector > 1 and not all(_fits(desc, vector)):
        vector //= 2
    return vector


def _fits(desc: Roped, vector: int) -> Iterator[bool]:
    yield desc.half % vector == 0 and (desc.width - 2 * desc.half) % vector == 0
    for name in (*desc.rotated_into, *desc.rotated_inputs):
        yield dense(desc.layout(name), vector)
    for name in ("cos", "sin", "inv_freq"):
        if desc.has(name):
            layout = desc.layout(name)
            yield dense(layout, min(vector, WORD // layout.natural))


def _rows(desc: Roped, name: str) -> Packed:
    """RopeRows of kernels/position/rope.cu."""
    if not name:
        return Packed(bytes(32))
    strides = desc.layout(name).strides
    outer = [0 if axis is None else strides[axis] for axis in desc.axes]
    return Packed(struct.pack("<4q", *outer, strides[-1]))


def _packed_angles(desc: Roped) -> Packed:
    """RopeAngles of kernels/position/rope.cu."""
    batch, token = 0, 0
    if desc.has("positions"):
        strides = desc.layout("positions").strides
        batch, token = strides if desc.batched else (0, *strides)
    places = desc.packed_angles(batch, token)
    return Packed(places.data + struct.pack("<q", desc.extents[1] if desc.batched else 0))


def _packed_shape(desc: Roped, shape: _Shape, config: PairConfig, index: str) -> Packed:
    """RopeShape of kernels/position/rope.cu: heads or tokens, whichever have the smaller stride, are neighbours."""
    strides = desc.layout(desc.rotated_inputs[0]).strides
    _, token, head = desc.axes
    inside = head is None or abs(strides[token]) < abs(strides[head])
    groups = shape.groups(config)
    inner, middle = (shape.tokens, sum(groups)) if inside else (sum(groups), shape.tokens)
    numbers = (
        shape.threads(config), shape.rotated, config.rounds, int(inside), shape.heads[0], groups[0], shape.heads[1], groups[1],
        desc.width, desc.half,
    )  # fmt: skip
    data = b"".join(divisor(max(n, 1), index).data for n in (shape.chunks, inner, middle))
    data += b"".join(index_scalar(n, index).tobytes() for n in numbers)
    return Packed(data, 4 if index == "u32" else 8)


def _nbytes(desc: Roped) -> int:
    """Both operands read and written, positions, and of tables no more than is used."""
    total = sum(
        desc.layout(n).element.nbytes(math.prod(desc.layout(n).shape))
        for n in (*desc.rotated_into, *desc.rotated_inputs)
    )
    for name in ("positions", "inv_freq", "cos", "sin", "status"):
        if desc.has(name):
            layout = desc.layout(name)
            entries = math.prod(layout.shape)
            if name in ("cos", "sin"):
                entries = min(entries, desc.half * math.prod(desc.extents[:2]))
            total += layout.element.nbytes(entries)
    return total

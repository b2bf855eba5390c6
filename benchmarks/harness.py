"""Timing on the device: cold L2 by rotation, graphs, events, warm bursts, and contenders in alternating rounds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from .floor import SHAPES, Floor, Shape, Stream
from .operands import Call, Kit, TorchCall
from .stats import Paired, alternated, paired, repeats_for, rotation
from .target import FLOOR

__all__ = ["COLD_BYTES", "OURS", "Alone", "Bench", "Contender", "Timing", "is_torch"]

OURS = "ours"
COLD_BYTES = 600_000_000
EVENT_BATCH = 4
GRAPH_LIMIT_US = 100.0
WARM_SECONDS = 0.6  # of load before compute-bound work is timed: clocks and power settle
BURST_US = 5000.0
BURST_CALLS = 5  # of the largest products a burst is longer, so that one call's luck is not its figure
ALONE_US, ALONE_BLOCKS, SETTLED_SECONDS = 100e3, 2, 1.0  # bursts and blocks of a contender by itself; what of it counts

Sampler = Callable[[str], Any]
"""Reads clock and power for the contender of that name."""


def is_torch(name: str, call: Call) -> bool:
    """Whether a contender launches through torch, and so is captured by it: its name or its calls say so."""
    return name.split(".")[0] == "torch" or isinstance(call, TorchCall)


@dataclass(frozen=True)
class Contender:
    """Calls over rotating operands, and `replay`, which makes `launches` of them: one graph, or call after call."""

    name: str
    calls: tuple[Call, ...]
    replay: Call
    launches: int
    variant: str = ""  # which of several of one name it is

    @property
    def torch(self) -> bool:
        return is_torch(self.name, self.calls[0])


@dataclass
class Timing:
    """What one contender took, a launch, in every round: in a graph, and as single launches between events."""

    graph_us: list[float] = field(default_factory=list)
    event_us: list[float] = field(default_factory=list)

    @property
    def by_graph(self) -> bool:
        """Under 100 us a launch is what it costs in a graph; above, the event pair adds nothing worth mentioning."""
        return median(self.graph_us) < GRAPH_LIMIT_US

    @property
    def us(self) -> float:
        """The figure: the median over the rounds."""
        return median(self.graph_us if self.by_graph else self.event_us)

    def against(self, other: Timing) -> Paired:
        """How it stands to `other`, both measured the way this one is."""
        return paired(self.graph_us, other.graph_us) if self.by_graph else paired(self.event_us, other.event_us)


@dataclass
class Alone:
    """What one contender took by itself for seconds on end: of each block the median of its last second."""

    blocks_us: list[float] = field(default_factory=list)
    clocks_mhz: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)

    @property
    def us(self) -> float:
        return median(self.blocks_us)


class Bench:
    """The timing discipline on the current device.

    Operands rotate over `COLD_BYTES`, and before every timed graph as many clean bytes are read: a small row, whose
    sets would all fit the L2, finds it cold as well, and the launch of the graph hides behind the read. Nothing is
    written between timed launches, so none pays for dirty lines that are not a contender's own.
    """

    def __init__(self, kit: Kit) -> None:
        import cupy

        self.kit = kit
        self.floor = Floor()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        clean = cupy.zeros(COLD_BYTES, np.uint8)
        self._scrub = self.floor.call(Shape(512, 8, "na"), (clean,), None)
        self._torch_stream = None if kit.torch is None else kit.torch.cuda.ExternalStream(self.stream.ptr)

    def warm_up(self, seconds: float) -> None:
        """Keeps the memory busy for a while, so that clocks are up before anything is timed."""
        end = perf_counter() + seconds
        while perf_counter() < end:
            with self.stream:
                for _ in range(50):
                    self._scrub()
            self.stream.synchronize()

    # ---- one contender -------------------------------------------------------------------------------------------

    def contender(self, name: str, calls: Sequence[Call], *, graph: bool = True, launches: int = 16) -> Contender:
        """Runs every call once, then captures them into one graph of at least `launches`; without `graph`, a replay makes
        each call once, for work so long that the host keeps ahead."""
        torch = is_torch(name, calls[0])
        self.kit.synchronize()
        with self._current(torch):
            for call in calls:
                call()
            self.stream.synchronize()
        if not graph:
            return Contender(name, tuple(calls), lambda: [call() for call in calls], len(calls))
        order = list(calls) * -(-launches // len(calls))
        replay = self._torch_graph(order) if torch else self._cupy_graph(order)
        return Contender(name, tuple(calls), replay, len(order))

    def replay_us(self, contender: Contender, meanwhile: Sampler | None = None, repeats: int = 1) -> float:
        """A few replays that find the L2 cold, in microseconds a launch. `meanwhile` is called while they run.

        The launch of the first hides behind the read of clean bytes.
        """
        import cupy

        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        with self._current(contender.torch):
            self._scrub()
            start.record(self.stream)
            for _ in range(repeats):
                contender.replay()
            stop.record(self.stream)
            if meanwhile is not None:
                meanwhile(contender.name)
            stop.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, stop)) * 1e3 / (contender.launches * repeats)

    def event_us(self, contender: Contender, first: int) -> float:
        """The median of a few single launches, each between two events, enqueued behind one read of clean bytes."""
        import cupy

        pairs = [(cupy.cuda.Event(), cupy.cuda.Event()) for _ in range(EVENT_BATCH)]
        with self._current(contender.torch):
            self._scrub()
            for i, (start, stop) in enumerate(pairs):
                start.record(self.stream)
                contender.calls[(first + i) % len(contender.calls)]()
                stop.record(self.stream)
        self.stream.synchronize()
        return median(float(cupy.cuda.get_elapsed_time(a, b)) * 1e3 for a, b in pairs)

    @contextlib.contextmanager
    def _current(self, torch: bool) -> Any:
        """Makes the timing stream current, for CuPy and, where it launches, for torch."""
        with self.stream, contextlib.ExitStack() as stack:
            if torch:
                stack.enter_context(self.kit.torch.cuda.stream(self._torch_stream))
            yield

    def _cupy_graph(self, calls: Sequence[Call]) -> Call:
        import cupy

        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            try:
                for call in calls:
                    call()
            except BaseException:
                with contextlib.suppress(Exception):  # the capture is void; what went wrong is what is raised
                    stream.end_capture()
                raise
            graph = stream.end_capture()
        return lambda: graph.launch(self.stream)

    def _torch_graph(self, calls: Sequence[Call]) -> Call:
        torch = self.kit.torch
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        return graph.replay  # type: ignore[no-any-return]

    # ---- the matched floor ---------------------------------------------------------------------------------------

    def matched_floor(self, stream: Stream, samples: int = 3) -> tuple[Contender, Shape]:
        """The fastest shape of a floor stream, over rotating operands of its own."""
        count = rotation((stream.reads + stream.writes) * stream.nbytes, COLD_BYTES)
        elements = max(16, stream.nbytes)
        sets = []
        for _ in range(count):
            reads = [self.kit.normal((-(-elements // 4),), "float32") for _ in range(stream.reads)]
            sets.append((reads, self.kit.empty((-(-elements // 4),), "float32") if stream.writes else None))

        best: tuple[float, Contender, Shape] | None = None
        for shape in SHAPES:
            contender = self.contender(FLOOR, [self.floor.call(shape, reads, write) for reads, write in sets])
            self.replay_us(contender)
            us = median(self.replay_us(contender) for _ in range(samples))
            if best is None or us < best[0]:
                best = us, contender, shape
        assert best is not None
        return best[1], best[2]

    # ---- all together --------------------------------------------------------------------------------------------

    def contenders(
        self, sets: Sequence[Mapping[str, Call]], *, graph: bool = True
    ) -> tuple[list[Contender], dict[str, str]]:
        """A contender a name, from operand sets that each hold a call a name; peers that fail become an error text."""
        ready, failed = [], {}
        for name in sets[0]:
            try:
                ready.append(self.contender(name, [s[name] for s in sets], graph=graph))
            except Exception as error:
                if name == OURS:
                    raise
                failed[name] = f"{type(error).__name__}: {error}"
        return ready, failed

    def compare(
        self,
        contenders: Sequence[Contender],
        rounds: int,
        meanwhile: Sampler | None = None,
    ) -> dict[str, Timing]:
        """Every contender once a round, the order alternated. `meanwhile` is called while each graph runs."""
        self.warm_up(0.05)
        timings = {c.name: Timing() for c in contenders}
        for contender in contenders:
            self.replay_us(contender)
        for index in range(rounds):
            for contender in alternated(contenders, index):
                timings[contender.name].graph_us.append(self.replay_us(contender, meanwhile))
                timings[contender.name].event_us.append(self.event_us(contender, index * EVENT_BATCH))
        return timings

    def load(self, contenders: Sequence[Contender], repeats: Mapping[str, int], seconds: float) -> None:
        """Keeps the card busy with this very work for so long."""
        end = perf_counter() + seconds
        while perf_counter() < end:
            for contender in contenders:
                self.replay_us(contender, repeats=repeats[contender.name])

    def bursts(
        self, contenders: Sequence[Contender], rounds: int, meanwhile: Sampler | None = None
    ) -> dict[str, list[float]]:
        """Microseconds a launch in every round, in bursts of about `BURST_US`, the order alternated, on a card that this
        very work has kept busy for `WARM_SECONDS`."""
        repeats = {
            c.name: max(repeats_for(self.replay_us(c) * c.launches, BURST_US), -(-BURST_CALLS // c.launches))
            for c in contenders
        }
        self.load(contenders, repeats, WARM_SECONDS)
        timings: dict[str, list[float]] = {c.name: [] for c in contenders}
        for index in range(rounds):
            for contender in alternated(contenders, index):
                timings[contender.name].append(self.replay_us(contender, meanwhile, repeats[contender.name]))
        return timings

    def fastest(self, contenders: Sequence[Contender], samples: int = 5) -> list[Contender]:
        """The contenders, of those called ``name/variant`` the fastest alone, under its bare name."""
        kept: dict[str, tuple[float, Contender]] = {}
        for contender in contenders:
            name, _, variant = contender.name.partition("/")
            us = median(self.replay_us(contender) for _ in range(samples)) if variant else 0.0
            if name not in kept or us < kept[name][0]:
                kept[name] = us, contender
        return [
            replace(contender, name=name, variant=contender.name.partition("/")[2])
            for name, (_, contender) in kept.items()
        ]

    def alone(
        self, contenders: Sequence[Contender], seconds: float, sense: Callable[[], dict[str, Any]], sample: Sampler
    ) -> dict[str, Alone]:
        """Each contender for `seconds` by itself, in blocks that alternate. Large products are limited by power, and by itself a
        contender runs at the clock that its own power leaves it; taking turns gives all the same clock."""
        found = {c.name: Alone() for c in contenders}
        for index in range(ALONE_BLOCKS):
            for contender in alternated(contenders, index):
                repeats = repeats_for(self.replay_us(contender) * contender.launches, ALONE_US)
                began, last = perf_counter(), []
                while (spent := perf_counter() - began) < seconds:
                    us = self.replay_us(contender, sample, repeats)
                    if spent < seconds - SETTLED_SECONDS:
                        sense()  # what was sampled so far does not count
                    else:
                        last.append(us)
                clock, power = sense().get(contender.name, (None, None))
                block = found[contender.name]
                block.blocks_us.append(median(last))
                if clock is not None:
                    block.clocks_mhz.append(clock)
                    block.watts.append(power)
        return found

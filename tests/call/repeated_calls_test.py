"""Further calls of the same layouts at other addresses: what the kernels are given is what they were given at first."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py import functional
from baracuda_py.call.paths.ready import Ready
from baracuda_py.ops.quantized.int4 import relayout as relayout_int4
from baracuda_py.plan import all_ops, get_op
from baracuda_py.runtime import launch
from baracuda_py.runtime.launch import Arguments
from baracuda_py.runtime.tensormap import BYTES, MapEncoder
from baracuda_py.tensor import dlpack
from baracuda_py.types import UnsupportedError

from .. import gauntlet
from ..arena import Slot
from ..gauntlet import KINDS, Case, CudaHome, Fresh, Problem, every_sample, named, repeats, samples_of
from .short_path_test import Lazy
from .simulated import Gpus, simulated

with contextlib.suppress(ImportError):  # where there is torch, its tensors are tried on the device as well
    import torch as _torch  # noqa: F401

OPS = list(all_ops())
STREAM = 99
FEW = 3


class Memory:
    """A simulated GPU's memory in place of `Home`: arrays of CuPy's, or of what `tensors` makes of bytes in host memory."""

    def __init__(self, gpus: Gpus, tensors: Callable[[Any, Slot], Any] = lambda _held, _slot: None) -> None:
        self.gpus, self.tensors = gpus, tensors
        self.regions: list[tuple[int, int]] = []

    def place(self, slot: Slot, kind: str) -> tuple[Any, Callable[[], Any]]:
        gpus = self.gpus
        memory = gpus.array(slot.initial)
        self.regions.append((memory.data.ptr, memory.nbytes))
        if kind == "torch" and (tensor := self.tensors(gpus.read(memory), slot)) is not None:
            self.regions[-1] = tensor.data_ptr() - slot.offset, memory.nbytes
            return tensor, lambda: slot.initial
        dtype = np.dtype(np.uint8) if "float8" in slot.dtype.name else slot.dtype
        array = gpus.over(memory.data + slot.offset, slot.shape, dtype, slot.strides)
        return slot.over(array), lambda: gpus.read(memory)


class Launches:
    """What kernels and copies are given, each address as the operand in whose memory it falls, and how far."""

    def __init__(self, gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gpus, self.words = gpus, []  # type: tuple[Gpus, list[tuple[int, ...]]]
        self.scratch: list[tuple[int, int]] = []
        patch, noted, alloc = Arguments.patch, self.words, gpus.memory

        def patched(arguments: Arguments, *given: Any) -> None:
            patch(arguments, *given)
            noted.append(tuple(arguments._words))

        def memory(nbytes: int, ordinal: int | None = None) -> Any:
            made = alloc(nbytes, ordinal)
            self.scratch.append((made.ptr, max(nbytes, 1)))
            return made

        def encoded(_encoder: MapEncoder, address: int) -> bytes:
            return address.to_bytes(8, "little").ljust(BYTES, b"\0")

        monkeypatch.setattr(Arguments, "patch", patched)
        monkeypatch.setattr(gpus, "memory", memory)
        monkeypatch.setattr(gpus, "allocator", memory)
        monkeypatch.setattr(MapEncoder, "_encode", encoded)
        monkeypatch.setattr(launch, "pdl_launch", lambda *_: lambda stream: gpus.launchKernel(0, stream, 0, 0))

    def begin(self) -> None:
        self.words.clear(), self.gpus.transfers.clear(), self.gpus.events.clear(), self.scratch.clear()

    def named(self, regions: list[tuple[str, int, int]]) -> list[tuple[Any, ...]]:
        """Every number that was given, addresses by name."""
        places = [*regions, *(("allocated", first, size) for first, size in self.scratch)]

        def name(word: int) -> Any:
            for operand, first, size in places:
                if first <= word < first + size:
                    return operand, word - first
            return word

        return [tuple(map(name, words)) for words in (*self.words, *self.gpus.transfers)]


@pytest.fixture(params=["sm_89", "h200"])
def gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    yield from simulated(monkeypatch, request.param)


@pytest.fixture
def launches(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> Launches:
    return Launches(gpus, monkeypatch)


@pytest.fixture(autouse=True)
def _unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read from the device to be checked."""
    monkeypatch.setattr(relayout_int4, "host_values", lambda _x: None)


def alike(problem: Problem, memory: Memory, launches: Launches, kind: str, *, out: bool) -> None:
    """Four calls of one layout at other addresses, every other one on another stream."""
    first: list[Any] = []
    for turn in range(4):
        memory.regions.clear()
        fresh = Fresh(problem, memory, kind, out=out)
        launches.begin()
        stream = {"stream": STREAM} if turn % 2 else {}
        result = problem.call_function(**fresh.operands, device=None, **stream)
        made = [x for x in (result if isinstance(result, tuple) else (result,)) if hasattr(x, "data_ptr")]
        places = [("allocated", x.data_ptr(), max(x.nbytes, 1)) for x in made]
        places[:0] = [(name, *at) for name, at in zip(fresh.operands, memory.regions, strict=True)]
        given = launches.named(places)
        first = first or given
        assert given == first, f"call {turn + 1} gives its kernels other arguments"


@pytest.mark.parametrize("op", OPS)
def test_further_calls_give_kernels_the_same(
    op: str, gpus: Gpus, launches: Launches, long_way: list[Any], bounded: bool
) -> None:
    memory, tried = Memory(gpus), 0
    for sample in samples_of(get_op(op), count=1 if bounded else FEW):
        problem = Problem(get_op(op), sample, "cpu")
        for out in (False, True):
            with named(f"{sample.label}, {'with' if out else 'without'} out"), contextlib.suppress(UnsupportedError):
                before = len(long_way)
                alike(problem, memory, launches, "plain", out=out)
                tried += 1
                packed = any(slot.packed is not None for slot in problem.slots.values())
                assert packed or len(long_way) <= before + 1, "further calls take the long way"
    assert tried


def test_a_planted_wrong_place_is_noticed(gpus: Gpus, launches: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses exchanged on further calls alone."""
    whole = Ready.launch

    def exchanged(ready: Ready, given: Any, pointers: list[int], *rest: Any) -> Any:
        pointers[1], pointers[2] = pointers[2], pointers[1]
        return whole(ready, given, pointers, *rest)

    monkeypatch.setattr(Ready, "launch", exchanged)
    problem = Problem(get_op("add"), samples_of(get_op("add"), count=1)[0], "cpu")
    with pytest.raises(AssertionError, match="call 2 gives its kernels other arguments"):
        alike(problem, Memory(gpus), launches, "plain", out=False)


class Shared(Lazy):
    """One that exports its own memory, each time."""

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        capsule = self.values.__dlpack__(max_version=max_version)
        dlpack._fields(capsule, "x")[0].device.type = self.device_type
        return capsule


def test_a_window_begins_where_it_began(gpus: Gpus, launches: Launches, long_way: list[Any]) -> None:
    """Along the axes whose start is the host's, beside one whose start the device has; and in memory that only a handshake reads,
    whose strides a function does not know."""
    source, start = gpus.array(np.ones((1, 2, 3), np.float16)), gpus.over(gpus.memory(8), (), np.int64)
    dests = [gpus.array(np.zeros((9, 2, 8), np.float16)) for _ in range(3)]
    for dest in dests:
        launches.begin()
        bp.write_slice(dest, source, ((0, 1), (0, 2), (4, 7)), dynamic_axis=0, start=start)
        assert launches.words[0][0] == dest.data.ptr + 8
    assert len(long_way) == 1
    producers = [Shared(gpus, np.zeros((9, 8), np.float16)) for _ in range(3)]
    row = gpus.array(np.ones((1, 8), np.float16))
    for dest in producers:
        launches.begin()
        bp.write_slice(dest, row, ((3, 4), (0, 8)))
        (to, _, nbytes), *_ = gpus.transfers
        assert (to, nbytes) == (dest.values.ctypes.data + 48, 16)


def test_a_function_that_begins_elsewhere_is_an_internal_error(gpus: Gpus) -> None:
    x = gpus.array(np.ones((3, 4), np.float32))
    with pytest.raises(
        bp.InternalError, match=r"begins at bytes \(0, 4\) of the operands, and its descriptor at \(0, 0\)"
    ):
        functional.call(
            bp.ContiguizePlan, {"out": None, "x": x}, lambda: bp.ContiguizeDescriptor.of(x), shifts=(0, 4), device=0
        )
    assert not gpus.work


@every_sample("cuda", count=6)
def test_gauntlet_repeats(case: Case) -> None:
    """The same on a device, where results tell: four calls of each kind of array, with and without outputs, on two streams."""
    import cupy

    gauntlet.warm_op(case)
    torch = sys.modules.get("torch")
    kinds = KINDS if torch is not None and torch.cuda.is_available() else KINDS[:1]
    repeats(
        case.problem, CudaHome(), kinds, synchronise=cupy.cuda.runtime.deviceSynchronize,
        stream=cupy.cuda.Stream(non_blocking=True),
    )  # fmt: skip

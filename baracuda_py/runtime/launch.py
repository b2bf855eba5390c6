"""Runs steps on a device. Kernels are loaded once, argument buffers are packed once, and each call patches the pointers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np

from . import tensormap
from .compile.compiler import Compiled, compile_kernels
from .gpu.driver import driver_error, require_gpu
from .overlap import pdl_launch, supports_pdl
from .steps import (
    WORKSPACE,
    Call,
    Copy,
    Copy2D,
    DeferredScratch,
    Fill,
    Launch,
    Packed,
    Ptr,
    Run,
    Scratch,
    Step,
    Struct,
    TensorMap,
)
from .system.locks import new_lock
from .tensormap import MapEncoder

__all__ = ["Executable", "laid_out", "load_kernel"]

Values: TypeAlias = Mapping[str, Any]
Pointers: TypeAlias = Sequence[int]

_OPT_IN_SHARED = 48 << 10  # bytes per CTA, static and dynamic, that need no opt-in by the kernel
_PORTABLE_CLUSTER = 8  # CTAs of a cluster that need no opt-in by the kernel
_NON_PORTABLE_CLUSTER = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, which CuPy does not name
_TENSOR_MAP_ALIGN = 64
_loaded: dict[tuple[int, str, bytes], tuple[Any, int, int]] = {}  # function, handle, dynamic bytes that it may have
_loading = new_lock()


def load_kernel(compiled: Compiled, shared_bytes: int, ordinal: int, cluster: int = 1) -> int:
    """The driver's function handle on device `ordinal`, which must be current; loads the cubin the first time. The kernel may
    have so much dynamic shared memory and clusters of so many CTAs."""
    identity = (ordinal, compiled.name, compiled.cubin)
    with _loading:
        if identity not in _loaded:
            cupy = require_gpu("loading a kernel")
            driver = cupy.cuda.driver
            try:
                module = cupy.cuda.function.Module()
                module.load(compiled.cubin)  # the bytes that were checked: the file may have been replaced since
                function = module.get_function(compiled.name)
                if cluster > _PORTABLE_CLUSTER:
                    driver.funcSetAttribute(int(function.ptr), _NON_PORTABLE_CLUSTER, 1)
            except (driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
                raise driver_error(error, f"loading {compiled.name}") from None
            _loaded[identity] = (function, int(function.ptr), _OPT_IN_SHARED - compiled.resources.shared_bytes)
        function, handle, allowed = _loaded[identity]
        if shared_bytes > allowed:
            driver = require_gpu("loading a kernel").cuda.driver
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            try:
                driver.funcSetAttribute(handle, attribute, shared_bytes)
            except driver.CUDADriverError as error:
                raise driver_error(error, f"{shared_bytes} bytes of shared memory for {compiled.name}") from None
            _loaded[identity] = (function, handle, shared_bytes)
        return handle


class Runner(Protocol):
    """One step on one device. `prepare` fixes everything but the stream."""

    def run(self, pointers: Pointers, values: Values, scratch: int, stream: int) -> None: ...
    def prepare(self, pointers: Pointers, values: Values, scratch: int) -> Callable[[int], None]: ...


class Executable:
    """The steps of one plan, ready on one device.

    `pointers` follow the order of `operands`; an absent optional operand is 0. Safe to call from several threads.
    """

    def __init__(self, steps: Sequence[Step], operands: Sequence[str], arch: str, ordinal: int) -> None:
        index = {name: i for i, name in enumerate(operands)}
        compiled = compile_kernels([s.kernel for s in steps if isinstance(s, Launch)], arch)
        runners: list[Runner] = []
        for step in steps:
            if isinstance(step, Launch):
                handle = load_kernel(compiled[step.kernel], step.shared_bytes, ordinal, step.cluster)
                runner = _PdlRunner if step.pdl and supports_pdl(arch) else _LaunchRunner
                runners.append(runner(step, handle, index))
            elif isinstance(step, Copy) and isinstance(step.dest, Ptr) and isinstance(step.source, Ptr):
                runners.append(_CopyRunner(step.dest, step.source, step.nbytes, index))
            elif isinstance(step, (Copy, Copy2D, Fill)):
                runners.append(_TransferRunner(step, index))
            else:
                runners.append(_CallRunner(step, index))
        self._runners = tuple(runners)
        # Most plans have one step, whose runner is called directly.
        self.run = runners[0].run if len(runners) == 1 else self._run_all

    def _run_all(self, pointers: Pointers, values: Values, scratch: int, stream: int) -> None:
        for runner in self._runners:
            runner.run(pointers, values, scratch, stream)

    def prepare(self, pointers: Pointers, values: Values, scratch: int) -> tuple[Callable[[int], None], ...]:
        """Calls that take only the stream; their arguments are packed once."""
        return tuple(runner.prepare(pointers, values, scratch) for runner in self._runners)


class Arguments:
    """A kernel's arguments: one buffer of values, and the array of their addresses that the driver reads.

    `encoder` encodes a tensor map for an address: in the driver's format by default, in another for the emulator.
    """

    def __init__(self, args: Sequence[Any], index: Mapping[str, int], encoder: type[Any] = MapEncoder) -> None:
        places, offsets, end = laid_out(args)
        self._storage = np.zeros(end + _TENSOR_MAP_ALIGN + 8, dtype=np.uint8)
        base = -_address_of(self._storage) % _TENSOR_MAP_ALIGN
        buffer = self._storage[base : base + end + (-end % 8)]
        self.table = np.array([_address_of(buffer) + o for o in offsets] or [0], dtype=np.uint64)
        self.address = _address_of(self.table)
        self._words = memoryview(buffer.data).cast("B").cast("Q") if end else memoryview(b"")
        self._plain: list[tuple[int, int]] = []
        self._pointers: list[tuple[int, int, int]] = []
        self._scratch: list[tuple[int, int]] = []
        self._values: list[tuple[int, memoryview, str, Any]] = []
        # The run-time values in the buffer, and the mapping that they were read from: most calls pass the same objects again.
        self._packed: list[Any] = []
        self._given: Values | None = None
        self._maps: list[tuple[memoryview, Any, int, int]] = []
        for arg, offset in places:
            if isinstance(arg, Ptr) and not arg.offset:
                self._plain.append((offset // 8, index[arg.operand]))
            elif isinstance(arg, Ptr):
                self._pointers.append((offset // 8, index[arg.operand], arg.offset))
            elif isinstance(arg, Scratch):
                self._scratch.append((offset // 8, arg.offset))
            elif isinstance(arg, TensorMap):
                view = memoryview(buffer.data)[offset : offset + tensormap.BYTES]
                operand = index[arg.of.operand] if isinstance(arg.of, Ptr) else -1
                self._maps.append((view, encoder(arg), operand, arg.of.offset))
            elif isinstance(arg, Run):
                dtype = np.dtype(arg.dtype)
                view = memoryview(buffer.data)[offset : offset + dtype.itemsize]
                self._values.append((len(self._values), view, arg.name, dtype.type))
                self._packed.append(None)
            else:
                data = arg.data if isinstance(arg, Packed) else arg.tobytes()
                buffer[offset : offset + len(data)] = np.frombuffer(data, dtype=np.uint8)

    def patch(self, pointers: Pointers, values: Values, scratch: int) -> None:
        """Writes a call's pointers and values into the buffer. A mapping of values that was passed before must be unchanged."""
        words = self._words
        for word, operand in self._plain:
            words[word] = pointers[operand]
        for word, operand, offset in self._pointers:
            words[word] = pointers[operand] + offset if pointers[operand] else 0
        for word, offset in self._scratch:
            words[word] = scratch + offset
        for view, encoder, operand, offset in self._maps:
            view[:] = encoder.at((scratch if operand < 0 else pointers[operand]) + offset)
        if values is self._given:
            return
        self._given = None  # the loop may raise between two values
        packed = self._packed
        for i, view, name, scalar in self._values:
            value = values[name]
            if value is not packed[i]:
                view[:] = scalar(value).tobytes()
                packed[i] = value
        self._given = values


def laid_out(args: Sequence[Any]) -> tuple[list[tuple[Any, int]], list[int], int]:
    """The scalars, pointers and maps among a kernel's arguments with their offsets in one buffer, the offset of each argument,
    and the bytes in total. Fields of a struct have C's layout."""
    places: list[tuple[Any, int]] = []
    offsets, end = [], 0
    for arg in args:
        fields = arg.fields if isinstance(arg, Struct) else (arg,)
        align = max(_extent(field)[1] for field in fields)
        end = -(-end // align) * align
        offsets.append(end)
        for field in fields:
            size, own = _extent(field)
            end = -(-end // own) * own
            places.append((field, end))
            end += size
        end = -(-end // align) * align
    return places, offsets, end


def _address_of(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _extent(arg: Any) -> tuple[int, int]:
    """Size and alignment of an argument, in bytes."""
    if isinstance(arg, (Ptr, Scratch)):
        return 8, 8
    if isinstance(arg, Packed):
        return len(arg.data), arg.align
    if isinstance(arg, TensorMap):
        return tensormap.BYTES, _TENSOR_MAP_ALIGN
    size = np.dtype(arg.dtype).itemsize
    return size, size


class _LaunchRunner:
    def __init__(self, step: Launch, function: int, index: Mapping[str, int]) -> None:
        driver = require_gpu("a launch").cuda.driver
        self._step, self._index, self._refused = step, index, driver.CUDADriverError
        self._launch = partial(driver.launchKernel, function, *step.grid, *step.block, step.shared_bytes)
        self._idle = [Arguments(step.args, index)]  # each launch in progress takes one

    def run(self, pointers: Pointers, values: Values, scratch: int, stream: int) -> None:
        try:
            arguments = self._idle.pop()  # atomic, and half the time of a lock
        except IndexError:
            arguments = Arguments(self._step.args, self._index)
        try:
            arguments.patch(pointers, values, scratch)
            self._launch(stream, arguments.address, 0)
        except self._refused as error:
            raise driver_error(error, f"launching {self._step.kernel}") from None
        finally:
            self._idle.append(arguments)  # the driver has copied them when launchKernel returns

    def prepare(self, pointers: Pointers, values: Values, scratch: int) -> Callable[[int], None]:
        own = Arguments(self._step.args, self._index)
        own.patch(pointers, values, scratch)

        def launch_on_stream(
            stream: int, launch: Callable[..., Any] = self._launch, table: int = own.address, _keep: Arguments = own
        ) -> None:
            launch(stream, table, 0)

        return launch_on_stream


class _PdlRunner:
    """A programmatic dependent launch. Its launch configuration belongs to its arguments."""

    def __init__(self, step: Launch, function: int, index: Mapping[str, int]) -> None:
        self._step, self._function, self._index = step, function, index
        self._idle = [self._made()]  # as above

    def _made(self) -> tuple[Arguments, Callable[[int], None]]:
        own = Arguments(self._step.args, self._index)
        return own, pdl_launch(self._function, self._step, own.address)

    def run(self, pointers: Pointers, values: Values, scratch: int, stream: int) -> None:
        try:
            made = self._idle.pop()
        except IndexError:
            made = self._made()
        arguments, launch_on_stream = made
        try:
            arguments.patch(pointers, values, scratch)
            launch_on_stream(stream)
        finally:
            self._idle.append(made)

    def prepare(self, pointers: Pointers, values: Values, scratch: int) -> Callable[[int], None]:
        own, launch_on_stream = self._made()
        own.patch(pointers, values, scratch)
        lock = new_lock()

        def locked(stream: int, _keep: Arguments = own) -> None:
            with lock:  # the stream is a field of the configuration
                launch_on_stream(stream)

        return locked


class _CopyRunner:
    """One memcpy, with the least host time, because an append to a cache consists of it."""

    def __init__(self, dest: Ptr, source: Ptr, nbytes: int, index: Mapping[str, int]) -> None:
        runtime = require_gpu("a copy").cuda.runtime
        self._copy, self._refused = runtime.memcpyAsync, runtime.CUDARuntimeError
        self._dest, self._source = index[dest.operand], index[source.operand]
        self._offsets = dest.offset, source.offset
        self._nbytes, self._kind = nbytes, runtime.memcpyDeviceToDevice

    def run(self, pointers: Pointers, _values: Values, _scratch: int, stream: int) -> None:
        to, of = self._offsets
        try:
            self._copy(pointers[self._dest] + to, pointers[self._source] + of, self._nbytes, self._kind, stream)
        except self._refused as error:
            raise driver_error(error, "copying") from None

    def prepare(self, pointers: Pointers, _values: Values, _scratch: int) -> Callable[[int], None]:
        to, of = self._offsets
        return partial(self._copy, pointers[self._dest] + to, pointers[self._source] + of, self._nbytes, self._kind)


class _TransferRunner:
    """A copy of scratch, a pitched copy or a fill: a runtime call whose last argument is the stream."""

    def __init__(self, step: Copy | Copy2D | Fill, index: Mapping[str, int]) -> None:
        runtime = require_gpu("a copy").cuda.runtime
        self._step, self._index = step, index
        self._kind, self._refused = runtime.memcpyDeviceToDevice, runtime.CUDARuntimeError
        calls: dict[type[Step], Callable[..., Any]] = {
            Copy: runtime.memcpyAsync,
            Copy2D: runtime.memcpy2DAsync,
            Fill: runtime.memsetAsync,
        }
        self._call = calls[type(step)]

    def run(self, pointers: Pointers, _values: Values, scratch: int, stream: int) -> None:
        try:
            self._call(*self._fixed(pointers, scratch), stream)
        except self._refused as error:
            raise driver_error(error, "copying") from None

    def prepare(self, pointers: Pointers, _values: Values, scratch: int) -> Callable[[int], None]:
        return partial(self._call, *self._fixed(pointers, scratch))

    def _fixed(self, pointers: Pointers, scratch: int) -> tuple[int, ...]:
        step = self._step
        dest = self._at(step.dest, pointers, scratch)
        if isinstance(step, Fill):
            return dest, step.value, step.nbytes
        source = self._at(step.source, pointers, scratch)
        if isinstance(step, Copy):
            return dest, source, step.nbytes, self._kind
        return dest, step.dest_pitch, source, step.source_pitch, step.width, step.height, self._kind

    def _at(self, place: Ptr | Scratch, pointers: Pointers, scratch: int) -> int:
        begins = scratch if isinstance(place, Scratch) else pointers[self._index[place.operand]]
        return begins + place.offset


class _CallRunner:
    """A library routine, called as ``function(pointers by operand, values, stream)``."""

    def __init__(self, step: Call, index: Mapping[str, int]) -> None:
        self._step, self._index = step, index
        if step.load is not None:
            step.load()

    def run(self, pointers: Pointers, values: Values, scratch: int, stream: int) -> None:
        self._step.function(self._by_name(pointers, scratch), values, stream)

    def prepare(self, pointers: Pointers, values: Values, scratch: int) -> Callable[[int], None]:
        return partial(self._step.function, self._by_name(pointers, scratch), dict(values))

    def _by_name(self, pointers: Pointers, scratch: int) -> dict[str, int]:
        named = {name: pointers[i] for name, i in self._index.items()}
        own = self._step.scratch
        return named | {WORKSPACE: scratch + own.offset} if isinstance(own, (Scratch, DeferredScratch)) else named

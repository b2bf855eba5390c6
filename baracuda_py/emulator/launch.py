"""A plan's steps on copies of its operands: `machine` runs every launch, with the packed arguments that a GPU would get."""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..runtime.compile.compiler import compile_ptx
from ..runtime.launch import Arguments
from ..runtime.overlap import supports_pdl
from ..runtime.steps import Call, Copy, Copy2D, Fill, Kernel, Launch, Ptr, Scratch, Step
from ..tensor import Tensor
from ..types import DeviceSpec, UnsupportedError
from ..types.faults import KernelFault
from .launched import Launched
from .memory.generic import PARAMETERS
from .memory.global_memory import GlobalMemory, Region
from .memory.maps import EmulatedMap
from .memory.operands import fill, move, put_back, regions_of, together
from .options import PATIENCE, Options, current_options
from .ptx.parse import parse
from .ptx.syntax import SIZES
from .report.counters import Counters
from .report.report import LaunchReport, Report
from .threads.lanes import Array
from .translation.emit_memory import EMITTERS
from .translation.translate import Translator
from .unknown import FRESH, KNOWN, Variation, check
from .waves import run_launch

__all__ = ["Emulator", "Program", "translated", "translator"]

# The base addresses of the regions. They are far from one another, so that an address just outside a region is in no other.
WORKSPACE, CONSTANTS = 0x7C00_0000_0000, 0x7D00_0000_0000
STRIDE = 1 << 32


@lru_cache(maxsize=1024)
def translated(kernel: Kernel, arch: str) -> Translator:
    """A kernel as Python: compiled to PTX (or from the cache), read and translated once per process. UnsupportedError, naming
    the kernel, if the emulator cannot read it."""
    ptx = _TARGET.sub("", compile_ptx(kernel, arch, lines=True))
    try:
        return _translated(ptx)
    except UnsupportedError as error:
        fix = error.fix or "choose another variant, or run it on a GPU"
        raise UnsupportedError(f"{error.reason}, of {kernel} for {arch}", fix) from None


_TARGET = re.compile(r"^[ \t]*\.(target|version)\b.*$", re.MULTILINE)  # most kernels differ only in this between arches


@lru_cache(maxsize=1024)
def _translated(ptx: str) -> Translator:
    """PTX that several arches share is translated once."""
    return translator(ptx)


def translator(ptx: str, entry: str = "") -> Translator:
    """An entry of a PTX text as Python, the only one if it is not named."""
    return Translator(parse(ptx, entry), EMITTERS)


class Emulator:
    """The backend of emulated plans (`plan.backend.Backend`)."""

    def program(self, op: str, steps: Sequence[Step], operands: Sequence[str], arch: str) -> Program:
        return Program(op, steps, operands, arch)


class Program:
    """The steps of one plan. Thread-safe: it holds no data."""

    def __init__(
        self, op: str, steps: Sequence[Step], operands: Sequence[str], arch: str,
        translate: Callable[[Kernel, str], Translator] = translated,
    ) -> None:  # fmt: skip
        for step in steps:
            if isinstance(step, Call):
                raise UnsupportedError(
                    f"{op}: the plan calls {step.library}, which is no kernel of ours and cannot be emulated",
                    "choose another variant: PlanPreference(variant=...)",
                )
        self._op, self._steps, self._arch = op, tuple(steps), arch
        self._index = {name: i for i, name in enumerate(operands)}
        self._kernels = {s.kernel: translate(s.kernel, arch) for s in steps if isinstance(s, Launch)}

    def run(
        self, tensors: Mapping[str, Tensor], written: Collection[str], values: Mapping[str, Any], workspace: int,
        options: Options | None = None, *, accesses: bool = False, flops: float = 0.0, nbytes: float = 0.0,
    ) -> Report:  # fmt: skip
        """Runs the steps on copies of the operands, given as footprints on the host by name. Operands in `written` are copied
        back at the end, unless a step faults. `accesses` also counts sectors and wavefronts. `flops` and `nbytes` are the
        expected work: UnsupportedError if it would take minutes. By default `options` are those in effect."""
        began, options = time.perf_counter(), options or current_options()
        groups = together(tensors)
        options.refuse_large(self._op, sum(high - low for low, high, _ in groups) + workspace, flops, nbytes)
        regions, places = regions_of(groups, tensors, written)
        operands = list(regions)
        if workspace:
            scratch = np.full(workspace, FRESH, np.uint8)
            regions.append(Region("workspace", WORKSPACE, scratch, known=False))
        pointers = [places.get(name, 0) for name in self._index]
        report = Report(self._op, self._arch)
        for step in self._steps:
            if isinstance(step, Launch):
                report.launches.append(self._launch(step, regions, pointers, values, options, accesses, began))
            else:
                self._transfer(step, regions, pointers)
        for region in operands:
            put_back(region)
        report.seconds = time.perf_counter() - began
        return report

    # ---- launches ---------------------------------------------------------------------------------------------------

    def _launch(
        self, step: Launch, regions: list[Region], pointers: list[int], values: Mapping[str, Any], options: Options,
        accesses: bool, began: float,
    ) -> LaunchReport:  # fmt: skip
        code = self._kernels[step.kernel]
        arguments = Arguments(step.args, self._index, EmulatedMap)
        arguments.patch(pointers, values, WORKSPACE)
        parameters = _parameters(arguments, code)
        held, places = _constants(code)
        before = [(r, r.bytes.copy(), None if r.known is None else r.known.copy()) for r in regions if r.writable]

        pdl, shared_limit = step.pdl and supports_pdl(self._arch), DeviceSpec.named(self._arch).shared_bytes
        deadline = 0.0 if options.force else began + PATIENCE
        grain = (
            min([4, *(SIZES[i.opcode[-1]] for i in code.instructions if _stores(i.opcode))]) if options.checks else 0
        )

        def once(variation: Variation) -> tuple[Launched, KernelFault | None]:
            memory = GlobalMemory(
                [
                    *regions,
                    Region(".parameters", PARAMETERS, parameters[: code.entry.parameter_bytes], writable=False),
                    *held,
                ],
                grain=grain,
            )
            launched = Launched(
                code, str(step.kernel), memory, parameters, step.grid, step.block, step.shared_bytes, options,
                Counters(accesses=accesses and not variation), pdl=pdl, constants=places, shared_limit=shared_limit,
                variation=variation, deadline=deadline,
            )  # fmt: skip
            try:
                run_launch(launched)
            except KernelFault as fault:
                return launched, fault
            return launched, None

        launched, fault = once(KNOWN)
        if launched.suspects and options.checks:
            check(lambda variation: once(variation)[1], code.instructions, launched.suspects, fault, before)
        if fault is not None:
            raise fault
        return LaunchReport(str(step.kernel), step.grid, step.block, launched.counters)

    # ---- copies and fills -------------------------------------------------------------------------------------------

    def _transfer(self, step: Copy | Copy2D | Fill | Any, regions: list[Region], pointers: list[int]) -> None:
        def at(place: Ptr | Scratch) -> int:
            if isinstance(place, Scratch):
                return WORKSPACE + place.offset
            return pointers[self._index[place.operand]] + place.offset

        if isinstance(step, Fill):
            fill(regions, at(step.dest), step.value, step.nbytes)
            return
        if isinstance(step, Copy):
            rows = [(at(step.dest), at(step.source), step.nbytes)]
        else:
            rows = [
                (at(step.dest) + i * step.dest_pitch, at(step.source) + i * step.source_pitch, step.width)
                for i in range(step.height)
            ]
        for to, of, nbytes in rows:
            move(regions, to, of, nbytes)


def _stores(opcode: tuple[str, ...]) -> bool:
    return opcode[0] in ("st", "atom", "red") and "shared" not in opcode[1] and opcode[-1] in SIZES


def _parameters(arguments: Arguments, code: Translator) -> Array:
    """The kernel's parameter space, from the array of addresses that a driver would read."""
    entry = code.entry
    buffer = np.zeros(entry.parameter_bytes + 16, np.uint8)
    for (offset, size), address in zip(entry.parameters.values(), arguments.table):
        buffer[offset : offset + size] = np.frombuffer(ctypes.string_at(int(address), size), np.uint8)
    return buffer


def _constants(code: Translator) -> tuple[list[Region], dict[str, int]]:
    """Variables of the module."""
    regions, places = [], {}
    source = code.source if code.entry.constants else ""
    for i, variable in enumerate(v for v in code.entry.constants.values() if f"CONSTANTS[{v.name!r}]" in source):
        size = SIZES[variable.kind]
        data = np.zeros(max(variable.nbytes, 1), np.uint8)
        for k, value in enumerate(variable.values):
            data[k * size : (k + 1) * size] = np.frombuffer(
                (value & (1 << 8 * size) - 1).to_bytes(size, "little"), np.uint8
            )
        places[variable.name] = CONSTANTS + i * STRIDE
        regions.append(Region(f".{variable.name}", places[variable.name], data, writable=False))
    return regions, places

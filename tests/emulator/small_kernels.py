"""Small kernels on the emulator's engine: CUDA or PTX text, run on NumPy arrays as a plan's launch is.

``small(text).run(grid, block, x=x, n=np.int32(5), out=out)`` gives the arguments in the kernel's order. What is an array is an
operand, and written where its name begins with ``out``; NumPy scalars and the steps' own arguments are passed unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from baracuda_py.emulator.launch import Program, translator
from baracuda_py.emulator.options import Options
from baracuda_py.emulator.report.report import Report
from baracuda_py.emulator.translation.translate import Translator
from baracuda_py.runtime.compile import compiler
from baracuda_py.runtime.steps import Kernel, Launch, Ptr
from baracuda_py.tensor import intake

__all__ = ["ARCH", "HEAD", "SmallKernel", "ptx_of", "run_steps", "small", "written_in_ptx"]

ARCH = "sm_90a"
FILE = "small.cu"
HEAD = f".version 8.7\n.target {ARCH}\n.address_size 64\n"


@cache
def ptx_of(text: str, arch: str = ARCH) -> str:
    """What NVRTC makes of a CUDA text, line information included."""
    source = SimpleNamespace(headers={}, program=text, file=FILE, system=())
    with compiler._Program(source, (), FILE) as program:  # type: ignore[arg-type]
        program.compile((f"-arch={arch.replace('sm_', 'compute_')}", "-lineinfo", *compiler._options(source)))  # type: ignore[arg-type]
        return compiler._relative(compiler._text(program.nvrtc.getPTX(program.handle)), source)  # type: ignore[arg-type]


@dataclass(frozen=True)
class SmallKernel:
    """A kernel that is no file's. `text` is what it was written in, CUDA or PTX."""

    text: str
    code: Translator
    arch: str = ARCH

    def step(self, grid: Any, block: Any, args: dict[str, Any], *, shared: int = 0, pdl: bool = False) -> Launch:
        """The launch on operands by name and other arguments unchanged."""
        given = tuple(Ptr(name) if isinstance(x, np.ndarray) else x for name, x in args.items())
        return Launch(Kernel(FILE, self.code.entry.name), _three(grid), _three(block), given, shared, pdl=pdl)

    def run(
        self, grid: Any, block: Any, *, shared: int = 0, pdl: bool = False, workspace: int = 0,
        options: Options | None = None, operands: dict[str, Any] | None = None, **args: Any,
    ) -> Report:  # fmt: skip
        """Launches it. `operands` are further arrays, which tensor maps among the arguments name."""
        step = self.step(grid, block, args, shared=shared, pdl=pdl)
        arrays = {n: x for n, x in args.items() if isinstance(x, np.ndarray)} | (operands or {})
        return run_steps([(self, step)], arrays, workspace=workspace, options=options)

    def line(self, mark: str) -> str:
        """``small.cu:7``, the place of the only line of the CUDA text that ends in ``// mark``."""
        lines = [i for i, line in enumerate(self.text.splitlines(), 1) if line.endswith(f"// {mark}")]
        assert len(lines) == 1, f"{len(lines)} lines are marked {mark!r}"
        return f"{FILE}:{lines[0]}"


def run_steps(
    steps: Sequence[tuple[SmallKernel | None, Any]], arrays: dict[str, Any], *, workspace: int = 0, options: Options | None = None
) -> Report:  # fmt: skip
    """Runs launches, each with its kernel, and other steps one behind the other."""
    codes = {step.kernel: kernel.code for kernel, step in steps if kernel is not None}
    tensors = {name: intake(x, what=name) for name, x in arrays.items()}
    arch = next((kernel.arch for kernel, _ in steps if kernel is not None), ARCH)
    program = Program(
        "small", [step for _, step in steps], tuple(arrays), arch, translate=lambda kernel, _: codes[kernel]
    )
    written = {name for name in arrays if name.startswith("out")}
    return program.run(tensors, written, {}, workspace, options or Options())


@cache
def small(text: str, entry: str = "", arch: str = ARCH) -> SmallKernel:
    """The kernel `entry` of a CUDA text, or its only one."""
    return SmallKernel(text, translator(ptx_of(text, arch), entry), arch)


def written_in_ptx(text: str, entry: str = "", arch: str = ARCH) -> SmallKernel:
    """The kernel of a PTX text, whose head may be left away."""
    return SmallKernel(text, translator(text if ".version" in text else HEAD + text, entry), arch)


def _three(extents: Any) -> tuple[int, int, int]:
    given = (extents,) if isinstance(extents, int) else tuple(extents)
    return (*given, *(1,) * (3 - len(given)))  # type: ignore[return-value]

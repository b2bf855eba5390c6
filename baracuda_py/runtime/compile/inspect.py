"""A plan's view of its kernels: source, PTX, SASS, resources and launch shape."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from ...types import UnsupportedError
from ..steps import Launch
from ..system.toolchain import disassembler
from .compiler import Compiled, Resources, compile_kernels, compile_ptx
from .sources import source_of

__all__ = ["KernelView"]

_TOOLS = "pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm, or install the CUDA toolkit"


class KernelView:
    """One kernel of a plan. Nothing is compiled until `ptx`, `sass` or `resources` is read; no GPU is needed."""

    def __init__(self, launch: Launch, arch: str) -> None:
        self._launch = launch
        self._arch = arch

    @property
    def name(self) -> str:
        """The C++ name expression."""
        return self._launch.kernel.entry

    @property
    def grid(self) -> tuple[int, int, int]:
        return self._launch.grid

    @property
    def block(self) -> tuple[int, int, int]:
        return self._launch.block

    @property
    def shared_memory_bytes(self) -> int:
        """Dynamic shared memory per CTA."""
        return self._launch.shared_bytes

    @property
    def source(self) -> str:
        """The CUDA text that NVRTC compiles."""
        return source_of(self._launch.kernel).program

    @property
    def ptx(self) -> str:
        return compile_ptx(self._launch.kernel, self._arch)

    @property
    def resources(self) -> Resources:
        """Registers, spills, stack and static shared memory, from the compile log."""
        return self._compiled().resources

    @property
    def sass(self) -> str:
        """The machine code. Needs cuobjdump or nvdisasm; UnsupportedError says how to get one."""
        tool = disassembler()
        if tool is None:
            raise UnsupportedError(
                "showing SASS needs cuobjdump or nvdisasm, and neither is on PATH, in a CUDA toolkit, in a CUDA wheel or "
                f"in Triton: {_TOOLS}"
            )
        compiled = self._compiled()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.cubin"
            path.write_bytes(compiled.cubin)
            command = (
                [tool, "-sass", "-fun", compiled.name, str(path)] if "cuobjdump" in tool else [tool, "-c", str(path)]
            )
            try:
                ran = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            except OSError as error:  # the tool is of another architecture, or was removed
                raise UnsupportedError(f"{tool} does not run ({error.strerror or error}): {_TOOLS}") from None
        if ran.returncode:
            said = " ".join((ran.stderr.strip() or ran.stdout.strip()).split())
            raise UnsupportedError(
                f"{tool} refused the cubin for {self._arch} ({said}): it may be older than that: {_TOOLS}"
            )
        return ran.stdout

    def _compiled(self) -> Compiled:
        return compile_kernels([self._launch.kernel], self._arch)[self._launch.kernel]

    def __repr__(self) -> str:
        return f"<kernel {self.name} grid={self.grid} block={self.block}>"

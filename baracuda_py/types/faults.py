"""Faults of emulated kernels, all subclasses of :class:`KernelFault`: what happened, to which bytes, and by which thread."""

from __future__ import annotations

from .errors import BaracudaError

__all__ = [
    "BarrierFault",
    "DeadlockFault",
    "DivergenceFault",
    "KernelFault",
    "MisalignedFault",
    "OutOfBoundsFault",
    "OverflowFault",
    "ProxyFault",
    "RaceFault",
    "ReadOnlyFault",
    "TrapFault",
    "UninitialisedFault",
]


class KernelFault(BaracudaError, RuntimeError):
    """A kernel did something that a GPU forbids or leaves undefined. No operand was written.

    `message` says what happened. If known, `kernel` names the kernel (``"gemm/tc.cu:tc<...>"``). `operand` (``""`` for shared
    memory), `space` (``"global"``, ``"shared"``, ``"local"``, ``"parameter"``), `byte` (an offset in the operand or in the
    CTA's shared memory) and `extent` (the size in bytes) give the address. `cta` and `thread` are the linear indices of the
    thread. `source` (``"gemm/tc.cu:88"``), `ptx_line` and `instruction` (PTX) give the statement.
    """

    def __init__(
        self,
        message: str,
        fix: str = "",
        *,
        kernel: str = "",
        operand: str = "",
        space: str = "",
        byte: int | None = None,
        extent: int | None = None,
        cta: int | None = None,
        thread: int | None = None,
        source: str = "",
        ptx_line: int | None = None,
        instruction: str = "",
    ) -> None:
        self.message = message
        self.kernel = kernel
        self.operand = operand
        self.space = space
        self.byte = byte
        self.extent = extent
        self.cta = cta
        self.thread = thread
        self.source = source
        self.ptx_line = ptx_line
        self.instruction = instruction
        doer = self._doer()
        super().__init__(f"{message}{self._address()}{f': {doer}' if doer else ''}", fix)

    def _address(self) -> str:
        """The words for the bytes: `` at out+4080, which has 4092``."""
        place = self.operand or (f"{self.space} memory" if self.space else "")
        if not place:
            return ""
        if not self.operand and self.byte is None:
            return f" in {place}"
        at = "" if self.byte is None else f"{self.byte:+d}"
        return f" at {place}{at}" + ("" if self.extent is None else f", which has {self.extent}")

    def _doer(self) -> str:
        """The words for the thread, and the place in the program."""
        line = "" if self.ptx_line is None else f"PTX line {self.ptx_line}"
        ptx = ", ".join(filter(None, (line, self.instruction)))
        parts = (
            "" if self.cta is None else f"CTA {self.cta}",
            "" if self.thread is None else f"thread {self.thread}",
            f"{self.source} ({ptx})" if self.source and ptx else self.source or ptx,
            f"kernel {self.kernel}" if self.kernel else "",
        )
        return ", ".join(filter(None, parts))


class OutOfBoundsFault(KernelFault):
    """An access outside an operand's elements (the gaps of a strided view are outside), or outside the memory of a CTA."""


class MisalignedFault(KernelFault):
    """An access at an address that is not a multiple of the instruction's alignment."""


class ReadOnlyFault(KernelFault):
    """A store into an operand that the plan only reads."""


class UninitialisedFault(KernelFault):
    """A value that was never written reached a result, a branch or an address."""


class RaceFault(KernelFault):
    """Two accesses to the same bytes, one of them a store, that nothing orders."""


class ProxyFault(KernelFault):
    """An access by the asynchronous proxy and one by the generic proxy, with no proxy fence between them."""


class DivergenceFault(KernelFault):
    """A collective instruction that only a part of its warp reached."""


class BarrierFault(KernelFault):
    """A barrier or an mbarrier was misused: not initialised, too many arrivals, or a different count."""


class DeadlockFault(KernelFault):
    """Every running thread waits for an event that cannot occur."""


class OverflowFault(KernelFault):
    """An integer that overflowed and was then used as an address."""


class TrapFault(KernelFault):
    """The kernel executed ``trap``, as a failed assertion does."""

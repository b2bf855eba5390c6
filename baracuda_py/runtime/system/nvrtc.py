"""NVRTC through cuda.bindings, by the names of CuPy's module ``cupy.cuda.nvrtc``, for installations without CuPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

__all__ = ["BindingsNvrtc", "Nvrtc", "NvrtcError"]

Program: TypeAlias = Any


class Nvrtc(Protocol):
    """What is called of NVRTC: this part of CuPy's module, or `BindingsNvrtc`. Text may come as bytes."""

    @property
    def NVRTCError(self) -> type[Exception]: ...
    def getVersion(self) -> tuple[int, int]: ...
    def createProgram(self, source: str, name: str, headers: Sequence[bytes], names: Sequence[bytes]) -> Program: ...
    def addNameExpression(self, program: Program, name: str) -> object: ...
    def compileProgram(self, program: Program, options: Sequence[str]) -> object: ...
    def getLoweredName(self, program: Program, name: str) -> str | bytes: ...
    def getProgramLog(self, program: Program) -> str | bytes: ...
    def getPTX(self, program: Program) -> bytes: ...
    def getCUBIN(self, program: Program) -> bytes:
        """The cubin without its last byte, which is zero: so CuPy returns it."""

    def destroyProgram(self, program: Program) -> None: ...


class NvrtcError(RuntimeError):
    """An answer of NVRTC that is not success."""


class BindingsNvrtc:
    """`Nvrtc` over the module ``cuda.bindings.nvrtc``."""

    NVRTCError: type[Exception] = NvrtcError

    def __init__(self, module: Any) -> None:
        self._module = module

    def getVersion(self) -> tuple[int, int]:
        major, minor = self._checked(self._module.nvrtcVersion())
        return int(major), int(minor)

    def createProgram(self, source: str, name: str, headers: Sequence[bytes], names: Sequence[bytes]) -> Program:
        made = self._module.nvrtcCreateProgram(source.encode(), name.encode(), len(headers), list(headers), list(names))
        return self._checked(made)[0]

    def addNameExpression(self, program: Program, name: str) -> None:
        self._checked(self._module.nvrtcAddNameExpression(program, name.encode()))

    def compileProgram(self, program: Program, options: Sequence[str]) -> None:
        given = [option.encode() for option in options]
        self._checked(self._module.nvrtcCompileProgram(program, len(given), given))

    def getLoweredName(self, program: Program, name: str) -> bytes:
        found: bytes = self._checked(self._module.nvrtcGetLoweredName(program, name.encode()))[0]
        return found

    def getProgramLog(self, program: Program) -> bytes:
        return self._read(self._module.nvrtcGetProgramLogSize, self._module.nvrtcGetProgramLog, program)

    def getPTX(self, program: Program) -> bytes:
        return self._read(self._module.nvrtcGetPTXSize, self._module.nvrtcGetPTX, program)

    def getCUBIN(self, program: Program) -> bytes:
        return self._read(self._module.nvrtcGetCUBINSize, self._module.nvrtcGetCUBIN, program)

    def destroyProgram(self, program: Program) -> None:
        self._checked(self._module.nvrtcDestroyProgram(program))

    def _read(self, size: Callable[[Program], Any], copy: Callable[..., Any], program: Program) -> bytes:
        """What NVRTC writes into memory, without its last byte."""
        (nbytes,) = self._checked(size(program))
        memory = bytearray(int(nbytes) + 1)  # not bytes: Python shares those of length 0 and 1
        self._checked(copy(program, memory))
        return bytes(memory[: max(int(nbytes) - 1, 0)])

    def _checked(self, answer: tuple[Any, ...]) -> tuple[Any, ...]:
        code, *rest = answer
        if int(code):
            raise NvrtcError(f"{code.name} ({int(code)})")
        return tuple(rest)

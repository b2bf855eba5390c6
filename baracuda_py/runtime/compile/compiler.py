"""Compiles kernels with NVRTC, to a cubin (with registers, spills and shared memory from the compile log) or to PTX."""

from __future__ import annotations

import logging
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, astuple, dataclass
from typing import Any

from ...types import CompileError
from ..steps import Kernel
from ..system.toolchain import cccl_version, include_dirs, nvrtc, nvrtc_build, nvrtc_version
from . import cache
from .sources import Source, source_of

__all__ = ["Compiled", "Resources", "compile_kernels", "compile_ptx", "entry_key", "known_resources", "line_info"]

log = logging.getLogger("baracuda_py")


@dataclass(frozen=True)
class Resources:
    """A kernel's use of an SM, as ptxas reports it. Bytes are per thread, shared memory per CTA."""

    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class Compiled:
    """A kernel built for an arch."""

    name: str  # mangled
    cubin: bytes
    resources: Resources
    seconds: float  # NVRTC's time; 0.0 when it came from the cache


def _language() -> tuple[str, ...]:
    # No --use_fast_math and no -ftz: subnormals are kept unless a kernel uses approx.ftz itself. Without a seed, names of
    # internal linkage contain a random number, and every process that compiles a kernel stores another cubin. --minimal omits
    # textures, surfaces and the runtime's types, whose parsing takes a third of a small kernel's compile time. NVRTC's own
    # cache, in the driver's folder, gives a cubin without ptxas's log: no resources, and no complaint about a refused kernel.
    known = ("--frandom-seed=baracuda", "--minimal", "--no-cache") if nvrtc_version() >= _KNOWN else ()
    return ("--std=c++17", *known)


_KNOWN = (12, 9)  # the oldest NVRTC known to accept these


def _options(kernel_source: Source) -> tuple[str, ...]:
    headers = frozenset(kernel_source.system)
    return (*_language(), *(f"-I{folder}" for folder in (include_dirs(headers) if headers else ())))


_LINES: ContextVar[bool] = ContextVar("line_info", default=False)
_LINE_INFO = "-lineinfo"


@contextmanager
def line_info() -> Iterator[None]:
    """A context in which cubins are built or loaded with source lines, which compute-sanitizer and Nsight Compute show. The
    code is the same. Kernels that this process has already loaded are not affected."""
    token = _LINES.set(True)
    try:
        yield
    finally:
        _LINES.reset(token)


def entry_key(kernel: Kernel, arch: str) -> str:
    """The cache key: our code, the name expression, options, arch, NVRTC's build and CCCL's version. With source lines the key
    covers comments too, because they move lines."""
    source = source_of(kernel)
    if _LINES.get():
        return cache.key(_LINE_INFO, source.exact_digest, kernel.entry, arch, *_language(), *_versions(source))
    return cache.key(source.code_digest, kernel.entry, arch, *_language(), *_versions(source))


def ptx_key(kernel: Kernel, arch: str) -> str:
    """The cache key of PTX with source lines. It covers comments, because they move lines."""
    source = source_of(kernel)
    return cache.key("ptx", source.exact_digest, kernel.entry, arch, *_language(), *_versions(source))


def _versions(source: Source) -> tuple[str, str]:
    return nvrtc_build(), cccl_version() if source.system else ""


def compile_kernels(kernels: Iterable[Kernel], arch: str, *, force: bool = False) -> dict[Kernel, Compiled]:
    """Builds each kernel for `arch` (``"sm_90a"``) or loads it from the cache. It needs no GPU.

    Kernels that share a file and prelude compile as one program. Raises CompileError with the first error line.
    """
    done: dict[Kernel, Compiled] = {}
    missing: dict[tuple[str, str], list[Kernel]] = defaultdict(list)
    for kernel in dict.fromkeys(kernels):
        built = None if force else _recall(cache.load(entry_key(kernel, arch)))
        if built:
            done[kernel] = built
        else:
            missing[kernel.file, kernel.prelude].append(kernel)
    for group in missing.values():
        done.update(_build(group, arch))
    return done


def known_resources(kernel: Kernel, arch: str) -> Resources | None:
    """What a kernel takes of an SM, if it is in the cache; nothing is built."""
    built = _recall(cache.load(entry_key(kernel, arch)))
    return built.resources if built else None


def _recall(hit: cache.Hit | None) -> Compiled | None:
    """The record in an entry, or None where it is malformed: then the kernel is built again."""
    if hit is None:
        return None
    try:
        name, resources = hit.meta["name"], Resources(**hit.meta["resources"])
        known = name.encode() in hit.code and all(type(value) is int for value in astuple(resources))
    except (KeyError, TypeError, AttributeError):
        return None
    return Compiled(name, hit.code, resources, 0.0) if known else None


def _build(group: Sequence[Kernel], arch: str) -> dict[Kernel, Compiled]:
    source = source_of(group[0])
    began = time.perf_counter()
    with _Program(source, [k.entry for k in group], f"{group[0]} for {arch}") as program:
        lines = (_LINE_INFO,) if _LINES.get() else ()
        program.compile((f"-arch={arch}", "--ptxas-options=-v", *lines, *_options(source)))
        # getCUBIN drops the ELF's last byte, which disassemblers miss.
        cubin = program.nvrtc.getCUBIN(program.handle) + b"\0"
        names = [program.lowered(k.entry) for k in group]
        usage = parse_log(program.log())
    seconds = time.perf_counter() - began
    log.debug("compiled %d kernels of %s for %s in %.2f s", len(group), group[0].file, arch, seconds)
    built = {
        kernel: Compiled(name, cubin, usage.get(name, Resources(0, 0, 0, 0)), seconds / len(group))
        for kernel, name in zip(group, names)
    }
    cache.store(cubin, {entry_key(kernel, arch): _record(kernel, arch, each) for kernel, each in built.items()})
    return built


def _record(kernel: Kernel, arch: str, built: Compiled) -> dict[str, Any]:
    return {"name": built.name, "kernel": str(kernel), "arch": arch, "resources": asdict(built.resources)}


def compile_ptx(kernel: Kernel, arch: str, *, lines: bool = False, force: bool = False) -> str:
    """Compiles the kernel to PTX.

    With `lines` the PTX names the line and the file under ``kernels/`` of each instruction (PTX ISA, Debugging Directives:
    .file and .loc), and is cached; `force` compiles it again.
    """
    if not lines:
        return _build_ptx(kernel, arch)
    entry = ptx_key(kernel, arch)
    text = None if force else _recall_ptx(cache.load(entry, "ptx"))
    if text is None:
        text = _relative(_build_ptx(kernel, arch, _LINE_INFO), source_of(kernel))
        cache.store(text.encode(), {entry: {"kernel": str(kernel), "arch": arch}}, "ptx")
    return text


def _build_ptx(kernel: Kernel, arch: str, *options: str) -> str:
    source = source_of(kernel)
    with _Program(source, [kernel.entry], f"{kernel} for {arch}") as program:
        program.compile((f"-arch={arch.replace('sm_', 'compute_')}", *options, *_options(source)))
        return _text(program.nvrtc.getPTX(program.handle))


def _recall_ptx(hit: cache.Hit | None) -> str | None:
    """The PTX in an entry, or None where it is malformed: then it is built again."""
    try:
        text = hit.code.decode() if hit is not None else ""
    except UnicodeDecodeError:
        return None
    return text if _PTX_ENTRY.search(text) else None


_PTX_ENTRY = re.compile(r"^\s*(\.\w+\s+)?\.entry\s", re.MULTILINE)
_PTX_FILE = re.compile(r'^(\s*\.file\s+\d+\s+")([^"]*)', re.MULTILINE)


def _relative(text: str, source: Source) -> str:
    """`text` with our files named relative to ``kernels/``: NVRTC prepends the working directory."""
    places = {source.file: source.file} | {name: f"include/{name}" for name in source.headers}

    def placed(found: re.Match[str]) -> str:
        ours = [name for name in (*places, "prelude") if found[2].endswith(f"/{name}") or found[2] == name]
        return found[1] + (places.get(name, name) if (name := max(ours, key=len, default="")) else found[2])

    return _PTX_FILE.sub(placed, text)


def _text(answer: str | bytes) -> str:
    """NVRTC's text, which comes partly as bytes."""
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


class _Program:
    """An NVRTC program, destroyed on exit. NVRTC's errors are CompileErrors with its log."""

    def __init__(self, source: Source, entries: Sequence[str], what: str) -> None:
        self.nvrtc = nvrtc()
        self.what = what
        names = [name.encode() for name in source.headers]
        texts = [text.encode() for text in source.headers.values()]
        self.handle = self.nvrtc.createProgram(source.program, source.file, texts, names)
        self.entries = entries

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if isinstance(error, self.nvrtc.NVRTCError):
                text = self.log()
                first = next((line for line in text.splitlines() if "error" in line), str(error))
                raise CompileError(
                    f"{self.what} does not compile: {first.strip()} (the whole output is in .log)", text
                ) from None
        finally:
            self.nvrtc.destroyProgram(self.handle)

    def compile(self, options: tuple[str, ...]) -> None:
        for entry in self.entries:
            self.nvrtc.addNameExpression(self.handle, entry)
        self.nvrtc.compileProgram(self.handle, options)
        complaint = _REFUSED.search(self.log())
        if complaint:
            raise CompileError(f"{self.what}: ptxas says {complaint[0].strip()}", self.log())

    def lowered(self, entry: str) -> str:
        return _text(self.nvrtc.getLoweredName(self.handle, entry))

    def log(self) -> str:
        return _text(self.nvrtc.getProgramLog(self.handle))


# ptxas reports these as information, but each means that a tensor-core kernel is slower than intended.
_REFUSED = re.compile(r"^.*\b(C7508|C751[0-7]|C7602)\b.*$", re.MULTILINE)

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def parse_log(text: str) -> dict[str, Resources]:
    """Resources by mangled name, from the output of ``--ptxas-options=-v``."""
    usage: dict[str, Resources] = {}
    name, stack, spill = "", 0, 0
    for line in text.splitlines():
        if entry := _ENTRY.search(line):
            name, stack, spill = entry[1], 0, 0
        elif frame := _STACK.search(line):
            stack, spill = int(frame[1]), int(frame[2]) + int(frame[3])
        elif (used := _USED.search(line)) and name:
            usage[name] = Resources(int(used[1]), spill, stack, int(used[2] or 0))
    return usage

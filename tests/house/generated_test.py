"""What is searched for in generated code is found there: a pattern that matches nothing lets everything pass.

Real PTX, compile logs and sources stand against every pattern that reads them. A test that reads generated code and searches
it for something new lists a text where that is found.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

import baracuda_py as bp
from baracuda_py.plan.about.ledger import records_dir
from baracuda_py.plan.about.tune import admissible
from baracuda_py.runtime.compile import compiler, definitions, sources
from baracuda_py.runtime.compile.compiler import compile_kernels, compile_ptx
from baracuda_py.runtime.compile.sources import kernels_dir
from baracuda_py.runtime.steps import Kernel, Launch
from baracuda_py.runtime.system import toolchain
from baracuda_py.types import DeviceSpec

from ..places import TESTS
from ..runtime import overlap_test

FILE = "shape_layout/copy.cu"

# Its accumulators are touched between products: ptxas waits for each of them.
SERIAL = r"""
__global__ void serial(unsigned long long a, unsigned long long b, float* out) {
  float d[4] = {out[0], out[1], out[2], out[3]};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  for (int i = 0; i < 2; ++i) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    d[0] += 1;
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}"""

# Twice as many values as registers, an array that is indexed at run time, and a page of shared memory.
GREEDY = r"""
__global__ void __launch_bounds__(1024, 2) greedy(float* p, int n) {
  __shared__ float page[1024];
  float x[64], local[32];
  for (int i = 0; i < 32; ++i) local[i] = p[i * n];
  page[threadIdx.x] = local[p[n] > 0 ? threadIdx.x % 32 : n % 32];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i] = p[i * n + threadIdx.x];
  for (int turn = 0; turn < n; ++turn)
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = x[i] * x[(i + 7) % 64] + page[turn];
#pragma unroll
  for (int i = 0; i < 64; ++i) p[i * n + threadIdx.x] = x[i];
}"""


@lru_cache(maxsize=1)
def _log() -> str:
    with pytest.raises(bp.CompileError) as caught:
        compile_kernels([Kernel(FILE, "serial", SERIAL)], "sm_90a")
    return str(caught.value.log)


def _kernel() -> Kernel:
    desc, variant = overlap_test.OVERLAPPING["gemv across"]
    plan = bp.MatmulPlan.select(desc, bp.PlanPreference(variant=variant), device="h200")
    return next(s.kernel for s in plan.selection.steps if isinstance(s, Launch))


@lru_cache(maxsize=1)
def _ptx() -> str:
    return compile_ptx(_kernel(), "sm_90a")


@lru_cache(maxsize=1)
def _lined_ptx() -> str:
    return compile_ptx(_kernel(), "sm_90a", lines=True)


@lru_cache(maxsize=1)
def _sources() -> str:
    return "\n".join(path.read_text() for path in sorted(kernels_dir().rglob("*.cu*")))


def _header() -> str:
    """No kernel of today includes one of CUDA's own headers, which include each other."""
    (folder,) = toolchain.include_dirs(frozenset({"cuda_fp16.h"}))
    return (Path(folder) / "cuda_fp16.h").read_text()


@lru_cache(maxsize=1)
def _entries() -> str:
    """Name expressions, as the candidates write them."""
    return "\n".join(path.read_text() for path in sorted(records_dir().glob("*.json")))


def _sass() -> str:
    """Machine code, as nvdisasm or cuobjdump prints it."""
    desc = bp.UnaryDescriptor("relu", (1 << 20,), "f32")  # type: ignore[arg-type]
    return bp.UnaryPlan.select(desc, device="h200").kernels[0].sass


def _words() -> str:
    """What stands beside the code: configurations, NVRTC's build, what to install."""
    desc = bp.MatmulDescriptor((8192, 8192), (8192, 8192), "bf16", "bf16")
    plans = admissible(bp.MatmulPlan, desc, bp.PlanPreference(variant="wgmma"), DeviceSpec.named("h200"))
    return "\n".join([*(plan.sku.config for plan in plans), toolchain.nvrtc_build(), toolchain.install_hint()])


# Every pattern of the package that reads generated code, beside a real text of what it reads.
READERS = {
    "ptxas's complaints": (compiler._REFUSED, _log),
    "the log's entries": (compiler._ENTRY, _log),
    "the log's stack and spills": (compiler._STACK, _log),
    "the log's registers": (compiler._USED, _log),
    "operations in PTX": (overlap_test.OPERATIONS, _ptx),
    "a kernel in PTX": (compiler._PTX_ENTRY, _ptx),
    "the files of PTX": (compiler._PTX_FILE, _lined_ptx),
    "NVRTC's version": (re.compile(toolchain._VERSION.pattern.decode()), _ptx),
    "NVRTC's build": (re.compile(toolchain._BUILD.pattern.decode()), _ptx),
    "headers": (sources._INCLUDE, _sources),
    "headers, by token": (definitions._INCLUDE, _sources),
    "macros": (definitions._DEFINE, _sources),
    "a comma before no arguments": (definitions._NO_ARGUMENTS, _sources),
    "tokens": (definitions._TOKEN, _sources),
    "names": (definitions._NAME, _sources),
    "system headers": (sources._SYSTEM, _header),
    "comments": (sources._STRING_OR_COMMENT, _sources),
}


@pytest.mark.parametrize("what", list(READERS))
def test_a_pattern_finds_what_it_reads(what: str) -> None:
    pattern, text = READERS[what]
    assert pattern.search(text()), f"{pattern.pattern!r} is nowhere in {text.__name__[1:]}"
    assert not re.match(r"b['\"]", text()), "a text, not what bytes look like when they are printed"


def _literals(path: Path) -> Iterator[str]:
    """The patterns that a module hands to `re`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            of, first = node.func.value, node.args[0]
            if isinstance(of, ast.Name) and of.id == "re" and isinstance(first, ast.Constant):
                yield first.value.decode() if isinstance(first.value, bytes) else first.value


READS_GENERATED = ("compile_ptx", ".ptx", ".sass", "parse_log", ".log", "kernel.entry", "kernel.source")


def test_every_pattern_of_the_compile_path_is_listed() -> None:
    listed = {pattern.pattern for pattern, _ in READERS.values()}
    for module in (compiler, definitions, sources):
        patterns = set(_literals(Path(module.__file__)))
        assert patterns and patterns <= listed, f"list these in READERS: {patterns - listed}"


def test_patterns_over_generated_code_match() -> None:
    texts = [text() for text in (_log, _ptx, _lined_ptx, _sources, _entries, _words)]
    found = 0
    machine_code = toolchain.disassembler() is not None
    texts += [_sass()] if machine_code else []
    for path in sorted(TESTS.rglob("*.py")):
        if path == Path(__file__) or not any(word in path.read_text() for word in READS_GENERATED):
            continue
        if not machine_code and "toolchain import disassembler" in path.read_text():
            continue  # skipped, too
        for literal in _literals(path):
            pattern = re.compile(literal, re.MULTILINE)
            assert any(pattern.search(text) for text in texts), f"{path.name}: {literal!r} finds nothing in real code"
            found += 1
    assert found >= 3


def test_the_log_is_read_as_ptxas_writes_it() -> None:
    built = compile_kernels([Kernel(FILE, "greedy", GREEDY)], "sm_90a", force=True)
    (resources,) = (each.resources for each in built.values())
    assert resources.registers == 32 and resources.shared_bytes == 4096
    assert resources.spill_bytes > 0 and resources.stack_bytes > 128


def test_a_kernel_whose_products_ptxas_serialises_is_refused() -> None:
    with pytest.raises(bp.CompileError, match=r"ptxas says .*C75\d\d"):
        compile_kernels([Kernel(FILE, "serial", SERIAL)], "sm_90a")
    assert "serialized" in _log()

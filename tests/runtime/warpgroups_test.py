"""Registers that a kernel's warpgroups take from each other are no more than its CTA has: on a GPU it would wait for ever, which
no emulator shows."""

from __future__ import annotations

import re

import pytest

from baracuda_py.plan import get_op
from baracuda_py.runtime.compile.compiler import compile_ptx
from baracuda_py.runtime.compile.sources import source_of
from baracuda_py.runtime.steps import Kernel

from .. import resources

COVERS = ("attention", "attention_backward", "attention_fp8", "matmul", "paged_attention")
ARCH, WARPGROUP = "sm_90a", 128
GIVEN, TAKEN = (re.compile(rf"setmaxnreg\.{way}\.sync\.aligned\.u32\s+(\d+)") for way in ("dec", "inc"))
THREADS = re.compile(r"\.maxntid (\d+)")


def uses(kernel: Kernel) -> bool:
    return "take_registers<" in source_of(kernel).text


def some(op: str) -> list[Kernel]:
    """Of every function that moves registers, the first, the middle and the last that the op's samples reach."""
    functions: dict[str, list[Kernel]] = {}
    for kernel in resources.kernels_of(get_op(op), ARCH):
        if uses(kernel):
            functions.setdefault(kernel.entry.partition("<")[0], []).append(kernel)
    return [found[i] for found in functions.values() for i in sorted({0, len(found) // 2, len(found) - 1})]


@pytest.mark.parametrize("op", COVERS)
def test_warpgroups_take_no_more_registers_than_there_are(op: str) -> None:
    kernels = some(op)
    assert kernels
    for kernel in kernels:
        text = compile_ptx(kernel, ARCH)
        given, taken = ({int(n) for n in pattern.findall(text)} for pattern in (GIVEN, TAKEN))
        if not taken:
            continue
        assert len(given) == len(taken) == 1, f"{kernel}: several numbers of registers, {given} and {taken}"
        threads = int(THREADS.findall(text)[0])
        # ptxas gives a thread as many registers as fit, a multiple of 8
        each = 65536 // threads // 8 * 8
        wanted = given.pop() * WARPGROUP + taken.pop() * (threads - WARPGROUP)
        assert wanted <= each * threads, f"{kernel}: {wanted} registers of {each * threads}"

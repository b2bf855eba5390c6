"""Values that nothing wrote, each used and dropped: of shared memory, of a thread's own, of the workspace; and registers
that nothing ever writes.

Gaps of views are in emulator_operands_test.py, what copies and products read in emulator_async_test.py and
emulator_products_test.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.emulator.options import Options
from baracuda_py.runtime.steps import Scratch

from .small_device import I32, Array, beside, body_of, every_order, run
from .small_kernels import SmallKernel, written_in_ptx

PART = "__shared__ int tile[64]; if (i < 40) tile[i] = i; __syncthreads();"
ON = "int v = *(volatile int*)(tile + i); __syncthreads(); tile[i] = v; __syncthreads();"
SHARED = {
    "into a result": (PART + "out[i] = tile[i];", PART + "out[i] = i < 40 ? tile[i] : 0;"),
    "through arithmetic": (PART + "out[i] = 3 * tile[63 - i] + 1;", PART + "out[i] = 63 - i < 40 ? 3 * tile[63 - i] + 1 : 5;"),
    "loaded and dropped": (PART + "int v = *(volatile int*)(tile + i); out[i] = v;",
                           PART + "int v = *(volatile int*)(tile + i); out[i] = i < 40 ? v : 7;"),
    "a mask": (PART + "out[i] = *(volatile int*)(tile + i) & 1;",
               PART + "out[i] = *(volatile int*)(tile + i) & (i < 40 ? ~0 : 0);"),
    "a branch": (PART + "if (*(volatile int*)(tile + i) > 30) out[i] = 1;",
                 PART + "if (i < 40 && *(volatile int*)(tile + i) > 30) out[i] = 1;"),
    "an address": (PART + "out[*(volatile int*)(tile + i) & 63] = 1;",
                   PART + "out[i < 40 ? *(volatile int*)(tile + i) : 63] = 1;"),
    "an atomic operation": ("__shared__ int sum; atomicAdd(&sum, 1); __syncthreads(); out[i] = sum;",
                            "__shared__ int sum; if (!i) sum = 0; __syncthreads(); atomicAdd(&sum, 1); __syncthreads();"
                            "out[i] = sum;"),
    "a shuffle": (PART + "int v = *(volatile int*)(tile + i); out[i] = __shfl_xor_sync(~0u, v, 16);",
                  PART + "int v = *(volatile int*)(tile + i); v = __shfl_xor_sync(~0u, v, 16); out[i] = (i ^ 16) < 40 ? v : 0;"),
    "on and on": (PART + ON + "out[i] = tile[63 - i];", PART + ON + "out[i] = tile[i % 40];"),
}  # fmt: skip


@every_order
@pytest.mark.parametrize("name", SHARED)
def test_shared_memory(name: str, options: Options) -> None:
    says = "a value that nothing had written reached a result at shared memory"
    fault, out = beside(bp.UninitialisedFault, says, *SHARED[name], options)
    assert out.any() and fault.space == "shared" and fault.cta == 0
    assert fault.byte is not None and (fault.byte >= 160 or name == "an atomic operation")


def test_a_zero_that_nobody_wrote_is_none() -> None:
    """What it is multiplied with, or compared to itself, makes no difference."""
    out = run(PART + "out[i] = i < 40 ? tile[i] : *(volatile int*)(tile + i) * 0;")
    assert (out == np.where(np.arange(64) < 40, np.arange(64), 0)).all()


# ---- a thread's own memory, and registers ----------------------------------------------------------------------------


def local(body: str) -> SmallKernel:
    return written_in_ptx(f"""
.visible .entry f(.param .u64 o)
{{
    .local .align 16 .b8 own[32];
    .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [o]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2;
    setp.lt.u32 %p1, %r1, 16;
    {body}
    st.global.u32 [%rd1], %r2;
    ret;
}}
""")


OWN = {
    "never written": ("ld.local.u32 %r2, [own+4];", "st.local.u32 [own+4], %r1; ld.local.u32 %r2, [own+4];"),
    "written beside": ("st.local.u32 [own], %r1; ld.local.v2.u32 {%r3, %r2}, [own];",
                       "st.local.u32 [own], %r1; ld.local.v2.u32 {%r2, %r3}, [own];"),
    "written by some": ("@%p1 st.local.u32 [own+8], %r1; ld.local.u32 %r2, [own+8];",
                        "mov.u32 %r2, 5; @%p1 st.local.u32 [own+8], %r1; @%p1 ld.local.u32 %r2, [own+8];"),
    "by a generic address": ("mov.b64 %rd3, own; cvta.local.u64 %rd3, %rd3; ld.u32 %r2, [%rd3];",
                             "mov.b64 %rd3, own; cvta.local.u64 %rd3, %rd3; st.u32 [%rd3], %r1; ld.u32 %r2, [%rd3];"),
}  # fmt: skip


@every_order
@pytest.mark.parametrize("name", OWN)
def test_thread_local_memory(name: str, options: Options) -> None:
    says = "a value that nothing had written reached a result at local memory"
    fault, out = beside(bp.UninitialisedFault, says, *map(local, OWN[name]), options, block=32)
    assert out.any() and fault.space == "local" and fault.extent == 32


REGISTERS = {
    "never written": ("add.u32 %r2, %r3, 1;", "mov.u32 %r3, %r1; add.u32 %r2, %r3, 1;"),
    "dropped": ("selp.b32 %r2, %r3, %r1, %p1;", "setp.lt.u32 %p1, %r1, 0; selp.b32 %r2, %r3, %r1, %p1;"),
    "a predicate": ("selp.b32 %r2, 2, 3, %p2;", "setp.eq.u32 %p2, %r1, 3; selp.b32 %r2, 2, 3, %p2;"),
}  # fmt: skip


@every_order
@pytest.mark.parametrize("name", REGISTERS)
def test_registers(name: str, options: Options) -> None:
    says = r"a value that nothing had written, of %[rp]\d, reached a result"
    _, out = beside(bp.UninitialisedFault, says, *map(local, REGISTERS[name]), options, block=32)
    assert out.any()


# ---- the workspace ---------------------------------------------------------------------------------------------------


def through(right: bool, load: str = "scratch[i]") -> Array:
    out = np.zeros(64, I32)
    kernel = body_of(f"if (i < n) scratch[i] = i; __syncthreads(); out[i] = {load};", "int* scratch, int* out, int n")
    args: dict[str, Any] = {"scratch": Scratch(0, 256), "out": out, "n": I32(64 if right else 40)}
    kernel.run(1, 64, workspace=256, **args)
    return out


def test_the_workspace() -> None:
    assert (through(True) == np.arange(64)).all()
    assert (through(False, "i < 40 ? scratch[i] : 1")[40:] == 1).all()
    with pytest.raises(bp.UninitialisedFault, match=r"reached a result at workspace\+160, which has 256") as caught:
        through(False)
    assert caught.value.thread == 40


# ---- what only a comparison sees -------------------------------------------------------------------------------------

KEPT = "__shared__ {} tile[64]; if (i < 40) tile[i] = {}; __syncthreads(); out[i] = {};"
COMPARED = {
    "a sign": ("int", "i", "*(volatile int*)(tile + {0}) < 0 ? 1 : 2"),
    "of a number": ("float", "i", "*(volatile float*)(tile + {0}) < 0 ? 1 : 2"),
    "of a wide one": ("double", "i", "*(volatile double*)(tile + {0}) < 0 ? 1 : 2"),
    "with a constant": ("int", "i", "*(volatile int*)(tile + {0}) == 5"),
    "behind arithmetic of another register": ("int", "i", "(*(volatile int*)(tile + {0}) ^ n) != 77"),
    "of halves": ("short", "i", "*(volatile short*)(tile + {0}) == -3"),
    "of a wide constant": ("long long", "i", "*(volatile long long*)(tile + {0}) == 1234567890123ll"),
    "between": ("int", "i", "*(volatile int*)(tile + {0}) > -7 && *(volatile int*)(tile + {0}) < -3"),
    "of numbers": ("float", "i", "*(volatile float*)(tile + {0}) == 2.5f"),
    "truth": ("bool", "true", "*(volatile bool*)(tile + {0}) ? 3 : 4"),
    "a switch": ("int", "i", "[](int v) {{ return v == 11 ? 1 : v == 12 ? 2 : 0; }}(*(volatile int*)(tile + {0}))"),
}  # fmt: skip


@every_order
@pytest.mark.parametrize("name", COMPARED)
@pytest.mark.parametrize("place", ["i", "(i == 43 ? 43 : 0)"])
def test_what_only_a_comparison_sees(name: str, place: str, options: Options) -> None:
    """By all threads, or by a single one."""
    kind, value, seen = COMPARED[name]
    right, wrong = (KEPT.format(kind, value, seen.format(at)) for at in (f"({place}) % 40", place))
    beside(bp.UninitialisedFault, "reached a result at shared memory", wrong, right, options)

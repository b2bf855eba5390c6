"""wgmma on its way: fences, groups and waits left out, tiles and registers changed meanwhile, each beside one that is right."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.emulator.options import Options

from . import small_device
from .small_device import every_order, ptx

# A is 64 x 16, B 16 x 8, of f16 ones, K-major without a swizzle: pieces of 8 rows of 16 bytes, 128 bytes each.
FENCE, COMMIT = ptx("wgmma.fence.sync.aligned"), ptx("wgmma.commit_group.sync.aligned")
TILES = """
  __shared__ alignas(128) unsigned short a[1024], b[128];
  for (int k = i; k < 1024; k += 128) a[k] = 0x3c00;
  b[i & 127] = 0x3c00;
"""
READY = TILES + "fence_proxy(); __syncthreads();"
START = """
  float d[4] = {1, 2, 3, 4};
  const u64 of_a = u64(at(a)) >> 4 | u64(128 >> 4) << 16 | u64(256 >> 4) << 32;
  const u64 of_b = u64(at(b)) >> 4 | u64(128 >> 4) << 16 | u64(256 >> 4) << 32;
"""
PRODUCT = """
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(of_a), "l"(of_b) : "memory");
"""
WIDER = """
  float e[4] = {1, 2, 3, 4};
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %6, %7, %8, %9}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(of_a), "l"(of_b), "f"(e[0]), "f"(e[1]), "f"(e[2]), "f"(e[3])
      : "memory");
"""
TWICE = """for (int k = 0; k < 4; ++k) asm volatile("add.f32 %0, %0, %0;" : "+f"(d[k]));"""
SHARED_TWICE = """asm volatile("{ .reg .f32 s; add.f32 s, %0, %0; mov.f32 %0, s; }" : "+f"(d[0]));"""
LEFT = """
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%5, %6, %7, %8}, %4, 1, 1, 1, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(of_b), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
"""
OUT = "for (int k = 0; k < 4; ++k) out[4 * i + k] = int(d[k]);"


def wait(left: int) -> str:
    """Which pins the accumulators, as a kernel must, so that NVRTC leaves them where they are."""
    pins = ", ".join(f'"+f"(d[{k}])' for k in range(4))
    return f'asm volatile("wgmma.wait_group.sync.aligned {left};" : {pins} :: "memory");'


WAIT = wait(0)
EARLY = "a wgmma's accumulators read before it is waited for"
RIGHT = READY + START + FENCE + PRODUCT + COMMIT + WAIT + OUT
WRONG = {
    "no fence": (READY + START + PRODUCT + COMMIT + WAIT + OUT, bp.RaceFault, "wgmma with no wgmma.fence ahead of it"),
    "no fence since they changed": (
        READY + START + FENCE + PRODUCT + COMMIT + WAIT + TWICE + PRODUCT + COMMIT + WAIT + OUT, bp.RaceFault,
        "wgmma with no wgmma.fence since 'add.f32.*accessed its registers"),
    "no fence since they were stored": (
        READY + START + FENCE + PRODUCT + COMMIT + WAIT + OUT + PRODUCT + COMMIT + WAIT + OUT, bp.RaceFault,
        "wgmma with no wgmma.fence since 'cvt.*accessed its registers"),
    "changed behind the fence": (
        READY + START + FENCE + PRODUCT + COMMIT + WAIT + FENCE + TWICE + PRODUCT + COMMIT + WAIT + OUT, bp.RaceFault,
        "wgmma with no wgmma.fence since 'add.f32.*accessed its registers"),
    "a copy of what changed behind the fence": (
        READY + START + FENCE + PRODUCT + COMMIT + WAIT + FENCE + SHARED_TWICE + PRODUCT + COMMIT + WAIT + OUT, bp.RaceFault,
        "wgmma with no wgmma.fence since 'add.f32.*accessed its registers"),
    "no fence since one of another shape": (
        READY + START + FENCE + PRODUCT + WIDER + COMMIT + WAIT + OUT, bp.RaceFault,
        "wgmma with no wgmma.fence since another added to its registers"),
    "no commit": (READY + START + FENCE + PRODUCT + WAIT + OUT, bp.RaceFault, EARLY),
    "no wait": (READY + START + FENCE + PRODUCT + COMMIT + OUT, bp.RaceFault, EARLY),
    "a wait that is too late": (READY + START + FENCE + PRODUCT + COMMIT + OUT + WAIT, bp.RaceFault, EARLY),
    "one group too many left": (READY + START + FENCE + PRODUCT + COMMIT + wait(1) + OUT, bp.RaceFault, EARLY),
    "nobody waits": (READY + START + FENCE + PRODUCT + COMMIT, bp.RaceFault,
                     "threads end before a wgmma of theirs is waited for"),
    "no proxy fence": (TILES + "__syncthreads();" + RIGHT.replace(READY, ""), bp.ProxyFault, "no fence.proxy.async behind it"),
    "no barrier": (TILES + "fence_proxy();" + RIGHT.replace(READY, ""), bp.RaceFault,
                   "wgmma reads what nothing orders with another warp's store|nothing had written"),
    "a tile changed meanwhile": (
        READY + START + FENCE + PRODUCT + COMMIT + "a[8 * i] = 0;" + WAIT + OUT, bp.RaceFault,
        "shared memory changed under a wgmma on its way"),
    "an accumulator changed meanwhile": (
        READY + START + FENCE + PRODUCT.replace("0, 0;", "0, 0; mov.f32 %1, 0f3F800000;") + COMMIT + WAIT + OUT,
        bp.RaceFault, "a register of a wgmma changed while it was on its way"),
    "a tile that ends beyond shared memory": (
        READY + START.replace("u64(at(a)) >> 4", "u64(at(b)) >> 4") + FENCE + PRODUCT + COMMIT + WAIT + OUT,
        bp.OutOfBoundsFault, "at shared memory"),
    "a tile that nothing wrote": (
        READY.replace("k < 1024", "k < 896") + START + FENCE + PRODUCT + COMMIT + WAIT + OUT, bp.UninitialisedFault,
        "nothing had written reached a result at shared memory"),
    "a part of the warpgroup": (
        READY + START + "if (i < 96) {" + FENCE + PRODUCT + COMMIT + WAIT + "} __syncthreads();" + OUT, bp.DivergenceFault,
        "by a part of a warpgroup"),
}  # fmt: skip
ALSO_RIGHT = {
    "no register used since": READY + START + FENCE + PRODUCT + COMMIT + WAIT + PRODUCT + COMMIT + WAIT + OUT,
    "a fence since they were stored": READY
    + START
    + FENCE
    + PRODUCT
    + COMMIT
    + WAIT
    + OUT
    + FENCE
    + PRODUCT
    + COMMIT
    + WAIT
    + OUT,
    "two in a group": READY + START + FENCE + PRODUCT + PRODUCT + COMMIT + WAIT + OUT,
    "two groups": READY + START + FENCE + PRODUCT + COMMIT + PRODUCT + COMMIT + WAIT + OUT,
    "fenced again": READY + START + FENCE + PRODUCT + COMMIT + WAIT + FENCE + PRODUCT + COMMIT + WAIT + OUT,
    "one left, then none": READY + START + FENCE + PRODUCT + COMMIT + PRODUCT + COMMIT + wait(1) + WAIT + OUT,
    "a tile changed behind it": RIGHT + "__syncthreads(); a[8 * i] = 0;",
}


run, fault_of = (partial(of, block=128, each=4) for of in (small_device.run, small_device.fault_of))  # a warpgroup


@every_order
def test_they_are_right(options: Options) -> None:
    assert (run(RIGHT, options) == np.tile([17, 18, 19, 20], 128)).all()
    for body in ALSO_RIGHT.values():
        assert (run(body, options) == np.tile(np.arange(1, 5) + (16 if body.count(PRODUCT) == 1 else 32), 128)).all()


@every_order
@pytest.mark.parametrize("name", WRONG)
def test_one_thing_left_out(name: str, options: Options) -> None:
    body, kind, says = WRONG[name]
    fault = fault_of(kind, says, body, options)
    assert fault.cta == 0 and ("wgmma" in fault.instruction or says is EARLY)


@every_order
def test_a_register_of_the_left_operand_changes_meanwhile(options: Options) -> None:
    body = READY + START + "u32 r[4]; for (u32& x : r) x = 0x3c003c00;" + FENCE + LEFT + COMMIT
    change = 'asm volatile("mov.b32 %0, 0;" : "+r"(r[2]));'
    used = "out[4 * i] += r[2];"
    assert run(body + WAIT + change + OUT + used, options)[1] == 18
    says = "a register of a wgmma changed while it was on its way"
    fault_of(bp.RaceFault, says, body + change + WAIT + OUT + used, options)
    halves = 'asm volatile("{{ .reg .b16 a, b; mov.b32 {{a, b}}, %0;{} mov.b32 %0, {{b, a}}; }}" : "+r"(r[1]));'
    doubled = 'for (u32& x : r) asm volatile("add.u32 %0, %0, 0;" : "+r"(x));'
    for right, wrong, changed in (
        (FENCE + halves.format(""), FENCE + halves.format(" add.u16 a, a, 0;"), "add.u16"),
        (doubled + FENCE, FENCE + doubled, "add.u32"),
    ):
        assert run(body.replace(FENCE, right) + WAIT + OUT, options)[1] == 18
        says = rf"wgmma with no wgmma.fence since '{changed}.*accessed its registers"
        fault_of(bp.RaceFault, says, body.replace(FENCE, wrong) + WAIT + OUT, options)

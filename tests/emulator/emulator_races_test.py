"""Accesses that nothing orders, each beside the same with what orders it: between a CTA's warps, a warp's lanes, CTAs, the CTAs
of a cluster, and launches. What copies and tensor cores do meanwhile is in emulator_async_test.py.

Each wrong kernel is reported in lockstep and in random order alike.
"""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.emulator.options import Options

from .small_device import I32, beside, body_of, every_order, fault_of, ptx, run
from .small_kernels import run_steps

UNORDERED = "that nothing orders with|at once"  # in random order either of the two may come first
SYNC, WARP, FENCE = "__syncthreads();", "__syncwarp();", "__threadfence();"


MEET = ptx("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned")
RELAXED = ptx("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned")
WAIT = ptx("griddepcontrol.wait")


# (what it is called, the wrong text, the right text, what the message says)
REVERSE = """
  __shared__ int tile[64];
  tile[i] = i;
  {}
  out[i] = tile[63 - i];
"""
CTA_RACES = {
    "load after store": (REVERSE.format(""), REVERSE.format(SYNC), "load that nothing orders with another warp's store"),
    "store after load": (
        REVERSE.format(SYNC) + "tile[i] = out[i];", REVERSE.format(SYNC) + SYNC + "tile[i] = out[i];",
        "store that nothing orders with another warp's load"),
    "store after store": (
        "__shared__ int tile[64]; tile[i] = i; tile[63 - i] = 2 * i; __syncthreads(); out[i] = tile[i];",
        "__shared__ int tile[64]; tile[i] = i; __syncthreads(); tile[63 - i] = 2 * i; __syncthreads(); out[i] = tile[i];",
        "store that nothing orders with another warp's store"),
    "one place at once": (
        "__shared__ volatile int one; one = i >> 3; __syncthreads(); out[i] = one;",
        "__shared__ volatile int one; one = 7; __syncthreads(); out[i] = one;",
        "stores of different values to one place|store that nothing orders with another warp's store"),
    "a fence is no barrier": (REVERSE.format(FENCE), REVERSE.format(FENCE + SYNC), "load that nothing orders"),
    "a barrier of one's own warp": (REVERSE.format(WARP), REVERSE.format(WARP + SYNC), "load that nothing orders"),
    "a barrier too early": (
        "__shared__ int tile[64]; __syncthreads(); tile[i] = i; out[i] = tile[63 - i];", REVERSE.format(SYNC),
        "load that nothing orders"),
    "atomic after store": (
        "__shared__ int one; if (i == 0) one = 0; atomicAdd(&one, 1); __syncthreads(); out[i] = one;",
        "__shared__ int one; if (i == 0) one = 0; __syncthreads(); atomicAdd(&one, 1); __syncthreads(); out[i] = one;",
        "exchange that nothing orders with another warp's store"),
    "load after atomic": (
        "__shared__ int one; if (i == 0) one = 0; __syncthreads(); atomicAdd(&one, 1); out[i] = one;",
        "__shared__ int one; if (i == 0) one = 0; __syncthreads(); atomicAdd(&one, 1); __syncthreads(); out[i] = one;",
        "load that nothing orders"),
    "named barriers of some": (
        REVERSE.format("if (i < 32) " + ptx("bar.sync 1, 32") + "else " + ptx("bar.sync 2, 32")),
        REVERSE.format(ptx("bar.sync 1, 64")), "load that nothing orders"),
    "arriving does not wait": (
        REVERSE.format("if (i < 32) " + ptx("bar.arrive 1, 64") + "else " + ptx("bar.sync 1, 64")),
        REVERSE.format("if (i < 32) " + ptx("bar.arrive 1, 64; bar.sync 2, 64")
                       + "else " + ptx("bar.arrive 2, 64; bar.sync 1, 64")), "load that nothing orders"),
    "global memory": (
        "out_two[i] = i; out[i] = out_two[63 - i];", "out_two[i] = i; __syncthreads(); out[i] = out_two[63 - i];",
        "load that nothing orders with another's store in this launch"),
    "global store after load": (
        "const int v = out_two[63 - i]; out_two[i] = i + 1; out[i] = v;",
        "const int v = out_two[63 - i]; __syncthreads(); out_two[i] = i + 1; out[i] = v;",
        "store that nothing orders with another's load in this launch"),
    "global store by the last of all that loaded": (
        "const int v = out_two[0]; if (i == 63) out_two[0] = 5; out[i] = v;",
        "const int v = out_two[0]; __syncthreads(); if (i == 63) out_two[0] = 5; out[i] = v;",
        "store that nothing orders with another's load in this launch"),
    "global store by the first of all that loaded": (
        "const int v = out_two[0]; if (i == 0) out_two[0] = 5; out[i] = v;",
        "const int v = out_two[0]; __syncthreads(); if (i == 0) out_two[0] = 5; out[i] = v;",
        "store that nothing orders with another's load in this launch"),
}  # fmt: skip


@every_order
@pytest.mark.parametrize("name", CTA_RACES)
def test_between_the_warps_of_a_cta(name: str, options: Options) -> None:
    wrong, right, says = CTA_RACES[name]
    fault, _ = beside(bp.RaceFault, says if options.order == "lockstep" else UNORDERED, wrong, right, options)
    assert fault.cta == 0 and fault.byte is not None
    assert fault.operand in ("out", "out_two") if "global" in name else fault.space == "shared"


def test_the_line_byte_and_thread_are_named() -> None:
    wrong = body_of("__shared__ int tile[64];\ntile[i] = i;\nout[i] = tile[63 - i];  // here")
    fault = fault_of(bp.RaceFault, "load that nothing orders with another warp's store", wrong)
    assert (fault.space, fault.byte, fault.extent, fault.thread) == ("shared", 252, 256, 0)
    assert fault.source == wrong.line("here") and "at shared memory+252, which has 256: CTA 0, thread 0" in str(fault)


# ---- the lanes of a warp ---------------------------------------------------------------------------------------------

WITHIN = """
  __shared__ int tile[32];
  tile[i] = i;
  {}
  out[i] = tile[31 - i];
"""
LANE_RACES = {
    "load after store": (WITHIN.format(""), WITHIN.format(WARP), "load that nothing orders with another thread's store"),
    "store after load": (
        WITHIN.format(WARP) + "tile[i] = 5;", WITHIN.format(WARP) + WARP + "tile[i] = 5;",
        "store that nothing orders with another thread's load"),
    "a vote is no barrier": (
        WITHIN.format("out_two[i] = __any_sync(~0u, i > 40);"), WITHIN.format(WARP), "load that nothing orders"),
    "halves of a warp": (
        "__shared__ int tile[32]; tile[i] = i; out[i] = tile[i ^ 15];",
        "__shared__ int tile[32]; tile[i] = i; __syncwarp(i < 16 ? 0xffffu : 0xffff0000u); out[i] = tile[i ^ 15];",
        "load that nothing orders with another thread's store"),
    "a copy of another lane": (
        "__shared__ alignas(16) int tile[128]; copy(tile + 4 * i, out_two); commit(); await<0>(); out[i] = tile[4 * (31 - i)];",
        "__shared__ alignas(16) int tile[128]; copy(tile + 4 * i, out_two); commit(); await<0>(); __syncwarp();"
        "out[i] = tile[4 * (31 - i)];", "load that nothing orders with another thread's store"),
    "an atomic operation": (
        "__shared__ int one; if (i == 3) one = 0; atomicAdd(&one, i); __syncwarp(); out[i] = one;",
        "__shared__ int one; if (i == 3) one = 0; __syncwarp(); atomicAdd(&one, i); __syncwarp(); out[i] = one;",
        "exchange that nothing orders with another thread's store"),
    "global memory": (
        "out_two[i] = i; out[i] = out_two[31 - i];", "out_two[i] = i; __syncwarp(); out[i] = out_two[31 - i];",
        "load that nothing orders with another's store"),
    "a global store after loads of one place": (
        "const int v = out_two[0]; if (i == 31) out_two[0] = 5; out[i] = v;",
        "const int v = out_two[0]; __syncwarp(); if (i == 31) out_two[0] = 5; out[i] = v;",
        "store that nothing orders with another's load"),
    "a shared store after loads of one place": (
        "__shared__ volatile int one; one = 3; __syncwarp(); const int v = one; if (i == 31) one = 5; out[i] = v;",
        "__shared__ volatile int one; one = 3; __syncwarp(); const int v = one; __syncwarp(); if (i == 31) one = 5; out[i] = v;",
        "store that nothing orders with another thread's load"),
    "one place at once": (
        "__shared__ int one; one = i >> 3; __syncwarp(); out[i] = one;",
        "__shared__ int one; one = 3; __syncwarp(); out[i] = one;",
        "stores of different values to one place at once"),
    "global place at once": ("*out_two = i;", "*out_two = 9;", "stores of different values to one place at once"),
}  # fmt: skip


@every_order
@pytest.mark.parametrize("name", LANE_RACES)
def test_between_the_lanes_of_a_warp(name: str, options: Options) -> None:
    wrong, right, says = LANE_RACES[name]
    beside(bp.RaceFault, says, wrong, right, options, block=32)


# ---- CTAs ------------------------------------------------------------------------------------------------------------

SUM_LAST = """
  __shared__ bool last;
  out_two[blockIdx.x * 32 + i] = i + 100 * blockIdx.x;
  {before}
  if (i == 0) last = atomicAdd(reinterpret_cast<unsigned*>(out), 1u) == gridDim.x - 1;
  __syncthreads();
  if (last) {{
    {after}
    int sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += out_two[b * 32 + i];
    out[32 + i] = sum;
  }}
"""


@every_order
def test_between_ctas(options: Options) -> None:
    for wrong in ("out[0] = blockIdx.x;", "out[i] = out_two[i]; out_two[i] = 1;",
                  "atomicAdd(out, 1); out_two[i] = out[0];"):  # fmt: skip
        fault = fault_of(bp.RaceFault, "in this launch|at once", wrong, options, grid=3, block=32)
        assert fault.operand in ("out", "out_two") and fault.byte is not None
    run("out[0] = 7; out_two[blockIdx.x * 32 + i] = i;", options, grid=3, block=32)
    out = run("atomicAdd(out, i);", options, grid=3, block=32)
    assert out[0] == 3 * 31 * 16


@every_order
def test_the_last_cta_sees_what_the_others_fenced(options: Options) -> None:
    """CUDA C++ Programming Guide, Memory Fence Functions: the sum of an array, the last block done adds what all wrote."""
    for before, after in ((FENCE + SYNC, FENCE), (SYNC + FENCE, FENCE)):
        out = run(SUM_LAST.format(before=before, after=after), options, grid=5, block=32)
        assert (out[32:64] == 5 * np.arange(32) + 1000).all()
    says = "load that nothing orders with another's store in this launch"
    for before, after in ((SYNC, FENCE), (FENCE + SYNC, "")):
        fault_of(bp.RaceFault, says, SUM_LAST.format(before=before, after=after), options, grid=5, block=32)
    wider = SUM_LAST.format(before=FENCE, after=FENCE).replace("32", "64")
    fault_of(bp.RaceFault, says, wider, options, grid=5)


# ---- launches --------------------------------------------------------------------------------------------------------

LAUNCHES = {
    "no wait": ("out[i] = out_two[i];", WAIT + "out[i] = out_two[i];", "load before griddepcontrol.wait"),
    "too late": ("out[i] = 1;" + WAIT, WAIT + "out[i] = 1;", "store before griddepcontrol.wait"),
    "half of a warp": (
        "if (i < 16) {" + WAIT + "} out[i] = out_two[i];", "if (i < 16) {" + WAIT + "} __syncthreads(); out[i] = out_two[i];",
        "load before"),
    "another warp": (
        "if (i < 32) {" + WAIT + "} out[i] = out_two[i];", "if (i < 32) {" + WAIT + "} __syncthreads(); out[i] = out_two[i];",
        "load before"),
    "one thread": (
        "__shared__ int v; if (i == 0) {" + WAIT + "v = out_two[0];} else out[i] = 1; __syncthreads(); out[i] = v;",
        "__shared__ int v; if (i == 0) {" + WAIT + "v = out_two[0];} __syncthreads(); out[i] = v;", "store before"),
}  # fmt: skip


@every_order
@pytest.mark.parametrize("name", LAUNCHES)
def test_between_launches_that_overlap(name: str, options: Options) -> None:
    wrong, right, says = LAUNCHES[name]
    run(wrong, options)  # one behind the other
    fault, _ = beside(bp.RaceFault, says, wrong, right, options, pdl=True)
    assert fault.operand in ("out", "out_two")


def test_a_launch_behind_another_sees_its_stores() -> None:
    store, load = body_of("out_two[i] = i;", name="g"), body_of(WAIT + "out[i] = out_two[63 - i];")
    out, two = np.zeros((2, 64), I32)
    arrays = {"out": out, "out_two": two}
    args = {**arrays, "n": I32(0)}
    run_steps([(store, store.step(1, 64, args)), (load, load.step(1, 64, args, pdl=True))], arrays)
    assert (out == np.arange(64)[::-1]).all()


# ---- clusters --------------------------------------------------------------------------------------------------------

HEAD = "__shared__ int tile[64]; const unsigned other = my_rank() ^ 1;"
GET = "out[blockIdx.x * 64 + i] = load_peer(of_peer(tile + 63 - i, other));"
PUT = "store_peer(of_peer(tile + 63 - i, other), i);"
MINE = "out[blockIdx.x * 64 + i] = tile[i];"
CLUSTERS = {
    "load of a peer's": (HEAD + "tile[i] = i;" + GET + MEET, HEAD + "tile[i] = i;" + MEET + GET + MEET,
                         "load that nothing orders|may not have begun"),
    "a CTA's own barrier": (HEAD + "tile[i] = i;" + SYNC + GET + MEET, HEAD + "tile[i] = i;" + MEET + GET + MEET,
                            "load that nothing orders|may not have begun"),
    "a relaxed arrival": (HEAD + "tile[i] = i;" + RELAXED + GET + MEET, HEAD + "tile[i] = i;" + MEET + GET + MEET,
                          "load that nothing orders"),
    "store over a peer's load": (HEAD + "tile[i] = i;" + MEET + GET + "tile[i] = 0;" + MEET,
                                 HEAD + "tile[i] = i;" + MEET + GET + MEET + "tile[i] = 0;",
                                 "store that nothing orders with another warp's load"),
    "store to a peer's": (HEAD + MEET + PUT + SYNC + MINE + MEET, HEAD + MEET + PUT + MEET + MINE, "load that nothing orders"),
    "before it has begun": (HEAD + PUT + MEET + MINE, HEAD + MEET + PUT + MEET + MINE, "may not have begun"),
    "before it has begun, told by a relaxed arrival": (HEAD + PUT + RELAXED + MEET + MINE, HEAD + RELAXED + PUT + MEET + MINE,
                                                       "may not have begun"),
    "after it has ended": (HEAD + "tile[i] = i;" + MEET + GET, HEAD + "tile[i] = i;" + MEET + GET + MEET, "ends before"),
    "a store after it has ended": (HEAD + MEET + PUT, HEAD + MEET + PUT + MEET, "ends before"),
    "one that leaves": (HEAD + "tile[i] = i;" + MEET + "if (other == 0) " + GET,
                        HEAD + "tile[i] = i;" + MEET + "if (other == 0) " + GET + MEET, "ends before|has ended"),
}  # fmt: skip


@every_order
@pytest.mark.parametrize("name", CLUSTERS)
def test_between_the_ctas_of_a_cluster(name: str, options: Options) -> None:
    wrong, right, says = CLUSTERS[name]
    says = says if options.order == "lockstep" else f"{says}|{UNORDERED}"
    fault, _ = beside(bp.RaceFault, says, wrong, right, options, grid=4, attributes="__cluster_dims__(2, 1, 1)")
    assert fault.space == "shared"

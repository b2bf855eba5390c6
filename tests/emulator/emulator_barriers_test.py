"""Barriers used as they must not be, and waits for what does not come, each beside one that is nearly the same and right: named
barriers, mbarriers, the barrier of a cluster. What a barrier orders is in emulator_races_test.py and emulator_async_test.py.
"""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.emulator.options import Options

from .small_device import beside, every_order, fault_of, ptx, run


def sync(number: int, threads: int) -> str:
    return ptx(f"bar.sync {number}, {threads}")


def arrive(number: int, threads: int) -> str:
    return ptx(f"bar.arrive {number}, {threads}")


# ---- named barriers --------------------------------------------------------------------------------------------------

LOW = "if (i < 32) "
NAMED = {
    "two counts": (LOW + sync(1, 64) + "else " + sync(1, 96) + ptx("bar.sync 0"),
                   LOW + sync(1, 64) + "else " + sync(1, 64) + ptx("bar.sync 0"), "counts (96|64) threads here and (64|96)"),
    "no multiple of a warp": (sync(1, 48), sync(1, 64), "multiple of 32"),
    "a count of none": ('asm volatile("bar.sync 1, %0;" ::"r"(n));', 'asm volatile("bar.sync 1, %0;" ::"r"(n + 64));',
                        "multiple of 32"),
    "a number of none": ('asm volatile("bar.sync %0;" ::"r"(n + 16));', 'asm volatile("bar.sync %0;" ::"r"(n + 15));',
                         "barrier 16: there are 16"),
    "counts of each thread": ('asm volatile("bar.sync 1, %0;" ::"r"(32 + 32 * (i >> 5)));',
                              'asm volatile("bar.sync %0, %1;" ::"r"(1 + (i >> 5)), "r"(32));', "the same for all|counts"),
    "more than counted": (arrive(1, 32), LOW + arrive(1, 64) + "else " + sync(1, 64),
                          "64 threads at barrier 1, which counts 32"),
}  # fmt: skip


@every_order
@pytest.mark.parametrize("name", NAMED)
def test_named_barriers(name: str, options: Options) -> None:
    wrong, right, says = NAMED[name]
    if name == "more than counted" and options.order == "random":
        run(right, options)
        return  # one warp after the other: each is a phase of its own
    fault, _ = beside(bp.BarrierFault, says, wrong, right, options)
    assert fault.cta == 0 and "bar" in fault.instruction


STUCK = {
    "counts more than there are": (sync(1, 96), sync(1, 64), ["CTA 0 warps 0, 1 at barrier 1"]),
    "counts one that never comes": (LOW + sync(1, 64), LOW + sync(1, 32), ["CTA 0 warps 0 at barrier 1"]),
    "each waits for the other": (
        LOW + "{" + sync(1, 64) + sync(2, 64) + "} else {" + sync(2, 64) + sync(1, 64) + "}",
        LOW + "{" + sync(1, 64) + sync(2, 64) + "} else {" + sync(1, 64) + sync(2, 64) + "}",
        ["CTA 0 warps 0 at barrier 1", "CTA 0 warps 1 at barrier 2"]),
    "one side arrives and the other did not": (
        LOW + "{" + ptx("bar.sync 0") + arrive(1, 64) + "} else " + sync(1, 64),
        LOW + "{" + arrive(1, 64) + "} else " + sync(1, 64) + ptx("bar.sync 0"),
        ["CTA 0 warps 0 at barrier 0", "CTA 0 warps 1 at barrier 1"]),
}  # fmt: skip


@every_order
@pytest.mark.parametrize("name", STUCK)
def test_barriers_where_not_all_come(name: str, options: Options) -> None:
    wrong, right, says = STUCK[name]
    fault, _ = beside(bp.DeadlockFault, "no thread can continue: ", wrong, right, options)
    assert all(each in str(fault) for each in says) and fault.kernel == "small.cu:f"


@every_order
def test_who_has_ended_is_not_waited_for(options: Options) -> None:
    """A barrier of all the threads that there still are; one that counts them waits for ever."""
    for body in ("if (i >= 32) return; __syncthreads(); out[i] = i;", "if (i < 32) return; __syncthreads(); out[i] = i;",
                 "if (i >= 16) return; __syncthreads(); out[i] = i;",
                 "if (i >= 16) { out[i] = i; return; } __syncthreads(); out[i] = i;",
                 "if (i < 16) { out[i] = i; return; } __syncthreads(); out[i] = i;"):  # fmt: skip
        assert run(body, options).any()
    fault_of(bp.DeadlockFault, "CTA 0 warps 0 at barrier 1", "if (i >= 32) return; " + sync(1, 64), options)


# ---- mbarriers -------------------------------------------------------------------------------------------------------

SET = "__shared__ u64 b; if (i == 0) init(&b, {}); __syncthreads();"
EXCHANGE = "__shared__ u64 b; __shared__ int tile[64]; if (i == 0) init(&b, 64); __syncthreads(); tile[i] = i;"
MBARRIERS = {
    "not initialised": ("__shared__ u64 b; arrive(&b);", SET.format(64) + "arrive(&b);", "not initialised"),
    "at another place": (
        "__shared__ u64 b[3]; if (i == 0) init(b, 64); __syncthreads(); arrive(b + 1);",
        "__shared__ u64 b[3]; if (i == 0) init(b + 1, 64); __syncthreads(); arrive(b + 1);", "not initialised"),
    "no longer valid": (
        SET.format(64) + "__syncthreads(); if (i == 0) drop(&b); __syncthreads(); arrive(&b);",
        SET.format(64) + "arrive(&b); wait(&b, 0); __syncthreads(); if (i == 0) drop(&b);", "not initialised"),
    "at half a word": (
        "__shared__ u64 b[2]; if (i == 0) init((u64*)((char*)b + 4), 64);", "__shared__ u64 b[2]; if (i == 0) init(b + 1, 64);",
        "no multiple of 8 bytes"),
    "one arrival too many while bytes are to come": (
        SET.format(64) + "if (i == 0) arrive_expecting(&b, 16); arrive(&b);",
        SET.format(65) + "if (i == 0) arrive_expecting(&b, 16); arrive(&b);", "more arrivals than the 64"),
    "arrivals of more at once": (
        SET.format(5) + "if (i == 0) arrive(&b, 6);", SET.format(5) + "if (i == 0) arrive(&b, 5);", "more arrivals than the 5"),
    "its bytes read": (SET.format(64) + "out[i] = *(volatile int*)&b;", SET.format(64) + "out[i] = 1;",
                       "load of an mbarrier's bytes"),
    "its bytes overwritten": (SET.format(64) + "__syncthreads(); *(volatile int*)&b = 0;",
                              SET.format(64) + "__syncthreads(); if (i == 0) { drop(&b); *(volatile int*)&b = 0; }",
                              "store of an mbarrier's bytes"),
    "a count of none": (SET.format("n"), SET.format("n + 1"), "counts 0"),
    "a count too great": (SET.format("n + (1 << 20)"), SET.format("n + (1 << 20) - 1"), "counts 1048576"),
    "initialised twice": (
        SET.format(64) + "if (i == 0) init(&b, 64);", SET.format(64) + "if (i == 0) { drop(&b); init(&b, 64); }",
        "initialised twice"),
    "initialised by all": ("__shared__ u64 b; if (i < 32) init(&b, 64);", SET.format(64), "initialised twice"),
}  # fmt: skip


@every_order
@pytest.mark.parametrize("name", MBARRIERS)
def test_mbarriers(name: str, options: Options) -> None:
    wrong, right, says = MBARRIERS[name]
    fault, _ = beside(bp.BarrierFault, says, wrong, right, options)
    assert fault.space == "shared" and fault.byte is not None and fault.cta == 0 and "at shared memory+" in str(fault)


@every_order
@pytest.mark.parametrize(("count", "parity"), [(64, 0), (63, 0), (32, 1), (1, 1), (16, 1)])
def test_arrivals_may_end_several_phases(count: int, parity: int, options: Options) -> None:
    """A thread waits for the last that they end; a phase that has begun again belongs to no thread."""
    run(SET.format(count) + "arrive(&b); __syncthreads(); wait(&b, n);", options, n=parity)


WAITS = {
    "an arrival too few": (SET.format(65) + "arrive(&b); wait(&b, 0);", SET.format(64) + "arrive(&b); wait(&b, 0);",
                           "phase 0, 1 arrivals and 0 bytes short"),
    "bytes that nobody sends": (
        SET.format(1) + "if (i == 0) arrive_expecting(&b, 128); wait(&b, 0);",
        SET.format(1) + "if (i == 0) arrive_expecting(&b, 0); wait(&b, 0);", "phase 0, 0 arrivals and 128 bytes short"),
    "the wrong parity": (SET.format(64) + "arrive(&b); wait(&b, 0); wait(&b, 1);",
                         SET.format(64) + "wait(&b, 1); arrive(&b); wait(&b, 0);", "phase 1, 64 arrivals and 0 bytes short"),
}  # fmt: skip


@every_order
@pytest.mark.parametrize("name", WAITS)
def test_waits_at_an_mbarrier_that_never_end(name: str, options: Options) -> None:
    wrong, right, says = WAITS[name]
    says = rf"CTA 0 warps 0, 1 at the mbarrier at shared memory\+0, {says}"
    beside(bp.DeadlockFault, says, wrong, right, options)


@every_order
def test_an_mbarrier_orders_what_came_before_an_arrival(options: Options) -> None:
    out = run(EXCHANGE + "arrive(&b); wait(&b, 0); out[i] = tile[63 - i];", options)
    assert (out == np.arange(64)[::-1]).all()
    for wrong in ("arrive(&b); out[i] = tile[63 - i];", "wait(&b, 1); arrive(&b); out[i] = tile[63 - i];",
                  "arrive(&b); tile[i] = i + 1; wait(&b, 0); out[i] = tile[63 - i];"):  # fmt: skip
        fault_of(bp.RaceFault, "that nothing orders with another warp's", EXCHANGE + wrong, options)


@every_order
def test_an_mbarrier_is_initialised_before_others_use_it(options: Options) -> None:
    says = "an mbarrier whose initialisation nothing orders|not initialised|another warp's load"
    fault_of(bp.KernelFault, says, "__shared__ u64 b; if (i == 0) init(&b, 64); arrive(&b);", options)


# ---- the barrier of a cluster ----------------------------------------------------------------------------------------

ARRIVE, WAIT = ptx("barrier.cluster.arrive.aligned"), ptx("barrier.cluster.wait.aligned")
PAIR = "__cluster_dims__(2, 1, 1)"


@every_order
def test_the_barrier_of_a_cluster(options: Options) -> None:
    run(ARRIVE + "out[blockIdx.x * 64 + i] = i;" + WAIT + ARRIVE + WAIT, options, grid=4, attributes=PAIR)
    says = "a second arrival at the cluster's barrier without a wait"
    fault = fault_of(bp.BarrierFault, says, ARRIVE + ARRIVE + WAIT, options, grid=4, attributes=PAIR)
    assert "barrier.cluster.arrive" in fault.instruction
    says = "wait at the cluster's barrier without an arrival"
    fault_of(bp.BarrierFault, says, ARRIVE + WAIT + WAIT, options, grid=4, attributes=PAIR)
    run("if (blockIdx.x % 2 == 0) return; " + ARRIVE + WAIT, options, grid=4, attributes=PAIR)
    says = r"CTA 0 warps 0, 1 at the cluster's barrier.*CTA 1 warps 0, 1 at barrier 1"
    half = "if (blockIdx.x == 0) {" + ARRIVE + WAIT + "} else " + sync(1, 96)
    fault_of(bp.DeadlockFault, says, half, options, grid=2, attributes=PAIR)

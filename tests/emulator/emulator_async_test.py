"""Copies on their way that are read, overwritten or fenced wrongly, each beside one that is right: cp.async, tensor copies both
ways, st.async. Products on their way are in emulator_products_test.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.emulator.options import Options
from baracuda_py.runtime.steps import Ptr, TensorMap

from .small_device import I32, Array, body_of, every_order, ptx

MEET = ptx("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned")
PAIR = "__cluster_dims__(2, 1, 1)"
ARRIVALS = [Options(copies=copies) for copies in ("late", "early")] + [Options("random", 3, copies="random")]
every_arrival = pytest.mark.parametrize("options", ARRIVALS, ids=lambda o: f"{o.order}-{o.copies}")

# ---- cp.async --------------------------------------------------------------------------------------------------------

COPIED = "__shared__ alignas(16) int tile[4 * 64]; copy(tile + 4 * i, x + 4 * i); "
SEEN = "out[i] = tile[4 * i + 1];"
OTHER = "out[i] = tile[4 * (63 - i) + 1];"
COPIES = {
    "read before it is waited for": (COPIED + "commit();" + SEEN, COPIED + "commit(); await<0>();" + SEEN,
                                     bp.RaceFault, "load of bytes of a copy that has not arrived"),
    "never committed": (COPIED + "await<0>();" + SEEN, COPIED + "commit(); await<0>();" + SEEN,
                        bp.RaceFault, "load of bytes of a copy that has not arrived"),
    "one group too many left": (COPIED + "commit(); await<1>();" + SEEN, COPIED + "commit(); commit(); await<1>();" + SEEN,
                                bp.RaceFault, "load of bytes of a copy that has not arrived"),
    "another's, before the barrier": (COPIED + "commit(); await<0>();" + OTHER,
                                      COPIED + "commit(); await<0>(); __syncthreads();" + OTHER,
                                      bp.RaceFault, "that nothing orders|not arrived"),
    "another's, waited for behind the barrier": (
        COPIED + "commit(); __syncthreads(); await<0>();" + OTHER,
        COPIED + "commit(); await<0>(); __syncthreads();" + OTHER, bp.RaceFault, "that nothing orders|not arrived"),
    "stored over": (COPIED + "commit(); tile[4 * i] = 1; await<0>();" + SEEN,
                    COPIED + "commit(); await<0>(); tile[4 * i] = 1;" + SEEN, bp.RaceFault,
                    "store of bytes of a copy that has not arrived"),
    "over what another reads": (
        "__shared__ alignas(16) int tile[256]; tile[i] = i; __syncthreads(); out[i] = tile[63 - i];"
        "copy(tile + 4 * i, x + 4 * i); commit(); await<0>();",
        "__shared__ alignas(16) int tile[256]; tile[i] = i; __syncthreads(); out[i] = tile[63 - i]; __syncthreads();"
        "copy(tile + 4 * i, x + 4 * i); commit(); await<0>();",
        bp.RaceFault, "store that nothing orders with another (warp|thread)'s load|load (that nothing orders|of what a copy)"),
    "to an odd address": ("__shared__ alignas(16) int tile[260]; copy(tile + 4 * i + 1, x + 4 * i);",
                          "__shared__ alignas(16) int tile[260]; copy(tile + 4 * i + 4, x + 4 * i);",
                          bp.MisalignedFault, "store of 16 bytes at an odd address at shared memory"),
    "from an odd address": ("__shared__ alignas(16) int tile[256]; copy(tile + 4 * i, x + 3 * i + 2);", COPIED,
                            bp.MisalignedFault, "load of 16 bytes at an odd address.* at x"),
    "from beyond the end": ("__shared__ alignas(16) int tile[256]; copy(tile + 4 * i, x + 4 * i + 4);",
                            "__shared__ alignas(16) int tile[256]; copy(tile + 4 * i, x + 4 * i + 4, i < 63 ? 16 : 0);",
                            bp.OutOfBoundsFault, "load of 16 bytes.* at x.1024"),
    "to beyond the end": ("__shared__ alignas(16) int tile[252]; copy(tile + 4 * i, x + 4 * i);", COPIED,
                          bp.OutOfBoundsFault, "store of 16 bytes at shared memory"),
    "of more than it takes": ("__shared__ alignas(16) int tile[256]; copy(tile + 4 * i, x + 4 * i, 20);", COPIED,
                              bp.OutOfBoundsFault, "a copy of 20 bytes of 16"),
}  # fmt: skip


@every_order
@pytest.mark.parametrize("name", COPIES)
def test_copies_by_threads(name: str, options: Options) -> None:
    wrong, right, kind, says = COPIES[name]
    x, out = np.arange(256, dtype=I32), np.zeros(64, I32)
    body_of(right, "const int* x, int* out").run(1, 64, x=x, out=out, options=options)
    assert not out.any() or name == "over what another reads" or set(out) == set(range(1, 256, 4))
    with pytest.raises(kind, match=says) as caught:
        body_of(wrong, "const int* x, int* out").run(1, 64, x=x, out=out, options=options)
    assert caught.value.cta == 0 and caught.value.thread is not None and caught.value.source.startswith("small.cu:")


# ---- tensor copies ---------------------------------------------------------------------------------------------------

MAP = TensorMap(Ptr("x"), "float32", (32, 8), (128,), (32, 4), 0)
TO = TensorMap(Ptr("out"), "float32", (32, 8), (128,), (32, 4), 0)
PARAMETERS = "const __grid_constant__ Map map, const __grid_constant__ Map to, int* out_sum, int n"


def run(
    body: str, options: Options, *, attributes: str = "", grid: int = 1, block: int = 64, **more: Any
) -> tuple[Array, Array]:
    x, out = np.arange(256, dtype=np.float32).reshape(8, 32), np.zeros((8, 32), np.float32)
    held = np.zeros(grid * block, I32)
    kernel = body_of(body, PARAMETERS, attributes=attributes)
    args = {"map": MAP, "to": TO, "out_sum": held, "n": I32(0)}
    kernel.run(grid, block, options=options, operands={"x": x, "out": out}, **args, **more)
    return held, out


STAGE = "__shared__ alignas(128) float tile[160]; __shared__ u64 b; if (i == 0) { init(&b, 1); fence_init(); } __syncthreads();"
ASK = "if (i == 0) { arrive_expecting(&b, 512); tensor_load(tile, map, 0, 4, &b); }"
TAKE = "out_sum[i] = tile[i];"
LOADS = {
    "read before it is waited for": (STAGE + ASK + TAKE + "wait(&b, 0);", STAGE + ASK + "wait(&b, 0);" + TAKE,
                                     bp.RaceFault, "load of bytes of a copy that has not arrived|load that nothing orders"),
    "not waited for by all": (STAGE + ASK + "if (i < 32) wait(&b, 0);" + TAKE,
                              STAGE + ASK + "if (i < 32) wait(&b, 0); __syncthreads();" + TAKE,
                              bp.RaceFault, "load of bytes of a copy that has not arrived|load that nothing orders"),
    "fewer bytes expected": (STAGE + ASK.replace("512", "256") + "wait(&b, 0);" + TAKE, STAGE + ASK + "wait(&b, 0);" + TAKE,
                             bp.KernelFault, "256 bytes|not arrived|no thread can continue"),
    "more bytes expected": (STAGE + ASK.replace("512", "528") + "wait(&b, 0);" + TAKE, STAGE + ASK + "wait(&b, 0);" + TAKE,
                            bp.DeadlockFault, "the mbarrier at shared memory.640, phase 0, 0 arrivals and 16 bytes short"),
    "no bytes expected": (STAGE + "if (i == 0) { arrive(&b); tensor_load(tile, map, 0, 4, &b); } wait(&b, 0);" + TAKE,
                          STAGE + ASK + "wait(&b, 0);" + TAKE, bp.RaceFault, "not arrived|nothing orders"),
    "an mbarrier that is not fenced": (
        (STAGE + ASK + "wait(&b, 0);" + TAKE).replace("fence_init();", ""),
        (STAGE + ASK + "wait(&b, 0);" + TAKE).replace("fence_init();", "fence_proxy();"),
        bp.ProxyFault, "no fence between its initialisation and this"),
    "an mbarrier that is not initialised": (
        STAGE.replace("init(&b, 1);", "") + "if (i == 0) tensor_load(tile, map, 0, 4, &b);", STAGE + ASK + "wait(&b, 0);",
        bp.BarrierFault, "not initialised"),
    "over another's store": (
        STAGE + "if (i == 40) tile[0] = 1;" + ASK + "wait(&b, 0);",
        STAGE + "if (i == 40) { tile[0] = 1; fence_proxy(); } __syncthreads();" + ASK + "wait(&b, 0);",
        bp.RaceFault, "overwrites what nothing orders with another warp's store|store (of what a copy|that nothing)"),
    "over a store that is not fenced": (
        STAGE + "if (i == 40) tile[0] = 1; __syncthreads();" + ASK + "wait(&b, 0);",
        STAGE + "if (i == 40) tile[0] = 1; __syncthreads(); fence_proxy();" + ASK + "wait(&b, 0);",
        bp.ProxyFault, "overwrites what was stored with no fence.proxy.async behind it"),
    "over what another reads": (
        STAGE + ASK + "wait(&b, 0);" + TAKE + ASK + "wait(&b, 1);", STAGE + ASK + "wait(&b, 0);" + TAKE + "__syncthreads();" + ASK
        + "wait(&b, 1);", bp.RaceFault, "overwrites what another warp may still read|load (of what|that nothing)"),
    "over another on its way": (
        STAGE + "if (i == 0) { arrive_expecting(&b, 1024); tensor_load(tile, map, 0, 4, &b); tensor_load(tile, map, 0, 0, &b); }"
        "wait(&b, 0);",
        STAGE + ASK + "wait(&b, 0); __syncthreads();" + ASK + "wait(&b, 1);",
        bp.RaceFault, "over bytes of another copy that has not arrived"),
    "to an odd address": (STAGE + ASK.replace("tile,", "tile + 16,") + "wait(&b, 0);", STAGE + ASK.replace("tile,", "tile + 32,")
                          + "wait(&b, 0);", bp.MisalignedFault, "no multiple of 128 bytes at shared memory.64"),
    "to beyond the end": (STAGE + ASK.replace("tile,", "tile + 64,") + "wait(&b, 0);", STAGE + ASK + "wait(&b, 0);",
                          bp.OutOfBoundsFault, "a tensor copy of 512 bytes at shared memory.256"),
    "not there when its CTA ends": (STAGE + ASK, STAGE + ASK + "wait(&b, 0);", bp.RaceFault,
                                    "a CTA ends before a copy into its shared memory has arrived"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOADS)
def test_boxes_into_shared_memory(name: str) -> None:
    """As late as they may come; of what is overtaken there are findings in other orders too, but not all."""
    wrong, right, kind, says = LOADS[name]
    for options in ARRIVALS:
        held, _ = run(right, options)
        assert not held.any() or (held == np.arange(128, 192)).all()
    with pytest.raises(kind, match=says) as caught:
        run(wrong, Options())
    if kind is not bp.KernelFault and kind is not bp.DeadlockFault:
        assert caught.value.space == "shared" and caught.value.cta == 0 and caught.value.source.startswith("small.cu:")


FILL = "__shared__ alignas(128) float tile[160]; tile[i] = i; tile[64 + i] = 64 + i;"
GIVE = "if (i == 0) { tensor_store(to, 0, 4, tile); commit_stores(); await_stores(); }"
STORES = {
    "no proxy fence": (FILL + "__syncthreads();" + GIVE, FILL + "fence_proxy(); __syncthreads();" + GIVE,
                       bp.ProxyFault, "a tensor store reads what was stored with no fence.proxy.async behind it"),
    "a fence of the one who stores": (FILL + "__syncthreads();" + GIVE, FILL + "__syncthreads(); fence_proxy();" + GIVE,
                                      bp.ProxyFault, "no fence.proxy.async behind it"),
    "a fence ahead of the writes": ("fence_proxy();" + FILL + "__syncthreads();" + GIVE,
                                    FILL + "fence_proxy(); __syncthreads();" + GIVE,
                                    bp.ProxyFault, "no fence.proxy.async behind it"),
    "another fence": (FILL + "__threadfence(); __syncthreads();" + GIVE, FILL + "fence_proxy(); __syncthreads();" + GIVE,
                      bp.ProxyFault, "no fence.proxy.async behind it"),
    "no barrier": (FILL + "fence_proxy();" + GIVE, FILL + "fence_proxy(); __syncthreads();" + GIVE,
                   bp.RaceFault, "a tensor store reads what nothing orders with another warp's store|nothing had written"),
    "changed meanwhile": (
        FILL + "fence_proxy(); __syncthreads();" + GIVE.replace("await_stores();", "tile[3] = 9; await_stores();"),
        FILL + "fence_proxy(); __syncthreads();" + GIVE.replace("await_stores();", "await_stores(); tile[3] = 9;"),
        bp.RaceFault, "shared memory changed under a tensor store on its way"),
    "changed by another before it is read": (
        FILL + "fence_proxy(); __syncthreads();" + GIVE + "if (i == 40) tile[3] = 9;",
        FILL + "fence_proxy(); __syncthreads();" + GIVE + "__syncthreads(); if (i == 40) tile[3] = 9;",
        bp.RaceFault, "store that nothing orders with another warp's load|changed under"),
    "never waited for": (FILL + "fence_proxy(); __syncthreads();" + GIVE.replace("await_stores();", ""),
                         FILL + "fence_proxy(); __syncthreads();" + GIVE,
                         bp.RaceFault, "a CTA ends before a tensor store has read its shared memory"),
    "never committed": (FILL + "fence_proxy(); __syncthreads();" + GIVE.replace("commit_stores();", ""),
                        FILL + "fence_proxy(); __syncthreads();" + GIVE,
                        bp.RaceFault, "a CTA ends before a tensor store has read its shared memory"),
    "from an odd address": (
        FILL + "fence_proxy(); __syncthreads();" + GIVE.replace("tile)", "tile + 8)"),
        FILL + "tile[128 + lane] = 1; fence_proxy(); __syncthreads();" + GIVE.replace("tile)", "tile + 32)"),
        bp.MisalignedFault, "no multiple of 128 bytes at shared memory.32"),
    "of what nothing wrote": (
        FILL.replace("tile[64 + i] = 64 + i;", "") + "fence_proxy(); __syncthreads();" + GIVE,
        FILL.replace("tile[64 + i] = 64 + i;", "") + "fence_proxy(); __syncthreads();" + GIVE.replace("0, 4,", "0, 6,"),
        bp.UninitialisedFault, "a value that nothing had written reached a result at shared memory.256"),
}  # fmt: skip


@pytest.mark.parametrize("name", STORES)
def test_boxes_out_of_shared_memory(name: str) -> None:
    wrong, right, kind, says = STORES[name]
    for options in ARRIVALS:
        run(right, options)
    with pytest.raises(kind, match=says) as caught:
        run(wrong, Options())
    assert caught.value.space == "shared" and caught.value.cta == 0 and caught.value.source.startswith("small.cu:")


def test_a_box_leaves_as_it_was() -> None:
    for options in ARRIVALS:
        _, out = run(FILL + "fence_proxy(); __syncthreads();" + GIVE, options)
        assert (out.ravel()[128:] == np.arange(128)).all() and not out.ravel()[:128].any()


def test_a_box_into_what_is_only_read() -> None:
    with pytest.raises(bp.ReadOnlyFault, match=r"read-only.* at x") as caught:
        run(FILL + "fence_proxy(); __syncthreads();" + GIVE.replace("(to,", "(map,"), Options())
    assert caught.value.operand == "x" and caught.value.byte == 512


@every_arrival
def test_a_box_before_the_launch_ahead_is_over(options: Options) -> None:
    early = STAGE + ASK + ptx("griddepcontrol.wait") + "wait(&b, 0);" + TAKE
    right = STAGE + ptx("griddepcontrol.wait") + ASK + "wait(&b, 0);" + TAKE
    run(right, options, pdl=True)
    run(early, options)
    with pytest.raises(bp.RaceFault, match=r"load before griddepcontrol\.wait"):
        run(early, options, pdl=True)
    early = FILL + "fence_proxy(); __syncthreads();" + GIVE.replace("await", ptx("griddepcontrol.wait") + "await")
    with pytest.raises(bp.RaceFault, match=r"store before griddepcontrol\.wait"):
        run(early, options, pdl=True)


@every_order
def test_tensor_maps_are_stored_among_kernel_arguments(options: Options) -> None:
    for change, kind, says in (
        ("(const Map&)*((const char*)&map + 16)", bp.MisalignedFault, "a tensor map at no multiple of 64 bytes"),
        ("(const Map&)*((const char*)&map + 64)", bp.OutOfBoundsFault, "holds no tensor map"),
    ):
        with pytest.raises(kind, match=says):
            run(STAGE + ASK.replace("map,", f"{change},"), options)


BOTH = STAGE.replace("__syncthreads();", MEET) + "if (i == 0) arrive_expecting(&b, 512); " + MEET
SHARE = "if (i == 0 && my_rank() == 0) tensor_load_each(tile, map, 0, 4, &b, {});"
DONE = "wait(&b, 0);" + TAKE.replace("[i] =", "[blockIdx.x * 64 + i] =") + MEET
SHARED = {
    "of one more": (BOTH + SHARE.format(7) + DONE, bp.OutOfBoundsFault, "a copy to CTAs 0b111 of a cluster of 2"),
    "to one only": (BOTH + SHARE.format(1) + DONE, bp.DeadlockFault, "CTA 1 warps 0, 1 at the mbarrier at shared memory.640"),
    "before the other has begun": (
        STAGE + "if (i == 0) arrive_expecting(&b, 512);" + SHARE.format(3) + DONE, bp.RaceFault, "may not have begun"),
    "that rings another's": (
        BOTH + "if (i == 0) tensor_load(at(tile), map, 0, 4, of_peer(&b, my_rank() ^ 1));" + DONE, bp.BarrierFault,
        "a copy into one CTA that rings an mbarrier of another"),
    "into what the other reads": (
        BOTH.replace("if (i == 0)", "tile[i] = 1; if (i == 0)", 1)
        + "out_sum[blockIdx.x * 64 + i] = tile[i];" + SHARE.format(3) + DONE, bp.KernelFault,
        "overwrites what another warp may still read|no fence.proxy.async|nothing orders"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_boxes_into_each_cta_of_a_cluster(name: str) -> None:
    for options in ARRIVALS:
        held, _ = run(BOTH + SHARE.format(3) + DONE, options, attributes=PAIR, grid=2)
        assert (held == np.tile(np.arange(128, 192), 2)).all()
    body, kind, says = SHARED[name]
    with pytest.raises(kind, match=says):
        run(body, Options(), attributes=PAIR, grid=2)


# ---- st.async --------------------------------------------------------------------------------------------------------

INBOX = (
    "__shared__ int box[64]; __shared__ u64 b; if (i == 0) { init(&b, 1); fence_init(); arrive_expecting(&b, 256); }"
    + MEET + "const u32 peer = my_rank() ^ 1;"
)  # fmt: skip
SEND = "send_peer(of_peer(box + i, peer), i, of_peer(&b, peer));"
GOT = "out_sum[blockIdx.x * 64 + i] = box[63 - i];"
SENT = {
    "read before it is there": (INBOX + SEND + GOT + "wait(&b, 0);", INBOX + SEND + "wait(&b, 0);" + GOT,
                                bp.RaceFault, "load of bytes of a copy that has not arrived|load that nothing orders"),
    "before the peer has begun": ((INBOX + SEND + "wait(&b, 0);" + GOT).replace(MEET, "__syncthreads();"),
                                  INBOX + SEND + "wait(&b, 0);" + GOT, bp.KernelFault, "may not have begun|not initialised"),
    "over what the peer reads": (
        INBOX + "box[i] = 1; __syncthreads(); int v = box[63 - i];" + SEND + "wait(&b, 0); out_sum[i] = v;",
        INBOX + "box[i] = 1; __syncthreads(); int v = box[63 - i];" + MEET + SEND
        + "wait(&b, 0); out_sum[blockIdx.x * 64 + i] = v;",
        bp.RaceFault, "st.async overwrites|nothing orders|of what a copy"),
    "to an odd address": (INBOX + SEND.replace("of_peer(box + i, peer)", "of_peer(box + i, peer) + 2"),
                          INBOX + SEND + "wait(&b, 0);", bp.MisalignedFault, "store of 4 bytes at an odd address at shared"),
    "left behind": (INBOX + SEND, INBOX + SEND + "wait(&b, 0);", bp.RaceFault,
                    "a CTA ends before a copy into its shared memory has arrived"),
}  # fmt: skip


@pytest.mark.parametrize("name", SENT)
def test_stores_to_a_peer(name: str) -> None:
    wrong, right, kind, says = SENT[name]
    for options in ARRIVALS:
        held, _ = run(right, options, attributes=PAIR, grid=2)
        assert not held.any() or (held == 1).all() or (held == np.tile(np.arange(64)[::-1], 2)).all()
    with pytest.raises(kind, match=says):
        run(wrong, Options(), attributes=PAIR, grid=2)

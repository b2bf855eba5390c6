"""How small kernels on the emulator's engine are written, with PTX instructions by name as device functions, and run: in which
orders, and a wrong one beside one that is nearly the same and right."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.emulator.options import Options

from .small_kernels import SmallKernel, small

__all__ = ["DEVICE", "I32", "LOCKSTEP", "Array", "beside", "body_of", "every_order", "fault_of", "ptx", "run"]

Array = np.ndarray[Any, Any]
I32 = np.int32
LOCKSTEP = Options()
every_order = pytest.mark.parametrize(
    "options", [LOCKSTEP, Options("random", 1), Options("random", 2)], ids=lambda o: f"{o.order}{o.seed}"
)


def ptx(text: str) -> str:
    return f'asm volatile("{text};" ::: "memory");'


def body_of(
    body: str, parameters: str = "int* out, int* out_two, int n", *, attributes: str = "", name: str = "f"
) -> SmallKernel:
    """The kernel with that body, in which `i` is the thread and `lane` its lane."""
    return small(
        f'{DEVICE}\nextern "C" __global__ void {attributes} {name}({parameters}) {{\n'
        f"  const int i = threadIdx.x, lane = i & 31;\n{body}\n}}\n",
        name,
    )


def run(
    kernel: str | SmallKernel, options: Options = LOCKSTEP, *,
    grid: int = 1, block: int = 64, each: int = 1, n: int = 0, attributes: str = "", **more: Any,
) -> Array:  # fmt: skip
    """What a body, or a kernel of as many of its parameters, leaves in `out`: `each` numbers of a thread, zeros before."""
    kernel = body_of(kernel, attributes=attributes) if isinstance(kernel, str) else kernel
    out, two = np.zeros((2, grid * block * each), I32)
    args = {"out": out, "out_two": two, "n": I32(n)}
    kernel.run(grid, block, options=options, **dict(islice(args.items(), len(kernel.code.entry.parameters))), **more)
    return out


def fault_of(kind: type[Any], says: str, kernel: str | SmallKernel, options: Options = LOCKSTEP, **how: Any) -> Any:
    """The fault that a wrong kernel ends in. Where threads can go on, it names one of them and its statement."""
    with pytest.raises(kind, match=says) as caught:
        run(kernel, options, **how)
    fault = caught.value
    if not isinstance(fault, bp.DeadlockFault):
        assert fault.cta is not None and fault.thread is not None and fault.instruction and fault.ptx_line
        assert fault.source.startswith("small.cu:") or isinstance(kernel, SmallKernel)
    return fault


def beside(kind: type[Any], says: str, wrong: Any, right: Any, options: Options, **how: Any) -> tuple[Any, Array]:
    """The fault of a wrong kernel, and what one that is nearly the same and right leaves in `out`."""
    out = run(right, options, **how)
    return fault_of(kind, says, wrong, options, **how), out


DEVICE = """
using u32 = unsigned;
using u64 = unsigned long long;
struct alignas(64) Map { unsigned char opaque[128]; };
__device__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// mbarriers
__device__ void init(u64* b, u32 n) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at(b)), "r"(n) : "memory"); }
__device__ void drop(u64* b) { asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(at(b)) : "memory"); }
__device__ void arrive(u64* b, u32 n = 1) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0], %1;" ::"r"(at(b)), "r"(n) : "memory");
}
__device__ void arrive_expecting(u64* b, u32 nbytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at(b)), "r"(nbytes) : "memory");
}
__device__ bool tried(u64* b, u32 parity) {
  u32 ok;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(ok) : "r"(at(b)), "r"(parity) : "memory");
  return ok;
}
__device__ void wait(u64* b, u32 parity) { while (!tried(b, parity)) {} }
__device__ void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ void fence_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// clusters
__device__ u32 my_rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ u32 of_peer(const void* p, u32 rank) {
  u32 there; asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at(p)), "r"(rank)); return there;
}
__device__ int load_peer(u32 there) {
  int v; asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(there) : "memory"); return v;
}
__device__ void store_peer(u32 there, int v) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there), "r"(v) : "memory");
}
__device__ void send_peer(u32 there, int v, u32 bell) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
      ::"r"(there), "r"(v), "r"(bell) : "memory");
}
__device__ void arrive_peer(u32 there) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
}

// copies
__device__ void copy(void* to, const void* from, u32 taken = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at(to)), "l"(from), "r"(taken) : "memory");
}
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ void await() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
__device__ void tensor_load(u32 to, const Map& map, int x, int y, u32 bell) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
      ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(bell) : "memory");
}
__device__ void tensor_load(void* to, const Map& map, int x, int y, u64* bell) { tensor_load(at(to), map, x, y, at(bell)); }
__device__ void tensor_load_each(void* to, const Map& map, int x, int y, u64* bell, unsigned short ranks) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%2, %3}], [%4], %5;"
      ::"r"(at(to)), "l"(&map), "r"(x), "r"(y), "r"(at(bell)), "h"(ranks) : "memory");
}
__device__ void tensor_store(const Map& map, int x, int y, const void* from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
      ::"l"(&map), "r"(at(from)), "r"(x), "r"(y) : "memory");
}
__device__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ void await_stores() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
"""

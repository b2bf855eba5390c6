"""Addresses that kernels may not touch, or must be multiples of something, each beside one that is nearly the same and right.

Global memory, shared memory, a thread's own memory, parameters; loads, stores and vectors. That an operand's neighbours, an
odd pointer or a gap are distinguished is in emulator_operands_test.py, atomic operations are in emulator_access_test.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

from .small_kernels import SmallKernel, small, written_in_ptx

Array = np.ndarray[Any, Any]
I32 = np.int32


def ints(n: int) -> Array:
    return np.arange(n, dtype=I32)


# ---- global memory ---------------------------------------------------------------------------------------------------

MOVE = """
extern "C" __global__ void load(const int* x, int* out, int at) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = x[i + at];  // here
}
extern "C" __global__ void store(const int* x, int* out, int at) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i + at] = x[i];  // there
}
"""


@pytest.mark.parametrize(("entry", "operand", "mark"), [("load", "x", "here"), ("store", "out", "there")])
@pytest.mark.parametrize(("at", "byte", "cta", "thread"), [(1, 256, 1, 31), (-1, -4, 0, 0)])
def test_one_element_too_far_at_either_end(
    entry: str, operand: str, mark: str, at: int, byte: int, cta: int, thread: int
) -> None:
    kernel, x, out = small(MOVE, entry), ints(64), np.zeros(64, I32)
    with pytest.raises(bp.OutOfBoundsFault, match=f"{entry} of 4 bytes") as caught:
        kernel.run(2, 32, x=x, out=out, at=I32(at))
    fault = caught.value
    assert (fault.operand, fault.space, fault.byte, fault.extent) == (operand, "global", byte, 256)
    assert (fault.cta, fault.thread, fault.source) == (cta, thread, kernel.line(mark))
    assert f"at {operand}{byte:+d}, which has 256" in str(fault) and entry in fault.kernel and not out.any()
    kernel.run(2, 32, x=x, out=out, at=I32(0))
    assert (out == x).all()


def test_a_mask_that_keeps_an_access_away() -> None:
    """The tail of a block, and a load under a predicate that is false where there is no memory."""
    kernel = small("""
extern "C" __global__ void f(const int* x, int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i];  // here
}
""")
    x, out = ints(61), np.zeros(61, I32)
    kernel.run(2, 32, x=x, out=out, n=I32(61))
    assert (out == x).all()
    with pytest.raises(bp.OutOfBoundsFault) as caught:
        kernel.run(2, 32, x=x, out=out, n=I32(62))
    assert (caught.value.operand, caught.value.byte, caught.value.thread) == ("x", 244, 29)
    assert caught.value.source == kernel.line("here")


def test_a_gap_may_be_loaded_and_dropped_and_never_stored_to() -> None:
    kernel = small("""
extern "C" __global__ void f(const int* x, int* out, int to) {
  const int i = threadIdx.x;
  const int2 both = reinterpret_cast<const int2*>(x)[i];
  out[2 * i + to] = both.x;
}
""")
    held, target = ints(64), np.zeros(64, I32)
    kernel.run(1, 31, x=held[::2], out=target[::2], to=I32(0))
    assert (target[:62:2] == held[:62:2]).all() and not target[1::2].any()
    with pytest.raises(bp.OutOfBoundsFault, match=r"no element's \(31 threads\) at out\+4") as caught:
        kernel.run(1, 31, x=held[::2], out=target[::2], to=I32(1))
    assert caught.value.thread == 0


VECTOR = """
extern "C" __global__ void f(const int* x, int* out, int from, int to) {
  int4 v;
  x += 4 * threadIdx.x + from;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(x));  // here
  *reinterpret_cast<int4*>(out + 4 * threadIdx.x + to) = v;  // there
}
"""


@pytest.mark.parametrize(
    ("of", "to", "operand", "mark"), [(1, 0, "x", "here"), (2, 0, "x", "here"), (0, 2, "out", "there")]
)
def test_vectors_begin_at_multiples_of_their_size(of: int, to: int, operand: str, mark: str) -> None:
    kernel, x, out = small(VECTOR), ints(136), np.zeros(136, I32)
    kernel.run(1, 32, x=x, out=out, **{"from": I32(4), "to": I32(4)})
    assert (out[4:132] == x[4:132]).all()
    with pytest.raises(bp.MisalignedFault, match=f"16 bytes at an odd address.*at {operand}\\+") as caught:
        kernel.run(1, 32, x=x, out=out, **{"from": I32(of), "to": I32(to)})
    assert caught.value.source == kernel.line(mark) and caught.value.byte == 4 * (of or to)


def test_a_vector_may_not_reach_over_the_end() -> None:
    kernel, x, out = small(VECTOR), ints(130), np.zeros(130, I32)
    with pytest.raises(bp.OutOfBoundsFault) as caught:
        kernel.run(1, 32, x=x, out=out, **{"from": I32(4), "to": I32(0)})
    assert (caught.value.operand, caught.value.byte, caught.value.thread) == ("x", 512, 31)


def test_bounds_refuse_a_write_of_the_same_value_to_an_input() -> None:
    kernel = small("""
extern "C" __global__ void f(int* x, int* out, int n) {
  const int i = threadIdx.x, v = x[i];
  if (i < n) asm volatile("st.global.u32 [%0], %1;" ::"l"(x + i), "r"(v) : "memory");  // here
  out[i] = v;
}
""")
    x, out = ints(32), np.zeros(32, I32)
    kernel.run(1, 32, x=x, out=out, n=I32(0))
    assert (out == x).all()
    with pytest.raises(bp.ReadOnlyFault, match="read-only") as caught:
        kernel.run(1, 32, x=x, out=out, n=I32(5))
    assert (caught.value.operand, caught.value.byte, caught.value.source) == ("x", 0, kernel.line("here"))


# ---- shared memory, and a thread's own -------------------------------------------------------------------------------

SHARED = """
extern __shared__ int tile[];
extern "C" __global__ void f(int* out, int at) {
  tile[threadIdx.x + at] = threadIdx.x;  // here
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x + at];
}
"""


@pytest.mark.parametrize(("at", "byte", "thread"), [(1, 256, 63), (-1, -4, 0)])
def test_shared_memory_ends_where_the_launch_says(at: int, byte: int, thread: int) -> None:
    kernel, out = small(SHARED), np.zeros(64, I32)
    with pytest.raises(bp.OutOfBoundsFault, match="store of 4 bytes at shared memory") as caught:
        kernel.run(1, 64, out=out, at=I32(at), shared=256)
    assert (caught.value.byte, caught.value.extent, caught.value.thread) == (byte, 256, thread)
    assert caught.value.space == "shared" and caught.value.source == kernel.line("here")
    kernel.run(1, 64, out=out, at=I32(1), shared=260)
    assert (out == ints(64)).all()


LIMITS = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90a": 227, "sm_100": 227, "sm_120": 99}


@pytest.mark.parametrize("arch", LIMITS)
def test_no_launch_has_more_shared_memory_than_its_arch(arch: str) -> None:
    """CUDA C++ Programming Guide, Technical Specifications per Compute Capability: maximum shared memory per thread block."""
    kernel, out, most = small(SHARED, arch=arch), np.zeros(64, I32), LIMITS[arch] << 10
    kernel.run(1, 64, out=out, at=I32(0), shared=most)
    with pytest.raises(bp.KernelFault, match=f"no GPU takes.*{most + 16} bytes of shared memory"):
        kernel.run(1, 64, out=out, at=I32(0), shared=most + 16)


def test_shared_vectors_begin_at_multiples_of_their_size() -> None:
    kernel = small("""
extern "C" __global__ void f(int* out, int at) {
  __shared__ alignas(16) int tile[132];
  for (int i = threadIdx.x; i < 132; i += 32) tile[i] = i;
  __syncthreads();
  const int2 v = *reinterpret_cast<int2*>(tile + 4 * threadIdx.x + at);  // here
  out[threadIdx.x] = v.y - v.x + tile[threadIdx.x];
}
""")
    out = np.zeros(32, I32)
    kernel.run(1, 32, out=out, at=I32(2))
    assert (out == ints(32) + 1).all()
    with pytest.raises(bp.MisalignedFault, match="8 bytes at an odd address at shared memory") as caught:
        kernel.run(1, 32, out=out, at=I32(1))
    assert (caught.value.byte, caught.value.thread, caught.value.source) == (4, 0, kernel.line("here"))


def local(access: str) -> SmallKernel:
    return written_in_ptx(f"""
.visible .entry f(.param .u64 o, .param .u32 at)
{{
    .local .align 16 .b8 own[32];
    .reg .b32 %r<6>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [o]; ld.param.u32 %r1, [at]; mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r2, 4; add.s64 %rd1, %rd1, %rd2;
    cvt.u64.u32 %rd3, %r1; mov.u64 %rd4, own; add.s64 %rd4, %rd4, %rd3;
    st.local.v4.u32 [own], {{%r2, %r2, %r2, %r2}}; st.local.v4.u32 [own+16], {{%r2, %r2, %r2, %r2}};
    {access}
    st.global.u32 [%rd1], %r3;
    ret;
}}
""")


@pytest.mark.parametrize("access", [
    "ld.local.u32 %r3, [%rd4];", "cvta.local.u64 %rd4, %rd4; ld.u32 %r3, [%rd4];",
    "st.local.u32 [%rd4], %r2; mov.u32 %r3, %r2;", "cvta.local.u64 %rd4, %rd4; st.u32 [%rd4], %r2; mov.u32 %r3, %r2;",
])  # fmt: skip
def test_thread_local_memory(access: str) -> None:
    kernel, out = local(access), np.zeros(32, I32)
    kernel.run(1, 32, out=out, at=I32(28))
    assert (out == ints(32)).all()
    for at, kind in ((32, bp.OutOfBoundsFault), (30, bp.OutOfBoundsFault), (26, bp.MisalignedFault)):
        with pytest.raises(kind, match=r"of 4 bytes.* at local memory") as caught:
            kernel.run(1, 32, out=out, at=I32(at))
        assert (caught.value.space, caught.value.byte, caught.value.extent) == ("local", at, 32)


def test_thread_local_memory_has_no_atomics() -> None:
    kernel = local("cvta.local.u64 %rd4, %rd4; atom.add.u32 %r3, [%rd4], 1;")
    with pytest.raises(bp.OutOfBoundsFault, match="an atomic operation on local memory"):
        kernel.run(1, 32, out=np.zeros(32, I32), at=I32(0))


def test_parameters_end_and_are_read_only() -> None:
    head = ".visible .entry f(.param .u64 o, .param .align 16 .b8 held[16])\n{ .reg .b32 %r<3>; .reg .b64 %rd<4>;"
    body = "mov.b64 %rd1, held; ld.param.u64 %rd2, [o]; {} st.global.u32 [%rd2], %r1; ret; }}"
    held, out = np.void(np.arange(4, dtype=I32).tobytes()), np.zeros(1, I32)
    good = written_in_ptx(f"{head} {body.format('add.s64 %rd1, %rd1, 12; ld.param.u32 %r1, [%rd1];')}")
    good.run(1, 1, out=out, held=held)
    assert out[0] == 3
    with pytest.raises(bp.OutOfBoundsFault):
        written_in_ptx(f"{head} {body.format('add.s64 %rd1, %rd1, 16; ld.param.u32 %r1, [%rd1];')}").run(
            1, 1, out=out, held=held
        )
    with pytest.raises(bp.ReadOnlyFault):
        written_in_ptx(f"{head} {body.format('mov.u32 %r1, 1; cvta.param.u64 %rd1, %rd1; st.u32 [%rd1], %r1;')}").run(
            1, 1, out=out, held=held
        )


def test_variables_of_a_module_that_would_outlast_the_launch() -> None:
    kernel = small("""
__device__ int counter = 5;
extern "C" __global__ void f(int* out, int n) {
  if (n) counter = n;
  out[threadIdx.x] = counter + threadIdx.x;
}
""")
    out = np.zeros(32, I32)
    kernel.run(1, 32, out=out, n=I32(0))
    assert (out == ints(32) + 5).all()
    with pytest.raises(bp.UnsupportedError, match=r"small.cu:f stores to counter, which would have to outlast"):
        kernel.run(1, 32, out=out, n=I32(1))


# ---- indices of 32 bits ----------------------------------------------------------------------------------------------

INDEX = """
extern "C" __global__ void product(const int* x, int* out, int pitch) {
  out[threadIdx.x] = x[int(threadIdx.x) * pitch];  // here
}
extern "C" __global__ void wide(const int* x, int* out, int pitch) {
  out[threadIdx.x] = x[(long long)(threadIdx.x) * pitch & 31];
}
extern "C" __global__ void hashed(const int* x, int* out, int pitch) {
  out[threadIdx.x] = x[threadIdx.x * pitch & 31];
}
extern "C" __global__ void counted(const int* x, int* out, int pitch) {
  out[threadIdx.x] = x[threadIdx.x] + int(threadIdx.x) * pitch;
}
extern "C" __global__ void backwards(const int* x, int* out, int pitch) {
  out[threadIdx.x] = x[31 + int(threadIdx.x) * pitch];
}
"""


def test_overflowed_index_is_reported_as_address() -> None:
    """2^27 times 32 is 0 in 32 bits: every address is inside the operand."""
    kernel, x, out = small(INDEX, "product"), ints(32), np.zeros(64, I32)
    with pytest.raises(bp.OverflowFault, match="32 bits that overflowed in 'mul") as caught:
        kernel.run(1, 64, x=x, out=out, pitch=I32(1 << 27))
    assert caught.value.source == kernel.line("here")
    kernel.run(1, 32, x=x, out=out, pitch=I32(1))
    assert (out[:32] == x).all()


@pytest.mark.parametrize("entry", ["wide", "hashed", "counted"])
def test_numbers_may_wrap_that_are_no_address(entry: str) -> None:
    x, out, pitch = ints(32), np.zeros(32, I32), (1 << 30) + 3
    small(INDEX, entry).run(1, 32, x=x, out=out, pitch=I32(pitch))
    product = np.arange(32) * pitch
    wanted = x[product & 31] if entry != "counted" else (x + product).astype(I32)
    assert (out == wanted).all()


HASH = """
extern "C" __global__ void f(const int* x, int* out, unsigned seed) {{
  const unsigned hash = (threadIdx.x + seed) * 2654435761u;
  out[threadIdx.x] = x[{}];
}}
"""
HASHES = {
    "hash >> 27": lambda h: h >> 27, "hash & 31": lambda h: h & 31, "hash % 24": lambda h: h % 24,
    "hash % 7 + 1": lambda h: h % 7 + 1, "__umulhi(hash, 30)": lambda h: h * 30 >> 32,
    "hash % (seed & 31)": lambda h: h % (70001 & 31), "(hash ^ hash >> 15) * 2246822519u >> 28":
    lambda h: (h ^ h >> 15) * 2246822519 % (1 << 32) >> 28,
}  # fmt: skip


@pytest.mark.parametrize("index", HASHES)
def test_bits_that_are_meant_do_not_overflow(index: str) -> None:
    """A hash wraps by design; what is taken out of it are some of its bits."""
    x, out = ints(32), np.zeros(32, I32)
    small(HASH.format(index)).run(1, 32, x=x, out=out, seed=np.uint32(70001))
    hashes = [(i + 70001) * 2654435761 % (1 << 32) for i in range(32)]
    assert out.tolist() == [HASHES[index](h) for h in hashes]


SCALED = """
extern "C" __global__ void f(const int* x, int* out, int pitch) {{
  out[threadIdx.x] = x[{}];
}}
"""


@pytest.mark.parametrize("index", ["(32 * int(threadIdx.x) * pitch) >> 25", "(32 * int(threadIdx.x) * pitch) / 5",
                                   "31 - 32 * int(threadIdx.x) * pitch", "max(32 * int(threadIdx.x) * pitch, 3)"])  # fmt: skip
def test_bounds_report_an_overflowed_address(index: str) -> None:
    """2^27 times 32 times the thread is 0 in 32 bits."""
    kernel, x, out = small(SCALED.format(index)), ints(32), np.zeros(32, I32)
    with pytest.raises(bp.OverflowFault):
        kernel.run(1, 32, x=x, out=out, pitch=I32(1 << 27))
    assert kernel.run(1, 1, x=x, out=out, pitch=I32(1 << 27))


def test_negative_indices_do_not_overflow() -> None:
    x, out = ints(32), np.zeros(32, I32)
    small(INDEX, "backwards").run(1, 32, x=x, out=out, pitch=I32(-1))
    assert (out == x[::-1]).all()

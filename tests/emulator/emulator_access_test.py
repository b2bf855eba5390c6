"""Loads, stores and atomic operations of every type, width and state space through real PTX on the emulator's engine."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.emulator.options import Options

from .small_kernels import SmallKernel, small, written_in_ptx

Array = np.ndarray[Any, Any]
KINDS = [f"{sign}{bits}" for sign in "bsu" for bits in (8, 16, 32, 64)] + ["f32", "f64"]
VECTORS = (1, 2, 4)
RNG = np.random.default_rng(11)
THREADS = 48
SPACES = ("global", "global.nc", "generic", "shared", "generic shared", "local", "generic local", "const", "param")


def register(kind: str) -> tuple[str, int]:
    """The widest register that a load of the type may fill, where that is wider: loads extend."""
    return (".b64", 64) if kind in ("f64", "b64", "u64", "s64") else (".b32", 32)


def through(kind: str, vector: int) -> SmallKernel:
    """Elements of x, out in registers of 32 or 64 bits, through each of the spaces: block after block of the result."""
    held, bits = register(kind)
    size = int(kind[1:]) // 8
    step, wide = size * vector, bits // 8 * vector
    names = [f"%v{j}" for j in range(vector)]
    listed = names[0] if vector == 1 else "{" + ", ".join(names) + "}"
    vec = f".v{vector}" if vector > 1 else ""
    constants = ", ".join(str(x) for x in CONSTANT[:16])
    lines = [
        f"mov.u32 %i, %tid.x; mul.wide.u32 %mine, %i, {step}; mul.wide.u32 %to, %i, {wide};",
        "ld.param.u64 %x, [px]; add.s64 %x, %x, %mine; ld.param.u64 %o, [pout]; add.s64 %o, %o, %to;",
        "cvt.u32.u64 %s, %mine; mov.u32 %r, tile; add.u32 %s, %s, %r; cvt.u64.u32 %gs, %s; cvta.shared.u64 %gs, %gs;",
        f"mov.u64 %l, depot; add.u64 %l, %l, 16; cvta.local.u64 %gl, %l; mov.u64 %c, table; ld.const{vec}.{kind} {listed}, [%c];",
    ]

    def out(load: str) -> None:
        lines.append(load)
        lines.extend(f"st.global.b{bits} [%o+{j * bits // 8}], {name};" for j, name in enumerate(names))
        lines.append(f"add.s64 %o, %o, {wide * THREADS};")

    def load(space: str, at: str) -> str:
        return f"ld{space}{vec}.{kind} {listed}, {at};"

    def store(space: str, at: str) -> str:
        return f"st{space}{vec}.{kind} {at}, {listed};"

    out(load(".global", "[%x]"))
    out(load(".global.nc", "[%x]"))
    out(load("", "[%x]"))
    lines.append(store(".shared", "[%s]"))
    out(load(".shared", "[%s]"))
    lines += [load(".global", f"[%x+{step * THREADS}]"), store("", "[%gs]")]
    out(load("", "[%gs]"))
    lines += [load(".global", "[%x]"), store(".local", f"[%l+{-16 + 2 * step}]")]
    out(load(".local", f"[depot+{2 * step}]"))
    lines += [load(".global", f"[%x+{step * THREADS}]"), store("", "[%gl]")]
    out(load("", "[%gl]"))
    out(load(".const", "[%c]"))
    out(load(".param", "[held]"))
    body = "\n".join(lines)
    return written_in_ptx(f"""
.const .align 16 .b8 table[{len(CONSTANT)}] = {{{constants}}};
.visible .entry f(.param .u64 px, .param .u64 pout, .param .align 16 .b8 held[32])
{{
    .shared .align 16 .b8 tile[{THREADS * 32}];
    .local .align 16 .b8 depot[128];
    .reg .b32 %i, %s, %r; .reg .b64 %mine, %to, %x, %o, %gs, %l, %gl, %c; .reg {held} %v<4>;
    {body}
    ret;
}}
""")


CONSTANT = [200, 17, 255, 128, 3, 129, 77, 254, 90, 131, 5, 6, 7, 250, 9, 160] + [0] * 16  # what is not given is zero


@pytest.mark.parametrize(
    ("kind", "vector"), [(k, v) for k, v in itertools.product(KINDS, VECTORS) if int(k[1:]) * v <= 128]
)
def test_what_is_stored_is_loaded(kind: str, vector: int) -> None:
    _, bits = register(kind)
    size = int(kind[1:]) // 8
    each = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{size}")
    wide = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{bits // 8}")
    x = RNG.integers(0, 256, 2 * THREADS * size * vector, np.uint8).view(each)
    held = RNG.integers(0, 256, 32, np.uint8)
    out = np.zeros((len(SPACES), THREADS * vector), wide)
    through(kind, vector).run(1, THREADS, px=x, out=out, held=np.void(held.tobytes()))
    first, second = x[: THREADS * vector].astype(wide), x[THREADS * vector :].astype(wide)
    fixed = {name: np.tile(np.array(data, np.uint8).view(each)[:vector], THREADS).astype(wide)
             for name, data in (("const", CONSTANT), ("param", held.tolist()))}  # fmt: skip
    expected = {"global": first, "global.nc": first, "generic": first, "shared": first, "local": first} | fixed
    for space, got in zip(SPACES, out):
        assert (got == expected.get(space, second)).all(), space


# ---- atomic operations -----------------------------------------------------------------------------------------------

ATOMICS = """
#define OP(NAME, T, CALL)                                                                             \\
  extern "C" __global__ void global_##NAME(const T* x, T* out, T* out_old) {                          \\
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                                         \\
    T* const at = out + x[i] % T(4); const T v = x[i];                                                \\
    out_old[i] = CALL;                                                                                \\
  }                                                                                                   \\
  extern "C" __global__ void shared_##NAME(const T* x, T* out, T* out_old) {                          \\
    __shared__ T held[4];                                                                             \\
    if (threadIdx.x < 4) held[threadIdx.x] = out[threadIdx.x];                                        \\
    __syncthreads();                                                                                  \\
    const unsigned i = threadIdx.x;                                                                   \\
    T* const at = held + x[i] % T(4); const T v = x[i];                                               \\
    out_old[i] = CALL;                                                                                \\
    __syncthreads();                                                                                  \\
    if (threadIdx.x < 4) out[threadIdx.x] = held[threadIdx.x];                                        \\
  }
typedef unsigned u32; typedef int s32; typedef unsigned long long u64; typedef long long s64;
OP(add_u32, u32, atomicAdd(at, v)) OP(add_u64, u64, atomicAdd(at, v)) OP(min_s32, s32, atomicMin(at, v))
OP(max_s32, s32, atomicMax(at, v)) OP(min_u32, u32, atomicMin(at, v)) OP(max_u64, u64, atomicMax(at, v))
OP(and_u32, u32, atomicAnd(at, v)) OP(or_u64, u64, atomicOr(at, v)) OP(xor_u32, u32, atomicXor(at, v))
OP(exch_u64, u64, atomicExch(at, v)) OP(inc_u32, u32, atomicInc(at, 7)) OP(dec_u32, u32, atomicDec(at, 7))
OP(cas_u32, u32, atomicCAS(at, v & 7, v)) OP(cas_u64, u64, atomicCAS(at, v & 7, v))
#define FLOAT(NAME, T)                                                                                \\
  extern "C" __global__ void global_##NAME(const T* x, T* out, T* out_old) {                          \\
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                                         \\
    out_old[i] = atomicAdd(out + i % 4, x[i]);                                                        \\
  }                                                                                                   \\
  extern "C" __global__ void shared_##NAME(const T* x, T* out, T* out_old) {                          \\
    __shared__ T held[4];                                                                             \\
    if (threadIdx.x < 4) held[threadIdx.x] = out[threadIdx.x];                                        \\
    __syncthreads();                                                                                  \\
    out_old[threadIdx.x] = atomicAdd(held + threadIdx.x % 4, x[threadIdx.x]);                         \\
    __syncthreads();                                                                                  \\
    if (threadIdx.x < 4) out[threadIdx.x] = held[threadIdx.x];                                        \\
  }
FLOAT(add_f32, float) FLOAT(add_f64, double)
extern "C" __global__ void reds(const u32* x, u32* out) {
  const u32 v = x[threadIdx.x];
  asm volatile("red.global.add.u32 [%0], %1;" ::"l"(out), "r"(v) : "memory");
  asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" ::"l"(out + 1), "r"(v) : "memory");
  asm volatile("atom.global.or.b32 _, [%0], %1;" ::"l"(out + 2), "r"(v) : "memory");
  asm volatile("red.xor.b32 [%0], %1;" ::"l"(out + 3), "r"(v) : "memory");
}
extern "C" __global__ void mixed(const u32* x, u32* out, u32* out_old) {
  __shared__ u32 held[4];
  if (threadIdx.x < 4) held[threadIdx.x] = 0;
  __syncthreads();
  u32* at = x[threadIdx.x] & 1 ? held + 1 : out + 1;
  asm volatile("atom.add.u32 %0, [%1], 1;" : "=r"(out_old[threadIdx.x]) : "l"(at) : "memory");
  __syncthreads();
  if (threadIdx.x == 0) out[0] = held[1];
}
"""


def after(name: str, old: int, v: int, mask: int) -> int:
    match name:
        case "add":
            return old + v & mask
        case "inc":
            return old + 1 if old < 7 else 0
        case "dec":
            return old - 1 if 0 < old <= 7 else 7
        case "cas":
            return v if old == v & 7 else old
        case "exch":
            return v
    rules: dict[str, Callable[[int, int], int]] = {
        "min": min, "max": max, "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    }  # fmt: skip
    return rules[name](old, v)


NAMES = ["add_u32", "add_u64", "min_s32", "max_s32", "min_u32", "max_u64", "and_u32", "or_u64", "xor_u32", "exch_u64", "inc_u32",
         "dec_u32", "cas_u32", "cas_u64"]  # fmt: skip


@pytest.mark.parametrize("order", ["lockstep", "random"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("where", ["global", "shared"])
def test_atomic_operations_are_done_one_after_another(where: str, name: str, order: Any) -> None:
    """Whatever the order: the old values are those of some sequence of the operations at each place."""
    grid, block = (3, 64) if where == "global" else (1, 128)
    kind = np.dtype(f"{'i' if name.endswith('s32') else 'u'}{int(name[-2:]) // 8}")
    high = 1 << 31 if kind.kind == "i" else 1 << kind.itemsize * 8 - 1
    x = RNG.integers(0, 16 if name[:3] == "cas" else high, grid * block, np.uint64).astype(kind)
    start = RNG.integers(0, 8, 4).astype(kind)
    out, old = start.copy(), np.zeros(grid * block, kind)
    small(ATOMICS, f"{where}_{name}").run(grid, block, x=x, out=out, out_old=old, options=Options(order, 5))
    mask = (1 << kind.itemsize * 8) - 1
    for place in range(4):
        mine = x % 4 == place
        left = Counter(zip(old[mine].tolist(), x[mine].tolist()))
        end = replayed(name.partition("_")[0], int(start[place]), left, mask)
        assert int(out[place]) in end


def replayed(name: str, value: int, left: Counter[tuple[int, int]], mask: int) -> set[int]:
    """Where sequences of operations end that give these old values: a walk along every edge of a graph of values."""
    edges = [(old, after(name, old, v, mask)) for (old, v), count in left.items() for _ in range(count)]
    degree = Counter(a for a, _ in edges)
    degree.subtract(b for _, b in edges)
    odd = {node: d for node, d in degree.items() if d}
    if not edges:
        return {value}
    assert value in {a for a, _ in edges}, "nobody saw what was there"
    reached, waiting = {value}, [value]
    while waiting:
        here = waiting.pop()
        for a, b in edges:
            if a == here and b not in reached:
                reached.add(b)
                waiting.append(b)
    assert all(a in reached for a, _ in edges), "an old value that no sequence leads to"
    if not odd:
        return {value}
    assert sorted(odd.values()) == [-1, 1] and odd.get(value) == 1, "old values of no sequence"
    return {node for node, d in odd.items() if d == -1}


@pytest.mark.parametrize("name", ["add_f32", "add_f64"])
@pytest.mark.parametrize("where", ["global", "shared"])
def test_floating_point_sums(where: str, name: str) -> None:
    grid, block = (3, 64) if where == "global" else (1, 128)
    kind = np.dtype(f"f{int(name[-2:]) // 8}")
    x = RNG.integers(-8, 9, grid * block).astype(kind)
    out, old = np.ones(4, kind), np.zeros(grid * block, kind)
    small(ATOMICS, f"{where}_{name}").run(grid, block, x=x, out=out, out_old=old)
    assert (out == 1 + x.reshape(-1, 4).sum(0)).all()
    for place in range(4):
        mine = slice(place, None, 4)
        assert Counter(old[mine].tolist()) + Counter([out[place].item()]) == Counter(
            (old[mine] + x[mine]).tolist()
        ) + Counter([1.0])


def test_reductions_and_results_that_nobody_wants() -> None:
    x, out = RNG.integers(0, 1 << 31, 96, np.uint32), np.array([5, 6, 8, 9], np.uint32)
    small(ATOMICS, "reds").run(1, 96, x=x, out=out)
    assert out.tolist() == [5 + int(x.sum(dtype=np.uint32)) & 0xFFFFFFFF, max(6, int(x.max())),
                            8 | int(np.bitwise_or.reduce(x)), 9 ^ int(np.bitwise_xor.reduce(x))]  # fmt: skip


VECTOR_SUMS = """
extern "C" __global__ void vectors(const float* x, float* out) {
  const float* const of = x + 4 * threadIdx.x;
  float* const to = out + threadIdx.x % 2 * 4;
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(of[0]), "f"(of[1]), "f"(of[2]), "f"(of[3])
               : "memory");
  asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(out + 8 + ODD), "f"(of[0]), "f"(of[1]) : "memory");
}
"""


def test_sums_of_adjacent_elements() -> None:
    x, out = RNG.integers(-8, 9, (64, 4)).astype(np.float32), np.ones(12, np.float32)
    small(VECTOR_SUMS.replace("ODD", "0"), arch="sm_90a").run(1, 64, x=x, out=out)
    assert (out[:8].reshape(2, 4) == 1 + x.reshape(32, 2, 4).sum(0)).all()
    assert (out[8:] == 1 + np.array([*x[:, :2].sum(0), 0, 0])).all()
    with pytest.raises(bp.MisalignedFault):
        small(VECTOR_SUMS.replace("ODD", "1"), arch="sm_90a").run(1, 64, x=x, out=out)


def test_generic_addresses_of_both_spaces_at_once() -> None:
    x, out, old = np.arange(64, dtype=np.uint32), np.zeros(4, np.uint32), np.zeros(64, np.uint32)
    small(ATOMICS, "mixed").run(1, 64, x=x, out=out, out_old=old)
    assert out.tolist() == [32, 32, 0, 0] and sorted(old[::2]) == sorted(old[1::2]) == list(range(32))


def test_atomic_operations_keep_to_elements() -> None:
    x, out = np.full(64, 5, np.uint32), np.zeros(4, np.uint32)
    with pytest.raises(bp.OutOfBoundsFault, match="at out"):
        small(ATOMICS, "reds").run(1, 64, x=x, out=out[:3])
    kernel = small("""extern "C" __global__ void f(unsigned* x) { atomicAdd(x, 1u); }""")
    with pytest.raises(bp.ReadOnlyFault):
        kernel.run(1, 64, x=out)
    assert not out.any()

"""``python -m benchmarks.mma_rate [MxNxK[:DTYPE[:kn]] ...]``: what mma.sync reaches, and what makes up the time of products.

Without shapes it times mma.sync from registers alone, of random bits: what no kernel on it exceeds at the clock that power
leaves. With shapes it times every configuration of `matmul_int8` that `select` chooses among, the fastest first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

from .int8_rows import codes
from .operands import Kit

__all__ = ["RATES", "configurations", "rate", "rate_source"]

# name -> types of the PTX instruction, its K, its accumulator, and the bits of operands that are random (floats are below 2)
RATES = {
    "s8": ("s32.s8.s8.s32", 32, "int", "0xffffffffu"),
    "bf16": ("f32.bf16.bf16.f32", 16, "float", "0xbfffbfffu"),
    "f16": ("f32.f16.f16.f32", 16, "float", "0xbfffbfffu"),
}
WARPS = ((4, 1), (4, 2), (8, 1), (8, 2), (16, 1))  # of a CTA, and CTAs an SM
PRODUCTS, PASSES, ROUNDS = 64, 4000, 30  # of a warp a pass, passes a launch, launches timed
COLD_BYTES = 200 << 20  # of operands in turn, more than an L2 holds

_SOURCE = """
extern "C" __global__ void mma_rate(unsigned* out, unsigned passes) {{
  const unsigned seed = (threadIdx.x + 1) * 2654435761u + blockIdx.x;
  unsigned a[4], b[2][2];
  {acc} c[8][4] = {{}};
  for (int i = 0; i < 4; ++i) a[i] = seed * (2 * i + 3) & {bits};
  for (int i = 0; i < 4; ++i) b[i / 2][i % 2] = seed * (2 * i + 17) & {bits};
#pragma unroll 1
  for (unsigned pass = 0; pass < passes; ++pass)
#pragma unroll
    for (int i = 0; i < {products}; ++i) {{
      {acc}(&own)[4] = c[i % 8];
      asm volatile("mma.sync.aligned.m16n8k{k}.row.col.{types} {{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9}}, {{%0,%1,%2,%3}};"
          : "+{reg}"(own[0]), "+{reg}"(own[1]), "+{reg}"(own[2]), "+{reg}"(own[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[i % 2][0]), "r"(b[i % 2][1]));
    }}
  {acc} sum = 0;
  for (int i = 0; i < 32; ++i) sum += c[i / 4][i % 4];
  if (sum == {acc}(12345)) out[0] = 1;
}}
"""


def rate_source(name: str) -> str:
    """The kernel of one type."""
    types, k, acc, bits = RATES[name]
    return _SOURCE.format(types=types, k=k, acc=acc, bits=bits, products=PRODUCTS, reg="r" if acc == "int" else "f")


def rate(name: str, warps: int = 8, per_sm: int = 1) -> float:
    """Operations a second, of so many warps a CTA and CTAs an SM."""
    import cupy

    kernel = cupy.RawModule(code=rate_source(name), options=("--std=c++17",)).get_function("mma_rate")
    sms = cupy.cuda.Device().attributes["MultiProcessorCount"]
    out = cupy.zeros(1, "uint32")
    seconds = _timed([lambda stream: kernel((sms * per_sm,), (32 * warps,), (out, cupy.uint32(PASSES)))])
    return 2.0 * 16 * 8 * RATES[name][1] * PRODUCTS * PASSES * warps * per_sm * sms / seconds


def _timed(calls: Sequence[Callable[[Any], Any]]) -> float:
    """Median seconds of a call, the calls taking turns in a CUDA graph."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        for call in calls:
            call(stream)
        stream.begin_capture()
        for call in calls:
            call(stream)
        graph = stream.end_capture()
        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        times = []
        for _ in range(ROUNDS):
            first.record(stream)
            graph.launch(stream)
            last.record(stream)
            last.synchronize()
            times.append(cupy.cuda.get_elapsed_time(first, last) * 1e-3 / len(calls))
    return median(times)


def configurations(m: int, n: int, k: int, dtype: str, *, along_k: bool) -> Iterator[tuple[str, float, float]]:
    """Each configuration of a product: its name, the seconds predicted, and those measured, of weights that are cold."""
    import baracuda_py as bp
    from baracuda_py.plan.about.tune import admissible
    from baracuda_py.runtime.gpu.device import spec_of
    from baracuda_py.types import PlanPreference

    kit = Kit(use_torch=False)

    def operands() -> dict[str, Any]:
        b = codes(kit, n, k).T if along_k else codes(kit, k, n)
        a = codes(kit, m, k) if dtype == "int8" else kit.normal((m, k), dtype)
        return {
            "a": a,
            "b": b,
            "out": kit.empty((m, n), "bfloat16"),
            "scale_b": kit.normal((n,), "float32", positive=True),
        }

    sets = [operands() for _ in range(max(2, min(16, -(-COLD_BYTES // (n * k)))))]
    desc = bp.Int8MatmulDescriptor.of(**sets[0])
    for plan in admissible(bp.Int8MatmulPlan, desc, PlanPreference(), spec_of(None)):
        seconds = _timed([plan.bind(**given) for given in sets])
        yield f"{plan.sku.variant}[{plan.sku.config}]", plan.cost.seconds, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "shapes", nargs="*", help="such as 4096x4096x4096, 1x8192x8192:bfloat16 or 16x8192x8192:int8:kn"
    )
    shapes = parser.parse_args().shapes
    for name in RATES if not shapes else ():
        for warps, per_sm in WARPS:
            print(f"mma.sync {name} {warps} warps x {per_sm}: {rate(name, warps, per_sm) / 1e12:.1f} T/s", flush=True)
    for text in shapes:
        shape, dtype, order = (*text.split(":"), "int8", "nk")[:3] if text.count(":") != 1 else (*text.split(":"), "nk")
        m, n, k = map(int, shape.split("x"))
        for name, predicted, seconds in sorted(
            configurations(m, n, k, dtype, along_k=order == "nk"), key=lambda x: x[2]
        ):
            tera = 2e-12 * m * n * k / seconds
            print(
                f"{text} {seconds * 1e6:9.2f} us {tera:7.1f} T/s, predicted {predicted * 1e6:9.2f} us: {name}",
                flush=True,
            )


if __name__ == "__main__":
    main()

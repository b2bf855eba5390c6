"""Philox4x32-10: known answers of Random123, on the emulator and in NumPy, and the counters of positions."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.random.oracle import bits_at, philox

from ...emulator.small_kernels import small

COVERS = ("fill_random_bits",)
ONES = 0xFFFFFFFF
# Counter, key and words of Random123's kat_vectors (philox4x32 10).
KNOWN = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES, ONES, ONES, ONES), (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)  # fmt: skip
BLOCKS = r"""
#include "random/philox.cuh"
__global__ void blocks(const u64* in, u32* out) {
  const u64* one = in + 3 * threadIdx.x;
  const philox::PhiloxBlock block = philox::philox_block(one[0], one[1], one[2]);
  for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = block.word[i];
}
"""


def _pair(low: int, high: int) -> int:
    return low | high << 32


def test_philox_oracle_known_answers() -> None:
    for counter, key, words in KNOWN:
        assert tuple(philox(key, counter)) == words


def test_philox_kernel_known_answers() -> None:
    from baracuda_py.runtime.compile.sources import kernels_dir

    headers = "".join(
        "\n".join(x for x in (kernels_dir() / "include" / name).read_text().splitlines() if not x.startswith("#"))
        + "\n"
        for name in ("core/dtype.cuh", "random/philox.cuh")
    )
    kernel = small(headers + "\n".join(x for x in BLOCKS.splitlines() if not x.startswith("#")))
    given = [(_pair(*key), _pair(*counter[:2]), _pair(*counter[2:])) for counter, key, _ in KNOWN]
    out = np.zeros((len(KNOWN), 4), np.uint32)
    kernel.run(1, len(KNOWN), x=np.array(given, np.uint64), out=out)
    assert out.tolist() == [list(words) for _, _, words in KNOWN]


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_random_bits_are_words_of_their_counters(device: str) -> None:
    zeros = bp.fill_random_bits(np.zeros(5, np.uint32), device=device)
    assert zeros[:4].tolist() == list(KNOWN[0][2])
    block = _pair(*KNOWN[2][0][:2]) % (1 << 60)
    given = {"seed": _pair(*KNOWN[2][1]), "offset": 4 * block, "subsequence": 7 + (1 << 32)}
    got, counter = (
        bp.fill_random_bits(np.zeros(4, np.uint32), **given, device=device),
        (block % (1 << 32), block >> 32, 7, 1),
    )
    assert got.tolist() == philox(KNOWN[2][1], counter).tolist()


def test_random_bits_of_each_width_share_no_counter() -> None:
    positions = np.arange(8, dtype=np.uint64)
    words = [bits_at(3, positions, 5, bits).ravel() for bits in (32, 64, 128)]
    assert len(set(np.concatenate(words).tolist())) == 8 * (1 + 2 + 4)

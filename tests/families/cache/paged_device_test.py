"""PagedKVCache where its pages are on a device: a step that is bound once, in a CUDA graph on a GPU, follows its batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

from ...arena import host

COVERS = ("paged_kv_append", "copy_pages")
SIZE, HEADS, DIM, BATCH = 4, 2, 16, 4


@pytest.mark.parametrize("element", ["f32", "i8", "fp8_e4m3"])
@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_a_step_that_is_bound_once_follows_its_batch(backend: str, element: str, layout: str) -> None:
    """Sequences come, fork, write to pages that they share, and are moved; launches and addresses stay the same."""
    device = "cpu" if backend == "cpu" else None
    spec = bp.KVCacheSpec(2, HEADS, DIM, page_size=SIZE, element=element, layout=layout)
    cache = bp.PagedKVCache(spec, 24, max_batch=BATCH, device=device)
    memory = cache.arrays.memory
    new = {part: memory.zeros((BATCH, HEADS, DIM), bp.F32) for part in "kv"}
    tables = {"page_table": cache.page_table, "lengths": cache.lengths, "cu_seqlens": cache.cu_seqlens}
    bounds = []
    for layer in range(spec.layers):
        operands = {**cache.layer(layer), **new, **tables}
        desc = bp.PagedKvAppendDescriptor.of(**operands, layout=layout)
        plan = bp.PagedKvAppendPlan.select(desc, device=device)
        bounds.append(plan.bind(**operands, status=cache.arrays.status[layer]))
    graph = bp.Graph(*bounds) if backend == "cuda" else None

    batch, wanted = [cache.allocate(), cache.allocate()], {}
    wanted = {sequence: [] for sequence in batch}
    number = 0
    for turn in range(14):
        if turn == 5:
            batch.append(cache.fork(batch[0]))
            wanted[batch[2]] = [*wanted[batch[0]]]
        if turn == 9:
            cache.free(batch.pop(1))
            assert cache.defragment() > 0
        cache.extend({sequence: [turn] for sequence in batch})
        values = np.zeros((BATCH, HEADS, DIM), np.float32)
        for row, sequence in enumerate(batch):
            number += 1
            values[row] = number
            wanted[sequence].append(number)
        memory.write(new["k"], values, None)
        memory.write(new["v"], -values, None)
        cache.stage(batch)
        if graph is not None:
            graph.launch()
        else:
            for bound in bounds:
                bound()
        cache.advance(batch)
        assert not host(cache.arrays.status).any()
    assert cache.statistics.copied == 1
    for layer in range(spec.layers):
        arrays = {name: host(x) for name, x in cache.layer(layer).items()}
        for part, sign in (("k", 1), ("v", -1)):
            stored = _by_slot(arrays[f"{part}_pages"], layout).astype(np.float64)
            if element != "f32":
                stored = stored * _by_slot(arrays[f"{part}_scales"], layout)[..., None]
            for sequence in batch:
                got = stored[sequence.pages].reshape(-1, HEADS, DIM)[: sequence.length]
                numbers = sign * np.array(wanted[sequence])[:, None, None]
                np.testing.assert_allclose(got, np.broadcast_to(numbers, got.shape), rtol=1e-6)


def _by_slot(pages: Any, layout: str) -> Any:
    return pages if layout == "NHD" else np.swapaxes(pages, 1, 2)

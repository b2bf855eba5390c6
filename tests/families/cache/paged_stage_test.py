"""A stage that fails in the middle is not taken for one that was done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp


@pytest.mark.parametrize("writes", [0, 1])
def test_failed_stage_leaves_no_state_to_the_next_one(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    cache = bp.PagedKVCache(bp.KVCacheSpec(1, 1, 8, page_size=4, element="f32"), 8, max_batch=2, device="cpu")
    one, other = cache.allocate(3), cache.allocate(8)
    cache.stage([one])
    write, done = cache.arrays.memory.write, 0

    def failing(array: Any, host: Any, stream: Any) -> None:
        nonlocal done
        if done == writes:
            raise RuntimeError("no more writes")
        done += 1
        write(array, host, stream)

    with monkeypatch.context() as patch:
        patch.setattr(cache.arrays.memory, "write", failing)
        with pytest.raises(RuntimeError):
            cache.stage([other])
    cache.stage([one])
    assert cache.page_table[0, 0] == one.pages[0]
    tokens = np.ones((3, 1, 8), np.float32)
    assert not cache.append(0, tokens, tokens).any()
    assert cache.layer(0)["k_pages"][one.pages[0], :3].all() and not cache.layer(0)["k_pages"][other.pages].any()

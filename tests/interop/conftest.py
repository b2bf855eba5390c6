"""torch computes with one thread here: its operands are small, and threads that wait for one another take most of the time of a
machine that runs other tests as well."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)

"""Statements cut into basic blocks: a block ends where threads diverge, reconverge, wait or exit (PTX ISA, Control Flow
Instructions; Parallel Synchronization and Communication Instructions)."""

from __future__ import annotations

from collections.abc import Sequence

from .syntax import Entry, Instruction, Item

__all__ = ["MASKED", "WARPGROUPS", "WARPS", "cut"]

# Statements that end a block: threads diverge, wait or exit there.
_ENDS = {"bra", "brx", "ret", "exit", "trap", "bar", "barrier"}
_WAITS = {("mbarrier", "try_wait"), ("mbarrier", "test_wait")}
# Instructions at which threads wait for one another, each at the beginning of a block: the threads of a mask, of a warp, of a
# warpgroup.
MASKED = {("shfl", "sync"), ("vote", "sync"), ("elect", "sync"), ("redux", "sync"), ("bar", "warp")}
WARPS = {("mma", "sync"), ("ldmatrix", "sync"), ("stmatrix", "sync"), ("bar", "sync"), ("bar", "arrive"), ("barrier", "sync"),
         ("barrier", "arrive"), ("barrier", "cta")}  # fmt: skip
WARPGROUPS = {("wgmma", name) for name in ("fence", "mma_async", "commit_group", "wait_group")}
_BEGINS = _WAITS | MASKED | WARPS | WARPGROUPS


def cut(entry: Entry, items: Sequence[Item]) -> None:
    """Cuts statements into blocks, so that only a block's last statement leaves it."""
    block: list[Instruction] = []
    entry.blocks = [block]
    for item in items:
        if isinstance(item, str):
            if block:
                block = []
                entry.blocks.append(block)
            entry.labels[item] = len(entry.blocks) - 1
            continue
        if item.opcode[:2] in _BEGINS or item.opcode[:3] == ("barrier", "cluster", "wait"):
            block = entry.blocks[-1] if not block else []  # a waiting thread repeats the wait alone
            if block is not entry.blocks[-1]:
                entry.blocks.append(block)
        block.append(item)
        if (item.opcode[0] in _ENDS and item.opcode[1:2] != ("warp",)) or item.opcode[:2] in _WAITS:
            block = []
            entry.blocks.append(block)

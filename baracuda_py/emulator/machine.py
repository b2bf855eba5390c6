"""A wave of CTAs: it holds the registers of all their threads and executes block after block.

While no branch diverges, the lanes of a wave have one program counter. After that the lanes at the lowest program counter run,
so that they reconverge; or, in random order, the lanes of one warp (or warpgroup) per CTA, drawn at each step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..types.faults import (
    DeadlockFault,
    DivergenceFault,
    KernelFault,
    OutOfBoundsFault,
    TrapFault,
    UninitialisedFault,
)
from .launched import Launched
from .memory.copies import Copies
from .memory.generic import LOCAL, PARAMETERS, SHARED, Generic
from .memory.local import LocalMemory
from .memory.order import Order
from .memory.overflow import Overflows
from .memory.shared import RANK_SHIFT, SharedMemory
from .options import PATIENCE
from .synchronization.atomics import Atomics
from .synchronization.barriers import ClusterBarrier, MBarriers, NamedBarriers
from .synchronization.warps import Warps
from .tensor_cores.matrices import Matrices
from .threads.clocks import Clocks
from .threads.lanes import FULL_MASK, WARP, Array, Lanes, Selection
from .unknown import FRESH
from .values import approximations, arithmetic, bitfields, comparisons, conversions, floats

__all__ = ["Wave"]

WARPGROUP = 4 * WARP
NEVER = np.int32(1 << 30)


class Wave:
    """The CTAs that run together, and all state that their instructions act on."""

    def __init__(self, launched: Launched, first: int, ctas: int) -> None:
        self.launched, self.options, self.rng = launched, launched.options, launched.rng
        self.counters, self.memory = launched.counters, launched.memory
        self.checks, self.suspects, self.variation = launched.options.checks, launched.suspects, launched.variation
        code = launched.code
        self.lanes = lanes = Lanes(first, ctas, launched.grid, launched.block, code.entry.cluster)
        self.clocks, self.order = Clocks(lanes), Order(self)
        self.shared = SharedMemory(self, launched.shared_bytes, launched.shared_grain)
        self.local, self.generic = LocalMemory(self, code.entry.local_bytes), Generic(self)
        self.barriers, self.mbarriers, self.cluster = NamedBarriers(self), MBarriers(self), ClusterBarrier(self)
        self.copies, self.warps = Copies(self), Warps(self)
        self.matrices, self.atomics, self.overflows = Matrices(self), Atomics(self), Overflows(self)
        self.alive = lanes.exists.copy()
        self._blocked = np.zeros(lanes.count, bool)
        self._parked = np.zeros(lanes.count, bool)  # lanes that wait for the rest of their warp
        self._asleep = np.zeros(lanes.count, bool)  # by nanosleep, until no other lane can run: polling lets others act
        self._why: list[tuple[Array, Callable[[], str]]] = []
        self._pc = np.zeros(lanes.count, np.int32)
        self._space = self._names()
        self._functions: list[Callable[[Selection], None] | None] = [None] * len(code.blocks)
        self._runs = [0] * len(code.blocks)
        self._turns = [0] * len(code.blocks)  # per block that ends a loop: how often threads went back
        # Barriers wait for the lanes of a warp that have not ended (CUDA C++ Programming Guide, Independent Thread Scheduling).
        self._aligned = np.array([bool(b.gathers) and b.mask is None and b.kind != "barrier" for b in code.blocks])

    # ---- stepping ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        code = self.launched.code
        together = self.options.order == "lockstep" and bool(self.lanes.exists.all())
        if not together or not self._in_step():
            self._divided()
        self.copies.finish()
        self.matrices.finish()
        for span, runs, block, turns in zip(code.spans, self._runs, code.blocks, self._turns):
            if runs:
                self.counters.count_block((code.instructions[i] for i in span), runs)
            if turns:
                self.counters.turns[code.instructions[block.number].source] += turns

    def _in_step(self) -> bool:
        """Runs all lanes together until they diverge, to the blocks in `_pc`; returns whether they came to the end."""
        code, all_lanes, count = self.launched.code, self.lanes.all_lanes, self.lanes.count
        at = steps = 0
        while True:
            self._hurry(steps := steps + 1)
            end = code.blocks[at]
            if end.kind == "wait":
                self._pc[:] = at
                return False
            self._function(at)(all_lanes)
            self._runs[at] += count
            if end.kind == "next":
                at += 1
            elif end.kind == "bra":
                test = self._test(end, all_lanes)
                if test is None or test.all():
                    self._turns[at] += count * (end.target <= at)
                    at = end.target
                elif not test.any():
                    at += 1
                else:
                    self._leave(at, all_lanes)
                    return False
            elif end.kind == "barrier" and end.sync and end.barrier == (0,):
                self.barriers.meet_all()
                at += 1
            elif end.kind == "exit" and not end.guard:
                self.shared.shadow.let_go(end.number, all_lanes)
                return True
            else:
                self._leave(at, all_lanes)
                return False

    def _divided(self) -> None:
        code, lanes = self.launched.code, self.lanes
        steps = 0
        while self.alive.any():
            runs = self.alive & ~self._blocked & ~self._parked
            if not runs.any():
                if self.copies.deliver():
                    continue
                raise self._deadlock()
            if (runs & self._asleep).any():
                if not (awake := runs & ~self._asleep).any():
                    self._asleep[:] = False
                    self.copies.deliver()
                runs = awake if awake.any() else runs
            if self.options.order == "random":
                runs = self._drawn(runs)
                if self.options.copies == "random" and self.rng.random() < 0.1:
                    self.copies.deliver()
            self._hurry(steps := steps + 1)
            at, here = self._next(runs)
            if code.blocks[at].gathers and not len(here := self._gathered(here, at)):
                continue
            s = lanes.compact(here)
            self._function(at)(s)
            self._runs[at] += lanes.count_of(s)
            if self._parked.any():  # the lanes that they wait for may be here now
                self._parked[np.isin(lanes.cta, np.unique(lanes.cta[s]))] = False
            if code.blocks[at].kind == "wait":
                self._pc[s] = np.where(self._blocked[s], at, at + 1)
            else:
                self._leave(at, s)

    def _function(self, at: int) -> Callable[[Selection], None]:
        """The function that runs a block."""
        if (function := self._functions[at]) is None:
            exec(self.launched.code.code(at), self._space)
            function = self._functions[at] = self._space[f"b{at}"]
        return function

    def _hurry(self, step: int) -> None:
        if self.launched.deadline and not step % 512 and time.perf_counter() > self.launched.deadline:
            raise self.launched.too_large(PATIENCE)

    def _gathered(self, here: Array, at: int) -> Array:
        """The lanes at a block whose whole warp (or mask, or warpgroup) is there; the others are parked."""
        end = self.launched.code.blocks[at]
        if end.mask in (None, FULL_MASK):
            bundle = self.lanes.bundle(end.gathers)
            there, alive = (np.bincount(bundle[x], minlength=bundle[-1] + 1) for x in (here, self.alive))
            missing = (there != alive)[bundle[here]]
        else:
            masks = (
                self._space[end.mask][here] if isinstance(end.mask, str) else np.full(len(here), end.mask, np.uint32)
            )
            missing = self.warps.missing(here, masks)
        self._parked[here[missing]] = True
        return np.asarray(here[~missing]) if missing.any() else here

    def _drawn(self, runs: Array) -> Array:
        """One warp of each CTA that can run, or one warpgroup if the kernel uses wgmma."""
        lanes = self.lanes
        width = WARPGROUP if self.launched.grouped and lanes.width % WARPGROUP == 0 else WARP
        can = runs.reshape(lanes.ctas, -1, width).any(2)
        drawn = np.where(can, self.rng.random(can.shape), -1.0).argmax(1)
        chosen = np.zeros(can.shape, bool)
        chosen[np.arange(lanes.ctas), drawn] = True
        drawn_lanes: Array = runs & np.repeat(chosen.ravel(), width)
        return drawn_lanes

    def _next(self, runs: Array) -> tuple[int, Array]:
        """The block to run and its lanes: the lowest block that has lanes, or the block of a drawn CTA, so that no CTA's warps
        are delayed by another's."""
        counters = np.where(runs, self._pc, NEVER).reshape(self.lanes.ctas, -1)
        lowest = counters.min(1)
        at = int(lowest.min() if self.options.order == "lockstep" else self.rng.choice(lowest[lowest < NEVER]))
        return at, np.flatnonzero((counters == at) & (lowest == at)[:, None])

    def _test(self, end: Any, s: Selection) -> Array | None:
        if not end.guard:
            return None
        test: Array = self._space[end.guard][s]
        return ~test if end.unless else test

    def _leave(self, at: int, s: Selection) -> None:
        """Applies the end of a block to the lanes that ran it."""
        end = self.launched.code.blocks[at]
        test = self._test(end, s)
        match end.kind:
            case "next":
                self._pc[s] = at + 1
            case "bra":
                self._pc[s] = end.target if test is None else np.where(test, end.target, at + 1)
                self._turns[at] += end.target <= at and (self.lanes.count_of(s) if test is None else int(test.sum()))
                if self.launched.code.blocks[end.target].quits:  # at once: no lane waits for them
                    gone = self.lanes.numbers(s) if test is None else self.lanes.numbers(s)[test]
                    self._runs[end.target] += len(gone)
                    self._exit(self.launched.code.blocks[end.target].number, gone)
            case "brx":
                chosen, targets = self._space[end.index][s], np.array(end.targets, np.int32)
                if (bad := chosen >= len(targets)).any():
                    what = f"a choice of branch {int(chosen[bad][0])} of {len(targets)}"
                    raise self.fault(OutOfBoundsFault, what, end.number, s, int(np.flatnonzero(bad)[0]))
                self._pc[s] = targets[chosen]
            case "exit":
                self._pc[s] = at + 1
                self._exit(end.number, self.lanes.numbers(s) if test is None else self.lanes.numbers(s)[test])
            case "trap":
                if test is None or test.any():
                    raise self.fault(
                        TrapFault, "trap", end.number, s, 0 if test is None else int(np.flatnonzero(test)[0])
                    )
                self._pc[s] = at + 1
            case "barrier":
                self._pc[s] = at + 1
                number, *threads = (np.int64(x) if isinstance(x, int) else self._space[x][s] for x in end.barrier)
                self.barriers.come(end.number, s, number, threads[0] if threads else None, sync=end.sync)

    def _exit(self, n: int, gone: Array) -> None:
        """Threads end; lanes of their warps that wait for the whole warp cannot go on."""
        self.alive[gone] = False
        if len(gone) and self.lanes.cluster > 1:
            lives = np.any(self.alive.reshape(self.lanes.ctas, -1), axis=1)
            self.shared.shadow.let_go(n, gone[~lives[self.lanes.cta[gone]]])
        self.cluster.look()
        self.barriers.threads_ended()
        if self._aligned.any():
            warps = np.zeros(self.lanes.count // WARP, bool)
            warps[self.lanes.warp[gone]] = True
            left = np.flatnonzero(self.alive & np.repeat(warps, WARP) & self._aligned[self._pc])
            if len(left):
                raise self._alone(left)

    # ---- waiting lanes ----------------------------------------------------------------------------------------------

    def block(self, lanes: Array, why: Callable[[], str]) -> None:
        """Lanes wait; `why` describes the barrier in its state at the time of the call."""
        self._blocked[lanes] = True
        self._why.append((lanes, why))
        if len(self._why) > 4096:
            self._why = [(who, what) for who, what in self._why if self._blocked[who].any()]

    def _sleep(self, s: Selection) -> None:
        self._asleep[s] = True

    def unblock(self, lanes: Array) -> None:
        self._blocked[lanes] = False

    def _deadlock(self) -> KernelFault:
        """The fault when no lane can run: some wait at barriers, some are parked for the rest of their warp."""
        code, lanes, waits = self.launched.code, self.lanes, self.alive & (self._blocked | self._parked)
        parked = np.flatnonzero(self.alive & self._parked)
        alone = parked[~np.isin(lanes.warp[parked], lanes.warp[self.alive & self._blocked])]
        if len(alone):
            return self._alone(alone)
        where = {at: code.instructions[code.spans[at][0]] for at in np.unique(self._pc[parked]).tolist()}
        places = [
            *(
                (parked[self._pc[parked] == at], f"{i.text} ({i.source}), for others of their warps")
                for at, i in where.items()
            ),
            *((who, why()) for who, why in reversed(self._why) if waits[who].any()),
        ]
        sites: dict[str, dict[int, set[int]]] = {}
        for who, why in places:
            mine = who[waits[who]]
            waits[mine] = False
            for lane in mine.tolist():
                warps = sites.setdefault(why, {}).setdefault(int(lanes.cta[lane]) + lanes.first, set())
                warps.add(int(lanes.thread[lane]) // WARP)
        message = "; ".join(
            f"{_warps(who)} at {why}" for why, who in sorted(sites.items(), key=lambda x: min(x[1]))[:6]
        )
        return DeadlockFault(f"no thread can continue: {message}", kernel=self.launched.kernel)

    def _alone(self, lanes: Array) -> KernelFault:
        """The fault of threads that are parked for threads that do not come."""
        at, code = int(self._pc[lanes[0]]), self.launched.code
        n, of = code.spans[at][0], "warp" if code.blocks[at].gathers == WARP else "warpgroup"
        what = f"{'.'.join(code.instructions[n].opcode[:2])} by a part of a {of}, whose rest goes another way"
        return self.fault(DivergenceFault, what, n, lanes, 0)

    # ---- faults and orders ------------------------------------------------------------------------------------------

    def fault(self, kind: type[KernelFault], what: str, n: int, s: Selection, j: int, **place: Any) -> KernelFault:
        """The fault of place `j` of a selection at instruction `n`."""
        lane = int(self.lanes.numbers(s)[j])
        instruction = self.launched.code.instructions[n]
        return kind(
            what, kernel=self.launched.kernel, cta=int(self.lanes.cta[lane]) + self.lanes.first,
            thread=int(self.lanes.thread[lane]), source=instruction.source, ptx_line=instruction.line,
            instruction=instruction.text, **place,
        )  # fmt: skip

    def suspect(self, n: int, s: Selection, bad: Array, offsets: Array, what: str, **place: Any) -> None:
        """Notes that instruction `n` reads unwritten values, at some places of a selection."""
        if n not in self.suspects:
            j = int(np.flatnonzero(bad)[0])
            text = f"a value that {what} reached a result"
            self.suspects[n] = self.fault(UninitialisedFault, text, n, s, j, byte=int(offsets[j]), **place)

    def _unset(self, n: int, s: Selection) -> None:
        """An instruction reads registers that nothing writes."""
        if n not in self.suspects:
            text = f"a value that nothing had written, of {', '.join(sorted(self.launched.code.unset[n]))}, reached a result"
            self.suspects[n] = self.fault(UninitialisedFault, text, n, s, 0)

    # ---- names of the translated text -------------------------------------------------------------------------------

    def _names(self) -> dict[str, Any]:
        code, lanes, launched = self.launched.code, self.lanes, self.launched
        stores = {
            1: np.zeros((code.counts[1], lanes.count), bool), 16: np.zeros((code.counts[16], lanes.count), np.uint16),
            32: np.zeros((code.counts[32], lanes.count), np.uint32), 64: np.zeros((code.counts[64], lanes.count), np.uint64),
        }  # fmt: skip
        for n, missing in code.unset.items():
            for width, number in map(code.place, missing):
                row = stores[width][number].view(np.uint8)
                row[:] = FRESH if width > 1 else False
                if n in self.variation:
                    row[:] = self.variation.other(row, np.arange(len(row))) if width > 1 else True
        names: dict[str, Any] = {
            name: stores[width][number] if not view else stores[width][number].view(f"{view}{width // 8}")
            for (width, number, view), name in code.rows.items()
        }
        names |= {name: np.frombuffer(raw, dtype)[0] for (raw, dtype), name in code.constants.items()}
        specials = lanes.specials()
        for name in code.specials:
            names[f"special_{name.replace('.', '_')}"] = specials[name]
        names |= {
            "np": np, "I": arithmetic, "B": bitfields, "F": floats, "X": approximations, "K": comparisons, "C": conversions,
            "DYNAMIC": np.uint32(launched.dynamic), "PARAMETERS": np.uint64(PARAMETERS), "SHARED": np.uint64(SHARED),
            "LOCAL": np.uint64(LOCAL), "CONSTANTS": {k: np.uint64(v) for k, v in launched.constants.items()},
            "count": lanes.count_of, "sub": lanes.narrowed, "split": _split, "parameter": self._parameter,
            "wraps": self.overflows.note if self.checks else _ignored,
            "unset": self._unset if self.checks else _ignored,
            "used": self.matrices.wgmma_registers.use if self.checks else _ignored,
        }  # fmt: skip
        memory, shared, copies = self.memory, self.shared, self.copies
        names |= {
            "ld_global": lambda n, s, a, dtype, rows: memory.load(self, n, s, a, dtype, rows),
            "st_global": lambda n, s, a, dtype, values: memory.store(self, n, s, a, dtype, values),
            "ld_shared": shared.load, "st_shared": shared.store, "ld_local": self.local.load, "st_local": self.local.store,
            "ld_generic": self.generic.load, "st_generic": self.generic.store,
            "atom": self.atomics.apply, "red_vector": self.atomics.apply_vector,
            "cp_async": copies.start, "cp_commit": copies.commit, "cp_wait": lambda n, s, left: copies.wait(s, left),
            "tma_load": copies.load, "tma_store": copies.store, "bulk_commit": copies.commit_bulk,
            "bulk_wait": lambda n, s, left, read: copies.wait_bulk(s, left), "st_async": copies.store_remote,
            "fence": self.order.fence, "grid_wait": self.order.wait_for_launch, "mapa": _mapa,
            "sleep": self._sleep, "mbarrier_init": self.mbarriers.init, "mbarrier_inval": self.mbarriers.invalidate,
            "mbarrier_arrive": self.mbarriers.arrive, "mbarrier_wait": self.mbarriers.wait,
            "cluster_arrive": self.cluster.arrive, "cluster_wait": self.cluster.wait,
            "warp_sync": self.warps.sync, "shuffle": self.warps.shuffle, "vote": self.warps.vote, "redux": self.warps.redux,
            "activemask": self.warps.active, "elect": self.warps.elect, "ldmatrix": self.matrices.load,
            "stmatrix": self.matrices.store, "mma": self.matrices.multiply, "wgmma": self.matrices.group_multiply,
            "wgmma_fence": self.matrices.fence, "wgmma_commit": self.matrices.commit, "wgmma_wait": self.matrices.wait,
        }  # fmt: skip
        return names

    def _parameter(self, offset: int, dtype: str) -> Any:
        return self.launched.parameters[offset : offset + int(dtype[1])].view(dtype)[0]


def _ignored(*_arguments: Any) -> None: ...


def _warps(of: dict[int, set[int]]) -> str:
    """``CTA 0 warps 0, 1``: the first few warps of the first few CTAs."""
    return ", ".join(f"CTA {cta} warps {', '.join(map(str, sorted(of[cta])[:16]))}" for cta in sorted(of)[:4])


def _split(x: Any, count: int, part: int) -> Array:
    """The bytes of each lane's value, split into consecutive parts of `part` bytes."""
    return np.ascontiguousarray(np.broadcast_to(x, (count,))).view(f"u{part}")


def _mapa(address: Any, rank: Any) -> Any:
    within = np.uint32((1 << RANK_SHIFT) - 1)
    return (address & within) | ((rank + np.uint32(1)) << np.uint32(RANK_SHIFT))

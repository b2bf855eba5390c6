"""Runs one launch: its CTAs in waves, each of which holds the registers of all its threads and steps from block to block.

While no branch divides the lanes of a wave they have one program counter. After that the lanes at the lowest one run, so that
they meet again by themselves; or, in random order, those of one warp (or warpgroup) a CTA that is drawn at each step.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from math import prod
from typing import Any

import numpy as np

from ..types import UnsupportedError
from ..types.faults import (
    DeadlockFault,
    DivergenceFault,
    KernelFault,
    MisalignedFault,
    OutOfBoundsFault,
    TrapFault,
    UninitialisedFault,
)
from . import approximations, arithmetic, bitfields, comparisons, conversions, floats
from .atomics import Atomics
from .barriers import ClusterBarrier, MBarriers, NamedBarriers
from .clocks import Clocks
from .copies import Copies
from .counters import Counters
from .lanes import EVERYONE, WARP, Array, Lanes, Selection
from .matrices import Matrices
from .memory import MANY, GlobalMemory
from .options import PATIENCE, Options
from .overflow import Overflows
from .parse import SIZES
from .shared import RANK_SHIFT, SharedMemory
from .translate import Translator
from .warps import Warps

__all__ = ["Launched", "Wave", "run_launch"]

# Windows of the generic address space, where nothing else lies.
PARAMETERS, SHARED, LOCAL = 0x7E00_0000_0000, 0x7F00_0000_0000, 0x7F80_0000_0000
LANES = 1 << 16  # of a wave
REGISTER_BYTES = 96 << 20
SHARED_BYTES = 8 << 20
WARPGROUP = 4 * WARP
NEVER = np.int32(1 << 30)


class Launched:
    """What the waves of one launch have in common. `suspects` has a fault for each instruction that reads what nothing
    wrote, to be raised if that matters; those in `varied` get other bytes there than in a first run."""

    def __init__(
        self, code: Translator, kernel: str, memory: GlobalMemory, parameters: Array, grid: tuple[int, int, int],
        block: tuple[int, int, int], dynamic_bytes: int, options: Options, counters: Counters, *, overlapped: bool,
        constants: dict[str, int], varied: Collection[int] = (), deadline: float = 0.0,
    ) -> None:  # fmt: skip
        self.code, self.kernel, self.memory, self.parameters = code, kernel, memory, parameters
        self.grid, self.block, self.options, self.counters = grid, block, options, counters
        self.overlapped, self.constants, self.varied = overlapped, constants, frozenset(varied)
        self.suspects: dict[int, KernelFault] = {}
        self.deadline = deadline  # of time.perf_counter; 0 for none
        self.rng = np.random.default_rng(options.seed)
        entry = code.entry
        align = max(entry.dynamic_align, 16)
        self.dynamic = -(-entry.shared_bytes // align) * align if dynamic_bytes else entry.shared_bytes
        self.shared_bytes = self.dynamic + dynamic_bytes
        self.shared_grain = _grain(code)
        self.grouped = any(i.opcode[0] == "wgmma" for i in code.instructions)
        self._refuse_impossible()

    def _refuse_impossible(self) -> None:
        """KernelFault for a launch that no GPU takes (CUDA C++ Programming Guide, Technical Specifications)."""
        entry, threads = self.code.entry, prod(self.block)
        for given, what in (
            (not 0 < threads <= entry.threads, f"blocks of {threads} threads, of {entry.threads} at most"),
            (self.block[2] > 64, f"blocks of {self.block} threads"),
            (min(self.grid) < 1 or max(self.grid[1:]) >= 1 << 16 or self.grid[0] >= 1 << 31, f"a grid of {self.grid}"),
            (self.grid[0] % entry.cluster, f"a grid of {self.grid} in clusters of {entry.cluster}"),
        ):
            if given:
                raise KernelFault(f"no GPU takes a launch with {what}", kernel=self.kernel)

    def too_large(self, seconds: float) -> UnsupportedError:
        return UnsupportedError(
            f"emulating {self.kernel} on {self.grid} CTAs would take {seconds:.0f} s or more",
            "take a smaller problem, or say with bp.emulation(force=True): that it is meant",
        )

    def waves(self) -> Any:
        """(first CTA, CTAs) of each wave: whole clusters, as many as memory and caches like."""
        threads = -(-self.block[0] * self.block[1] * self.block[2] // WARP) * WARP
        total, cluster = self.grid[0] * self.grid[1] * self.grid[2], self.code.entry.cluster
        a_lane = (
            sum(count * max(width // 8, 1) for width, count in self.code.counts.items()) + self.code.entry.local_bytes
        )
        lanes = min(LANES, REGISTER_BYTES // max(a_lane, 1))
        most = min(lanes // threads, SHARED_BYTES // max(self.shared_bytes, 1))
        most = max(most // cluster, 1) * cluster
        for first in range(0, total, most):
            yield first, min(most, total - first)


def run_launch(launched: Launched) -> None:
    """Runs every CTA of a launch."""
    began, total = time.perf_counter(), launched.grid[0] * launched.grid[1] * launched.grid[2]
    with np.errstate(all="ignore"):
        for first, ctas in launched.waves():
            Wave(launched, first, ctas).run()
            done = first + ctas
            if launched.deadline and began + (time.perf_counter() - began) * total / done > launched.deadline:
                raise launched.too_large((time.perf_counter() - began) * total / done)


def _grain(code: Translator) -> int:
    """The least number of bytes, of 4, that a kernel accesses at once in what may be shared memory."""
    accesses = (i for i in code.instructions if i.opcode[0] in ("ld", "st", "atom", "red"))
    elsewhere = {"global", "local", "param", "const"}
    return min(
        [4, *(SIZES[i.opcode[-1]] for i in accesses if not elsewhere & {p.split("::")[0] for p in i.opcode[1:-1]})]
    )


class Wave:
    """The CTAs that run together, and all that their instructions act on."""

    def __init__(self, launched: Launched, first: int, ctas: int) -> None:
        self.launched, self.options, self.rng = launched, launched.options, launched.rng
        self.counters, self.memory = launched.counters, launched.memory
        self.checks, self.suspects, self.varied = launched.options.checks, launched.suspects, launched.varied
        code = launched.code
        self.lanes = lanes = Lanes(first, ctas, launched.grid, launched.block, code.entry.cluster)
        self.clocks = Clocks(lanes)
        self.shared = SharedMemory(self, launched.shared_bytes, launched.shared_grain)
        self.barriers, self.mbarriers, self.cluster = NamedBarriers(self), MBarriers(self), ClusterBarrier(self)
        self.copies, self.warps = Copies(self), Warps(self)
        self.matrices, self.atomics, self.overflows = Matrices(self), Atomics(self), Overflows(self)
        self._waited = None if not launched.overlapped else np.zeros(lanes.count, bool)
        self._local = np.zeros((lanes.count, -(-code.entry.local_bytes // 16) * 16), np.uint8)
        self.alive = lanes.exists.copy()
        self._blocked = np.zeros(lanes.count, bool)
        self._parked = np.zeros(lanes.count, bool)  # where the rest of their warp has yet to come
        self._why: list[tuple[Array, str]] = []
        self._pc = np.zeros(lanes.count, np.int32)
        self._space = self._names()
        exec(code.code, self._space)
        self._functions = [self._space[f"b{i}"] for i in range(len(code.blocks))]
        self._runs = [0] * len(code.blocks)
        self._aligned = np.array([bool(b.gathers) and b.mask is None for b in code.blocks])

    # ---- stepping ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        code = self.launched.code
        together = self.options.order == "lockstep" and bool(self.lanes.exists.all())
        if not together or not self._in_step():
            self._divided()
        self.copies.finish()
        for span, runs in zip(code.spans, self._runs):
            if runs:
                self.counters.count_block((code.instructions[i] for i in span), runs)

    def _in_step(self) -> bool:
        """Runs all lanes together until they part, at the blocks that `_pc` then says; whether they came to the end."""
        code, everyone, count = self.launched.code, self.lanes.everyone, self.lanes.count
        at = steps = 0
        while True:
            self._hurry(steps := steps + 1)
            end = code.blocks[at]
            if end.kind == "wait":
                self._pc[:] = at
                return False
            self._functions[at](everyone)
            self._runs[at] += count
            if end.kind == "next":
                at += 1
            elif end.kind == "bra":
                test = self._test(end, everyone)
                if test is None or test.all():
                    at = end.target
                elif not test.any():
                    at += 1
                else:
                    self._leave(at, everyone)
                    return False
            elif end.kind == "barrier" and end.sync and end.barrier == (0,):
                self.barriers.meet_all()
                at += 1
            elif end.kind == "exit" and not end.guard:
                return True
            else:
                self._leave(at, everyone)
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
            if self.options.order == "random":
                runs = self._drawn(runs)
                if self.options.copies == "random" and self.rng.random() < 0.1:
                    self.copies.deliver()
            self._hurry(steps := steps + 1)
            at, here = self._next(runs)
            if code.blocks[at].gathers and not len(here := self._gathered(here, at)):
                continue
            s = lanes.compact(here)
            self._functions[at](s)
            self._runs[at] += lanes.count_of(s)
            if self._parked.any():  # whom they wait for may be here now
                self._parked[np.isin(lanes.cta, np.unique(lanes.cta[s]))] = False
            if code.blocks[at].kind == "wait":
                self._pc[s] = np.where(self._blocked[s], at, at + 1)
            else:
                self._leave(at, s)

    def _hurry(self, step: int) -> None:
        if self.launched.deadline and not step % 512 and time.perf_counter() > self.launched.deadline:
            raise self.launched.too_large(PATIENCE)

    def _gathered(self, here: Array, at: int) -> Array:
        """Of the lanes at a block those whose fellows are all there; the others are parked."""
        end = self.launched.code.blocks[at]
        if end.mask in (None, EVERYONE):
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
        """Of each CTA one warp that can run, or one warpgroup where these multiply."""
        lanes = self.lanes
        width = WARPGROUP if self.launched.grouped and lanes.width % WARPGROUP == 0 else WARP
        can = runs.reshape(lanes.ctas, -1, width).any(2)
        drawn = np.where(can, self.rng.random(can.shape), -1.0).argmax(1)
        chosen = np.zeros(can.shape, bool)
        chosen[np.arange(lanes.ctas), drawn] = True
        drawn_lanes: Array = runs & np.repeat(chosen.ravel(), width)
        return drawn_lanes

    def _next(self, runs: Array) -> tuple[int, Array]:
        """The block to run and its lanes: the lowest at which there are any, or that of a CTA that is drawn, so that no CTA's
        warps are held back by another's."""
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
        """What the end of a block does to the lanes that ran it."""
        end = self.launched.code.blocks[at]
        test = self._test(end, s)
        match end.kind:
            case "next":
                self._pc[s] = at + 1
            case "bra":
                self._pc[s] = end.target if test is None else np.where(test, end.target, at + 1)
                if self.launched.code.blocks[end.target].quits:  # at once: nobody waits for them
                    gone = self.lanes.numbers(s) if test is None else self.lanes.numbers(s)[test]
                    self._runs[end.target] += len(gone)
                    self._exit(gone)
            case "brx":
                targets = np.array(end.targets, np.int32)
                self._pc[s] = targets[np.minimum(self._space[end.index][s], len(targets) - 1)]
            case "exit":
                self._pc[s] = at + 1
                self._exit(self.lanes.numbers(s) if test is None else self.lanes.numbers(s)[test])
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

    def _exit(self, gone: Array) -> None:
        """Threads end; those of their warps that wait for all of it have been left alone."""
        self.alive[gone] = False
        self.cluster.look()
        self.barriers.someone_left()
        if self._aligned.any():
            warps = np.zeros(self.lanes.count // WARP, bool)
            warps[self.lanes.warp[gone]] = True
            left = np.flatnonzero(self.alive & np.repeat(warps, WARP) & self._aligned[self._pc])
            if len(left):
                raise self._alone(left)

    # ---- who waits --------------------------------------------------------------------------------------------------

    def block(self, lanes: Array, why: str) -> None:
        self._blocked[lanes] = True
        self._why.append((lanes, why))
        if len(self._why) > 4096:
            self._why = [(who, what) for who, what in self._why if self._blocked[who].any()]

    def unblock(self, lanes: Array) -> None:
        self._blocked[lanes] = False

    def _deadlock(self) -> KernelFault:
        """Nobody can run: some wait at barriers, some are parked for the rest of their warp."""
        code, lanes, waits = self.launched.code, self.lanes, self.alive & (self._blocked | self._parked)
        parked = np.flatnonzero(self.alive & self._parked)
        alone = parked[~np.isin(lanes.warp[parked], lanes.warp[self.alive & self._blocked])]
        if len(alone):
            return self._alone(alone)
        where = {at: code.instructions[code.spans[at][0]] for at in np.unique(self._pc[parked]).tolist()}
        told: dict[str, list[str]] = {}
        for who, why in [
            *(
                (parked[self._pc[parked] == at], f"{i.text} ({i.source}), for others of their warps")
                for at, i in where.items()
            ),
            *reversed(self._why),
        ]:
            mine = who[waits[who]]
            waits[mine] = False
            for cta in np.unique(lanes.cta[mine])[:4]:
                warps = np.unique(lanes.thread[mine[lanes.cta[mine] == cta]] // WARP)
                told.setdefault(why, []).append(f"CTA {cta + lanes.first} warps {', '.join(map(str, warps[:16]))}")
        message = "; ".join(f"{', '.join(who[:4])} at {why}" for why, who in list(told.items())[:6])
        return DeadlockFault(f"nobody can go on: {message}", kernel=self.launched.kernel)

    def _alone(self, lanes: Array) -> KernelFault:
        """The fault of threads that are parked for some that do not come."""
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
        """Notes that instruction `n` reads what it may not count on, at some places of a selection."""
        if n not in self.suspects:
            j = int(np.flatnonzero(bad)[0])
            text = f"a value that {what} reached a result"
            self.suspects[n] = self.fault(UninitialisedFault, text, n, s, j, byte=int(offsets[j]), **place)

    def early(self, s: Selection) -> bool:
        """Whether a lane has not waited for the launch ahead of an overlapped one."""
        return self._waited is not None and not self._waited[s].all()

    def warp_numbers(self, s: Selection) -> Array:
        """Warps counted over the whole launch."""
        return (self.lanes.warp[s] + self.lanes.first * self.lanes.warps).astype(np.int32)

    def stamps(self, s: Selection) -> Array:
        return self.clocks.stamp(self.lanes.team[s], self.lanes.member[s])

    def same_team(self, before: Array, warps: Array) -> Array:
        """Whether warps of the launch belong to the cluster of those that act now."""
        members = self.lanes.members
        return np.asarray((before >= 0) & (before // members == warps // members))

    def unordered(self, s: Selection, actors: Array, stamps: Array) -> Array:
        """Whether what `actors`, warps of the launch, did at `stamps` may still be going on for each lane."""
        lanes, mine = self.lanes, self.warp_numbers(s)
        members = lanes.members
        same = self.same_team(actors, mine)
        seen = self.clocks.of[lanes.team[s], lanes.member[s], np.where(same, actors % members, 0)]
        other = (actors != -1) & ~same
        return np.asarray((same & (actors != mine) & (stamps > seen)) | other | (actors == MANY))

    # ---- names of the translated text -------------------------------------------------------------------------------

    def _names(self) -> dict[str, Any]:
        code, lanes, launched = self.launched.code, self.lanes, self.launched
        stores = {
            1: np.zeros((code.counts[1], lanes.count), bool), 16: np.zeros((code.counts[16], lanes.count), np.uint16),
            32: np.zeros((code.counts[32], lanes.count), np.uint32), 64: np.zeros((code.counts[64], lanes.count), np.uint64),
        }  # fmt: skip
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
        }  # fmt: skip
        memory, shared, copies = self.memory, self.shared, self.copies
        names |= {
            "ld_global": lambda n, s, a, dtype, rows: memory.load(self, n, s, a, dtype, rows),
            "st_global": lambda n, s, a, dtype, values: memory.store(self, n, s, a, dtype, values),
            "ld_shared": shared.load, "st_shared": shared.store, "ld_local": self._load_local, "st_local": self._store_local,
            "ld_generic": self._load_generic, "st_generic": self._store_generic, "atom": self.atomics.apply,
            "cp_async": copies.start, "cp_commit": copies.commit, "cp_wait": lambda n, s, left: copies.wait(s, left),
            "tma_load": copies.load, "tma_store": copies.store, "bulk_commit": copies.commit_bulk,
            "bulk_wait": lambda n, s, left, read: copies.wait_bulk(s, left), "st_async": copies.store_remote,
            "fence": self._fence, "grid_wait": self._grid_wait, "mapa": _mapa,
            "mbarrier_init": self.mbarriers.init, "mbarrier_inval": self.mbarriers.invalidate,
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

    def _fence(self, s: Selection, of: str) -> None:
        if of in ("proxy", "mbarrier_init"):
            self.mbarriers.fence(s)
        if self.checks and (of != "cta" or self.lanes.cluster == 1):  # no other CTA learns of that of one
            for warp in np.unique(self.lanes.warp[s]):
                team, member = int(self.lanes.team[warp * WARP]), int(self.lanes.member[warp * WARP])
                (self.clocks.fence_proxy if of == "proxy" else self.clocks.fence)(team, member)

    def _grid_wait(self, s: Selection) -> None:
        if self._waited is not None:
            self._waited[s] = True
            if self._waited[self.lanes.exists].all():
                self._waited = None

    # ---- local memory and generic addresses -------------------------------------------------------------------------

    def _local_index(self, n: int, s: Selection, a: Any, size: int, count: int, store: bool) -> tuple[Array, Array]:
        """(lanes, the index of each access in elements of `size` bytes) of accesses to `count` elements in a thread's memory."""
        offset, extent = self.lanes.spread(s, a).astype(np.int64), self.launched.code.entry.local_bytes
        verb = f"{'store' if store else 'load'} of {size * count} bytes"
        for kind, bad, text in (
            (OutOfBoundsFault, (offset < 0) | (offset + size * count > extent), verb),
            (MisalignedFault, offset % (size * count) != 0, f"{verb} at an odd address"),
        ):
            if bad.any():
                j = int(np.flatnonzero(bad)[0])
                raise self.fault(kind, text, n, s, j, space="local", byte=int(offset[j]), extent=extent)
        return self.lanes.numbers(s), offset // size

    def _load_local(self, n: int, s: Selection, a: Any, dtype: str, rows: Any) -> None:
        lanes, index = self._local_index(n, s, a, int(dtype[1]), len(rows), store=False)
        for j, row in enumerate(rows):
            if row is not None:
                row[s] = self._local.view(dtype)[lanes, index + j]

    def _store_local(self, n: int, s: Selection, a: Any, dtype: str, values: Any) -> None:
        lanes, index = self._local_index(n, s, a, int(dtype[1]), len(values), store=True)
        for j, value in enumerate(values):
            self._local.view(dtype)[lanes, index + j] = value

    def _load_generic(self, n: int, s: Selection, a: Any, dtype: str, rows: Any) -> None:
        for part, _, space, address in self.windows(s, a):
            if space == "global":
                self.memory.load(self, n, part, address, dtype, rows)
            elif space == "shared":
                self.shared.load(n, part, address.astype(np.uint32), dtype, rows)
            else:
                self._load_local(n, part, address, dtype, rows)

    def _store_generic(self, n: int, s: Selection, a: Any, dtype: str, values: Any) -> None:
        for part, places, space, address in self.windows(s, a):
            mine = [v if places is None or np.ndim(v) == 0 else v[places] for v in values]
            if space == "global":
                self.memory.store(self, n, part, address, dtype, mine)
            elif space == "shared":
                self.shared.store(n, part, address.astype(np.uint32), dtype, mine)
            else:
                self._store_local(n, part, address, dtype, mine)

    def windows(self, s: Selection, a: Any) -> Any:
        """(lanes, their places in the selection or None for all, space, address in it) of generic addresses."""
        a = self.lanes.spread(s, a)
        kinds = np.where(a >= np.uint64(LOCAL), 2, np.where(a >= np.uint64(SHARED), 1, 0))
        for kind, space, base in ((0, "global", 0), (1, "shared", SHARED), (2, "local", LOCAL)):
            mine = kinds == kind
            if mine.all():
                yield s, None, space, a - np.uint64(base)
                return
            if mine.any():
                places = np.flatnonzero(mine)
                yield self.lanes.numbers(s)[places], places, space, a[places] - np.uint64(base)


def _ignored(*_arguments: Any) -> None: ...


def _split(x: Any, count: int, part: int) -> Array:
    """The bytes of each lane's value in parts of `part`, one behind the other."""
    return np.ascontiguousarray(np.broadcast_to(x, (count,))).view(f"u{part}")


def _mapa(address: Any, rank: Any) -> Any:
    within = np.uint32((1 << RANK_SHIFT) - 1)
    return (address & within) | ((rank + np.uint32(1)) << np.uint32(RANK_SHIFT))

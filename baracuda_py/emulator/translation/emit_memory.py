"""Instructions that touch memory or other lanes: calls of the machine (PTX ISA, Data Movement and Conversion Instructions;
Parallel Synchronization and Communication Instructions; Warp-Level and Asynchronous Warpgroup-Level Matrix Instructions)."""

from __future__ import annotations

from collections.abc import Sequence

from ..ptx.syntax import SIZES, Instruction, Integer, Memory, Operand, Pair, Register, Sink, Symbol, Vector
from ..synchronization.atomics import OPERATIONS
from ..values.registers import DTYPES
from .emit import EMITTERS, emits
from .translate import Translator, Unread

__all__ = ["EMITTERS"]

_SPACES = ("param", "shared", "local", "global", "const")


def _space(i: Instruction) -> str:
    return next((s for part in i.opcode[1:] for s in _SPACES if part.split("::")[0] == s), "generic")


def _shared_address(t: Translator, memory: Operand) -> str:
    """A shared address as 32 bits; the register may have 64."""
    assert isinstance(memory, Memory)
    if isinstance(memory.base, Register) and t.width(memory.base) == 64:
        return f"({t.address(memory)}).astype('u4')"
    return t.address(memory, "u32")


def _items(operands: Sequence[str]) -> str:
    return f"({', '.join(operands)},)"


@emits("ld")
def _ld(t: Translator, i: Instruction) -> list[str]:
    kind, space = i.opcode[-1], _space(i)
    to, memory = i.operands
    items = to.items if isinstance(to, Vector) else (to,)
    assert isinstance(memory, Memory)
    size, signed = SIZES[kind], kind[0] == "s"
    dtype = DTYPES[kind] if signed else f"u{size}"
    if space == "param" and isinstance(memory.base, Symbol):
        offset = t.entry.parameters[memory.base.name][0] + memory.offset
        return [
            line
            for n, item in enumerate(items)
            for line in t.write(item, kind if signed else f"b{size * 8}", f"parameter({offset + n * size}, '{dtype}')")
        ]
    rows = _items([t.target(item, signed) for item in items])
    if space == "shared":
        return [f"ld_shared({t.number}, s, {_shared_address(t, memory)}, '{dtype}', {rows})"]
    address = t.address(memory)
    if space == "param":
        space, address = "generic", f"{address} + PARAMETERS"
    return [f"ld_{'global' if space == 'const' else space}({t.number}, s, {address}, '{dtype}', {rows})"]


@emits("st")
def _st(t: Translator, i: Instruction) -> list[str]:
    if i.opcode[1] == "async":
        return _st_async(t, i)
    kind, space = i.opcode[-1], _space(i)
    if space == "param":
        raise Unread("a store to a kernel's parameters")
    memory, value = i.operands
    size = SIZES[kind]
    items = value.items if isinstance(value, Vector) else (value,)
    values = _items([t.read(item, f"b{size * 8}") for item in items])
    address = _shared_address(t, memory) if space == "shared" else t.address(memory)
    return [f"st_{space}({t.number}, s, {address}, 'u{size}', {values})"]


@emits("atom", "red")
def _atom(t: Translator, i: Instruction) -> list[str]:
    name = next(part for part in i.opcode[1:] if part in OPERATIONS)
    space, kind = _space(i), i.opcode[-1]
    to, memory, *values = i.operands if i.opcode[0] == "atom" else (Sink(), *i.operands)
    address = _shared_address(t, memory) if space == "shared" else t.address(memory)
    if values and isinstance(values[0], Vector):
        read = _items([t.read(x, kind) for x in values[0].items])
        return [f"red_vector({t.number}, s, '{name}', '{kind}', {address}, {read})"]
    read = _items([t.read(v, kind) for v in values])
    call = f"atom({t.number}, s, '{space}', '{name}', '{kind}', {address}, {read})"
    return t.write(to, kind, call) or [call]


# ---- asynchronous copies -------------------------------------------------------------------------------------------


_SIZES = {"ca": (4, 8, 16), "cg": (16,)}


@emits("cp")
def _cp(t: Translator, i: Instruction) -> list[str]:
    if "bulk" in i.opcode:
        return _bulk(t, i)
    if "commit_group" in i.opcode:
        return ["cp_commit(s)"]
    if "wait_group" in i.opcode:
        return [f"cp_wait({t.number}, s, {_number(i.operands[0])})"]
    if "wait_all" in i.opcode:
        return ["cp_commit(s)", f"cp_wait({t.number}, s, 0)"]
    to, of, size, *taken = i.operands
    if _number(size) not in _SIZES[i.opcode[2]]:
        raise Unread("a copy of another size")
    take = t.read(taken[0], "u32") if taken else str(_number(size))
    return [f"cp_async({t.number}, s, {_shared_address(t, to)}, {t.address(of)}, {_number(size)}, {take})"]


def _number(operand: Operand) -> int:
    if not isinstance(operand, Integer):
        raise Unread
    return operand.value


def _bulk(t: Translator, i: Instruction) -> list[str]:
    if "commit_group" in i.opcode:
        return ["bulk_commit(s)"]
    if "wait_group" in i.opcode:
        return [f"bulk_wait({t.number}, s, {_number(i.operands[0])}, {'read' in i.opcode})"]
    load = i.opcode[5].startswith("shared")
    tensor = i.operands[1] if load else i.operands[0]
    assert isinstance(tensor, Memory)
    point = _items([t.read(x, "s32") for x in _vector(tensor.rest[0])])
    if len(_vector(tensor.rest[0])) != int(i.opcode[4][0]):
        raise Unread("another number of coordinates")
    if not load:
        return [f"tma_store({t.number}, s, {t.address(tensor)}, {point}, {_shared_address(t, i.operands[1])})"]
    to, _, bell, *rest = i.operands
    mask = t.read(rest[0], "u16") if "multicast::cluster" in i.opcode else "None"
    return [
        f"tma_load({t.number}, s, {_shared_address(t, to)}, {t.address(tensor)}, {point}, {_shared_address(t, bell)}, {mask})"
    ]


def _vector(operand: Operand) -> tuple[Operand, ...]:
    if not isinstance(operand, Vector):
        raise Unread
    return operand.items


def _st_async(t: Translator, i: Instruction) -> list[str]:
    to, value, bell = i.operands
    items = value.items if isinstance(value, Vector) else (value,)
    kind = f"b{SIZES[i.opcode[-1]] * 8}"
    values = _items([t.read(x, kind) for x in items])
    return [
        f"st_async({t.number}, s, {_shared_address(t, to)}, '{DTYPES[kind]}', {values}, {_shared_address(t, bell)})"
    ]


@emits("prefetch", "prefetchu", "applypriority", "setmaxnreg")
def _nothing(_t: Translator, _i: Instruction) -> list[str]:
    """Hints do nothing; their addresses are not checked, because a prefetch never faults."""
    return []


@emits("nanosleep")
def _nanosleep(_t: Translator, _i: Instruction) -> list[str]:
    return ["sleep(s)"]


@emits("fence", "membar")
def _fence(_t: Translator, i: Instruction) -> list[str]:
    of = i.opcode[1] if i.opcode[1] in ("proxy", "mbarrier_init") else i.opcode[-1]
    return [f"fence(s, '{of}')"]


@emits("griddepcontrol")
def _griddepcontrol(_t: Translator, i: Instruction) -> list[str]:
    return ["grid_wait(s)"] if i.opcode[1] == "wait" else []


# ---- barriers ------------------------------------------------------------------------------------------------------


@emits("mbarrier")
def _mbarrier(t: Translator, i: Instruction) -> list[str]:
    match i.opcode[1]:
        case "init":
            memory, count = i.operands
            return [f"mbarrier_init({t.number}, s, {_shared_address(t, memory)}, {t.read(count, 'u32')})"]
        case "inval":
            return [f"mbarrier_inval({t.number}, s, {_shared_address(t, i.operands[0])})"]
        case "arrive":
            memory = next(o for o in i.operands if isinstance(o, Memory))
            after = i.operands[i.operands.index(memory) + 1 :]
            given = t.read(after[0], "u32") if after else "1"
            counted = f"1, {given}" if "expect_tx" in i.opcode else f"{given}, None"
            relaxed = "relaxed" in i.opcode
            return [f"mbarrier_arrive({t.number}, s, {_shared_address(t, memory)}, {counted}, {relaxed})"]
        case "expect_tx":
            memory, count = i.operands
            return [f"mbarrier_arrive({t.number}, s, {_shared_address(t, memory)}, 0, {t.read(count, 'u32')}, True)"]
        case "try_wait":
            to, memory, parity = i.operands[:3]
            address = _shared_address(t, memory)
            return [f"mbarrier_wait({t.number}, s, {address}, {t.read(parity, 'u32')}, {t.target(to)})"]
    raise Unread


@emits("barrier")
def _cluster(t: Translator, i: Instruction) -> list[str]:
    return [
        f"cluster_arrive({t.number}, s, {'relaxed' in i.opcode})"
        if i.opcode[2] == "arrive"
        else f"cluster_wait({t.number}, s)"
    ]


@emits("bar")
def _bar(t: Translator, i: Instruction) -> list[str]:
    return [f"warp_sync({t.number}, s, {t.read(i.operands[0], 'u32')})"]


@emits("mapa")
def _mapa(t: Translator, i: Instruction) -> list[str]:
    return t.write(i.operands[0], "u32", f"mapa({t.read(i.operands[1], 'u32')}, {t.read(i.operands[2], 'u32')})")


# ---- warps ---------------------------------------------------------------------------------------------------------


@emits("shfl")
def _shfl(t: Translator, i: Instruction) -> list[str]:
    to, of, by, limits, mask = i.operands
    value, found = (to.first, to.second) if isinstance(to, Pair) else (to, None)
    read = ", ".join(t.read(x, "u32") for x in (by, limits, mask))
    lines = [
        f"got, found = shuffle({t.number}, s, {t.target(of)}, {read}, '{i.opcode[2]}')",
        *t.write(value, "b32", "got"),
    ]
    return lines + (t.write(found, "pred", "found") if found is not None else [])


@emits("vote")
def _vote(t: Translator, i: Instruction) -> list[str]:
    to, given, mask = i.operands
    mode = i.opcode[2]
    call = f"vote({t.number}, s, '{mode}', {t.read(given, 'pred')}, {t.read(mask, 'u32')})"
    return t.write(to, "b32" if mode == "ballot" else "pred", call)


@emits("redux")
def _redux(t: Translator, i: Instruction) -> list[str]:
    to, given, mask = i.operands
    kind = i.opcode[-1]
    return t.write(to, kind, f"redux({t.number}, s, '{i.opcode[2]}', {t.read(given, kind)}, {t.read(mask, 'u32')})")


@emits("activemask")
def _activemask(t: Translator, i: Instruction) -> list[str]:
    return t.write(i.operands[0], "b32", "activemask(s)")


@emits("elect")
def _elect(t: Translator, i: Instruction) -> list[str]:
    to, mask = i.operands
    assert isinstance(to, Pair)
    lines = [f"leader, found = elect({t.number}, s, {t.read(mask, 'u32')})", *t.write(to.first, "b32", "leader")]
    return lines + t.write(to.second, "pred", "found")


# ---- matrices ------------------------------------------------------------------------------------------------------


def _rows(t: Translator, operand: Operand, kind: str = "") -> str:
    view = "f" if kind in ("f32", "f64") else "i" if kind == "s32" else ""
    items = operand.items if isinstance(operand, Vector) else (operand,)
    names = []
    for item in items:
        if not isinstance(item, Register):
            raise Unread("a constant in a fragment")
        names.append(t.row(item.name, view))
    return _items(names)


@emits("ldmatrix", "stmatrix")
def _matrix(t: Translator, i: Instruction) -> list[str]:
    load = i.opcode[0] == "ldmatrix"
    rows, memory = i.operands if load else i.operands[::-1]
    address = _shared_address(t, memory)
    return [f"{i.opcode[0]}({t.number}, s, {address}, {'trans' in i.opcode}, {_rows(t, rows)})"]


@emits("mma")
def _mma(t: Translator, i: Instruction) -> list[str]:
    shape, kinds = i.opcode[3], i.opcode[-4:]
    rows = [_rows(t, operand, kind) for operand, kind in zip(i.operands, kinds)]
    saturate = ", saturate=True" if "satfinite" in i.opcode else ""
    return [f"mma({t.number}, s, '{shape}', {kinds!r}, {', '.join(rows)}{saturate})"]


@emits("wgmma")
def _wgmma(t: Translator, i: Instruction) -> list[str]:
    match i.opcode[1]:
        case "fence":
            return [f"wgmma_fence({t.number}, s)"]
        case "commit_group":
            return ["wgmma_commit(s)"]
        case "wait_group":
            return [f"wgmma_wait({t.number}, s, {_number(i.operands[0])})"]
    d, a, b, scale, *rest = i.operands
    kinds = i.opcode[-3:]
    numbers = [_number(x) for x in rest]
    signs, majors = (numbers + [1, 1])[:2], (numbers[2:] + [0, 0])[:2]
    if isinstance(a, Vector):
        left, majors = _rows(t, a), [0, numbers[2] if len(numbers) > 2 else 0]
    else:
        left = t.read(a, "b64")
    accumulators = _rows(t, d, kinds[0])
    return [
        f"wgmma({t.number}, s, '{i.opcode[4]}', {kinds!r}, {accumulators}, {left}, {t.read(b, 'b64')}, "
        f"{t.read(scale, 'pred')}, {tuple(signs)!r}, {tuple(majors)!r})"
    ]

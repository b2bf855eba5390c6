"""PTX whose entry takes only addresses of buffers, which is what XLA passes to a kernel of its own.

An entry's scalars and structs become constants in its text: each load of a parameter becomes a move of the constant, and each
load of a pointer becomes a load of a buffer's address and a displacement. So ptxas sees constants where a launch has arguments,
and a kernel needs neither a second source nor a second compilation by NVRTC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.launch import laid_out
from ...runtime.steps import Packed, Ptr, Run, Scratch, TensorMap
from ...types import UnsupportedError

__all__ = ["baked", "copying", "filling"]

BLOCK = 256  # threads of a block that copies or fills
SCRATCH = ""  # the name of the buffer that holds the scratch
Buffers = Mapping[str, int]  # names, and the bytes from an operand's first element to the first one touched

_ENTRY = re.compile(r"(\.entry\s+[\w$]+\s*)\(([^)]*)\)")
_PARAMETER = re.compile(r"([\w$]+)(?:\[(\d+)\])?\s*(?:,|$)")
_INSTRUCTION = re.compile(r"^\t(?:@|[a-z])", re.M)
_HELD = {1: "%held_h1", 2: "%held_h1", 4: "%held_r1", 8: "%held_d1"}  # registers for the copy of a struct
_HELD_KINDS = {"%held_h": "b16", "%held_r": "b32", "%held_d": "b64"}
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(%\w+?)<\d+>")
_ADDRESS = re.compile(r"^[ \t]*mov\.[bu]64\s+(%\w+),\s*([A-Za-z_$][\w$]*);\n", re.M)
_BEHIND = re.compile(r"^[ \t]*add\.s64\s+(%\w+),\s*(%\w+),\s*(-?\d+);\n", re.M)
_LOAD = re.compile(r"ld\.param(?:\.v([24]))?\.(\w+)\s+(\{[^}]*\}|%\w+),\s*\[([\w$%]+)(?:\+(-?\d+))?\];")
_LOADED = re.compile(r"ld\.param[^;]*\[([\w$%]+)")
_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}


def baked(text: str, args: Sequence[Any], values: Mapping[str, Any], buffers: Buffers) -> str:
    """The PTX of a kernel with its arguments in it. Its entry takes the addresses of `buffers`.

    A struct that the kernel indexes is copied to local memory first. UnsupportedError if an argument cannot be a constant.
    """
    head = _ENTRY.search(text)
    assert head is not None
    names = [found[0] for found in _PARAMETER.findall(head[2])]
    places = dict(zip(names, _fields(args, values), strict=True))
    body = text[head.end() :]
    held = _addresses(body, places)
    kinds = {prefix: kind for kind, prefix in _REGISTERS.findall(body)}

    def moved(found: re.Match[str]) -> str:
        lanes, kind, target, name, offset = found.groups()
        name, begin = held.get(name, (name, 0))
        if name not in places:  # an address that is computed, or what a called function takes or returns
            return found[0].replace(".param", ".local", 1) if name.startswith("%") else found[0]
        size, at = _SIZES[kind.lstrip("bufs")], begin + int(offset or 0)
        registers = [r.strip() for r in target.strip("{}").split(",")]
        assert len(registers) == int(lanes or 1)
        return "\n\t".join(
            _moved(places[name], at + i * size, size, kind, r, kinds, buffers) for i, r in enumerate(registers)
        )

    body = _without_unused(_LOAD.sub(moved, body))
    indexed = [name for name in names if re.search(rf"\b{re.escape(name)}\b", body)]
    if "cvta.param" in body or any(name in places or name[0] == "%" for name in _LOADED.findall(body)):
        raise UnsupportedError("a kernel passes the address of a parameter on")
    sizes = {name: int(size or 8) for name, size in _PARAMETER.findall(head[2])}
    if indexed:
        first = _INSTRUCTION.search(body)
        assert first is not None
        copies = "".join(_copied_to_local(name, sizes[name], places[name], buffers) for name in indexed)
        body = f"{body[: first.start()]}{copies}{body[first.start() :]}"
    return f"{text[: head.start()]}{head[1]}({_parameters(len(buffers))}){body}"


def _parameters(count: int) -> str:
    return "\n" + ",\n".join(f"\t.param .u64 buffer_{i}" for i in range(count)) + "\n"


def _fields(args: Sequence[Any], values: Mapping[str, Any]) -> list[dict[int, Any]]:
    """Of each argument, what is at which of its bytes: a pointer, or bytes."""
    places, offsets, _ = laid_out(args)
    found: list[dict[int, Any]] = [{} for _ in args]
    for field, offset in places:
        k = sum(begin <= offset for begin in offsets) - 1
        if isinstance(field, TensorMap):
            raise UnsupportedError("a kernel takes a tensor map, which is encoded for an address when it is launched")
        found[k][offset - offsets[k]] = field if isinstance(field, (Ptr, Scratch)) else _bytes(field, values)
    return found


def _bytes(field: Any, values: Mapping[str, Any]) -> bytes:
    if isinstance(field, Run):
        field = np.dtype(field.dtype).type(values[field.name])
    return field.data if isinstance(field, Packed) else field.tobytes()


def _addresses(body: str, places: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """The registers that always hold an address in a parameter: which one, and the offset in it."""
    held: dict[str, tuple[str, int]] = {
        found[1]: (found[2], 0) for found in _ADDRESS.finditer(body) if found[2] in places
    }
    while further := [f for f in _BEHIND.finditer(body) if f[2] in held and f[1] not in held]:
        held.update({f[1]: (held[f[2]][0], held[f[2]][1] + int(f[3])) for f in further})
    return {
        r: place for r, place in held.items() if len(re.findall(rf"^\s*(?:@!?%p\d+ )?[\w.]+\s+{r},", body, re.M)) == 1
    }


def _without_unused(body: str) -> str:
    """The body without addresses that nothing uses."""
    while True:
        made = [*_ADDRESS.finditer(body), *_BEHIND.finditer(body)]
        unused = [found[0] for found in made if len(re.findall(rf"{found[1]}\b", body)) == 1]
        if not unused:
            return body
        for instruction in unused:
            body = body.replace(instruction, "")


def _copied_to_local(name: str, size: int, fields: Mapping[int, Any], buffers: Buffers) -> str:
    """An array of the parameter's name in local memory, and instructions that write the parameter's values there."""
    stores, at = [], 0
    while at < size:
        step = next(n for n in (8, 4, 2, 1) if at % n == 0 and at + n <= size)
        stores.append(f"\t{_moved(fields, at, step, f'b{8 * step}', _HELD[step], _HELD_KINDS, buffers)}")
        stores.append(f"\tst.local.b{8 * step} \t[%held_at+{at}], {_HELD[step]};")
        at += step
    block = "\n".join((
        "\t{", "\t.reg .b16 %held_h<2>;", "\t.reg .b32 %held_r<2>;", "\t.reg .b64 %held_d<2>;", "\t.reg .b64 %held_at;",
        f"\tmov.b64 \t%held_at, {name};", *stores, "\t}\n",
    ))  # fmt: skip
    return f"\t.local .align 16 .b8 {name}[{size}];\n{block}"


def _moved(
    fields: Mapping[int, Any], at: int, size: int, kind: str, register: str, kinds: Mapping[str, str], buffers: Buffers
) -> str:  # fmt: skip
    """The instruction that gives a register what a load of `size` bytes at `at` would give."""
    pointer = fields.get(at)
    if isinstance(pointer, (Ptr, Scratch)):
        if size != 8:
            raise UnsupportedError("a part of a pointer is read")
        return _address(pointer, register, buffers)
    data = bytearray()
    for byte in range(at, at + size):
        begin = max(b for b in fields if b <= byte)
        if not isinstance(fields[begin], bytes):
            raise UnsupportedError("a part of a pointer is read")
        data.append(fields[begin][byte - begin] if byte - begin < len(fields[begin]) else 0)  # or padding
    number = int.from_bytes(data, "little", signed=kind.startswith("s"))
    own = kinds[register.rstrip("0123456789")]
    width = int(own.lstrip("bufs"))
    bits = f"{number & (1 << width) - 1:0{width // 4}X}"
    if own == "f32" or own == "f64":
        return f"mov.{own} \t{register}, 0{'f' if own == 'f32' else 'd'}{bits};"
    return f"mov.b{width} \t{register}, 0x{bits};"


def _address(pointer: Ptr | Scratch, register: str, buffers: Buffers) -> str:
    name = SCRATCH if isinstance(pointer, Scratch) else pointer.operand
    if name not in buffers:
        return f"mov.b64 \t{register}, 0;"
    load, offset = f"ld.param.u64 \t{register}, [buffer_{list(buffers).index(name)}];", _offset(pointer, buffers)
    return load if not offset else f"{load}\n\tadd.s64 \t{register}, {register}, {offset};"


def _offset(place: Ptr | Scratch, buffers: Buffers) -> int:
    """Bytes from the beginning of a place's buffer."""
    return place.offset + (0 if isinstance(place, Scratch) else buffers[place.operand])


# ---- copies and fills ----------------------------------------------------------------------------------------------------


def copying(
    target: str, dest: Ptr | Scratch, source: Ptr | Scratch, dest_pitch: int, source_pitch: int, width: int, height: int,
    buffers: Buffers,
) -> tuple[str, int]:  # fmt: skip
    """PTX that copies `height` rows of `width` bytes, and its blocks: one thread per item of at most 8 bytes."""
    size = _item(width, _offset(dest, buffers), _offset(source, buffers), dest_pitch, source_pitch)
    row = width // size
    body = f"""
	rem.u64 	%rd4, %rd3, {row};
	mul.lo.s64 	%rd4, %rd4, {size};
	div.u64 	%rd5, %rd3, {row};
	{_address(source, "%rd1", buffers)}
	mad.lo.s64 	%rd1, %rd5, {source_pitch}, %rd1;
	add.s64 	%rd1, %rd1, %rd4;
	ld.global.b{8 * size} 	{_REGISTER[size]}, [%rd1];
	{_address(dest, "%rd2", buffers)}
	mad.lo.s64 	%rd2, %rd5, {dest_pitch}, %rd2;
	add.s64 	%rd2, %rd2, %rd4;
	st.global.b{8 * size} 	[%rd2], {_REGISTER[size]};"""
    return _threads(target, "copy", body, row * height, buffers)


def filling(target: str, dest: Ptr | Scratch, value: int, nbytes: int, buffers: Buffers) -> tuple[str, int]:
    """PTX that sets bytes to a value, and its blocks: one thread per item of at most 8 bytes."""
    size = _item(nbytes, _offset(dest, buffers))
    bits = int.from_bytes(bytes([value]) * size, "little")
    register = _REGISTER[size]
    body = f"""
	mov.b{max(16, 8 * size)} 	{register}, 0x{bits:X};
	{_address(dest, "%rd2", buffers)}
	mad.lo.s64 	%rd2, %rd3, {size}, %rd2;
	st.global.b{8 * size} 	[%rd2], {register};"""
    return _threads(target, "fill", body, nbytes // size, buffers)


_REGISTER = {1: "%rs1", 2: "%rs1", 4: "%r4", 8: "%rd6"}


def _item(*numbers: int) -> int:
    return next(size for size in (8, 4, 2, 1) if not any(n % size for n in numbers))


# The PTX version that brought each target: PTX ISA 9.0, "Release History". A driver reads no later one than its own.
_VERSIONS = {
    "sm_80": "7.0",
    "sm_86": "7.1",
    "sm_87": "7.4",
    "sm_89": "7.8",
    "sm_90": "8.0",
    "sm_100": "8.6",
    "sm_120": "8.7",
}
_NEWEST = "8.8"


def _threads(target: str, what: str, body: str, count: int, buffers: Buffers) -> tuple[str, int]:
    """A module whose threads do `body` once for each number in %rd3 below `count`."""
    text = f""".version {_VERSIONS.get(target.removesuffix("a"), _NEWEST)}
.target {target}
.address_size 64

.visible .entry baracuda_{what}({_parameters(len(buffers))})
{{
	.reg .pred 	%p<2>;
	.reg .b16 	%rs<2>;
	.reg .b32 	%r<5>;
	.reg .b64 	%rd<7>;

	mov.u32 	%r1, %ctaid.x;
	mov.u32 	%r2, %tid.x;
	mul.wide.u32 	%rd3, %r1, {BLOCK};
	cvt.u64.u32 	%rd4, %r2;
	add.s64 	%rd3, %rd3, %rd4;
	setp.ge.u64 	%p1, %rd3, {count};
	@%p1 bra 	$DONE;
{body.lstrip(chr(10))}
$DONE:
	ret;
}}
"""
    return text, -(-count // BLOCK)

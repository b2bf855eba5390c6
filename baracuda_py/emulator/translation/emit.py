"""Instructions that compute: integers, floating point, comparisons, conversions, moves (PTX ISA, Instruction Set).

An emitter returns the Python lines of one instruction. NumPy's own operator is used where it is exact; every other instruction
calls a function of a module of numerics, which the generated text names by a letter (machine.py binds them).
"""

from __future__ import annotations

from collections.abc import Callable

from ..ptx.syntax import SIZES, Instruction, Integer, Pair, Sink, Vector
from ..values.registers import DTYPES
from .translate import Translator, Unread

__all__ = ["EMITTERS"]

EMITTERS: dict[str, Callable[[Translator, Instruction], list[str]]] = {}
_FLOATS = {"f16", "bf16", "f32", "f64", "f16x2", "bf16x2"}
_NATIVE = {"f32", "f64"}  # types for which NumPy has add, sub, mul and div, rounded to nearest
_ROUNDINGS = {"rn", "rz", "rm", "rp"}
_BOOLEAN = {"and": "&", "or": "|", "xor": "^"}


def emits(*opcodes: str) -> Callable[[Callable[[Translator, Instruction], list[str]]], Callable[..., list[str]]]:
    """Registers an emitter for opcodes by their first part."""

    def register(emitter: Callable[[Translator, Instruction], list[str]]) -> Callable[..., list[str]]:
        EMITTERS.update(dict.fromkeys(opcodes, emitter))
        return emitter

    return register


def modifiers(i: Instruction, types: int = 1) -> set[str]:
    """The modifiers between an opcode and its types."""
    return set(i.opcode[1 : len(i.opcode) - types])


def _flags(found: set[str], *names: str) -> str:
    return "".join(f", {name}=True" for name in names if name in found)


def _wide(kind: str) -> str:
    return f"{kind[0]}{int(kind[1:]) * 2}"


# ---- moves ---------------------------------------------------------------------------------------------------------


@emits("mov")
def _mov(t: Translator, i: Instruction) -> list[str]:
    kind = i.opcode[-1]
    to, of = i.operands
    if kind == "pred":
        return t.write(to, kind, t.read(of, kind))
    kind = f"b{SIZES[kind] * 8}"
    if isinstance(to, Vector):
        part = SIZES[kind] // len(to.items)
        lines = [f"parts = split({t.read(of, kind)}, count(s), {part})"]
        for n, item in enumerate(to.items):
            if not isinstance(item, Sink):
                lines += t.write(item, f"b{part * 8}", f"parts[{n}::{len(to.items)}]")
        return lines
    if isinstance(of, Vector):
        part, dtype = SIZES[kind] // len(of.items), DTYPES[kind]
        pieces = (
            f"(({t.read(item, f'b{part * 8}')}).astype('{dtype}') << {t.constant(n * part * 8, dtype)})"
            for n, item in enumerate(of.items)
        )
        return t.write(to, kind, " | ".join(pieces))
    return t.write(to, kind, t.read(of, kind))


@emits("cvta")
def _cvta(t: Translator, i: Instruction) -> list[str]:
    """A global address equals its generic address; the windows of the other spaces overlap no other addresses."""
    space = next((x for x in i.opcode if x in ("global", "shared", "local", "param", "const")), "")
    window = {"shared": "SHARED", "local": "LOCAL", "param": "PARAMETERS"}.get(space)
    value = t.read(i.operands[1], i.opcode[-1])
    if window is None:
        return t.write(i.operands[0], i.opcode[-1], value)
    return t.write(i.operands[0], i.opcode[-1], f"{value} {'-' if 'to' in i.opcode else '+'} {window}")


# ---- arithmetic ----------------------------------------------------------------------------------------------------


@emits("add", "sub", "mul")
def _arithmetic(t: Translator, i: Instruction) -> list[str]:
    kind, name = i.opcode[-1], i.opcode[0]
    a, b = t.read(i.operands[1], kind), t.read(i.operands[2], kind)
    sign = {"add": "+", "sub": "-", "mul": "*"}[name]
    if kind in _FLOATS:
        found = modifiers(i)
        if kind in _NATIVE and found <= {"rn"}:
            return t.write(i.operands[0], kind, f"{a} {sign} {b}")
        rounding = next(iter(found & _ROUNDINGS), "rn")
        return t.write(i.operands[0], kind, f"F.{name}({a}, {b}, '{rounding}', '{kind}'{_flags(found, 'ftz', 'sat')})")
    if name == "mul":
        return _products(t, i, a, b)
    found = modifiers(i)
    if found:
        return t.write(i.operands[0], kind, f"I.{name}_sat({a}, {b}, '{kind}')")
    return t.write(i.operands[0], kind, f"{a} {sign} {b}")


def _products(t: Translator, i: Instruction, a: str, b: str) -> list[str]:
    kind = i.opcode[-1]
    found = modifiers(i)
    if "wide" in found:
        wide = DTYPES[_wide(kind)]
        return t.write(i.operands[0], _wide(kind), f"{a}.astype('{wide}') * {b}.astype('{wide}')")
    if "hi" in found:
        return t.write(i.operands[0], kind, f"I.mul_hi({a}, {b}, '{kind}')")
    return t.write(i.operands[0], kind, f"{a} * {b}")


@emits("mad", "fma")
def _mad(t: Translator, i: Instruction) -> list[str]:
    kind = i.opcode[-1]
    a, b = t.read(i.operands[1], kind), t.read(i.operands[2], kind)
    if kind in _FLOATS:
        found = modifiers(i)
        rounding = next(iter(found & _ROUNDINGS), "rn")
        arguments = f"{a}, {b}, {t.read(i.operands[3], kind)}, '{rounding}', '{kind}'"
        return t.write(i.operands[0], kind, f"F.fma({arguments}{_flags(found, 'ftz', 'sat', 'relu')})")
    found = modifiers(i)
    if "wide" in found:
        wide = DTYPES[_wide(kind)]
        added = t.read(i.operands[3], _wide(kind))
        return t.write(i.operands[0], _wide(kind), f"{a}.astype('{wide}') * {b}.astype('{wide}') + {added}")
    added = t.read(i.operands[3], kind)
    product = f"I.mul_hi({a}, {b}, '{kind}')" if "hi" in found else f"{a} * {b}"
    return t.write(i.operands[0], kind, f"{product} + {added}")


@emits("div", "rem")
def _div(t: Translator, i: Instruction) -> list[str]:
    kind = i.opcode[-1]
    a, b = t.read(i.operands[1], kind), t.read(i.operands[2], kind)
    if kind not in _FLOATS:
        return t.write(
            i.operands[0], kind, f"I.{'divide' if i.opcode[0] == 'div' else 'remainder'}({a}, {b}, '{kind}')"
        )
    found = modifiers(i)
    if found <= {"rn"}:
        return t.write(i.operands[0], kind, f"{a} / {b}")
    rounding = next(iter(found & (_ROUNDINGS | {"approx", "full"})), "rn")
    return t.write(i.operands[0], kind, f"F.divide({a}, {b}, '{rounding}', '{kind}'{_flags(found, 'ftz')})")


@emits("neg", "abs")
def _sign(t: Translator, i: Instruction) -> list[str]:
    kind = i.opcode[-1]
    value = t.read(i.operands[1], kind)
    found = modifiers(i)
    if kind in _FLOATS:
        name = "negate" if i.opcode[0] == "neg" else "absolute"
        return t.write(i.operands[0], kind, f"K.{name}({value}, '{kind}'{_flags(found, 'ftz')})")
    return t.write(i.operands[0], kind, f"-{value}" if i.opcode[0] == "neg" else f"np.abs({value})")


@emits("copysign")
def _copysign(t: Translator, i: Instruction) -> list[str]:
    kind = i.opcode[-1]
    values = f"{t.read(i.operands[1], kind)}, {t.read(i.operands[2], kind)}"
    return t.write(i.operands[0], kind, f"K.copysign({values}, '{kind}')")


@emits("min", "max")
def _extreme(t: Translator, i: Instruction) -> list[str]:
    kind, name = i.opcode[-1], {"min": "minimum", "max": "maximum"}[i.opcode[0]]
    values = ", ".join(t.read(x, kind) for x in i.operands[1:])
    if kind in _FLOATS:
        found = modifiers(i)
        nan = ", nan=True" if "NaN" in found else ""
        return t.write(i.operands[0], kind, f"K.{name}({values}, '{kind}'{nan}{_flags(found, 'ftz')})")
    if modifiers(i):
        return t.write(i.operands[0], kind, f"np.maximum(np.{name}({values}), {t.constant(0, DTYPES[kind])})")
    return t.write(i.operands[0], kind, f"np.{name}({values})")


@emits("ex2", "lg2", "rcp", "sqrt", "rsqrt", "tanh", "sin", "cos")
def _function(t: Translator, i: Instruction) -> list[str]:
    kind, name = i.opcode[-1], i.opcode[0]
    found = modifiers(i)
    value = t.read(i.operands[1], kind)
    if name == "sqrt" and found == {"rn"}:
        return t.write(i.operands[0], kind, f"np.sqrt({value})")
    if name in ("rcp", "sqrt"):
        rounding = next(iter(found & (_ROUNDINGS | {"approx"})))
        return t.write(i.operands[0], kind, f"F.{name}({value}, '{rounding}', '{kind}'{_flags(found, 'ftz')})")
    return t.write(i.operands[0], kind, f"X.{name}({value}, '{kind}'{_flags(found, 'ftz')})")


# ---- bits ----------------------------------------------------------------------------------------------------------


@emits("and", "or", "xor")
def _logic(t: Translator, i: Instruction) -> list[str]:
    kind, sign = i.opcode[-1], _BOOLEAN[i.opcode[0]]
    return t.write(i.operands[0], kind, f"{t.read(i.operands[1], kind)} {sign} {t.read(i.operands[2], kind)}")


@emits("not")
def _not(t: Translator, i: Instruction) -> list[str]:
    return t.write(i.operands[0], i.opcode[-1], f"~{t.read(i.operands[1], i.opcode[-1])}")


@emits("shl", "shr")
def _shift(t: Translator, i: Instruction) -> list[str]:
    kind, left = i.opcode[-1], i.opcode[0] == "shl"
    value, amount = t.read(i.operands[1], kind), i.operands[2]
    if isinstance(amount, Integer) and 0 <= amount.value < SIZES[kind] * 8:
        by = t.constant(amount.value, DTYPES[kind])
        return t.write(i.operands[0], kind, f"{value} {'<<' if left else '>>'} {by}")
    return t.write(
        i.operands[0],
        kind,
        f"I.shift_{'left' if left else 'right'}({value}, {t.read(amount, 'u32')}, {SIZES[kind] * 8 if left else repr(kind)})",
    )


@emits("shf")
def _shf(t: Translator, i: Instruction) -> list[str]:
    low, high, by = (t.read(x, "u32") for x in i.operands[1:])
    return t.write(i.operands[0], "u32", f"I.funnel({low}, {high}, {by}, '{i.opcode[1]}', '{i.opcode[2]}')")


@emits("bfi", "bfe")
def _field(t: Translator, i: Instruction) -> list[str]:
    kind, values = i.opcode[-1], i.operands[1:-2]
    read = ", ".join([*(t.read(x, kind) for x in values), *(t.read(x, "u32") for x in i.operands[-2:])])
    last = SIZES[kind] * 8 if i.opcode[0] == "bfi" else repr(kind)
    return t.write(i.operands[0], kind, f"B.{i.opcode[0]}({read}, {last})")


@emits("prmt")
def _prmt(t: Translator, i: Instruction) -> list[str]:
    mode = i.opcode[2] if len(i.opcode) > 2 else ""
    return t.write(i.operands[0], "u32", f"B.prmt({', '.join(t.read(x, 'u32') for x in i.operands[1:])}, '{mode}')")


@emits("lop3")
def _lop3(t: Translator, i: Instruction) -> list[str]:
    if not isinstance(i.operands[4], Integer):
        raise Unread
    values = ", ".join(t.read(x, "u32") for x in i.operands[1:4])
    return t.write(i.operands[0], "u32", f"I.lop3({values}, {i.operands[4].value})")


@emits("popc", "clz", "brev", "bfind")
def _bits(t: Translator, i: Instruction) -> list[str]:
    kind, name = i.opcode[-1], i.opcode[0]
    found = modifiers(i)
    more = f", '{kind}'{_flags(found, 'shiftamt')}" if name == "bfind" else ""
    return t.write(i.operands[0], kind if name == "brev" else "u32", f"B.{name}({t.read(i.operands[1], kind)}{more})")


@emits("dp4a")
def _dot(t: Translator, i: Instruction) -> list[str]:
    a, b = i.opcode[-2:]
    result = "s32" if "s32" in (a, b) else "u32"
    values = f"{t.read(i.operands[1], 'u32')}, {t.read(i.operands[2], 'u32')}, {t.read(i.operands[3], result)}"
    return t.write(i.operands[0], result, f"I.dp4a({values}, '{a}', '{b}')")


# ---- comparisons ---------------------------------------------------------------------------------------------------

_SIGNS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}


@emits("setp")
def _setp(t: Translator, i: Instruction) -> list[str]:
    kind, test = i.opcode[-1], i.opcode[1]
    found, combined = modifiers(i), next((x for x in i.opcode if x in _BOOLEAN), "")
    a, b = t.read(i.operands[1], kind), t.read(i.operands[2], kind)
    if kind in _FLOATS:
        result = f"K.compare({a}, {b}, '{test}', '{kind}'{_flags(found, 'ftz')})"
    else:
        result = f"({a} {_SIGNS[test]} {b})"
    to, _, _, *also = i.operands
    if bool(combined) != bool(also):
        raise Unread("a third operand belongs to .and, .or and .xor")
    packed = kind.endswith("x2")
    if not combined and not packed and not isinstance(to, Pair):
        return t.write(to, "pred", result)
    first, second = (to.first, to.second) if isinstance(to, Pair) else (to, Sink())
    behind = f" {_BOOLEAN[combined]} also" if combined else ""
    lines = [f"test = {result}", *(f"also = {t.read(x, 'pred')}" for x in also)]
    one, other = ("test[..., 0]", "test[..., 1]") if packed else ("test", "~test")  # per element, or p and not p
    return lines + t.write(first, "pred", one + behind) + t.write(second, "pred", other + behind)


@emits("selp")
def _selp(t: Translator, i: Instruction) -> list[str]:
    kind = f"b{SIZES[i.opcode[-1]] * 8}"
    chosen = f"np.where({t.read(i.operands[3], 'pred')}, {t.read(i.operands[1], kind)}, {t.read(i.operands[2], kind)})"
    return t.write(i.operands[0], kind, chosen)


@emits("testp")
def _testp(t: Translator, i: Instruction) -> list[str]:
    kind = i.opcode[-1]
    return t.write(i.operands[0], "pred", f"K.testp({t.read(i.operands[1], kind)}, '{i.opcode[1]}', '{kind}')")


# ---- conversions ---------------------------------------------------------------------------------------------------

_TO_INTEGER = {"rni", "rzi", "rmi", "rpi"}


@emits("cvt")
def _cvt(t: Translator, i: Instruction) -> list[str]:
    to, of = i.opcode[-2:]
    found = modifiers(i, types=2)
    rounding = next(iter(found & (_ROUNDINGS | _TO_INTEGER | {"rna"})), "")
    flags = _flags(found, "ftz", "sat", "satfinite", "relu")
    if to in ("f16x2", "bf16x2", "e4m3x2", "e5m2x2") and len(i.operands) == 3:
        width = "b16" if to[0] == "e" else "b32"
        pair = f"{t.read(i.operands[1], of)}, {t.read(i.operands[2], of)}"
        return t.write(i.operands[0], width, f"C.pack({pair}, '{to}', '{rounding}'{flags})")
    if to == "tf32":
        return t.write(i.operands[0], "b32", f"C.tf32({t.read(i.operands[1], of)}, '{rounding}'{flags})")
    if of in ("e4m3x2", "e5m2x2") or to in ("e4m3x2", "e5m2x2"):
        width, held = ("b32", "b16") if of[0] == "e" else ("b16", "b32")
        value = t.read(i.operands[1], held)
        return t.write(i.operands[0], width, f"C.convert({value}, '{to}', '{of}', '{rounding}'{flags})")
    value = t.read(i.operands[1], of)
    if to not in _FLOATS and of not in _FLOATS and not flags:
        return t.write(i.operands[0], to, f"{value}.astype('{DTYPES[to]}')")
    return t.write(i.operands[0], to, f"C.convert({value}, '{to}', '{of}', '{rounding}'{flags})")

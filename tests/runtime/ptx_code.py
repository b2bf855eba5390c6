"""What one kernel is of a module's PTX: its entry, with the variables and functions that this names."""

from __future__ import annotations

import re

__all__ = ["code_of"]

# An entry or a function with its body, a variable with its semicolon; and what each is called.
_ITEM = re.compile(r"^\.(?=[^;]*?\.(?:entry|func)\b).*?^\}|^\.[^{;]*(?:\{[^}]*\})?;", re.MULTILINE | re.DOTALL)
_CALLED = re.compile(
    r"(?:\.\w+ )*\.(?:entry|func)\s*(?:\([^)]*\)\s*)?([\w$]+)\("
    r"|(?:\.\w+ )*\.(?:global|const|shared)\s[^=;]*?([\w$]+)(?:\[\d*\])*\s*[=;]"
)
_WORD = re.compile(r"[A-Za-z_$][\w$]*")


def code_of(ptx: str, kernel: str) -> str:
    """Of the one entry whose mangled name has `kernel` in it."""
    items = _ITEM.findall(ptx.partition(".address_size")[2])
    named = {found[1] or found[2]: item for item in items if (found := _CALLED.match(item))}
    (entry,) = (name for name, item in named.items() if kernel in name and ".entry" in item.partition("(")[0])
    reached, fresh = set[str](), {entry}
    while fresh:
        reached |= fresh
        fresh = {word for name in fresh for word in _WORD.findall(named[name]) if word in named} - reached
    return "\n".join(named[name] for name in sorted(reached))

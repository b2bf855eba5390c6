"""``BARACUDA_LOG=debug``: what the package logs (choices of `select`, compile times) goes to stderr from that level on."""

from __future__ import annotations

import logging
import warnings

__all__ = ["LEVELS", "show"]

LEVELS = ("debug", "info", "warning", "error")


def show(level: str) -> None:
    """Prints the package's log from `level` on; an unknown level is a warning, and changes nothing."""
    name = level.strip().lower()
    if name not in LEVELS:
        warnings.warn(
            f"BARACUDA_LOG={level!r:.40} is none of {', '.join(LEVELS)}, and is ignored", RuntimeWarning, stacklevel=2
        )
        return
    log = logging.getLogger("baracuda_py")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(name.upper())

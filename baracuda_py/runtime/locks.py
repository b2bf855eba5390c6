"""Locks that survive a fork: a child has only the thread that forked, so a lock that another one held stays shut for ever."""

from __future__ import annotations

import os
import threading
import weakref

__all__ = ["new_lock"]

_locks: weakref.WeakSet[threading.Lock] = weakref.WeakSet()


def new_lock() -> threading.Lock:
    """A lock that is open in every forked child. What it guards must be whole between any two statements."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def _open() -> None:
    for lock in _locks:
        if lock.locked():
            lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open)

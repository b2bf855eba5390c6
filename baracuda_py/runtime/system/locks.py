"""Locks that survive a fork. A child has only the forking thread, so a lock held by another thread would never be released."""

from __future__ import annotations

import os
import threading
import weakref

__all__ = ["new_lock"]

_locks: weakref.WeakSet[threading.Lock] = weakref.WeakSet()


def new_lock() -> threading.Lock:
    """A lock that is released in every forked child. The guarded state must be consistent after each statement."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def _open() -> None:
    for lock in _locks:
        if lock.locked():
            lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open)

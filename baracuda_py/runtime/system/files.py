"""Files that outlive the process: they are written whole, and read only if no other user could have written them.

Their content is executed on the GPU or decides which kernel is. So the open file descriptor is checked: the file must belong to
this user or to root, and must not be world-writable. A group with write permission is trusted, because its members share the
files on purpose. The folder is not checked: a user who may write there can remove or swap files, but cannot create a file of
another owner. So a reader must not trust a file's name: the purpose of a file is stated, and digested, inside it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import warnings
from pathlib import Path

__all__ = ["TEMPORARY", "read_trusted", "write_atomic", "write_whole"]

TEMPORARY = ".new-"  # the prefix of a file's name until it is whole
# A FIFO or a device must not block, and links are not followed. Flags that a system lacks are 0.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
_warned: set[Path] = set()


def read_trusted(path: Path, limit: int) -> bytes | None:
    """The bytes of a plain file of at most `limit` bytes; None where it is absent, unreadable, larger or no plain file.

    Also returns None if another user could have written the file, with one warning per folder. Never raises, never blocks.
    """
    try:
        handle = os.open(path, _READ)
    except (OSError, ValueError):  # a path with a null is a ValueError
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return None
        if reason := _distrust(status):
            _warn(path, reason)
            return None
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    except OSError:
        return None
    finally:
        os.close(handle)
    return data if len(data) <= limit else None


def _distrust(status: os.stat_result) -> str:
    """The reason not to trust a file, or an empty text. A system without users trusts its files."""
    if not hasattr(os, "geteuid"):
        return ""
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to user {status.st_uid}, and only your own files and root's are trusted"
    return "may be written by everybody" if status.st_mode & stat.S_IWOTH else ""


def _warn(path: Path, reason: str) -> None:
    if path.parent not in _warned:
        _warned.add(path.parent)
        warnings.warn(
            f"{path} is ignored, as are others like it: it {reason}; set BARACUDA_CACHE_DIR to a folder of your own",
            RuntimeWarning,
            stacklevel=3,
        )


def write_atomic(path: Path, data: bytes) -> bool:
    """`write_whole`, returning whether it succeeded."""
    with contextlib.suppress(OSError):
        write_whole(path, data)
        return True
    return False


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all, and creates its folder. Raises OSError if that fails, and leaves nothing behind.

    The mode follows the umask, without write permission for others: other users may read the file, and `read_trusted` accepts
    it.
    """
    temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    path.parent.mkdir(mode=0o775, parents=True, exist_ok=True)
    try:
        with os.fdopen(os.open(temporary, _WRITE, 0o664), "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise

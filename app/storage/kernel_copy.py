"""Copies between files inside the kernel."""

from __future__ import annotations

import errno
import os

from app.request.stages import Stage, stage

_NOT_HERE = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})
"""How file systems say that they cannot copy a range, or not to that other file system; containers
that do not know the call say EPERM."""

MOST_AT_ONCE = 1 << 30
"""Bytes of one call; the kernel itself ends each a little below 2 GiB."""


def copy_range(source: int, target: int, position: int, length: int) -> int:
    """Copy the first `length` bytes of `source` to `target` at `position`; bytes there were.

    Fewer than `length` mean that the source is shorter. Where the file system can (XFS, Btrfs),
    the two share the blocks and nothing is copied; elsewhere the kernel copies.
    """
    copied = 0
    with stage(Stage.WRITE):
        while copied < length:
            count = _copy_some(source, target, copied, position + copied, length - copied)
            if count == 0:
                break
            copied += count
    return copied


def _copy_some(source: int, target: int, start: int, position: int, length: int) -> int:
    count = min(length, MOST_AT_ONCE)
    try:
        return os.copy_file_range(source, target, count, start, position)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
    os.lseek(target, position, os.SEEK_SET)
    return os.sendfile(target, source, start, count)

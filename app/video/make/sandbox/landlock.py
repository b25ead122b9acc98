"""Landlock: restricts the files that this process, and programs it executes, may open.

Linux 5.13 or newer. Structures and numbers are those of linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

from app.video.make.sandbox.system_calls import syscall

EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_FOLDER = 1 << 3
REMOVE_FILE = 1 << 5
MAKE_FILE = 1 << 8
TRUNCATE = 1 << 14
DEVICE_CONTROL = 1 << 15

READ = READ_FILE | READ_FOLDER
WRITE = READ | WRITE_FILE | MAKE_FILE | REMOVE_FILE | TRUNCATE
"""Regular files only. Folders, links, pipes and devices cannot be created: a reader of the result
follows no link planted by a hostile file."""

_OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | DEVICE_CONTROL

_FILE_RIGHTS = ((1, 0x1FFF), (2, 0x3FFF), (3, 0x7FFF), (5, 0xFFFF))
"""Rights by ABI version. Rights that a ruleset does not handle are not restricted."""

_BIND_AND_CONNECT_TCP = 0b11  # From ABI 4 on.
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11  # From ABI 6 on: only within the sandbox.

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # On every architecture.
_ASK_VERSION = 1
_PATH_BENEATH = 1

Rule = tuple[str, int]
"""A file, or a folder with everything below it, and the rights there."""


def abi_version() -> int:
    """The Landlock ABI version; 0 if the kernel has no Landlock, or a container forbids it."""
    try:
        return syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)
    except OSError:
        return 0


def restrict_self(rules: Iterable[Rule], *, version: int) -> None:
    """Restrict this process to what `rules` allow. Needs "no new privileges".

    `version` is at most `abi_version()`. Raises `OSError`, also for a path that does not exist.
    """
    handled = max(rights for since, rights in _FILE_RIGHTS if since <= version)
    attributes = struct.pack("=Q", handled)
    if version >= 4:
        attributes += struct.pack("=Q", _BIND_AND_CONNECT_TCP)
    if version >= 6:
        attributes += struct.pack("=Q", _ABSTRACT_SOCKETS_AND_SIGNALS)
    ruleset = syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    try:
        for path, rights in rules:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
                possible = handled if is_folder else handled & _OF_A_FILE
                rule = struct.pack("=Qi", rights & possible, descriptor)
                syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
            finally:
                os.close(descriptor)
        syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)

"""seccomp: restricts the system calls of this process and of programs it executes.

A deny list, not an allow list: that would have to follow each release of ffmpeg's libraries and of
the C library. Calls newer than the list fail with ENOSYS, and libraries fall back to older ones.
Numbers are from the kernel's unistd.h; a test compares them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator

from app.video.make.sandbox.system_calls import syscall

DENIED = """
sockets: socket 41 198, socketpair 53 199
io_uring: io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427
processes: fork 57 -, vfork 58 -, execveat 322 281, setns 308 268, unshare 272 97
processes: personality 135 92
processes: ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272
processes: process_madvise 440 440, process_mrelease 448 448, pidfd_open 434 434
processes: pidfd_getfd 438 438, pidfd_send_signal 424 424
signals: kill 62 129, tkill 200 130, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240
scheduling: setpriority 141 140, ioprio_set 251 30, sched_setaffinity 203 122
scheduling: sched_setscheduler 144 119, sched_setparam 142 118, sched_setattr 314 274
scheduling: migrate_pages 256 238, move_pages 279 239
shared: shmget 29 194, shmat 30 196, semget 64 190, msgget 68 186, mq_open 240 180
shared: mq_unlink 241 181
keys: keyctl 250 219, add_key 248 217, request_key 249 218
mounts: mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, open_tree 428 428
mounts: move_mount 429 429, fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433
mounts: mount_setattr 442 442, swapon 167 224, swapoff 168 225, acct 163 89, quotactl 179 60
mounts: quotactl_fd 443 443, fanotify_init 300 262, fanotify_mark 301 263
kernel: bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, memfd_secret 447 447
kernel: kexec_load 246 104, kexec_file_load 320 294, init_module 175 105, finit_module 313 273
kernel: delete_module 176 106, reboot 169 142, syslog 103 116, iopl 172 -, ioperm 173 -
kernel: modify_ldt 154 -, vhangup 153 58, sethostname 170 161, setdomainname 171 162
kernel: settimeofday 164 170, clock_settime 227 112, clock_adjtime 305 266, adjtimex 159 171
files: link 86 -, linkat 265 37, symlink 88 -, symlinkat 266 36, mknod 133 -, mknodat 259 33
files: name_to_handle_at 303 264, open_by_handle_at 304 265, truncate 76 45
files: chmod 90 -, fchmod 91 52, fchmodat 268 53, chown 92 -, lchown 94 -, fchown 93 55
files: fchownat 260 54, utime 132 -, utimes 235 -, futimesat 261 -, utimensat 280 88
files: setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7
files: removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16
"""
"""Name, number on x86_64, number on aarch64. "files" are calls that Landlock does not restrict."""

WITHOUT_FLAGS_TO_SEE = "clone3 435 435, openat2 437 437"
"""Their flags are in memory, which a filter cannot read. Libraries fall back to the older calls."""

FILTERED = (
    "clone 56 220, tgkill 234 131, prlimit64 302 261, open 2 -, openat 257 56, "
    "fcntl 72 25, ioctl 16 29"
)
"""Allowed only with certain arguments."""

NEWEST_CALL = 450
"""In Linux 6.1. Above it are newer calls, and calls of the x32 ABI from 2**30 on."""

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column in the tables, and `AUDIT_ARCH_*` of linux/audit.h."""

_CLONE_THREAD = 0x00010000
_CLONE_NAMESPACES = 0x7E020000

_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15  # asm-generic/fcntl.h
_FIOSETOWN, _SIOCSPGRP, _FIOASYNC = 0x8901, 0x8902, 0x5452  # asm-generic/sockios.h, ioctls.h
_FCNTL_SIGNALS = [_F_SETOWN, _F_SETSIG, _F_SETOWN_EX]
_IOCTL_SIGNALS = [_FIOSETOWN, _SIOCSPGRP, _FIOASYNC]
"""The kernel sends the signal of a descriptor to its owner, which may be any process of the user.
If these were allowed, a write to a pipe could kill the server."""

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06  # linux/bpf_common.h
_IF_EQUAL, _IF_GREATER = 0x15, 0x25
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16  # Offsets in `struct seccomp_data`; both little-endian.

_ALLOW = 0x7FFF0000
_KILL_PROCESS = 0x80000000
_DENY = 0x00050000 | errno.EPERM
_DOES_NOT_EXIST = 0x00050000 | errno.ENOSYS

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER, _GET_ACTION_AVAILABLE = 1, 2
_KEEP_SPECULATION = 1 << 2
"""Without this flag, older kernels disable speculation in the program, which slows it down."""

Instruction = tuple[int, int, int, int]
"""Operation, instructions to skip if true and if false, operand."""


def is_available() -> bool:
    """Whether the call numbers of this machine are known, and its kernel supports filters."""
    machine = os.uname().machine
    if machine not in _MACHINES or struct.calcsize("P") != 8:
        return False
    action = struct.pack("=I", _KILL_PROCESS)
    try:
        syscall(_SECCOMP[machine], _GET_ACTION_AVAILABLE, 0, action)
    except OSError:
        return False
    return True


def restrict_self() -> None:
    """Install the filter in this process. Needs "no new privileges"; raises `OSError`."""
    machine = os.uname().machine
    code = b"".join(struct.pack("=HBBI", *step) for step in program(machine, os.getpid()))
    buffer = ctypes.create_string_buffer(code, len(code))
    argument = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    syscall(_SECCOMP[machine], _SET_FILTER, _KEEP_SPECULATION, argument)


def program(machine: str, process: int) -> list[Instruction]:
    """The filter program for a process with this id."""
    column, audit_machine = _MACHINES[machine]
    steps: list[Instruction] = [
        (_LOAD, 0, 0, _MACHINE),
        (_IF_EQUAL, 1, 0, audit_machine),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
        *_if(_IF_GREATER, NEWEST_CALL, [(_RETURN, 0, 0, _DOES_NOT_EXIST)]),
    ]
    truncates = os.O_ACCMODE | os.O_TRUNC  # Read-only, but truncates: Landlock needs no right.
    checks = {
        "clone": _masked(0, _CLONE_THREAD | _CLONE_NAMESPACES, [_CLONE_THREAD], _ALLOW, _DENY),
        "tgkill": _masked(0, 0xFFFFFFFF, [process], _ALLOW, _DENY),
        "prlimit64": _masked(0, 0xFFFFFFFF, [0, process], _ALLOW, _DENY),
        "open": _masked(1, truncates, [os.O_RDONLY | os.O_TRUNC], _DENY, _ALLOW),
        "openat": _masked(2, truncates, [os.O_RDONLY | os.O_TRUNC], _DENY, _ALLOW),
        "fcntl": _masked(1, 0xFFFFFFFF, _FCNTL_SIGNALS, _DENY, _ALLOW),
        "ioctl": _masked(1, 0xFFFFFFFF, _IOCTL_SIGNALS, _DENY, _ALLOW),
    }
    for name, number in numbers(FILTERED, column):
        steps += _if(_IF_EQUAL, number, checks[name])
    for _, number in numbers(WITHOUT_FLAGS_TO_SEE, column):
        steps += _if(_IF_EQUAL, number, [(_RETURN, 0, 0, _DOES_NOT_EXIST)])
    for line in DENIED.strip().splitlines():
        for _, number in numbers(line.partition(": ")[2], column):
            steps += _if(_IF_EQUAL, number, [(_RETURN, 0, 0, _DENY)])
    return [*steps, (_RETURN, 0, 0, _ALLOW)]


def numbers(table: str, column: int) -> Iterator[tuple[str, int]]:
    """The calls in a table that exist on a machine."""
    for entry in table.split(", "):
        name, *found = entry.split()
        if found[column] != "-":
            yield name, int(found[column])


def _masked(
    argument: int, mask: int, values: list[int], then: int, otherwise: int
) -> list[Instruction]:
    """Return `then` if an argument, masked with `mask`, is one of `values`, else `otherwise`."""
    steps: list[Instruction] = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), (_AND, 0, 0, mask)]
    for value in values:
        steps += _if(_IF_EQUAL, value, [(_RETURN, 0, 0, then)])
    return [*steps, (_RETURN, 0, 0, otherwise)]


def _if(comparison: int, value: int, steps: list[Instruction]) -> list[Instruction]:
    return [(comparison, 0, len(steps), value), *steps]

"""The seccomp filter has the kernel's numbers, and decides the same on every processor."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import termios

import pytest

from app.video.make.sandbox import seccomp

ALLOWED, DENIED, UNKNOWN, KILLED = 0x7FFF0000, 0x50001, 0x50026, 0x80000000
PROCESS = 4711
CLONE_THREAD, CLONE_NEWUSER = 0x10000, 0x10000000
F_SETOWN_EX, FIOSETOWN, SIOCSPGRP = 15, 0x8901, 0x8902
HIGH_BITS = 1 << 32

DECIDED_BY_ARGUMENTS: list[tuple[str, list[int], int]] = [
    ("clone", [CLONE_THREAD | signal.SIGCHLD], ALLOWED),
    ("clone", [signal.SIGCHLD], DENIED),
    ("clone", [CLONE_THREAD | CLONE_NEWUSER], DENIED),
    ("tgkill", [PROCESS], ALLOWED),
    ("tgkill", [PROCESS + 1], DENIED),
    ("prlimit64", [0], ALLOWED),
    ("prlimit64", [PROCESS], ALLOWED),
    ("prlimit64", [1], DENIED),
    ("openat", [0, 0, os.O_RDONLY], ALLOWED),
    ("openat", [0, 0, os.O_WRONLY | os.O_CREAT | os.O_TRUNC], ALLOWED),
    ("openat", [0, 0, os.O_RDONLY | os.O_TRUNC], DENIED),
    ("fcntl", [3, fcntl.F_SETFL, os.O_NONBLOCK], ALLOWED),
    ("fcntl", [3, fcntl.F_DUPFD_CLOEXEC, 8], ALLOWED),
    ("fcntl", [3, fcntl.F_SETOWN, 1], DENIED),
    ("fcntl", [3, fcntl.F_SETOWN | HIGH_BITS, 1], DENIED),  # The kernel ignores them.
    ("fcntl", [3, fcntl.F_SETSIG, signal.SIGKILL], DENIED),
    ("fcntl", [3, F_SETOWN_EX, 0], DENIED),
    ("ioctl", [3, termios.FIONREAD], ALLOWED),
    ("ioctl", [3, FIOSETOWN], DENIED),
    ("ioctl", [3, SIOCSPGRP], DENIED),
    ("ioctl", [3, termios.FIOASYNC], DENIED),
]


def verdict(machine: str, name: str, *arguments: int, audit: int | None = None) -> int:
    """What the filter of a machine answers, carried out by an interpreter of its instructions."""
    column, ours = seccomp._MACHINES[machine]
    number = int(name) if name.isdigit() else table(column)[name]
    padded = (*arguments, *[0] * (6 - len(arguments)))
    call = struct.pack("<IIQ6Q", number, ours if audit is None else audit, 0, *padded)
    steps = seccomp.program(machine, PROCESS)
    at = accumulator = 0
    while True:
        operation, if_true, if_false, operand = steps[at]
        at += 1
        match operation:
            case seccomp._LOAD:
                (accumulator,) = struct.unpack_from("<I", call, operand)
            case seccomp._AND:
                accumulator &= operand
            case seccomp._IF_EQUAL:
                at += if_true if accumulator == operand else if_false
            case seccomp._IF_GREATER:
                at += if_true if accumulator > operand else if_false
            case seccomp._RETURN:
                return operand


def table(column: int) -> dict[str, int]:
    """All the calls that the filter names."""
    tables = [line.partition(": ")[2] for line in seccomp.DENIED.strip().splitlines()]
    tables += [seccomp.FILTERED, seccomp.WITHOUT_FLAGS_TO_SEE]
    return {name: number for text in tables for name, number in seccomp.numbers(text, column)}


@pytest.mark.parametrize("machine", seccomp._MACHINES)
def test_the_filter_decides_the_same_on_every_machine(machine: str) -> None:
    column, _ = seccomp._MACHINES[machine]
    for line in seccomp.DENIED.strip().splitlines():
        for name, _ in seccomp.numbers(line.partition(": ")[2], column):
            assert verdict(machine, name) == DENIED, name
    for name in ("clone3", "openat2", "451", str(2**30 + 1)):
        assert verdict(machine, name) == UNKNOWN, name
    for name, arguments, expected in DECIDED_BY_ARGUMENTS:
        assert verdict(machine, name, *arguments) == expected, (name, arguments)
    read = "63" if machine == "aarch64" else "0"
    assert verdict(machine, read) == ALLOWED
    assert verdict(machine, "0", audit=0x40000003) == KILLED  # A call of the i386 ABI.


def test_numbers_are_those_of_the_kernel() -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs cc")
    headers = {os.uname().machine: "asm/unistd.h", "aarch64": "asm-generic/unistd.h"}
    for machine, header in headers.items():
        column, _ = seccomp._MACHINES[machine]
        defined = definitions(compiler, header)
        tables = [line.partition(": ")[2] for line in seccomp.DENIED.strip().splitlines()]
        for table in (*tables, seccomp.FILTERED, seccomp.WITHOUT_FLAGS_TO_SEE):
            ours = dict(seccomp.numbers(table, column))
            assert ours == {name: defined[name] for name in ours}
            assert (
                not {entry.split()[0] for entry in table.split(", ")} - ours.keys() & defined.keys()
            )


def definitions(compiler: str, header: str) -> dict[str, int]:
    """The numbers that a header of the kernel defines."""
    wanted = "#define __ARCH_WANT_SYS_CLONE3\n#define __ARCH_WANT_MEMFD_SECRET\n"
    source = f"{wanted}#include <{header}>\n"
    result = subprocess.run(
        [compiler, "-E", "-dM", "-"], input=source, capture_output=True, text=True, check=True
    )
    words = [line.split() for line in result.stdout.splitlines()]
    values = {word[1]: word[2] for word in words if len(word) == 3}
    names = {name: values.get(value, value) for name, value in values.items()}
    return {
        name.removeprefix("__NR3264_").removeprefix("__NR_"): int(value)
        for name, value in names.items()
        if name.startswith(("__NR_", "__NR3264_")) and value.isdigit()
    }

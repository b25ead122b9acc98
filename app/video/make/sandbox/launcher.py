"""Runs between the server and a confined program: confines itself, then executes the program.

WORD=VALUE... -- PROGRAM ARGUMENT...

A separate process, because nothing may run between fork and exec in a process with threads. It
starts in 15 ms: it imports little, and its arguments are plain words.
"""

from __future__ import annotations

import os
import resource
import signal
import struct
import sys

from app.video.make.sandbox import landlock, seccomp
from app.video.make.sandbox.system_calls import prctl, syscall

REPORT_DESCRIPTOR = 3
"""A pipe to the server besides the output: ffmpeg reports its progress there."""

NOT_CONFINED_STATUS = 126
"""Exit status if the process could not be confined, or the program could not be started."""

OPEN_FILES = 128
MORE_THREADS = 512
"""Threads that the program may start, if the user's other processes start none at the same time."""

RESERVED_BYTES = 2 * 1024**3
"""Address space on top of the memory limit: for libraries, and for unused reservations."""

LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
LOADERS = (
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
)
RANDOM_NUMBERS, NOTHING = "/dev/urandom", "/dev/null"

_SET_DEATH_SIGNAL, _DROP_BOUNDING, _SET_NO_NEW_PRIVILEGES = 1, 24, 38  # linux/prctl.h
_CAPABILITIES = 64
_CAPABILITY_VERSION = 0x20080522  # linux/capability.h, version 3
_CAPSET = {"x86_64": 126, "aarch64": 91}


class Plan:
    """The parsed arguments; sizes in bytes, times in whole seconds."""

    def __init__(self, words: list[str]) -> None:
        """Parse the arguments; they come from the server, so an invalid one is a bug."""
        self.readable: list[str] = []
        self.layers: list[str] = []
        self.writable = ""
        self.numbers: dict[str, int] = {}
        end = words.index("--")
        self.command = words[end + 1 :]
        for word in words[:end]:
            name, _, value = word.partition("=")
            if name == "read":
                self.readable.append(value)
            elif name == "layer":
                self.layers.append(value)
            elif name == "write":
                self.writable = value
            else:
                self.numbers[name] = int(value)


def main() -> None:
    """Execute the program; on failure exit with `NOT_CONFINED_STATUS` and a line on stderr."""
    plan = Plan(sys.argv[1:])
    try:
        report = plan.numbers["report"]
        if report != REPORT_DESCRIPTOR:
            os.dup2(report, REPORT_DESCRIPTOR)
            os.close(report)
        end_with_parent(plan.numbers["parent"])
        confine(plan)
        os.execve(plan.command[0], plan.command, {})  # noqa: S606 - no shell is wanted
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        sys.stderr.write(f"{error.strerror}{where}\n")
    sys.exit(NOT_CONFINED_STATUS)


def end_with_parent(parent: int) -> None:
    """Make the kernel kill this process when the thread that started it ends."""
    prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def confine(plan: Plan) -> None:
    """Permanently drop everything that the program does not need. The order matters."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores both, and so would the program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    _drop_capabilities()
    prctl(_SET_NO_NEW_PRIVILEGES, 1)
    version = landlock.abi_version()
    if "landlock" in plan.layers and version:
        landlock.restrict_self(rules(plan), version=version)
    limit(plan.numbers)
    if "seccomp" in plan.layers and seccomp.is_available():
        seccomp.restrict_self()


def rules(plan: Plan) -> list[landlock.Rule]:
    """Landlock rules for the files that the program may open."""
    program = plan.command[0]
    beside = os.path.dirname(os.path.dirname(program))  # /opt/ffmpeg of /opt/ffmpeg/bin/ffmpeg
    libraries = [*LIBRARIES, f"{beside}/lib", RANDOM_NUMBERS]
    found: list[landlock.Rule] = [(program, landlock.READ | landlock.EXECUTE)]
    found += [(path, landlock.READ) for path in libraries if os.path.exists(path)]
    found += [(path, landlock.READ | landlock.EXECUTE) for path in LOADERS if os.path.exists(path)]
    found.append((NOTHING, landlock.READ | landlock.WRITE_FILE))
    found += [(path, landlock.READ) for path in plan.readable]
    if plan.writable:
        found.append((plan.writable, landlock.WRITE))
    return found


def limit(numbers: dict[str, int]) -> None:
    """Set resource limits; keeps existing lower limits."""
    memory = numbers["memory"]
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, numbers["cpu"]),  # Soft and hard alike: ffmpeg catches SIGXCPU.
        (resource.RLIMIT_FSIZE, numbers["output"]),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_NPROC, _threads_of_machine() + MORE_THREADS),
        (resource.RLIMIT_DATA, memory),
        (resource.RLIMIT_AS, memory + RESERVED_BYTES),
    ):
        _, hard = resource.getrlimit(kind)
        lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (lowest, lowest))


def _threads_of_machine() -> int:
    """All threads of all users: RLIMIT_NPROC counts all threads of our user, in any program."""
    try:
        with open("/proc/loadavg") as file:
            return int(file.read(100).split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 32768


def _drop_capabilities() -> None:
    """Drop the capabilities of root."""
    if os.geteuid() != 0:
        return
    try:
        for capability in range(_CAPABILITIES):
            prctl(_DROP_BOUNDING, capability)
    except OSError:
        pass  # The first number that this kernel does not support.
    number = _CAPSET.get(os.uname().machine)
    if number is not None:
        syscall(number, struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24))

"""A program in the sandbox tries, for real, what a hostile file could make ffmpeg do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.video.make.sandbox import landlock, seccomp
from app.video.make.sandbox.process import ROOT, missing_layers
from tests.video.confined import LANDLOCK, LIMITS, SECCOMP, Target, silent_run

# ---- what each layer stops by itself -------------------------------------------------------------

STOPPED_BY_LANDLOCK = {
    "read a file of the system": ('return open("/etc/passwd").read()', "EACCES"),
    "read another user's film": ('return open(OUTSIDE + "/secret").read()', "EACCES"),
    "list a folder": ("return os.listdir(OUTSIDE)", "EACCES"),
    "write outside": ('open(OUTSIDE + "/new", "w")', "EACCES"),
    "delete another user's film": ('os.remove(OUTSIDE + "/secret")', "EACCES"),
    "overwrite the film": ('open(INPUT, "r+b")', "EACCES"),
    "make a folder": ('os.mkdir("folder")', "EACCES"),
    "make a pipe": ('os.mkfifo("pipe")', "EACCES"),
    "plant a link": ('os.symlink("/etc/passwd", "link")', "EACCES"),
    "start a shell": ('os.execv("/bin/sh", ["sh", "-c", "echo"])', "EACCES"),
    "read the server's memory": ('open(f"/proc/{PARENT}/mem", "rb")', "EACCES"),
    "connect": ('socket.create_connection(("127.0.0.1", PORT))', "EACCES"),
}

STOPPED_BY_SECCOMP = {
    "connect": ('socket.create_connection(("127.0.0.1", PORT))', "EPERM"),
    "send a packet": ("socket.socket(socket.AF_INET, socket.SOCK_DGRAM)", "EPERM"),
    "reach a service of the machine": ("socket.socket(socket.AF_UNIX)", "EPERM"),
    "fork": ("if os.fork() == 0: os._exit(0)", "EPERM"),
    "signal the server": ("os.kill(PARENT, 0)", "EPERM"),
    "stop a thread of the server": ("call(234 if IS_X86 else 131, PARENT, PARENT, 0)", "EPERM"),
    "limit the server": (
        "import resource; resource.prlimit(PARENT, resource.RLIMIT_NOFILE)",
        "EPERM",
    ),
    "trace the server": ("call('ptrace', 16, PARENT, None, None)", "EPERM"),
    "read the server's memory": (
        "call('process_vm_readv', PARENT, None, 0, None, 0, 0)",
        "EPERM",
    ),
    "mount": ("call('mount', b'none', b'/tmp', b'tmpfs', 0, None)", "EPERM"),
    "make a user namespace": ("call('unshare', 0x10000000)", "EPERM"),
    "load a BPF program": ("call(321 if IS_X86 else 280, 0, None, 0)", "EPERM"),
    "set up io_uring": ("call(425, 1, None)", "EPERM"),
    "read keys": ("call(250 if IS_X86 else 219, 0, -3, 0)", "EPERM"),
    "make shared memory": ("call('shmget', 1, 4096, 0o1666)", "EPERM"),
    "change the film's mode": ("os.chmod(INPUT, 0o777)", "EPERM"),
    "change the film's times": ("os.utime(INPUT, (0, 0))", "EPERM"),
    "truncate the film": ("os.truncate(INPUT, 0)", "EPERM"),
    "open the film for reading, emptied": ("os.open(INPUT, os.O_RDONLY | os.O_TRUNC)", "EPERM"),
    "plant a link": ('os.symlink("/etc/passwd", "link")', "EPERM"),
    "use a system call of the future": ("call(600)", "ENOSYS"),
}


@pytest.mark.parametrize("name", STOPPED_BY_LANDLOCK)
def test_landlock_alone_does_not_let_it(name: str, target: Target) -> None:
    body, error = STOPPED_BY_LANDLOCK[name]
    assert target.attempt(body, layers=LANDLOCK) == error
    assert not target.was_connected_to()


@pytest.mark.parametrize("name", STOPPED_BY_SECCOMP)
def test_seccomp_alone_does_not_let_it(name: str, target: Target) -> None:
    body, error = STOPPED_BY_SECCOMP[name]
    is_x86 = os.uname().machine == "x86_64"
    assert target.attempt(body.replace("IS_X86", str(is_x86)), layers=SECCOMP) == error
    assert target.input.read_bytes() == b"a film"
    assert not target.was_connected_to()


def test_without_layers_the_same_attempts_succeed(target: Target) -> None:
    none: frozenset[str] = frozenset()
    read, _ = STOPPED_BY_LANDLOCK["read another user's film"]
    assert target.attempt(read, layers=none) == "secret"
    target.attempt(STOPPED_BY_SECCOMP["connect"][0], layers=none)
    assert target.was_connected_to()


SIGNAL_OF_A_PIPE = """import fcntl
reader, writer = os.pipe()
refused = []
for command, value in (SET_OWNER), (fcntl.F_SETSIG, signal.SIGKILL), (fcntl.F_SETFL, os.O_ASYNC):
    try:
        fcntl.fcntl(reader, command, value)
    except OSError as error:
        refused.append(errno.errorcode[error.errno])
os.write(writer, b"x")
return refused"""

SET_OWNER = {
    "F_SETOWN": "fcntl.F_SETOWN, VICTIM",
    "F_SETOWN_EX": "15, (1).to_bytes(4, sys.byteorder) + (VICTIM).to_bytes(4, sys.byteorder)",
}


@pytest.mark.parametrize("way", SET_OWNER)
def test_a_pipe_cannot_be_made_to_kill_another_process(way: str, target: Target) -> None:
    with subprocess.Popen(["sleep", "600"]) as victim:
        owner = SET_OWNER[way].replace("VICTIM", str(victim.pid))
        body = SIGNAL_OF_A_PIPE.replace("SET_OWNER", owner)
        try:
            assert target.attempt(body, layers=SECCOMP) == ["EPERM", "EPERM"]
            assert victim.poll() is None
            assert target.attempt(body, layers=frozenset()) == []  # The attack is a real one.
            assert victim.wait(timeout=30) == -signal.SIGKILL
        finally:
            victim.kill()


def test_it_reads_its_input_writes_its_folder_and_starts_threads(target: Target) -> None:
    body = """with open("made", "wb") as made:
    thread = threading.Thread(target=lambda: made.write(open(INPUT, "rb").read()))
    thread.start(); thread.join()
os.rename("made", "kept")
return [os.getcwd(), dict(os.environ).get("HOME"), sys.stdin.read()]"""
    assert target.attempt(body) == [str(target.work), None, ""]
    assert (target.work / "kept").read_bytes() == b"a film"


def test_it_has_no_privileges_no_core_file_and_none_of_our_descriptors(target: Target) -> None:
    body = """status = dict(line.split(":", 1) for line in open("/proc/self/status"))
wanted = ("CapEff", "CapPrm", "CapBnd") if os.getuid() == 0 else ("CapEff", "CapPrm")
import resource
return [{int(status[name], 16) for name in wanted} == {0}, int(status["NoNewPrivs"]),
    int(status["SigBlk"], 16), resource.getrlimit(resource.RLIMIT_CORE)[1],
    sorted(map(int, os.listdir("/proc/self/fd"))), os.getpgid(0) == os.getpid()]"""
    with open("/dev/null", "rb") as ours:
        os.set_inheritable(ours.fileno(), True)
        found = target.attempt(body, layers=SECCOMP)
    # Three standard streams, the report, and the one that lists them.
    assert found == [True, 1, 0, 0, [0, 1, 2, 3, 4], True]


# ---- limits --------------------------------------------------------------------------------------


def test_memory_is_limited(target: Target) -> None:
    body = "return len(bytearray(300 * 1024**2))"
    assert target.attempt(body) == 300 * 1024**2
    limits = replace(LIMITS, memory_bytes=100 * 1024**2)
    assert target.attempt(body, limits=limits) == "memory"


def test_a_file_that_grows_too_large_ends_it(target: Target) -> None:
    body = 'open("large", "wb").write(bytes(2 * 1024**2))'
    assert target.attempt(body) == "EFBIG"  # Python ignores the signal, which ends ffmpeg.
    assert (target.work / "large").stat().st_size <= LIMITS.output_bytes


def test_cpu_time_ends_it(target: Target) -> None:
    command = target.command("while True: pass", limits=replace(LIMITS, cpu_seconds=1))
    ended = silent_run(command)
    assert ended.status == -signal.SIGKILL
    assert ended.cpu_seconds >= 0.5


def test_threads_are_limited_by_memory(target: Target) -> None:
    body = """started = 0
try:
    while started < 5000:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        started += 1
except RuntimeError:
    pass
print(json.dumps(["done", started]), flush=True)
os._exit(0)"""
    assert 10 < target.attempt(body) < 5000


# ---- kernels and containers that lack a layer ----------------------------------------------------

FORBID = """
import os, struct, sys
from app.video.make.sandbox.system_calls import prctl, syscall
import ctypes
forbidden, folder = int(sys.argv[1]), sys.argv[2]
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, forbidden), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
code = b"".join(struct.pack("=HBBI", *step) for step in steps)
buffer = ctypes.create_string_buffer(code, len(code))
prctl(38, 1)
syscall(FILTER, 1, 0, struct.pack("@HP", len(steps), ctypes.addressof(buffer)))
import json
from pathlib import Path
from app.video.make.sandbox.process import missing_layers
from tests.video.confined import Target
target = Target(Path(folder))
read = target.attempt("return open(OUTSIDE + '/secret').read()")
connect = target.attempt("socket.create_connection(('127.0.0.1', PORT))")
print(json.dumps([missing_layers(), read, connect]))
"""


def in_a_container_that_forbids(number: int, folder: Path) -> Any:
    """Which layers are missing, and what the two attempts give."""
    code = FORBID.replace("FILTER", str(seccomp._SECCOMP[os.uname().machine]))
    result = subprocess.run(
        [sys.executable, "-c", code, str(number), folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


OLDER_KERNEL = """
import sys
from app.video.make.sandbox import landlock
from app.video.make.sandbox.system_calls import prctl
version, folder, secret = int(sys.argv[1]), sys.argv[2], sys.argv[3]
prctl(38, 1)
landlock.restrict_self([(folder, landlock.WRITE)], version=version)
open(f"{folder}/made{version}", "w").close()
try:
    open(secret)
except PermissionError:
    print("refused")
"""


def test_landlock_works_with_every_version_of_it(target: Target) -> None:
    for version in range(1, landlock.abi_version() + 1):
        words = [str(version), str(target.work), str(target.outside / "secret")]
        command = [sys.executable, "-c", OLDER_KERNEL, *words]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (result.stdout, result.stderr) == ("refused\n", "")
        assert (target.work / f"made{version}").exists()


def test_nothing_is_missing_here() -> None:
    assert missing_layers() == []
    assert landlock.abi_version() >= 1


def test_without_landlock_it_is_said_and_seccomp_still_holds(tmp_path: Path) -> None:
    (missing,), read, connect = in_a_container_that_forbids(444, tmp_path)
    assert missing.startswith("Landlock is not available")
    assert (read, connect) == ("secret", "EPERM")


def test_without_seccomp_it_is_said_and_landlock_still_holds(tmp_path: Path) -> None:
    number = seccomp._SECCOMP[os.uname().machine]
    (missing,), read, connect = in_a_container_that_forbids(number, tmp_path)
    assert missing.startswith("seccomp filters are not available")
    assert (read, connect) == ("EACCES", "EACCES")


def test_a_layer_that_fails_although_it_seemed_available_stops_the_start(tmp_path: Path) -> None:
    code = FORBID.replace("FILTER", str(seccomp._SECCOMP[os.uname().machine]))
    result = subprocess.run(
        [sys.executable, "-c", code, "446", tmp_path],  # landlock_restrict_self
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Operation not permitted" in result.stderr

"""Starts a confined program, reads its output, and makes sure that it ends."""

from __future__ import annotations

import math
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.video.make.sandbox import landlock, seccomp

Sink = Callable[[bytes], object]

LAYERS = frozenset({"landlock", "seccomp"})

ERROR_BYTES = 256 * 1024
"""The end of stderr is kept: the last lines are the reason of a failure. ffmpeg describes a file
there, with all its metadata, such as lyrics."""

POLL_SECONDS = 0.05
"""How often the deadline and the stop event are checked."""

BLOCK_BYTES = 64 * 1024

ROOT = Path(__file__).resolve().parents[4]
LAUNCH = "import sys; sys.path.append(sys.argv.pop(1)); " + (
    "from app.video.make.sandbox.launcher import main; main()"
)


class TimedOut(Exception):
    """The program exceeded its time limit, and was killed."""


class Stopped(Exception):
    """The program was killed because the caller's event was set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLimits:
    """Limits of one run: CPU and wall seconds, bytes of memory, bytes of each file it writes."""

    cpu_seconds: float
    wall_seconds: float
    memory_bytes: int
    output_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program, and what it may access: files or folders to read, one folder to write."""

    program: Path
    arguments: Sequence[str]
    limits: ProgramLimits
    readable: Sequence[Path] = ()
    writable: Path | None = None
    layers: frozenset[str] = LAYERS

    def launcher(self, report: int) -> list[str]:
        """The command line of `launcher.main` for it; `report` is the descriptor of the pipe."""
        words = [
            f"report={report}",
            f"parent={os.getpid()}",
            f"cpu={math.ceil(self.limits.cpu_seconds)}",
            f"memory={self.limits.memory_bytes}",
            f"output={self.limits.output_bytes}",
            *(f"layer={layer}" for layer in sorted(self.layers)),
            *(f"read={path.absolute()}" for path in self.readable),
        ]
        if self.writable is not None:
            words.append(f"write={self.writable.absolute()}")
        start = [sys.executable, "-I", "-S", "-c", LAUNCH, str(ROOT)]
        return [*start, *words, "--", str(self.program.resolve()), *self.arguments]


@dataclass(frozen=True, slots=True)
class ProgramExit:
    """The exit of a program: its status, or minus the signal number, as in `subprocess`."""

    status: int
    errors: bytes
    cpu_seconds: float


def missing_layers() -> list[str]:
    """Descriptions of the layers that this kernel or container does not support."""
    missing = []
    if not landlock.abi_version():
        missing.append(
            "Landlock is not available (Linux 5.13 or newer has it, some containers forbid it): "
            "ffmpeg can open the same files as the server"
        )
    if not seccomp.is_available():
        missing.append(
            "seccomp filters are not available for this kernel or processor: ffmpeg can open "
            "network connections"
        )
    return missing


def run(
    command: Command,
    *,
    on_output: Sink,
    on_report: Sink,
    stop: threading.Event | None = None,
) -> ProgramExit:
    """Run a program to its end; its stdin is empty, and blocks of its output go to the sinks.

    `on_report` gets the output on descriptor 3, and an empty block at least every 0.05 s. An
    exception in a sink ends the program and propagates. Raises `TimedOut` and `Stopped`, and
    `OSError` if the program cannot be started. No process is ever left running.
    """
    errors = bytearray()

    def keep_end(block: bytes) -> None:
        errors.extend(block)
        del errors[:-ERROR_BYTES]

    deadline = time.monotonic() + command.limits.wall_seconds
    with _Process(command) as process:
        for block, sink in process.blocks(on_output, keep_end, on_report):
            sink(block)
            if stop is not None and stop.is_set():
                raise Stopped
            if time.monotonic() >= deadline:
                raise TimedOut
        status, cpu_seconds = process.end()
    return ProgramExit(status, bytes(errors), cpu_seconds)


class _Process:
    """A started program; leaving the block kills its remaining processes."""

    def __init__(self, command: Command) -> None:
        descriptor, report = os.pipe()
        self._report = os.fdopen(descriptor, "rb", buffering=0)
        try:
            self._process = subprocess.Popen(
                command.launcher(report),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[report],
                start_new_session=True,  # A process group of its own, and no terminal.
                cwd=command.writable or "/",
                env={},
            )
        except BaseException:
            self._report.close()
            raise
        finally:
            os.close(report)
        streams = (self._process.stdout, self._process.stderr, self._report)
        self._streams = [stream for stream in streams if stream is not None]

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        for stream in self._streams:
            stream.close()

    def blocks(self, output: Sink, errors: Sink, report: Sink) -> Iterator[tuple[bytes, Sink]]:
        """Yields blocks of output with their sinks until the end; regularly an empty report."""
        with selectors.DefaultSelector() as selector:
            for stream, sink in zip(self._streams, (output, errors, report), strict=True):
                selector.register(stream, selectors.EVENT_READ, sink)
            while selector.get_map():
                for key, _ in selector.select(POLL_SECONDS):
                    block = os.read(key.fd, BLOCK_BYTES)
                    if block:
                        yield block, key.data
                    else:
                        selector.unregister(key.fileobj)
                yield b"", report
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        # It has closed its descriptors, and may still run.
        while os.waitid(os.P_PID, self._process.pid, flags) is None:
            time.sleep(POLL_SECONDS)
            yield b"", report

    def end(self) -> tuple[int, float]:
        """Kill what still runs; returns the exit status and the CPU seconds."""
        if self._process.returncode is not None:
            return self._process.returncode, 0.0
        with suppress(ProcessLookupError, PermissionError):
            # Not reaped yet, so the process id is not reused.
            os.killpg(self._process.pid, signal.SIGKILL)
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return self._process.returncode, usage.ru_utime + usage.ru_stime

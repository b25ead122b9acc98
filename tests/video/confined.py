"""A program in the sandbox that tries what a hostile file could make ffmpeg do."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.video.make.sandbox.process import Command, ProgramExit, ProgramLimits, run

LIMITS = ProgramLimits(
    cpu_seconds=30, wall_seconds=60, memory_bytes=512 * 1024**2, output_bytes=1024**2
)
LANDLOCK, SECCOMP = frozenset({"landlock"}), frozenset({"seccomp"})

EXPLOIT = """
import ctypes, errno, json, os, signal, socket, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
INPUT, OUTSIDE, PORT, PARENT = "{input}", "{outside}", {port}, {parent}

def call(name, *arguments):
    result = (getattr(libc, name) if isinstance(name, str) else
              lambda *rest: libc.syscall(name, *rest))(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result

def attempt():
    {body}

try:
    print(json.dumps(["done", attempt()]))
except OSError as error:
    print(json.dumps(["failed", errno.errorcode[error.errno]]))
except MemoryError:
    print(json.dumps(["failed", "memory"]))
"""


class Target:
    """What the program may not reach, beside what it may."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        self.input = folder / "input.mp4"
        self.input.write_bytes(b"a film")
        self.outside = folder / "other users"
        self.outside.mkdir()
        (self.outside / "secret").write_bytes(b"secret")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)

    def command(self, body: str, **changes: Any) -> Command:
        """Python in the sandbox, with a function of these lines."""
        code = EXPLOIT.format(
            input=self.input,
            outside=self.outside,
            port=self.listener.getsockname()[1],
            parent=os.getpid(),
            body=body.replace("\n", "\n    "),
        )
        command = Command(
            program=Path(sys.executable),
            arguments=["-I", "-S", "-c", code],
            limits=LIMITS,
            readable=[self.input],
            writable=self.work,
        )
        return replace(command, **changes)

    def attempt(self, body: str, **changes: Any) -> Any:
        """What the function returns, or the name of the error it ends with."""
        output = bytearray()
        ended = run(
            self.command(body, **changes),
            on_output=output.extend,
            on_report=lambda _: None,
        )
        assert ended.status == 0, ended.errors.decode()
        return json.loads(output)[1]

    def was_connected_to(self) -> bool:
        """Whether the listener has a connection."""
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            return False
        return True


def silent_run(command: Command, stop: threading.Event | None = None) -> ProgramExit:
    return run(command, on_output=len, on_report=len, stop=stop)

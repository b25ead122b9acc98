"""Programs that run beside us, until we stop them."""

from __future__ import annotations

import fcntl
import os
import pwd
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

SERVER_PORTS = range(20_000, 32_000)
"""Below those of outgoing connections, so that a server that starts again finds its port free."""

START_SECONDS = 120
"""A program that does not answer by then has failed; a loaded machine takes long."""

STOP_SECONDS = 60
"""A program that still runs this long after SIGTERM is killed."""

POLL_SECONDS = 0.02

_drawn_ports = set[int]()
"""By this process, which its own locks do not stop."""


class ProgramFailed(Exception):
    """A program did not start, or has ended by itself."""


class Program:
    """A program with a log, in a session of its own: Ctrl-C in a terminal does not reach it.

    `is_ready` tells when it answers; `user` is `as_ordinary_user()` for programs that refuse root;
    `stop_signal` ends it in good order.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        is_ready: Callable[[], bool],
        *,
        environment: Mapping[str, str] | None = None,
        user: Mapping[str, Any] | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self._command = command
        self._log = log
        self._is_ready = is_ready
        self._environment = environment
        self._user = user or {}
        self._stop_signal = stop_signal
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, or start it again; return once it answers."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start it, and do not wait: several may start at once."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self._log.parent,
                start_new_session=True,
                **self._user,
            )

    def wait_until_ready(self) -> None:
        """Return once it answers."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.ended() is None:
            if self._is_ready():
                return
            time.sleep(POLL_SECONDS)
        raise ProgramFailed(f"{self} did not start; the end of {self._log}:\n{self.tail()}")

    def ended(self) -> int | None:
        """The exit status of one that has ended, negative after a signal; None while it runs."""
        return None if self._process is None else self._process.poll()

    def pause(self) -> None:
        """Stop the process and those that it started in the middle of what they do."""
        self._send_to_group(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        self._send_to_group(signal.SIGCONT)

    def stop(self, how: signal.Signals | None = None) -> None:
        """End it and wait; SIGKILL ends what it started too, as a power cut would."""
        if self._process is None:
            return
        self.begin_to_stop(how)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._send_to_group(signal.SIGKILL)
            self._process.wait()
        self._process = None

    def begin_to_stop(self, how: signal.Signals | None = None) -> None:
        """Tell it to end, and do not wait: several may stop at once."""
        if self._process is None:
            return
        if how == signal.SIGKILL:
            self._send_to_group(how)
        else:
            self._process.send_signal(how or self._stop_signal)
            self._send_to_group(signal.SIGCONT)  # One that is paused would not notice.

    def _send_to_group(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-10:])

    def __str__(self) -> str:
        return Path(self._command[0]).name


def free_port() -> int:
    """A port of this machine that no one listens on, and that no later call returns.

    Calls in other processes do not return it until this process has ended.
    """
    while True:
        port = random.choice(SERVER_PORTS)
        if port not in _drawn_ports and _lock_port(port) and not can_connect(port):
            _drawn_ports.add(port)
            return port


def _lock_port(port: int) -> bool:
    """Lock the byte of that number, in a file of this user, while this process lives."""
    try:
        fcntl.lockf(_port_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except BlockingIOError:
        return False
    return True


@cache
def _port_locks() -> int:
    path = Path(tempfile.gettempdir()) / f"sluice-ports-{os.geteuid()}"
    return os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)


def can_connect(port: int) -> bool:
    """Whether somebody listens on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def as_ordinary_user() -> dict[str, Any]:
    """Arguments of `subprocess` for programs that refuse to run as root, such as PostgreSQL."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_name, "group": nobody.pw_gid, "extra_groups": ()}

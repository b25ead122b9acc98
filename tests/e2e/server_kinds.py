"""The ways to run the application: gunicorn's workers, TLS, and Werkzeug's own server."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.fleet.programs import free_port
from tests.live_server import Server

STEP_BYTES = 1024 * 1024
"""Bytes that a server which reads the body for us delivers at once."""


@dataclass(frozen=True)
class Kind:
    """One way to run the application, and what it cannot do."""

    name: str
    arguments: str = ""
    is_tls: bool = False
    is_werkzeug: bool = False
    keeps_alive: bool = True
    serves_pipelined: bool = True
    waits_for_ever: bool = False
    takes_over: bool = True
    """Otherwise the server reads the body for us, and a reset loses the current read."""

    def __str__(self) -> str:
        return self.name


MAIN_KINDS = [
    Kind("ours"),
    Kind("tls", is_tls=True, takes_over=False),
]

OTHER_KINDS = [
    Kind("gthread", "--worker-class gthread"),
    Kind("gevent", "--worker-class gevent"),
    # With more than one thread gunicorn makes it gthread.
    Kind("sync", "--worker-class sync --threads 1", keeps_alive=False, serves_pipelined=False),
    # It looks for the next request only in the socket, not in what TLS has already read.
    Kind(
        "gthread-tls",
        "--worker-class gthread",
        is_tls=True,
        takes_over=False,
        serves_pipelined=False,
    ),
    Kind("gevent-tls", "--worker-class gevent", is_tls=True, takes_over=False),
    Kind(
        "werkzeug",
        is_werkzeug=True,
        takes_over=False,
        keeps_alive=False,
        serves_pipelined=False,
        waits_for_ever=True,
    ),
]


@contextmanager
def running(kind: Kind, folder: Path, **options: str) -> Iterator[Server]:
    """A server of that kind, with settings such as `SLUICE_GRACEFUL_SECONDS="2"`."""
    server = _werkzeug(folder) if kind.is_werkzeug else _gunicorn(kind, folder)
    server.options |= options
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _werkzeug(folder: Path) -> Server:
    port = free_port()
    return Server(folder, port=port, module=f"flask --app wsgi run --port {port}")


def _gunicorn(kind: Kind, folder: Path) -> Server:
    arguments, certificate = kind.arguments, None
    if kind.is_tls:
        certificate = make_certificate(folder)
        arguments += f" --certfile {certificate} --keyfile {folder / 'key.pem'}"
    options = {"GUNICORN_CMD_ARGS": arguments} if arguments else {}
    return Server(folder, options, certificate=certificate)


def make_certificate(folder: Path) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key beside it."""
    assert shutil.which("openssl"), "the program openssl is needed for the tests of TLS"
    certificate = folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate

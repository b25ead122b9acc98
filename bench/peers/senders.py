"""What a person runs to send a file, ours and others', and the server that each sends to.

Everything runs as it comes, with its own durability and its own checks, unless its name says more.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from bench.peers.process import BUILT, Peer, built_version, can_run
from bench.peers.tus import Tusd, find_node
from scripts.fleet.nginx import find_nginx
from scripts.fleet.s3_servers import BUCKET, TOOLS
from tests.browser.tools import BROWSERS
from tests.live_server import ROOT, Server, leave_database, leave_measurement

LOOPBACK = "127.0.0.1"

STORED_SECONDS = 10.0
"""How long after the end of a sender its server may take to put the file into its place."""

S3_KEY, S3_SECRET = "benchmark", "benchmark-secret"

COPYPARTY = BUILT / "copyparty" / "venv" / "bin" / "python"
RCLONE = BUILT / "rclone" / "rclone"
UPPY = BUILT / "uppy"
TUS_JS = ROOT / "node_modules" / "tus-js-client"


class Receiver(Peer, Protocol):
    """A server that keeps what it receives anywhere in its folder."""

    def command(self, folder: Path, port: int, host: str = LOOPBACK) -> list[str]:
        """The command line that starts it in the foreground."""
        ...


@dataclass(frozen=True, slots=True)
class Sluice:
    """Ours, as `make run` starts it."""

    name: str = "Sluice"

    @property
    def version(self) -> str:
        """The commit."""
        commit = _said("git", "-C", str(ROOT), "describe", "--always", "--dirty")
        return f"Sluice {commit}"

    @property
    def needs(self) -> Sequence[Path | None]:
        """Nothing else."""
        return []

    def command(self, folder: Path, port: int, host: str = LOOPBACK) -> list[str]:
        """On any address: only there must it be told that strangers may write."""
        server = Server(folder, {"SLUICE_HOST": host, "SLUICE_ACCESS": "open"}, port)
        leave_database(server.database)
        leave_measurement(server.library.parent)
        inherited = [f"--unset={name}" for name in os.environ if name.startswith("SLUICE_")]
        settings = [
            f"{name}={value}"
            for name, value in server.environment.items()
            if name.startswith("SLUICE_") and name not in {"SLUICE_WORKERS", "SLUICE_THREADS"}
        ]
        return ["env", *inherited, *settings, sys.executable, "-m", server.module]


@dataclass(frozen=True, slots=True)
class SluiceBehindNginx(Sluice):
    """Ours, behind nginx with TLS and HTTP/2."""

    name: str = "Sluice behind nginx"

    @property
    def needs(self) -> Sequence[Path | None]:
        """What it is behind."""
        return [Path(nginx) if (nginx := find_nginx()) else None]

    def command(self, folder: Path, port: int, host: str = LOOPBACK) -> list[str]:
        """On any address."""
        return [sys.executable, "-m", "bench.peers.behind_nginx", str(folder), str(port), host]


@dataclass(frozen=True, slots=True)
class Copyparty:
    """A file server in Python, which its users write to without an account."""

    name: str = "copyparty"

    @property
    def version(self) -> str:
        """Noted when it was installed; its client comes with it."""
        return built_version("copyparty")

    @property
    def needs(self) -> Sequence[Path | None]:
        """What `scripts/peers copyparty` installs."""
        return [COPYPARTY]

    def command(self, folder: Path, port: int, host: str = LOOPBACK) -> list[str]:
        """As it comes, but for the folder that it serves."""
        address = ["-i", host, "-p", str(port)]
        share = f"{folder / 'files'}::rwmd"
        return ["env", f"HOME={folder}", str(COPYPARTY), "-m", "copyparty", *address, "-v", share]


@dataclass(frozen=True, slots=True)
class Versitygw:
    """An S3 server in front of a folder, with one bucket."""

    name: str = "versitygw"
    program: Path = TOOLS / "versitygw"

    @property
    def version(self) -> str:
        """The folder in which set-up built it; the program does not know."""
        return self.program.resolve().parents[1].name.replace("-", " ")

    @property
    def needs(self) -> Sequence[Path | None]:
        """What `make setup-dev` builds."""
        return [self.program]

    def command(self, folder: Path, port: int, host: str = LOOPBACK) -> list[str]:
        """As the tests run it, but for the bucket, which rclone creates."""
        files, facts = folder / "files", folder / "facts"
        facts.mkdir()
        key = [f"ROOT_ACCESS_KEY={S3_KEY}", f"ROOT_SECRET_KEY={S3_SECRET}"]
        options = ["--port", f"{host}:{port}", "--keep-alive", "posix", "--sidecar", str(facts)]
        return ["env", *key, str(self.program), *options, str(files)]


SLUICE, BEHIND_NGINX, TUSD, VERSITYGW = Sluice(), SluiceBehindNginx(), Tusd(), Versitygw()
COPYPARTY_SERVER = Copyparty()


@dataclass(frozen=True, slots=True)
class Sender:
    """A program that sends a file to a server, and ends once that has all of it.

    In `command`, {url} stands for the server, without a slash at the end, and {file} for the file.
    """

    name: str
    receiver: Receiver
    command: tuple[str | Path | None, ...]
    version: Callable[[], str] | None = None
    """Of a program that comes neither with the server nor with the system."""
    is_own: bool = field(default=False, kw_only=True)
    is_best: bool = field(default=False, kw_only=True)
    """Whether it is the fastest peer of its kind, which is measured as often as ours."""
    is_page: bool = field(default=False, kw_only=True)
    """A page prints its seconds, without the start of the browser."""
    scheme: str = field(default="http", kw_only=True)
    """Of the server's URL."""
    needs: Path | None = field(default=None, kw_only=True)
    """What it is built from, beside the programs."""

    @property
    def can_run(self) -> bool:
        """Whether the programs and the server are here."""
        programs = BROWSERS if self.is_page else self.command[:1]
        is_here = any(program is not None and shutil.which(program) for program in programs)
        is_built = self.needs is None or self.needs.exists()
        return is_here and is_built and can_run(self.receiver)

    @property
    def versions(self) -> list[str]:
        """Of the server and of the program."""
        return [self.receiver.version, *([self.version()] if self.version else [])]

    def command_for(self, address: str, file: Path) -> list[str]:
        """The words of the command line, for the server's host and port."""
        url = f"{self.scheme}://{address}"
        return [
            str(word).replace("{url}", url).replace("{file}", str(file)) for word in self.command
        ]


def _page(name: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "bench.lib.send_by_page", name, "{url}", "{file}")


def _u2c(*options: str) -> tuple[str | Path, ...]:
    return (COPYPARTY, "-m", "copyparty.web.a.u2c", *options, "{url}/", "{file}")


def _tus(path: str, connections: int) -> tuple[str | Path | None, ...]:
    """tus-js-client with the pauses that it comes with."""
    options = {
        "endpoint": f"{{url}}{path}",
        "retryDelays": [0, 1000, 3000, 5000],
        "parallelUploads": connections,
    }
    task = json.dumps({"path": "{file}", "url": "{url}", "options": options})
    return (find_node(), ROOT / "tests" / "clients" / "tus_upload.mjs", task)


def _rclone(*options: str) -> tuple[str | Path, ...]:
    key = f"access_key_id={S3_KEY},secret_access_key={S3_SECRET}"
    bucket = f":s3,provider=Other,endpoint='{{url}}',{key}:{BUCKET}"
    return (RCLONE, "copy", *options, "{file}", bucket)


def _tus_js_version() -> str:
    return f"tus-js-client {json.loads((TUS_JS / 'package.json').read_text())['version']}"


def _curl_version() -> str:
    return " ".join(_said("curl", "--version").split()[:2])


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


_UPPY, _RCLONE = (partial(built_version, name) for name in ("uppy", "rclone"))

_CLIENT = (sys.executable, "-m", "sluice_client", "upload", "{file}", "--server", "{url}")

SENDERS = (
    Sender("Sluice, its client", SLUICE, _CLIENT, is_own=True),
    Sender(
        "Sluice, its client with cubic",
        SLUICE,
        ("env", "SLUICE_CLIENT_CONGESTION_CONTROL=cubic", *_CLIENT),
        is_own=True,
    ),
    Sender("Sluice, its page", SLUICE, _page("sluice"), is_own=True, is_page=True),
    Sender(
        "Sluice behind nginx, its page, HTTP/2",
        BEHIND_NGINX,
        _page("sluice"),
        is_own=True,
        is_page=True,
        scheme="https",
    ),
    Sender(
        "Sluice, curl -F",
        SLUICE,
        ("curl", "-sSf", "-o", "/dev/null", "-F", "file=@{file}", "{url}/upload"),
        _curl_version,
        is_own=True,
    ),
    Sender("Sluice, tus-js-client", SLUICE, _tus("/tus/", 1), _tus_js_version),
    Sender("Sluice, tus-js-client, 6 parallel", SLUICE, _tus("/tus/", 6), _tus_js_version),
    Sender("copyparty, u2c", COPYPARTY_SERVER, _u2c()),
    Sender(
        "copyparty, u2c -j 16 --sz 1",
        COPYPARTY_SERVER,
        _u2c("-j", "16", "--sz", "1"),
        is_best=True,
    ),
    Sender("copyparty, its page", COPYPARTY_SERVER, _page("copyparty"), is_page=True),
    Sender(
        "copyparty, its page, 6 parallel",
        COPYPARTY_SERVER,
        _page("copyparty-6"),
        is_best=True,
        is_page=True,
    ),
    Sender(
        "copyparty, curl -T",
        COPYPARTY_SERVER,
        ("curl", "-sSf", "-o", "/dev/null", "-T", "{file}", "{url}/"),
        _curl_version,
    ),
    Sender("tusd, tus-js-client", TUSD, _tus("/files/", 1), _tus_js_version),
    Sender("tusd, tus-js-client, 6 parallel", TUSD, _tus("/files/", 6), _tus_js_version),
    Sender("tusd, Uppy's page", TUSD, _page("uppy"), _UPPY, is_page=True, needs=UPPY),
    Sender("versitygw, rclone", VERSITYGW, _rclone(), _RCLONE),
    Sender(
        "versitygw, rclone in parts of 5 MiB",
        VERSITYGW,
        _rclone("--s3-upload-cutoff", "5M"),
        _RCLONE,
    ),
)


AS_THEY_COME = (
    "Sluice, its client",
    "Sluice, its page",
    "copyparty, u2c",
    "copyparty, its page",
    "tusd, tus-js-client",
    "tusd, Uppy's page",
    "versitygw, rclone",
)
"""Those without a word more than the file and the server, for the README."""


def client_environment(home: Path) -> dict[str, str]:
    """What senders run with: an empty home, and this checkout's client."""
    return {**os.environ, "HOME": str(home), "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"}


def require_stored(folder: Path, source: Path) -> None:
    """Raise `ValueError` unless a server has the file, of whatever name, in its folder."""
    size, digest = source.stat().st_size, _sha256_of(source)
    deadline = time.monotonic() + STORED_SECONDS
    while True:
        found = [path for path in folder.rglob("*") if path.is_file()]
        if any(path.stat().st_size == size and _sha256_of(path) == digest for path in found):
            return
        if time.monotonic() > deadline:
            names = sorted(f"{path.name} ({path.stat().st_size})" for path in found)
            raise ValueError(f"the server does not have what was sent: {', '.join(names)}")
        time.sleep(0.5)


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def runnable(senders: Sequence[Sender] = SENDERS) -> tuple[list[Sender], str]:
    """Those that can run here; a note of versions and who is missing."""
    here = [sender for sender in senders if sender.can_run]
    versions = [version for sender in here for version in sender.versions]
    note = f"Versions: {', '.join(dict.fromkeys(versions))}."
    absent = [sender.name for sender in senders if sender not in here]
    return here, f"{note} Missing here: {', '.join(absent)}." if absent else note

"""Upload servers that speak tus: tusd (Go), rustus (Rust), @tus/server (JavaScript).

None of them waits for the disk unless told so, and only rustus can be told.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.lib.uploading import CHUNK_BYTES, upload_tus
from bench.peers.process import BUILT, built_version
from tests.live_server import ROOT

BASE = "/files/"
PACKAGE = ROOT / "node_modules" / "@tus" / "server"


@dataclass(frozen=True, slots=True)
class Tusd:
    """The reference server, in Go."""

    name: str = "tusd"
    program: Path = BUILT / "tusd" / "tusd"

    @property
    def version(self) -> str:
        """Noted when it was built."""
        return built_version("tusd")

    @property
    def needs(self) -> Sequence[Path | None]:
        """What `scripts/peers tusd` builds."""
        return [self.program]

    def command(self, folder: Path, port: int) -> list[str]:
        """No lines of its log about requests: our access log is one line a request, its is many."""
        options = {"host": "127.0.0.1", "port": str(port), "upload-dir": str(folder / "files")}
        words = [f"-{name}={value}" for name, value in options.items()]
        return [str(self.program), *words, f"-base-path={BASE}", "-verbose=false"]

    def upload(
        self, port: int, source: Path, length: int, *, chunk_bytes: int = CHUNK_BYTES
    ) -> str:
        """With PATCH."""
        return upload_tus(port, source, length, base=BASE, chunk_bytes=chunk_bytes)


@dataclass(frozen=True, slots=True)
class Rustus:
    """A server in Rust; the only peer that can be told to wait for the disk."""

    name: str = "rustus"
    is_synced: bool = False
    program: Path = BUILT / "rustus" / "bin" / "rustus"

    @property
    def version(self) -> str:
        """Noted when it was built."""
        return built_version("rustus")

    @property
    def needs(self) -> Sequence[Path | None]:
        """What `scripts/peers rustus` builds."""
        return [self.program]

    def command(self, folder: Path, port: int) -> list[str]:
        """As many workers as cores, its default."""
        options = {
            "host": "127.0.0.1",
            "port": str(port),
            "data-dir": str(folder / "files"),
            "info-dir": str(folder / "info"),
            "url": BASE.rstrip("/"),
            "log-level": "WARN",
            "max-body-size": str(CHUNK_BYTES),
        }
        if self.is_synced:
            options["force-fsync"] = "true"
        return [str(self.program), *(f"--{name}={value}" for name, value in options.items())]

    def upload(
        self, port: int, source: Path, length: int, *, chunk_bytes: int = CHUNK_BYTES
    ) -> str:
        """With PATCH."""
        return upload_tus(port, source, length, base=BASE.rstrip("/"), chunk_bytes=chunk_bytes)


@dataclass(frozen=True, slots=True)
class TusNode:
    """The server of the tus project in JavaScript, with its file store."""

    name: str = "@tus/server"
    script: Path = Path(__file__).parent / "tus_node_server.mjs"

    @property
    def version(self) -> str:
        """As the package says."""
        return f"@tus/server {json.loads((PACKAGE / 'package.json').read_text())['version']}"

    @property
    def needs(self) -> Sequence[Path | None]:
        """A Node.js, and the package that `make setup-dev` brings."""
        return [_node(), PACKAGE]

    def command(self, folder: Path, port: int) -> list[str]:
        """One process, as its documentation has it."""
        return [str(_node()), str(self.script), str(port), str(folder / "files")]

    def upload(
        self, port: int, source: Path, length: int, *, chunk_bytes: int = CHUNK_BYTES
    ) -> str:
        """With PATCH."""
        return upload_tus(port, source, length, base=BASE.rstrip("/"), chunk_bytes=chunk_bytes)


def _node() -> Path | None:
    found = shutil.which(ROOT / ".tools" / "node" / "node") or shutil.which("node")
    return Path(found) if found else None

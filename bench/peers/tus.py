"""Upload servers that speak tus: tusd (Go), rustus (Rust), @tus/server (JavaScript).

None of them waits for the disk unless told so, and only rustus can be told. With a `bucket` they
keep files in an object store.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.lib.uploading import CHUNK_BYTES, upload_tus
from bench.peers.process import BUILT, built_version
from scripts.fleet.s3_servers import Access
from tests.live_server import ROOT

BASE = "/files/"
PACKAGES = ROOT / "node_modules" / "@tus"


@dataclass(frozen=True, slots=True)
class Tusd:
    """The reference server, in Go."""

    name: str = "tusd"
    bucket: Access | None = None
    program: Path = BUILT / "tusd" / "tusd"

    @property
    def version(self) -> str:
        """Noted when it was built."""
        return built_version("tusd")

    @property
    def needs(self) -> Sequence[Path | None]:
        """What `scripts/peers tusd` builds."""
        return [self.program]

    def command(self, folder: Path, port: int, host: str = "127.0.0.1") -> list[str]:
        """No lines of its log about requests: our access log is one line a request, its is many."""
        options = {"host": host, "port": str(port), "base-path": BASE, "verbose": "false"}
        if self.bucket is None:
            options["upload-dir"] = str(folder / "files")
        else:
            options |= {"s3-bucket": self.bucket.bucket, "s3-endpoint": self.bucket.endpoint}
            options["s3-object-prefix"] = "tusd"
        words = [f"-{name}={value}" for name, value in options.items()]
        return [*_variables(self.bucket, folder), str(self.program), *words]

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
    """The server of the tus project in JavaScript, with its store of files or of a bucket."""

    name: str = "@tus/server"
    bucket: Access | None = None
    script: Path = Path(__file__).parent / "tus_node_server.mjs"

    @property
    def version(self) -> str:
        """As the packages say."""
        found = [("server", PACKAGES / "server")]
        found += [("s3-store", self._store)] if self.bucket else []
        return ", ".join(
            f"@tus/{name} {json.loads((path / 'package.json').read_text())['version']}"
            for name, path in found
        )

    @property
    def needs(self) -> Sequence[Path | None]:
        """A Node.js, and the packages that `make setup-dev` brings."""
        return [find_node(), PACKAGES / "server", self._store]

    def command(self, folder: Path, port: int) -> list[str]:
        """One process, as its documentation has it."""
        place = [str(folder / "files")]
        if self.bucket is not None:
            place = [self.bucket.bucket, self.bucket.endpoint]
        words = [str(find_node()), str(self.script), str(port), self._store.name, *place]
        return [*_variables(self.bucket, folder), *words]

    def upload(
        self, port: int, source: Path, length: int, *, chunk_bytes: int = CHUNK_BYTES
    ) -> str:
        """With PATCH."""
        return upload_tus(port, source, length, base=BASE.rstrip("/"), chunk_bytes=chunk_bytes)

    @property
    def _store(self) -> Path:
        return PACKAGES / ("file-store" if self.bucket is None else "s3-store")


def _variables(bucket: Access | None, folder: Path) -> list[str]:
    """Words before a command that tell its program the key of a bucket, as AWS tools find it.

    Both programs keep a part in a temporary file until it is whole.
    """
    if bucket is None:
        return []
    values = {
        "AWS_ACCESS_KEY_ID": bucket.key,
        "AWS_SECRET_ACCESS_KEY": bucket.secret,
        "AWS_REGION": bucket.region,
        "TMPDIR": str(folder / "files"),
    }
    return ["env", *(f"{name}={value}" for name, value in values.items())]


def find_node() -> Path | None:
    """The Node.js that set-up installed, or the machine's own."""
    found = shutil.which(ROOT / ".tools" / "node" / "node") or shutil.which("node")
    return Path(found) if found else None

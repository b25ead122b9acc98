"""Servers that take a chunk with PUT: nginx's DAV module, and the physical limit in C."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.lib.client import Connection
from bench.lib.uploading import CHUNK_BYTES, chunks

PATH = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"
SPLICE_SOURCE = Path(__file__).with_name("splice_server.c")
OPTIMISATION = "-O2"

NGINX = """
{user_line}
daemon off;
worker_processes auto;
pid {folder}/pid;
events {{ }}
http {{
    access_log {folder}/access;
    client_body_temp_path {folder}/temporary;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    client_max_body_size 0;
    {body_buffer_line}
    sendfile on;
    tcp_nopush on;
    server {{
        listen 127.0.0.1:{port};
        root {folder}/files;
        dav_methods PUT;
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class Nginx:
    """Debian's nginx; a chunk is a file of its own, since PUT there knows no offsets."""

    name: str = "nginx PUT"
    body_buffer: str = ""

    @property
    def version(self) -> str:
        """As the program says."""
        command = [str(_program("nginx")), "-v"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        return said.partition("version: ")[2].strip().replace("/", " ")

    @property
    def needs(self) -> Sequence[Path | None]:
        """The program."""
        return [_program("nginx")]

    def command(self, folder: Path, port: int) -> list[str]:
        """A worker a core, sendfile on; bodies wait in the folder that files end up in."""
        buffer_line = f"client_body_buffer_size {self.body_buffer};" if self.body_buffer else ""
        # Started by root it would work as another user, to whom the folder may be closed.
        user_line = "user root;" if os.geteuid() == 0 else ""
        config = folder / "nginx.conf"
        config.write_text(
            NGINX.format(
                user_line=user_line, folder=folder, port=port, body_buffer_line=buffer_line
            )
        )
        errors = str(folder / "errors")
        return [str(_program("nginx")), "-c", str(config), "-p", str(folder), "-e", errors]

    def upload(
        self, port: int, source: Path, length: int, *, chunk_bytes: int = CHUNK_BYTES
    ) -> str:
        """A PUT a chunk; the path of the first."""
        name = uuid.uuid4().hex
        with Connection(port) as connection:
            for body in chunks(source, length, chunk_bytes):
                connection.request(f"PUT /{name}-{body.start}", {}, body)
        return f"/{name}-0"


@dataclass(frozen=True, slots=True)
class SpliceServer:
    """A hundred lines of C that do nothing but splice a body into a preallocated file."""

    name: str = "C, splice"
    is_synced: bool = False

    @property
    def version(self) -> str:
        """The compiler's, with the level of optimisation."""
        command = [str(_program("cc")), "-dumpfullversion", "-dumpversion"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return f"cc {said.strip()} {OPTIMISATION}"

    @property
    def needs(self) -> Sequence[Path | None]:
        """A compiler."""
        return [_program("cc")]

    def command(self, folder: Path, port: int) -> list[str]:
        """Compiles it first."""
        program = str(folder / "splice_server")
        compiler = [
            str(_program("cc")),
            OPTIMISATION,
            "-pthread",
            "-o",
            program,
            str(SPLICE_SOURCE),
        ]
        subprocess.run(compiler, check=True)
        return [program, str(port), str(folder / "files"), *(["sync"] if self.is_synced else [])]

    def upload(
        self, port: int, source: Path, length: int, *, chunk_bytes: int = CHUNK_BYTES
    ) -> str:
        """A PUT a chunk, all into one file."""
        name = uuid.uuid4().hex
        with Connection(port) as connection:
            for body in chunks(source, length, chunk_bytes):
                connection.request(f"PUT /{name}?offset={body.start}&total={length}", {}, body)
        return f"/{name}"


def _program(name: str) -> Path | None:
    found = shutil.which(name, path=PATH)
    return Path(found) if found else None

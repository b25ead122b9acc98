"""Records of uploads on this machine, so that the next run continues where one ended.

One small JSON file per upload. The server finds an upload by its file's fingerprint too, so a
damaged or lost record costs no more than asking for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import mkstemp

EXPIRY_SECONDS = 30 * 24 * 3600.0
"""Records unused for this long are removed; a server keeps an idle upload for a week. A wrong
clock can remove one too early, which costs one request to the server."""

SUFFIXES = (".json", ".tmp")


@dataclass(frozen=True, slots=True)
class UploadRecord:
    """An upload under way, or a small file that `is_stored`."""

    server: str
    fingerprint: str
    id: str
    path: str
    length: int
    is_stored: bool = False


class ResumeStore:
    """The records in a folder, which is made when the first is written.

    If the folder cannot be read or written, files are sent all the same, and nothing is
    remembered.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "uploads"

    def load(self, server: str, fingerprint: str) -> UploadRecord | None:
        """The record of that file on that server, if there is a sound one; it counts as used."""
        path = self._path(server, fingerprint)
        record = _read(path)
        if record is not None:
            _touch(path)
        return record

    def all(self) -> Iterator[UploadRecord]:
        """Every sound record, oldest first."""
        for path in sorted(self._files(), key=_age, reverse=True):
            record = _read(path)
            if record is not None:
                yield record

    def save(self, record: UploadRecord) -> None:
        """Write a record whole: a crash leaves the old one or the new one."""
        path = self._path(record.server, record.fingerprint)
        # For a bundled file a sync would cost more than the file.
        self._write(path, json.dumps(asdict(record)), is_synced=not record.is_stored)

    def forget(self, server: str, fingerprint: str) -> None:
        """Remove a record; harmless without one."""
        with suppress(OSError):
            self._path(server, fingerprint).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove records too old to be of use."""
        for path in self._files():
            age = _age(path)
            if age < 0:  # written while the clock was ahead; it would stay for as long again
                _touch(path)
            elif age > EXPIRY_SECONDS:
                with suppress(OSError):
                    path.unlink(missing_ok=True)

    def _write(self, path: Path, text: str, *, is_synced: bool) -> None:
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, draft = mkstemp(dir=self._folder, suffix=".tmp")
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    if is_synced:
                        os.fsync(file.fileno())
                os.replace(draft, path)
            except OSError:
                Path(draft).unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        with suppress(OSError):
            return [path for path in self._folder.iterdir() if path.suffix in SUFFIXES]
        return []

    def _path(self, server: str, fingerprint: str) -> Path:
        name = hashlib.sha256(f"{server} {fingerprint}".encode()).hexdigest()[:32]
        return self._folder / f"{name}.json"


def _read(path: Path) -> UploadRecord | None:
    if path.suffix != ".json":
        return None
    try:
        record = UploadRecord(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    texts = (record.server, record.fingerprint, record.id, record.path)
    is_sound = all(isinstance(text, str) for text in texts) and isinstance(record.length, int)
    return record if is_sound and record.id.isalnum() else None


def _touch(path: Path) -> None:
    with suppress(OSError):
        os.utime(path)


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0

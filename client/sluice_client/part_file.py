"""An unfinished download: a part file has the bytes, a record beside it says which have arrived.

The names of both end in a digest of where the bytes come from: `film.mp4.4f0c….part` and
`.part.json`. So files that want the same name do not meet before they are finished, and no file of
another program is taken for a part file. A lock keeps two downloads of the same file apart.

Bytes are made durable first and recorded second: a crash loses knowledge of bytes, and never
claims bytes that are not there.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from typing import Any

from sluice_client.errors import FileProblem, SluiceError
from sluice_client.file_names import shortened
from sluice_client.spans import Spans

RECORD_SECONDS = 2.0
"""How often the record is written; after a kill, what came since is fetched again."""

MOST_STEM_BYTES = 200
"""File systems take 255 bytes; the digest, `.part.json` and a random suffix are added."""


class PartFile:
    """Safe to use from several threads. Raises `FileProblem` for errors of the disk."""

    def __init__(self, target: Path, *, source: str, etag: str, length: int) -> None:
        self._target = target
        stem = _stem(target.name, source)
        self._part = target.with_name(f"{stem}.part")
        self._record = target.with_name(f"{stem}.part.json")
        self._identity = {"source": source, "etag": etag, "length": length}
        self._length = length
        self._lock = threading.Lock()
        self._recorded_at = time.monotonic()
        self._is_open = False
        self.done = Spans()

    def open(self) -> None:
        """Continue with the bytes of an earlier run of the same file, or start over."""
        try:
            self.descriptor = self._descriptor()
            self._is_open = True
            self.done = self._recorded_spans()
            if not self.done:  # What it says is no longer true once bytes are written.
                self._record.unlink(missing_ok=True)
            os.ftruncate(self.descriptor, self._length)
            self._reserve()
        except OSError as error:
            self.close()
            raise _problem(self._part, error) from error

    def write(self, block: bytes, position: int) -> None:
        """Put bytes in their place."""
        with self._lock:
            # A thread that was left behind must not write to a descriptor that has been reused.
            if not self._is_open:
                raise SluiceError("The download has ended.")
            try:
                view = memoryview(block)
                while view:
                    written = os.pwrite(self.descriptor, view, position)
                    view, position = view[written:], position + written
            except OSError as error:
                raise _problem(self._part, error) from error
            self.done.add(position - len(block), position)
            is_due = time.monotonic() - self._recorded_at > RECORD_SECONDS
        if is_due:
            self.record()

    def record(self) -> None:
        """Remember what has arrived."""
        with self._lock:
            if not self._is_open:
                return
            self._recorded_at = time.monotonic()
            spans = [list(span) for span in self.done]
            descriptor = os.dup(self.descriptor)
        try:
            os.fdatasync(descriptor)
            write_json(self._record, {**self._identity, "done": spans})
        except OSError as error:
            raise _problem(self._record, error) from error
        finally:
            os.close(descriptor)

    def publish(self, *, overwrite: bool) -> None:
        """Give the finished file its own name, all at once.

        Unless `overwrite`, raises `FileProblem` if that name is taken.
        """
        try:
            os.fsync(self.descriptor)
            if overwrite:
                os.replace(self._part, self._target)
            else:
                _rename_to_free_name(self._part, self._target)
            self._record.unlink(missing_ok=True)
            folder = os.open(self._target.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise _problem(self._target, error) from error

    def discard(self) -> None:
        """Remove what has arrived."""
        with suppress(OSError):
            self._part.unlink(missing_ok=True)
            self._record.unlink(missing_ok=True)

    def close(self) -> None:
        """Close; harmless when closed."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                os.close(self.descriptor)

    def _descriptor(self) -> int:
        """Opens a file that no other process writes and that has no other name."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            descriptor = os.open(self._part, flags, 0o666)
            try:
                self._lock_file(descriptor)
                if self._is_part_file(descriptor):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _lock_file(self, descriptor: int) -> None:
        """Until it is closed, or the process ends; no lock where the file system has none."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FileProblem(f"{self._target} is being fetched by another program.") from error
        except OSError:
            pass

    def _is_part_file(self, descriptor: int) -> bool:
        """Whether a locked file still is what has the name, and has no other name."""
        file = os.fstat(descriptor)
        try:
            if not os.path.samestat(file, os.lstat(self._part)):
                return False
        except FileNotFoundError:  # Another download has just renamed it to its own name.
            return False
        if file.st_nlink > 1:  # A crash of `publish` has left it two.
            self._part.unlink()
            return False
        return True

    def _recorded_spans(self) -> Spans:
        """The spans recorded for the same file, if record and part file agree."""
        try:
            record = json.loads(self._record.read_text(encoding="utf-8"))
            if {name: record[name] for name in self._identity} != self._identity:
                return Spans()
            if os.fstat(self.descriptor).st_size != self._length:
                return Spans()
            spans = Spans((int(start), int(end)) for start, end in record["done"])
        except (OSError, ValueError, TypeError, KeyError):
            return Spans()
        return spans if all(0 <= s.start < s.end <= self._length for s in spans) else Spans()

    def _reserve(self) -> None:
        """Reserve the space now, so that a full disk is noticed before hours of download."""
        if self._length and not self.done:
            with suppress(NotImplementedError, AttributeError):
                os.posix_fallocate(self.descriptor, 0, self._length)


def _stem(name: str, source: str) -> str:
    """The name, or the beginning of a long one, and a digest of all of it and of the source."""
    digest = hashlib.sha256(os.fsencode(f"{source}\n{name}")).hexdigest()[:16]
    return f"{shortened(name, MOST_STEM_BYTES)}.{digest}"


def _rename_to_free_name(source: Path, target: Path) -> None:
    """Rename without replacing anything, even what another program creates at this moment."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError as error:  # FAT, exFAT and some network file systems have no links
        if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS}:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        os.replace(source, target)
    else:
        source.unlink()


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a small file whole: a crash leaves the old one or the new one."""
    descriptor, draft = mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        Path(draft).unlink(missing_ok=True)
        raise


def _problem(path: Path, error: OSError) -> FileProblem:
    return FileProblem(f"{path}: {error.strerror or error}")

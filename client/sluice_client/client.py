"""The client as a library."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from sluice_client.bundle_sender import OnOutcome
from sluice_client.direct_cells import DirectCells
from sluice_client.doctor import Finding
from sluice_client.doctor.examination import PAUSE_SECONDS, examine
from sluice_client.downloader import Downloader, Fetched, RemoteFile
from sluice_client.errors import FileProblem, KeyRefused, SluiceError
from sluice_client.local_file import LocalFile
from sluice_client.many import upload_many
from sluice_client.options import Options, load_options, server_url, state_folder
from sluice_client.pace import SharedPace
from sluice_client.progress import ProgressListener
from sluice_client.renditions import ProgressOfMaking, make_rendition
from sluice_client.resume_store import ResumeStore, UploadRecord
from sluice_client.stream_upload import upload_stream
from sluice_client.transport import Transport
from sluice_client.uploader import UploadContext, Uploaded, upload_file

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ADDRESS = re.compile(r"(?P<base>.*)/(?:media|watch|api/videos|api/uploads)/(?P<id>[^/]+)/?")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the server says about itself; sizes in bytes, `time` as ISO 8601 text."""

    chunk_bytes: int
    max_upload_bytes: int
    time: str
    version: str


class Client:
    """Talks to one Sluice server. A context manager; safe to use from several threads.

    Every method can raise a `SluiceError`: `Refused` if the server says no, `ServerUnreachable`
    after `give_up_seconds` without progress in a transfer (after 5 seconds in anything else),
    `Interrupted` after `stop()`. Setting the caller's event `stop` has the same effect.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        options: Options | None = None,
        state: Path | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        options = options or load_options(os.environ)
        self.options = options if server is None else replace(options, server=server_url(server))
        self._stop = stop or threading.Event()
        self._transport = Transport(self.options, self._stop)
        self._questions = Transport(self.options.for_questions(), self._stop)
        self._direct = DirectCells(self._transport)
        self._store = ResumeStore(state or state_folder())
        self._context: UploadContext | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()
        self._questions.close()
        self._direct.close()

    def stop(self) -> None:
        """End every transfer of this client soon, with `Interrupted`; all can be resumed.

        Not for a signal handler: it takes a lock that the interrupted thread may hold.
        """
        self._stop.set()

    @property
    def has_heard(self) -> bool:
        """Whether a request has been answered, or has failed."""
        return self._transport.has_heard or self._questions.has_heard

    @property
    def has_kept_bytes(self) -> bool:
        """Whether there is something that the same call would continue."""
        return self._transport.has_kept_bytes

    @property
    def on_wait(self) -> Callable[[str], None]:
        """Receives a sentence whenever the client waits to try again."""
        return self._transport.on_wait

    @on_wait.setter
    def on_wait(self, listener: Callable[[str], None]) -> None:
        self._transport.on_wait = self._questions.on_wait = listener

    def projects(self) -> list[dict[str, Any]]:
        """The server's documents of the projects that the key may enter; `KeyRefused` without."""
        projects: list[dict[str, Any]] = self._questions.json("GET", "/api/projects")["projects"]
        return projects

    def is_open(self) -> bool:
        """Whether the server lets in programs without a key; it then checks none."""
        questions = Transport(replace(self._questions.options, api_key=""), self._stop)
        try:
            questions.json("GET", "/api/projects")
        except KeyRefused:
            return False
        finally:
            questions.close()
        return True

    def server(self) -> ServerFacts:
        """What the server recommends and allows."""
        facts = self._questions.json("GET", "/api/server")
        return ServerFacts(
            chunk_bytes=int(facts["chunk_bytes"]),
            max_upload_bytes=int(facts["max_upload_bytes"]),
            time=str(facts["time"]),
            version=str(facts["version"]),
        )

    def upload(
        self,
        path: str | Path,
        *,
        name: str | None = None,
        on_progress: ProgressListener | None = None,
    ) -> Uploaded:
        """Send a file, or the rest of it; returns once the server's SHA-256 matches the file's.

        Raises `FileProblem` for anything but a readable file, `FileChanged` if it changes
        during the upload, `ContentMismatch` if the bytes differ at the end.
        """
        file = LocalFile.at(Path(path), name)
        return upload_file(self._upload_context(), file, on_progress)

    def upload_stream(
        self, stream: BinaryIO, name: str, *, on_progress: ProgressListener | None = None
    ) -> Uploaded:
        """Send a stream up to its end, such as a pipe; a chunk of it is held in memory.

        After an error it cannot be continued, and nothing of it stays on the server.
        """
        return upload_stream(self._transport, stream, name, on_progress)

    def upload_many(
        self,
        files: Sequence[LocalFile],
        *,
        on_outcome: OnOutcome,
        on_progress: ProgressListener | None = None,
    ) -> None:
        """Send the files that `find_files` returns; small ones share requests.

        `on_outcome` gets each file with an `Uploaded` or an error, from several threads, one at
        a time. Raises only errors that end all of them: `Interrupted`, `ServerUnreachable`.
        """
        upload_many(self._upload_context(), files, on_outcome=on_outcome, listener=on_progress)

    def fetch(
        self,
        video: str,
        target: str | Path | None = None,
        *,
        rendition: int | None = None,
        overwrite: bool = False,
        on_progress: ProgressListener | None = None,
    ) -> Fetched:
        """Fetch a file, or the rest of it; returns once its SHA-256 matches the server's.

        `video` is an id or a URL of this server. Without a `target` the file gets the
        server's name for it in the current folder; with a folder, in there. Such a name replaces
        another file only with `overwrite`, and otherwise raises `FileProblem`; the name of a file
        that is given as `target` is always used. A link is followed; a pipe or a device gets the
        bytes in order. Raises `ContentMismatch` if the bytes are wrong even after a second try.

        With a height as `rendition`, fetches that one, which `make_rendition` has to have made;
        the server knows no checksum of it.
        """
        remote = self._look(video, rendition)
        path = Path(target or ".")
        downloader = Downloader(self._transport)
        if path.is_dir():
            path = path / remote.file_name
            return downloader.fetch(remote, path, on_progress, overwrite=overwrite)
        if path.exists() and not path.is_file():  # A link to a pipe, in /proc, cannot be resolved.
            return _copy_to_special_file(downloader, remote, path, on_progress)
        if path.is_symlink():
            path = path.resolve()
        if not path.parent.is_dir():
            raise FileProblem(f"{path.parent} is not a folder.")
        return downloader.fetch(remote, path, on_progress, overwrite=True)

    def copy_to(
        self,
        video: str,
        output: BinaryIO,
        *,
        rendition: int | None = None,
        on_progress: ProgressListener | None = None,
    ) -> Fetched:
        """Write a file in order, as to a pipe; compares the checksum at the end as `fetch` does."""
        remote = self._look(video, rendition)
        return Downloader(self._transport).copy_to(remote, output, on_progress)

    def _look(self, video: str, rendition: int | None) -> RemoteFile:
        return Downloader(self._questions).look(self.id_of(video), rendition)

    def make_rendition(
        self, video: str, height: int, *, on_progress: ProgressOfMaking = lambda _share: None
    ) -> None:
        """Have the server make a rendition of that height; returns once it is ready.

        `on_progress` gets how much of it is made, from 0 to 1. Raises `RenditionFailed`.
        """
        make_rendition(self._transport, self.id_of(video), height, on_progress)

    def watch_url(self, video: str) -> str:
        """The address of the page that plays a film; raises `Refused` for an unknown one."""
        return f"{self.options.server}/watch/{self.video(video)['id']}"

    def videos(self, search: str = "", sort: str = "newest") -> Iterator[dict[str, Any]]:
        """Every stored file with the words of `search` in its name, as the server describes it.

        `sort` is `newest`, `oldest`, `name`, `-name`, `size` or `-size`.
        """
        query = {"limit": "200", "q": search, "sort": sort}
        while True:
            page = self._questions.json("GET", "/api/videos", params=query)
            yield from page["videos"]
            if not page.get("next"):
                return
            query["cursor"] = page["next"]

    def video(self, video: str) -> dict[str, Any]:
        """One stored file as the server describes it."""
        return self._questions.json("GET", f"/api/videos/{self.id_of(video)}")

    def rename(self, video: str, filename: str) -> dict[str, Any]:
        """Give a stored file another name; the file as the server then describes it."""
        path = f"/api/videos/{self.id_of(video)}"
        return self._questions.json("PATCH", path, json={"filename": filename})

    def remove(self, video: str) -> None:
        """Delete a stored file."""
        video_id = self.id_of(video)
        self._questions.patiently(
            lambda: self._questions.request("DELETE", f"/api/videos/{video_id}")
        )

    def status(self, upload: str) -> dict[str, Any]:
        """An upload as the server describes it; `missing` and `received` are half-open ranges."""
        return self._questions.json("GET", f"/api/uploads/{self.id_of(upload)}")

    def unfinished(self) -> list[UploadRecord]:
        """Unfinished uploads of this machine to this server."""
        records = [record for record in self._store.all() if not record.is_stored]
        return [record for record in records if record.server == self.options.server]

    def examine(self, pause_seconds: float = PAUSE_SECONDS) -> Iterator[Finding]:
        """What proxies do to uploads, and what to change there."""
        return examine(self._transport, pause_seconds)

    def id_of(self, text: str) -> str:
        """The id in an id or URL; raises `SluiceError` for a URL of another server."""
        match = _ADDRESS.fullmatch(text.partition("?")[0]) if "://" in text else None
        if match and match["base"] != self.options.server:
            raise SluiceError(f"{text} is not on {self.options.server}.")
        found = match["id"] if match else text
        if not _ID.fullmatch(found):
            raise SluiceError(f"{text!r} is neither an id nor the URL of a file.")
        return found

    def _upload_context(self) -> UploadContext:
        """What the uploads of this client share."""
        with self._lock:
            if self._context is None:
                self._store.sweep()
                self._context = UploadContext(
                    self._transport, self._store, SharedPace(self._transport), self._direct
                )
            return self._context


def _copy_to_special_file(
    downloader: Downloader, remote: RemoteFile, path: Path, listener: ProgressListener | None
) -> Fetched:
    """Write to a pipe or a device, which cannot be renamed over, as it would be gone."""
    try:
        with path.open("wb") as output:
            return downloader.copy_to(remote, output, listener)
    except OSError as error:
        raise FileProblem(f"{path}: {error.strerror or error}") from error


def server_in(address: str) -> str | None:
    """The server in the URL of a file; None for a bare id."""
    match = _ADDRESS.fullmatch(address.partition("?")[0])
    if not match or urlsplit(address).scheme not in {"http", "https"}:
        return None
    return match["base"]

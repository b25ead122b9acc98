"""What the web asks about films: how far they can be played, and everything players load."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from io import FileIO, RawIOBase
from pathlib import Path

from app.domain.errors import NotMade, UploadNotFound
from app.domain.lifecycle import UploadState
from app.domain.ranges import ByteRange
from app.domain.upload import Upload, UploadId
from app.media.folder import MediaFolder
from app.media.index.virtual_file import Piece, StoredVirtualFile
from app.media.manifest import Manifest, Stream
from app.records.uploads import UploadRecords
from app.storage.base import BytesLost, Store

PLAY_FILE = "play.virtual"
MANIFEST = "hls.json"
REMUXED = "source.mp4"
"""Names in the folder of a video. A remuxed film takes the place of an original that cannot be
indexed; it has the same media."""

CONTENT_TYPES = {
    "jpg": "image/jpeg",
    "vtt": "text/vtt; charset=utf-8",
    "json": "application/json",
}
"""Of the made files that may be asked for by name; their names are in `_MADE`."""

_MADE = re.compile(
    r"(?:poster|sprite)\.jpg|(?:thumbs|chapters|subs-[0-9]{1,2})\.vtt|waveform\.json"
)


@dataclass(frozen=True, slots=True)
class MadeFile:
    """A file made from a video."""

    path: Path

    @property
    def content_type(self) -> str:
        """By its extension."""
        return CONTENT_TYPES[self.path.suffix.removeprefix(".")]

    def open(self) -> FileIO:
        """The file, unbuffered; raises `NotMade`."""
        try:
            return FileIO(self.path, "rb")
        except FileNotFoundError as error:
            raise NotMade("This has not been made of the video.") from error


@dataclass(frozen=True, slots=True)
class VirtualPart:
    """A span of an open virtual file, with the source of its bytes."""

    file: StoredVirtualFile
    span: ByteRange
    open_source: Callable[[], RawIOBase]

    def pieces(self, wanted: ByteRange) -> Iterator[Piece]:
        """The pieces of a span that is counted from the start of this one."""
        start = self.span.start
        return self.file.pieces(ByteRange(start + wanted.start, start + wanted.end))


class MediaLibrary:
    """Films for those who play them. It makes nothing: the media worker does."""

    def __init__(self, uploads: UploadRecords, store: Store, folder: MediaFolder) -> None:
        self._uploads = uploads
        self._store = store
        self._folder = folder

    def watched(self, owner: str, upload_id: UploadId) -> Upload:
        """A video, or an upload that may be played while it arrives; raises as `get` does."""
        upload = self._uploads.get(upload_id)
        if upload.owner != owner:
            raise UploadNotFound("No video has this id.")
        return upload.require_present()

    def play_file(self, video: Upload) -> VirtualPart:
        """The film as one MP4 file; raises `NotMade`, also while it arrives."""
        if video.state is not UploadState.COMPLETE:
            raise NotMade("The film has not arrived yet.")
        return self._virtual(video, PLAY_FILE)

    def segment(self, video: Upload, stream: str, number: int) -> VirtualPart:
        """A segment of a stream, counted from 1; raises `NotMade`."""
        found = self._stream(video, stream)
        span = found.span(number)
        if span is None or number > self._available(video, found):
            raise NotMade("The stream has no segment of this number.")
        return self._virtual(video, f"hls/{stream}/segments.virtual", span)

    def initialization(self, video: Upload, stream: str) -> MadeFile:
        """What comes before the first segment of a stream."""
        self._stream(video, stream)
        return MadeFile(self._folder.path(video.id, f"hls/{stream}/init.mp4"))

    def made(self, video: Upload, name: str) -> MadeFile:
        """A picture, subtitles, or the like; raises `NotMade` for anything else."""
        if not _MADE.fullmatch(name):
            raise NotMade("Nothing of this name is made of videos.")
        return MadeFile(self._folder.path(video.id, name))

    def _virtual(self, video: Upload, name: str, span: ByteRange | None = None) -> VirtualPart:
        try:
            file = StoredVirtualFile(self._folder.path(video.id, name))
        except FileNotFoundError as error:
            raise NotMade("The film cannot be played yet.") from error
        return VirtualPart(
            file, span or ByteRange(0, file.length), lambda: self._open_source(video)
        )

    def _open_source(self, video: Upload) -> RawIOBase:
        """The file that the index is about; raises `NotMade` if it has just been removed."""
        with suppress(FileNotFoundError):
            return FileIO(self._folder.path(video.id, REMUXED), "rb")
        if video.state is not UploadState.COMPLETE:
            with suppress(BytesLost):  # Published since the record was read.
                return self._store.staging.open(video.id)
        try:
            return self._store.library.open(video.id, ByteRange(0, 0))
        except FileNotFoundError as error:
            raise NotMade("The file of this video is no longer there.") from error

    def _stream(self, video: Upload, name: str) -> Stream:
        found = self._manifest(video.id).stream(name)
        if found is None:
            raise NotMade("The film has no stream of this name.")
        return found

    def _manifest(self, upload_id: UploadId) -> Manifest:
        path = self._folder.path(upload_id, MANIFEST)
        try:
            return _manifest(path, path.stat().st_mtime_ns)
        except FileNotFoundError as error:
            raise NotMade("The film cannot be played in segments, or not yet.") from error

    @staticmethod
    def _available(video: Upload, stream: Stream) -> int:
        if video.state is UploadState.COMPLETE:
            return len(stream.ends)
        return stream.available(video.offset)


@lru_cache(maxsize=64)
def _manifest(path: Path, _changed_at: int) -> Manifest:
    """Read once for all the segments that a player asks for."""
    return Manifest.from_json(path.read_bytes())

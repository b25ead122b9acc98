"""POST /media/archive: several videos as one ZIP file, generated while it is sent.

Nothing is compressed or stored, so the length is known before the first byte. It occupies a thread
until it ends, like every download.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Annotated, TypedDict
from urllib.parse import parse_qs

from flask import Blueprint, request
from werkzeug.wrappers import Response
from zipstream import ZipStream

from app.core.access import Action
from app.core.errors import InvalidRequest, UploadGone, UploadNotFound
from app.core.json_types import Id, keywords
from app.core.ranges import ByteRange
from app.core.upload import Upload, parse_upload_id
from app.deliver.bodies import blocks_of
from app.http.access import requires
from app.http.bodies import read_small_body
from app.http.context import SENDING_KEY, Sending, ViewContext
from app.http.openapi import ResponseSpec, describes
from app.uploads.library import VideoLibrary

MAX_VIDEOS = 1000
"""An archive with more is refused: its central directory is held in memory until the end."""

MAX_FORM_BYTES = 64 * 1024
"""`MAX_VIDEOS` ids take 36 KB."""

_DRIVE = re.compile(r"^([A-Za-z]):")
"""A drive letter: Windows treats a path that begins with one as absolute."""

blueprint = Blueprint("archive", __name__)


class ArchiveForm(TypedDict):
    """The videos of an archive."""

    id: Annotated[list[Id], keywords(minItems=1, maxItems=MAX_VIDEOS)]


@blueprint.post("/media/archive")
@requires(Action.DOWNLOAD)
@describes(
    "fetchArchive",
    {
        200: ResponseSpec(
            "The archive. Of files with the same name the second gets ` (2)`.",
            {"application/zip": bytes},
            ("Content-Disposition",),
        )
    },
    *(UploadNotFound, UploadGone),
    bodies={"application/x-www-form-urlencoded": ArchiveForm},
)
def archive(ctx: ViewContext) -> Response:
    """Get several videos as one ZIP file.

    Not compressed, and made while it is sent: there are no ranges. If a video is deleted in the
    meantime, the connection breaks before all `Content-Length` bytes are there.
    """
    try:
        form = parse_qs(
            read_small_body(ctx, MAX_FORM_BYTES).decode("ascii"), max_num_fields=MAX_VIDEOS
        )
    except ValueError as error:
        raise InvalidRequest(f"The form must have 1 to {MAX_VIDEOS} fields `id`.") from error
    if not (ids := dict.fromkeys(form.get("id", []))):
        raise InvalidRequest("The form names no video: it has no field `id`.")
    library, scope = ctx.services.library, ctx.scope
    videos = [library.get(scope, parse_upload_id(text)) for text in ids]
    files = ArchiveBody(videos, library, request.environ.get(SENDING_KEY))
    response = Response(files, content_type="application/zip", direct_passthrough=True)
    response.content_length = files.length
    name = "video.zip" if len(videos) == 1 else f"{len(videos)} videos.zip"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.headers["Cache-Control"] = "no-store"
    return response


class ArchiveBody:
    """The ZIP file as blocks; a video is opened when the ones before it are sent.

    Raises in mid-archive if a video was deleted in the meantime, so that the connection breaks
    before the announced length: the client gets a failed download, never a corrupt archive.
    """

    def __init__(
        self, videos: Sequence[Upload], library: VideoLibrary, sending: Sending | None = None
    ) -> None:
        self._library = library
        self._sending = sending
        self._sent = 0
        self._zip = ZipStream(sized=True)
        names = distinct_names(video.filename for video in videos)
        for video, name in zip(videos, names, strict=True):
            self._zip.add(self._blocks(video), name, size=video.known_length)
        self.length = len(self._zip)
        """Length of the archive in bytes."""
        if sending is not None:
            sending.began()

    def __iter__(self) -> Iterator[bytes]:
        yield from self._zip

    def _blocks(self, video: Upload) -> Iterator[bytes]:
        span = ByteRange(0, video.known_length)
        with self._library.open(video, span) as file:
            for block in blocks_of(file, span):
                yield block
                self._sent += len(block)

    def close(self) -> None:
        """Report the bytes sent; the server calls this even if not everything was sent."""
        if self._sending is not None:
            self._sending.ended(self._sent)
            self._sending = None


def distinct_names(filenames: Iterable[str]) -> Iterator[str]:
    """Distinct relative names for the files of an archive, also on case-insensitive file systems.

    The second "film.mp4" becomes "film (2).mp4". A folder that has the name of a file becomes part
    of the names of its files.
    """
    files, folders, copies = set[str](), set[str](), Counter[str]()
    for filename in (_DRIVE.sub(r"\1_", given) for given in filenames):
        is_inside_file = bool(_folders(filename) & files)
        path = PurePosixPath(filename.replace("/", "-") if is_inside_file else filename)
        name = str(path)
        while name.casefold() in files or name.casefold() in folders:
            copies[str(path).casefold()] += 1
            number = copies[str(path).casefold()] + 1
            name = str(path.with_name(f"{path.stem} ({number}){path.suffix}"))
        files.add(name.casefold())
        folders |= _folders(name)
        yield name


def _folders(filename: str) -> set[str]:
    return {str(folder).casefold() for folder in PurePosixPath(filename).parents} - {"."}

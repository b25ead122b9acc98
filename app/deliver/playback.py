"""GET and HEAD of files for players: /media/{id}/play.mp4, its HLS, images and subtitles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import PurePosixPath
from types import MappingProxyType

from flask import Blueprint, request
from werkzeug.http import http_date, quote_etag
from werkzeug.wrappers import Response

from app.core.access import Action
from app.core.errors import NotMade
from app.core.lifecycle import UploadState
from app.core.playback import Made
from app.core.ranges import ByteRange
from app.core.upload import Upload, parse_upload_id
from app.deliver.bodies import pieces_body, span_body
from app.deliver.conditional import Validators
from app.deliver.media import SANDBOX, Stored, answer, content_disposition, send_span
from app.http.access import requires
from app.http.context import ViewContext, note_upload
from app.ingest.connection import has_left
from app.video.serve.library import (
    CONTENT_TYPES,
    MadeFile,
    MediaLibrary,
    Playlists,
    VirtualPart,
    subtitles_of,
)
from app.video.serve.renditions import Renditions
from app.video.serve.subtitles import Subtitles

blueprint = Blueprint("playback", __name__, url_prefix="/media/<upload_id>")

CACHING = "private, no-cache"
"""Cached but revalidated each time: a later version of the index may segment videos differently."""

NO_HEADERS: Mapping[str, str] = MappingProxyType({})

PLAYLIST = "application/vnd.apple.mpegurl"


@blueprint.get("/play.mp4")
@requires(Action.WATCH)
def play(ctx: ViewContext, upload_id: str) -> Response:
    """The video as an MP4 file that starts to play at once."""
    video = _video(ctx, upload_id)
    return _send_virtual(_films(ctx).play_file(video), "video/mp4")


@blueprint.get("/hls/master.m3u8")
@requires(Action.WATCH)
def master(ctx: ViewContext, upload_id: str) -> Response:
    """The playlist of all renditions, audio tracks and subtitles."""
    video = _video(ctx, upload_id)
    return _playlist(
        _playlists(ctx).master(video, _renditions(ctx).formats(video), _subtitles(ctx, video))
    )


@blueprint.get("/hls/<stream>/index.m3u8")
@requires(Action.WATCH)
def playlist(ctx: ViewContext, upload_id: str, stream: str) -> Response:
    """The playlist of one stream."""
    return _playlist(_playlists(ctx).of_stream(_video(ctx, upload_id), stream))


@blueprint.get("/hls/subs-<text>/index.m3u8")
@requires(Action.WATCH)
def subtitles_playlist(ctx: ViewContext, upload_id: str, text: str) -> Response:
    """The playlist of subtitles, which are one file."""
    video = _video(ctx, upload_id)
    found = next((each for each in _subtitles(ctx, video) if each.name == f"subs-{text}"), None)
    if found is None:
        raise NotMade("The film has no such subtitles.")
    return _playlist(_playlists(ctx).of_subtitles(video.id, found))


@blueprint.get("/hls/<stream>/<int:number>.m4s")
@requires(Action.WATCH)
def segment(ctx: ViewContext, upload_id: str, stream: str, number: int) -> Response:
    """One segment; they are counted from 1."""
    found = _films(ctx).segment(_video(ctx, upload_id), stream, number)
    return _send_virtual(found, "video/iso.segment")


@blueprint.get("/hls/<stream>/init.mp4")
@requires(Action.WATCH)
def initialization(ctx: ViewContext, upload_id: str, stream: str) -> Response:
    """The initialization segment of a stream."""
    found = _films(ctx).initialization(_video(ctx, upload_id), stream)
    return _send_made(found, "video/mp4")


@blueprint.get("/hls/<int:quality>/index.m3u8")
@requires(Action.WATCH)
def rung_playlist(ctx: ViewContext, upload_id: str, quality: int) -> Response:
    """The playlist of the video track of a rendition."""
    return _playlist(_renditions(ctx).playlist(_video(ctx, upload_id), quality))


@blueprint.get("/hls/<int:quality>/<int:number>.m4s")
@requires(Action.WATCH)
def rung_segment(ctx: ViewContext, upload_id: str, quality: int, number: int) -> Response:
    """One segment of a rendition, once it is encoded; segments are counted from 1."""
    found = _renditions(ctx).segment(_video(ctx, upload_id), quality, number, _is_awaited)
    return _send_made(found, "video/iso.segment")


@blueprint.get("/hls/<int:quality>/init.mp4")
@requires(Action.WATCH)
def rung_initialization(ctx: ViewContext, upload_id: str, quality: int) -> Response:
    """The initialization segment of a rendition."""
    found = _renditions(ctx).initialization(_video(ctx, upload_id), quality, _is_awaited)
    return _send_made(found, "video/mp4")


@blueprint.get("/renditions/<int:quality>.mp4")
@requires(Action.DOWNLOAD)
def rendition(ctx: ViewContext, upload_id: str, quality: int) -> Response:
    """A rendition of the whole video, to be downloaded."""
    video = _video(ctx, upload_id)
    filename = f"{PurePosixPath(video.filename).stem} {quality}p.mp4"
    disposition = content_disposition(filename, is_attachment=True)
    found = _renditions(ctx).file(video, quality)
    return _send_made(found, "video/mp4", {"Content-Disposition": disposition})


@blueprint.get("/subs-<string(length=32):text_id>.vtt")
@requires(Action.WATCH)
def subtitles_beside(ctx: ViewContext, upload_id: str, text_id: str) -> Response:
    """Subtitles uploaded as a separate file."""
    files = ctx.services.media.text_files
    text = files.as_webvtt(_video(ctx, upload_id), parse_upload_id(text_id))
    response = _text(text, CONTENT_TYPES["vtt"])
    response.add_etag()
    response.make_conditional(request.environ)
    return response


@blueprint.get("/<name>")
@requires(Action.WATCH)
def made(ctx: ViewContext, upload_id: str, name: str) -> Response:
    """A derived file, such as an image or subtitles."""
    found = _films(ctx).made(_video(ctx, upload_id), name)
    return _send_made(found, found.content_type)


def _films(ctx: ViewContext) -> MediaLibrary:
    return ctx.services.media.library


def _playlists(ctx: ViewContext) -> Playlists:
    return ctx.services.media.playlists


def _renditions(ctx: ViewContext) -> Renditions:
    return ctx.services.media.renditions


def _subtitles(ctx: ViewContext, video: Upload) -> list[Subtitles]:
    """Embedded and external subtitles of a video; none while it arrives."""
    if video.state is not UploadState.COMPLETE:
        return []
    (view,) = _films(ctx).playbacks([video])
    beside = ctx.services.media.text_files.of(video)
    return [*subtitles_of(view), *(text.subtitles for text in beside)]


def _is_awaited() -> bool:
    return not has_left(request.environ)


def _video(ctx: ViewContext, upload_id: str) -> Upload:
    return note_upload(_films(ctx).watched(ctx.scope, parse_upload_id(upload_id)))


def _playlist(text: str) -> Response:
    return _text(text, PLAYLIST)


def _text(text: str, content_type: str) -> Response:
    headers = {"Cache-Control": CACHING, "Content-Security-Policy": SANDBOX}
    return Response(text, content_type=content_type, headers=headers)


def _send_virtual(part: VirtualPart, content_type: str) -> Response:
    with ExitStack() as resources:
        resources.callback(part.file.close)
        length = part.span.length
        stored = _stored(part.made, length, content_type)

        def body(span: ByteRange) -> Iterable[bytes]:
            resources.callback((source := part.open_source()).close)
            return pieces_body(request.environ, part.pieces(span), source, resources.pop_all())

        return answer(stored, lambda spans, headers: send_span(_only(spans), length, headers, body))


def _send_made(
    found: MadeFile, content_type: str, headers: Mapping[str, str] = NO_HEADERS
) -> Response:
    with ExitStack() as resources:
        made, file = found.open()
        resources.callback(file.close)
        stored = _stored(made, made.length, content_type, headers)

        def body(span: ByteRange) -> Iterable[bytes]:
            resources.pop_all()
            file.seek(span.start)
            return span_body(request.environ, file, span)

        length = stored.length
        return answer(stored, lambda spans, headers: send_span(_only(spans), length, headers, body))


def _only(spans: list[ByteRange]) -> list[ByteRange]:
    """One range, as players request; several ranges get the whole file (RFC 9110, 14.2)."""
    return spans if len(spans) == 1 else []


def _stored(
    made: Made,
    length: int,
    content_type: str,
    more: Mapping[str, str] = NO_HEADERS,
) -> Stored:
    """A derived file never changes in place: a replacement has a new version."""
    changed_at = made.made_at.replace(microsecond=0)
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": quote_etag(made.version),
        "Last-Modified": http_date(changed_at),
        "Cache-Control": CACHING,
        "Content-Security-Policy": SANDBOX,
        "Cross-Origin-Resource-Policy": "same-origin",
        **more,
    }
    return Stored(length, content_type, Validators(made.version, changed_at), headers)

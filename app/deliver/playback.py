"""GET and HEAD of files for players: /media/{id}/play.mp4, its HLS, images and subtitles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import PurePosixPath
from types import MappingProxyType

from flask import Blueprint, request
from werkzeug.wrappers import Response

from app.core.access import Action
from app.core.errors import NotMade
from app.core.lifecycle import UploadState
from app.core.playback import Made
from app.core.ranges import ByteRange
from app.core.upload import Upload, parse_upload_id
from app.deliver import media
from app.deliver.bodies import pieces_body, span_body
from app.deliver.conditional import Validators
from app.http.access import requires
from app.http.context import ViewContext, note_upload
from app.ingest.connection import has_left
from app.video.serve.library import CONTENT_TYPES, MadeFile, VirtualPart, subtitles_of
from app.video.serve.playlists import Subtitles

blueprint = Blueprint("playback", __name__, url_prefix="/media/<upload_id>")

NO_HEADERS: Mapping[str, str] = MappingProxyType({})

PLAYLIST = "application/vnd.apple.mpegurl"


@blueprint.get("/play.mp4")
@requires(Action.WATCH)
def play(ctx: ViewContext, upload_id: str) -> Response:
    """The video as an MP4 file that starts to play at once."""
    video = _video(ctx, upload_id)
    return _send_virtual(ctx.services.media.library.play_file(video), "video/mp4")


@blueprint.get("/hls/master.m3u8")
@requires(Action.WATCH)
def master(ctx: ViewContext, upload_id: str) -> Response:
    """The playlist of all renditions, audio tracks and subtitles."""
    video = _video(ctx, upload_id)
    formats = ctx.services.media.renditions.formats(video)
    subtitles = _subtitles(ctx, video)
    return _playlist(ctx.services.media.playlists.master(video, formats, subtitles))


@blueprint.get("/hls/<stream>/index.m3u8")
@requires(Action.WATCH)
def playlist(ctx: ViewContext, upload_id: str, stream: str) -> Response:
    """The playlist of one stream."""
    return _playlist(ctx.services.media.playlists.of_stream(_video(ctx, upload_id), stream))


@blueprint.get("/hls/subs-<text>/index.m3u8")
@requires(Action.WATCH)
def subtitles_playlist(ctx: ViewContext, upload_id: str, text: str) -> Response:
    """The playlist of subtitles, which are one file."""
    video = _video(ctx, upload_id)
    found = next((each for each in _subtitles(ctx, video) if each.name == f"subs-{text}"), None)
    if found is None:
        raise NotMade("The video has no such subtitles.")
    return _playlist(ctx.services.media.playlists.of_subtitles(video.id, found))


@blueprint.get("/hls/<stream>/<int:number>.m4s")
@requires(Action.WATCH)
def segment(ctx: ViewContext, upload_id: str, stream: str, number: int) -> Response:
    """One segment; they are counted from 1."""
    found = ctx.services.media.library.segment(_video(ctx, upload_id), stream, number)
    return _send_virtual(found, "video/iso.segment")


@blueprint.get("/hls/<stream>/init.mp4")
@requires(Action.WATCH)
def initialization(ctx: ViewContext, upload_id: str, stream: str) -> Response:
    """The initialization segment of a stream."""
    found = ctx.services.media.library.initialization(_video(ctx, upload_id), stream)
    return _send_made(found, "video/mp4")


@blueprint.get("/hls/<int:quality>/index.m3u8")
@requires(Action.WATCH)
def rung_playlist(ctx: ViewContext, upload_id: str, quality: int) -> Response:
    """The playlist of the video track of a rendition."""
    return _playlist(ctx.services.media.renditions.playlist(_video(ctx, upload_id), quality))


@blueprint.get("/hls/<int:quality>/<int:number>.m4s")
@requires(Action.WATCH)
def rung_segment(ctx: ViewContext, upload_id: str, quality: int, number: int) -> Response:
    """One segment of a rendition, once it is encoded; segments are counted from 1."""
    video, renditions = _video(ctx, upload_id), ctx.services.media.renditions
    found = renditions.segment(video, quality, number, _is_awaited)
    return _send_made(found, "video/iso.segment")


@blueprint.get("/hls/<int:quality>/init.mp4")
@requires(Action.WATCH)
def rung_initialization(ctx: ViewContext, upload_id: str, quality: int) -> Response:
    """The initialization segment of a rendition."""
    video, renditions = _video(ctx, upload_id), ctx.services.media.renditions
    found = renditions.initialization(video, quality, _is_awaited)
    return _send_made(found, "video/mp4")


@blueprint.get("/renditions/<int:quality>.mp4")
@requires(Action.DOWNLOAD)
def rendition(ctx: ViewContext, upload_id: str, quality: int) -> Response:
    """A rendition of the whole video, to be downloaded."""
    video = _video(ctx, upload_id)
    filename = f"{PurePosixPath(video.filename).stem} {quality}p.mp4"
    disposition = media.content_disposition(filename, is_attachment=True)
    found = ctx.services.media.renditions.file(video, quality)
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
    found = ctx.services.media.library.made(_video(ctx, upload_id), name)
    return _send_made(found, found.content_type)


def _subtitles(ctx: ViewContext, video: Upload) -> list[Subtitles]:
    """Embedded and external subtitles of a video; none while it arrives."""
    if video.state is not UploadState.COMPLETE:
        return []
    (view,) = ctx.services.media.library.playbacks([video])
    return [*subtitles_of(view), *ctx.services.media.text_files.of(video)]


def _is_awaited() -> bool:
    return not has_left(request.environ)


def _video(ctx: ViewContext, upload_id: str) -> Upload:
    return note_upload(ctx.services.media.library.watched(ctx.scope, parse_upload_id(upload_id)))


def _playlist(text: str) -> Response:
    return _text(text, PLAYLIST)


def _text(text: str, content_type: str) -> Response:
    headers = {"Cache-Control": media.CACHING, "Content-Security-Policy": media.SANDBOX}
    return Response(text, content_type=content_type, headers=headers)


def _send_virtual(part: VirtualPart, content_type: str) -> Response:
    with ExitStack() as resources:
        resources.callback(part.file.close)
        stored = _stored(part.made, part.span.length, content_type)

        def body(span: ByteRange) -> Iterable[bytes]:
            resources.callback((source := part.open_source()).close)
            return pieces_body(request.environ, part.pieces(span), source, resources.pop_all())

        return _answer(stored, body)


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

        return _answer(stored, body)


def _answer(stored: media.Stored, body: Callable[[ByteRange], Iterable[bytes]]) -> Response:
    """One range, as players request; several ranges get the whole file (RFC 9110, 14.2)."""

    def send(spans: list[ByteRange], headers: dict[str, str]) -> Response:
        only = spans if len(spans) == 1 else []
        return media.send_span(only, stored.length, headers, body)

    return media.answer(stored, send)


def _stored(
    made: Made, length: int, content_type: str, more: Mapping[str, str] = NO_HEADERS
) -> media.Stored:
    """A derived file never changes in place: a replacement has a new version.

    A later version of the index may segment videos differently, so clients revalidate each time.
    """
    validators = Validators(made.version, made.made_at.replace(microsecond=0))
    headers = {**media.stored_headers(validators, policy=media.SANDBOX), **more}
    return media.Stored(length, content_type, validators, headers)

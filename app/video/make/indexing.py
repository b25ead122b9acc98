"""The steps that need no ffmpeg for MP4 and MOV: `index` and `subtitles`.

`index` is the first examination of a file, and makes most videos playable.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from io import RawIOBase

from app.core.jobs import REMUX, SOUND, Heartbeat, Job, JobCancelled, Lane
from app.core.playback import PlaybackProblem, PlaybackState
from app.core.upload import Upload
from app.video.index.boxes import NotIndexable, ReadAt
from app.video.index.movie import Movie
from app.video.index.texts import (
    Cue,
    escaped,
    read_chapters,
    read_cues,
    subtitle_tracks,
    webvtt,
    within_limit,
)
from app.video.make.ffmpeg import FfmpegFailed, FfmpegInterrupted, FfmpegMissing, FfmpegStopped
from app.video.make.pictures import PICTURES
from app.video.make.probe import HEAD_BYTES, Contents, contents_of, is_no_video
from app.video.make.remux import lane_of
from app.video.make.sound import WAVEFORM
from app.video.make.steps import (
    NO_FFMPEG,
    NO_RENDITIONS,
    StepTools,
    leave_quick_lane,
    needing_index,
    probe_limits,
    wait_for_short_ones,
)
from app.video.make.video_files import (
    can_be_rendered,
    is_playable,
    keep_play_file,
    keep_streams,
    sounds_to_encode,
)
from app.video.serve.facts import MANIFEST, SOUND_FILE, Facts, plays_without_index
from app.video.serve.source import REMUXED, reader


def index(tools: StepTools, job: Job, beat: Heartbeat) -> None:
    """Index a complete file, store its metadata, and queue the next steps."""
    with tools.opened(job.upload_id) as (video, source):
        try:
            movie, read_at = tools.read_movie(job, source)
            facts = Facts.of(movie, read_chapters(movie, read_at))
            if is_playable(movie):
                keep_play_file(movie, video.id, tools.files, read_at=read_at)
        except NotIndexable as error:
            examine(tools, video, source, error, beat)
            return
        known = tools.media.get(video.id)
        if known is not None and known.facts is not None and tools.has(video.id, REMUXED):
            # The remuxed copy was indexed: the facts are those of the original.
            facts = Facts.from_json(known.facts).completed_by(facts)
        if is_playable(movie):
            tools.describe(video.id, PlaybackState.PLAYABLE, facts, facts.problem)
            keep_streams(movie, video.id, tools.files, read_at=read_at)
        else:
            _describe_unplayed(tools, video, movie, facts, read_at)
        _queue_what_follows(tools, video, movie, facts)


def _describe_unplayed(
    tools: StepTools, video: Upload, movie: Movie, facts: Facts, read_at: ReadAt
) -> None:
    """Describe a video that no browser plays: it becomes playable once a track is encoded."""
    is_sound = movie.picture is None and bool(sounds_to_encode(movie))
    if can_be_rendered(movie, tools.capability()) or (is_sound and tools.has(video.id, SOUND_FILE)):
        keep_streams(movie, video.id, tools.files, read_at=read_at)
    if tools.has(video.id, MANIFEST):
        tools.describe(video.id, PlaybackState.PLAYABLE, facts, facts.problem)
        return
    if is_sound and tools.ffmpeg.ffmpeg is not None:
        tools.describe(video.id, PlaybackState.PROBED, facts)
        return
    codecs = ", ".join(track.codec for track in facts.tracks if track.kind in {"video", "audio"})
    code = NO_RENDITIONS
    detail = (
        f"Browsers cannot play what is in this file ({codecs}), and the server does not "
        "offer renditions of it."
    )
    if tools.ffmpeg.ffmpeg is None:
        code = NO_FFMPEG
        detail = (
            f"Browsers cannot play what is in this file ({codecs}). To convert it, the "
            "server needs ffmpeg, which is not installed."
        )
    tools.describe(video.id, PlaybackState.UNPLAYABLE, facts, PlaybackProblem(code, detail))


def _queue_what_follows(tools: StepTools, video: Upload, movie: Movie, facts: Facts) -> None:
    """Queue the automatic steps; shortest first."""
    if facts.chapters or facts.of_kind("text"):
        tools.enqueue(video.id, SUBTITLES, Lane.BACKGROUND, 10)
    if tools.ffmpeg.ffmpeg is None:
        return
    # If its segments lack audio. An audio file that plays needs no encoding.
    has_segments = tools.has(video.id, MANIFEST) if movie.picture else not is_playable(movie)
    if has_segments and sounds_to_encode(movie) and not tools.has(video.id, SOUND_FILE):
        tools.enqueue(video.id, SOUND, Lane.BACKGROUND, 15)
    if movie.picture is not None:
        tools.enqueue(video.id, PICTURES, Lane.BACKGROUND, 20)
    elif movie.sounds:
        tools.enqueue(video.id, WAVEFORM, Lane.BACKGROUND, 30)


# ---- other formats -------------------------------------------------------------------------------

# Files that cannot be indexed as they are: detects their contents, and queues the next step.


INDEXED_TYPES = frozenset({"video/mp4", "video/quicktime"})
"""File types that are indexed; browsers play none that cannot be indexed."""

EXAMINED = frozenset({"not_mp4", "damaged", "no_tracks"})
"""Codes of `NotIndexable` for which ffmpeg may still find a video."""

NO_VIDEO = PlaybackProblem(
    "no_film", "This is neither a video nor an audio file, as far as the server can tell."
)
NEEDS_FFMPEG = PlaybackProblem(
    NO_FFMPEG,
    "This is no MP4 or MOV file. For other videos the server needs ffmpeg, which is not installed.",
)


def is_played_as_it_is(video: Upload) -> bool:
    """Whether browsers may play the file without an index, such as a WebM or MP3 file."""
    return video.is_playable and video.content_type not in INDEXED_TYPES


def examine(
    tools: StepTools, video: Upload, source: RawIOBase, error: NotIndexable, beat: Heartbeat
) -> None:
    """Examine any open file; `error` is the reason why it cannot be indexed.

    Stores its metadata, and queues the step that makes it playable. Raises `JobYields` if videos
    with a short index come first.
    """
    unreadable = PlaybackProblem(error.code, error.detail)
    if error.code not in EXAMINED:
        tools.describe(video.id, PlaybackState.UNPLAYABLE, problem=unreadable)
        return
    head = reader(source)(0, HEAD_BYTES)
    if is_no_video(head, video.filename):
        tools.describe(video.id, PlaybackState.UNPLAYABLE, problem=NO_VIDEO)
        return
    wait_for_short_ones(beat.job)
    try:
        with tools.source.on_disk(source, beat.go_on, only_ends=True) as path:
            answer = tools.ffmpeg.probe(path, probe_limits(beat.job), stop=beat.stop)
    except FfmpegStopped as stopped:
        raise JobCancelled(str(stopped)) from stopped
    except FfmpegMissing:
        _describe_unknown(tools, video, NEEDS_FFMPEG)
    except FfmpegInterrupted as interrupted:
        leave_quick_lane(beat.job)
        _describe_unknown(
            tools,
            video,
            PlaybackProblem("not_examined", f"The file could not be examined: {interrupted}."),
        )
    except FfmpegFailed:
        problem = NO_VIDEO if error.code == "not_mp4" else unreadable
        tools.describe(video.id, PlaybackState.UNPLAYABLE, problem=problem)
    else:
        _decide(tools, video, contents_of(answer), beat.job)


def _decide(tools: StepTools, video: Upload, contents: Contents, job: Job) -> None:
    facts = contents.facts
    if not contents.has_media:
        tools.describe(video.id, PlaybackState.UNPLAYABLE, problem=NO_VIDEO)
        return
    plays = is_played_as_it_is(video) and plays_without_index(
        *(track.codec for track in facts.tracks if track.kind in {"video", "audio"})
    )
    state = PlaybackState.PLAYABLE if plays else PlaybackState.PROBED
    tools.describe(video.id, state, facts, facts.problem)
    if tools.ffmpeg.ffmpeg is None:
        return  # Only ffprobe is installed.
    # Unplayable videos come before those that only get thumbnails.
    if not plays:
        tools.enqueue(video.id, REMUX, *lane_of(contents, video.length or 0, job.lane))
    elif contents.picture is None:
        tools.enqueue(video.id, WAVEFORM, Lane.BACKGROUND, 30)
    else:
        tools.enqueue(video.id, REMUX, Lane.BACKGROUND, 40)


def _describe_unknown(tools: StepTools, video: Upload, problem: PlaybackProblem) -> None:
    if is_played_as_it_is(video):
        tools.describe(video.id, PlaybackState.PLAYABLE)
    else:
        tools.describe(video.id, PlaybackState.UNPLAYABLE, problem=problem)


# ---- subtitles -----------------------------------------------------------------------------------

# The step `subtitles`: writes text tracks and chapters of a video as WebVTT files.


SUBTITLES = "subtitles"

CHAPTERS = "chapters.vtt"
"""Name of a derived file. Subtitle files have the number of their track among all
text tracks of the video, from 1 on."""

SHORTEST_CHAPTER = Fraction(1, 1000)


def write_subtitles(tools: StepTools, job: Job, beat: Heartbeat) -> None:
    """Write the files of an indexed video. A track that cannot be read is left out."""
    with tools.opened(job.upload_id) as (video, source):
        with needing_index():
            movie, read_at = tools.read_movie(job, source)

        def reading(offset: int, count: int) -> bytes:
            beat.go_on()  # A track has up to 100 000 samples.
            return read_at(offset, count)

        for name, cues in _files(movie, reading):
            if cues:
                with tools.files.writing(video.id, name) as target:
                    target.write(webvtt(cues).encode())


def _files(movie: Movie, read_at: ReadAt) -> Iterator[tuple[str, list[Cue]]]:
    """Yields the name and the cues of each file."""
    chapters = read_chapters(movie, read_at)
    ends = [*(chapter.start for chapter in chapters[1:]), movie.duration]
    cues = [
        Cue(chapter.start, end, escaped(chapter.title))
        for chapter, end in zip(chapters, ends, strict=False)
        if end - chapter.start >= SHORTEST_CHAPTER and chapter.title.strip()
    ]
    yield CHAPTERS, cues
    readable = {track.id for track in subtitle_tracks(movie)}
    texts = (track for track in movie.tracks if track.kind == "text")
    for number, track in enumerate(texts, start=1):
        if track.id in readable:
            with suppress(NotIndexable):
                yield f"subs-{number}.vtt", list(within_limit(read_cues(track, read_at)))

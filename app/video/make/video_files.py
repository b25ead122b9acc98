"""Writes the files that players load of an indexed video: `play.mp4`, and tracks in segments."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from fractions import Fraction
from io import RawIOBase
from pathlib import Path

from app.core.upload import UploadId
from app.video.index.boxes import NotIndexable, ReadAt
from app.video.index.fast_start import fast_start
from app.video.index.movie import Movie, read_movie
from app.video.index.samples import MAX_ENTRIES
from app.video.index.segments import (
    MOST_PACKETS,
    RenditionCuts,
    SegmentedTrack,
    can_begin_late,
    independent_key_frames,
    segmented_sound,
    segmented_video,
    silent_packets,
)
from app.video.index.tracks import Track
from app.video.index.virtual_file import VirtualFileWriter
from app.video.serve.derived_files import DerivedFiles
from app.video.serve.facts import (
    MANIFEST,
    PLAY_FILE,
    SOUND_FILE,
    Manifest,
    Stream,
    plays_audio,
    plays_segmented_audio,
    plays_video,
)
from app.video.serve.ladder import Capability, is_decoded, is_decoded_in_time
from app.video.serve.source import length_of, reader

SOURCE = "source"
"""Name of the stream of the original video track."""

STREAM_FILES = ("init.mp4", "segments.virtual")
"""In the folder of a stream."""

log = logging.getLogger(__name__)


def is_playable(movie: Movie) -> bool:
    """Whether browsers play its video track, or an audio track if it has no video."""
    if movie.picture is not None:
        return plays_video(movie.picture.codec)
    return any(plays_audio(track.codec) for track in movie.sounds)


def can_be_rendered(movie: Movie, capability: Capability | None) -> bool:
    """Whether this host can make renditions of it, which browsers play."""
    picture = movie.picture
    if capability is None or picture is None or not is_decoded(picture):
        return False
    pixels = picture.samples.longest_group * picture.width * picture.height
    if not is_decoded_in_time(pixels, capability):
        return False
    try:
        segmented_video(picture)
    except NotIndexable:
        return False
    return True


def sounds_to_encode(movie: Movie) -> list[Track]:
    """Audio tracks that not every browser plays in segments, or that begin late without silence.

    Tracks with a duplicate id, which no file should have, are left out: ffmpeg would confuse them.
    """
    owners = Counter(track.id for track in movie.stored_tracks)
    return [
        track
        for track in movie.sounds
        if not (plays_segmented_audio(track.codec) and can_begin_late(track))
        and owners[track.id] == 1
    ]


def keep_play_file(
    movie: Movie, video_id: UploadId, files: DerivedFiles, *, read_at: ReadAt
) -> None:
    """Write the video as one virtual MP4 file; `read_at` reads the original."""
    with files.writing(video_id, PLAY_FILE) as target:
        writer = VirtualFileWriter(target)
        writer.extend(fast_start(movie, read_at))
        writer.finish()


def keep_streams(
    movie: Movie,
    video_id: UploadId,
    files: DerivedFiles,
    *,
    read_at: ReadAt,
    new_sound: Path | None = None,
) -> None:
    """Write a stream for each track that browsers play; none if HLS cannot express the video.

    A video track that only ffmpeg decodes gets a stream, too: renditions are made of it. Audio that
    browsers do not play is taken from `SOUND_FILE`, if that exists. `new_sound` replaces that file,
    in the same transaction: a player that sees the file reads the playlists once, and would play
    without sound if they did not list it yet. `read_at` reads the original.
    """
    encoded = encoded_sounds(movie, files, video_id, new_sound)
    also = {SOUND_FILE: new_sound} if new_sound else {}
    with files.scratch.folder() as making:
        try:
            streams = [_write_stream(*cut, making) for cut in _cut(movie, encoded)]
            picture = movie.picture
            if picture is not None and plays_video(picture.codec):
                keys = picture.samples.key_frames
                if len(independent_key_frames(picture, read_at)) < len(keys):
                    streams[0] = replace(streams[0], has_open_groups=True)
        except NotIndexable as error:
            log.info("the video has no segments: %s", error, extra={"upload_id": video_id})
            streams = []
        manifest = Manifest(streams).to_json()
        made = {
            f"hls/{stream.name}/{name}": making / stream.name / name
            for stream in streams
            for name in STREAM_FILES
        }
        with suppress(FileNotFoundError):
            if files.read(video_id, MANIFEST) == manifest and all(
                files.find(video_id, name) is not None for name in made
            ):
                made = {}  # Made during the upload; a client may be playing it.
        if not streams:
            files.discard(video_id, MANIFEST)
        elif made:
            (making / MANIFEST).write_bytes(manifest)
            made[MANIFEST] = making / MANIFEST
        if made or also:
            files.keep(video_id, {**made, **also})


def encoded_sounds(
    movie: Movie, files: DerivedFiles, video_id: UploadId, new: Path | None = None
) -> Mapping[int, Track]:
    """The encoded audio tracks, by the id of the original one: of `SOUND_FILE`, or of `new`."""
    try:
        file = new.open("rb", buffering=0) if new else files.open(video_id, SOUND_FILE)[1]
    except FileNotFoundError:
        return {}
    with closing(file):
        return sounds_in(file, movie)


def sounds_in(file: RawIOBase, movie: Movie) -> Mapping[int, Track]:
    """The same, from an open file.

    Tracks that could not be decoded are missing: ffmpeg numbers all requested tracks from 1 on.
    """
    try:
        # As long as the audio of the movie, which was already read.
        found = read_movie(reader(file), length_of(file), most_entries=MAX_ENTRIES)
        made = {track.id: track for track in found.sounds}
    except NotIndexable:
        return {}
    return {
        original.id: replace(made[number], language=original.language, title=original.title)
        for number, original in enumerate(sounds_to_encode(movie), start=1)
        if number in made
    }


def _cut(movie: Movie, encoded: Mapping[int, Track]) -> Iterator[tuple[str, SegmentedTrack, str]]:
    """Yields name, track and derived file of each stream; audio is cut like the video track."""
    if sum(map(silent_packets, movie.sounds)) > MOST_PACKETS:
        raise NotIndexable("late_sound", "Many tracks of the video begin late.")
    times: list[Fraction] = []
    if movie.picture and (plays_video(movie.picture.codec) or is_decoded(movie.picture)):
        picture = segmented_video(movie.picture)
        times = [Fraction(start, picture.track.timescale) for start in picture.starts[1:-1]]
        yield SOURCE, picture, ""
    for number, track in enumerate(movie.sounds, start=1):
        # If HLS cannot express one of them, there is only play.mp4, which has all audio tracks.
        if other := encoded.get(track.id):
            yield f"audio-{number}", segmented_sound(other, times), SOUND_FILE
        elif plays_segmented_audio(track.codec):
            yield f"audio-{number}", segmented_sound(track, times), ""


def _write_stream(name: str, cut: SegmentedTrack, file: str, making: Path) -> Stream:
    """Write the files of a stream in `making`; returns its entry in the manifest."""
    folder, track = making / name, cut.track
    folder.mkdir()
    (folder / "init.mp4").write_bytes(cut.initialization)
    ends: list[int] = []
    durations: list[float] = []
    reaches: list[int] = []
    with (folder / "segments.virtual").open("xb") as target:
        writer = VirtualFileWriter(target)
        for segment in cut.segments():
            writer.add(segment.head)
            writer.add_ranges(segment.starts, segment.ends)
            ends.append(writer.position)
            reaches.append(max(segment.ends, default=0))
            # Differences of rounded times, so that rounding errors do not accumulate.
            stop = round(float(segment.start + segment.duration), 6)
            durations.append(round(stop - round(float(segment.start), 6), 6))
        writer.finish()
    stream = replace(Stream.of(name, track, ends, durations, reaches), file=file)
    if track.kind != "video":
        return stream
    # Renditions are made of it.
    of_renditions = RenditionCuts.of(cut).durations
    return replace(
        stream,
        rung_durations=() if of_renditions == stream.durations else of_renditions,
        longest_group=track.samples.longest_group,
        is_played=plays_video(track.codec),
    )

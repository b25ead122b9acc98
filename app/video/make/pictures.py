"""The step `pictures`: a poster of a video, and thumbnails for seeking.

Only the wanted frames are read and decoded, mostly key frames: thumbnails of two hours of video
cost 0.55 CPU s, and 13.8 with ffmpeg's `-skip_frame nokey` (`python -m bench pictures`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from threading import Event

from app.core.jobs import Job, Lane
from app.core.lifecycle import UploadState
from app.video.index.boxes import ReadAt
from app.video.index.movie import Movie
from app.video.index.texts import Cue, webvtt
from app.video.index.tracks import Track
from app.video.make import excerpts
from app.video.make.excerpts import Excerpt
from app.video.make.ffmpeg import Conversion, Ffmpeg, FfmpegFailed, FfmpegInterrupted, tone_mappings
from app.video.make.sandbox.process import ProgramLimits
from app.video.make.steps import (
    QUICK_CPU_SECONDS,
    Heartbeat,
    StepTools,
    as_job_errors,
    leave_quick_lane,
    needing_index,
)

PICTURES = "pictures"

EARLY_POSTER = "poster"
"""The step that makes a poster during the upload."""

POSTER, SPRITE, THUMBNAILS = "poster.jpg", "sprite.jpg", "thumbs.vtt"
"""Names of files in the folder of a video."""

POSTER_PIXELS = 1280
"""Longest side of a poster; smaller videos have smaller posters."""

POSTER_PLACES = [Fraction(percent, 100) for percent in (10, 20, 35, 50, 70)]
"""Positions of candidate frames for the poster, as fractions of the video."""

FEWEST_TRIED = 3
"""Fewer key frames may all be black: then the start of the video is decoded."""

PICTURES_OF_BEGINNING = 8

THUMBNAIL_PIXELS = 160
"""Longest side of a thumbnail."""

MOST_THUMBNAILS, COLUMNS = 100, 10
SHORTEST_SECONDS = 1
"""Minimum interval of thumbnails."""

MOST_DECODED_PIXELS = 1_000_000_000
"""Decoding limit if key frames are rare: 20 s of 1080p24."""

MOST_EARLY_PIXELS = 50_000_000
"""The same for an early poster, while indexes of other videos wait: 1 s of 1080p24."""

LUMA_SIZE = (64, 36)
LUMA_LEVELS = 32

JPEG_QUALITY = ("-q:v", "3")


class Pictures:
    """Makes poster and thumbnails of an indexed video."""

    def __init__(self, tools: StepTools) -> None:
        self._tools = tools

    def __call__(self, job: Job, beat: Heartbeat) -> None:
        """Do the job; does nothing for a file without a video track."""
        folder = self._tools.folder
        with (
            self._tools.opened(job.upload_id) as (video, source),
            folder.scratch_folder() as scratch,
        ):
            with needing_index():
                movie, read_at = self._tools.read_movie(job, source)
            if (picture := movie.picture) is None:
                return
            maker = PictureMaker(self._tools.ffmpeg, scratch, read_at, beat.stop)
            with as_job_errors("no_pictures", "No pictures can be made of this film"):
                folder.keep(maker.poster(picture, pixels=MOST_DECODED_PIXELS), video.id, POSTER)
                beat(0.2)
                sprite, thumbnails = maker.sprite(movie, picture)
                folder.keep(sprite, video.id, SPRITE)
                folder.keep(thumbnails, video.id, THUMBNAILS)


class EarlyPoster:
    """Makes a poster from the start of a video during its upload."""

    def __init__(self, tools: StepTools) -> None:
        self._tools = tools

    def __call__(self, job: Job, beat: Heartbeat) -> None:
        """Do the job. A complete video gets its poster from `Pictures`."""
        folder = self._tools.folder
        video = self._tools.uploads.get(job.upload_id)
        if video.state is UploadState.COMPLETE:
            return
        with closing(self._tools.source.open(video)) as source, folder.scratch_folder() as scratch:
            with needing_index():
                movie, read_at = self._tools.read_movie(job, source)
            if (picture := movie.picture) is None:
                return
            arrived = picture.samples.up_to(picture.samples.count_within(video.offset))
            most = QUICK_CPU_SECONDS if job.lane is Lane.QUICK else math.inf
            maker = PictureMaker(self._tools.ffmpeg, scratch, read_at, beat.stop, most)
            with as_job_errors("no_pictures", "No early poster can be made of this film"):
                try:
                    poster = maker.poster(
                        replace(picture, samples=arrived), pixels=MOST_EARLY_PIXELS
                    )
                except FfmpegInterrupted:
                    leave_quick_lane(job)
                    raise
            if folder.find(video.id, POSTER) is None:
                folder.keep(poster, video.id, POSTER)


@dataclass(frozen=True, slots=True)
class PictureMaker:
    """Makes images in a folder."""

    ffmpeg: Ffmpeg
    scratch: Path
    read_at: ReadAt
    stop: Event
    most_cpu_seconds: float = math.inf
    """Upper limit for a run of ffmpeg; the limit of a run is lower if its frames need less."""

    def poster(self, picture: Track, *, pixels: int) -> Path:
        """The best of several frames; decodes at most `pixels` if key frames are rare."""
        excerpt = _for_poster(picture, self.read_at, pixels=pixels)
        size = _fitted(picture, POSTER_PIXELS)
        luma = f"scale={LUMA_SIZE[0]}:{LUMA_SIZE[1]}:flags=area,format=gray"
        outputs = ["-map", "[shown]", *JPEG_QUALITY, "-f", "image2", "poster-%d.jpg"]
        outputs += ["-map", "[luma]", "-f", "rawvideo", "-"]
        graph = f",split[shown][copy];[copy]{luma}[luma]"
        levels = self._run(excerpt, size, graph, outputs)
        area = LUMA_SIZE[0] * LUMA_SIZE[1]
        found = [levels[start : start + area] for start in range(0, len(levels), area)]
        if not found:
            raise FfmpegFailed("nothing in it could be decoded")
        best = max(range(len(found)), key=lambda number: detail(found[number]))
        return self.scratch / f"poster-{best + 1}.jpg"

    def sprite(self, movie: Movie, picture: Track) -> tuple[Path, Path]:
        """The thumbnails in one file, and the WebVTT file with their times."""
        excerpt = _for_sprite(movie, picture, self.read_at)
        size, count = _fitted(picture, THUMBNAIL_PIXELS), len(excerpt.starts)
        grid = f"{min(count, COLUMNS)}x{math.ceil(count / COLUMNS)}"
        outputs = ["-map", "[sheet]", *JPEG_QUALITY, "-frames:v", "1", "-f", "image2"]
        outputs += ["-update", "1", SPRITE]
        self._run(excerpt, size, f",tile={grid}:nb_frames={count}[sheet]", outputs)
        sprite, thumbnails = self.scratch / SPRITE, self.scratch / THUMBNAILS
        if not sprite.exists():
            raise FfmpegFailed("nothing in it could be decoded")
        thumbnails.write_text(_thumbnails(excerpt.starts, movie.duration, size))
        return sprite, thumbnails

    def _run(
        self, excerpt: Excerpt, size: tuple[int, int], graph: str, outputs: Sequence[str]
    ) -> bytes:
        """Decode an excerpt and scale its frames; returns standard output."""
        files = list(excerpt.write(self.read_at, self.scratch))
        for tones in tone_mappings(excerpt.track.hdr):
            whole = f"{_picked(excerpt)},{_scaled(size, tones)}{graph}"
            conversion = Conversion(
                [*_inputs(excerpt, files), "-y", "-filter_complex", whole, *outputs],
                readable=files,
                writable=self.scratch,
                limits=_limits(excerpt, self.most_cpu_seconds),
                formats="mov",
            )
            try:
                return self.ffmpeg.run(conversion, stop=self.stop)
            except FfmpegFailed:
                if not tones:
                    raise
        raise AssertionError("the last attempt has returned or raised")


def detail(levels: bytes) -> float:
    """The amount of detail in a frame: entropy of its luma in bits; 0 for a black frame.

    It is low for fades, which have few levels, and for titles, which have mostly two.
    """
    counts = [0] * LUMA_LEVELS
    for level in levels:
        counts[level * LUMA_LEVELS // 256] += 1
    shares = [count / len(levels) for count in counts if count]
    return -sum(share * math.log2(share) for share in shares)


def _inputs(excerpt: Excerpt, files: Sequence[Path]) -> list[str]:
    arguments: list[str] = []
    for part, file in zip(excerpt.parts, files, strict=True):
        arguments += ["-threads", "1", "-itsoffset", str(part.begin), "-i", str(file)]
    return arguments


def _picked(excerpt: Excerpt) -> str:
    """Filters for exactly the wanted frames; a damaged frame is replaced by the previous one."""
    parts = "".join(f"[{number}:v]" for number in range(len(excerpt.parts)))
    joined = f"{parts}interleave={len(excerpt.parts)}," if len(excerpt.parts) > 1 else parts
    return f"{joined}fps=fps={excerpt.rate}:start_time=0:eof_action=pass"


def _for_poster(picture: Track, read_at: ReadAt, *, pixels: int) -> Excerpt:
    times = [place * picture.duration for place in POSTER_PLACES]
    numbers = excerpts.key_frames_near(picture, times)
    if len(numbers) < FEWEST_TRIED:
        count = excerpts.count_within(picture, pixels=pixels)
        if count > len(numbers):
            return excerpts.of_beginning(picture, count, pictures=PICTURES_OF_BEGINNING)
    return excerpts.of_key_frames(picture, numbers, read_at)


def _for_sprite(movie: Movie, picture: Track, read_at: ReadAt) -> Excerpt:
    """One frame for each of equal parts of the video; key frames unless those are rare."""
    count = min(max(math.ceil(movie.duration / SHORTEST_SECONDS), 1), MOST_THUMBNAILS)
    times = [movie.duration * number / count for number in range(count)]
    numbers = excerpts.key_frames_near(picture, times)
    if 2 * len(numbers) < count:
        fitting = excerpts.count_within(picture, pixels=MOST_DECODED_PIXELS)
        if fitting == len(picture.samples):
            return excerpts.of_beginning(picture, fitting, pictures=count)
    return excerpts.of_key_frames(picture, numbers, read_at)


def _fitted(picture: Track, longest: int) -> tuple[int, int]:
    """Display width and height, scaled down to at most `longest`."""
    width, height = max(picture.width, 1), max(picture.height, 1)
    scale = min(Fraction(longest, max(width, height)), Fraction(1))
    return max(round(width * scale), 2), max(round(height * scale), 2)


def _scaled(size: tuple[int, int], tones: str) -> str:
    """Filters for images of that size, in JPEG colours (JFIF: BT.601, full range)."""
    width, height = size
    jpeg = f"scale={width}:{height}:out_color_matrix=bt601:out_range=full,format=yuvj420p,setsar=1"
    return f"scale={width}:{height},{tones},{jpeg}" if tones else jpeg


def _limits(excerpt: Excerpt, most_cpu_seconds: float) -> ProgramLimits:
    """Generous: a slow machine decodes 50 megapixels a second."""
    return ProgramLimits(
        cpu_seconds=min(10 + excerpt.megapixels / 10, most_cpu_seconds),
        wall_seconds=1800,
        memory_bytes=2 << 30,
        output_bytes=32 << 20,
    )


def _thumbnails(starts: Sequence[Fraction], duration: Fraction, size: tuple[int, int]) -> str:
    """WebVTT file that maps parts of the video to parts of the sprite."""
    width, height = size
    times = [Fraction(), *starts[1:], max(duration, starts[-1])]
    cues = []
    for number, (start, end) in enumerate(pairwise(times)):
        x, y = number % COLUMNS * width, number // COLUMNS * height
        cues.append(Cue(start, end, f"{SPRITE}#xywh={x},{y},{width},{height}"))
    return webvtt(cues)

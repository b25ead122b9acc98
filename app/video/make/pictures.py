"""The step `pictures`: a poster of a video, and thumbnails for seeking.

Only the wanted frames are read and decoded, mostly key frames: thumbnails of two hours of video
cost 0.55 CPU s, and 13.8 with ffmpeg's `-skip_frame nokey` (`python -m bench pictures`).
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from threading import Event

from app.core.jobs import Heartbeat, Job, Lane
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange
from app.video.index.boxes import ReadAt
from app.video.index.movie import Movie
from app.video.index.muxing import mp4_of
from app.video.index.samples import Samples
from app.video.index.segments import is_independent, nal_length_size
from app.video.index.texts import Cue, webvtt
from app.video.index.tracks import Track
from app.video.make.ffmpeg import Conversion, Ffmpeg, FfmpegFailed, FfmpegInterrupted, tone_mappings
from app.video.make.sandbox.process import ProgramLimits
from app.video.make.steps import (
    QUICK_CPU_SECONDS,
    StepTools,
    as_job_errors,
    leave_quick_lane,
    needing_index,
)

PICTURES = "pictures"

EARLY_POSTER = "poster"
"""The step that makes a poster during the upload."""

POSTER, SPRITE, THUMBNAILS = "poster.jpg", "sprite.jpg", "thumbs.vtt"
"""Names of derived files."""

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


def make_pictures(tools: StepTools, job: Job, beat: Heartbeat) -> None:
    """Make poster and thumbnails of an indexed video; nothing for a file without a video track."""
    files = tools.files
    with tools.opened(job.upload_id) as (video, source), files.scratch.folder() as scratch:
        with needing_index():
            movie, read_at = tools.read_movie(job, source)
        if (picture := movie.picture) is None:
            return
        maker = PictureMaker(tools.ffmpeg, scratch, read_at, beat.stop)
        with as_job_errors("no_pictures", "No poster or thumbnails can be made of this video"):
            files.keep(video.id, {POSTER: maker.poster(picture, pixels=MOST_DECODED_PIXELS)})
            beat(0.2)
            sprite, thumbnails = maker.sprite(movie, picture)
            files.keep(video.id, {SPRITE: sprite, THUMBNAILS: thumbnails})


def make_early_poster(tools: StepTools, job: Job, beat: Heartbeat) -> None:
    """Make a poster from the start of a video during its upload.

    A complete video gets its poster from `make_pictures`.
    """
    files, video = tools.files, tools.uploads.get(job.upload_id)
    if video.state is UploadState.COMPLETE:
        return
    with closing(tools.source.open(video)) as source, files.scratch.folder() as scratch:
        with needing_index():
            movie, read_at = tools.read_movie(job, source)
        if (picture := movie.picture) is None:
            return
        arrived = picture.samples.up_to(picture.samples.count_within(video.offset))
        most = QUICK_CPU_SECONDS if job.lane is Lane.QUICK else math.inf
        maker = PictureMaker(tools.ffmpeg, scratch, read_at, beat.stop, most)
        with as_job_errors("no_pictures", "No early poster can be made of this video"):
            try:
                poster = maker.poster(replace(picture, samples=arrived), pixels=MOST_EARLY_PIXELS)
            except FfmpegInterrupted:
                leave_quick_lane(job)
                raise
        if not tools.has(video.id, POSTER):
            files.keep(video.id, {POSTER: poster})


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
        times = [place * picture.duration for place in POSTER_PLACES]
        numbers, count = key_frames_near(picture, times), 0
        if len(numbers) < FEWEST_TRIED:
            count = count_within(picture, pixels=pixels)
        if count > len(numbers):
            excerpt = of_beginning(picture, count, pictures=PICTURES_OF_BEGINNING)
        else:
            excerpt = of_key_frames(picture, numbers, self.read_at)
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
        # One frame for each of equal parts of the video; key frames unless those are rare.
        wanted = min(max(math.ceil(movie.duration / SHORTEST_SECONDS), 1), MOST_THUMBNAILS)
        times = [movie.duration * number / wanted for number in range(wanted)]
        numbers, fitting = key_frames_near(picture, times), 0
        if 2 * len(numbers) < wanted:
            fitting = count_within(picture, pixels=MOST_DECODED_PIXELS)
        if fitting == len(picture.samples):
            excerpt = of_beginning(picture, fitting, pictures=wanted)
        else:
            excerpt = of_key_frames(picture, numbers, self.read_at)
        size, count = _fitted(picture, THUMBNAIL_PIXELS), len(excerpt.starts)
        grid = f"{min(count, COLUMNS)}x{math.ceil(count / COLUMNS)}"
        outputs = ["-map", "[sheet]", *JPEG_QUALITY, "-frames:v", "1", "-f", "image2"]
        outputs += ["-update", "1", SPRITE]
        self._run(excerpt, size, f",tile={grid}:nb_frames={count}[sheet]", outputs)
        sprite, thumbnails = self.scratch / SPRITE, self.scratch / THUMBNAILS
        if not sprite.exists():
            raise FfmpegFailed("nothing in it could be decoded")
        width, height = size
        times = [Fraction(), *excerpt.starts[1:], max(movie.duration, excerpt.starts[-1])]
        cues = []
        for number, (start, end) in enumerate(pairwise(times)):
            x, y = number % COLUMNS * width, number // COLUMNS * height
            cues.append(Cue(start, end, f"{SPRITE}#xywh={x},{y},{width},{height}"))
        thumbnails.write_text(webvtt(cues))
        return sprite, thumbnails

    def _run(
        self, excerpt: Excerpt, size: tuple[int, int], graph: str, outputs: Sequence[str]
    ) -> bytes:
        """Decode an excerpt and scale its frames; returns standard output."""
        inputs, files = [], list(excerpt.write(self.read_at, self.scratch))
        for part, file in zip(excerpt.parts, files, strict=True):
            inputs += ["-threads", "1", "-itsoffset", str(part.begin), "-i", str(file)]
        joined = "".join(f"[{number}:v]" for number in range(len(files)))
        if len(files) > 1:
            joined += f"interleave={len(files)},"
        # Exactly the wanted frames; a damaged one is replaced by the one before it.
        picked = f"{joined}fps=fps={excerpt.rate}:start_time=0:eof_action=pass"
        # In the size of the image and in JPEG colours (JFIF: BT.601, full range).
        scale = f"scale={size[0]}:{size[1]}"
        jpeg = f"{scale}:out_color_matrix=bt601:out_range=full,format=yuvj420p,setsar=1"
        # Generous: a slow machine decodes 50 megapixels a second.
        limits = ProgramLimits(
            cpu_seconds=min(10 + excerpt.megapixels / 10, self.most_cpu_seconds),
            wall_seconds=1800,
            memory_bytes=2 << 30,
            output_bytes=32 << 20,
        )
        for tones in tone_mappings(excerpt.track.entry.hdr):
            scaled = f"{scale},{tones},{jpeg}" if tones else jpeg
            whole = f"{picked},{scaled}{graph}"
            conversion = Conversion(
                [*inputs, "-y", "-filter_complex", whole, *outputs],
                readable=files,
                writable=self.scratch,
                limits=limits,
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


def _fitted(picture: Track, longest: int) -> tuple[int, int]:
    """Display width and height, scaled down to at most `longest`."""
    width, height = max(picture.width, 1), max(picture.height, 1)
    scale = min(Fraction(longest, max(width, height)), Fraction(1))
    return max(round(width * scale), 2), max(round(height * scale), 2)


# ---- excerpts ------------------------------------------------------------------------------------

# Small videos with a few frames of a video, which ffmpeg decodes instead of all of it.


MOST_BYTES = 128 << 20
"""Of one excerpt. If its key frames have more, every second one is left out, repeatedly."""

MOST_PARTS = 25
"""Of one excerpt, likewise: each part needs a decoder with its own memory."""

_HEVC_UNTIED, _HEVC_SPLICED = 21, 16  # CRA_NUT and BLA_W_LP (ITU-T H.265, table 7-1)
_LATER = 0.25  # seconds; ffmpeg ends a video at its last time, and drops a frame at exactly that


class ExcerptTooLarge(FfmpegFailed):
    """Not even one frame fits an excerpt."""


@dataclass(frozen=True, slots=True)
class ExcerptPart:
    """Consecutive samples for one decoder; `begin` in seconds of the excerpt."""

    samples: Samples
    begin: float


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Samples of a track, and the times of the wanted frames."""

    track: Track
    parts: Sequence[ExcerptPart]
    rate: Fraction
    """Wanted frames per second of the excerpt."""
    starts: Sequence[Fraction]
    """Start of the time that each frame represents, in seconds of the video."""
    has_gaps: bool
    """Whether samples in between were left out."""

    @property
    def megapixels(self) -> float:
        """Megapixels to decode."""
        return sum(len(part.samples) for part in self.parts) * _pixels(self.track) / 1e6

    def write(self, read_at: ReadAt, folder: Path) -> Iterator[Path]:
        """Write the parts as MP4 files; `read_at` reads the video."""
        for number, part in enumerate(self.parts):
            path = folder / f"part-{number}.mp4"
            with path.open("wb") as target:
                for piece in mp4_of(self.track, part.samples):
                    if not isinstance(piece, ByteRange):
                        target.write(piece)
                        continue
                    samples = read_at(piece.start, piece.length)
                    if self.has_gaps and self.track.is_hevc:
                        samples = with_splices(samples, nal_length_size(self.track))
                    target.write(samples)
            yield path


def key_frames_near(track: Track, times: Iterable[Fraction]) -> list[int]:
    """Numbers of the key frames nearest to some times of the video, without duplicates."""
    decode_times, keys = track.samples.decode_times, track.samples.key_frames
    found = set()
    for time in times:
        tick = time * track.timescale - track.timeline.shift
        place = bisect_left(keys, bisect_left(decode_times, tick))
        near = keys[max(place - 1, 0) : place + 1] or [0]
        _, nearest = min((abs(decode_times[number] - tick), number) for number in near)
        found.add(nearest)
    return sorted(found)


def of_key_frames(track: Track, numbers: Sequence[int], read_at: ReadAt) -> Excerpt:
    """These key frames, or fewer, each shown for a second; raises `ExcerptTooLarge`."""
    sizes = track.samples.sizes
    while sum(sizes[number] for number in numbers) > MOST_BYTES:
        if len(numbers) == 1:
            raise ExcerptTooLarge("a single frame of it is too large")
        numbers = numbers[::2]
    while len(begins := _begins_of_parts(track, numbers, read_at)) > MOST_PARTS:
        numbers = numbers[::2]
    ends = [*begins[1:], len(numbers)]
    samples, second, parts = track.samples, track.timescale, []
    for begin, end in zip(begins, ends, strict=True):
        count, chosen = end - begin, numbers[begin:end]
        of_part = Samples(
            array("Q", (samples.offsets[number] for number in chosen)),
            array("I", (samples.sizes[number] for number in chosen)),
            array("q", range(0, count * second, second)),
            array("i", bytes(4 * count)),
            range(count),
            count * second,
        )
        parts.append(ExcerptPart(of_part, begin + _LATER))
    return Excerpt(
        track,
        parts,
        Fraction(1),
        [Fraction(max(track.shown_at(number), 0), track.timescale) for number in numbers],
        has_gaps=True,
    )


def of_beginning(track: Track, count: int, *, pictures: int) -> Excerpt:
    """The first `count` samples, with `pictures` wanted frames evenly among them."""
    samples = track.samples.up_to(count)
    lasts = Fraction(max(samples.end - samples.decode_times[0], 1), track.timescale)
    return Excerpt(
        track,
        [ExcerptPart(samples, 0)],
        pictures / lasts,
        [number * lasts / pictures for number in range(pictures)],
        has_gaps=False,
    )


def count_within(track: Track, *, pixels: int) -> int:
    """Number of samples from the start within the limits `pixels` and `MOST_BYTES`."""
    count, left = 0, MOST_BYTES
    for size in track.samples.sizes[: pixels // max(_pixels(track), 1)]:
        left -= size
        if left < 0:
            break
        count += 1
    return count


def with_splices(samples: bytes, length_size: int) -> bytes:
    """Marks HEVC key frames as spliced: the frames before them are missing.

    A key frame in the middle of a video has its order relative to its neighbours; without those,
    decoders output it in the wrong order. This NAL unit type is for splicing (H.265, 3.15).
    """
    marked, start = bytearray(samples), 0
    while start + length_size < len(marked):
        unit = start + length_size
        if marked[unit] >> 1 & 0x3F == _HEVC_UNTIED:
            marked[unit] = _HEVC_SPLICED << 1 | marked[unit] & 1
        start = unit + int.from_bytes(marked[start:unit], "big")
    return bytes(marked)


def _begins_of_parts(track: Track, numbers: Sequence[int], read_at: ReadAt) -> list[int]:
    """Indexes in `numbers` where a new decoder is needed.

    H.264 has no type for splices: a key frame that is not independent (IDR) needs a new decoder.
    """
    later = range(1, len(numbers))
    return [0, *(place for place in later if not is_independent(track, numbers[place], read_at))]


def _pixels(track: Track) -> int:
    return track.entry.width * track.entry.height

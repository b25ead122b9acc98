"""Encodes the video track of one segment with ffmpeg, in the size and rate of a rendition."""

from __future__ import annotations

import logging
import os
import resource
import threading
from contextlib import closing
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path

from app.storage.local.folder import disk_errors
from app.video.index.boxes import NotIndexable, ReadAt
from app.video.index.movie import read_movie
from app.video.index.muxing import mp4_of
from app.video.index.segments import RenditionCuts, SegmentExcerpt
from app.video.index.tracks import Track
from app.video.make.ffmpeg import (
    Conversion,
    Ffmpeg,
    FfmpegError,
    FfmpegFailed,
    FfmpegInterrupted,
    FfmpegMissing,
    FfmpegStopped,
    tone_mappings,
)
from app.video.make.sandbox.process import ProgramLimits
from app.video.serve.ladder import (
    Capability,
    RenditionFormat,
    discard_capability,
    read_capability,
    write_capability,
)
from app.video.serve.scratch import ScratchSpace
from app.video.serve.source import copy_pieces, length_of, reader

DECODER_THREADS, ENCODER_THREADS = 2, 1
"""With more than one thread, the encoder's rate control depends on the progress of its other
threads, and the output differs each time. Decoding and scaling keep a second processor busy."""

X264 = ("-c:v", "libx264", "-preset", "veryfast", "-profile:v", "high", "-crf", "23")
X264_PARAMETERS = "keyint=infinite:scenecut=0:cpu-independent=1"
"""One key frame, at the start of the segment; the same bytes on every processor."""

PEAK_SHARE = 0.8
"""The rate of the encoder's buffer, as a fraction of the peak rate of a segment: the buffer holds
one second, and is nearly full at the start of each segment."""

BT709_PIXELS = 720
"""Shorter side: browsers assume BT.709 for video without colour information from this size on, and
BT.601 below it. So smaller renditions of such video declare their colours."""

NOTHING_DECODED = "nothing in this part of the video could be decoded"

_EXCERPT, _ENCODED = "excerpt.mp4", "encoded.mp4"


def recipe(cuts: RenditionCuts, rendition: RenditionFormat) -> str:
    """The settings that determine the bytes of segments, besides source and ffmpeg version."""
    filters = _filters(
        cuts.track, cuts.excerpt(1), rendition, tone_mappings(cuts.track.entry.hdr)[0]
    )
    options = [*_decoding(cuts.track), *filters, *_encoding(cuts.track, rendition)]
    return " ".join([*options, *map(str, cuts.starts)])


@dataclass(frozen=True, slots=True)
class Encoder:
    """Encodes in a folder of its own; `read_at` reads the source."""

    ffmpeg: Ffmpeg
    scratch: Path
    read_at: ReadAt
    stop: threading.Event
    wall_seconds: float = 1800

    def encode(
        self, cuts: RenditionCuts, number: int, rendition: RenditionFormat
    ) -> tuple[Path, Path]:
        """Returns the initialization segment and the segment; the latter has its final name.

        Raises the errors of `FfmpegError`.
        """
        excerpt = cuts.excerpt(number)
        try:
            with disk_errors(), (self.scratch / _EXCERPT).open("wb") as target:
                copy_pieces(mp4_of(cuts.track, excerpt.samples), self._read, target)
            self._run(cuts.track, excerpt, rendition)
            with closing(FileIO(self.scratch / _ENCODED)) as file:
                pictures = _pictures(file)
            made = set(map(pictures.shown_at, range(len(pictures.samples))))
            # ffmpeg outputs frames that refer to a damaged key frame in grey, and succeeds; which
            # frames these are depends on its version.
            grey = excerpt.lacking_key_frames(made)
            if all(any(time in run for run in grey) for time in made):
                raise FfmpegFailed(NOTHING_DECODED)
            if any(time in run for run in grey for time in made):
                without = replace(excerpt, unseen=(*excerpt.unseen, *grey))
                self._run(cuts.track, without, rendition)
            return self._assembled(cuts, number, excerpt)
        finally:
            for name in (_EXCERPT, _ENCODED):
                (self.scratch / name).unlink(missing_ok=True)

    def _read(self, offset: int, count: int) -> bytes:
        if self.stop.is_set():
            raise FfmpegStopped("this segment is no longer needed")
        return self.read_at(offset, count)

    def _run(self, track: Track, excerpt: SegmentExcerpt, rendition: RenditionFormat) -> None:
        count, path = len(excerpt.samples), self.scratch / _EXCERPT
        decoded = count * track.entry.width * track.entry.height / 1e6
        encoded = count * rendition.width * rendition.height / 1e6
        seconds = (excerpt.end - excerpt.start) / track.timescale
        # Generous: a slow machine decodes 50 megapixels a second, and encodes 10.
        limits = ProgramLimits(
            cpu_seconds=20 + decoded / 10 + encoded,
            wall_seconds=self.wall_seconds,
            memory_bytes=3 << 30,
            output_bytes=(32 << 20) + round(rendition.peak_rate * seconds / 4),
        )
        source = [*_decoding(track), "-i", str(path)]
        output = [*_encoding(track, rendition), _ENCODED]
        attempts = [
            Conversion(
                [*source, *_filters(track, excerpt, rendition, tones), *output],
                readable=[path],
                writable=self.scratch,
                limits=limits,
                formats="mov",
            )
            for tones in tone_mappings(track.entry.hdr)
        ]
        for attempt in attempts:
            try:
                self.ffmpeg.run(attempt, stop=self.stop)
            except FfmpegInterrupted:
                raise
            except FfmpegFailed:
                if attempt is attempts[-1]:
                    raise
            else:
                return

    def _assembled(
        self, cuts: RenditionCuts, number: int, excerpt: SegmentExcerpt
    ) -> tuple[Path, Path]:
        initialization, segment = self.scratch / "init.mp4", self.scratch / f"{number}.m4s"
        with closing(FileIO(self.scratch / _ENCODED)) as file:
            read_at, pictures = reader(file), _pictures(file)
            try:
                head = cuts.segment(number, pictures, excerpt.begin).head(pictures.id, number)
                initialization.write_bytes(cuts.initialization(pictures))
            except NotIndexable as error:
                raise FfmpegFailed(NOTHING_DECODED) from error
            with disk_errors(), segment.open("wb") as target:
                samples = pictures.samples
                copy_pieces([head, *samples.extents(0, len(samples))], read_at, target)
        return initialization, segment


def _pictures(file: FileIO) -> Track:
    """The encoded video track."""
    try:
        pictures = read_movie(reader(file), length_of(file)).picture
    except NotIndexable as error:
        raise FfmpegFailed(NOTHING_DECODED) from error
    if pictures is None or not len(pictures.samples):
        raise FfmpegFailed(NOTHING_DECODED)
    return pictures


def _decoding(track: Track) -> list[str]:
    # Damaged frames are left out, however many there are. With the leading pictures of an open GOP,
    # ffmpeg 5.1 drops others that it cannot tell from them; so all are decoded, and a filter drops
    # the leading pictures.
    options = ["-max_error_rate", "1", "-flags2", "+showall", "-copyts"]
    options += ["-threads", str(DECODER_THREADS)]
    if track.entry.hdr or min(track.width, track.height) < BT709_PIXELS:
        return options
    colours = ("-colorspace", "-color_primaries", "-color_trc")
    return options + [word for name in colours for word in (name, "bt709")]


def _filters(
    track: Track, excerpt: SegmentExcerpt, rendition: RenditionFormat, tones: str
) -> list[str]:
    """Filters for the frames of the segment, each once, as displayed."""
    is_within = f"gte(pts,{excerpt.start})*lt(pts,{excerpt.end})"
    is_seen = "".join(f"*not(gte(pts,{run.start})*lt(pts,{run.stop}))" for run in excerpt.unseen)
    is_later = "(isnan(prev_selected_pts)+gt(pts,prev_selected_pts))"
    filters = [
        "bwdif=mode=send_frame:deint=interlaced",  # Needs adjacent frames, and halves the ticks.
        f"settb=1/{track.timescale}",
        f"select='{is_within}{is_seen}*{is_later}'",
        f"scale={rendition.width}:{rendition.height}:out_range=limited",
        tones,
        "format=yuv420p",
        "setsar=1",
    ]
    return ["-map", "0:v:0", "-vf", ",".join(filter(None, filters))]


def _encoding(track: Track, rendition: RenditionFormat) -> list[str]:
    rate = round(rendition.peak_rate * PEAK_SHARE)
    level = f"{rendition.level // 10}.{rendition.level % 10}"
    rates = ["-maxrate", str(rate), "-bufsize", str(rate), "-level:v", level]
    parameters = ["-x264-params", X264_PARAMETERS, "-threads", str(ENCODER_THREADS)]
    # Every frame at its own time, in ticks of the source, and the same bytes each time.
    times = ["-fps_mode", "passthrough", "-enc_time_base", f"1/{track.timescale}"]
    times += ["-video_track_timescale", str(track.timescale)]
    times += ["-movie_timescale", str(track.timescale)]
    exact = ["-flags", "+bitexact", "-fflags", "+bitexact", "-map_metadata", "-1"]
    return [*X264, *rates, *parameters, *times, *exact, "-y", "-f", "mp4"]


# ---- calibration ---------------------------------------------------------------------------------

# Measures the encoding speed of this host, once per ffmpeg, number of processors and options.


WIDTH, HEIGHT = 1280, 720
FEW_PICTURES, MANY_PICTURES = 2, 50
"""The difference is measured: starting the program takes longer than encoding some frames."""

ATTEMPTS = 3
"""The fastest counts: the others were slowed down by other work."""

OPTIONS = " ".join((*X264, "-x264-params", X264_PARAMETERS, "-threads", str(ENCODER_THREADS)))
"""Encoder options, the same as for segments."""

_LIMITS = ProgramLimits(
    cpu_seconds=120, wall_seconds=120, memory_bytes=2 << 30, output_bytes=1 << 20
)

_measuring = threading.Lock()

log = logging.getLogger(__name__)


def calibrate(ffmpeg: Ffmpeg, space: ScratchSpace) -> None:
    """Measure the capability of this host, unless known; takes about 5 s of CPU the first time.

    Without an encoder there is no capability. Concurrent calls wait.
    """
    with _measuring:
        try:
            version, processors = ffmpeg.version(), len(os.sched_getaffinity(0))
            known = read_capability(space.root)
            used = (version, processors, OPTIONS)
            if known and (known.encoder, known.processors, known.options) == used:
                return
            few, many = (
                min(_seconds(ffmpeg, pictures) for _ in range(ATTEMPTS))
                for pictures in (FEW_PICTURES, MANY_PICTURES)
            )
        except FfmpegError as error:
            discard_capability(space.root)
            if not isinstance(error, FfmpegMissing):
                log.warning("no renditions are offered: %s", error)
            return
        pixels = (MANY_PICTURES - FEW_PICTURES) * WIDTH * HEIGHT
        rate = pixels / 1e6 / max(many - few, 0.001)
        capability = Capability(
            encoder=version,
            processors=processors,
            options=OPTIONS,
            megapixels_per_second=round(rate, 1),
        )
        log.info("ffmpeg %s encodes %.0f megapixels a second", version, rate)
        with space.folder() as scratch:
            write_capability(capability, space.root, scratch)


def _seconds(ffmpeg: Ffmpeg, pictures: int) -> float:
    """CPU seconds to encode this many frames: the machine may be busy during the measurement."""
    encoding = OPTIONS.split()
    source = ["-f", "lavfi", "-i", f"testsrc2=size={WIDTH}x{HEIGHT}:rate=25"]
    output = ["-frames:v", str(pictures), "-pix_fmt", "yuv420p", "-f", "null", "-"]
    began = _cpu_seconds()
    ffmpeg.run(Conversion([*source, *encoding, *output], limits=_LIMITS, formats="lavfi"))
    return _cpu_seconds() - began


def _cpu_seconds() -> float:
    """CPU seconds of all ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

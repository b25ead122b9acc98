"""The step `remux`: converts a video in another container to MP4 or MOV, which can be indexed.

Video is copied if these containers support its codec, else encoded once. Audio that every browser
plays in segments is copied, other audio becomes AAC, and text subtitles become MP4 subtitles.
Tracks too damaged to be copied are encoded: a decoder skips the damage.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from app.core.errors import NoRoom
from app.core.jobs import INDEX, Heartbeat, Job, JobFailed, JobYields, Lane
from app.video.index.boxes import LongIndex, NotIndexable
from app.video.index.movie import read_movie
from app.video.make.ffmpeg import Conversion, FfmpegFailed, FfmpegTimedOut
from app.video.make.probe import Contents, ProbedTrack, contents_of
from app.video.make.sandbox.process import ProgramLimits
from app.video.make.sound import as_aac
from app.video.make.steps import (
    LATER,
    QUICK_CPU_SECONDS,
    StepTools,
    as_job_errors,
    probe_limits,
)
from app.video.serve.source import REMUXED, length_of, reader

MP4_PICTURES = frozenset(
    ("h264", "hevc", "av1", "vp9", "mpeg4", "mpeg2video", "mpeg1video", "mjpeg")
)
MOV_PICTURES = frozenset(("prores", "dnxhd", "dvvideo"))
"""Video codecs that are copied, by the container that supports them."""

MP4_SOUNDS = frozenset(("aac", "opus", "flac"))
MOV_SOUNDS = frozenset(("aac",))

RAW_PICTURES = frozenset(("obu", "mpegvideo", "m4v"))
"""Raw streams without a container: without timestamps, copied frames cannot be reordered."""

REORDERED_PICTURES = frozenset(("h264", "hevc"))
TIMED = frozenset(("mov", "matroska", "mpegts", "flv", "live_flv", "nut", "mxf"))
"""Containers with a display time for each frame. AVI, ASF and MPEG program streams have none, and
ffmpeg copies reordered frames from there in decode order."""

KEY_FRAME_SECONDS = 4
"""Maximum interval of key frames in encoded video: the length of a segment."""

ENCODED_TIMES = 2
"""Disk space of encoded video, as a multiple of the original: old videos took up to 1.9."""

LOWEST_RATE = 1000
"""Bytes per second: limits the time for files that claim an impossible duration."""

LONGEST_SECONDS = 86_400

MOST_CPU_SECONDS = 172_800
"""Enough for two hours of 4K on a slow machine; a hostile file may need ten times as much."""

QUICK_COPY_BYTES = 100_000_000
"""Copying this much takes 1 s for most videos; larger ones are copied after encoded segments."""

NOT_PREPARED = "This video cannot be prepared for playback"

_COPYING = {"hevc": ("-tag:v", "hvc1"), "mpeg4": ("-bsf:v", "mpeg4_unpack_bframes")}
"""Apple plays HEVC only with this tag; only AVI has several frames in one packet."""

_ENCODED = (
    *("-c:v", "libx264", "-preset", "veryfast", "-crf", "20"),
    *("-vf", "scale=trunc(iw/2)*2:trunc(ih/2)*2,format=yuv420p"),
    *("-fps_mode", "passthrough", "-enc_time_base:v", "1:90000"),
    *("-force_key_frames", f"expr:gte(t,n_forced*{KEY_FRAME_SECONDS})"),
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Way:
    """Which tracks are copied; the others are encoded."""

    copies_picture: bool
    copies_sound: bool


def remux(tools: StepTools, job: Job, beat: Heartbeat) -> None:
    """Make the remuxed file, and queue its index."""
    video = tools.uploads.get(job.upload_id)
    if not tools.has(video.id, REMUXED):
        with (
            closing(tools.source.open(video)) as source,
            as_job_errors("not_prepared", NOT_PREPARED, is_final=True),
            tools.source.on_disk(source, beat.go_on) as path,
            tools.files.scratch.folder(length_of(source)) as scratch,
        ):
            try:
                answer = tools.ffmpeg.probe(path, probe_limits(job), stop=beat.stop)
                made = scratch / REMUXED
                run = _Run(tools, contents_of(answer), path, length_of(source), made, beat)
                run.best()
            except FfmpegFailed as error:
                # In that lane, others wait for one short run of each program, not for a second.
                if job.lane is Lane.QUICK:
                    raise JobYields(Lane.BACKGROUND) from error
                raise
            tools.files.keep(video.id, {REMUXED: made})
    tools.enqueue(video.id, INDEX, Lane.QUICK, 0)


@dataclass(frozen=True, slots=True)
class _Run:
    """The conversion of one video of `length` bytes with ffmpeg."""

    tools: StepTools
    contents: Contents
    path: Path
    length: int
    made: Path
    beat: Heartbeat

    def best(self) -> None:
        """Convert in the first way that works; raises `FfmpegFailed`.

        In the lane `quick`, only one way is tried.
        """
        is_quick = self.beat.job.lane is Lane.QUICK
        *others, last = ways(self.contents)[: 1 if is_quick else None]
        for way in others:
            try:
                return self._make(way)
            except FfmpegTimedOut:
                raise
            except FfmpegFailed as error:
                log.info("a video is converted in another way: %s", error)
        return self._make(last)

    def _make(self, way: Way) -> None:
        if way.copies_picture:
            self._convert(way)
        else:
            self._encode(way)
        with self.made.open("rb", buffering=0) as file:
            try:
                movie = read_movie(reader(file), length_of(file))
            except LongIndex:
                return  # The step that indexes it has a separate process for that.
            except NotIndexable as error:
                raise FfmpegFailed("ffmpeg wrote a file that cannot be indexed") from error
        if self.contents.picture and movie.picture is None:
            raise FfmpegFailed("ffmpeg found no video track in it")

    def _encode(self, way: Way) -> None:
        """Like `_convert`, but a full disk counts as a failed attempt: it may be hours of work.

        Raises `JobYields` outside the lane `encoding`, so that no other job waits for it.
        """
        if self.beat.job.lane is not Lane.ENCODING:
            raise JobYields(Lane.ENCODING)
        self.made.unlink(missing_ok=True)  # Left by another way.
        self.tools.files.scratch.require_room(ENCODED_TIMES * self.length)
        try:
            self._convert(way)
        except NoRoom as error:
            raise JobFailed(error.code, str(error)) from error

    def _convert(self, way: Way) -> None:
        claimed = self.contents.facts.duration or LONGEST_SECONDS
        seconds = max(min(claimed, self.length / LOWEST_RATE, LONGEST_SECONDS), 1.0)
        # Generous: per second, a slow machine copies 100 MB or converts 10 s of audio. It encodes
        # 4K video at a tenth of real time.
        cpu_seconds = 60 + self.length / 1e8 + seconds * (1 if way.copies_picture else 20)
        cpu_seconds = min(cpu_seconds, MOST_CPU_SECONDS)
        is_quick = self.beat.job.lane is Lane.QUICK
        limits = ProgramLimits(
            cpu_seconds=QUICK_CPU_SECONDS if is_quick else cpu_seconds,
            wall_seconds=600 + 4 * cpu_seconds,
            memory_bytes=3 << 30,
            output_bytes=4 * self.length + (256 << 20),
        )

        def on_progress(reached: float) -> None:
            self.tools.files.scratch.require_room()  # Before uploads lack space.
            self.beat(reached / seconds if self.contents.facts.duration else 0.0)

        conversion = Conversion(
            [
                # Decoded frames come in display order, and are better without guessed timestamps.
                *(("-fflags", "+genpts") if way.copies_picture else ()),
                *("-i", str(self.path)),
                *(*options(self.contents, way), "-y", self.made.name),
            ],
            readable=[self.path],
            writable=self.made.parent,
            limits=limits,
        )
        try:
            self.tools.ffmpeg.run(conversion, progress=on_progress, stop=self.beat.stop)
        except FfmpegFailed:
            self.tools.files.scratch.require_room()  # ffmpeg has many messages for a full disk.
            raise


def can_be_copied(contents: Contents) -> bool:
    """Whether a copy in MP4 or MOV shows the video like the original; True if there is none."""
    if contents.picture is None:
        return True
    container, codec = contents.facts.container, contents.picture.facts.codec
    if codec in REORDERED_PICTURES:
        return container in TIMED
    return codec in MP4_PICTURES | MOV_PICTURES and container not in RAW_PICTURES


def lane_of(contents: Contents, length: int, probed_in: Lane) -> tuple[Lane, int]:
    """The lane and the priority of the job for a video that is not playable before.

    If it was probed in the lane `long`, ffprobe took longer than other jobs should wait.
    """
    is_soon_probed = probed_in is not Lane.LONG
    if is_soon_probed and can_be_copied(contents) and length <= QUICK_COPY_BYTES:
        return Lane.QUICK, LATER
    return Lane.BACKGROUND, 5


def ways(contents: Contents) -> list[Way]:
    """The possible ways, cheapest first, without duplicates."""
    has_sound_to_copy = any(sound.facts.codec in MP4_SOUNDS for sound in contents.of_kind("audio"))
    of_sound = [True, False] if has_sound_to_copy else [False]
    if not can_be_copied(contents):
        return [Way(False, is_copied) for is_copied in of_sound]
    found = [Way(True, is_copied) for is_copied in of_sound]
    return [*found, Way(False, False)] if contents.picture else found


def options(contents: Contents, way: Way) -> list[str]:
    """Output options for ffmpeg: every track that players use, grouped by kind."""
    picture = contents.picture
    is_mov = way.copies_picture and picture is not None and picture.facts.codec in MOV_PICTURES
    copied_sounds = MOV_SOUNDS if is_mov else MP4_SOUNDS
    found: list[str] = []
    if picture and way.copies_picture:
        found += [*_mapped(picture), "-c:v", "copy", *_COPYING.get(picture.facts.codec, ())]
    elif picture:
        found += [*_mapped(picture), *_ENCODED]
    for number, sound in enumerate(contents.of_kind("audio")):
        found += _mapped(sound)
        if way.copies_sound and sound.facts.codec in copied_sounds:
            found += [f"-c:a:{number}", "copy"]
        else:
            found += as_aac(number, sound.facts.channels)
    for text in contents.of_kind("text"):
        found += _mapped(text)
    # FLAC in MP4 is experimental in ffmpeg 5; a time code track is of no use here.
    found += ["-c:s", "mov_text", "-strict", "experimental", "-write_tmcd", "0"]
    return [*found, "-f", "mov" if is_mov else "mp4"]


def _mapped(track: ProbedTrack) -> list[str]:
    return ["-map", f"0:{track.number}"]

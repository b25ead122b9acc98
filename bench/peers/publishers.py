"""What others do to a video before it can be watched: the commands of ffmpeg that they run.

The options are those that the named sources use for one quality; ffmpeg runs here without them.
"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from bench.lib.samples import Sample

HLS = "-f hls -hls_time 4 -hls_list_size 0 -hls_playlist_type vod -hls_segment_type fmp4"


@dataclass(frozen=True, slots=True)
class Publisher:
    """A command of ffmpeg, by the options of its output; `is_encoding` is work that lasts."""

    name: str
    options: str
    output: str
    is_encoding: bool = False


REMUX = Publisher("ffmpeg, fast start", "-c copy -movflags +faststart", "film.mp4")
SEGMENTS = Publisher("ffmpeg, HLS", f"-c copy {HLS}", "index.m3u8")
PEERTUBE = Publisher(
    "PeerTube, 720p",
    # packages/ffmpeg/src: ffmpeg-vod.ts, ffmpeg-default-transcoding-profile.ts; its rate is
    # limited to 1.3 times that of the film.
    "-c:v libx264 -vf scale=w=-2:h=720 -preset veryfast -maxrate:v 1170k -bufsize:v 2340k"
    f" -b_strategy 1 -bf 16 -r 25 -pix_fmt yuv420p -c:a copy {HLS} -hls_flags single_file",
    "720.m3u8",
    is_encoding=True,
)
MEDIACMS = Publisher(
    "MediaCMS, 720p",
    # files/helpers.py, for videos of more than two seconds; its HLS is made from this afterwards.
    "-c:v libx264 -vf scale=-2:720,fps=25 -pix_fmt yuv420p -preset faster -profile:v main"
    " -level 4.2 -crf 23 -maxrate 3750k -bufsize 3750k -force_key_frames expr:gte(t,n_forced*4)"
    " -x264-params keyint=200:keyint_min=100 -c:a aac -b:a 128k -ac 2 -movflags +faststart",
    "720.mp4",
    is_encoding=True,
)
PUBLISHERS = (REMUX, SEGMENTS, PEERTUBE, MEDIACMS)


def publish(publisher: Publisher, film: Path, folder: Path, *, case: str, number: int) -> Sample:
    """Run its command; the bytes of the sample are the disk that it took."""
    command = ["ffmpeg", "-nostdin", "-v", "error", "-y", "-i", str(film)]
    started = time.perf_counter()
    process = subprocess.Popen([*command, *publisher.options.split(), publisher.output], cwd=folder)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Sample(
        case=case,
        round=number,
        byte_count=sum(path.stat().st_size for path in folder.iterdir()),
        seconds=seconds,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        peak_bytes=usage.ru_maxrss * 1024,
    )

"""Measures how fast this host encodes, once for each ffmpeg, number of processors and options."""

from __future__ import annotations

import logging
import os
import resource
import threading

from app.video.make.encoder import ENCODER_THREADS, X264, X264_PARAMETERS
from app.video.make.ffmpeg import Conversion, Ffmpeg, FfmpegError, FfmpegMissing
from app.video.make.sandbox.process import ProgramLimits
from app.video.serve.capability import (
    Capability,
    discard_capability,
    read_capability,
    write_capability,
)
from app.video.serve.folder import MediaFolder

WIDTH, HEIGHT = 1280, 720
FEW_PICTURES, MANY_PICTURES = 2, 50
"""The difference is what is measured: starting the program takes longer than some pictures."""

ATTEMPTS = 3
"""The fastest counts: the others were disturbed."""

OPTIONS = " ".join((*X264, "-x264-params", X264_PARAMETERS, "-threads", str(ENCODER_THREADS)))
"""Of the encoder, as segments are made with."""

_LIMITS = ProgramLimits(
    cpu_seconds=120, wall_seconds=120, memory_bytes=2 << 30, output_bytes=1 << 20
)

_measuring = threading.Lock()

log = logging.getLogger(__name__)


def calibrate(ffmpeg: Ffmpeg, folder: MediaFolder) -> None:
    """Have the capability of this host known, which takes some 5 s of CPU the first time.

    Without an encoder there is none. Whoever asks meanwhile waits.
    """
    with _measuring:
        _calibrate(ffmpeg, folder)


def _calibrate(ffmpeg: Ffmpeg, folder: MediaFolder) -> None:
    try:
        version, processors = ffmpeg.version(), len(os.sched_getaffinity(0))
        known = read_capability(folder.root)
        used = (version, processors, OPTIONS)
        if known and (known.encoder, known.processors, known.options) == used:
            return
        rate = _measured(ffmpeg)
    except FfmpegError as error:
        discard_capability(folder.root)
        if not isinstance(error, FfmpegMissing):
            log.warning("films are offered in their own quality alone: %s", error)
        return
    capability = Capability(
        encoder=version,
        processors=processors,
        options=OPTIONS,
        megapixels_per_second=round(rate, 1),
    )
    log.info("ffmpeg %s encodes %.0f megapixels a second", version, rate)
    with folder.scratch_folder() as scratch:
        write_capability(capability, folder.root, scratch)


def _measured(ffmpeg: Ffmpeg) -> float:
    few, many = (
        min(_seconds(ffmpeg, pictures) for _ in range(ATTEMPTS))
        for pictures in (FEW_PICTURES, MANY_PICTURES)
    )
    pixels = (MANY_PICTURES - FEW_PICTURES) * WIDTH * HEIGHT
    return pixels / 1e6 / max(many - few, 0.001)


def _seconds(ffmpeg: Ffmpeg, pictures: int) -> float:
    """Of CPU time that it takes to encode so many: a machine may be busy when it is measured."""
    encoding = OPTIONS.split()
    source = ["-f", "lavfi", "-i", f"testsrc2=size={WIDTH}x{HEIGHT}:rate=25"]
    output = ["-frames:v", str(pictures), "-pix_fmt", "yuv420p", "-f", "null", "-"]
    began = _cpu_seconds()
    ffmpeg.run(Conversion([*source, *encoding, *output], limits=_LIMITS, formats="lavfi"))
    return _cpu_seconds() - began


def _cpu_seconds() -> float:
    """Of all our programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

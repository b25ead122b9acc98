"""A film that is offered in other qualities, with files made by hand."""

from __future__ import annotations

import json
from typing import Any

from app.core.upload import UploadId
from app.video.serve.derived_files import DerivedFiles
from tests.derived import place

SEGMENT_SECONDS = (4.0, 4.0, 4.0, 4.0, 2.5)

PICTURE: dict[str, Any] = {
    "name": "source",
    "kind": "video",
    "codecs": "avc1.640028",
    "peak_rate": 9_000_000,
    "mean_rate": 8_000_000,
    "ends": [1, 2, 3, 4, 5],
    "durations": SEGMENT_SECONDS,
    "reaches": [5] * 5,
    "width": 1920,
    "height": 1080,
    "frame_rate": 25.0,
}

SOUND: dict[str, Any] = {
    **PICTURE,
    "name": "audio-1",
    "kind": "audio",
    "codecs": "mp4a.40.2",
    "peak_rate": 130_000,
    "mean_rate": 128_000,
    "width": 0,
    "height": 0,
    "frame_rate": 0.0,
    "channels": 2,
}


def write_film(files: DerivedFiles, video: UploadId, **picture: Any) -> None:
    """Let a video be a film in 1080p, on a fast machine."""
    place(files, video, "hls.json", json.dumps([{**PICTURE, **picture}, SOUND]).encode())
    capability = {"encoder": "by hand", "megapixels_per_second": 1000.0}
    (files.scratch.root / ".encoder.json").write_text(json.dumps(capability))


def write_segments(files: DerivedFiles, video: UploadId, quality: int, *numbers: int) -> None:
    """Let segments of a quality be made; each consists of its number."""
    place(files, video, f"rungs/{quality}/init.mp4", b"init")
    for number in numbers:
        place(files, video, f"rungs/{quality}/{number}.m4s", b"%d" % number)

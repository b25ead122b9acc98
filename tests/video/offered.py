"""A film that is offered in other qualities, with files made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def write_film(folder: Path, **picture: Any) -> None:
    """Let the video whose made files are in `folder` be a film in 1080p, on a fast machine."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hls.json").write_text(json.dumps([{**PICTURE, **picture}, SOUND]))
    capability = {"encoder": "by hand", "megapixels_per_second": 1000.0}
    (folder.parent / ".encoder.json").write_text(json.dumps(capability))


def write_segments(folder: Path, quality: int, *numbers: int) -> None:
    """Let segments of a quality be made; each consists of its number."""
    rendition = folder / "rungs" / str(quality)
    rendition.mkdir(parents=True, exist_ok=True)
    (rendition / "init.mp4").write_bytes(b"init")
    for number in numbers:
        made = rendition / ".made"  # Renamed, as a reader must not see a part of it.
        made.write_bytes(b"%d" % number)
        made.replace(rendition / f"{number}.m4s")

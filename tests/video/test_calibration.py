"""The speed of this host's encoder is measured once, and forgotten with the encoder."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from app.video.make import encoder as calibration
from app.video.make.encoder import calibrate
from app.video.make.ffmpeg import Ffmpeg
from app.video.serve.ladder import FILE, read_capability, write_capability
from app.video.serve.scratch import ScratchSpace


def test_a_host_is_measured_once_for_each_version_of_ffmpeg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured once and with few pictures here, which is less exact than otherwise."""
    monkeypatch.setattr(calibration, "ATTEMPTS", 1)
    monkeypatch.setattr(calibration, "MANY_PICTURES", 12)
    space, ffmpeg = ScratchSpace(tmp_path), Ffmpeg.find()
    calibrate(ffmpeg, space)
    first = read_capability(tmp_path)
    assert first is not None
    assert (first.encoder, first.processors) == (ffmpeg.version(), len(os.sched_getaffinity(0)))
    assert first.megapixels_per_second > 1
    known = replace(first, megapixels_per_second=7)
    with space.folder() as scratch:
        write_capability(known, tmp_path, scratch)
    calibrate(ffmpeg, space)
    assert read_capability(tmp_path) == known
    with space.folder() as scratch:
        write_capability(replace(known, options="-preset slow"), tmp_path, scratch)
    calibrate(ffmpeg, space)
    again = read_capability(tmp_path)
    assert again is not None
    assert again.options == first.options
    calibrate(Ffmpeg(ffmpeg=None, ffprobe=None), space)
    assert read_capability(tmp_path) is None


@pytest.mark.parametrize("content", ["", "[]", '{"encoder": "7', '{"speed": 7}'])
def test_a_damaged_measurement_counts_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    assert read_capability(tmp_path) is None

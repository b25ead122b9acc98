"""What stored files are served as."""

import pytest

from app.core.policy import OPAQUE, PLAYABLE, media_type


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.mp4", "video/mp4"),
        ("folder/a.MOV", "video/quicktime"),
        ("a.b.webm", "video/webm"),
        ("song.flac", "audio/flac"),
    ],
)
def test_videos_and_audio_are_played_inline(name: str, expected: str) -> None:
    assert media_type(name) == expected


@pytest.mark.parametrize(
    "name",
    ["page.html", "a.svg", "a.pdf", "a.mp4.html", "a.xhtml", "a.js", "mp4", ".mp4", "", "a."],
)
def test_everything_else_is_a_download(name: str) -> None:
    assert media_type(name) == OPAQUE


def test_no_playable_type_can_run_as_a_page() -> None:
    assert {kind.partition("/")[0] for kind in PLAYABLE.values()} == {"video", "audio"}

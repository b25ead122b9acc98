"""Files made from videos appear whole, and nothing half-made is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.domain.upload import UploadId
from app.media.film.folder import MAKING, MediaFolder

VIDEO = UploadId("ab" * 16)

MAKER = """
import sys, signal
from pathlib import Path
from app.media.film.folder import MediaFolder
with MediaFolder(Path(sys.argv[1])).scratch_folder() as folder:
    (folder / "half.mp4").write_bytes(b"half")
    print("working", flush=True)
    signal.pause()
"""


@pytest.fixture
def folder(tmp_path: Path) -> MediaFolder:
    return MediaFolder(tmp_path / "media")


def test_a_file_is_kept_only_when_it_is_complete(folder: MediaFolder, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), folder.writing(VIDEO, "hls/720/1.m4s") as file:
        file.write(bytes(1 // 0))
    assert not folder.path(VIDEO, "hls").exists()
    with folder.writing(VIDEO, "hls/720/1.m4s") as file:
        file.write(b"whole")
        assert not folder.path(VIDEO, "hls/720/1.m4s").exists()
    assert folder.path(VIDEO, "hls/720/1.m4s").read_bytes() == b"whole"
    assert os.listdir(tmp_path / "media" / MAKING) == []


def test_a_folder_is_kept_as_a_whole(folder: MediaFolder) -> None:
    with folder.scratch_folder() as made:
        (made / "audio").mkdir()
        (made / "audio" / "1.m4s").write_bytes(b"one")
        folder.keep(made / "audio", VIDEO, "audio")
    assert folder.path(VIDEO, "audio/1.m4s").read_bytes() == b"one"


def test_only_the_owner_can_enter(folder: MediaFolder) -> None:
    with folder.writing(VIDEO, "poster.jpg"):
        pass
    assert folder.path(VIDEO).stat().st_mode & 0o077 == 0


def test_the_files_of_a_video_are_removed_together(folder: MediaFolder) -> None:
    assert list(folder.videos()) == []
    with folder.writing(VIDEO, "hls/720/1.m4s"):
        pass
    assert list(folder.videos()) == [VIDEO]
    folder.remove(VIDEO)
    folder.remove(VIDEO)
    assert list(folder.videos()) == []


def test_what_a_killed_maker_left_is_removed_and_a_living_one_goes_on(
    folder: MediaFolder, tmp_path: Path
) -> None:
    path = tmp_path / "media"
    command = [sys.executable, "-c", MAKER, str(path)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as maker,
        folder.scratch_folder() as living,
    ):
        assert maker.stdout is not None
        assert maker.stdout.readline() == b"working\n"
        folder.remove_abandoned()
        assert len(os.listdir(path / MAKING)) == 2
        maker.send_signal(signal.SIGKILL)
        maker.wait()
        folder.remove_abandoned()
        assert os.listdir(path / MAKING) == [living.name]

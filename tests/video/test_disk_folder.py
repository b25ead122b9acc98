"""Files made from videos appear whole, and nothing half-made is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.core.playback import Outdated
from app.core.upload import UploadId
from app.video.serve.folder import MAKING, DiskFolder, writing

VIDEO = UploadId("ab" * 16)

MAKER = """
import sys, signal
from pathlib import Path
from app.video.serve.folder import DiskFolder
with DiskFolder(Path(sys.argv[1])).scratch_folder() as folder:
    (folder / "half.mp4").write_bytes(b"half")
    print("working", flush=True)
    signal.pause()
"""


@pytest.fixture
def folder(tmp_path: Path) -> DiskFolder:
    return DiskFolder(tmp_path / "media")


def test_a_file_is_kept_only_when_it_is_complete(folder: DiskFolder, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), writing(folder, VIDEO, "hls/720/1.m4s") as file:
        file.write(bytes(1 // 0))
    assert not folder.path(VIDEO, "hls").exists()
    with writing(folder, VIDEO, "hls/720/1.m4s") as file:
        file.write(b"whole")
        assert not folder.path(VIDEO, "hls/720/1.m4s").exists()
    assert folder.path(VIDEO, "hls/720/1.m4s").read_bytes() == b"whole"
    assert os.listdir(tmp_path / "media" / MAKING) == []


def test_a_file_is_added_only_beside_the_one_that_it_goes_with(folder: DiskFolder) -> None:
    def keep(name: str) -> None:
        with folder.scratch_folder() as scratch, folder.locked(VIDEO):
            (scratch / "made").write_text(name)
            folder.keep(scratch / "made", VIDEO, name, beside=mark, is_new=True)

    with writing(folder, VIDEO, "rungs/720/made-by"):
        pass
    mark = folder.find(VIDEO, "rungs/720/made-by")
    keep("rungs/720/1.m4s")
    with pytest.raises(FileExistsError):
        keep("rungs/720/1.m4s")
    assert folder.discard(VIDEO, "rungs/720")
    with pytest.raises(Outdated):
        keep("rungs/720/2.m4s")
    assert not folder.path(VIDEO, "rungs/720").exists()
    assert not folder.discard(VIDEO, "rungs/720")


def test_only_the_owner_can_enter(folder: DiskFolder) -> None:
    with writing(folder, VIDEO, "poster.jpg"):
        pass
    assert folder.path(VIDEO).stat().st_mode & 0o077 == 0


def test_the_files_of_a_video_are_removed_together(folder: DiskFolder) -> None:
    assert list(folder.videos()) == []
    with writing(folder, VIDEO, "hls/720/1.m4s"):
        pass
    assert list(folder.videos()) == [VIDEO]
    folder.remove(VIDEO)
    folder.remove(VIDEO)
    assert list(folder.videos()) == []


def test_what_a_killed_maker_left_is_removed_and_a_living_one_goes_on(
    folder: DiskFolder, tmp_path: Path
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

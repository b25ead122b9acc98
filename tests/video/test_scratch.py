"""Nothing half-made is left by makers that were killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from app.video.serve.scratch import MAKING, ScratchSpace

MAKER = """
import sys, signal
from pathlib import Path
from app.video.serve.scratch import ScratchSpace
with ScratchSpace(Path(sys.argv[1])).folder() as folder:
    (folder / "half.mp4").write_bytes(b"half")
    print("working", flush=True)
    signal.pause()
"""


def test_what_a_killed_maker_left_is_removed_and_a_living_one_goes_on(tmp_path: Path) -> None:
    space = ScratchSpace(tmp_path / "media")
    command = [sys.executable, "-c", MAKER, str(space.root)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as maker,
        space.folder() as living,
    ):
        assert maker.stdout is not None
        assert maker.stdout.readline() == b"working\n"
        space.remove_abandoned()
        assert len(os.listdir(space.root / MAKING)) == 2
        maker.send_signal(signal.SIGKILL)
        maker.wait()
        space.remove_abandoned()
        assert os.listdir(space.root / MAKING) == [living.name]
    assert os.listdir(space.root / MAKING) == []

"""What a program finds in a file, remembered by all processes of a run.

A program finds the same in the same bytes, and starting ffmpeg or ffprobe alone takes 0.07 s of CPU
time; many tests ask the same of the same film.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from tests.live_server import shared_folder

MOST_BYTES = 16 << 20
"""Longer files take longer to recognize than to examine."""

P = ParamSpec("P")
Found = TypeVar("Found")

Examine = Callable[Concatenate[Path | str, P], Found]


def remembered(examine: Examine[P, Found]) -> Examine[P, Found]:
    """`examine` of a file and some options; of an address it is done each time."""

    @wraps(examine)
    def recall(source: Path | str, /, *arguments: P.args, **options: P.kwargs) -> Found:
        if isinstance(source, str) or source.stat().st_size > MOST_BYTES:
            return examine(source, *arguments, **options)
        asked = f"{examine.__name__} {arguments} {options} {source.suffix} ".encode()
        name = hashlib.sha256(asked + source.read_bytes()).hexdigest()
        with shared_folder() as folder:
            path = Path(folder, f".found-{name}")
            if not path.exists():
                new = path.with_suffix(f".{os.getpid()}")
                new.write_bytes(pickle.dumps(examine(source, *arguments, **options)))
                new.rename(path)
            found: Found = pickle.loads(path.read_bytes())
        return found

    return recall

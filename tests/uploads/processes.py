"""Work of other processes on uploads of one folder; run by `multiprocessing`."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from multiprocessing.synchronize import Barrier
from pathlib import Path

from app.core.upload import UploadId
from tests.records.making import sqlite
from tests.storage.sources import body
from tests.uploads import world as worlds
from tests.uploads.world import ME, World

PART = 500
"""Bytes of each part."""


@contextmanager
def shared_world(folder: Path) -> Iterator[World]:
    """The world of that folder, in each process."""
    with closing(sqlite(folder / "sluice.db")) as database:
        database.migrate()
        yield World(folder, database=database)


def send_parts(folder: Path, barrier: Barrier, rounds: list[tuple[str, int]]) -> None:
    """In each round, together with the others, send the bytes of one part of the file."""
    with shared_world(folder) as world:
        for part_id, number in rounds:
            part = world.service.get(ME, UploadId(part_id))
            source = body(number * PART, (number + 1) * PART)
            barrier.wait()
            world.chunks.append_at_offset(part, 0, source)


def concatenate(folder: Path, barrier: Barrier, rounds: list[list[str]], first_id: int) -> None:
    """In each round, together with the others, request the file made of some parts."""
    worlds._numbers = count(first_id)  # Each process makes its own ids.
    with shared_world(folder) as world:
        for part_ids in rounds:
            parts = [world.records.get(UploadId(part_id)) for part_id in part_ids]
            barrier.wait()
            world.whole_of(*parts)

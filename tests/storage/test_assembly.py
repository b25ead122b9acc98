"""Parts are made until none is missing, and what cannot be made is told."""

from __future__ import annotations

import pytest

from app.domain.errors import ServerBusy
from app.storage.s3.assembly import Assembly
from app.storage.s3.room import NoSpoolRoom
from tests.storage.conftest import InBucket


def test_a_store_that_does_not_answer_is_told_at_once(in_bucket: InBucket) -> None:
    calls = []

    def fill(cell: int) -> bool:
        calls.append(cell)
        if len(calls) > 1:
            pytest.fail("tried again")
        raise ServerBusy("The object store does not answer in time.")

    with pytest.raises(ServerBusy, match="does not answer"):
        Assembly(in_bucket.store.cells)._fill(lambda: [0], fill)


def test_cells_for_which_the_spools_had_no_room_are_tried_again(in_bucket: InBucket) -> None:
    missing = [0, 1]

    def fill(cell: int) -> bool:
        if cell == 1 and 0 in missing:
            missing.remove(0)
            raise NoSpoolRoom("The server waits for its store to take what has arrived.")
        if cell == 1:
            missing.remove(1)
        return True

    Assembly(in_bucket.store.cells)._fill(lambda: [*missing], fill)
    assert missing == []

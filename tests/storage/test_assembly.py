"""Parts are made until none is missing, and what cannot be made is told."""

from __future__ import annotations

import itertools
import time

import pytest

from app.core.errors import ServerBusy
from app.storage.s3 import assembly
from app.storage.s3.assembly import Assembly
from app.storage.s3.spool import NoSpoolRoom
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


@pytest.mark.parametrize("is_filled", [True, False], ids=["slowly", "never"])
def test_cells_are_given_up_once_none_is_made_for_long(
    in_bucket: InBucket, monkeypatch: pytest.MonkeyPatch, is_filled: bool
) -> None:
    monkeypatch.setattr(assembly, "SEALING_SECONDS", 0.5)
    begun, missing, turns = time.monotonic(), list(range(5)), itertools.count()

    def fill(cell: int) -> bool:
        if cell == missing[-1] and is_filled and next(turns) % 3 == 2:
            missing.pop()
        return False

    if is_filled:
        Assembly(in_bucket.store.cells)._fill(lambda: [*missing], fill)
        assert time.monotonic() - begun > assembly.SEALING_SECONDS
    else:
        with pytest.raises(ServerBusy, match="in time"):
            Assembly(in_bucket.store.cells)._fill(lambda: [*missing], fill)

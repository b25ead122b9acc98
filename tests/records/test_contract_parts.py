"""What the records promise: parts, concatenations, and fields of single protocols."""

from dataclasses import replace

import pytest

from app.core.errors import (
    ChunkMismatch,
    UploadConflict,
    UploadGone,
    UploadNotFound,
)
from app.core.lifecycle import IllegalTransition, UploadState
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId, UploadKind, UploadPart
from app.records.uploads import UploadRecords
from tests.records.making import NOW, at, new_upload
from tests.records.test_contract import UNKNOWN, in_threads


def new_part(length: int | None = 100) -> Upload:
    return replace(new_upload(length=length), kind=UploadKind.PARTIAL)


def new_whole(key: str | None = None) -> Upload:
    return replace(new_upload(length=None, key=key), kind=UploadKind.CONCATENATION)


def add_whole(records: UploadRecords, *parts: Upload) -> Upload:
    """A concatenation of parts, referenced by their positions."""
    named = [UploadPart(part.id, f"/tus/{place}") for place, part in enumerate(parts)]
    return records.add(new_whole(), named)[0]


def held(records: UploadRecords) -> Upload:
    """A part with all of its bytes."""
    part, _ = records.add(new_part())
    return records.add_received(part, ByteRange(0, 100), at(1))


@pytest.mark.parametrize("kind", UploadKind)
def test_protocol_specific_fields_are_stored_unchanged(
    records: UploadRecords, kind: UploadKind
) -> None:
    upload = replace(
        new_upload(),
        kind=kind,
        metadata="filename w4l0w6k=,empty",
        repr_digest="sha256:" + "a" * 64,
    )
    records.add(upload)
    assert records.get(upload.id) == upload
    assert records.find(upload.owner, upload.client_key) == upload
    assert records.active(upload.owner, 1) == [upload]


def test_uploads_without_protocol_specific_fields_have_none(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload())
    found = records.get(upload.id)
    assert (found.kind, found.metadata, found.repr_digest) == (UploadKind.FILE, None, None)


def test_parts_are_stored_in_order_with_their_references(records: UploadRecords) -> None:
    parts = [UploadPart(new_part().id, f"https://example.org/{number}?é=1") for number in range(12)]
    parts = [parts[3], *parts, parts[3]]
    whole, is_new = records.add(new_whole(), parts)
    assert is_new
    assert records.parts(whole.id) == parts


def test_other_uploads_have_no_parts(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload())
    assert records.parts(upload.id) == []
    assert records.parts(UNKNOWN) == []
    assert records.waiting_for(upload.id) == []
    assert records.waiting_for(UNKNOWN) == []


def test_a_known_key_keeps_the_parts_it_came_with(records: UploadRecords) -> None:
    first, other = UploadPart(new_part().id, "first"), UploadPart(new_part().id, "other")
    whole, _ = records.add(new_whole("k"), [first])
    again = new_whole("k")
    assert records.add(again, [other]) == (whole, False)
    assert records.parts(whole.id) == [first]
    assert records.parts(again.id) == []


def test_parts_are_removed_with_the_concatenation(records: UploadRecords) -> None:
    part = held(records)
    whole = add_whole(records, part)
    records.remove(whole.id)
    assert records.parts(whole.id) == []
    assert records.waiting_for(part.id) == []
    assert records.get(part.id) == part


def test_a_part_may_be_removed_before_the_whole(records: UploadRecords) -> None:
    part = held(records)
    whole = add_whole(records, part)
    records.remove(part.id)
    assert records.parts(whole.id) == [UploadPart(part.id, "/tus/0")]
    assert records.waiting_for(part.id) == [whole]


def test_a_part_knows_which_files_wait_for_it_until_they_are_published(
    records: UploadRecords,
) -> None:
    part, other = held(records), held(records)
    first, second = add_whole(records, part, other), add_whole(records, part, part)
    assert {whole.id for whole in records.waiting_for(part.id)} == {first.id, second.id}
    assert records.waiting_for(other.id) == [first]
    begun = records.add_parts(first.id, 200, at(2))
    assert records.waiting_for(other.id) == [begun], "its bytes are still wanted"
    records.move(first.id, UploadState.COMPLETE, at(3))
    assert records.waiting_for(other.id) == []
    records.move(second.id, UploadState.CANCELLED, at(4))
    assert records.waiting_for(part.id) == []


def test_a_part_that_has_its_bytes_is_held(records: UploadRecords) -> None:
    part = held(records)
    assert part.state is UploadState.HELD
    assert records.get(part.id) == part
    assert records.add_received(part, ByteRange(0, 100), at(2)).state is UploadState.HELD
    with pytest.raises(IllegalTransition):
        records.move(part.id, UploadState.COMPLETE, at(3))
    with pytest.raises(IllegalTransition):
        records.move(part.id, UploadState.VERIFYING, at(3))
    assert records.move(part.id, UploadState.EXPIRED, at(3)).state is UploadState.EXPIRED


def test_a_part_whose_length_arrives_last_is_then_held(records: UploadRecords) -> None:
    part, _ = records.add(new_part(None))
    records.add_received(part, ByteRange(0, 10), at(1))
    assert records.declare_length(part.id, 10, at(2)).state is UploadState.HELD


def test_a_whole_has_all_bytes_once_its_parts_do(records: UploadRecords) -> None:
    whole = add_whole(records, held(records))
    begun = records.add_parts(whole.id, 100, at(2))
    assert (begun.state, begun.length, begun.offset) == (UploadState.VERIFYING, 100, 100)
    assert begun.active_at == at(2)
    assert records.get(whole.id) == begun


def test_an_empty_whole_has_all_bytes_too(records: UploadRecords) -> None:
    whole = add_whole(records, records.add(new_part(0))[0])
    begun = records.add_parts(whole.id, 0, at(2))
    assert (begun.state, begun.length) == (UploadState.VERIFYING, 0)


def test_a_whole_in_a_later_state_is_unchanged(records: UploadRecords) -> None:
    whole = add_whole(records, held(records))
    begun = records.add_parts(whole.id, 100, at(2))
    assert records.add_parts(whole.id, 100, at(3)) == begun
    complete = records.move(whole.id, UploadState.COMPLETE, at(4))
    assert records.add_parts(whole.id, 999, at(5)) == complete
    assert records.get(whole.id) == complete


def test_an_ended_whole_gets_no_bytes(records: UploadRecords) -> None:
    whole = add_whole(records, held(records))
    ended = records.move(whole.id, UploadState.CANCELLED, at(2))
    with pytest.raises(UploadGone):
        records.add_parts(whole.id, 100, at(3))
    assert records.get(whole.id) == ended
    with pytest.raises(UploadNotFound):
        records.add_parts(UNKNOWN, 100, at(3))


def test_a_whole_of_another_length_is_a_conflict(records: UploadRecords) -> None:
    whole = add_whole(records, held(records))
    records.declare_length(whole.id, 99, at(2))
    with pytest.raises(UploadConflict):
        records.add_parts(whole.id, 100, at(3))
    assert records.get(whole.id).state is UploadState.RECEIVING


def test_concurrent_updates_of_the_parts_agree(records: UploadRecords) -> None:
    whole = add_whole(records, held(records))
    outcomes = in_threads(8, lambda n: records.add_parts(whole.id, 100, at(n)))
    assert set(outcomes) == {records.get(whole.id)}


def test_bytes_beyond_a_length_declared_meanwhile_are_refused(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload(length=None))
    records.add_received(upload, ByteRange(0, 10), at(1))
    told = records.declare_length(upload.id, 20, at(2))
    with pytest.raises(ChunkMismatch):
        records.add_received(upload, ByteRange(10, 21), at(3))
    assert records.get(upload.id) == told


def test_forgetting_received_bytes_resets_every_unfinished_upload(
    records: UploadRecords,
) -> None:
    part, complete = held(records), held_whole(records)
    running, _ = records.add(new_upload())
    records.add_received(running, ByteRange(0, 10), at(1))
    whole = records.add_parts(add_whole(records, part).id, 100, at(2))
    ended, _ = records.add(new_part())
    ended = records.move(ended.id, UploadState.EXPIRED, at(3))
    records.forget_received()
    for upload in (part, running, whole):
        found = records.get(upload.id)
        assert (found.state, list(found.received)) == (UploadState.RECEIVING, [])
        assert found.length == upload.length
    assert records.get(complete.id) == complete
    assert records.get(ended.id) == ended
    assert records.waiting_for(part.id) == [records.get(whole.id)]
    assert records.add_received(part, ByteRange(0, 100), at(4)).state is UploadState.HELD
    assert records.add_parts(whole.id, 100, at(5)).state is UploadState.VERIFYING


def held_whole(records: UploadRecords) -> Upload:
    """A published concatenation."""
    whole = add_whole(records, held(records))
    records.add_parts(whole.id, 100, NOW)
    return records.move(whole.id, UploadState.COMPLETE, NOW)


def test_activity_without_bytes_changes_nothing_else(records: UploadRecords) -> None:
    empty_part = records.add(new_part(0))[0]
    for upload in (held(records), records.add(new_whole())[0], empty_part):
        records.touch(upload.id, at(9))
        assert records.get(upload.id) == replace(upload, active_at=at(9))


def test_earlier_activity_does_not_hide_later_one(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload(created_at=at(5)))
    records.touch(upload.id, at(2))
    assert records.get(upload.id) == upload


def test_an_ended_upload_does_not_become_active_again(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload())
    ended = records.move(upload.id, UploadState.CANCELLED, at(1))
    records.touch(upload.id, at(9))
    assert records.get(upload.id) == ended


def test_states_include_parts(records: UploadRecords) -> None:
    part = held(records)
    assert records.states([part.id, UploadId("e" * 32)]) == {part.id: UploadState.HELD}
    assert records.in_state(UploadState.HELD, 10) == [part]


def test_a_part_lists_the_complete_files_made_of_it(records: UploadRecords) -> None:
    part, other = held(records), held(records)
    wholes = [add_whole(records, part, other), add_whole(records, other, part)]
    add_whole(records, other)
    assert records.made_of(part.id) == []
    for whole in wholes:
        records.add_parts(whole.id, 200, at(2))
        records.move(whole.id, UploadState.COMPLETE, at(3))
    assert {whole.id for whole in records.made_of(part.id)} == {whole.id for whole in wholes}
    records.move(wholes[0].id, UploadState.DELETED, at(4))
    assert [whole.id for whole in records.made_of(part.id)] == [wholes[1].id]

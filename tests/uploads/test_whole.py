"""Files that come whole: all of a file is kept, or nothing of it."""

import hashlib

import pytest

from app.domain.errors import BodyTruncated, InvalidRequest, MalformedBody, TooLarge
from app.domain.lifecycle import UploadState
from app.ingest.source import StreamSource
from app.uploads.whole import ReceivedFile
from tests.storage.sources import PiecesSource, pattern
from tests.uploads.world import MAX_LENGTH, ME, World


def receive(world: World, source: PiecesSource, *, room: int = 0) -> ReceivedFile:
    return world.whole.receive(source, owner=ME, filename="a.mp4", room=room)


def untold(length: int, *pieces: int | None, cut_at: int | None = None) -> PiecesSource:
    return PiecesSource(pattern(0, length), pieces or (1000,), is_told=False, cut_at=cut_at)


@pytest.mark.parametrize("length", [0, 1, 70_000])
@pytest.mark.parametrize("room", [0, 100, 200_000])
def test_a_whole_file_becomes_a_video_of_its_exact_length(
    world: World, length: int, room: int
) -> None:
    received = receive(world, untold(length, 999, None), room=room)
    video = world.whole.keep(received)
    assert (video.state, video.length) == (UploadState.COMPLETE, length)
    assert video.sha256 == hashlib.sha256(pattern(0, length)).hexdigest()
    assert world.content(video) == pattern(0, length)
    assert (world.videos / video.id).stat().st_size == length
    assert world.library.page(ME, limit=5).videos == [world.records.get(video.id)]
    assert len(world.events) == 1


def test_a_file_that_is_not_kept_yet_is_in_no_list(world: World) -> None:
    received = receive(world, untold(100))
    assert world.service.active(ME, 5) == []
    assert world.library.page(ME, limit=5).videos == []
    with world.whole.open(received) as file:
        assert file.read(received.length) == pattern(0, 100)
    world.whole.drop(received)
    world.whole.drop(received)
    assert world.files() == set()


def test_a_cut_file_leaves_nothing(world: World) -> None:
    with pytest.raises(BodyTruncated):
        receive(world, untold(1000, cut_at=500))
    assert world.files() == set()


def test_a_file_beyond_the_limit_leaves_nothing(world: World) -> None:
    with pytest.raises(TooLarge):
        receive(world, untold(MAX_LENGTH + 1, 1 << 20))
    assert world.files() == set()


def test_a_file_of_a_refused_name_is_not_read(world: World) -> None:
    source = untold(100)
    with pytest.raises(InvalidRequest):
        world.whole.receive(source, owner=ME, filename="a\0b", room=100)
    assert source.position == 0
    assert world.files() == set()


def test_a_file_that_proves_malformed_at_its_end_leaves_nothing(world: World) -> None:
    class Malformed(PiecesSource):
        def finish(self) -> None:
            raise MalformedBody("no delimiter")

    with pytest.raises(MalformedBody):
        receive(world, Malformed(b"x" * 100))
    assert world.files() == set()


def test_a_received_file_can_be_put_where_it_belongs(world: World) -> None:
    upload = world.create(1000)
    world.send(upload, 0, 300)
    received = receive(world, PiecesSource(pattern(300, 1000), is_told=False))
    with world.whole.open(received) as file:
        done = world.service.append(upload, 300, StreamSource(file, received.length))
    world.whole.drop(received)
    assert done.state is UploadState.COMPLETE
    assert world.content(done) == pattern(0, 1000)
    assert world.files() == {upload.id}


def test_housekeeping_leaves_a_file_alone_that_is_being_received(world: World) -> None:
    received = receive(world, untold(100))
    world.housekeeping.sweep()
    world.housekeeping.remove_deleted()
    assert world.whole.keep(received).state is UploadState.COMPLETE

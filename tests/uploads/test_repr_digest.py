"""A digest of the whole file, which the client sends before the first byte."""

import hashlib
from collections.abc import Callable
from functools import partial
from threading import Event
from zlib import crc32

import pytest
from crc32c import crc32c

from app.core.errors import DigestMismatch, InvalidRequest, UploadGone
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange
from app.core.upload import Upload
from app.ingest.checksum import ALGORITHMS, digest_of
from app.uploads import completion
from app.uploads.housekeeping import STUCK_AFTER
from app.uploads.service import NewUpload
from tests.storage.sources import PiecesSource, pattern
from tests.uploads.world import LIMITS, ME, World, in_threads

FILE = pattern(0, 1000)


def digest_in(algorithm: str, data: bytes = FILE) -> str:
    crc = {"crc32": crc32, "crc32c": crc32c}.get(algorithm)
    found = f"{crc(data):08x}" if crc else hashlib.new(algorithm, data).hexdigest()
    return f"{algorithm}:{found}"


def demanding(world: World, digest: str) -> Upload:
    """An upload of the test's file that must have a digest."""
    new = NewUpload(scope=ME, filename="a.mp4", length=len(FILE), repr_digest=digest)
    return world.service.create(new)[0]


def covered(world: World, digest: str) -> Upload:
    """The same with all of its bytes, after its publisher was killed at once."""
    upload, span = demanding(world, digest), ByteRange(0, len(FILE))
    with world.store.staging.writer(upload.id, span, LIMITS) as writer:
        writer.write(span, PiecesSource(FILE), lambda _: None)
        with writer.recording() as rows:
            return world.records.add_received(upload, span, world.now, rows=rows)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_file_with_the_right_digest_is_published(world: World, algorithm: str) -> None:
    upload = demanding(world, digest_in(algorithm))
    world.send(upload, 600, 1000)
    done = world.send(upload, 0, 600)
    assert done.state is UploadState.COMPLETE
    assert world.content(done) == FILE


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_file_with_a_wrong_digest_is_ended_and_its_space_freed(
    world: World, algorithm: str
) -> None:
    upload = demanding(world, digest_in(algorithm, FILE + b"!"))
    world.send(upload, 0, 999)
    with pytest.raises(DigestMismatch):
        world.send(upload, 999, 1000)
    assert world.state(upload) is UploadState.CANCELLED
    assert (world.files(), world.completed_count) == (set(), 0)
    with pytest.raises(UploadGone):
        world.send(upload, 999, 1000)


@pytest.mark.every_store
def test_corruption_in_transit_is_found_before_publication(world: World) -> None:
    upload = demanding(world, digest_in("sha256"))
    world.send(upload, 0, 500)
    with pytest.raises(DigestMismatch):
        world.chunks.append(world.service.get(ME, upload.id), 500, PiecesSource(b"\xff" * 500))
    assert world.files() == set()


@pytest.mark.every_store
def test_a_checked_sha256_is_recorded(world: World) -> None:
    upload = demanding(world, digest_in("sha256"))
    done = world.send(upload, 0, 1000)
    assert done.sha256 == hashlib.sha256(FILE).hexdigest()
    assert world.records.without_sha256(10) == []


def test_another_algorithm_leaves_the_sha256_to_the_background(world: World) -> None:
    done = world.send(demanding(world, digest_in("sha512")), 0, 1000)
    assert done.sha256 is None
    world.housekeeping.digest()
    assert world.records.get(done.id).sha256 == hashlib.sha256(FILE).hexdigest()


@pytest.mark.parametrize(
    "digest",
    [
        "",
        "sha256",
        "sha256:",
        "sha256:00",
        "sha256:zz" + "00" * 31,
        "none:00",
        ":" + "00" * 32,
        "sha256: " + "00" * 32,
        "sha256:" + "AB" * 32,
        "SHA256:" + "00" * 32,
    ],
)
def test_an_unsupported_digest_is_refused_at_once(world: World, digest: str) -> None:
    with pytest.raises(InvalidRequest):
        demanding(world, digest)
    assert (world.files(), world.service.active(ME, 10)) == (set(), [])


@pytest.mark.parametrize("is_right", [True, False])
def test_a_publisher_killed_before_the_check_leaves_it_to_another(
    world: World, is_right: bool
) -> None:
    upload = covered(world, digest_in("sha256", FILE if is_right else b""))
    world.later(seconds=STUCK_AFTER.total_seconds())
    world.housekeeping.finish_stuck()
    expected = UploadState.COMPLETE if is_right else UploadState.CANCELLED
    assert world.state(upload) is expected
    assert world.files() == ({upload.id} if is_right else set())


def publish(world: World, upload: Upload, _thread: int) -> Upload:
    return world.completion.publish(upload)


@pytest.mark.every_store
@pytest.mark.parametrize("is_right", [True, False])
def test_concurrent_publications_have_one_outcome(world: World, is_right: bool) -> None:
    for _ in range(10):
        upload = covered(world, digest_in("sha256", FILE if is_right else b""))
        outcomes = in_threads(4, partial(publish, world, upload))
        if is_right:
            assert [outcome for outcome in outcomes if not isinstance(outcome, Upload)] == []
            assert world.content(upload) == FILE
        else:
            assert {type(outcome) for outcome in outcomes} <= {DigestMismatch, UploadGone}
            assert upload.id not in world.files()


def test_a_publication_by_another_after_the_check_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = covered(world, digest_in("sha256"))
    real: Callable[..., str] = digest_of
    has_begun, may_go_on = Event(), Event()

    def act(number: int) -> Upload:
        if number:
            assert has_begun.wait(30)
            monkeypatch.setattr(completion, "digest_of", real)
            published = world.completion.publish(upload)
            may_go_on.set()
            return published
        return world.completion.publish(upload)

    def slowly(*arguments: object) -> str:
        has_begun.set()
        assert may_go_on.wait(30)
        return real(*arguments)

    monkeypatch.setattr(completion, "digest_of", slowly)
    outcomes = in_threads(2, act)
    assert [o.state for o in outcomes if isinstance(o, Upload)] == [UploadState.COMPLETE] * 2
    assert world.content(upload) == FILE
    assert world.completed_count == 1

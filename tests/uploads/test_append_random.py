"""Random chunks, cut anywhere, overlapping, with wrong bytes for stored ranges: a whole file."""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.core.errors import BodyTruncated
from app.core.lifecycle import UploadState
from app.core.upload import Upload
from tests.storage.sources import PiecesSource, pattern
from tests.uploads.world import ME, World

LENGTH = 3000

pieces = st.lists(st.one_of(st.none(), st.integers(1, 900)), min_size=1, max_size=4).filter(
    lambda sizes: any(size is not None for size in sizes)
)
offsets = st.integers(0, LENGTH)
attempts = st.tuples(offsets, offsets, st.one_of(st.none(), offsets), pieces)


def lying(upload: Upload, start: int, end: int) -> bytes:
    """The right bytes where they are missing, and wrong ones where they are stored."""
    payload = bytearray(pattern(start, end))
    for item in upload.received:
        for number in range(max(item.start, start), min(item.end, end)):
            payload[number - start] ^= 0xFF
    return bytes(payload)


def attempt(
    world: World, upload: Upload, start: int, end: int, cut: int | None, sizes: list[int | None]
) -> None:
    """One request, which may be cut off; it must not change acknowledged bytes."""
    current = world.service.get(ME, upload.id)
    cut_at = None if cut is None or cut >= end - start else cut
    source = PiecesSource(lying(current, start, end), sizes, cut_at=cut_at)
    try:
        after = world.chunks.append(current, start, source)
    except BodyTruncated:
        assert cut_at is not None
        after = world.service.get(ME, upload.id)
    arrived = end if cut_at is None else start + cut_at
    for number in range(start, arrived):
        assert any(item.start <= number < item.end for item in after.received)
    assert after.received.total >= current.received.total
    if after.state is UploadState.RECEIVING:
        for item in after.received:
            right = pattern(item.start, item.end)
            assert world.staged_bytes(upload.id, item.start, item.end) == right


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(attempts, max_size=8), st.lists(st.tuples(offsets, pieces), max_size=4))
def test_random_requests_and_a_resume_make_the_file(
    requests: list[tuple[int, int, int | None, list[int | None]]],
    resumes: list[tuple[int, list[int | None]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        upload = world.create(LENGTH)
        for one, other, cut, sizes in requests:
            attempt(world, upload, min(one, other), max(one, other), cut, sizes)
        for cut, sizes in resumes:
            for gap in list(world.service.get(ME, upload.id).missing)[:1]:
                attempt(world, upload, gap.start, gap.end, cut, sizes)
        for gap in world.service.get(ME, upload.id).missing:
            attempt(world, upload, gap.start, gap.end, None, [1 << 20])
        final = world.service.get(ME, upload.id)
        assert final.state is UploadState.COMPLETE
        assert world.content(final) == pattern(0, LENGTH)
        assert world.completed_count == 1

"""The order in which a film is sent."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_client import Client, ServerUnreachable, pace
from sluice_client.play_order import MOST_BOXES, needed_first, next_missing
from sluice_client.spans import ChunkLadder, Span, Spans
from tests.browser.films import encode, index_last
from tests.client.bad_line import BadLine, Line, Request
from tests.dropzone_client import stored_sha256
from tests.live_server import Server
from tests.nodejs import run_script
from tests.video.films import FilmStore
from tests.waiting import wait_until

MIB = 1024 * 1024

HOLD_SECONDS = 60.0
"""Far longer than the server needs to notice that a film can be played."""


def box(kind: str, size: int, *, stated: int | None = None, is_64: bool = False) -> bytes:
    """A box of `size` bytes; `stated` is what its header says, with `is_64` in 64 bits."""
    stated = size if stated is None else stated
    header = (1 if is_64 else stated).to_bytes(4) + kind.encode()
    return (header + stated.to_bytes(8) * is_64).ljust(size, b"\0")


def needed(*boxes: bytes) -> list[tuple[int, int]]:
    content = b"".join(boxes)
    spans = needed_first(lambda at, count: content[at : at + count], len(content))
    return [(span.start, span.end) for span in spans]


def test_a_film_with_its_index_at_the_end_needs_its_head_and_the_index() -> None:
    film = (box("ftyp", 32), box("free", 8), box("mdat", 5000), box("moov", 700))
    assert needed(*film) == [(0, 32), (32, 40), (40, 56), (5040, 5740)]


def test_a_film_with_its_index_in_front_needs_nothing_out_of_order() -> None:
    assert needed(box("ftyp", 32), box("moov", 700), box("mdat", 5000)) == [(0, 32), (32, 732)]


def test_sizes_of_64_bits_and_boxes_to_the_end_of_the_file_are_understood() -> None:
    film = (box("wide", 8), box("mdat", 5000, is_64=True), box("moov", 700, stated=0))
    assert needed(*film) == [(0, 8), (8, 24), (5008, 5708)]


@pytest.mark.parametrize(
    "boxes",
    [
        (),
        (b"\0\0\0",),
        (b"ftyp is a box, and so is moov. " * 9,),
        (box("RIFF", 100), box("moov", 100)),
        (box("ftyp", 32), box("mdat", 5000)),
        (box("ftyp", 32), box("mdat", 5000, stated=0)),
        (box("ftyp", 32), box("mdat", 5000, stated=6000), box("moov", 700)),
        (box("ftyp", 32), box("mdat", 100, stated=2**64 - 1, is_64=True)),
        (box("ftyp", 32), box("mdat", 100, stated=7)),
        (box("ftyp", 32), box("mdat", 12, stated=1)),
        (box("ftyp", 32), *[box("free", 50)] * MOST_BOXES, box("moov", 700)),
    ],
)
def test_what_is_no_film_or_a_damaged_one_is_sent_in_order(boxes: tuple[bytes, ...]) -> None:
    assert needed(*boxes) == []


def test_a_file_that_cannot_be_read_is_sent_in_order() -> None:
    def fail(_at: int, _count: int) -> bytes:
        raise OSError

    assert needed_first(fail, 5000) == []


@given(st.binary(max_size=300))
def test_whatever_a_file_contains_few_headers_are_read(content: bytes) -> None:
    reads = []

    def read_at(at: int, count: int) -> bytes:
        reads.append(count)
        return content[at : at + count]

    spans = needed_first(read_at, len(content))
    assert len(reads) <= MOST_BOXES
    assert set(reads) <= {16}
    assert all(0 <= span.start < span.end <= len(content) for span in spans)


@settings(deadline=None)
@given(
    length=st.integers(1, 5000),
    wanted=st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 900)), max_size=4),
    sizes=st.lists(st.integers(1, 2000), min_size=1),
    base=st.integers(1, 1000),
    lost=st.sets(st.integers(0, 30)),
)
def test_whatever_is_needed_first_each_byte_is_stored_once(
    length: int, wanted: list[tuple[int, int]], sizes: list[int], base: int, lost: set[int]
) -> None:
    first = [Span(start, min(length, start + size)) for start, size in wanted if start < length]
    ladder = ChunkLadder.around(base, smallest=64, largest=4000)
    missing, stored, is_first_over = Spans([(0, length)]), Spans(), False
    for turn, at_most in enumerate(cycle(sizes)):
        if not missing:
            break
        position, gap = next_missing(missing, first)
        is_wanted = any(span.start <= position < span.end for span in first)
        assert is_wanted or not any(gap.start < s.end and s.start < gap.end for s in first)
        assert not (is_wanted and is_first_over)
        chunk = ladder.chunk(position, gap, at_most=at_most, length=length)
        assert chunk.span.start == chunk.index * chunk.size <= position < chunk.span.end
        if turn in lost:
            continue
        is_first_over = not is_wanted
        missing.remove(*chunk.span)
        assert stored.total + chunk.span.length == Spans([*stored, chunk.span]).total
        stored.add(*chunk.span)
    assert list(stored) == [Span(0, length)]


def test_page_and_client_need_the_same_of_every_film(film: FilmStore) -> None:
    indexed = ["moov-last.mp4", "quicktime.mov", "huge.mp4", "h264.mp4", "fragmented.mp4"]
    others = ["without-moov.mp4", "h264.mkv", "garbage.mp4", "empty.mp4"]
    paths = [film(name) for name in indexed + others]
    by_client = [_needed(path) for path in paths]
    task = {"files": [str(path) for path in paths]}
    assert run_script(Path(__file__).with_name("needed_first.mjs"), task) == by_client
    for path, spans in zip(paths, by_client[: len(indexed)], strict=False):
        assert _bytes_at(path, spans[-1][0], 8)[4:] == b"moov"
    assert by_client[len(indexed) :] == [[]] * len(others)


def _needed(path: Path) -> list[list[int]]:
    spans = needed_first(lambda at, count: _bytes_at(path, at, count), path.stat().st_size)
    return [list(span) for span in spans]


def _bytes_at(path: Path, position: int, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(position)
        return file.read(count)


@pytest.fixture(scope="module")
def front_film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A film of 7 MB with its index in front."""
    path = tmp_path_factory.mktemp("films") / "front.mp4"
    encode(path, size="640x360", seconds=4, bits_per_second="12M")
    return path


@pytest.fixture
def camera_film(front_film: Path, tmp_path: Path) -> Path:
    """The same film with its index at the end."""
    path = tmp_path / f"{tmp_path.name}.mp4"
    index_last(front_film, path)
    return path


def chunks_of(line: BadLine) -> list[Span]:
    """The chunks on a line, in the order of their requests."""
    return [_chunk(request) for request in line.requests if request.path.startswith("/upload?")]


def _chunk(request: Request) -> Span:
    fields = parse_qs(urlsplit(request.path).query)
    start = int(fields["dzchunkbyteoffset"][0])
    return Span(start, start + request.length)


def index_of(film: Path) -> Span:
    """Where the film's last box is, its index."""
    content = film.read_bytes()
    return Span(content.rindex(b"moov") - 4, len(content))


@pytest.mark.e2e
def test_a_film_can_be_played_while_its_second_half_is_still_to_be_sent(
    server: Server,
    line: BadLine,
    make_client: Callable[..., Client],
    film: FilmStore,
    camera_film: Path,
) -> None:
    size, index = camera_film.stat().st_size, index_of(camera_film)
    is_playable = threading.Event()
    wait_for_media_worker(make_client(server.url), film("h264.mp4"))

    def hold(_line: Line, request: Request) -> None:
        if request.path.startswith("/upload?"):
            chunk = _chunk(request)
            if size / 2 < chunk.start and chunk.end <= index.start:
                is_playable.wait(HOLD_SECONDS)

    line.on_head = hold
    patient = {"stall_seconds": 2 * HOLD_SECONDS, "answer_seconds": 2 * HOLD_SECONDS}
    client = make_client(line.url, chunk_bytes=MIB, **patient)
    with ThreadPoolExecutor(1) as thread:
        upload = thread.submit(client.upload, camera_film)
        try:
            wait_until(lambda: _playable(server, camera_film.name), "it plays", HOLD_SECONDS)
            arriving = _playable(server, camera_film.name) or {}
        finally:
            is_playable.set()
        uploaded = upload.result()
    received = Spans((start, end) for start, end in arriving["received"])
    assert received.prefix_end
    assert holds(received, index)
    assert received.total < size
    assert (
        stored_sha256(server, uploaded.id) == hashlib.sha256(camera_film.read_bytes()).hexdigest()
    )


def wait_for_media_worker(client: Client, film: Path) -> None:
    """It starts later than the server, and looks only at uploads that are active just then."""
    video = client.upload(film).id
    wait_until(lambda: _is_playable(client.video(video)), "the background worker has started")


def _playable(server: Server, name: str) -> dict[str, Any] | None:
    """The upload of that name, once it can be played."""
    uploads: list[dict[str, Any]] = server.get("/api/uploads").json()["uploads"]
    return next((u for u in uploads if u["filename"] == name and _is_playable(u)), None)


def _is_playable(upload: dict[str, Any]) -> bool:
    return bool((upload.get("playback") or {}).get("playable"))


def holds(spans: Spans, wanted: Span) -> bool:
    return any(span.start <= wanted.start and wanted.end <= span.end for span in spans)


@pytest.mark.e2e
def test_after_the_index_a_film_is_sent_in_order_and_in_hardly_more_requests(
    line: BadLine,
    make_client: Callable[..., Client],
    front_film: Path,
    camera_film: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Chunks have one size, however slow the machine is.
    monkeypatch.setattr(pace, "FIRST_BYTES", MIB)
    monkeypatch.setattr(pace, "GOOD_SECONDS", 600)
    monkeypatch.setattr(pace, "SLOW_SECONDS", 600)
    counts = []
    for path in (front_film, camera_film):
        line.heal()
        uploaded = make_client(line.url, chunk_bytes=MIB, parallel=1).upload(path)
        assert uploaded.sent == line.sent() == path.stat().st_size
        counts.append(len(chunks_of(line)))
    in_front, at_end = counts
    assert at_end <= in_front + 4
    head, index, *rest = [chunk.start for chunk in chunks_of(line)]
    assert (head, index, rest) == (0, max(index, *rest), sorted(rest))


@pytest.mark.e2e
def test_an_interrupted_film_goes_on_with_its_index(
    line: BadLine, make_client: Callable[..., Client], camera_film: Path
) -> None:
    index = index_of(camera_film)
    line.on_head = _lose_all_but_the_head
    client = make_client(line.url, chunk_bytes=MIB, give_up_seconds=1.0)
    with pytest.raises(ServerUnreachable):
        client.upload(camera_film)
    client.close()
    wait_until(lambda: line.is_quiet, "what the client has sent is lost", HOLD_SECONDS)
    line.heal()
    make_client(line.url, chunk_bytes=MIB, parallel=1).upload(camera_film)
    chunks = chunks_of(line)
    assert chunks[0].start <= index.start < chunks[0].end
    assert min(chunk.start for chunk in chunks) > 0
    assert line.sent() == camera_film.stat().st_size - min(chunk.start for chunk in chunks)


def _lose_all_but_the_head(line: Line, request: Request) -> None:
    """The others break once it is stored: the client may give up after the first of them."""
    if request.path.startswith("/upload?") and _chunk(request).start > 0:
        wait_until(lambda: _is_head_stored(line.proxy), "the head is stored", HOLD_SECONDS)
        line.cut()


def _is_head_stored(line: BadLine) -> bool:
    chunks = [request for request in line.requests if request.path.startswith("/upload?")]
    return any(_chunk(request).start == 0 and request.status for request in chunks)

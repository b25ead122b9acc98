"""Downloads over broken connections, with the Python library."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from sluice_client import Client, ContentMismatch, FileProblem, Interrupted, Progress, Refused
from sluice_client.part_file import PartFile
from tests.client.bad_line import BadLine, Line, Request, sometimes
from tests.client.conftest import MakeFile
from tests.dropzone_client import ChunkedFile, forged, random_bytes, send_all
from tests.live_server import Server

MakeClient = Callable[..., Client]
MIB = 1024 * 1024
SIZE = 17 * MIB + 3

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def stored(server: Server) -> ChunkedFile:
    """A file of four ranges on the server; its key is its id."""
    file = ChunkedFile(random_bytes(SIZE, 77), 20 * MIB, filename="Ferien/Öl am Meer.mp4")
    file.key = send_all(server, file)["id"]
    return file


def test_a_file_is_fetched_whole_under_its_own_name(
    server: Server,
    stored: ChunkedFile,
    make_client: MakeClient,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(home)
    fetched = make_client(server.url).fetch(stored.key)
    assert Path(fetched.path).name == "Öl am Meer.mp4"
    assert Path(fetched.path).read_bytes() == stored.content
    assert (fetched.is_verified, fetched.sha256) == (True, stored.sha256)
    assert [path.name for path in home.iterdir()] == ["Öl am Meer.mp4"]


def test_a_url_works_like_an_id(
    server: Server, stored: ChunkedFile, make_client: MakeClient, home: Path
) -> None:
    fetched = make_client(server.url).fetch(f"{server.url}/media/{stored.key}", home)
    assert Path(fetched.path).read_bytes() == stored.content


def test_a_file_is_fetched_in_ranges_of_five_megabytes(
    line: BadLine, stored: ChunkedFile, make_client: MakeClient, home: Path
) -> None:
    make_client(line.url).fetch(stored.key, home / "film.mp4")
    asked = [r for r in line.requests if r.method == "GET" and r.path.startswith("/media")]
    assert sorted(request.answer for request in asked) == [2 * MIB + 3, 5 * MIB, 5 * MIB, 5 * MIB]
    assert all("if-range: " in request.headers.lower() for request in asked)


@pytest.mark.parametrize("fault", [Line.cut, Line.reset])
def test_after_a_cut_a_fetch_resumes_at_the_exact_byte(
    line: BadLine,
    stored: ChunkedFile,
    make_client: MakeClient,
    home: Path,
    fault: Callable[[Line], None],
) -> None:
    line.on_answer = sometimes(fault, after=2 * MIB, times=3, path="/media")
    fetched = make_client(line.url).fetch(stored.key, home / "film.mp4")
    assert Path(fetched.path).read_bytes() == stored.content
    # A reset loses at most what the kernel's buffers held for three connections.
    assert SIZE <= line.received() < SIZE + 3 * 5 * MIB


def test_a_stalled_connection_is_replaced(
    line: BadLine, stored: ChunkedFile, make_client: MakeClient, home: Path
) -> None:
    line.on_answer = sometimes(Line.stall, after=MIB, times=2, path="/media")
    client = make_client(line.url, answer_seconds=1.0)
    fetched = client.fetch(stored.key, home / "film.mp4")
    assert Path(fetched.path).read_bytes() == stored.content


def test_corrupted_bytes_are_detected_and_fetched_again(
    line: BadLine, stored: ChunkedFile, make_client: MakeClient, home: Path
) -> None:
    garbled: list[Request] = []

    def garble_once(request: Request, block: bytes) -> bytes:
        if garbled or not request.path.startswith("/media"):
            return block
        garbled.append(request)
        return bytes(len(block))

    line.garble = garble_once
    fetched = make_client(line.url).fetch(stored.key, home / "film.mp4")
    assert garbled
    assert Path(fetched.path).read_bytes() == stored.content


def test_a_line_that_always_corrupts_is_an_error_and_leaves_no_file(
    line: BadLine, stored: ChunkedFile, make_client: MakeClient, home: Path
) -> None:
    line.garble = lambda r, block: bytes(len(block)) if r.path.startswith("/media") else block
    with pytest.raises(ContentMismatch):
        make_client(line.url).fetch(stored.key, home / "film.mp4")
    assert list(home.iterdir()) == []


def part_of(target: Path) -> Path:
    """The part file of an unfinished fetch."""
    (part,) = target.parent.glob(f"{target.name}.*.part")
    return part


def record_of(target: Path) -> Path:
    part = part_of(target)
    return part.with_name(f"{part.name}.json")


def stop_in_the_middle(client: Client, stored: ChunkedFile, target: Path) -> int:
    """Fetch part of the file; the number of bytes recorded."""

    def listen(progress: Progress) -> None:
        if progress.done > 8 * MIB:
            client.stop()

    with pytest.raises(Interrupted):
        client.fetch(stored.key, target, on_progress=listen)
    record = json.loads(record_of(target).read_text())
    return sum(end - start for start, end in record["done"])


def test_a_stopped_fetch_resumes_where_it_stopped(
    line: BadLine, stored: ChunkedFile, make_client: MakeClient, home: Path
) -> None:
    target = home / "film.mp4"
    line.bytes_per_second = 2_000_000
    kept = stop_in_the_middle(make_client(line.url), stored, target)
    assert not target.exists()
    line.heal()
    fetched = make_client(line.url).fetch(stored.key, target)
    assert fetched.resumed == kept > 0
    assert line.received() == SIZE - kept
    assert target.read_bytes() == stored.content
    assert [path.name for path in home.iterdir()] == ["film.mp4"]


@pytest.mark.parametrize("damage", ["not json", "[]", '{"done": [[0, 5]]}', "record of another"])
def test_a_damaged_record_only_costs_a_restart_of_the_fetch(
    line: BadLine, stored: ChunkedFile, make_client: MakeClient, home: Path, damage: str
) -> None:
    target = home / "film.mp4"
    line.bytes_per_second = 2_000_000
    stop_in_the_middle(make_client(line.url), stored, target)
    record = record_of(target)
    if damage == "record of another":
        damage = json.dumps({**json.loads(record.read_text()), "etag": '"other"'})
    record.write_text(damage)
    line.heal()
    fetched = make_client(line.url).fetch(stored.key, target)
    assert fetched.resumed == 0
    assert target.read_bytes() == stored.content


def test_a_part_file_with_wrong_bytes_is_detected_at_the_end_and_replaced(
    line: BadLine, stored: ChunkedFile, make_client: MakeClient, home: Path
) -> None:
    target = home / "film.mp4"
    line.bytes_per_second = 2_000_000
    stop_in_the_middle(make_client(line.url), stored, target)
    with part_of(target).open("r+b") as part:
        part.write(b"damaged by a disk")
    line.heal()
    make_client(line.url).fetch(stored.key, target)
    assert target.read_bytes() == stored.content


def test_a_fetch_that_was_killed_while_it_gave_the_file_its_name_leaves_that_file_alone(
    line: BadLine, stored: ChunkedFile, make_client: MakeClient, home: Path
) -> None:
    """For a moment, the finished file has both names."""
    target, kept = home / "film.mp4", home / "kept.mp4"
    line.bytes_per_second = 2_000_000
    stop_in_the_middle(make_client(line.url), stored, target)
    part = part_of(target)
    part.unlink()
    kept.write_bytes(b"an earlier film")
    part.hardlink_to(kept)
    line.heal()
    make_client(line.url).fetch(stored.key, target)
    assert target.read_bytes() == stored.content
    assert kept.read_bytes() == b"an earlier film"


def test_a_file_that_changes_on_the_server_is_fetched_from_the_start(
    line: BadLine, stored: ChunkedFile, make_client: MakeClient, home: Path
) -> None:
    """An ETag that no longer matches gets the whole file, with status 200."""
    changed: list[Request] = []

    def answer_with_another_file(refusing: Line, request: Request) -> None:
        if request.method == "GET" and request.path.startswith("/media") and not changed:
            changed.append(request)
            refusing.answer("200 OK", 'ETag: "new"', body="all other bytes")

    line.on_head = answer_with_another_file
    fetched = make_client(line.url).fetch(stored.key, home / "film.mp4")
    assert changed
    assert Path(fetched.path).read_bytes() == stored.content


def test_bytes_are_written_to_a_pipe_in_order(
    line: BadLine, stored: ChunkedFile, make_client: MakeClient
) -> None:
    line.on_answer = sometimes(Line.cut, after=MIB, times=2, path="/media")
    output = io.BytesIO()
    assert make_client(line.url).copy_to(stored.key, output).sha256 == stored.sha256
    assert output.getvalue() == stored.content


def test_an_empty_file_is_fetched(
    server: Server, make_client: MakeClient, make_file: MakeFile, home: Path
) -> None:
    client = make_client(server.url)
    uploaded = client.upload(make_file("nothing.mp4", 0))
    fetched = client.fetch(uploaded.id, home / "copy.mp4")
    assert (fetched.length, Path(fetched.path).read_bytes()) == (0, b"")


def test_an_unknown_file_is_refused(server: Server, make_client: MakeClient, home: Path) -> None:
    with pytest.raises(Refused) as refused:
        make_client(server.url).fetch("0" * 32, home / "film.mp4")
    assert refused.value.is_missing
    assert list(home.iterdir()) == []


def test_a_missing_folder_is_reported_before_anything_is_fetched(
    line: BadLine, stored: ChunkedFile, make_client: MakeClient, home: Path
) -> None:
    with pytest.raises(FileProblem, match="is not a folder"):
        make_client(line.url).fetch(stored.key, home / "nowhere" / "film.mp4")
    assert line.received() == 0


def test_another_file_of_the_servers_name_is_not_overwritten(
    server: Server, stored: ChunkedFile, make_client: MakeClient, home: Path
) -> None:
    mine = home / "Öl am Meer.mp4"
    mine.write_bytes(b"mine")
    client = make_client(server.url)
    with pytest.raises(FileProblem, match="exists and is another file"):
        client.fetch(stored.key, home)
    assert mine.read_bytes() == b"mine"
    assert client.fetch(stored.key, home, overwrite=True).resumed == 0
    again = client.fetch(stored.key, home)
    assert (again.resumed, again.is_verified) == (len(stored.content), True)
    assert mine.read_bytes() == stored.content
    assert [path.name for path in home.iterdir()] == [mine.name]


def test_another_file_of_the_same_crc32c_is_not_taken_for_it(
    server: Server, make_client: MakeClient, make_file: MakeFile, home: Path
) -> None:
    client, path = make_client(server.url), make_file()
    uploaded = client.upload(path)
    path.write_bytes(forged(path.read_bytes(), 300_000))
    with pytest.raises(FileProblem, match="exists and is another file"):
        client.fetch(uploaded.id, home)


def test_a_file_that_appears_while_another_of_its_name_is_fetched_is_kept(
    line: BadLine, stored: ChunkedFile, make_client: MakeClient, home: Path
) -> None:
    def create(_progress: Progress) -> None:
        (home / "Öl am Meer.mp4").write_bytes(b"mine")

    with pytest.raises(FileProblem, match="File exists"):
        make_client(line.url).fetch(stored.key, home, on_progress=create)
    assert (home / "Öl am Meer.mp4").read_bytes() == b"mine"


@pytest.mark.parametrize("beginning", ["f", "n" * 240])
def test_a_name_that_is_no_text_can_be_chosen(
    server: Server, stored: ChunkedFile, make_client: MakeClient, home: Path, beginning: str
) -> None:
    target = home / os.fsdecode(beginning.encode() + b"\xff.mp4")
    make_client(server.url).fetch(stored.key, target)
    assert target.read_bytes() == stored.content
    assert list(home.iterdir()) == [target]


@pytest.fixture(scope="module")
def namesake(server: Server, stored: ChunkedFile) -> ChunkedFile:
    """Another file of the same name and size."""
    file = ChunkedFile(random_bytes(SIZE, 78), 20 * MIB, filename=stored.filename)
    file.key = send_all(server, file)["id"]
    return file


def fetch_with_another_inside(
    outer: Callable[[Callable[[Progress], None]], object], inner: Callable[[], object]
) -> None:
    """Fetch; once some of it is here, do another fetch from its beginning to its end."""
    begun = Event()

    def listen(progress: Progress) -> None:
        if progress.done and not begun.is_set():
            begun.set()
            inner()

    outer(listen)
    assert begun.is_set()


def test_two_files_of_one_name_are_not_mixed(
    server: Server,
    stored: ChunkedFile,
    namesake: ChunkedFile,
    make_client: MakeClient,
    home: Path,
) -> None:
    first, second = make_client(server.url), make_client(server.url)
    with pytest.raises(FileProblem, match="File exists"):
        fetch_with_another_inside(
            lambda listen: first.fetch(stored.key, home, on_progress=listen),
            lambda: second.fetch(namesake.key, home),
        )
    target = home / "Öl am Meer.mp4"
    assert target.read_bytes() == namesake.content
    target.unlink()
    assert first.fetch(stored.key, home).resumed == SIZE
    assert target.read_bytes() == stored.content


def test_a_file_that_is_being_fetched_is_not_fetched_to_the_same_place_again(
    server: Server, stored: ChunkedFile, make_client: MakeClient, home: Path
) -> None:
    refusals: list[FileProblem] = []
    first, second = make_client(server.url), make_client(server.url)

    def fetch_again() -> None:
        with pytest.raises(FileProblem, match="is being fetched by another program") as refused:
            second.fetch(stored.key, home)
        refusals.append(refused.value)

    fetch_with_another_inside(
        lambda listen: first.fetch(stored.key, home, on_progress=listen), fetch_again
    )
    assert refusals
    (path,) = home.iterdir()
    assert path.read_bytes() == stored.content


def test_a_part_file_of_another_program_is_left_alone(
    server: Server, stored: ChunkedFile, make_client: MakeClient, home: Path
) -> None:
    """Firefox gives its own downloads such names."""
    foreign = home / "film.mp4.part"
    foreign.write_bytes(b"of a browser")
    make_client(server.url).fetch(stored.key, home / "film.mp4")
    assert foreign.read_bytes() == b"of a browser"
    assert (home / "film.mp4").read_bytes() == stored.content


def test_the_bytes_of_a_killed_fetch_are_not_taken_for_those_of_an_earlier_one(home: Path) -> None:
    def part_file(media: str, etag: str) -> PartFile:
        part = PartFile(home / "film.mp4", source=media, etag=etag, length=100)
        part.open()
        return part

    def fetch_some(media: str, etag: str, *, is_killed: bool) -> None:
        part = part_file(media, etag)
        part.write(etag.encode() * 90, 0)
        if not is_killed:
            part.record()
        part.close()

    fetch_some("/media/a", "1", is_killed=False)
    fetch_some("/media/b", "1", is_killed=True)
    with closing(part_file("/media/a", "1")) as part:
        assert list(part.done) == [(0, 90)]
    fetch_some("/media/a", "2", is_killed=True)
    with closing(part_file("/media/a", "1")) as part:
        assert list(part.done) == []


def test_a_link_is_followed_and_a_pipe_gets_the_bytes(
    server: Server, stored: ChunkedFile, make_client: MakeClient, home: Path
) -> None:
    (home / "disk").mkdir()
    (home / "link.mp4").symlink_to(home / "disk" / "film.mp4")
    client = make_client(server.url)
    client.fetch(stored.key, home / "link.mp4")
    assert (home / "link.mp4").is_symlink()
    assert (home / "disk" / "film.mp4").read_bytes() == stored.content
    pipe = home / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        received = pool.submit(pipe.read_bytes)
        assert client.fetch(stored.key, pipe).is_verified
        assert received.result() == stored.content
    assert pipe.is_fifo()


def test_the_pipe_of_another_program_gets_the_bytes(
    server: Server, stored: ChunkedFile, make_client: MakeClient
) -> None:
    """As in `-o >(program)`, which a shell turns into the name of a descriptor."""
    output, given = os.pipe()
    with os.fdopen(output, "rb") as stream, ThreadPoolExecutor() as pool:
        received = pool.submit(stream.read)
        try:
            assert make_client(server.url).fetch(stored.key, f"/dev/fd/{given}").is_verified
        finally:
            os.close(given)
        assert received.result() == stored.content


def test_a_name_of_255_bytes_is_fetched(
    server: Server, make_client: MakeClient, home: Path
) -> None:
    file = ChunkedFile(b"film", 4, filename="n" * 251 + ".mp4")
    fetched = make_client(server.url).fetch(send_all(server, file)["id"], home)
    assert Path(fetched.path).name == fetched.name == file.filename

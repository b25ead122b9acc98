"""What players load: files whose bytes are partly those of the original."""

from __future__ import annotations

import json
import random
import socket
from typing import Any

import pytest
import requests

from app.core.ranges import ByteRange
from app.core.upload import UploadId
from app.video.index.virtual_file import Piece, VirtualFileWriter
from app.video.serve.derived_files import DerivedFiles
from tests.deliver.stored import Stored, store
from tests.derived import files_of, place
from tests.dropzone_client import random_bytes
from tests.live_server import Server, receive_exactly
from tests.waiting import wait_until

CONTENT = random_bytes(3_000_017, 11)

HEAD = random.Random(3).randbytes(500)

PIECES: list[Piece] = [
    HEAD,
    ByteRange(1_000_000, 2_500_000),
    b"between",
    *(ByteRange(start, start + 300) for start in range(0, 600_000, 2000)),
    ByteRange(2_500_000, len(CONTENT)),
]
"""A range that the kernel sends, many that are sent together, and the end of the original."""

SEGMENT = ByteRange(400, 1_600_000)


def content_of(pieces: list[Piece]) -> bytes:
    return b"".join(
        CONTENT[piece.start : piece.end] if isinstance(piece, ByteRange) else piece
        for piece in pieces
    )


def write(files: DerivedFiles, video: str, name: str, pieces: list[Piece]) -> None:
    with files.writing(UploadId(video), name) as target:
        writer = VirtualFileWriter(target)
        writer.extend(pieces)
        writer.finish()


@pytest.fixture(scope="module")
def film(server: Server) -> Stored:
    """An upload with an index made by hand."""
    film = store(server, "notes.bin", CONTENT)
    length = len(content_of(PIECES))
    stream = {
        "name": "source",
        "kind": "video",
        "codecs": "avc1.64001f",
        "peak_rate": 1,
        "mean_rate": 1,
        "ends": [SEGMENT.start, SEGMENT.end, length],
        "durations": [4, 4, 2],
        "reaches": [length] * 3,
    }
    with files_of(server.library.parent) as files:
        write(files, film.id, "play.virtual", PIECES)
        write(files, film.id, "hls/source/segments.virtual", PIECES)
        place(files, film.id, "hls/source/init.mp4", HEAD)
        place(files, film.id, "poster.jpg", b"\xff\xd8picture")
        place(files, film.id, "hls.json", json.dumps([stream]).encode())
    return film


def test_the_film_is_sent_as_its_pieces(film: Stored) -> None:
    response = film.server.get(f"{film.path}/play.mp4")
    assert response.status_code == 200
    assert response.content == content_of(PIECES)
    assert response.headers["Content-Type"] == "video/mp4"
    assert response.headers["Accept-Ranges"] == "bytes"


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, 1), (0, 600), (499, 501), (300_000, 1_900_000), (1_500_490, 1_500_520), (1_590_000, None)],
)
def test_a_range_is_sent(film: Stored, start: int, end: int | None) -> None:
    whole = content_of(PIECES)
    last = "" if end is None else str(end - 1)
    response = film.server.get(f"{film.path}/play.mp4", headers={"Range": f"bytes={start}-{last}"})
    assert response.status_code == 206
    assert response.content == whole[start:end]
    stop = len(whole) if end is None else end
    assert response.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{len(whole)}"


def test_several_ranges_get_the_whole_film(film: Stored) -> None:
    response = film.server.get(f"{film.path}/play.mp4", headers={"Range": "bytes=0-1,5-9"})
    assert (response.status_code, len(response.content)) == (200, len(content_of(PIECES)))


def test_a_range_behind_the_end_is_refused(film: Stored) -> None:
    response = film.server.get(f"{film.path}/play.mp4", headers={"Range": "bytes=99999999-"})
    assert response.status_code == 416


def test_head_and_conditions_are_answered_as_for_the_original(film: Stored) -> None:
    head = requests.head(f"{film.url}/play.mp4", timeout=30)
    assert head.headers["Content-Length"] == str(len(content_of(PIECES)))
    known = {"If-None-Match": head.headers["ETag"]}
    assert film.server.get(f"{film.path}/play.mp4", headers=known).status_code == 304
    assert head.headers["ETag"] != film.server.get(film.path).headers["ETag"]


def test_segments_are_spans_of_their_stream(film: Stored) -> None:
    whole = content_of(PIECES)
    for number, span in enumerate(
        [ByteRange(0, SEGMENT.start), SEGMENT, ByteRange(SEGMENT.end, len(whole))], start=1
    ):
        response = film.server.get(f"{film.path}/hls/source/{number}.m4s")
        assert response.content == whole[span.start : span.end]
        assert response.headers["Cache-Control"] == "private, no-cache"
    assert film.server.get(f"{film.path}/hls/source/init.mp4").content == HEAD


@pytest.mark.parametrize(
    "path",
    [
        "hls/source/0.m4s",
        "hls/source/4.m4s",
        "hls/other/1.m4s",
        "hls/..%2f/1.m4s",
        "hls/other/init.mp4",
        "sprite.jpg",
        "hls.json",
        "play.virtual",
        "..%2f..%2fsluice.db",
    ],
)
def test_what_is_not_made_is_not_found(film: Stored, path: str) -> None:
    response = film.server.get(f"{film.path}/{path}")
    assert response.status_code == 404
    assert response.headers["Content-Type"] == "application/problem+json"


def test_pictures_have_their_type(film: Stored) -> None:
    response = film.server.get(f"{film.path}/poster.jpg")
    assert (response.content, response.headers["Content-Type"]) == (
        b"\xff\xd8picture",
        "image/jpeg",
    )


def test_the_connection_goes_on_after_a_film_of_pieces(film: Stored) -> None:
    wanted = content_of(PIECES)
    paths = (f"{film.path}/play.mp4", "/healthz")
    with film.server.connect() as connection:
        for path in paths:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        connection.shutdown(socket.SHUT_WR)
        answers = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    head, _, rest = answers.partition(b"\r\n\r\n")
    assert b"200 OK" in head
    assert rest.startswith(wanted)
    assert rest[len(wanted) :].startswith(b"HTTP/1.1 200 OK")


def test_the_bytes_sent_are_logged(film: Stored) -> None:
    name = {"X-Request-ID": "film-of-pieces"}
    film.server.get(f"{film.path}/play.mp4", headers=name)
    wait_until(lambda: "film-of-pieces" in film.server.log, "the line in the log")
    line = next(line for line in film.server.log.splitlines() if "film-of-pieces" in line)
    assert json.loads(line)["sent"] == len(content_of(PIECES))


def test_bytes_are_counted_of_a_player_that_left(film: Stored) -> None:
    before = sent_bytes(film.server)
    request = f"GET {film.path}/play.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with film.server.connect() as connection:
        connection.sendall(request.encode())
        receive_exactly(connection, 600_000)
    wait_until(lambda: sent_bytes(film.server) >= before + 500_000, "the bytes are counted")


def sent_bytes(server: Server) -> float:
    lines = server.get("/metrics").text.splitlines()
    return float(
        next(line for line in lines if line.startswith("sluice_sent_bytes_total")).split()[1]
    )


def test_subtitles_in_a_file_of_their_own_follow_the_names_of_both_files(server: Server) -> None:
    text = store(server, "Holiday.en.srt", b"1\n00:00:01,000 --> 00:00:02,000\nHello & bye\n")
    film = store(server, "holiday.mp4", b"no film")

    def subtitles() -> Any:
        return server.get(f"/api/videos/{film.id}").json()["playback"]["subtitles"]

    url = f"{film.path}/subs-{text.id}.vtt"
    assert subtitles() == [{"language": "en", "title": None, "url": url}]
    assert server.get(f"/api/videos/{text.id}").json()["playback"]["subtitles"] == []
    answer = server.get(url)
    assert answer.headers["Content-Type"] == "text/vtt; charset=utf-8"
    assert answer.text == "WEBVTT\n\n00:00:01.000 --> 00:00:02.000\nHello &amp; bye\n"
    assert server.get(url, headers={"If-None-Match": answer.headers["ETag"]}).status_code == 304

    server.patch(f"/api/videos/{film.id}", json={"filename": "party.mp4"})
    assert subtitles() == []
    assert server.get(url).status_code == 404
    server.patch(f"/api/videos/{text.id}", json={"filename": "party.srt"})
    assert subtitles() == [{"language": "und", "title": None, "url": url}]
    server.delete(f"/api/videos/{text.id}")
    assert subtitles() == []

"""/upload with the chunks of six other libraries, and with unknown chunks."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.dropzone_client import form_body, form_headers, random_bytes, stored_sha256
from tests.live_server import Server
from tests.protocols.library_chunks import LIBRARIES, LibraryFile

LENGTH, CHUNK = 10_500, 1000

ONE_AFTER_THE_OTHER = ["blueimp", "uploady", "plupload", "plupload_by_offset"]
"""They send nothing that identifies a client, so a chunk must follow the one before."""

ANY_ORDER = ["webuploader", "simple_uploader"]

TOO_EARLY = 409


def a_file(library: str, length: int = LENGTH, seed: int = 0, **options: Any) -> LibraryFile:
    options.setdefault("filename", f"{uuid.uuid4().hex} 影片.mp4")
    return LibraryFile(library, random_bytes(length, seed), CHUNK, **options)


def videos(server: Server, filename: str) -> list[dict[str, Any]]:
    found = server.get("/api/videos", params={"limit": "200"}).json()["videos"]
    return [video for video in found if video["filename"] == filename]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("length", [10_500, 10_000, 1001])
def test_chunks_make_the_file(server: Server, library: str, length: int) -> None:
    file = a_file(library, length)
    answer = file.send_all(server).json()
    assert (answer["complete"], answer["length"]) == (True, length)
    assert stored_sha256(server, answer["id"]) == file.sha256
    name = "unnamed" if library == "huge_uploader" else file.filename
    assert answer["filename"] == name


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_file_of_one_chunk_is_whole(server: Server, library: str) -> None:
    file = a_file(library, CHUNK)
    answer = file.send_all(server).json()
    assert (answer["complete"], answer["received"]) == (True, CHUNK)
    assert stored_sha256(server, answer["id"]) == file.sha256


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_chunk_sent_twice_counts_once(server: Server, library: str) -> None:
    file = a_file(library)
    for index in range(file.count):
        first, second = (file.send(server, index).json() for _ in range(2))
        assert first["id"] == second["id"]
        assert first["received"] == second["received"]
    assert stored_sha256(server, first["id"]) == file.sha256


@pytest.mark.parametrize("library", [*ONE_AFTER_THE_OTHER, "huge_uploader"])
def test_a_chunk_without_the_first_one_is_refused(server: Server, library: str) -> None:
    file = a_file(library)
    response = file.send(server, 1)
    assert response.status_code == TOO_EARLY
    assert response.headers["Content-Type"] == "application/problem+json"
    file.send(server, 0)
    assert stored_sha256(server, file.send_all(server).json()["id"]) == file.sha256


@pytest.mark.parametrize("library", ONE_AFTER_THE_OTHER)
def test_without_a_name_of_its_own_an_upload_has_no_gaps(server: Server, library: str) -> None:
    file = a_file(library)
    file.send(server, 0)
    assert file.send(server, 2).status_code == TOO_EARLY
    assert file.send(server, file.count - 1).status_code == TOO_EARLY
    assert stored_sha256(server, file.send_all(server).json()["id"]) == file.sha256


@pytest.mark.parametrize("library", ANY_ORDER)
def test_with_a_name_chunks_come_in_any_order_and_at_once(server: Server, library: str) -> None:
    file = a_file(library)
    with ThreadPoolExecutor(4) as pool:
        order = [3, 0, 10, 9, 1, 2, 4, 6, 5, 8, 7]
        responses = list(pool.map(lambda index: file.send(server, index), order))
    assert {response.status_code for response in responses} == {200}
    (video,) = videos(server, file.filename)
    assert stored_sha256(server, video["id"]) == file.sha256


@pytest.mark.parametrize("library", ["blueimp", "uploady"])
def test_an_upload_id_lets_ranges_come_in_any_order(server: Server, library: str) -> None:
    file = a_file(library, more=(("upload_id", uuid.uuid4().hex),))
    for index in reversed(range(1, file.count)):
        assert file.send(server, index).status_code == 200
    answer = file.send(server, 0).json()
    assert stored_sha256(server, answer["id"]) == file.sha256


def test_the_page_may_give_huge_uploader_the_name_and_the_size(server: Server) -> None:
    more = (("uploader-file-name", "a%20film.mp4"), ("uploader-file-size", str(LENGTH)))
    file = a_file("huge_uploader", more=more, seed=5)
    assert [file.send(server, index).status_code for index in (3, 10)] == [200, 200]
    answer = file.send_all(server).json()
    assert answer["filename"] == "a film.mp4"
    assert stored_sha256(server, answer["id"]) == file.sha256


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({"id": "WU_FILE_0", "name": "short.mp4", "size": "60", "chunks": "1", "chunk": "0"}, {}),
        ({}, {"Content-Range": "bytes 0-49/50"}),
    ],
)
def test_a_whole_file_of_the_wrong_length_is_refused(
    server: Server, fields: dict[str, str], headers: dict[str, str]
) -> None:
    body = form_body(fields, [("short.mp4", bytes(40))])
    response = server.post("/upload", data=body, headers={**form_headers(), **headers})
    assert response.status_code == 400
    assert videos(server, "short.mp4") == []


@pytest.mark.parametrize("library", [*ONE_AFTER_THE_OTHER, "webuploader"])
def test_two_files_of_one_name_are_never_mixed(server: Server, library: str) -> None:
    name = f"{uuid.uuid4().hex}.mp4"
    files = [a_file(library, seed=seed, filename=name) for seed in (1, 2)]
    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(lambda file: send_until_refused(server, file), files))
    stored = {stored_sha256(server, video["id"]) for video in videos(server, name)}
    assert stored <= {file.sha256 for file in files}
    for file, statuses in zip(files, told, strict=True):
        has_success = statuses == [200] * file.count
        assert has_success or statuses[-1] == 409
        assert file.sha256 in stored or not has_success


def send_until_refused(server: Server, file: LibraryFile) -> list[int]:
    statuses = []
    for index in range(file.count):
        statuses.append(file.send(server, index).status_code)
        if statuses[-1] != 200:
            break
    return statuses


@pytest.mark.parametrize("library", ["blueimp", "plupload", "webuploader"])
def test_two_pages_that_send_ids_both_succeed(server: Server, library: str) -> None:
    name = f"{uuid.uuid4().hex}.mp4"
    files = [
        a_file(library, seed=seed, filename=name, more=(("upload_id", uuid.uuid4().hex),))
        for seed in (1, 2)
    ]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda file: file.send_all(server), files))
    stored = {stored_sha256(server, video["id"]) for video in videos(server, name)}
    assert stored == {file.sha256 for file in files}


@pytest.mark.parametrize("library", ONE_AFTER_THE_OTHER)
def test_a_later_file_of_the_same_name_is_another_video(server: Server, library: str) -> None:
    name = f"{uuid.uuid4().hex}.mp4"
    files = [a_file(library, seed=seed, filename=name) for seed in (1, 2, 1)]
    ids = [file.send_all(server).json()["id"] for file in files]
    assert len(set(ids)) == 3
    assert [stored_sha256(server, video) for video in ids] == [file.sha256 for file in files]


@pytest.mark.parametrize("library", ONE_AFTER_THE_OTHER)
def test_a_cancelled_upload_starts_over(server: Server, library: str) -> None:
    file = a_file(library)
    upload = file.send(server, 0).json()["id"]
    server.delete(f"/api/uploads/{upload}")
    assert file.send(server, 1).status_code == 410
    answer = file.send_all(server).json()
    assert answer["id"] != upload
    assert stored_sha256(server, answer["id"]) == file.sha256


@pytest.mark.parametrize("library", ONE_AFTER_THE_OTHER)
@pytest.mark.parametrize("end", ["complete", "cancelled"])
def test_a_late_chunk_does_not_corrupt_the_next_file_of_its_name(
    server: Server, library: str, end: str
) -> None:
    name = f"{uuid.uuid4().hex}.mp4"
    first, second = (
        a_file(library, 2 * CHUNK, seed=seed, filename=name, browser=f"browser {seed}")
        for seed in (1, 2)
    )
    upload = first.send(server, 0).json()["id"]
    if end == "complete":
        first.send(server, 1)
    else:
        server.delete(f"/api/uploads/{upload}")
    began = second.send(server, 0).json()["id"]
    late = first.send(server, 1)
    assert late.status_code == (200 if end == "complete" else 410)
    assert end == "cancelled" or late.json()["id"] == upload
    answer = second.send(server, 1).json()
    assert (answer["id"], answer["complete"]) == (began, True)
    assert stored_sha256(server, began) == second.sha256


@pytest.mark.parametrize("library", ["plupload", "huge_uploader", "webuploader"])
def test_a_chunk_of_an_odd_size_is_refused(server: Server, library: str) -> None:
    file = a_file(library)
    file.send(server, 0)
    odd = LibraryFile(library, file.content[:1900], CHUNK, file.filename)
    fields, headers, name = LIBRARIES[library](file, 1)
    body = form_body(fields, [(name, odd.chunk(1))])
    response = server.post("/upload", data=body, headers={**form_headers(), **headers})
    assert (response.status_code, response.json()["code"]) == (400, "chunk_mismatch")


def test_simple_uploader_asks_which_chunks_have_arrived(server: Server) -> None:
    file = a_file("simple_uploader")
    file.send(server, 3)
    probes = [
        server.get("/upload", params=LIBRARIES["simple_uploader"](file, index)[0]).status_code
        for index in (2, 3)
    ]
    assert probes == [204, 200]


@pytest.mark.parametrize(
    "value", ["bytes 0-999", "bytes */5000", "bytes 0-999/*", "items 0-9/10", "bytes 5-2/10"]
)
def test_a_range_without_an_offset_is_refused(server: Server, value: str) -> None:
    body = form_body({}, [("a.mp4", b"x" * 1000)])
    headers = {**form_headers(), "Content-Range": value}
    assert server.post("/upload", data=body, headers=headers).status_code == 400


def test_a_range_that_contradicts_the_length_of_its_part_is_refused(server: Server) -> None:
    body = form_body({}, [("a.mp4", b"x" * 999)])
    headers = {**form_headers(), "Content-Range": "bytes 0-999/5000"}
    response = server.post("/upload", data=body, headers=headers)
    assert (response.status_code, response.json()["code"]) == (400, "chunk_mismatch")


UNKNOWN = [
    ({"chunkIndex": "0", "totalChunks": "3", "fileId": "a"}, {}),
    ({"chunk": "1", "chunks": "3"}, {}),
    ({"part": "0", "parts": "7"}, {}),
    ({"index": "2", "total": "9"}, {}),
    ({"offset": "4096", "total": "90000"}, {}),
    ({"resumableChunkNumber": "1"}, {}),
    ({}, {"X-Chunk-Index": "0", "X-Chunk-Total": "4"}),
    ({}, {"Upload-Offset": "4096"}),
    ({}, {"Uploader-Chunk-Number": "0"}),
]


@pytest.mark.parametrize(("fields", "headers"), UNKNOWN)
def test_a_chunk_of_an_unknown_kind_is_refused_and_not_stored(
    server: Server, fields: dict[str, str], headers: dict[str, str]
) -> None:
    name = f"{uuid.uuid4().hex}.mp4"
    for is_file_first in (False, True):
        content = [(name, b"x" * 4096)]
        body = form_body(fields, content)
        if is_file_first:
            body = form_body({}, content).removesuffix(form_body({}, [])) + form_body(fields, [])
        response = server.post("/upload", data=body, headers={**form_headers(), **headers})
        document = response.json()
        assert (response.status_code, document["code"]) == (400, "unknown_chunk_fields")
        assert response.headers["Content-Type"] == "application/problem+json"
        assert next(iter(fields or headers)) in document["detail"]
        assert "/tus/" in document["detail"]
    assert videos(server, name) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"title": "A film", "index": "3"},
        {"part": "2", "chunky": ""},
        {"total": "12", "size": "4096"},
        {"chunk": "0", "chunks": "1"},
        {"index": "0", "size": "4096"},
        {"start": "12", "end": "80"},
        {"name": "Anna", "offset": "3"},
        {"identifier": "IMDB 1234", "filename": "x"},
    ],
)
def test_a_whole_file_may_have_other_fields(server: Server, fields: dict[str, str]) -> None:
    body = form_body(fields, [("a.mp4", b"x" * 4096)])
    response = server.post("/upload", data=body, headers=form_headers())
    assert (response.status_code, response.json().get("complete")) == (200, True)

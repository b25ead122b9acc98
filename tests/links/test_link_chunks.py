"""Form libraries that send a file in chunks, none of which is a file of its own to a link."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select, update
from typing_extensions import override
from werkzeug.test import TestResponse

from app.db.tables import projects
from app.http.context import ViewContext
from app.protocols.forms import chunk_form
from app.protocols.forms.dialects import UnplacedChunk
from app.uploads import files
from app.uploads.files import CHECKED_FIRST_BYTES, FORM_BYTES
from tests.dropzone_client import form_body, form_headers
from tests.links.link_requests import MakeLink, code, counted, send
from tests.protocols.library_chunks import LIBRARIES, LibraryFile

LENGTH, CHUNK = 2500, 1000

LARGE = 2 * (CHECKED_FIRST_BYTES + FORM_BYTES)
"""Of a body that is held against the quota before it is read."""

STAGED = sorted(set(LIBRARIES) - {"simple_uploader"})
"""Libraries whose chunks are staged before they are placed."""


class WatchedBody(io.BytesIO):
    """A body that notes how much more staging holds while it is read."""

    def __init__(self, content: bytes, staging: Path) -> None:
        super().__init__(content)
        self._staging, self._before = staging, staged_bytes(staging)
        self.most_staged_bytes = 0

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        self.most_staged_bytes = max(
            self.most_staged_bytes, staged_bytes(self._staging) - self._before
        )
        return super().read(size)


def staged_bytes(staging: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in staging.rglob("*") if path.is_file())


@contextmanager
def quota(app: Flask, quota_bytes: int) -> Iterator[None]:
    """A quota of the server's only project."""
    database = app.extensions["sluice"].database
    with database.write() as connection:
        connection.execute(update(projects).values(quota_bytes=quota_bytes))
    try:
        yield
    finally:
        with database.write() as connection:
            connection.execute(update(projects).values(quota_bytes=None))


def used_bytes(app: Flask) -> int:
    """What the server's only project uses of its quota."""
    database = app.extensions["sluice"].database
    with database.read() as connection:
        return int(connection.execute(select(projects.c.used_bytes)).scalar_one())


def send_large(
    app: Flask, path: str, file: LibraryFile, index: int
) -> tuple[TestResponse, WatchedBody]:
    """Send a chunk that is much longer than its fields say."""
    fields, headers, name = LIBRARIES[file.library](file, index)
    content = form_body(fields, [(name, bytes(LARGE))])
    body = WatchedBody(content, app.extensions["sluice"].settings.staging_dir)
    headers = {**form_headers(), **headers, "Content-Length": str(len(content))}
    return app.test_client().post(path, input_stream=body, headers=headers), body


def a_file(library: str, length: int = LENGTH, name: str = "a.mp4") -> LibraryFile:
    return LibraryFile(library, bytes(length), CHUNK, name)


def send_chunk(
    client: FlaskClient, link: dict[str, Any], file: LibraryFile, index: int
) -> TestResponse:
    fields, headers, name = LIBRARIES[file.library](file, index)
    body = form_body(fields, [(name, file.chunk(index))])
    return client.post(f"{link['path']}/upload", data=body, headers={**form_headers(), **headers})


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_chunks_of_the_last_file_of_a_link_are_taken(
    member: FlaskClient, stranger: FlaskClient, make_link: MakeLink, library: str
) -> None:
    link = make_link(max_files=1, max_bytes=LENGTH)
    for index in range(a_file(library).count):
        answer = send_chunk(stranger, link, a_file(library), index)
        assert answer.status_code == 200, answer.text
    assert counted(member, link) == (1, LENGTH)
    refused = send_chunk(stranger, link, a_file(library, name="b.mp4", length=LENGTH - 1), 0)
    assert code(refused) == (413, "link_full")
    assert counted(member, link) == (1, LENGTH)


@pytest.mark.parametrize("library", STAGED)
def test_a_chunk_of_the_last_file_is_taken_while_another_begins_it(
    member: FlaskClient,
    stranger: FlaskClient,
    make_link: MakeLink,
    monkeypatch: pytest.MonkeyPatch,
    library: str,
) -> None:
    """Libraries send the first chunks at the same time."""
    link, file = make_link(max_files=1), a_file(library)
    after_look_up(monkeypatch, lambda: send_chunk(member, link, file, 0))
    assert send_chunk(stranger, link, file, 1).status_code == 200
    assert counted(member, link)[0] == 1


@pytest.mark.parametrize("library", STAGED)
def test_a_chunk_that_fits_the_quota_is_taken_while_another_begins_its_file(
    app: Flask, member: FlaskClient, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    chunk_bytes = 400_000
    file = LibraryFile(library, bytes(2 * chunk_bytes), chunk_bytes, f"{library} just fits.mp4")
    with quota(app, used_bytes(app) + len(file.content)), pytest.MonkeyPatch.context() as limits:
        limits.setattr(files, "CHECKED_FIRST_BYTES", 0)
        limits.setattr(files, "FORM_BYTES", 0)
        after_look_up(monkeypatch, lambda: send_chunk(member, {"path": ""}, file, 0))
        answer = send_chunk(member, {"path": ""}, file, 1)
    assert answer.status_code == 200, answer.text


def after_look_up(monkeypatch: pytest.MonkeyPatch, request: Callable[[], TestResponse]) -> None:
    """Make the request just after the next chunk has looked for its upload."""
    look_up = chunk_form._look_up

    def look_up_just_before(ctx: ViewContext, chunk: UnplacedChunk, filename: str) -> Any:
        found = look_up(ctx, chunk, filename)
        monkeypatch.undo()
        answer = request()
        assert answer.status_code == 200, answer.text
        return found

    monkeypatch.setattr(chunk_form, "_look_up", look_up_just_before)


@pytest.mark.parametrize("library", LIBRARIES)
def test_chunks_of_a_file_that_is_too_large_are_refused(
    member: FlaskClient, stranger: FlaskClient, make_link: MakeLink, library: str
) -> None:
    link = make_link(max_bytes=LENGTH - 1)
    answers = [send_chunk(stranger, link, a_file(library), index) for index in range(3)]
    assert answers[-1].status_code in {409, 413}
    assert 413 in {answer.status_code for answer in answers}
    assert counted(member, link)[1] < LENGTH, "what has arrived of an unknown length"


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("library", STAGED)
def test_a_full_link_reserves_no_room_for_a_chunk_of_a_new_file(
    app: Flask, stranger: FlaskClient, make_link: MakeLink, library: str, index: int
) -> None:
    link = make_link(max_files=1)
    assert send(stranger, link, "first.mp4", 10).status_code == 200
    answer, body = send_large(app, f"{link['path']}/upload", a_file(library), index)
    assert (code(answer), body.most_staged_bytes) == ((413, "link_full"), 0)


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("library", STAGED)
def test_a_chunk_of_a_new_file_gets_no_room_beyond_the_quota(
    app: Flask, library: str, index: int
) -> None:
    with quota(app, 1000):
        answer, body = send_large(app, "/upload", a_file(library), index)
    assert (code(answer), body.most_staged_bytes) == ((413, "larger_than_quota"), 0)


def test_a_chunk_that_may_be_the_whole_file_gets_no_room_beyond_the_quota(app: Flask) -> None:
    whole = a_file("plupload_by_offset", length=CHUNK)
    with quota(app, 1000):
        answer, body = send_large(app, "/upload", whole, 0)
    assert (code(answer), body.most_staged_bytes) == ((413, "larger_than_quota"), 0)


@pytest.mark.parametrize("library", STAGED)
def test_a_later_chunk_gets_no_more_room_than_its_upload_has(
    app: Flask, member: FlaskClient, library: str
) -> None:
    file = a_file(library, name=f"{library}.mp4")
    assert send_chunk(member, {"path": ""}, file, 0).status_code == 200
    answer, body = send_large(app, "/upload", file, 1)
    assert answer.status_code == 400
    assert body.most_staged_bytes <= 4096 * 2

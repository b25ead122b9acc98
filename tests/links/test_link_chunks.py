"""Form libraries that send a file in chunks, none of which is a file of its own to a link."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.dropzone_client import form_body, form_headers
from tests.links.link_requests import MakeLink, code, counted
from tests.protocols.library_chunks import LIBRARIES, LibraryFile

LENGTH, CHUNK = 2500, 1000


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


@pytest.mark.parametrize("library", LIBRARIES)
def test_chunks_of_a_file_that_is_too_large_are_refused(
    member: FlaskClient, stranger: FlaskClient, make_link: MakeLink, library: str
) -> None:
    link = make_link(max_bytes=LENGTH - 1)
    answers = [send_chunk(stranger, link, a_file(library), index) for index in range(3)]
    assert answers[-1].status_code in {409, 413}
    assert 413 in {answer.status_code for answer in answers}
    assert counted(member, link)[1] == 0

"""A server that accepts only some file types: nothing else is ever stored, in any protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from tests.conformance.tus_client import Tus, base64_of
from tests.dropzone_client import ChunkedFile, send_chunk
from tests.ietf_client import append
from tests.live_server import Server, running_server
from tests.protocols.test_filepond import begin, send

FILE = b"0123456789"
NAME = f"filename {base64_of('film.mp4')}"


@pytest.fixture(scope="module")
def choosy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that accepts only .mp4."""
    with running_server(
        tmp_path_factory.mktemp("choosy"), SLUICE_ALLOWED_EXTENSIONS="mp4"
    ) as running:
        yield running


@pytest.fixture
def tus(choosy: Server) -> Tus:
    return Tus(f"{choosy.url}/tus/")


def by_tus(server: Server, upload_id: str, content: bytes) -> int:
    return Tus(server.url).patch(f"{server.url}/tus/{upload_id}", 0, content).status


def by_resumable(server: Server, upload_id: str, content: bytes) -> int:
    return append(server, upload_id, 0, content, is_last=True).status


def by_dropzone(server: Server, upload_id: str, content: bytes) -> int:
    return send_chunk(server, ChunkedFile(content, 10, key=upload_id), 0).status_code


def by_filepond(server: Server, upload_id: str, content: bytes) -> int:
    url = f"{server.url}/filepond?patch={upload_id}"
    return requests.patch(url, data=content, headers={"Upload-Offset": "0"}, timeout=60).status_code


@pytest.mark.parametrize("finish", [by_tus, by_resumable, by_dropzone, by_filepond])
@pytest.mark.parametrize("content", [FILE, b""])
def test_an_unnamed_upload_accepts_no_bytes_in_any_protocol(
    choosy: Server, finish: object, content: bytes
) -> None:
    assert callable(finish)
    upload_id = begin(choosy, len(content))
    assert finish(choosy, upload_id, content) == 415
    state = choosy.get(f"/api/uploads/{upload_id}").json()
    assert (state["state"], state["received"]) == ("receiving", [])
    assert choosy.get(f"/media/{upload_id}").status_code == 404


def test_an_unnamed_upload_continues_once_it_has_a_name(choosy: Server) -> None:
    upload_id = begin(choosy, len(FILE))
    assert by_tus(choosy, upload_id, FILE) == 415
    assert send(choosy, upload_id, FILE, 0, len(FILE)).status_code == 204
    assert choosy.get(f"/media/{upload_id}").content == FILE


def test_parts_need_no_name_but_the_file_made_of_them_does(tus: Tus) -> None:
    parts = [tus.create_with(piece, Upload_Concat="partial") for piece in (FILE[:4], FILE[4:])]
    assert tus.concatenate(*parts).status == 415
    assert tus.concatenate(*parts, Upload_Metadata=f"filename {base64_of('a.exe')}").status == 415
    whole = tus.location(tus.concatenate(*parts, Upload_Metadata=NAME))
    assert requests.get(whole, timeout=60).content == FILE


def test_an_upload_begun_before_types_were_limited_accepts_no_more_bytes(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with running_server(tmp_path_factory.mktemp("later")) as server:
        tus = Tus(f"{server.url}/tus/")
        film, other = tus.create(10, Upload_Metadata=NAME), tus.create(10)
        assert [tus.patch(url, 0, FILE[:5]).status for url in (film, other)] == [204, 204]
        server.options["SLUICE_ALLOWED_EXTENSIONS"] = "mp4"
        server.restart()
        assert [tus.patch(url, 5, FILE[5:]).status for url in (film, other)] == [204, 415]

"""tus together with the rest of the server; the conformance tests check the protocol itself."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

import pytest

from tests.conformance.tus_client import Tus, base64_of
from tests.dropzone_client import ChunkedFile, random_bytes, send_chunk, stored_sha256
from tests.e2e.test_expiry import be_silent
from tests.ietf_client import append, look
from tests.live_server import Server
from tests.waiting import wait_until

FILE = random_bytes(3_000_000, 90)
SHA256 = hashlib.sha256(FILE).hexdigest()
THIRD = 1_000_000


@pytest.fixture
def tus(server: Server) -> Tus:
    return Tus(f"{server.url}/tus/")


def id_of(url: str) -> str:
    return url.rpartition("/")[2]


# ---- one upload, many protocols ------------------------------------------------------------------


def test_an_upload_begun_in_tus_is_seen_by_the_api(server: Server, tus: Tus) -> None:
    url = tus.create(len(FILE), Upload_Metadata=f"filename {base64_of('film.mp4')},note")
    tus.patch(url, 0, FILE[:THIRD])
    state = server.get(f"/api/uploads/{id_of(url)}").json()
    assert (state["filename"], state["length"], state["offset"]) == ("film.mp4", 3 * THIRD, THIRD)
    assert state["missing"] == [[THIRD, 3 * THIRD]]
    listed = server.get("/api/uploads").json()["uploads"]
    assert id_of(url) in [upload["id"] for upload in listed]


def test_chunks_of_forms_and_of_tus_make_one_file(server: Server, tus: Tus) -> None:
    url = tus.create(len(FILE), Upload_Metadata=f"filename {base64_of('film.mp4')}")
    file = ChunkedFile(FILE, THIRD, key=id_of(url))
    assert tus.patch(url, 0, FILE[:THIRD]).status == 204
    assert send_chunk(server, file, 1).json()["id"] == id_of(url)
    assert tus.offset(url) == 2 * THIRD
    last = tus.patch(url, 2 * THIRD, FILE[2 * THIRD :])
    assert (last.status, last["Upload-Offset"]) == (204, str(len(FILE)))
    assert send_chunk(server, file, 2).json()["complete"] is True
    assert stored_sha256(server, id_of(url)) == SHA256


def test_chunks_that_arrived_early_are_skipped(server: Server, tus: Tus) -> None:
    file = ChunkedFile(FILE, THIRD)
    upload_id = send_chunk(server, file, 1).json()["id"]
    url = f"{server.url}/tus/{upload_id}"
    assert tus.offset(url) == 0
    assert tus.patch(url, 0, FILE[:THIRD])["Upload-Offset"] == str(2 * THIRD)
    assert tus.patch(url, 2 * THIRD, FILE[2 * THIRD :]).status == 204
    assert stored_sha256(server, upload_id) == SHA256


def test_a_patch_over_stored_bytes_completes_the_file(server: Server, tus: Tus) -> None:
    upload_id = send_chunk(server, ChunkedFile(FILE, THIRD), 1).json()["id"]
    assert tus.patch(f"{server.url}/tus/{upload_id}", 0, FILE).status == 204
    assert stored_sha256(server, upload_id) == SHA256


def test_an_upload_of_another_protocol_has_its_name_as_metadata(server: Server, tus: Tus) -> None:
    made = server.post("/api/uploads", json={"name": "кино.mp4", "size": 10}).json()
    reply = tus.head(f"{server.url}/tus/{made['id']}")
    assert reply["Upload-Metadata"] == f"filename {base64_of('кино.mp4')}"
    assert (reply["Upload-Offset"], reply["Upload-Length"]) == ("0", "10")


def test_an_upload_begun_in_tus_is_finished_by_the_other_resumable_protocol(
    server: Server, tus: Tus
) -> None:
    url = tus.create(None, Upload_Metadata=f"filename {base64_of('film.mp4')}")
    tus.patch(url, 0, FILE[:THIRD])
    assert look(server, id_of(url)).headers["upload-offset"] == str(THIRD)
    assert append(server, id_of(url), THIRD, FILE[THIRD:], is_last=True).status == 200
    assert tus.head(url)["Upload-Length"] == str(len(FILE))
    assert stored_sha256(server, id_of(url)) == SHA256


def test_get_redirects_to_the_file(server: Server, tus: Tus) -> None:
    url = tus.create(5)
    assert server.get(f"/tus/{id_of(url)}").status_code == 404
    tus.patch(url, 0, b"bytes")
    response = server.get(f"/tus/{id_of(url)}")
    assert (response.content, response.url) == (b"bytes", f"{server.url}/media/{id_of(url)}")


# ---- requests that change nothing ----------------------------------------------------------------


def test_a_length_sent_with_a_wrong_offset_is_ignored(tus: Tus) -> None:
    url = tus.create()
    tus.patch(url, 0, b"bytes")
    assert tus.patch(url, 3, b"more", Upload_Length=5).status == 409
    assert tus.head(url)["Upload-Defer-Length"] == "1"
    assert tus.patch(url, 5, b"more", Upload_Length=9).status == 204


def test_the_first_bytes_are_all_or_nothing(server: Server, tus: Tus) -> None:
    before = server.get("/api/uploads").json()
    staged = set(os.listdir(server.staging))
    too_long = tus.post(FILE, Upload_Length=THIRD, Content_Type="application/offset+octet-stream")
    wrong_type = tus.post(FILE, Upload_Length=len(FILE), Content_Type="video/mp4")
    assert (too_long.status, wrong_type.status) == (400, 415)
    assert server.get("/api/uploads").json() == before
    assert set(os.listdir(server.staging)) == staged


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "POST"])
def test_a_page_on_another_site_cannot_delete_with_a_method_override(
    server: Server, tus: Tus, method: str
) -> None:
    url = tus.create(5)
    disguised = {"X_HTTP_Method_Override": "DELETE", "Origin": "http://elsewhere.example"}
    assert tus.request(method, url, **disguised).status == 403
    assert tus.offset(url) == 0


# ---- malicious names and URLs --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/passwd", "etc/passwd"),
        ("..", "unnamed"),
        ("C:\\films\\a.mp4", "C:/films/a.mp4"),
        ("<img src=x onerror=alert(1)>.mp4", "<img src=x onerror=alert(1)>.mp4"),
        ('a"; filename="b.exe', 'a"; filename="b.exe'),
        (b"\xff\xfe.mp4", "��.mp4"),
        ("\u202egpj.exe", "\u202egpj.exe"),
        ("-rf", "-rf"),
    ],
)
def test_a_name_is_only_text(server: Server, tus: Tus, name: str | bytes, kept: str) -> None:
    url = tus.create(5, Upload_Metadata=f"filename {base64_of(name)}")
    assert server.get(f"/api/uploads/{id_of(url)}").json()["filename"] == kept
    tus.patch(url, 0, b"bytes")
    response = server.get(f"/media/{id_of(url)}")
    assert response.content == b"bytes"
    assert tus.head(url)["Upload-Metadata"] == f"filename {base64_of(name)}"


@pytest.mark.parametrize("name", ["a\r\nSet-Cookie: b=c", "a\x00b", "\x1b[2J", "n" * 1025])
def test_a_name_that_is_not_text_is_refused(tus: Tus, name: str) -> None:
    assert tus.post(Upload_Length=5, Upload_Metadata=f"filename {base64_of(name)}").status == 400


@pytest.mark.parametrize(
    "reference",
    [
        "/tus/../../../etc/passwd",
        "file:///etc/passwd",
        "http://169.254.169.254/latest/meta-data/",
        "/tus/" + "0" * 32,
        "/tus/%00",
        "http://[::1",
        "\x01",
        "ÿ",
    ],
)
def test_a_part_that_is_not_our_upload_is_refused(tus: Tus, reference: str) -> None:
    part = tus.create_with(b"bytes", Upload_Concat="partial")
    reply = tus.concatenate(part, reference)
    assert reply.status in {400, 404}
    assert tus.offset(part) == 5


def test_a_file_may_have_as_many_parts_as_fit_in_the_header(server: Server, tus: Tus) -> None:
    part = id_of(tus.create_with(b"bytes", Upload_Concat="partial"))
    count = 7000 // (len(part) + 1)
    reply = tus.concatenate(*[part] * count)
    assert (reply.status, reply["Upload-Offset"]) == (201, str(5 * count))
    url = tus.location(reply)
    assert server.get(f"/media/{id_of(url)}").content == b"bytes" * count
    assert tus.head(url)["Upload-Concat"] == "final;" + " ".join([part] * count)


def test_parts_do_not_appear_in_the_library(server: Server, tus: Tus) -> None:
    parts = [tus.create_with(piece, Upload_Concat="partial") for piece in (b"one", b"two")]
    for path in ("media", "watch"):
        assert server.get(f"/{path}/{id_of(parts[0])}").status_code == 404
    url = tus.location(tus.concatenate(*parts))
    listed = [video["id"] for video in server.get("/api/videos").json()["videos"]]
    assert id_of(url) in listed
    assert not {id_of(part) for part in parts} & set(listed)
    assert tus.head(parts[0]).status == 410


# ---- space and time ------------------------------------------------------------------------------


def test_a_file_that_does_not_fit_is_refused_when_it_is_created(server: Server, tus: Tus) -> None:
    state = os.statvfs(server.staging)
    length = state.f_frsize * state.f_bavail + 2**30
    reply = tus.post(Upload_Length=length)
    assert reply.status == 507
    assert "Location" not in reply


def test_an_upload_lives_while_it_is_active_and_then_expires(
    start_server: Callable[..., Server],
) -> None:
    often = {"SLUICE_TEST_CONSTANTS": "sweep_seconds=0.2"}
    server = start_server(SLUICE_EXPIRY_SECONDS="3600", **often)
    tus = Tus(f"{server.url}/tus/")
    created = tus.post(Upload_Length=100)
    url = tus.location(created)
    told = []
    for offset in range(5):
        be_silent(server, seconds=2000)
        reply = tus.patch(url, offset, b"x")
        lifetime = parsedate_to_datetime(reply["Upload-Expires"]) - parsedate_to_datetime(
            reply["Date"]
        )
        assert 3000 < lifetime.total_seconds() <= 3601
        told.append(parsedate_to_datetime(reply["Upload-Expires"]))
        wait_a_second()
    assert told == sorted(told)
    assert told[-1] > parsedate_to_datetime(created["Upload-Expires"])
    be_silent(server, seconds=4000)
    wait_until(lambda: tus.head(url).status == 410, "it expires")
    assert tus.patch(url, 5, b"x").status == 410
    assert tus.delete(url).status == 410
    wait_until(lambda: os.listdir(server.staging) == [], "its bytes are removed")


def wait_a_second() -> None:
    """HTTP dates are in whole seconds."""
    time.sleep(1)


# ---- trailers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["Via", "X_Forwarded_For", "Forwarded"])
def test_checksums_in_trailers_are_announced_only_to_direct_clients(tus: Tus, field: str) -> None:
    through_proxy = tus.request("OPTIONS", tus.url, **{field: "1.1 proxy"})
    assert "checksum-trailer" in tus.extensions
    assert "checksum-trailer" not in through_proxy.items("Tus-Extension")
    assert "checksum" in through_proxy.items("Tus-Extension")


# ---- impossible offsets and trailers -------------------------------------------------------------


@pytest.mark.parametrize("offset", [6, 2**40 + 1, 2**63 - 1, 2**64, 10**29, 10**40])
@pytest.mark.parametrize("length", [5, None])
def test_a_wrong_offset_is_a_conflict_however_large(
    tus: Tus, length: int | None, offset: int
) -> None:
    url = tus.create(length)
    reply = tus.patch(url, offset, b"bytes")
    assert (reply.status, reply["Tus-Resumable"]) == (409, "1.0.0")
    assert tus.patch(url, 0, b"bytes").status == 204


def test_a_checksum_that_cannot_follow_the_body_is_refused_at_once(tus: Tus) -> None:
    """Only chunked bodies have trailers (RFC 9110, section 6.5.1)."""
    url = tus.create(5)
    assert tus.patch(url, 0, b"bytes", Trailer="Upload-Checksum").status == 204

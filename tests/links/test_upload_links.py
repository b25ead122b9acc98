"""What strangers may do through an upload link, and what they may not."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.access.upload_links import PARTS_PER_FILE, terms_of
from app.core.access import FIRST_PROJECT, LOCAL
from app.http.context import current_services
from tests.links.link_requests import HTML, TUS, MakeLink, code, counted, create, send, sent, told

# ---- members -------------------------------------------------------------------------------------


def test_a_link_is_made_listed_changed_and_closed(member: FlaskClient, make_link: MakeLink) -> None:
    link = make_link(name="Wedding", max_files=3, extensions=[".MP4", "mov"], expires=3600)
    assert link["state"] == "open"
    assert link["extensions"] == ["mp4", "mov"]
    listed = told(member.get("/api/upload-links"))["links"]
    assert link["id"] in [each["id"] for each in listed]
    path = f"/api/upload-links/{link['id']}"
    changed = told(member.patch(path, json={"max_files": None, "message": "Thanks!\r\n👨‍👩‍👧"}))
    assert (changed["max_files"], changed["message"], changed["name"]) == (
        None,
        "Thanks!\n👨‍👩‍👧",
        "Wedding",
    )
    assert member.delete(path).status_code == 204
    assert told(member.get(path))["state"] == "closed"
    assert member.delete(path).status_code == 204


def test_of_two_changes_at_the_same_time_both_count(app: Flask, make_link: MakeLink) -> None:
    with app.app_context():
        services = current_services()
    links, ctx = services.identity.upload_links, services.context.acting(LOCAL)
    link = links.get(FIRST_PROJECT, make_link(name="Wedding")["id"])
    links.change(ctx, link, replace(terms_of(link), message="Thanks!", extensions=("mov",)))
    changed = links.change(ctx, link, replace(terms_of(link), max_files=3))
    assert (changed.message, changed.extensions, changed.max_files) == ("Thanks!", ("mov",), 3)
    assert links.change(ctx, changed, terms_of(changed)) == changed


@pytest.mark.parametrize(
    "terms",
    [
        {"max_files": 0},
        {"max_bytes": -1},
        {"max_bytes": 2**63},
        {"max_file_bytes": "1"},
        {"max_files": True},
        {"extensions": "mp4"},
        {"extensions": ["m p 4"]},
        {"extensions": [""]},
        {"extensions": [" mp4"]},
        {"extensions": ["m\N{KELVIN SIGN}v"]},
        {"extensions": ["mp4"] * 51},
        {"expires": "2001-01-01"},
        {"asks_name": "yes"},
        {"name": "x" * 201},
        {"name": 7},
        {"name": "a\ud800"},
        {"name": "a\0"},
        {"message": "a\ud800"},
        {"message": "a\0"},
    ],
    ids=ascii,
)
def test_terms_that_cannot_be_are_refused(member: FlaskClient, terms: dict[str, object]) -> None:
    assert member.post("/api/upload-links", json=terms).status_code == 400


# ---- limits --------------------------------------------------------------------------------------


def test_files_and_bytes_are_counted_and_given_back(
    member: FlaskClient, stranger: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link(max_files=2, max_bytes=1000)
    upload = create(stranger, link, 600)
    assert counted(member, link) == (1, 600)
    assert code(create(stranger, link, 401)) == (413, "link_full")
    assert send(stranger, link, "a.mp4", 400).status_code == 200
    assert counted(member, link) == (2, 1000)
    assert code(create(stranger, link, 0)) == (413, "link_full")
    assert stranger.delete(upload.headers["Location"], headers=TUS).status_code == 204
    assert counted(member, link) == (1, 400)
    assert create(stranger, link, 600).status_code == 201


def test_a_deleted_video_was_still_sent(
    member: FlaskClient, stranger: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link()
    video = sent(stranger, link, "a.mp4", 400)
    assert member.delete(f"/api/videos/{video}").status_code == 204
    assert counted(member, link) == (1, 400)


def test_an_upload_of_unknown_length_counts_its_bytes_as_they_come(
    member: FlaskClient, stranger: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link(max_bytes=1000, max_files=1)
    headers = {**TUS, "Upload-Defer-Length": "1"}
    upload = stranger.post(f"{link['path']}/tus/", headers=headers).headers["Location"]
    chunk = {**TUS, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    assert stranger.patch(upload, headers=chunk, data=bytes(1001)).status_code == 413
    assert stranger.patch(upload, headers=chunk, data=bytes(1000)).status_code == 204
    assert counted(member, link) == (1, 1000)
    end = {**chunk, "Upload-Offset": "1000", "Upload-Length": "1000"}
    assert stranger.patch(upload, headers=end).status_code == 204
    assert counted(member, link) == (1, 1000)


def test_uploads_of_unknown_length_share_what_the_link_has_left(
    member: FlaskClient, stranger: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link(max_bytes=1000)
    headers = {**TUS, "Upload-Defer-Length": "1"}
    first, second = (
        stranger.post(f"{link['path']}/tus/", headers=headers).headers["Location"] for _ in range(2)
    )
    chunk = {**TUS, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    assert stranger.patch(first, headers=chunk, data=bytes(600)).status_code == 204
    assert stranger.patch(second, headers=chunk, data=bytes(401)).status_code == 413
    assert code(create(stranger, link, 401)) == (413, "link_full")
    assert code(send(stranger, link, "a.mp4", 401)) == (413, "too_large")
    assert stranger.patch(second, headers=chunk, data=bytes(400)).status_code == 204
    assert code(send(stranger, link, "a.mp4", 1)) == (413, "link_full")
    end = {**chunk, "Upload-Offset": "600", "Upload-Length": "600"}
    assert stranger.patch(first, headers=end).status_code == 204
    assert counted(member, link) == (2, 1000)


def test_a_file_that_is_too_large_is_refused_before_its_bytes(
    member: FlaskClient, stranger: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link(max_file_bytes=100)
    assert code(create(stranger, link, 101)) == (413, "too_large")
    assert code(send(stranger, link, "a.mp4", 101)) == (413, "too_large")
    assert send(stranger, link, "a.mp4", 100).status_code == 200
    assert counted(member, link) == (1, 100)


def test_only_files_of_its_types_are_taken(stranger: FlaskClient, make_link: MakeLink) -> None:
    link = make_link(extensions=["mp4"])
    assert code(create(stranger, link, 10, "YS5leGU=")) == (415, "type_not_allowed")
    assert code(send(stranger, link, "a.exe", 10)) == (415, "type_not_allowed")
    assert create(stranger, link, 10, "YS5tcDQ=").status_code == 201
    assert send(stranger, link, "A.MP4", 10).status_code == 200


def test_a_file_that_gets_its_name_late_must_have_a_type_it_takes(
    stranger: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link(extensions=["mp4"], max_files=1)
    created = stranger.post(f"{link['path']}/filepond", headers={"Upload-Length": "4"})
    url = f"{link['path']}/filepond?patch={created.text}"
    for name, status in (("a.exe", 415), ("a.mp4", 204)):
        headers = {"Upload-Offset": "0", "Upload-Length": "4", "Upload-Name": name}
        assert stranger.patch(url, headers=headers, data=b"film").status_code == status


def test_a_file_without_a_name_has_no_type_that_a_link_takes(
    member: FlaskClient, stranger: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link(extensions=["mp4"])
    refused = (415, "type_not_allowed")
    chunk = {**TUS, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    upload = create(stranger, link, 4).headers["Location"]
    assert code(stranger.patch(upload, headers=chunk, data=b"film")) == refused
    deferred = stranger.post(f"{link['path']}/tus/", headers={**TUS, "Upload-Defer-Length": "1"})
    chunk["Upload-Length"] = "4"
    assert code(stranger.patch(deferred.headers["Location"], headers=chunk)) == refused
    assert code(send(stranger, link, "unnamed", 4)) == refused
    whole = {**TUS, "Upload-Concat": "final;" + part(stranger, link, 4)}
    assert code(stranger.post(f"{link['path']}/tus/", headers=whole)) == refused
    found = told(member.get(f"/api/upload-links/{link['id']}"))["uploads"]
    assert {upload["state"] for upload in found} == {"receiving"}


def test_of_a_batch_the_files_that_fit_are_kept(
    member: FlaskClient, stranger: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link(max_files=2, extensions=["mp4"])
    names = ["a.mp4", "b.mp4", "c.exe", "d.mp4"]
    files = [(io.BytesIO(bytes(length + 1)), name) for length, name in enumerate(names)]
    receipts = told(stranger.post(f"{link['path']}/batch", data={"file": files}))["files"]
    outcomes = [receipt.get("error", {"code": "kept"})["code"] for receipt in receipts]
    assert outcomes == ["kept", "kept", "type_not_allowed", "link_full"]
    assert counted(member, link) == (2, 3)


def test_parts_count_once_they_are_put_together(
    member: FlaskClient, stranger: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link(max_bytes=1000, max_files=1)
    parts = [part(stranger, link, 500), part(stranger, link, 500)]
    assert counted(member, link) == (0, 0)
    headers = {**TUS, "Upload-Concat": "final;" + " ".join(parts)}
    assert stranger.post(f"{link['path']}/tus/", headers=headers).status_code == 201
    assert counted(member, link) == (1, 1000)


def test_the_parts_of_a_link_have_no_more_bytes_than_its_files(
    stranger: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link(max_files=2, max_file_bytes=100)
    headers = {**TUS, "Upload-Concat": "partial", "Upload-Length": "80"}
    answers = [stranger.post(f"{link['path']}/tus/", headers=headers) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 413]
    assert code(answers[2]) == (413, "link_full")


def test_the_unfinished_parts_of_a_link_are_numbered(
    stranger: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link(max_files=1)
    headers = {**TUS, "Upload-Concat": "partial", "Upload-Defer-Length": "1"}

    def begin() -> TestResponse:
        return stranger.post(f"{link['path']}/tus/", headers=headers)

    parts = [begin().headers["Location"] for _ in range(PARTS_PER_FILE)]
    assert code(begin()) == (413, "link_full")
    assert stranger.delete(parts[0], headers=TUS).status_code == 204
    assert begin().status_code == 201


def part(client: FlaskClient, link: dict[str, Any], length: int) -> str:
    headers = {
        **TUS,
        "Upload-Length": str(length),
        "Upload-Concat": "partial",
        "Content-Type": "application/offset+octet-stream",
    }
    created = client.post(f"{link['path']}/tus/", headers=headers, data=bytes(length))
    return created.headers["Location"]


# ---- what strangers may not ----------------------------------------------------------------------


def test_a_link_that_does_not_exist_is_not_found(stranger: FlaskClient) -> None:
    for path in ("/u/" + "A" * 22, "/u/x", "/u/" + "A" * 22 + "/upload"):
        assert code(stranger.post(path) if "upload" in path else stranger.get(path)) == (
            404,
            "link_not_found",
        )


def test_a_closed_link_is_gone(
    member: FlaskClient, stranger: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link()
    upload = create(stranger, link, 10).headers["Location"]
    member.delete(f"/api/upload-links/{link['id']}")
    for answer in (
        stranger.get(link["path"]),
        send(stranger, link, "a.mp4", 10),
        stranger.patch(upload, headers={**TUS, "Upload-Offset": "0"}),
    ):
        assert code(answer) == (410, "link_closed")
    page = stranger.get(link["path"], headers=HTML)
    assert page.status_code == 410
    assert "closed by the people who made it" in page.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/watch/ID"),
        ("GET", "/api/videos"),
        ("GET", "/api/videos/ID"),
        ("DELETE", "/api/videos/ID"),
        ("PATCH", "/api/videos/ID"),
        ("GET", "/media/ID"),
        ("GET", "/media/ID/poster.jpg"),
        ("GET", "/status"),
        ("GET", "/api/upload-links"),
        ("POST", "/api/upload-links"),
        ("GET", "/api/keys"),
        ("GET", "/account"),
    ],
)
def test_a_link_leads_to_nothing_but_uploads(
    stranger: FlaskClient, make_link: MakeLink, method: str, path: str
) -> None:
    link = make_link()
    video = sent(stranger, link, "a.mp4", 10)
    answer = stranger.open(link["path"] + path.replace("ID", video), method=method, json={})
    assert code(answer) == (403, "not_allowed")


@pytest.mark.parametrize("path", ["/u/x", "/readyz", "/metrics", "/openapi.json", "/sign-in"])
def test_pages_for_people_are_not_below_a_link(
    stranger: FlaskClient, make_link: MakeLink, path: str
) -> None:
    assert stranger.get(make_link()["path"] + path).status_code == 404


def test_nobody_deletes_a_file_that_has_arrived(
    member: FlaskClient, stranger: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link()
    video = sent(stranger, link, "a.mp4", 10)
    for answer in (
        stranger.delete(f"{link['path']}/tus/{video}", headers=TUS),
        stranger.delete(f"{link['path']}/filepond", data=video),
    ):
        assert code(answer) == (403, "not_allowed")
    refused = stranger.delete(f"{link['path']}/fineuploader/{video}")
    assert refused.status_code == 403
    assert member.get(f"/api/videos/{video}").status_code == 200


def test_visitors_find_only_their_own_uploads(
    app: Flask, stranger: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link()
    stranger.get(link["path"])
    new = {"name": "a.mp4", "size": 100, "fingerprint": "same"}
    first = told(stranger.post(f"{link['path']}/api/uploads", json=new))["id"]
    again = stranger.post(f"{link['path']}/api/uploads", json=new)
    assert (again.status_code, told(again)["id"]) == (200, first)
    other = app.test_client()
    other.get(link["path"])
    assert told(other.post(f"{link['path']}/api/uploads", json=new))["id"] != first
    listed = told(stranger.get(f"{link['path']}/api/uploads"))["uploads"]
    assert [upload["id"] for upload in listed] == [first]
    program = app.test_client()
    assert told(program.get(f"{link['path']}/api/uploads"))["uploads"] == []
    assert program.get(f"{link['path']}/api/uploads/{first}").status_code == 200


def test_visitors_with_the_same_key_send_two_files(
    app: Flask, member: FlaskClient, make_link: MakeLink
) -> None:
    """Resumable.js makes the key of a file from its size and name."""
    link = make_link()
    ada, bob, program = app.test_client(), app.test_client(), app.test_client(use_cookies=False)
    ada.get(link["path"])
    bob.get(link["path"])
    senders = {b"ada!": ada, b"bob!": bob, b"curl": program}
    for number in (1, 2):
        for content, client in senders.items():
            assert numbered_chunk(client, link, number, content) == 200
    uploads = told(member.get(f"/api/upload-links/{link['id']}"))["uploads"]
    stored = set()
    for upload in uploads:
        with member.get(f"/media/{upload['id']}") as answer:
            stored.add(answer.data)
    assert stored == {content * 2 for content in senders}


def numbered_chunk(client: FlaskClient, link: dict[str, Any], number: int, content: bytes) -> int:
    """Send one of two chunks as Resumable.js does."""
    fields = {
        "resumableChunkNumber": number,
        "resumableChunkSize": len(content),
        "resumableCurrentChunkSize": len(content),
        "resumableTotalSize": 2 * len(content),
        "resumableTotalChunks": 2,
        "resumableIdentifier": "8-amp4",
        "resumableFilename": "a.mp4",
        "file": (io.BytesIO(content), "a.mp4"),
    }
    return client.post(f"{link['path']}/resumablejs", data=fields).status_code


def test_programs_of_one_network_are_one_visitor_who_finds_nothing(
    app: Flask, make_link: MakeLink
) -> None:
    link = make_link()
    program = app.test_client(use_cookies=False)
    new = {"name": "a.mp4", "size": 100, "fingerprint": "same"}
    made = [told(program.post(f"{link['path']}/api/uploads", json=new))["id"] for _ in range(2)]
    assert len(set(made)) == 2
    assert told(program.get(f"{link['path']}/api/uploads"))["uploads"] == []


def test_uploads_of_another_link_are_not_found(stranger: FlaskClient, make_link: MakeLink) -> None:
    first, second = make_link(), make_link()
    upload = told(stranger.post(f"{first['path']}/api/uploads", json={"name": "a", "size": 9}))[
        "id"
    ]
    assert stranger.get(f"{second['path']}/api/uploads/{upload}").status_code == 404
    assert stranger.delete(f"{second['path']}/api/uploads/{upload}").status_code == 404

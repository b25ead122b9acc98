"""The JSON API of a real server."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.dropzone_client import ChunkedFile, form_body, form_headers, random_bytes, send_chunk
from tests.live_server import Server


def create(server: Server, **members: Any) -> dict[str, Any]:
    """A new upload."""
    response = server.post("/api/uploads", json={"name": "a.mp4", "size": 3000, **members})
    assert response.status_code in {200, 201}, response.text
    document: dict[str, Any] = response.json()
    return document


def test_a_created_upload_is_described_in_full(server: Server) -> None:
    response = server.post("/api/uploads", json={"name": "a.mp4", "size": 3000})
    document = response.json()
    assert response.status_code == 201
    assert response.headers["Location"] == f"{server.url}/api/uploads/{document['id']}"
    assert document["filename"] == "a.mp4"
    assert document["length"] == 3000
    assert document["offset"] == 0
    assert document["received"] == []
    assert document["missing"] == [[0, 3000]]
    assert document["state"] == "receiving"
    assert document["expires"].endswith("Z")


def test_disk_space_is_reserved_when_an_upload_is_created(server: Server) -> None:
    document = create(server, size=5_000_000)
    staged = (server.staging / document["id"]).stat()
    assert staged.st_size == 5_000_000
    assert staged.st_blocks * 512 >= 5_000_000


def test_received_and_missing_ranges_are_half_open(server: Server) -> None:
    file = ChunkedFile(random_bytes(3000), 1000, key=create(server)["id"])
    send_chunk(server, file, 1)
    document = server.get(f"/api/uploads/{file.key}").json()
    assert document["received"] == [[1000, 2000]]
    assert document["missing"] == [[0, 1000], [2000, 3000]]
    assert document["offset"] == 0
    send_chunk(server, file, 0)
    assert server.get(f"/api/uploads/{file.key}").json()["offset"] == 2000


def test_the_same_fingerprint_finds_the_upload_again(server: Server) -> None:
    first = create(server, fingerprint="film-1")
    again = server.post(
        "/api/uploads", json={"name": "a.mp4", "size": 3000, "fingerprint": "film-1"}
    )
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    other = create(server, fingerprint="film-1", size=3001)
    assert other["id"] != first["id"]


def test_a_finished_file_is_found_by_its_fingerprint_until_it_is_deleted(server: Server) -> None:
    file = ChunkedFile(b"abc", 3, key=create(server, size=3, fingerprint="film-2")["id"])
    send_chunk(server, file, 0)
    again = create(server, size=3, fingerprint="film-2")
    assert (again["id"], again["state"]) == (file.key, "complete")
    server.delete(f"/api/videos/{file.key}")
    assert create(server, size=3, fingerprint="film-2")["id"] != file.key


def test_unfinished_uploads_are_listed_until_they_end(server: Server) -> None:
    document = create(server)
    listed = [item["id"] for item in server.get("/api/uploads").json()["uploads"]]
    assert document["id"] in listed
    assert server.delete(f"/api/uploads/{document['id']}").status_code == 204
    listed = [item["id"] for item in server.get("/api/uploads").json()["uploads"]]
    assert document["id"] not in listed
    assert server.get(f"/api/uploads/{document['id']}").status_code == 410
    assert server.delete(f"/api/uploads/{document['id']}").status_code == 410
    assert not (server.staging / document["id"]).exists()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"size": 1}, 400, "malformed_request"),
        ({"name": "a"}, 400, "malformed_request"),
        ({"name": "a", "size": "1"}, 400, "malformed_request"),
        ({"name": "a", "size": True}, 400, "malformed_request"),
        ({"name": "a", "size": 1.5}, 400, "malformed_request"),
        ({"name": "a", "size": -1}, 400, "malformed_request"),
        ({"name": "a", "size": 2**63}, 413, "too_large"),
        ({"name": "a\x00b", "size": 1}, 400, "malformed_request"),
        ({"name": "\ud800", "size": 1}, 400, "malformed_request"),
        ({"name": "a" * 2000, "size": 1}, 400, "malformed_request"),
        ({"name": "a", "size": 1, "fingerprint": ""}, 400, "malformed_request"),
        ({"name": "a", "size": 1, "fingerprint": "x" * 201}, 400, "malformed_request"),
        ([], 400, "malformed_request"),
    ],
)
def test_a_bad_description_is_refused(server: Server, body: Any, status: int, code: str) -> None:
    response = server.post("/api/uploads", json=body)
    assert (response.status_code, response.json()["code"]) == (status, code), response.text


def test_a_body_that_is_not_json_is_refused(server: Server) -> None:
    headers = {"Content-Type": "application/json"}
    for body in (b"{", b"\xff\xfe", b"[" * 60_000):
        assert server.post("/api/uploads", data=body, headers=headers).status_code == 400
    large = b'{"name": "' + b"a" * 100_000 + b'", "size": 1}'
    assert server.post("/api/uploads", data=large, headers=headers).status_code == 413


def test_a_file_larger_than_the_disk_is_refused_before_a_byte_is_sent(server: Server) -> None:
    response = server.post("/api/uploads", json={"name": "a.mp4", "size": 2**40 - 1})
    assert (response.status_code, response.json()["code"]) == (507, "no_room")


@pytest.mark.parametrize("path", ["/api/uploads/", "/api/videos/", "/media/"])
@pytest.mark.parametrize("upload_id", ["0" * 32, "nonsense", "%2e%2e", "a%00b", "A" * 32])
def test_unknown_ids_are_not_found(server: Server, path: str, upload_id: str) -> None:
    response = server.get(path + upload_id)
    assert response.status_code == 404
    assert response.headers["Content-Type"] == "application/problem+json"


def test_videos_are_paged_newest_first(server: Server) -> None:
    names = [f"page-{number}.mp4" for number in range(5)]
    for name in names:
        body = form_body({}, [(name, name.encode())])
        server.post("/upload", data=body, headers=form_headers())
    seen: list[str] = []
    cursor = None
    while len(seen) < 5:
        page = server.get("/api/videos", params={"limit": 2, "cursor": cursor}).json()
        assert len(page["videos"]) <= 2
        seen += [video["filename"] for video in page["videos"]]
        cursor = page["next"]
    assert seen[:5] == names[::-1]


def store(server: Server, name: str, content: bytes = b"film") -> str:
    """The id of a new video."""
    body = form_body({}, [(name, content)])
    upload_id: str = server.post("/upload", data=body, headers=form_headers()).json()["id"]
    return upload_id


def test_videos_are_searched_and_sorted(server: Server) -> None:
    for name, size in (("Süd 10.mp4", 3), ("sud 9.mov", 1), ("SÜD 1.mp4", 2), ("north.mp4", 4)):
        store(server, name, b"x" * size)
    ways = {
        "newest": ["SÜD 1.mp4", "Süd 10.mp4"],
        "oldest": ["Süd 10.mp4", "SÜD 1.mp4"],
        "name": ["SÜD 1.mp4", "Süd 10.mp4"],
        "size": ["SÜD 1.mp4", "Süd 10.mp4"],
        "-size": ["Süd 10.mp4", "SÜD 1.mp4"],
    }
    for sort, names in ways.items():
        query = {"q": "mp4 sud", "sort": sort, "limit": 1}
        first = server.get("/api/videos", params=query).json()
        second = server.get("/api/videos", params={**query, "cursor": first["next"]}).json()
        assert [video["filename"] for video in first["videos"] + second["videos"]] == names
        assert second["next"] is None
        foreign = server.get("/api/videos", params={"sort": sort, "cursor": first["next"]})
        assert (foreign.status_code, foreign.json()["code"]) == (400, "malformed_request")


def test_a_renamed_video_has_its_new_name_everywhere(server: Server) -> None:
    video = store(server, "its-first-name.mp4")
    answer = server.patch(f"/api/videos/{video}", json={"filename": "nach her/über.webm"})
    assert answer.status_code == 200
    found = server.get(f"/api/videos/{video}").json()
    # Playback may change between the requests: the server is still examining the file.
    assert answer.json() == found | {"playback": answer.json()["playback"]}
    assert answer.json()["filename"] == "nach her/über.webm"
    assert answer.json()["content_type"] == "video/webm"
    media = server.get(f"/media/{video}")
    assert media.headers["Content-Type"] == "video/webm"
    assert media.headers["Content-Disposition"].endswith("filename*=UTF-8''%C3%BCber.webm")
    assert "nach her/über.webm" in server.get(f"/watch/{video}").text
    found = server.get("/api/videos", params={"q": "uber.webm her"}).json()["videos"]
    assert [found_video["id"] for found_video in found] == [video]
    assert server.get("/api/videos", params={"q": "its-first-name"}).json()["videos"] == []


def test_a_bad_name_changes_nothing(server: Server) -> None:
    video = store(server, "kept.mp4")
    bodies: list[Any] = [{}, {"filename": ""}, {"filename": "a\tb"}, {"filename": 5}, []]
    for body in bodies:
        answer = server.patch(f"/api/videos/{video}", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")
    assert server.get(f"/api/videos/{video}").json()["filename"] == "kept.mp4"


@pytest.mark.parametrize(
    "query",
    ["cursor=x", "cursor=1.2", "limit=x", "limit=-1", "sort=", "sort=x", "q=%00", "q=" + "a" * 201],
)
def test_a_bad_page_is_refused(server: Server, query: str) -> None:
    assert server.get(f"/api/videos?{query}").status_code == 400


def test_the_digest_of_a_video_is_computed_in_the_background(server: Server) -> None:
    file = ChunkedFile(random_bytes(100_000, 11), 100_000)
    upload_id = send_chunk(server, file, 0).json()["id"]
    deadline = time.monotonic() + 60
    while (video := server.get(f"/api/videos/{upload_id}").json())["sha256"] is None:
        assert time.monotonic() < deadline, "the background worker did not hash the file"
        time.sleep(0.1)
    assert video["sha256"] == file.sha256
    assert video["media"] == f"/media/{upload_id}"
    assert video["inline"] is True


def test_a_complete_upload_is_deleted_as_a_video_instead(server: Server) -> None:
    upload_id = send_chunk(server, ChunkedFile(b"x", 1), 0).json()["id"]
    response = server.delete(f"/api/uploads/{upload_id}")
    assert (response.status_code, response.json()["code"]) == (409, "upload_complete")
    assert server.get(f"/api/uploads/{upload_id}").json()["state"] == "complete"
    assert server.delete(f"/api/videos/{upload_id}").status_code == 204
    assert server.get(f"/api/videos/{upload_id}").status_code == 410


def test_health_and_readiness_are_reported(server: Server) -> None:
    assert server.get("/healthz").json() == {"status": "ok"}
    response = server.get("/readyz")
    assert response.status_code == 200
    assert response.json()["status"] == "ready"


def test_a_wrong_method_is_answered_with_the_right_ones(server: Server) -> None:
    response = server.get("/upload")
    assert response.status_code == 405
    assert "POST" in response.headers["Allow"]
    assert response.json()["code"] == "method_not_allowed"

"""GET /media/{id} from a real server."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import requests

from tests.dropzone_client import form_body, form_headers, random_bytes
from tests.live_server import Server

CONTENT = random_bytes(1_000_003, 9)


@dataclass
class Video:
    """An uploaded file and what was sent."""

    server: Server
    id: str

    @property
    def path(self) -> str:
        """The path it is served at."""
        return f"/media/{self.id}"

    def range(self, value: str, **headers: str) -> tuple[int, str | None, bytes]:
        """Status, Content-Range and body for a Range header."""
        all_headers = {"Range": value, **{k.replace("_", "-"): v for k, v in headers.items()}}
        response = self.server.get(self.path, headers=all_headers)
        return response.status_code, response.headers.get("Content-Range"), response.content


def upload(server: Server, name: str, content: bytes) -> Video:
    """Upload a whole file."""
    answer = server.post(
        "/upload", data=form_body({}, [(name, content)]), headers=form_headers()
    ).json()
    return Video(server, answer["id"])


@pytest.fixture(scope="module")
def video(server: Server) -> Video:
    """One video, shared by the tests of this file."""
    return upload(server, "film.mp4", CONTENT)


def test_the_whole_file_is_sent_with_its_length_and_validators(video: Video) -> None:
    response = video.server.get(video.path)
    assert response.status_code == 200
    assert response.content == CONTENT
    assert response.headers["Accept-Ranges"] == "bytes"
    assert response.headers["Content-Length"] == str(len(CONTENT))
    assert response.headers["ETag"].startswith('"')
    assert response.headers["Content-Type"] == "video/mp4"


@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-99", 0, 100),
        ("bytes=1000-", 1000, 1_000_003),
        ("bytes=-3", 1_000_000, 1_000_003),
        ("bytes=-9999999", 0, 1_000_003),
        ("bytes=999999-99999999", 999_999, 1_000_003),
        ("bytes=65533-65539", 65_533, 65_540),
    ],
)
def test_a_range_returns_exactly_its_bytes(video: Video, header: str, start: int, end: int) -> None:
    status, content_range, body = video.range(header)
    assert status == 206
    assert content_range == f"bytes {start}-{end - 1}/{len(CONTENT)}"
    assert body == CONTENT[start:end]


@pytest.mark.parametrize("header", ["bytes=1000003-", "bytes=5000000-6000000"])
def test_a_range_beyond_the_end_is_refused(video: Video, header: str) -> None:
    status, content_range, _ = video.range(header)
    assert (status, content_range) == (416, f"bytes */{len(CONTENT)}")


@pytest.mark.parametrize("header", ["bytes=5-2", "lines=0-1", "bytes=a-b", "bytes=0-1,9-5"])
def test_an_unknown_range_returns_the_whole_file(video: Video, header: str) -> None:
    status, _, body = video.range(header)
    assert (status, body) == (200, CONTENT)


def test_head_returns_everything_but_the_bytes(video: Video) -> None:
    response = requests.head(video.server.url + video.path, timeout=60)
    assert response.status_code == 200
    assert response.headers["Content-Length"] == str(len(CONTENT))
    assert response.content == b""


def test_if_range_resumes_a_download_only_of_the_same_file(video: Video) -> None:
    headers = video.server.get(video.path, headers={"Range": "bytes=0-0"}).headers
    for validator in (headers["ETag"], headers["Last-Modified"]):
        assert video.range("bytes=5-9", If_Range=validator)[0] == 206
    for validator in ('"other"', f"W/{headers['ETag']}", "Mon, 02 Jan 2006 15:04:05 GMT"):
        assert video.range("bytes=5-9", If_Range=validator)[0] == 200


def test_conditional_requests_save_the_bytes(video: Video) -> None:
    etag = video.server.get(video.path).headers["ETag"]
    unchanged = video.server.get(video.path, headers={"If-None-Match": etag})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    changed = video.server.get(video.path, headers={"If-Match": '"other"'})
    assert changed.status_code == 412


def test_a_new_name_changes_the_tag_only_with_the_type(server: Server) -> None:
    """A browser that is told its copy is still right would keep the copy's old type."""
    stored = upload(server, "noext", b"a film after all")
    tag = server.get(stored.path).headers["ETag"]
    for name, expected in (("still.zip", 304), ("film.mp4", 200)):
        api = f"{server.url}/api/videos/{stored.path.rpartition('/')[2]}"
        assert requests.patch(api, json={"filename": name}, timeout=60).status_code == 200
        assert server.get(stored.path, headers={"If-None-Match": tag}).status_code == expected
    assert stored.range("bytes=2-3", If_Range=tag)[0] == 200


def test_ranges_on_one_connection_do_not_mix(video: Video) -> None:
    with requests.Session() as session:
        for start in range(0, 200_000, 50_000):
            header = {"Range": f"bytes={start}-{start + 49_999}"}
            response = session.get(video.server.url + video.path, headers=header, timeout=60)
            assert response.content == CONTENT[start : start + 50_000]


@pytest.mark.parametrize("name", ["page.html", "image.svg", "script.js", "doc.pdf", "noext"])
def test_active_content_is_never_shown_inline(server: Server, name: str) -> None:
    stored = upload(server, name, b"<script>alert(1)</script>")
    headers = server.get(stored.path).headers
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["Content-Disposition"].startswith("attachment")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in headers["Content-Security-Policy"]


def test_a_video_is_shown_inline_unless_downloaded(video: Video) -> None:
    shown = video.server.get(video.path).headers["Content-Disposition"]
    saved = video.server.get(f"{video.path}?download").headers["Content-Disposition"]
    assert (shown, saved) == ('inline; filename="film.mp4"', 'attachment; filename="film.mp4"')


def test_names_of_any_script_survive_the_header(server: Server) -> None:
    stored = upload(server, "дом/影片 %22x%22.mp4", b"x")
    header = server.get(stored.path).headers["Content-Disposition"]
    assert "filename*=UTF-8''%E5%BD%B1%E7%89%87%20%22x%22.mp4" in header
    assert "/" not in header.replace("UTF-8''", "")


def test_unknown_unfinished_and_deleted_files_get_different_answers(server: Server) -> None:
    assert server.get(f"/media/{'0' * 32}").status_code == 404
    assert server.get("/media/..%2f..%2fetc%2fpasswd").status_code == 404
    unfinished = server.post("/api/uploads", json={"name": "a.mp4", "size": 10}).json()
    assert server.get(f"/media/{unfinished['id']}").status_code == 404
    stored = upload(server, "gone.mp4", b"x")
    assert server.delete(f"/api/videos/{stored.id}").status_code == 204
    assert server.get(stored.path).status_code == 410
    assert stored.id not in {path.name for path in server.library.iterdir()}

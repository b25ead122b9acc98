"""Downloads that the app authorises and nginx sends, from a folder or from a bucket.

nginx is configured by `deploy/nginx.conf` and `deploy/nginx-bucket.conf`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import pytest
import requests
from werkzeug.datastructures import Headers

from app.deliver.media import is_decided_alike
from tests.deliver.stored import Stored, received_parts, store
from tests.dropzone_client import random_bytes
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.nginx import deployed_nginx
from tests.s3_servers import new_prefix

pytestmark = pytest.mark.e2e

in_folder = pytest.mark.parametrize("server", ["folder"], indirect=True)
"""For what has nothing to do with a bucket, or is about the files in the folder."""

in_bucket = pytest.mark.parametrize("server", ["bucket"], indirect=True)

CONTENT = random_bytes(1_000_003, 92)
OUR_PAGE, THEIR_PAGE = "https://a.example", "https://b.example"
LOCATION = "/protected/"

REQUESTS = [
    {},
    {"Range": "bytes=0-0"},
    {"Range": "bytes=1000-"},
    {"Range": "bytes=-3"},
    {"Range": "bytes=-9999999"},
    {"Range": "BYTES=999999-99999999"},
    {"Range": "bytes= 0-9"},
    {"Range": "bytes=0-99999999999999999999"},
    {"Range": "bytes=99999999999999999999-"},
    {"Range": "bytes=5-2"},
    {"Range": "bytes=a-b"},
    {"Range": "lines=0-1"},
    {"Range": "bytes=0-1,5-2"},
    {"Range": "bytes=0-9,5-19"},
    {"Range": "bytes=0-,0-,0-"},
    {"Range": "bytes=1000003-"},
    {"Range": "bytes=-0"},
    {"Range": "bytes=5-9", "If-Range": "{tag}"},
    {"Range": "bytes=5-9", "If-Range": "{date}"},
    {"Range": "bytes=5-9", "If-Range": "W/{tag}"},
    {"Range": "bytes=5-9", "If-Range": '"other"'},
    {"Range": "bytes=5-9", "If-Range": "Mon, 02 Jan 2006 15:04:05 GMT"},
    {"Range": "bytes=5-9", "If-Match": "{tag}"},
    {"Range": "bytes=5-9", "If-None-Match": "{tag}"},
    {"Range": "bytes=2000000-", "If-None-Match": "{tag}"},
    {"If-None-Match": "{tag}"},
    {"If-None-Match": "W/{tag}"},
    {"If-None-Match": '"other"'},
    {"If-None-Match": "*"},
    {"If-Modified-Since": "{date}"},
    {"If-Modified-Since": "Mon, 02 Jan 2006 15:04:05 GMT"},
    {"If-Match": "{tag}"},
    {"If-Match": "*"},
    {"If-Match": '"other"'},
    {"If-Unmodified-Since": "{date}"},
    {"If-Unmodified-Since": "Mon, 02 Jan 2006 15:04:05 GMT"},
    {"Origin": OUR_PAGE},
    {"Origin": THEIR_PAGE},
    {"Origin": OUR_PAGE, "Range": "bytes=0-9"},
]
"""Headers with which a client may ask for a file; `{tag}` and `{date}` are its validators."""

OF_THE_ANSWER = frozenset({"Server", "Date", "Connection", "X-Request-ID"})
"""Headers that differ between any two answers."""


@dataclass
class Both:
    """A stored file, requested directly and through nginx."""

    stored: Stored
    nginx: str

    def directly(self, headers: dict[str, str], method: str = "GET") -> requests.Response:
        """The app's own answer."""
        return requests.request(method, self.stored.url, headers=headers, timeout=60)

    def through_nginx(self, headers: dict[str, str], method: str = "GET") -> requests.Response:
        """The answer through nginx."""
        url = self.nginx + self.stored.path
        return requests.request(method, url, headers=headers, timeout=60)

    @cached_property
    def validators(self) -> dict[str, str]:
        """The validators that conditional headers use."""
        headers = self.directly({}, "HEAD").headers
        return {"tag": headers["ETag"], "date": headers["Last-Modified"]}


@pytest.fixture(scope="module", params=["folder", "bucket"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    options = {"SLUICE_ACCEL_REDIRECT": LOCATION, "SLUICE_CORS_ORIGINS": OUR_PAGE, **NO_FFMPEG}
    if request.param == "bucket":
        options |= request.getfixturevalue("versitygw").access.settings(new_prefix())
    with running_server(tmp_path_factory.mktemp(request.param), **options) as running:
        yield running


@pytest.fixture(scope="module")
def nginx(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("nginx") / "nginx"
    has_bucket = "SLUICE_STORAGE" in server.options
    library = None if has_bucket else server.library
    with deployed_nginx(folder, server.port, library=library, has_bucket=has_bucket) as url:
        yield url


@pytest.fixture(scope="module")
def film(server: Server, nginx: str) -> Both:
    return Both(store(server, "film.mp4", CONTENT), nginx)


def shown(response: requests.Response) -> dict[str, str]:
    """The headers that both answers should share."""
    own = OF_THE_ANSWER
    if response.status_code == 206:
        own = own | {"Accept-Ranges"}  # The default, which nginx leaves out.
    ignored = {name.lower() for name in own}
    found = {name.lower(): text for name, text in response.headers.items()}
    return {name: text for name, text in found.items() if name not in ignored}


def assert_same(one: requests.Response, other: requests.Response) -> None:
    assert one.status_code == other.status_code
    assert one.content == other.content
    assert shown(one) == shown(other)


# ---- who sends -----------------------------------------------------------------------------------


def bytes_sent_by_service(film: Both, request_id: str) -> int:
    """Bytes in the app's access log, which is written a moment after the answer."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for line in film.stored.server.log.splitlines():
            if f'"{request_id}"' in line:
                return int(line.partition('"sent": ')[2].partition(",")[0])
        time.sleep(0.05)
    raise AssertionError("the request is not in the log")


@pytest.mark.parametrize("headers", [{}, {"Range": "bytes=5-"}])
def test_nginx_sends_the_bytes_and_the_app_sends_none(film: Both, headers: dict[str, str]) -> None:
    name = f"accelerated-{len(headers)}"
    response = film.through_nginx({**headers, "X-Request-ID": name})
    assert len(response.content) > 1_000_000 - 5
    assert bytes_sent_by_service(film, name) == 0


def test_a_client_that_bypasses_nginx_gets_the_bytes_from_the_app(film: Both) -> None:
    response = film.directly({})
    assert not {"X-Accel-Redirect", "X-Bucket-URL"} & set(response.headers)
    assert response.content == CONTENT


@in_folder
def test_headers_of_an_untrusted_proxy_are_ignored(
    film: Both, start_server: Callable[..., Server]
) -> None:
    forwarded = {"X-Forwarded-For": "192.0.2.1"}
    told = film.directly(forwarded)
    assert told.headers["X-Accel-Redirect"] == LOCATION + film.stored.id
    assert told.content == b""
    proxies = {"SLUICE_ACCEL_REDIRECT": LOCATION, "SLUICE_TRUSTED_PROXIES": "192.0.2.7"}
    untrusting = store(start_server(**proxies), "film.mp4", CONTENT)
    assert Both(untrusting, film.nginx).directly(forwarded).content == CONTENT


@in_folder
def test_the_internal_location_is_closed_to_clients(film: Both) -> None:
    response = requests.get(film.nginx + LOCATION + film.stored.id, timeout=60)
    assert response.status_code == 404
    assert CONTENT not in response.content


@in_bucket
def test_the_url_of_the_bucket_is_shown_to_nobody(film: Both) -> None:
    assert "X-Bucket-URL" not in film.through_nginx({}).headers


# ---- the answers are the same --------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "headers",
    REQUESTS,
    ids=str,
)
def test_a_request_is_answered_the_same_with_and_without_nginx(
    film: Both, headers: dict[str, str], method: str
) -> None:
    headers = {name: value.format(**film.validators) for name, value in headers.items()}
    assert_same(film.directly(headers, method), film.through_nginx(headers, method))


@pytest.mark.parametrize("name", ["page.html", "影片.mov", "a.bin"])
def test_active_content_stays_a_sandboxed_download(server: Server, nginx: str, name: str) -> None:
    both = Both(store(server, name, b"<script>alert(1)</script>"), nginx)
    assert_same(both.directly({}), both.through_nginx({}))


def test_several_ranges_come_through_nginx(film: Both) -> None:
    response = film.through_nginx({"Range": "bytes=20-29,0-9,5-12"})
    parts = [part.content for part in received_parts(response)]
    assert parts == [CONTENT[20:30], CONTENT[:13]]


@in_folder
def test_a_file_older_or_newer_than_its_record_changes_no_answer(
    server: Server, nginx: str
) -> None:
    both = Both(store(server, "restored.mp4", CONTENT), nginx)
    for seconds in (1_000_000_000, 4_000_000_000):
        os.utime(server.library / both.stored.id, (seconds, seconds))
        headers = {"Range": "bytes=5-9", "If-Range": both.validators["tag"]}
        assert both.through_nginx(headers).content == CONTENT[5:10]
        assert_same(both.directly({}), both.through_nginx({}))
        since = {"If-Modified-Since": "Sun, 09 Sep 2001 01:46:40 GMT"}
        assert both.through_nginx(since).status_code == 200


@in_folder
def test_missing_unfinished_and_deleted_files_get_different_answers(
    server: Server, nginx: str
) -> None:
    lost = Both(store(server, "lost.mp4", b"x"), nginx)
    (server.library / lost.stored.id).unlink()
    assert lost.through_nginx({}).status_code == 410
    deleted = Both(store(server, "deleted.mp4", b"x"), nginx)
    server.delete(f"/api/videos/{deleted.stored.id}")
    assert deleted.through_nginx({}).status_code == 410
    unknown = Both(Stored(server, "0" * 32), nginx)
    assert unknown.through_nginx({}).status_code == 404


def test_an_empty_file_is_sent(server: Server, nginx: str) -> None:
    both = Both(store(server, "empty.mp4", b""), nginx)
    assert_same(both.directly({}), both.through_nginx({}))


# ---- rights --------------------------------------------------------------------------------------


@in_folder
def test_the_group_may_read_only_the_files_nginx_sends(server: Server, nginx: str) -> None:
    sent, unsent = (Both(store(server, "a.mp4", b"x"), nginx) for _ in range(2))
    sent.through_nginx({})
    modes = [(server.library / both.stored.id).stat().st_mode & 0o777 for both in (sent, unsent)]
    assert modes == [0o640, 0o600]
    assert server.library.stat().st_mode & 0o777 == 0o750
    assert server.staging.stat().st_mode & 0o777 == 0o700


# ---- pure ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "alike"),
    [
        ({}, True),
        ({"If-None-Match": '"x"', "If-Modified-Since": "x"}, True),
        ({"Range": "bytes=0-9"}, True),
        ({"Range": "bytes=0-"}, True),
        ({"Range": "bytes=-9"}, True),
        ({"Range": "bytes=0-9", "If-Range": '"x"'}, True),
        ({"Range": "bytes=0-9,20-29"}, False),
        ({"Range": "Bytes=-9"}, False),
        ({"Range": "bytes=-"}, False),
        ({"Range": "bytes=0-9999999999999999999"}, False),
        ({"If-Match": '"x"'}, False),
        ({"If-Unmodified-Since": "x"}, False),
    ],
)
def test_nginx_decides_only_what_it_decides_the_same_way(
    headers: dict[str, str], alike: bool
) -> None:
    assert is_decided_alike(Headers(headers), has_range=True) is alike


def test_a_range_that_does_not_apply_is_not_left_to_nginx() -> None:
    assert not is_decided_alike(Headers({"Range": "bytes=5-2"}), has_range=False)

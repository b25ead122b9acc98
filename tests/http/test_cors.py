"""Pages of other sites, and the headers that browsers send for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from app.http.origins import EXPOSED
from app.settings import from_env
from tests.live_server import ANY_NAME, Server, running_server

SITE = "https://films.example"
OTHER_SITE = "https://elsewhere.example"
CHUNK = {"Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
TUS = {"Tus-Resumable": "1.0.0"}

NEEDED_BY_TUS = {
    "Location",
    "Tus-Checksum-Algorithm",
    "Tus-Extension",
    "Tus-Max-Size",
    "Tus-Resumable",
    "Tus-Version",
    "Upload-Concat",
    "Upload-Defer-Length",
    "Upload-Expires",
    "Upload-Length",
    "Upload-Metadata",
    "Upload-Offset",
}
NEEDED_BY_THE_DRAFT = {
    "Location",
    "Upload-Complete",
    "Upload-Draft-Interop-Version",
    "Upload-Incomplete",
    "Upload-Limit",
    "Upload-Offset",
}
SAFELISTED = {
    "cache-control",
    "content-language",
    "content-length",
    "content-type",
    "expires",
    "last-modified",
    "pragma",
}
"""Headers scripts may always read (Fetch, section "CORS-safelisted response-header name")."""

FOR_THE_BROWSER = {
    "access-control-allow-origin",
    "access-control-expose-headers",
    "connection",
    "content-security-policy",
    "cross-origin-resource-policy",
    "date",
    "referrer-policy",
    "server",
    "timing-allow-origin",
    "vary",
    "x-content-type-options",
}


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that accepts uploads from the pages of one other site."""
    folder: Path = tmp_path_factory.mktemp("cors")
    with running_server(folder, SLUICE_CORS_ORIGINS=f"{SITE}, https://third.example/") as running:
        yield running


PATHS = [
    "/tus/",
    "/tus/x",
    "/resumable/",
    "/upload",
    "/api/uploads",
    f"/u/{'A' * 22}/tus/",
    f"/u/{'A' * 22}/upload",
]
"""The last two are those of an upload link; a preflight does not tell whether there is one."""


def ask(server: Server, method: str, path: str, origin: str, **headers: str) -> requests.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return requests.request(
        method, server.url + path, headers={"Origin": origin, **TUS, **named}, timeout=60
    )


def preflight(
    server: Server, path: str, origin: str, *, method: str = "PATCH", names: str = "upload-offset"
) -> requests.Response:
    """The request a browser sends before one that no form could send."""
    return requests.options(
        server.url + path,
        headers={
            "Origin": origin,
            "Access-Control-Request-Method": method,
            "Access-Control-Request-Headers": names,
        },
        timeout=60,
    )


def words(response: requests.Response, name: str) -> set[str]:
    return {word.strip().lower() for word in response.headers.get(name, "").split(",")}


# ---- an origin of the settings -------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["POST", "PATCH", "HEAD", "DELETE", "PUT"])
def test_a_browser_may_send_every_request_of_every_protocol(
    open_server: Server, path: str, method: str
) -> None:
    names = "tus-resumable,upload-length,upload-metadata,x-http-method-override,x-anything"
    response = preflight(open_server, path, SITE, method=method, names=names)
    assert response.status_code == 204
    assert response.headers["Access-Control-Allow-Origin"] == SITE
    assert method.lower() in words(response, "Access-Control-Allow-Methods")
    assert words(response, "Access-Control-Allow-Headers") == set(names.split(","))
    assert int(response.headers["Access-Control-Max-Age"]) > 0
    assert response.content == b""


def test_a_preflight_may_name_no_headers(open_server: Server) -> None:
    headers = {"Origin": SITE, "Access-Control-Request-Method": "DELETE"}
    response = requests.options(f"{open_server.url}/tus/x", headers=headers, timeout=60)
    assert (response.status_code, response.headers["Access-Control-Allow-Origin"]) == (204, SITE)


def test_an_upload_from_an_allowed_site_is_accepted(open_server: Server) -> None:
    created = ask(open_server, "POST", "/tus/", SITE, Upload_Length="5")
    assert created.status_code == 201
    path = urlsplit(created.headers["Location"]).path
    answers = [
        created,
        ask(open_server, "HEAD", path, SITE),
        requests.patch(
            open_server.url + path,
            data=b"bytes",
            headers={"Origin": SITE, **TUS, **CHUNK, "Sec-Fetch-Site": "cross-site"},
            timeout=60,
        ),
        ask(open_server, "DELETE", path, SITE),
    ]
    assert [answer.status_code for answer in answers] == [201, 200, 204, 204]
    for answer in answers:
        assert answer.headers["Access-Control-Allow-Origin"] == SITE
        assert "origin" in words(answer, "Vary")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("HEAD", "/tus/" + "0" * 32, 404),
        ("PATCH", "/tus/" + "0" * 32, 415),
        ("PUT", "/healthz", 405),
        ("POST", "/upload", 400),
        ("POST", "/api/uploads", 400),
        ("GET", "/media/" + "0" * 32, 404),
    ],
)
def test_errors_can_be_read_too(open_server: Server, method: str, path: str, status: int) -> None:
    response = ask(open_server, method, path, SITE)
    assert response.status_code == status
    assert response.headers["Access-Control-Allow-Origin"] == SITE
    assert "x-request-id" in words(response, "Access-Control-Expose-Headers")


def test_a_refused_version_can_be_read_too(open_server: Server) -> None:
    response = ask(open_server, "POST", "/tus/", SITE, Tus_Resumable="0.2.2")
    assert response.status_code == 412
    assert response.headers["Access-Control-Allow-Origin"] == SITE


def test_a_failure_of_the_server_can_be_read_too(start_server: Callable[..., Server]) -> None:
    server = start_server(SLUICE_CORS_ORIGINS=SITE)
    server.staging.rename(server.staging.with_name("away"))
    server.staging.write_text("no folder")
    response = ask(server, "POST", "/tus/", SITE, Upload_Length="5")
    server.staging.unlink()
    assert response.status_code == 500
    assert response.headers["Access-Control-Allow-Origin"] == SITE


@pytest.mark.parametrize("needed", [NEEDED_BY_TUS, NEEDED_BY_THE_DRAFT])
def test_scripts_may_read_what_the_protocols_need(open_server: Server, needed: set[str]) -> None:
    response = ask(open_server, "POST", "/tus/", SITE, Upload_Length="5")
    exposed = words(response, "Access-Control-Expose-Headers")
    assert {name.lower() for name in needed} <= exposed


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("OPTIONS", "/tus/"),
        ("POST", "/tus/"),
        ("POST", "/resumable/"),
        ("OPTIONS", "/resumable/"),
        ("GET", "/api/uploads"),
        ("GET", "/api/videos"),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/nothing"),
    ],
)
def test_no_header_of_ours_is_hidden_from_scripts(
    open_server: Server, method: str, path: str
) -> None:
    headers = {"Upload_Length": "0", "Upload_Complete": "?0"}
    response = ask(open_server, method, path, SITE, **headers)
    names = {name.lower() for name in response.headers}
    hidden = names - words(response, "Access-Control-Expose-Headers")
    assert hidden - SAFELISTED - FOR_THE_BROWSER - {"allow"} == set()


def test_the_headers_of_a_download_are_not_hidden_either(open_server: Server) -> None:
    created = ask(open_server, "POST", "/tus/", SITE, Upload_Length="5")
    path = urlsplit(created.headers["Location"]).path
    requests.patch(open_server.url + path, data=b"bytes", headers={**TUS, **CHUNK}, timeout=60)
    media = path.replace("/tus/", "/media/")
    response = ask(open_server, "GET", media, SITE, Range="bytes=1-2")
    assert (response.status_code, response.content) == (206, b"yt")
    names = {name.lower() for name in response.headers}
    hidden = names - words(response, "Access-Control-Expose-Headers")
    assert hidden - SAFELISTED - FOR_THE_BROWSER == set()


# ---- any other origin ----------------------------------------------------------------------------

FOREIGN = [
    OTHER_SITE,
    "null",
    "http://films.example",
    "https://films.example:444",
    "https://films.example.evil.example",
    "https://evil.example/https://films.example",
    "https://FILMS.example",
    "",
]


@pytest.mark.parametrize("origin", FOREIGN)
def test_an_origin_outside_the_settings_gets_no_cors_headers(
    open_server: Server, origin: str
) -> None:
    asked = preflight(open_server, "/tus/", origin)
    sent = ask(open_server, "POST", "/tus/", origin, Upload_Length="5")
    read = ask(open_server, "GET", "/api/videos", origin)
    assert (sent.status_code, read.status_code) == (403, 200)
    for response in (asked, sent, read):
        assert "Access-Control-Allow-Origin" not in response.headers
        assert "Access-Control-Allow-Headers" not in response.headers
        assert "origin" in words(response, "Vary")


def test_through_an_upload_link_other_sites_need_the_setting_too(open_server: Server) -> None:
    link = urlsplit(open_server.post("/api/upload-links", json={}).json()["url"]).path
    sent, refused = (
        ask(open_server, "POST", f"{link}/tus/", origin, Upload_Length="5")
        for origin in (SITE, OTHER_SITE)
    )
    assert (sent.status_code, refused.status_code) == (201, 403)
    assert sent.headers["Access-Control-Allow-Origin"] == SITE
    assert "Access-Control-Allow-Origin" not in refused.headers


@pytest.mark.parametrize("origin", ["null", "http://127.0.0.1", "https://films.example", ""])
def test_without_the_setting_no_other_origin_is_allowed(server: Server, origin: str) -> None:
    assert (
        preflight(server, "/tus/", origin)
        .headers.keys()
        .isdisjoint({"Access-Control-Allow-Origin", "Access-Control-Allow-Methods"})
    )
    assert ask(server, "POST", "/tus/", origin, Upload_Length="5").status_code == 403


def test_the_servers_own_pages_need_no_setting(server: Server) -> None:
    response = ask(server, "POST", "/tus/", server.url, Upload_Length="5")
    assert response.status_code == 201
    assert "Access-Control-Allow-Origin" not in response.headers


def test_the_servers_own_pages_work_under_every_name(start_server: Callable[..., Server]) -> None:
    server = start_server(**ANY_NAME)
    for host in ("my_server:8000", "MY_SERVER", "films.example:80", "[::1]:8000"):
        own = f"http://{host.lower().removesuffix(':80')}"
        assert ask(server, "POST", "/tus/", own, Upload_Length="5", Host=host).status_code == 201
        for origin in ("null", "", "http://", "http://other_server:8000", f"{own}0"):
            response = ask(server, "POST", "/tus/", origin, Upload_Length="5", Host=host)
            assert response.status_code == 403


@pytest.mark.parametrize("relation", ["same-origin", "none"])
def test_what_the_browser_says_counts_more_than_a_host_that_a_proxy_has_changed(
    server: Server, relation: str
) -> None:
    headers = {**TUS, "Upload-Length": "5", "Sec-Fetch-Site": relation, "Origin": SITE}
    assert server.post("/tus/", headers=headers).status_code == 201


def test_programs_send_no_origin_and_are_allowed(open_server: Server) -> None:
    headers = {**TUS, "Upload-Length": "5"}
    assert open_server.post("/tus/", headers=headers).status_code == 201


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("POST", "/upload", {"Content-Type": "text/plain"}),
        ("POST", "/batch", {"Content-Type": "multipart/form-data; boundary=x"}),
        ("POST", "/resumable/", {"Content-Type": "text/plain"}),
        ("POST", "/tus/", {**TUS, "Upload-Length": "5"}),
        ("POST", "/filepond", {"Upload-Length": "5"}),
        ("DELETE", "/api/videos/" + "0" * 32, {}),
    ],
)
@pytest.mark.parametrize(
    "mark", [{"Origin": OTHER_SITE}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}]
)
def test_a_form_on_another_site_uploads_nothing(
    open_server: Server, method: str, path: str, headers: dict[str, str], mark: dict[str, str]
) -> None:
    url = open_server.url + path
    response = requests.request(method, url, headers={**headers, **mark}, data=b"x", timeout=60)
    assert response.status_code == 403


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST"])
@pytest.mark.parametrize("override", ["DELETE", "PATCH", "HEAD", "delete", ""])
def test_a_disguised_method_is_refused(open_server: Server, method: str, override: str) -> None:
    created = open_server.post("/tus/", headers={**TUS, "Upload-Length": "5"})
    path = urlsplit(created.headers["Location"]).path
    headers = {"X_HTTP_Method_Override": override, "Upload_Offset": "0"}
    assert ask(open_server, method, path, OTHER_SITE, **headers).status_code == 403
    assert open_server.get(f"/api/uploads/{path.rpartition('/')[2]}").json()["offset"] == 0


def test_origins_are_compared_as_browsers_write_them() -> None:
    settings = from_env({"SLUICE_CORS_ORIGINS": "https://Films.Example/ ,HTTP://a.example:81"})
    assert settings.cors_origins == {"https://films.example", "http://a.example:81"}


@pytest.mark.parametrize("text", ["films.example", "https://a.example/page", "null", "https://"])
def test_an_invalid_origin_in_the_settings_stops_the_start(text: str) -> None:
    with pytest.raises(ValueError, match="is not an origin"):
        from_env({"SLUICE_CORS_ORIGINS": text})


# ---- every origin --------------------------------------------------------------------------------


def test_a_star_allows_every_origin(start_server: Callable[..., Server]) -> None:
    server = start_server(SLUICE_CORS_ORIGINS="*")
    for origin in (SITE, OTHER_SITE, "null", "http://localhost:3000"):
        asked = preflight(server, "/tus/", origin)
        sent = ask(server, "POST", "/tus/", origin, Upload_Length="5")
        assert (asked.status_code, sent.status_code) == (204, 201)
        for response in (asked, sent):
            assert response.headers["Access-Control-Allow-Origin"] == origin
            assert "Access-Control-Allow-Credentials" not in response.headers


def test_exposed_headers_are_listed_once_and_in_order() -> None:
    names = EXPOSED.split(", ")
    assert names == sorted(set(names))

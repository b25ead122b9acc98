"""Which server is tested, and which cases apply to it."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urljoin

import pytest

from tests.conformance.differences import OWN
from tests.conformance.draft_client import VERSIONS, Draft
from tests.conformance.tus_client import Tus
from tests.conformance.wire import exchange
from tests.live_server import Server

Stored = Callable[[str], bytes | None]

REDIRECTS = 3
"""The most redirects from an upload's URL to its download."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--url", help="where a tus server creates uploads; ours without it")
    group.addoption("--resumable-url", help="where a server of the IETF draft takes uploads")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "extension(name): runs where the tus server announces it")
    config.addinivalue_line("markers", "versions(*numbers): runs in these versions of the draft")
    config.addinivalue_line("markers", "own: only our own server promises it")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of the draft runs once per version, or in the versions it names."""
    if "draft" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("versions")
        numbers = mark.args if mark else tuple(VERSIONS)
        metafunc.parametrize("draft", numbers, indirect=True, ids=lambda n: f"version {n}")


def _option(config: pytest.Config, name: str) -> str | None:
    """When all tests run, this file is loaded too late for options: our own server is tested."""
    value: str | None = config.getoption(name, default=None)
    return value


@pytest.fixture(scope="session")
def is_own(pytestconfig: pytest.Config) -> bool:
    """Whether our own server is tested."""
    return not (_option(pytestconfig, "--url") or _option(pytestconfig, "--resumable-url"))


@pytest.fixture(scope="session")
def tus(request: pytest.FixtureRequest, is_own: bool) -> Tus:
    """The tus server."""
    if is_own:
        server: Server = request.getfixturevalue("server")
        return Tus(f"{server.url}/tus/")
    url = _option(request.config, "--url")
    if url is None:
        pytest.skip("no tus server was named")
    return Tus(url)


@pytest.fixture(scope="session")
def draft_url(request: pytest.FixtureRequest, is_own: bool) -> str:
    """The URL at which the server of the draft accepts uploads."""
    if is_own:
        server: Server = request.getfixturevalue("server")
        return f"{server.url}/resumable/"
    url = _option(request.config, "--resumable-url")
    if url is None:
        pytest.skip("no server of the draft was named")
    return url


@pytest.fixture(scope="session")
def draft_servers(draft_url: str) -> dict[int, Draft]:
    """Clients of the server of the draft, by version."""
    return {number: Draft(draft_url, version) for number, version in VERSIONS.items()}


@pytest.fixture
def draft(request: pytest.FixtureRequest, draft_servers: dict[int, Draft], is_own: bool) -> Draft:
    """A client of the server of the draft, in one version that it supports."""
    chosen = draft_servers[request.param]
    if not is_own and not chosen.is_spoken:
        pytest.skip(f"not announced: version {request.param}")
    return chosen


@pytest.fixture(autouse=True)
def _applies(request: pytest.FixtureRequest, is_own: bool) -> None:
    """Skip what a server does not announce; ours announces everything, and few cases fail."""
    if request.node.get_closest_marker("own") and not is_own:
        pytest.skip("only our own server promises it")
    remark = OWN.get(request.node.originalname)
    if is_own and remark is not None:
        request.applymarker(pytest.mark.xfail(reason=remark, strict=True))
    marks = list(request.node.iter_markers("extension"))
    if is_own or not marks:
        return
    tus: Tus = request.getfixturevalue("tus")
    for mark in marks:
        if mark.args[0] not in tus.extensions:
            pytest.skip(f"not announced: {mark.args[0]}")


@pytest.fixture(scope="session")
def stored(tus: Tus) -> Stored:
    """The bytes of a complete upload, or None if its URL is not a download.

    tus does not say how a file is read. Most servers answer a GET of the upload's URL.
    """

    def read(url: str) -> bytes | None:
        for _ in range(REDIRECTS):
            reply = exchange("GET", url, {"Tus-Resumable": "1.0.0"})
            if reply.status not in {301, 302, 303, 307, 308}:
                return reply.body if reply.status == 200 else None
            url = urljoin(url, reply["Location"])
        return None

    offers_download = read(tus.create_with(b"probe")) is not None
    return read if offers_download else lambda _: None

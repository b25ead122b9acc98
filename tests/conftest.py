"""Fixtures used by more than one folder of tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import insert, text

from app.core.access import FIRST_PROJECT
from app.db.engine import Database
from app.db.tables import projects
from app.db.transfer import UNFINISHED
from tests.live_server import NO_FFMPEG, SHARED_FOLDER, Server, running_server
from tests.long_tests import long
from tests.postgresql import Postgresql, postgresql
from tests.records.making import NOW, new_sqlite
from tests.s3_servers import S3Server, find_garage, find_versitygw, running
from tests.site import Site, new_site
from tests.video.films import FilmStore
from tests.video.shelf import Shelf

# A server's five processes would each compile all modules at every start: 0.15 of its CPU time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# It would hide output that is not flushed.
os.environ.pop("PYTHONUNBUFFERED", None)

# How fast an example is drawn or runs says something of the machine, and nothing of the code.
settings.register_profile(
    "loaded machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("loaded machine")

TESTS = Path(__file__).parent

SLOW_FOLDERS = ("browser", "hostile", "e2e", "client", "video")
"""They run first: otherwise one process would still be in a long file when the others have ended.
And a folder runs in one go, so that its files share browsers, servers and films."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that `make` passes."""
    parser.addoption(
        "--full-length",
        action="store_true",
        help="run tests/hostile and tests/fleet at full length",
    )
    parser.addoption(
        "--storage",
        choices=["disk", "s3"],
        default="disk",
        help="where tests/uploads keep their files; s3 skips what is about folders",
    )
    parser.addoption("--disturbances", type=int, help="how often a fleet is shaken")
    parser.addoption(
        "--pooled-nodes",
        type=int,
        default=1,
        help="how many nodes of a shaken fleet reach PostgreSQL through PgBouncer",
    )
    parser.addoption(
        "--seed",
        type=int,
        default=21,
        help="what disturbances and faults of a fleet are drawn from",
    )
    parser.addoption("--all-films", action="store_true", help="tests of playback play every film")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only runs with an option, and put the slow folders first."""
    left_out = [item for item in items if not _is_asked_for(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if _is_asked_for(item)]
    ranks = {folder: rank for rank, folder in enumerate(SLOW_FOLDERS)}
    items.sort(key=lambda item: ranks.get(item.path.relative_to(TESTS).parts[0], len(ranks)))


def _is_asked_for(item: pytest.Item) -> bool:
    return all(item.config.getoption(mark.args[0]) for mark in item.iter_markers("only_with"))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that all tests share; a test that changes its processes starts its own.

    Neither it nor `closed_server` examines files with ffmpeg: `shelf` does.
    """
    with running_server(tmp_path_factory.mktemp("server"), **NO_FFMPEG) as running:
        yield running


@pytest.fixture(scope="session")
def closed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with accounts that all tests share; each makes projects, people or keys there."""
    folder = tmp_path_factory.mktemp("closed")
    with running_server(folder, SLUICE_ACCESS="accounts", **NO_FFMPEG) as running:
        yield running


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with accounts in this process; each test of a module makes the people it needs."""
    with new_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture(scope="session", autouse=True)
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For what takes long to make: a folder of all processes of this run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    os.environ[SHARED_FOLDER] = str(folder)
    return folder


@pytest.fixture(scope="session")
def film(shared_folder: Path) -> FilmStore:
    """Films by name, as `tests.video.films` lists them, for all processes of this run."""
    return FilmStore(shared_folder)


@pytest.fixture(scope="session")
def shelf(film: FilmStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    """A server with films; tests that count or delete films use another."""
    with running_server(tmp_path_factory.mktemp("shelf")) as running:
        yield Shelf(running, film)


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers with settings for one test; they stop when it ends.

    They have ffmpeg only if `FFMPEG` is among the options.
    """
    with ExitStack() as stack:

        def start(**options: str) -> Server:
            folder = tmp_path / f"server{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            return stack.enter_context(running_server(folder, **{**NO_FFMPEG, **options}))

        yield start


@pytest.fixture(scope="session")
def versitygw() -> Iterator[S3Server]:
    """An S3 server; tests share its bucket, and each takes a prefix of its own."""
    with running(find_versitygw()) as server:
        yield server


@pytest.fixture(scope="session")
def garage() -> Iterator[S3Server]:
    """The second S3 server, likewise."""
    with running(find_garage()) as server:
        yield server


# ---- databases: in a file, and on a server -------------------------------------------------------


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Postgresql]:
    """A server for one process of the tests, with the database "empty", which is migrated."""
    with postgresql() as server:
        with closing(Database(server.create("empty"), synced=True)) as database:
            database.migrate()
        yield server


@pytest.fixture(scope="session")
def shared_url(postgresql_server: Postgresql) -> str:
    """Of the database that `on_server` empties; a busy machine may connect late."""
    return f"{postgresql_server.create('shared', like='empty')}&connect_timeout=60"


@pytest.fixture
def in_file(tmp_path: Path) -> Iterator[Database]:
    """An empty database in a file."""
    with closing(new_sqlite(tmp_path / "folder" / "sluice.db")) as database:
        yield database


@pytest.fixture
def on_server(shared_url: str) -> Iterator[Database]:
    """An empty database on a server."""
    with closing(Database(shared_url, synced=True)) as database:
        _empty(database)
        yield database


@pytest.fixture(params=["in_file", *long(["on_server"])])
def database(request: pytest.FixtureRequest) -> Database:
    """Each of them in turn; `make test` takes that on a server only where it is asked to, by
    `ON_BOTH_DATABASES`."""
    found: Database = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def address(database: Database, request: pytest.FixtureRequest) -> str:
    """URL of `database`, for other processes."""
    if database.file is not None:
        return f"sqlite:///{database.file.path}"
    found: str = request.getfixturevalue("shared_url")
    return found


@pytest.fixture(scope="module", params=["in_file", *long(["on_server"])])
def database_url(request: pytest.FixtureRequest) -> str | None:
    """Of a database for a module of tests, empty at first; None for that in the data folder."""
    if request.param == "in_file":
        return None
    server: Postgresql = request.getfixturevalue("postgresql_server")
    return server.create(f"of {request.module.__name__}", like="empty")


def _empty(database: Database) -> None:
    """As migrations leave it: the first project alone."""
    tables = ", ".join(projects.metadata.tables)
    first = {"id": FIRST_PROJECT, "name": "Videos", "created_at": NOW, "used_bytes": 0}
    with database.write() as connection:
        UNFINISHED.drop(connection, checkfirst=True)
        connection.execute(text(f"TRUNCATE {tables} RESTART IDENTITY"))
        connection.execute(insert(projects).values(first))

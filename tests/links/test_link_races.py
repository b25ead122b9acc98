"""What a link takes is exact, however many send through it at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from app.access.upload_links import LinkTerms
from app.core.access import FIRST_PROJECT, Reach, Scope
from app.core.errors import LinkFull
from app.db.engine import Database
from app.http.services import Services
from app.run.build import build_services
from app.settings import Settings
from app.uploads.service import NewUpload
from tests.acting import acting
from tests.postgresql import ON_BOTH_DATABASES

pytestmark = ON_BOTH_DATABASES

PROCESSES = 4
CLIENTS = 64
LENGTH = 10


@pytest.fixture
def processes(tmp_path: Path, database: Database, address: str) -> Iterator[list[Services]]:
    """As many connections to one database as so many processes have."""
    url = address if database.is_remote else ""
    settings = Settings(
        staging_dir=tmp_path / "s", data_dir=tmp_path / "d", durability="none", database_url=url
    )
    with ExitStack() as stack:
        found = [build_services(settings) for _ in range(PROCESSES)]
        for services in found:
            stack.enter_context(closing(services.database))
            services.prepare()
        yield found


def outcomes(processes: list[Services], link_id: str) -> list[str]:
    """The ids of the uploads that 64 clients get to create."""

    def create(number: int) -> str:
        sender = f"upload_link:{link_id}:{number}"
        scope = Scope(FIRST_PROJECT, sender, Reach.OWN, own=sender)
        new = NewUpload(scope=scope, filename="film.mp4", length=LENGTH)
        try:
            return processes[number % PROCESSES].uploads.create(new)[0].id
        except LinkFull:
            return ""

    with ThreadPoolExecutor(CLIENTS) as threads:
        return [created for created in threads.map(create, range(CLIENTS)) if created]


@pytest.mark.parametrize(
    ("terms", "room"), [(LinkTerms(max_files=10), 10), (LinkTerms(max_bytes=7 * LENGTH + 3), 7)]
)
def test_64_clients_get_no_more_than_there_is(
    processes: list[Services], terms: LinkTerms, room: int
) -> None:
    links, uploads = processes[0].identity.upload_links, processes[0].uploads
    link = links.make(acting(processes[0].context, FIRST_PROJECT), terms)
    created = outcomes(processes, link.id)
    assert len(created) == room
    counted = links.get(FIRST_PROJECT, link.id)
    assert (counted.files, counted.bytes) == (room, room * LENGTH)
    with ThreadPoolExecutor(room) as threads:
        list(threads.map(lambda each: uploads.cancel(Scope(FIRST_PROJECT), each), created))
    counted = links.get(FIRST_PROJECT, link.id)
    assert (counted.files, counted.bytes) == (0, 0)
    assert len(outcomes(processes, link.id)) == room

"""What strangers hold by uploads that they only begin: of quotas, of links and of the disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from app.access.upload_links import LinkTerms, UploadLink
from app.core.access import FIRST_PROJECT, LOCAL, Reach, Role, Scope
from app.core.errors import (
    LinkFull,
    NoRoom,
    QuotaExceeded,
    TooMuchReserved,
    UploadError,
    UploadGone,
)
from app.core.lifecycle import UploadState
from app.core.upload import LEAST_AHEAD_BYTES, Upload, UploadKind, UploadPart
from app.db.engine import Database
from app.http.services import Services
from app.run.build import build_services
from app.settings import Settings
from app.storage.local import folder as local_folder
from app.uploads.service import NewUpload
from tests.access.accounts import bearer, make_key, services_of
from tests.acting import acting
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.uploads.test_cost import Zeros
from tests.waiting import wait_until

MEGABYTE = 1000 * 1000
QUOTA = 100 * MEGABYTE
CLAIM = 90 * MEGABYTE
MEMBER = Scope(FIRST_PROJECT)


@dataclass
class Place:
    """A server's services, over which a stranger and a member send."""

    services: Services

    def link(self, **terms: Any) -> UploadLink:
        links = self.services.identity.upload_links
        return links.make(acting(self.services.context, FIRST_PROJECT), LinkTerms(**terms))

    def counted(self, link: UploadLink) -> tuple[int, int]:
        """The files and bytes that the link has taken."""
        found = self.services.identity.upload_links.get(FIRST_PROJECT, link.id)
        return found.files, found.bytes

    def used(self) -> int:
        """The bytes of the project."""
        return self.services.identity.projects.get(FIRST_PROJECT).used_bytes

    def begin(
        self,
        scope: Scope,
        length: int | None,
        kind: UploadKind = UploadKind.FILE,
        name: str = "a.mp4",
    ) -> Upload:
        new = NewUpload(scope=scope, filename=name, length=length, kind=kind)
        return self.services.uploads.create(new)[0]

    def send(self, upload: Upload, count: int) -> Upload:
        """Send the next bytes."""
        upload = self.services.records.get(upload.id)
        return self.services.chunks.append(upload, upload.offset, Zeros(count))

    def begun(self, link: UploadLink, length: int | None = CLAIM) -> Upload:
        """An upload of a stranger, of whose claim a single byte has come."""
        return self.send(self.begin(stranger(link), length), 1)

    def sweep(self) -> None:
        """Reservations last no time here: what stands still is given back."""
        self.services.housekeeping.give_space_back()


def stranger(link: UploadLink, visitor: str = "visitor") -> Scope:
    sender = f"upload_link:{link.id}:{visitor}"
    return Scope(link.project_id, sender, Reach.OWN, own=sender)


@pytest.fixture
def new_place(tmp_path: Path, database: Database, address: str) -> Iterator[Callable[..., Place]]:
    opened = []

    def new(**options: Any) -> Place:
        settings = Settings(
            staging_dir=tmp_path / "s",
            data_dir=tmp_path / "d",
            durability="none",
            access="accounts",
            reservation_seconds=1e-6,
            database_url=address if database.is_remote else "",
            **options,
        )
        services = build_services(settings)
        opened.append(services)
        services.prepare()
        ctx, limits = services.context.acting(LOCAL), {"quota_bytes": QUOTA}
        services.identity.projects.change(ctx, FIRST_PROJECT, limits=limits)
        return Place(services)

    yield new
    for services in opened:
        services.database.close()


@pytest.fixture
def place(new_place: Callable[..., Place]) -> Place:
    return new_place()


# ---- a byte of a large claim ---------------------------------------------------------------------


def test_a_byte_of_a_large_claim_leaves_the_quota_to_members(place: Place) -> None:
    link = place.link(max_files=2, max_bytes=CLAIM)
    place.begun(link)
    assert place.used() <= 1 + LEAST_AHEAD_BYTES
    assert place.begin(MEMBER, CLAIM).state is UploadState.RECEIVING


def test_a_byte_of_a_large_claim_leaves_the_disk_to_members(place: Place) -> None:
    upload = place.begun(place.link())
    found = (place.services.settings.staging_dir / upload.id).stat()
    assert found.st_blocks * local_folder.BLOCK_BYTES <= MEGABYTE


class Watched(Zeros):
    """A body that notes how much the staging folder holds before its first byte."""

    def __init__(self, length: int, staging: Path) -> None:
        super().__init__(length)
        self._staging = staging
        self.staged_bytes: int | None = None

    def readinto(self, buffer: memoryview, /) -> int | None:
        if self.staged_bytes is None:
            found = [path.stat().st_blocks for path in self._staging.iterdir()]
            self.staged_bytes = sum(found) * local_folder.BLOCK_BYTES
        return super().readinto(buffer)


def test_a_body_of_a_stranger_takes_the_disk_as_it_arrives(place: Place) -> None:
    """Whether it is a form with the whole file, or of an upload without a length."""
    link, staging = place.link(), place.services.settings.staging_dir
    length = 5 * MEGABYTE
    form, chunk = Watched(length, staging), Watched(length, staging)
    file = place.services.whole_files.receive(
        form, scope=stranger(link), filename="a.mp4", room=length
    )
    assert place.services.whole_files.keep(file).state is UploadState.COMPLETE
    place.services.chunks.append_at_offset(place.begin(stranger(link), None), 0, chunk)
    assert (form.staged_bytes, chunk.staged_bytes) == (0, 0)


def test_a_link_is_free_again_once_an_upload_stands_still(place: Place) -> None:
    link = place.link(max_files=1, max_bytes=CLAIM)
    upload = place.begun(link)
    with pytest.raises(LinkFull):
        place.begin(stranger(link, "honest"), 1000)
    place.sweep()
    assert place.counted(link) == (0, 1)
    assert place.used() == 1
    assert place.services.records.get(upload.id).received.total == 1
    assert place.begin(stranger(link, "honest"), CLAIM - 1 - LEAST_AHEAD_BYTES).reserved


def test_an_upload_that_stood_still_goes_on_if_there_is_room(place: Place) -> None:
    link = place.link(max_files=1, max_bytes=3 * MEGABYTE)
    upload = place.begun(link, 3 * MEGABYTE)
    place.sweep()
    place.sweep()
    assert place.send(upload, 2 * MEGABYTE).offset == 2 * MEGABYTE + 1
    assert place.counted(link)[0] == 1
    done = place.send(upload, MEGABYTE - 1)
    assert done.state is UploadState.COMPLETE
    assert place.counted(link) == (1, 3 * MEGABYTE)
    assert place.used() == 3 * MEGABYTE


def test_an_upload_that_stood_still_takes_no_place_by_a_trickle(place: Place) -> None:
    link = place.link(max_files=1, max_bytes=CLAIM)
    upload = place.begun(link)
    place.sweep()
    for _ in range(3):
        place.send(upload, 1)
    assert (place.counted(link), place.used()) == ((0, 4), 4)


def test_an_upload_that_stood_still_keeps_its_bytes_while_another_has_its_place(
    place: Place,
) -> None:
    link = place.link(max_files=1, max_bytes=CLAIM)
    upload = place.begun(link)
    place.sweep()
    other = place.begin(stranger(link, "honest"), 1000)
    with pytest.raises(LinkFull):
        place.send(upload, 1)
    assert place.services.records.get(upload.id).offset == 1
    place.services.uploads.cancel(stranger(link, "honest"), other.id)
    assert place.send(upload, 1).offset == 2


def test_closing_a_link_frees_at_once_what_its_uploads_hold(place: Place) -> None:
    link = place.link()
    upload, part = place.begun(link), place.begin(stranger(link), 1000, UploadKind.PARTIAL)
    place.send(part, 1000)
    done = place.send(place.begin(stranger(link), 10), 10)
    place.services.identity.upload_links.close(place.services.context.acting(LOCAL), link)
    assert place.used() == 10
    assert place.counted(link) == (1, 10)
    assert not list(place.services.settings.staging_dir.glob(upload.id))
    with pytest.raises(UploadGone):
        place.services.uploads.get(stranger(link), upload.id)
    assert place.services.records.get(done.id).state is UploadState.COMPLETE


def test_closing_a_link_leaves_the_parts_of_a_file_that_is_being_put_together(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = place.link()
    sender, services = stranger(link), place.services
    parts = [place.begin(sender, 1000, UploadKind.PARTIAL) for _ in range(2)]
    for part in parts:
        place.send(part, 1000)
    concatenate = services.uploads._store.library.concatenate

    def close_first(key: str, sources: Sequence[tuple[str, int]]) -> None:
        services.identity.upload_links.close(services.context.acting(LOCAL), link)
        concatenate(key, sources)

    monkeypatch.setattr(services.uploads._store.library, "concatenate", close_first)
    whole_kind = UploadKind.CONCATENATION
    new = NewUpload(scope=sender, filename="a.mp4", length=None, kind=whole_kind)
    whole = services.uploads.concatenate(new, [UploadPart(part.id, part.id) for part in parts])
    assert (whole.state, whole.length) == (UploadState.COMPLETE, 2000)
    assert [services.records.get(part.id).state for part in parts] == [UploadState.EXPIRED] * 2
    assert (place.counted(link), place.used()) == ((1, 2000), 2000)


def test_nothing_begins_through_a_link_that_was_closed_meanwhile(place: Place) -> None:
    """The link was read before it was closed: the count itself refuses."""
    link = place.link()
    upload = place.begun(link)
    place.services.identity.upload_links.close(place.services.context.acting(LOCAL), link)
    with pytest.raises(UploadError):
        place.begin(stranger(link), 10)
    with pytest.raises(UploadGone):
        place.send(upload, 1)


# ---- what cannot fit -----------------------------------------------------------------------------


def test_a_claim_that_can_never_fit_is_refused_at_once(place: Place) -> None:
    link = place.link(max_bytes=CLAIM)
    place.begin(MEMBER, 5 * MEGABYTE)
    with pytest.raises(LinkFull):
        place.begin(stranger(link), CLAIM + 1)
    with pytest.raises(QuotaExceeded):
        place.begin(stranger(place.link()), QUOTA - 4 * MEGABYTE)
    assert place.counted(link) == (0, 0)
    assert place.used() == 5 * MEGABYTE


def test_a_claim_longer_than_the_free_disk_is_refused_at_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_folder, "KEPT_FREE_BYTES", 1 << 62)
    link = place.link()
    with pytest.raises(NoRoom):
        place.begin(stranger(link), 1000)
    assert place.counted(link) == (0, 0)


def test_bytes_without_room_are_refused_as_they_come_and_what_came_is_kept(place: Place) -> None:
    link = place.link()
    upload = place.send(place.begin(stranger(link), CLAIM), 5 * MEGABYTE)
    place.begin(MEMBER, QUOTA - place.used())
    for _ in range(2):
        with pytest.raises(QuotaExceeded):
            place.send(upload, 20 * MEGABYTE)
    kept = place.services.records.get(upload.id)
    assert kept.offset >= 5 * MEGABYTE
    assert place.used() <= QUOTA


def test_all_that_is_left_can_be_used(place: Place) -> None:
    link = place.link(max_files=1, max_bytes=CLAIM)
    upload = place.begin(stranger(link), CLAIM)
    place.begin(MEMBER, QUOTA - CLAIM)
    while upload.state is UploadState.RECEIVING:
        upload = place.send(upload, 10 * MEGABYTE)
    assert (place.counted(link), place.used()) == ((1, CLAIM), QUOTA)


def test_uploads_of_unknown_length_hold_what_has_come(place: Place) -> None:
    link = place.link(max_files=1)
    upload = place.begun(link, None)
    assert 1 <= place.used() <= 1 + LEAST_AHEAD_BYTES
    place.sweep()
    assert place.counted(link) == (0, 1)
    upload = place.send(upload, 2 * MEGABYTE)
    place.services.chunks.declare_length(upload, upload.offset)
    assert place.counted(link) == (1, 2 * MEGABYTE + 1)
    assert place.used() == 2 * MEGABYTE + 1


def test_uploads_of_unknown_length_without_a_byte_expire_with_their_reservation(
    place: Place,
) -> None:
    link = place.link(max_files=1)
    upload = place.begin(stranger(link), None)
    place.sweep()
    assert place.services.records.get(upload.id).state is UploadState.EXPIRED
    assert place.counted(link) == (0, 0)


def test_strangers_together_hold_no_more_than_the_operator_allows(
    new_place: Callable[..., Place],
) -> None:
    place = new_place(max_reserved_bytes_per_link=2 * MEGABYTE)
    *others, last = [place.link() for _ in range(6)]
    with pytest.raises(TooMuchReserved, match="this link"):
        place.begin(stranger(last), 2 * MEGABYTE + 1)
    for link in others:
        place.send(place.begin(stranger(link), 2 * MEGABYTE), MEGABYTE)
    with pytest.raises(TooMuchReserved, match="all upload links"):
        place.begin(stranger(last), MEGABYTE)
    assert place.begin(MEMBER, CLAIM).state is UploadState.RECEIVING


# ---- parts ---------------------------------------------------------------------------------------


def test_parts_that_are_never_put_together_leave_the_link_to_others(place: Place) -> None:
    link = place.link(max_files=1, max_bytes=10 * MEGABYTE)
    for _ in range(10):
        place.send(place.begin(stranger(link), MEGABYTE, UploadKind.PARTIAL), 1)
    assert place.counted(link) == (0, 0)
    done = place.send(place.begin(stranger(link, "honest"), 10 * MEGABYTE), 10 * MEGABYTE)
    assert done.state is UploadState.COMPLETE


def test_a_file_made_of_parts_counts_when_they_are_put_together(place: Place) -> None:
    link = place.link(max_files=1, max_bytes=2000)
    parts = [
        place.send(place.begin(stranger(link), 1000, UploadKind.PARTIAL), 1000) for _ in range(2)
    ]
    assert place.counted(link) == (0, 0)
    new = NewUpload(scope=stranger(link), filename="a.mp4", length=None)
    whole = place.services.uploads.concatenate(new, [UploadPart(p.id, p.id) for p in parts])
    assert whole.state is UploadState.COMPLETE
    assert (place.counted(link), place.used()) == ((1, 2000), 2000)


def test_a_file_of_parts_that_are_missing_holds_no_place(place: Place) -> None:
    link = place.link(max_files=1)
    part = place.begin(stranger(link), 1000, UploadKind.PARTIAL)
    new = NewUpload(scope=stranger(link), filename="a.mp4", length=None)
    whole = place.services.uploads.concatenate(new, [UploadPart(part.id, part.id)])
    assert whole.state is UploadState.RECEIVING
    assert place.counted(link) == (0, 0)
    honest = place.send(place.begin(stranger(link, "honest"), 10), 10)
    assert honest.state is UploadState.COMPLETE
    place.send(part, 1000)
    with pytest.raises(LinkFull):
        place.services.uploads.concatenate(new, [UploadPart(part.id, part.id)])
    assert place.counted(link) == (1, 10)


def test_reservations_and_the_count_of_a_project_agree(place: Place) -> None:
    link = place.link()
    place.begun(link)
    place.begun(link, None)
    place.send(place.begin(stranger(link), 1000, UploadKind.PARTIAL), 1000)
    place.begin(MEMBER, 1000)
    assert place.services.quotas.recount() == {}
    place.sweep()
    assert place.services.quotas.recount() == {}


# ---- a real server -------------------------------------------------------------------------------


@pytest.mark.e2e
def test_a_stranger_who_sends_one_byte_keeps_nobody_out(tmp_path: Path) -> None:
    options = {
        "SLUICE_ACCESS": "accounts",
        "SLUICE_PROJECT_QUOTA_BYTES": "0",
        "SLUICE_TEST_CONSTANTS": "reservation_seconds=3 sweep_seconds=1",
        **NO_FFMPEG,
    }
    with running_server(tmp_path, **options) as server:
        administrator = bearer(make_key(server, Role.EDITOR))
        set_quota(server)
        link = server.post(
            "/api/upload-links",
            json={"max_files": 1, "max_bytes": CLAIM},
            headers=administrator,
        ).json()
        tus = {"Tus-Resumable": "1.0.0"}
        created = requests.post(
            f"{link['url']}/tus/", headers={**tus, "Upload-Length": str(CLAIM)}, timeout=60
        )
        url = created.headers["Location"]
        chunk = {**tus, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
        assert requests.patch(url, headers=chunk, data=b"x", timeout=60).status_code == 204

        def member_begins() -> requests.Response:
            claim = {"name": os.urandom(4).hex() + ".mp4", "size": CLAIM}
            return server.post("/api/uploads", json=claim, headers=administrator)

        def counted() -> tuple[int, int]:
            found = server.get(f"/api/upload-links/{link['id']}", headers=administrator).json()
            return found["files"], found["bytes"]

        first = member_begins()
        assert first.status_code == 201, "at once"
        server.delete(f"/api/uploads/{first.json()['id']}", headers=administrator)
        wait_until(lambda: counted() == (0, 1), "the link is free again")
        assert requests.head(url, headers=tus, timeout=60).headers["Upload-Offset"] == "1"
        closed = server.delete(f"/api/upload-links/{link['id']}", headers=administrator)
        assert (closed.status_code, counted()) == (204, (0, 0))
        assert not list(server.staging.glob(url.rsplit("/", 1)[1]))


def set_quota(server: Server) -> None:
    """A quota of the project in which everybody here is."""
    with services_of(server) as services:
        ctx, limits = services.context.acting(LOCAL), {"quota_bytes": QUOTA}
        services.identity.projects.change(ctx, FIRST_PROJECT, limits=limits)

"""A film that came to one node is processed by a second, and watched from any of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from app.db.job_worker import JobWorker
from app.http import context
from app.run.admin.commands import operator_app
from app.video.make.work import MediaWork
from tests.live_server import leave_measurement
from tests.postgresql import postgresql
from tests.s3_servers import S3Server, new_prefix
from tests.site import Site, new_site
from tests.video.films import FilmStore
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

SETTLED = {"ready", "unplayable"}
SPOOL_BYTES = 64 << 20


@dataclass
class Node:
    """One of the servers, in this process."""

    site: Site

    @property
    def client(self) -> FlaskClient:
        """What sends it requests."""
        return self.site.app.test_client()

    @contextmanager
    def working(self, name: str) -> Iterator[None]:
        """Let its background worker run."""
        services = self.site.services.media
        media = MediaWork(services).jobs(name=name, tell=lambda *_: None)
        worker = JobWorker(
            jobs=services.jobs,
            kinds=media.kinds(),
            looks=[media.look],
            on_change=media.look_at_arrivals,
            wakeup=services.wakeup,
            name=name,
            clock=services.clock,
        )
        worker.start()
        try:
            yield
        finally:
            worker.stop(60)

    def upload(self, path: Path) -> str:
        """The id of a new film."""
        with path.open("rb") as file:
            answer = self.client.post("/upload", data={"file": (file, path.name)})
        assert answer.status_code == 200, answer.text
        return str(answer.json["id"]) if answer.json else ""

    def playback(self, film: str) -> dict[str, Any]:
        """What it says of a film."""
        answer = self.client.get(f"/api/videos/{film}").json
        assert answer is not None
        playback: dict[str, Any] = answer["playback"]
        return playback

    def get(self, path: str, **headers: str) -> bytes:
        """The body of an answer."""
        with self.client.get(path, headers=headers) as answer:
            assert answer.status_code in {200, 206}, (path, answer.status_code, answer.data)
            return bytes(answer.data)

    def has(self, path: str) -> bool:
        """Whether it has that by now; as long as it is being made, players ask again."""
        with self.client.get(path) as answer:
            return answer.status_code == 200


@pytest.fixture(scope="module")
def nodes(
    versitygw: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Node, Node, Node]]:
    """Three nodes; only the second has a background worker."""
    access = versitygw.access
    with ExitStack() as stack:
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        patched.setenv("AWS_ACCESS_KEY_ID", access.key)
        patched.setenv("AWS_SECRET_ACCESS_KEY", access.secret)
        shared = {
            "database_url": stack.enter_context(postgresql()).create("films"),
            "storage": f"s3://{access.bucket}/{new_prefix()}",
            "s3_endpoint": access.endpoint,
            "s3_region": access.region,
            "access": "open",
            "spool_bytes": SPOOL_BYTES,
        }
        made = []
        for name in "abc":
            folder = tmp_path_factory.mktemp(f"node-{name}")
            leave_measurement(folder / "data")
            made.append(Node(stack.enter_context(new_site(folder, **shared))))
        stack.enter_context(made[1].working("b"))
        first, second, third = made
        yield first, second, third


def settled(node: Node, film: str) -> dict[str, Any]:
    """What is said of a film once nothing more is made of it."""
    wait_until(lambda: node.playback(film)["state"] in SETTLED, "the film is made")
    return node.playback(film)


def test_what_one_node_makes_of_a_film_is_watched_from_all(
    nodes: tuple[Node, Node, Node], film: FilmStore
) -> None:
    first, _, third = nodes
    original = film("h264.mp4").read_bytes()
    made = first.upload(film("h264.mp4"))
    assert settled(first, made) == settled(third, made)
    for path in ("", "/play.mp4", "/poster.jpg", "/sprite.jpg", "/thumbs.vtt"):
        assert first.get(f"/media/{made}{path}") == third.get(f"/media/{made}{path}"), path
    assert first.get(f"/media/{made}") == original
    whole = third.get(f"/media/{made}/play.mp4")
    for span in ((0, 10), (100, 5000), (len(whole) - 70_000, len(whole))):
        part = third.get(f"/media/{made}/play.mp4", Range=f"bytes={span[0]}-{span[1] - 1}")
        assert part == whole[slice(*span)]


def test_segments_are_cut_from_the_bucket_and_other_qualities_made_by_another_node(
    nodes: tuple[Node, Node, Node], film: FilmStore
) -> None:
    first, second, third = nodes
    made = first.upload(film("av1.mp4"))
    settled(third, made)
    hls = f"/media/{made}/hls"
    assert "360/index.m3u8" in third.get(f"{hls}/master.m3u8").decode()
    for node in (third, first, second):
        assert node.get(f"{hls}/source/init.mp4") == third.get(f"{hls}/source/init.mp4")
        assert node.get(f"{hls}/source/1.m4s") == third.get(f"{hls}/source/1.m4s")
    wait_until(lambda: third.has(f"{hls}/360/1.m4s"), "the other quality is made")
    rendition = third.get(f"{hls}/360/init.mp4"), third.get(f"{hls}/360/1.m4s")
    assert (first.get(f"{hls}/360/init.mp4"), first.get(f"{hls}/360/1.m4s")) == rendition


def test_a_film_that_is_remuxed_is_watched_from_the_bucket(
    nodes: tuple[Node, Node, Node], film: FilmStore
) -> None:
    first, _, third = nodes
    made = first.upload(film("h264.flv"))
    playback = settled(third, made)
    assert (playback["state"], playback["problem"]) == ("ready", None)
    assert third.get(f"/media/{made}/play.mp4")[4:8] == b"ftyp"


def test_what_somebody_has_removed_from_the_bucket_is_made_again(
    nodes: tuple[Node, Node, Node], film: FilmStore
) -> None:
    first, second, third = nodes
    made = first.upload(film("h264.flv"))
    settled(third, made)
    services = second.site.services
    assert services.bucket is not None
    objects = [each.name for each in services.bucket.list_objects(f"media/{made}/")]
    services.bucket.delete(*(name for name in objects if "/hls/source/" in name))
    app = operator_app()
    context.init_app(app, services)
    command = app.test_cli_runner()
    assert command.invoke(args=["storage", "reconcile"]).exit_code == 1
    assert command.invoke(args=["storage", "reconcile", "--remove"]).exit_code == 0
    wait_until(lambda: third.has(f"/media/{made}/hls/source/1.m4s"), "its segments are there again")
    assert command.invoke(args=["storage", "reconcile"]).exit_code == 0

"""A film is sent over a slow line, and somebody else watches it meanwhile in another browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.films import encode, index_last, repeat, sha256_of
from tests.browser.stored import digests_of, open_uploads_of
from tests.browser.upload_page import MIB, UploadPage
from tests.live_server import Server, running_server

pytestmark = pytest.mark.browser

FILM_SECONDS, PART_SECONDS = 20, 4
HEAD_START = 0.6
"""How much of the film has arrived, at least, when the visitor begins to watch: three parts of
five. So a part may come ten seconds after its bytes, as it may on a busy machine."""

BYTES_PER_SECOND, TRICKLE_BYTES_PER_SECOND = 300_000, 5_000
"""Of the line, and until the film plays; the film has 230 000. More has arrived than the server has
recorded: 64 % became 78 % at once in a trial. Even after 85 %, the rest takes longer than
`PATIENCE_MS`. Each of three chunks that are sent side by side gets more than the 1024 bytes per
second that the server demands."""

PATIENCE_MS = 120_000

WATCH = """(video) => {
    const notes = (globalThis.notes = []);
    const ahead = () => {
        const { buffered, currentTime } = video;
        for (let n = 0; n < buffered.length; n += 1) {
            if (buffered.start(n) <= currentTime) return buffered.end(n) - currentTime;
        }
        return 0;
    };
    video.addEventListener("waiting", () => notes.push(["waiting", video.currentTime, ahead()]));
    video.addEventListener("ended", () => notes.push(["ended", video.currentTime, 0]));
}"""
"""Notes each time that the player runs out, and how many seconds it still had."""

A_FRAME_SECONDS = 0.3
"""A browser on a busy machine also waits for its decoder: that is no stall of the line."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that examines films, with small chunks."""
    folder = tmp_path_factory.mktemp("pages")
    with running_server(folder, SLUICE_CHUNK_BYTES=str(MIB)) as running:
        yield running


@pytest.fixture
def camera_film(tmp_path: Path) -> Path:
    part, whole, path = (tmp_path / f"{name}.mp4" for name in ("part", "whole", "camera"))
    encode(part, size="320x180", seconds=PART_SECONDS, bits_per_second="1500k")
    repeat(part, whole, FILM_SECONDS // PART_SECONDS - 1)
    index_last(whole, path)
    return path


@pytest.fixture
def visitor(firefox: Browser) -> Iterator[Page]:
    """Somebody else, in another browser."""
    context = firefox.new_context()
    yield context.new_page()
    context.close()


@pytest.mark.long
def test_a_visitor_watches_a_film_while_it_arrives_without_a_stall(
    site: Server, open_page: Callable[..., UploadPage], visitor: Page, camera_film: Path
) -> None:
    visitor.goto(site.url)
    page = open_page(site)
    page.throttle(BYTES_PER_SECOND)
    page.choose(camera_film)
    enough = HEAD_START * camera_film.stat().st_size
    page.wait_until(lambda: bytes_of_upload(site) >= enough, "the head start has arrived")
    page.throttle(TRICKLE_BYTES_PER_SECOND)
    page.wait_until(lambda: can_be_played(site), "the film can be played")
    visitor.get_by_role("button", name="Watch camera.mp4").click(timeout=PATIENCE_MS)
    video = visitor.locator("media-controller > video")
    expect(video).to_be_attached()
    handle = video.element_handle()
    visitor.wait_for_function("(video) => video.currentTime > 0", arg=handle, timeout=PATIENCE_MS)
    video.evaluate(WATCH)
    assert len(open_uploads_of(site)) == 1
    page.throttle(BYTES_PER_SECOND)
    visitor.wait_for_function("(video) => video.ended", arg=handle, timeout=PATIENCE_MS)
    notes = visitor.evaluate("notes")
    stalls = [note for note in notes if note[0] == "waiting" and note[2] < A_FRAME_SECONDS]
    assert stalls == []
    assert notes[-1][1] == pytest.approx(FILM_SECONDS, abs=0.2)
    page.wait_for_success(camera_film)
    assert digests_of(site) == {"camera.mp4": sha256_of(camera_film)}


def can_be_played(site: Server) -> bool:
    """Whether the server offers the film that arrives."""
    uploads = open_uploads_of(site)
    assert uploads, "the whole film arrived before anybody could watch it"
    playable = uploads[0]["playback"] and uploads[0]["playback"]["playable"]
    return bool(playable and playable["hls"])


def bytes_of_upload(site: Server) -> int:
    """How many bytes of the only upload have arrived."""
    return sum(end - start for upload in open_uploads_of(site) for start, end in upload["received"])

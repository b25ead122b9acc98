"""Pages of videos: each video once, newest first, for any page size; cursors are checked."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.errors import InvalidRequest
from tests.uploads.world import ME, World

steps = st.lists(st.integers(0, 3), max_size=12)
numbers = st.text("0123456789+-_ ٣e", max_size=25)
cursors = st.text(max_size=40) | st.tuples(numbers, st.just("." + "0" * 32)).map("".join)


@settings(max_examples=40)
@given(steps, st.integers(1, 5))
def test_pages_of_any_size_show_every_video_once(seconds: list[int], limit: int) -> None:
    with TemporaryDirectory() as folder:
        world = World(Path(folder))
        published = []
        for step in seconds:
            world.later(seconds=step)
            published.append(world.completed(1))
        seen, cursor = [], None
        for _ in range(len(published) + 1):
            page = world.library.page(ME, limit=limit, cursor=cursor)
            seen += page.videos
            if (cursor := page.next_cursor) is None:
                break
        order = sorted(published, key=lambda video: (video.published_at, video.id), reverse=True)
        assert cursor is None
        assert [video.id for video in seen] == [video.id for video in order]


@given(cursors)
def test_a_forged_cursor_is_refused_or_yields_a_page(text: str) -> None:
    with TemporaryDirectory() as folder:
        world = World(Path(folder))
        try:
            page = world.library.page(ME, limit=5, cursor=text)
        except InvalidRequest:
            return
        assert (page.videos, page.next_cursor) == ([], None)

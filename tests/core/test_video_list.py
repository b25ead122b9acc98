"""Searching and sorting by name, and the cursors of lists."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import InvalidRequest
from app.core.video_list import (
    MAX_CURSOR_CHARACTERS,
    MAX_SEARCH_CHARACTERS,
    VideoList,
    VideoOrder,
    sort_form,
)
from tests.records.making import at, new_upload

names = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=1024)


def test_names_with_numbers_sort_naturally() -> None:
    names = ["Clip 1", "clip 2", "clip 02b", "clip 10", "Ärger", "zoo", "𝟣𝟤", "9"]
    in_order = ["9", "𝟣𝟤", "Ärger", "Clip 1", "clip 2", "clip 02b", "clip 10", "zoo"]
    assert sorted(names, key=sort_form) == in_order


@pytest.mark.parametrize("search", ["a\x00b", "\ud800", "x" * (MAX_SEARCH_CHARACTERS + 1)])
def test_a_search_that_no_name_can_match_is_refused(search: str) -> None:
    with pytest.raises(InvalidRequest):
        VideoList.parse(search, "newest")


@pytest.mark.parametrize("order", ["", "Newest", "newest ", "published_at", "--name", "id; DROP"])
def test_an_unknown_order_is_refused(order: str) -> None:
    with pytest.raises(InvalidRequest, match="newest, oldest, name, -name, size, -size"):
        VideoList.parse("", order)


def test_extra_spaces_and_repeated_words_do_not_narrow_a_search() -> None:
    assert VideoList.parse(" A\u3000b \t a ", "name") == VideoList(("a", "b"), VideoOrder.NAME)


@given(name=names, order=st.sampled_from(VideoOrder), length=st.integers(0, 10**18 - 1))
def test_a_cursor_restores_its_position(name: str, order: VideoOrder, length: int) -> None:
    video = replace(new_upload(1, length=length), filename=name, published_at=at(3))
    wanted = VideoList.parse("film", order)
    cursor = wanted.cursor_after(video)
    assert len(cursor) <= MAX_CURSOR_CHARACTERS
    assert wanted.parse_cursor(cursor) == order.position(video)


@given(name=names)
def test_a_name_is_found_by_any_part_of_it(name: str) -> None:
    wanted = VideoList.parse(name[-MAX_SEARCH_CHARACTERS:], "newest")
    assert wanted.has(name)
    assert wanted.has(name.casefold())


@pytest.mark.parametrize("other", [("film", "oldest"), ("", "newest"), ("film 2", "newest")])
def test_a_cursor_of_another_list_is_refused(other: tuple[str, str]) -> None:
    video = replace(new_upload(1), published_at=at(3))
    cursor = VideoList.parse("film", "newest").cursor_after(video)
    assert VideoList.parse(" FILM", "newest").parse_cursor(cursor).upload_id == video.id
    with pytest.raises(InvalidRequest, match="another search or order"):
        VideoList.parse(*other).parse_cursor(cursor)


@pytest.mark.parametrize(
    ("order", "key"),
    [
        *[("newest", key) for key in ("", "x", "-5", "٣", "1.5", "9" * 18, "9" * 5000, "5\n")],
        *[("-size", key) for key in ("", "x", "-5", "٣", "1.5", "9" * 19, "5\n")],
        *[("name", key) for key in ("=", "A", "a b", "é", "Y" * 5000)],
    ],
)
def test_a_forged_cursor_is_refused(order: str, key: str) -> None:
    wanted = VideoList.parse("", order)
    binding = wanted.cursor_after(replace(new_upload(1), published_at=at(3))).split(".")[0]
    with pytest.raises(InvalidRequest):
        wanted.parse_cursor(f"{binding}.{key}.{'0' * 32}")

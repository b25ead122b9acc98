"""The tree as drawn in the module is the tree of the classes."""

import re
from collections.abc import Iterator

import pytest

from app.core import errors
from app.core.errors import UploadError

DRAWN = re.compile(r"^ {4}((?:\|   |    )*)(?:[|`]-- )?([A-Z]\w+)(?: +(\d{3}))?( +retryable)?$")


def descendants(cls: type[UploadError]) -> Iterator[type[UploadError]]:
    for child in cls.__subclasses__():
        yield child
        yield from descendants(child)


CLASSES = sorted(
    {cls for cls in descendants(UploadError) if cls.__module__.startswith(errors.__name__)},
    key=lambda cls: cls.__name__,
)


def drawn_tree() -> dict[str, tuple[str, int, bool]]:
    """Name to parent, status and whether it may be retried, as the drawing has them."""
    tree: dict[str, tuple[str, int, bool]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = DRAWN.match(line)
        if match is None:
            continue
        if match[3] is None:
            path = [match[2]]
            continue
        depth = len(match[1]) // 4 + 1
        path = [*path[:depth], match[2]]
        tree[match[2]] = (path[depth - 1], int(match[3]), match[4] is not None)
    return tree


def test_the_drawing_agrees_with_the_classes() -> None:
    actual = {
        cls.__name__: (cls.__bases__[0].__name__, cls.status_hint, cls.retryable) for cls in CLASSES
    }
    assert len(actual) > 10
    assert drawn_tree() == actual


@pytest.mark.parametrize("cls", CLASSES)
def test_each_error_has_a_slug_a_title_and_an_error_status(cls: type[UploadError]) -> None:
    assert "code" in vars(cls), "a code of its own"
    assert "title" in vars(cls), "a title of its own"
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", cls.code)
    assert cls.title
    assert 400 <= cls.status_hint <= 599
    assert str(cls("What happened.")) == "What happened."


def test_codes_and_titles_are_unique() -> None:
    assert len({cls.code for cls in CLASSES}) == len(CLASSES)
    assert len({cls.title for cls in CLASSES}) == len(CLASSES)

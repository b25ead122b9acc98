"""The settings table of the docs matches the code."""

import re

from app.settings.environment import variables
from app.settings.removed import REMOVED
from tests.architecture.sources import ROOT

ROW = re.compile(r"^\| *`(SLUICE_[A-Z0-9_]+)` *\| *([^|]*?) *\|", re.MULTILINE)
CLIENT_VARIABLES = {"SLUICE_URL"}


DOCS = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
NOW, _, EARLIER = DOCS.partition("## Settings of earlier versions")


def documented() -> dict[str, str]:
    """Defaults by variable, from the rows ``| `SLUICE_PORT` | `8000` | meaning |`` of the docs."""
    rows = {name: default.strip("`") for name, default in ROW.findall(NOW)}
    return {name: rows[name] for name in rows.keys() - CLIENT_VARIABLES}


def declared() -> dict[str, str]:
    """Defaults by variable, from the code; an empty default is written as `empty`."""
    return {name: item.metadata["default"] or "empty" for name, item in variables().items()}


def test_docs_have_every_setting_with_its_default() -> None:
    assert documented() == declared()


def test_every_setting_has_a_line_of_help() -> None:
    assert [name for name, item in variables().items() if not item.metadata["help"]] == []


def test_there_are_few_settings() -> None:
    assert len(variables()) <= 48


def test_docs_and_changelog_name_every_removed_setting() -> None:
    assert {name for name, _ in ROW.findall(EARLIER)} == set(REMOVED)
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert [name for name in REMOVED if f"`{name}`" not in changes] == []


def test_what_replaces_a_removed_setting_is_one() -> None:
    named = re.findall("SLUICE_[A-Z_]+", " ".join(removed.instead for removed in REMOVED.values()))
    assert set(named) <= variables().keys()
    assert variables().keys().isdisjoint(REMOVED)

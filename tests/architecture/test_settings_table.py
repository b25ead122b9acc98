"""The settings table of the docs matches the code."""

import re
from dataclasses import fields

from app.settings import PREFIX, Settings
from tests.architecture.sources import ROOT

ROW = re.compile(r"^\| *`(SLUICE_[A-Z0-9_]+)` *\| *([^|]*?) *\|", re.MULTILINE)
CLIENT_VARIABLES = {"SLUICE_URL"}


def documented() -> dict[str, str]:
    """Defaults by variable, from the rows ``| `SLUICE_PORT` | `8000` | meaning |`` of the docs."""
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = {name: default.strip("`") for name, default in ROW.findall(text)}
    return {name: rows[name] for name in rows.keys() - CLIENT_VARIABLES}


def declared() -> dict[str, str]:
    """Defaults by variable, from the code; an empty default is written as `empty`."""
    return {
        PREFIX + item.name.upper(): item.metadata["default"] or "empty" for item in fields(Settings)
    }


def test_docs_have_every_setting_with_its_default() -> None:
    assert documented() == declared()


def test_every_setting_has_a_line_of_help() -> None:
    assert [item.name for item in fields(Settings) if not item.metadata["help"]] == []

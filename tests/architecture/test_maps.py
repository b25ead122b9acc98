"""The maps for newcomers name every package of the tree, and no other."""

import ast
import re

from tests.architecture.sources import ROOT

APP = ROOT / "app"


def rooms() -> set[str]:
    """Packages and modules directly below `app`."""
    packages = {path.parent.name for path in APP.glob("*/__init__.py")}
    return packages | {path.stem for path in APP.glob("*.py")} - {"__init__"}


def test_the_map_in_the_package_names_every_room() -> None:
    docstring = ast.get_docstring(ast.parse((APP / "__init__.py").read_text(encoding="utf-8")))
    rows = re.findall(r"^    (\w+(?:, \w+)*)  ", docstring or "", re.MULTILINE)
    assert {name for row in rows for name in row.split(", ")} == rooms()


def test_the_map_for_contributors_names_every_room() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = "\n".join(line for line in text.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`app/(\w+)(?:\.py)?`", table)) == rooms()


def test_every_package_says_what_it_is_for() -> None:
    packages = [*APP.glob("*/__init__.py"), *APP.glob("*/*/__init__.py")]
    docstrings = [ast.get_docstring(ast.parse(path.read_text("utf-8"))) for path in packages]
    assert [path for path, text in zip(packages, docstrings, strict=True) if not text] == []

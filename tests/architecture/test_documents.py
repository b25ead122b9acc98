"""Links of the documents lead somewhere, and the README stays short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("deploy/*.md"),
        ROOT / "bench/RESULTS.md",
        ROOT / "client/README.md",
    ]
)
MAX_README_LINES = 160

LINK = re.compile(r'\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"')
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def text_of(document: Path) -> str:
    """The text of a document without its code blocks."""
    return CODE.sub("", document.read_text(encoding="utf-8"))


def anchors(document: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    headings = (heading.lower().replace(" ", "-") for heading in HEADING.findall(text_of(document)))
    return {re.sub(r"[^\w-]", "", heading) for heading in headings}


def is_broken(document: Path, link: str) -> bool:
    """Whether a relative link leads to no file, or to no heading of it."""
    if "://" in link:
        return False
    name, _, anchor = link.partition("#")
    target = document.parent / name if name else document
    return not target.exists() or bool(anchor and anchor not in anchors(target))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_heading(document: Path) -> None:
    links = [first or second for first, second in LINK.findall(text_of(document))]
    assert [link for link in links if is_broken(document, link)] == []


def test_the_index_of_the_docs_names_each_of_them() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    names = {path.name for path in ROOT.glob("docs/*.md")} - {"README.md"}
    assert {name for name in names if f"]({name})" not in index} == set()


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_README_LINES

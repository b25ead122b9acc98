"""`python -m tests.conformance.table`: run the cases against each server, rewrite the table.

The table stands between markers in docs/protocols.md. Peers are built beforehand, by `scripts/peers
NAME`; one that is not there is an error, so that no column gets lost.
"""

from __future__ import annotations

import tempfile
import textwrap
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.conformance.differences import DIFFERENCES
from tests.conformance.peers import PEERS
from tests.conformance.results import Outcome, Result, groups, run, tally
from tests.live_server import ROOT

DOCUMENT = ROOT / "docs" / "protocols.md"
LINE_LENGTH = 120
BEGIN, END = "<!-- conformance -->", "<!-- /conformance -->"

Columns = Mapping[str, Sequence[Result]]


def main() -> None:
    """Run everything; takes some minutes."""
    columns: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        columns[f"Sluice {own_version()}"] = run(None, folder)
        for peer in PEERS:
            uploads = folder / peer.name
            uploads.mkdir()
            with peer.start(uploads) as addresses:
                columns[f"{peer.name} {peer.version}"] = run(addresses, folder)
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(put(text, render(columns, groups())), encoding="utf-8")
    for column, results in columns.items():
        print(f"{column}: {tally(results)}")


def own_version() -> str:
    """The version in pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        version: str = tomllib.load(file)["project"]["version"]
    return version


def render(columns: Columns, titles: Mapping[str, str]) -> str:
    """The table, followed by the cases that servers fail."""
    lines = [row(["cases", *columns]), row(["---"] * (len(columns) + 1))]
    for module, title in titles.items():
        cells = [tally(of_module(results, module)) for results in columns.values()]
        lines.append(row([title, *cells]))
    lines.append(row(["all", *(tally(of_titles(r, titles)) for r in columns.values())]))
    for column, results in columns.items():
        lines += differences(column, of_titles(results, titles), titles)
    return "\n".join(lines)


def row(cells: Iterable[str]) -> str:
    """One row of a table."""
    return "| " + " | ".join(cells) + " |"


def of_module(results: Iterable[Result], module: str) -> list[Result]:
    """The results of one module."""
    return [result for result in results if result.module == module]


def of_titles(results: Iterable[Result], titles: Mapping[str, str]) -> list[Result]:
    """The results of the modules in the table, in its order."""
    order = list(titles)
    shown = [result for result in results if result.module in titles]
    return sorted(shown, key=lambda result: order.index(result.module))


def differences(column: str, results: Sequence[Result], titles: Mapping[str, str]) -> list[str]:
    """The tests that a server fails, with the known reasons."""
    failed = [result for result in results if result.outcome is Outcome.FAILED]
    if not failed:
        return []
    remarks = DIFFERENCES.get(column.partition(" ")[0], {})
    lines = ["", f"{column} fails:", ""]
    for module, test in dict.fromkeys((result.module, result.test) for result in failed):
        cases = [result for result in of_module(results, module) if result.test == test]
        remark = remarks.get(test)
        line = f"- {titles[module]}: {count(cases)}" + (f". {remark}" if remark else "")
        lines += textwrap.wrap(line, LINE_LENGTH, subsequent_indent="  ", break_on_hyphens=False)
    return lines


def count(cases: Sequence[Result]) -> str:
    """The sentence of a test; if it has several cases, how many of them failed."""
    sentence = cases[0].sentence
    failed = sum(case.outcome is Outcome.FAILED for case in cases)
    asked = sum(case.outcome in {Outcome.FAILED, Outcome.PASSED} for case in cases)
    return sentence if asked == 1 else f"{sentence} ({failed} of {asked})"


def put(text: str, table: str) -> str:
    """`text` with the table between its markers; raises `ValueError` if they are missing."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document has no {BEGIN} ... {END}")
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"


if __name__ == "__main__":
    main()

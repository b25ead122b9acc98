"""What a run of the cases against one server showed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree

from tests.conformance.peers import Addresses
from tests.live_server import ROOT

HERE = Path(__file__).parent
NOT_ANNOUNCED = "not announced"
EXPECTED_FAILURE = "pytest.xfail"
"""How a report marks a case that fails on purpose."""


class Outcome(StrEnum):
    """How a case ended, in the words of the table."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_ANNOUNCED = "not announced"
    NOT_ASKED = "not asked"


@dataclass(frozen=True)
class Result:
    """One case: its module, test, parameters and outcome."""

    module: str
    test: str
    parameters: str
    outcome: Outcome

    @property
    def sentence(self) -> str:
        """The test's name as a sentence."""
        return self.test.removeprefix("test_").replace("_", " ")


def run(addresses: Addresses | None, folder: Path) -> list[Result]:
    """The results of all cases against a server, by default ours; raises `RuntimeError`."""
    report = folder / "results.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(HERE),
        "-q",
        "-m",
        "e2e",
        "-p",
        "no:cacheprovider",
    ]
    command += [f"--junitxml={report}", f"--basetemp={folder / 'pytest'}"]
    if addresses is not None:
        options = {"--url": addresses.tus, "--resumable-url": addresses.draft}
        command += [f"{name}={url}" for name, url in options.items() if url is not None]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if finished.returncode not in {0, 1}:
        raise RuntimeError(finished.stdout + finished.stderr)
    results = read(report.read_text(encoding="utf-8"))
    if not any(result.outcome is Outcome.PASSED for result in results):
        raise RuntimeError(f"no case passes: is there a server?\n{finished.stdout[-2000:]}")
    return results


def read(report: str) -> list[Result]:
    """The results in a report of pytest's (JUnit XML)."""
    results = []
    for case in ElementTree.fromstring(report).iter("testcase"):
        test, _, parameters = case.attrib["name"].partition("[")
        module = case.attrib["classname"].rpartition(".")[2]
        results.append(Result(module, test, parameters.removesuffix("]"), _outcome(case)))
    return results


def _outcome(case: ElementTree.Element) -> Outcome:
    if case.find("failure") is not None or case.find("error") is not None:
        return Outcome.FAILED
    skipped = case.find("skipped")
    if skipped is None:
        return Outcome.PASSED
    if skipped.attrib.get("type") == EXPECTED_FAILURE:
        return Outcome.FAILED
    is_announcement = skipped.attrib.get("message", "").startswith(NOT_ANNOUNCED)
    return Outcome.NOT_ANNOUNCED if is_announcement else Outcome.NOT_ASKED


def tally(results: Iterable[Result]) -> str:
    """The number of cases by outcome, as a cell of the table."""
    counts = Counter(result.outcome for result in results)
    shown = [one for one in Outcome if counts[one] and one is not Outcome.NOT_ASKED]
    if shown == [Outcome.NOT_ANNOUNCED]:
        return NOT_ANNOUNCED
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in shown) or "-"


def groups() -> dict[str, str]:
    """The title of each module of cases, by its name, in the table's order."""
    titles: dict[str, str] = {}
    for kind in ("test_tus_*.py", "test_draft_*.py"):
        found = {path.stem: _title(path) for path in HERE.glob(kind)}
        titles |= dict(sorted(found.items(), key=lambda item: item[1].lower()))
    return titles


def _title(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].rstrip(".")

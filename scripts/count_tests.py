"""Print one line that counts the tests in reports of pytest: `--junitxml` writes one."""

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def counted(report: Path) -> Counter[str]:
    """How many tests passed, failed and were skipped; an error of a fixture counts as a failure."""
    counts: Counter[str] = Counter()
    for suite in ElementTree.parse(report).iter("testsuite"):
        total, skipped = int(suite.attrib["tests"]), int(suite.attrib["skipped"])
        failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
        counts.update(passed=total - failed - skipped, failed=failed, skipped=skipped)
    return counts


def main(reports: list[Path]) -> int:
    """1 if a report is missing or a test failed, otherwise 0."""
    counts: Counter[str] = Counter()
    missing = [report.name for report in reports if not report.exists()]
    for report in reports:
        if report.exists():
            counts.update(counted(report))
    line = ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))
    print(line + "".join(f"; {name} is missing" for name in missing))
    return 1 if missing or counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main([Path(name) for name in sys.argv[1:]]))

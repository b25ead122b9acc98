"""The table of results, from made-up ones, and the one in the documentation."""

from __future__ import annotations

import pytest

from tests.conformance.differences import DIFFERENCES
from tests.conformance.results import Outcome, Result, groups, read, tally
from tests.conformance.table import BEGIN, DOCUMENT, END, differences, put, render

REPORT = """<?xml version="1.0"?>
<testsuites><testsuite>
<testcase classname="tests.conformance.test_tus_head" name="test_a_lookup_has_the_length" />
<testcase classname="tests.conformance.test_tus_head" name="test_a_name[a NUL byte]">
<failure message="assert 500 in {404}">...</failure></testcase>
<testcase classname="tests.conformance.test_tus_checksum" name="test_x[sha1]">
<skipped message="not announced: checksum" /></testcase>
<testcase classname="tests.conformance.test_tus_checksum" name="test_y">
<error message="failed on setup">...</error></testcase>
<testcase classname="tests.conformance.test_tus_checksum" name="test_w">
<skipped type="pytest.xfail" message="knowingly" /></testcase>
<testcase classname="tests.conformance.test_own_server" name="test_z">
<skipped message="only our own server promises it" /></testcase>
</testsuite></testsuites>
"""
TITLES = {"test_tus_head": "tus core: HEAD", "test_tus_checksum": "tus extension: checksum"}


def test_each_case_of_a_report_has_an_outcome() -> None:
    assert read(REPORT) == [
        Result("test_tus_head", "test_a_lookup_has_the_length", "", Outcome.PASSED),
        Result("test_tus_head", "test_a_name", "a NUL byte", Outcome.FAILED),
        Result("test_tus_checksum", "test_x", "sha1", Outcome.NOT_ANNOUNCED),
        Result("test_tus_checksum", "test_y", "", Outcome.FAILED),
        Result("test_tus_checksum", "test_w", "", Outcome.FAILED),
        Result("test_own_server", "test_z", "", Outcome.NOT_ASKED),
    ]


def test_the_table_has_a_row_for_each_group_and_a_line_for_each_failure() -> None:
    assert render({"other 1.2": read(REPORT)}, TITLES).splitlines() == [
        "| cases | other 1.2 |",
        "| --- | --- |",
        "| tus core: HEAD | 1 passed, 1 failed |",
        "| tus extension: checksum | 2 failed, 1 not announced |",
        "| all | 1 passed, 3 failed, 1 not announced |",
        "",
        "other 1.2 fails:",
        "",
        "- tus core: HEAD: a name",
        "- tus extension: checksum: y",
        "- tus extension: checksum: w",
    ]


def test_a_failure_counts_the_cases_and_has_its_remark() -> None:
    test = "test_the_content_type_is_case_insensitive"
    outcomes = [Outcome.PASSED, Outcome.FAILED, Outcome.NOT_ANNOUNCED]
    results = [Result("test_tus_head", test, str(one), one) for one in outcomes]
    _, _, _, *lines = differences("tusd 1.2", results, TITLES)
    assert " ".join(line.strip() for line in lines) == (
        "- tus core: HEAD: the content type is case insensitive (1 of 2). "
        + DIFFERENCES["tusd"][test]
    )


def test_a_group_that_is_not_announced_is_marked() -> None:
    assert tally([Result("m", "t", "", Outcome.NOT_ANNOUNCED)] * 3) == "not announced"


def test_the_table_replaces_the_text_between_the_markers() -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert put(text, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


def test_a_document_without_markers_is_not_touched() -> None:
    with pytest.raises(ValueError, match="has no"):
        put(f"before\n{BEGIN}\nafter\n", "new")


def test_the_documentation_has_a_row_for_each_group_of_cases() -> None:
    _, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    table = rest.partition(END)[0]
    assert [title for title in groups().values() if f"\n| {title} |" not in table] == []


def test_every_remark_is_about_an_existing_case() -> None:
    sources = "".join(
        path.read_text(encoding="utf-8")
        for path in DOCUMENT.parent.parent.glob("tests/conformance/*.py")
    )
    remarks = {test for tests in DIFFERENCES.values() for test in tests}
    assert [test for test in remarks if f"def {test}(" not in sources] == []

"""The table of roles in docs/access.md is the one that the server goes by."""

from __future__ import annotations

import re

from app.core.access import MEMBERS, REACH, Action, Reach, Role, reach_of
from tests.architecture.sources import ROOT

WORDS = {
    Action.BROWSE: "find videos, and see what is known about them",
    Action.WATCH: "watch videos",
    Action.DOWNLOAD: "download files",
    Action.FOLLOW: "follow uploads on their way",
    Action.SEND: "begin, continue and cancel uploads",
    Action.CHANGE: "rename and delete videos, order other qualities",
    Action.SHARE: "make links for others",
    Action.MANAGE: "manage the project: members, keys, webhooks",
    Action.AUDIT: "read the audit log",
}
REACHES = {
    Reach.NONE: "no",
    Reach.OWN: "own",
    Reach.ALL: "all",
    Reach.LISTED: "those of the link",
}
COLUMNS = (*MEMBERS, Role.SENDER, Role.GUEST)


def test_the_table_in_the_documentation_is_the_one_in_force() -> None:
    text = (ROOT / "docs" / "access.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- roles -->(.*)<!-- /roles -->", text, re.DOTALL)
    assert found is not None
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in found[1].splitlines()
        if line.startswith("| ") and not line.startswith("| |")
    ]
    expected = [
        [WORDS[action], *(REACHES[reach_of(action, role)] for role in COLUMNS)] for action in REACH
    ]
    assert rows == expected


def test_a_higher_role_reaches_at_least_as_far() -> None:
    order = [Reach.NONE, Reach.OWN, Reach.ALL]
    for action in REACH:
        reaches = [order.index(reach_of(action, role)) for role in MEMBERS]
        assert reaches == sorted(reaches), action


def test_without_a_role_nothing_is_reached() -> None:
    assert {reach_of(action, None) for action in REACH} == {Reach.NONE}

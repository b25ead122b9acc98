"""Targets: what is met, what is missed, and what could not be measured."""

from __future__ import annotations

import pytest

from bench.lib.report import Target, target_table


@pytest.mark.parametrize(
    ("measured", "is_met"), [(0.84, False), (0.85, True), (2.0, True), (None, False)]
)
def test_a_rate_must_reach_its_limit(measured: float | None, is_met: bool) -> None:
    assert Target(what="rate", measured=measured, at_least=0.85).is_met is is_met


@pytest.mark.parametrize(
    ("measured", "is_met"), [(1.26, False), (1.25, True), (0.0, True), (None, False)]
)
def test_a_cost_must_stay_within_its_limit(measured: float | None, is_met: bool) -> None:
    assert Target(what="cost", measured=measured, at_most=1.25).is_met is is_met


def test_the_table_distinguishes_and_counts_met_missed_and_unmeasured() -> None:
    table = target_table(
        [
            Target(what="rate", measured=0.9, at_least=0.85),
            Target(what="cost", measured=1.5, at_most=1.25),
            Target(what="beside a peer that is not there", measured=None, at_least=3),
        ],
        ("A note.",),
    )
    assert table.title == "Targets: 1 of 3 met"
    assert table.rows == [
        ("rate", ">= 0.85", "0.90", "yes"),
        ("cost", "<= 1.25", "1.50", "**no**"),
        ("beside a peer that is not there", ">= 3", "-", "not measured"),
    ]
    assert table.notes == ("A note.",)


def test_a_figure_that_only_rounds_to_its_limit_is_missed() -> None:
    target = Target(what="rate", measured=0.8499, at_least=0.85)
    assert target.row[3] == "**no**"

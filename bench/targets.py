"""What we aim at, as ratios within one run, and whether it was reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.report import Table

COLUMNS = ("target", "wanted", "measured", "met")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One figure and its limit; `measured` is None if something it needs was not there."""

    what: str
    measured: float | None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether the figure lies within the limits, and there is one."""
        if self.measured is None:
            return False
        is_high_enough = self.at_least is None or self.measured >= self.at_least
        return is_high_enough and (self.at_most is None or self.measured <= self.at_most)

    @property
    def row(self) -> tuple[str, ...]:
        """As in the table."""
        wanted = [f">= {self.at_least:g}"] if self.at_least is not None else []
        wanted += [f"<= {self.at_most:g}"] if self.at_most is not None else []
        if self.measured is None:
            return (self.what, " and ".join(wanted), "-", "not measured")
        met = "yes" if self.is_met else "**no**"
        return (self.what, " and ".join(wanted), f"{self.measured:.2f}", met)


def as_table(targets: Sequence[Target], notes: tuple[str, ...] = ()) -> Table:
    """All targets of a benchmark, with a count."""
    met = sum(target.is_met for target in targets)
    title = f"Targets: {met} of {len(targets)} met"
    return Table(title, COLUMNS, [target.row for target in targets], notes)

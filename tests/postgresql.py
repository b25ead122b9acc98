"""A PostgreSQL server of the tests' own, which they may stop, kill and start again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.fleet.postgresql import Postgresql, find_postgresql
from tests.browser.tools import do_without

__all__ = ["Postgresql", "postgresql"]


@contextmanager
def postgresql(*, is_safe: bool = False) -> Iterator[Postgresql]:
    """A running server, whose files go with it."""
    programs = find_postgresql() or do_without("postgresql")
    with tempfile.TemporaryDirectory(prefix="sluice-postgresql-") as name:
        server = Postgresql(Path(name), programs, is_safe=is_safe)
        server.start()
        try:
            yield server
        finally:
            server.stop()

"""`python -m app.run.server.supervisor`, with all statements run by SQLAlchemy's `execute`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, Select
from sqlalchemy.sql.base import Executable


def fetch(
    connection: Connection, statement: Select[Any], values: Mapping[str, object]
) -> list[Row[Any]]:
    """In place of `app.db.sql.fetch`."""
    return list(connection.execute(statement, dict(values)).all())


def run(connection: Connection, statement: Executable, values: Mapping[str, object]) -> int:
    """In place of `app.db.sql.run`."""
    return connection.execute(statement, dict(values)).rowcount


if __name__ == "__main__":
    from app.run.server import supervisor

    supervisor.WEB[-1] = "bench.lib.execute_wsgi:app"
    sys.exit(supervisor.main())
else:
    from app.records import statements

    vars(statements).update(fetch=fetch, run=run)

    from wsgi import app  # noqa: F401 - what gunicorn serves

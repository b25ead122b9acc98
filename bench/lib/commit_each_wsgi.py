"""`python -m app.run.server.supervisor`, with a commit on PostgreSQL for each chunk's record."""

from __future__ import annotations

import sys

from app.core.upload import Upload
from app.records import statements
from app.records.uploads import UploadRecords


def store_if_unchanged(
    records: UploadRecords, after: Upload, before: Upload, _rows: None = None
) -> bool:
    """In place of the method that shares a commit with other threads; files are in folders here."""
    with records._database.one_statement() as connection:
        return statements.store_if_unchanged(connection, after, before)


if __name__ == "__main__":
    from app.run.server import supervisor

    supervisor.WEB[-1] = "bench.lib.commit_each_wsgi:app"
    sys.exit(supervisor.main())
else:
    UploadRecords._store_if_unchanged = store_if_unchanged  # type: ignore[assignment]

    from wsgi import app  # noqa: F401 - what gunicorn serves

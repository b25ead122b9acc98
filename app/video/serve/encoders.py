"""How fast the media workers that share a database encode."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, select, update

from app.db.engine import Database
from app.db.inserts import insert_unless_known
from app.db.tables import encoders

FRESH_FOR = timedelta(minutes=15)
"""A worker silent for this long is gone: each reports every five minutes."""


class EncoderRecords:
    """One row for each worker."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def tell(self, worker: str, capability: Mapping[str, Any], now: datetime) -> None:
        """Record what a worker can do, and delete the rows of workers that are gone.

        A worker that stops may do so at the same moment as the next one of its name.
        """
        facts = {"facts": json.dumps(capability), "told_at": now}
        is_own = encoders.c.worker == worker
        is_old = ~is_own & (encoders.c.told_at < now - FRESH_FOR)
        with self._database.write() as connection:
            connection.execute(delete(encoders).where(is_old))
            if not connection.execute(update(encoders).where(is_own).values(facts)).rowcount:
                insert_unless_known(connection, encoders, {"worker": worker, **facts})

    def live(self, now: datetime) -> list[Mapping[str, Any]]:
        """What each live worker can do."""
        query = select(encoders.c.facts).where(encoders.c.told_at >= now - FRESH_FOR)
        with self._database.read() as connection:
            return [json.loads(text) for text in connection.scalars(query)]

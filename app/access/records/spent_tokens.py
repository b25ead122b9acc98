"""Which tokens were used that work once."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import delete, insert
from sqlalchemy.exc import IntegrityError

from app.db.engine import Database
from app.db.tables import spent_tokens


class SpentTokens:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, token_id: str, *, expires_at: datetime, now: datetime) -> bool:
        """Note that a token is used, until it expires; False if it was used before."""
        row = insert(spent_tokens).values(id=token_id, expires_at=expires_at)
        try:
            with self._database.write() as connection:
                connection.execute(delete(spent_tokens).where(spent_tokens.c.expires_at <= now))
                connection.execute(row)
        except IntegrityError:
            return False
        return True

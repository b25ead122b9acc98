"""The records of passkeys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from app.core.errors import InvalidRequest
from app.db.engine import Database
from app.db.sql import lock_row
from app.db.tables import passkeys, people

MAX_PASSKEYS = 20
"""As many passkeys one person can have; browsers get all their ids at registration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passkey:
    """A key pair; a person's device or password manager has the private half.

    `public_key` is in COSE's form, as the device sent it. `sign_count` is what the device counted
    at the last use; most count nothing, and send 0.
    """

    id: str
    credential_id: bytes
    person_id: str
    public_key: bytes
    sign_count: int
    name: str
    created_at: datetime
    used_at: datetime | None = None


class PasskeyRecords:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, passkey: Passkey) -> None:
        """Store a new passkey; raises `InvalidRequest` if it is stored, or its person has many."""
        values = {column.name: getattr(passkey, column.name) for column in passkeys.columns}
        try:
            with self._database.write() as connection:
                lock_row(connection, people.c.id, passkey.person_id)
                _require_few(connection, passkey.person_id)
                connection.execute(insert(passkeys).values(values))
        except IntegrityError:
            raise InvalidRequest("This passkey is registered already.") from None

    def find(self, credential_id: bytes) -> Passkey | None:
        """The passkey that a device knows by this id."""
        query = select(passkeys).where(passkeys.c.credential_id == credential_id)
        with self._database.read() as connection:
            row = connection.execute(query).first()
        return None if row is None else Passkey(**row._mapping)

    def of_person(self, person_id: str) -> list[Passkey]:
        """The passkeys of a person, the oldest first."""
        query = (
            select(passkeys)
            .where(passkeys.c.person_id == person_id)
            .order_by(passkeys.c.created_at, passkeys.c.id)
        )
        with self._database.read() as connection:
            return [Passkey(**row._mapping) for row in connection.execute(query)]

    def note_use(self, passkey_id: str, *, sign_count: int, now: datetime) -> bool:
        """Note a use; whether the passkey still exists, and was not used with that count before.

        Two uses at the same time cannot both pass with one count.
        """
        is_new = or_(passkeys.c.sign_count < sign_count, passkeys.c.sign_count == 0)
        change = update(passkeys).where(passkeys.c.id == passkey_id, is_new)
        with self._database.write() as connection:
            found = connection.execute(change.values(sign_count=sign_count, used_at=now))
            return found.rowcount == 1

    def remove(self, person_id: str, passkey_id: str) -> Passkey | None:
        """Delete a passkey of a person; what it was, or None if the person has no such one."""
        condition = (passkeys.c.id == passkey_id) & (passkeys.c.person_id == person_id)
        with self._database.write() as connection:
            row = connection.execute(select(passkeys).where(condition)).first()
            connection.execute(delete(passkeys).where(condition))
        return None if row is None else Passkey(**row._mapping)


def _require_few(connection: Connection, person_id: str) -> None:
    count = select(func.count()).where(passkeys.c.person_id == person_id)
    if connection.execute(count).scalar_one() >= MAX_PASSKEYS:
        raise InvalidRequest("You have too many passkeys: remove one that you do not use.")

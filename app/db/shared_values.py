"""What all nodes must agree on: a few short texts by name."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import select, update

from app.db.engine import Database
from app.db.inserts import insert_unless_known
from app.db.tables import shared_values


class SharedValues:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def are_shared(self) -> bool:
        """Whether other nodes may use the same records."""
        return self._database.is_remote

    def get(self, name: str) -> str | None:
        """The text of that name."""
        with self._database.read() as connection:
            query = select(shared_values.c.value).where(shared_values.c.name == name)
            return connection.execute(query).scalar()

    def agree(self, name: str, propose: Callable[[], str]) -> str:
        """The text of that name, or else what is proposed; of several proposals the first."""
        known = self.get(name)
        if known is not None:
            return known
        row = {"name": name, "value": propose()}
        with self._database.write() as connection:
            insert_unless_known(connection, shared_values, row)
        found = self.get(name)
        return row["value"] if found is None else found

    def put(self, name: str, value: str) -> None:
        """Replace the text of that name; of several first ones at once, one stays."""
        with self._database.write() as connection:
            change = update(shared_values).where(shared_values.c.name == name).values(value=value)
            if not connection.execute(change).rowcount:
                insert_unless_known(connection, shared_values, {"name": name, "value": value})


class SharedNote:
    """One value, which outlives the process."""

    def __init__(self, values: SharedValues, name: str) -> None:
        self._values = values
        self._name = name

    def read(self) -> str | None:
        """Its text."""
        return self._values.get(self._name)

    def write(self, text: str) -> None:
        """Replace it."""
        self._values.put(self._name, text)

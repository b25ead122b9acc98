"""What all servers that share the records must agree on: a few short texts by name."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import select, update

from app.records.engine import Database
from app.records.inserts import insert_unless_known
from app.records.tables import facts


class Facts:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name: str) -> str | None:
        """The text of that name."""
        with self._database.read() as connection:
            query = select(facts.c.value).where(facts.c.name == name)
            return connection.execute(query).scalar()

    def agree(self, name: str, propose: Callable[[], str]) -> str:
        """The text of that name, or else what is proposed; of several proposals the first."""
        known = self.get(name)
        if known is not None:
            return known
        row = {"name": name, "value": propose()}
        with self._database.write() as connection:
            insert_unless_known(connection, facts, row)
        found = self.get(name)
        return row["value"] if found is None else found

    def put(self, name: str, value: str) -> None:
        """Replace the text of that name; of several first ones at once, one stays."""
        with self._database.write() as connection:
            change = update(facts).where(facts.c.name == name).values(value=value)
            if not connection.execute(change).rowcount:
                insert_unless_known(connection, facts, {"name": name, "value": value})


class SharedNote:
    """One fact, which outlives the process."""

    def __init__(self, facts: Facts, name: str) -> None:
        self._facts = facts
        self._name = name

    def read(self) -> str | None:
        """Its text."""
        return self._facts.get(self._name)

    def write(self, text: str) -> None:
        """Replace it."""
        self._facts.put(self._name, text)

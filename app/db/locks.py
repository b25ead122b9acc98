"""Locks for transactions on a database server; SQLite has one writer at a time.

Lock order: projects, people, members, keys, links, invitations. Two transactions that lock in
different orders deadlock, and PostgreSQL ends one of them after a second.
"""

from __future__ import annotations

from sqlalchemy import Column, Connection, Table, func, select, text


def lock_row(connection: Connection, key: Column[str], value: str) -> bool:
    """Block others from locking or changing this row until the transaction ends.

    They may still insert rows that refer to it. False if there is no such row.
    """
    query = select(key).where(key == value).with_for_update(key_share=True)
    return connection.execute(query).first() is not None


def lock_table(connection: Connection, table: Table) -> None:
    """Block others from changing the table until the transaction ends; they may read it."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE"))


def lock_name(connection: Connection, name: str) -> None:
    """Block others from locking this name until the transaction ends.

    Call it after all other locks, so that its holder never waits for a row lock.
    """
    if connection.dialect.name == "postgresql":
        key = func.hashtextextended(name, 0)
        connection.execute(select(func.pg_advisory_xact_lock(key)))

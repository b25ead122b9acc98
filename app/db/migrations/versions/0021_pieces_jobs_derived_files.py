"""Pieces of files in a bucket, one table of jobs, and one of derived files.

Finished files in a bucket stay as they are. Unfinished ones start over: what the bucket has of them
becomes garbage, and their uploads are empty, so that clients send the bytes again. The jobs of
videos move into the table of all jobs, which has no reference to uploads, since some jobs are not
about a video; leases on periodic work and on deliveries are those of jobs. Derived files in folders
get rows when a server starts (`app/video/serve/adoption.py`).
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"

UNFINISHED = "state IN ('queued', 'running')"
SHOWN = "state IN ('queued', 'running', 'failed')"

KEPT = sa.text("due_at IS NULL")
LEFT = sa.text("due_at IS NOT NULL")
EVICTABLE = sa.text("is_evictable AND due_at IS NULL")


def upgrade() -> None:
    """Change all of them."""
    store_pieces()
    move_jobs()
    list_derived_files()


def store_pieces() -> None:
    """Replace the tables of cells and pieces, and drop what nodes told each other."""
    op.drop_column("nodes", "traffic")
    op.get_bind().execute(
        sa.text(
            "UPDATE uploads SET received = :none, sums = NULL, crc32c = NULL, progress = 0, "
            "retry_at = NULL, "
            "state = CASE WHEN state IN ('held', 'verifying') THEN 'receiving' ELSE state END "
            "WHERE id IN (SELECT key FROM stored_files WHERE name IS NULL) "
            "AND state IN ('receiving', 'held', 'verifying')"
        ),
        {"none": b""},
    )
    for names in (
        "SELECT name, NULL, 0 FROM stored_pieces",
        "SELECT multipart_name, multipart_id, 0 FROM stored_files "
        "WHERE name IS NULL AND multipart_id IS NOT NULL",
    ):
        op.execute(f"INSERT INTO stored_garbage (name, multipart_id, due_at) {names}")
    op.drop_table("stored_cells")
    op.drop_table("stored_pieces")
    op.execute("UPDATE stored_files SET multipart_name = NULL, multipart_id = NULL")
    op.drop_column("stored_files", "cell_bytes")
    op.drop_column("stored_files", "crc32c")
    op.add_column("stored_files", sa.Column("leased_by", sa.String(32)))
    op.add_column("stored_files", sa.Column("leased_until", sa.BigInteger()))
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "stored_pieces",
        sa.Column("id", number, primary_key=True),
        sa.Column("key", sa.String(32), sa.ForeignKey("stored_files.key"), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("end", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("crc32c", sa.String(8), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("stored_pieces_of_file", "stored_pieces", ["key", "start"])
    op.create_index("ix_stored_pieces_name", "stored_pieces", ["name"])
    op.create_table(
        "stored_parts",
        sa.Column("key", sa.String(32), sa.ForeignKey("stored_files.key"), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("end", sa.BigInteger(), nullable=False),
        sa.Column("etag", sa.String(200), nullable=False),
        sa.Column("crc32c", sa.String(8), nullable=False),
    )
    op.add_column(
        "stored_garbage",
        sa.Column("is_claimed", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    op.create_index(
        "ix_stored_garbage_name",
        "stored_garbage",
        ["name"],
        postgresql_ops={"name": "varchar_pattern_ops"},
    )


def move_jobs() -> None:
    """Copy the jobs of videos into the new table, and drop the tables that it replaces."""
    same: list[sa.Column[Any]] = [
        sa.Column("argument", sa.String(200), primary_key=True),
        sa.Column("lane", sa.String(16), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("client", sa.String(100), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("is_renewed", sa.Boolean(), nullable=False),
        sa.Column("progress", sa.Float(), nullable=False),
        sa.Column("worker", sa.String(64)),
        sa.Column("problem_code", sa.String(64)),
        sa.Column("problem_detail", sa.Text()),
        sa.Column("queued_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
    ]
    names = [column.name for column in same]
    subject, kind = (
        sa.Column(name, sa.String(32), primary_key=True) for name in ("subject", "kind")
    )
    op.create_table("jobs", subject, kind, *same)
    old = sa.table("media_jobs", *map(sa.column, ("upload_id", "step", *names)))
    new = sa.table("jobs", *map(sa.column, ("subject", "kind", *names)))
    op.execute(sa.insert(new).from_select(list(new.columns), sa.select(old)))
    op.drop_table("media_jobs")
    op.drop_table("turns")
    op.drop_column("webhook_deliveries", "token")
    for name, columns, where in (
        ("jobs_unfinished", ["lane", "priority", "turn", "queued_at"], UNFINISHED),
        ("jobs_by_client", ["lane", "client", "priority", "turn"], UNFINISHED),
        ("jobs_shown", ["state", "lane"], SHOWN),
    ):
        condition = sa.text(where)
        op.create_index(name, "jobs", columns, sqlite_where=condition, postgresql_where=condition)


def list_derived_files() -> None:
    """Rename the table, and mark the renditions in it."""
    op.drop_index("made_files_kept", "made_files")
    op.drop_index("made_files_left", "made_files")
    op.rename_table("made_files", "derived_files")
    op.add_column(
        "derived_files",
        sa.Column("is_evictable", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    op.execute(
        "UPDATE derived_files SET is_evictable = TRUE "
        "WHERE folder = 'renditions' OR folder LIKE 'rungs/%'"
    )
    for name, columns, is_unique, where in (
        ("derived_files_kept", ["upload_id", "folder", "name"], True, KEPT),
        ("derived_files_left", ["due_at"], False, LEFT),
        ("derived_files_evictable", ["upload_id"], False, EVICTABLE),
    ):
        op.create_index(
            name,
            "derived_files",
            columns,
            unique=is_unique,
            sqlite_where=where,
            postgresql_where=where,
        )


def downgrade() -> None:
    """Does nothing: a newer database is refused by an older version."""

"""Files in a bucket consist of pieces, each with the range of its bytes.

Finished files stay as they are. Unfinished ones in a bucket start over: what the bucket has of them
becomes garbage, and their uploads are empty, so that clients send the bytes again. Nodes no longer
tell each other about their clients.
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
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
    op.create_index(
        "ix_stored_garbage_name",
        "stored_garbage",
        ["name"],
        postgresql_ops={"name": "varchar_pattern_ops"},
    )


def downgrade() -> None:
    """Does nothing: a newer database is refused by an older version."""

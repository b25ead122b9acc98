"""Forms of names for searching and sorting, and an index for each sort order of videos."""

import re
import unicodedata

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

uploads = sa.table(
    "uploads",
    sa.column("id"),
    sa.column("filename"),
    sa.column("search_name"),
    sa.column("sort_name", sa.LargeBinary),
)
IS_VIDEO = sa.text("state = 'complete'")
ROWS_AT_ONCE = 1000


def upgrade() -> None:
    """Derive the forms of every name."""
    op.add_column("uploads", sa.Column("search_name", sa.Text, nullable=False, server_default=""))
    op.add_column(
        "uploads", sa.Column("sort_name", sa.LargeBinary, nullable=False, server_default="")
    )
    connection = op.get_bind()
    names = connection.execute(sa.select(uploads.c.id, uploads.c.filename)).all()
    change = (
        sa.update(uploads)
        .where(uploads.c.id == sa.bindparam("of"))
        .values(search_name=sa.bindparam("searched"), sort_name=sa.bindparam("sorted"))
    )
    for start in range(0, len(names), ROWS_AT_ONCE):
        rows = [
            {"of": upload_id, "searched": _searched(name), "sorted": _sorted(name)}
            for upload_id, name in names[start : start + ROWS_AT_ONCE]
        ]
        connection.execute(change, rows)
    op.drop_index("uploads_by_publication", "uploads")
    for name, column in (
        ("uploads_by_publication", "published_at"),
        ("uploads_by_name", "sort_name"),
        ("uploads_by_length", "length"),
    ):
        op.create_index(
            name,
            "uploads",
            ["owner", column, "id"],
            sqlite_where=IS_VIDEO,
            postgresql_where=IS_VIDEO,
        )


def downgrade() -> None:
    """Drop them."""
    for name in ("uploads_by_length", "uploads_by_name", "uploads_by_publication"):
        op.drop_index(name, "uploads")
    op.create_index("uploads_by_publication", "uploads", ["owner", "state", "published_at", "id"])
    for column in ("sort_name", "search_name"):
        op.drop_column("uploads", column)


def _searched(name: str) -> str:
    if name.isascii():
        return name.lower()
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold())
    return "".join(character for character in folded if not unicodedata.combining(character))


def _sorted(name: str) -> bytes:
    def by_value(digits: re.Match[str]) -> str:
        number = digits[0].lstrip("0")
        return chr(ord("0") + min(len(number), 15)) + number

    return re.sub("[0-9]+", by_value, _searched(name)).encode()[:120]

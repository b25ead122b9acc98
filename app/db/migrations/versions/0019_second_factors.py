"""One-time codes as a second factor, and previous webhook secrets."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

ID = sa.String(32)


def _of_person(*, is_key: bool) -> "sa.Column[str]":
    reference = sa.ForeignKey("people.id", ondelete="CASCADE")
    return sa.Column("person_id", ID, reference, nullable=False, primary_key=is_key)


def upgrade() -> None:
    """Create the tables, empty: no second factors or previous webhook secrets exist yet."""
    op.create_table(
        "second_factors",
        _of_person(is_key=True),
        sa.Column("secret", sa.String(64), nullable=False),
        sa.Column("last_step", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "recovery_codes",
        sa.Column("digest", sa.String(64), primary_key=True),
        _of_person(is_key=False),
    )
    op.create_index("recovery_codes_of_person", "recovery_codes", ["person_id"])
    op.add_column("webhooks", sa.Column("old_secret", sa.Text))
    op.add_column("webhooks", sa.Column("old_secret_until", sa.BigInteger))


def downgrade() -> None:
    """Drop them: passwords alone suffice again."""
    with op.batch_alter_table("webhooks") as table:
        table.drop_column("old_secret_until")
        table.drop_column("old_secret")
    op.drop_table("recovery_codes")
    op.drop_table("second_factors")

"""Alembic's entry: runs the migrations on the connection (and in the transaction) it is given."""

from alembic import context

from app.db.tables import projects

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=projects.metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()

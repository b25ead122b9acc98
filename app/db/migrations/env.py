"""Alembic's entry point: runs the migrations in the given connection's transaction."""

from alembic import context

from app.db.tables import projects

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=projects.metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()

"""For commands that must not run beside a server, as each would undo what the other does."""

from __future__ import annotations

import click

from app.http.services import Services
from app.storage.folder_lock import FolderLocked, lock_data_folder


def require_no_server(services: Services) -> None:
    """Keep servers from starting in this data folder until the process ends.

    Raises `click.ClickException` if one runs there, or a node elsewhere shares the records.
    """
    try:
        lock_data_folder(services.settings.data_dir)
    except FolderLocked as error:
        raise click.ClickException(str(error)) from error
    if services.nodes is not None and services.nodes.count_live():
        raise click.ClickException("Nodes are running, or have ended seconds ago: stop them.")

"""The commands `login` and `logout`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from sluice_client.cli.connection import connected, given_key, server_options
from sluice_client.cli.output import OK, SOME_FAILED, plain, print_json, say
from sluice_client.options import Options, load_options, settings_file
from sluice_client.stored_keys import StoredKeys


@click.command()
@server_options
def login(as_json: bool, config: Path | None, server: str | None) -> int:
    """Keep an API key for a server on this machine.

    Asks for the server and the key; in a script, give --server, and the key on standard input.
    The key is checked first, and kept in a file that only you can read. A manager makes keys on
    the page of a project.

    \b
    Examples:
      sluice login
      sluice login --server https://videos.example.org < key.txt
    """  # noqa: D301 - \b is click's mark for text to leave as it is
    asks = sys.stdin.isatty()
    if server is None and asks:
        default = _options(config).server
        server = click.prompt("Server", default=default, err=True)
    key = given_key() or (
        click.prompt("API key", hide_input=True, err=True) if asks else sys.stdin.readline()
    )
    if not key.strip():
        raise click.UsageError("There is no key on standard input.")
    with connected(server, config, as_json=as_json, key=key.strip()) as client:
        projects = client.projects()
        if client.is_open():
            say(f"{client.options.server} does not ask for keys, so none is kept.")
            return SOME_FAILED
        StoredKeys().save(client.options.server, client.options.api_key)
        _say_where(client.options.server, projects, as_json=as_json)
    return OK


@click.command()
@server_options
def logout(as_json: bool, config: Path | None, server: str | None) -> int:
    """Remove the key for a server from this machine; on the server it still works."""
    name = _options(config, server).server
    was_there = StoredKeys().forget(name)
    if as_json:
        print_json({"server": name, "removed": was_there})
    else:
        say(f"The key for {name} is removed." if was_there else f"There is no key for {name}.")
    return OK if was_there else SOME_FAILED


def _options(config: Path | None, server: str | None = None) -> Options:
    return load_options(os.environ, config or settings_file(), server=server)


def _say_where(server: str, projects: list[dict[str, object]], *, as_json: bool) -> None:
    if as_json:
        print_json({"server": server, "projects": projects})
        return
    for project in projects:
        say(plain(f"Logged in to {server}: {project['name']}, as {project['role']}."))

"""The options that name a server, and the client that a command uses."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from sluice_client.cli.output import Notices, say
from sluice_client.client import Client, server_in
from sluice_client.options import load_options, settings_file
from sluice_client.stored_keys import StoredKeys

Command = TypeVar("Command", bound=Callable[..., Any])

KEY = "sluice_client.api_key"
"""Where click's context has the value of --api-key, which is an option of every command."""

SILENT_SECONDS = 2.0
"""A server that has neither answered nor refused for this long is mentioned."""


@dataclass
class Session:
    """One run of a command, as seen from the thread that waits for it; click's `obj`."""

    stop: threading.Event = field(default_factory=threading.Event)
    client: Client | None = None

    @property
    def has_kept_bytes(self) -> bool:
        """Whether running the command again would continue a transfer."""
        return self.client is not None and self.client.has_kept_bytes


def _keep_key(context: click.Context, _option: click.Parameter, key: str | None) -> None:
    context.meta[KEY] = key


def given_key() -> str | None:
    """The value of --api-key."""
    key: str | None = click.get_current_context().meta.get(KEY)
    return key


def server_options(command: Command) -> Command:
    """--server, --api-key, --config and --json."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line."),
        click.option(
            "--config",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="Settings file (TOML).",
        ),
        click.option(
            "--api-key",
            metavar="KEY",
            expose_value=False,
            callback=_keep_key,
            help="Key to send; others on this machine can see it. [SLUICE_API_KEY]",
        ),
        click.option("--server", metavar="URL", help="Address of the server. [SLUICE_URL]"),
    ):
        command = option(command)
    return command


def transfer_options(command: Command) -> Command:
    """The settings worth changing for a single transfer."""
    for option in (
        click.option(
            "--give-up-seconds",
            metavar="SECONDS",
            help="Stop trying after this long without progress. [900]",
        ),
        click.option("--parallel", metavar="COUNT", help="Maximum number of connections. [24]"),
        click.option(
            "--limit-rate",
            metavar="RATE",
            help="Bytes per second of all connections together, such as 500K or 2M.",
        ),
    ):
        command = option(command)
    return server_options(command)


@contextmanager
def connected(
    server: str | None = None,
    config: Path | None = None,
    *,
    address: str | None = None,
    as_json: bool = False,
    key: str | None = None,
    **given: str | None,
) -> Iterator[Client]:
    """A client with the settings of the command, which says on standard error what it waits for.

    If `address` is a URL and not just an id, it names the server. The API key is `key`, that of
    the settings, or the one kept for the server, in this order.
    """
    file = config or settings_file()
    if config is not None and not config.is_file():
        raise click.UsageError(f"{config} is not a file.")
    options = load_options(os.environ, file, server=server, api_key=key or given_key(), **given)
    options = options.for_server(server_in(address or "") or options.server)
    if not options.api_key:
        options = replace(options, api_key=StoredKeys().load(options.server))
    session = click.get_current_context().ensure_object(Session)
    with Client(options=options, stop=session.stop) as client:
        session.client = client
        client.on_wait = Notices(say, as_json=as_json)
        with _silence_noticed(client):
            yield client


@contextmanager
def _silence_noticed(client: Client) -> Iterator[None]:
    """Say so if the first answer takes long; a refusal is reported at once anyway."""

    def look() -> None:
        if not client.has_heard:
            client.on_wait(f"No answer from {client.options.server} yet; still waiting.")

    timer = threading.Timer(SILENT_SECONDS, look)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()

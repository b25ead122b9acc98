"""The command `fetch`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from sluice_client.cli.common import OK, connected, print_json, transfer_options
from sluice_client.cli.display import plain, progress_display, say, size_text
from sluice_client.client import Client, server_in
from sluice_client.downloader import Fetched


@click.command()
@click.argument("video", metavar="ID|URL")
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="File or folder."
)
@click.option("--stdout", "to_stdout", is_flag=True, help="Write the bytes in order to a pipe.")
@transfer_options
def fetch(
    video: str,
    output: Path | None,
    to_stdout: bool,
    as_json: bool,
    config: Path | None,
    **given: str | None,
) -> int:
    """Fetch a file, in steps and several of them at once.

    The bytes go to FILE.part; run again after whatever broke it, it goes on where it stood. Only
    when its SHA-256 is the server's does the file get its name.

    \b
    Examples:
      sluice fetch 3f2a9c… -o film.mp4
      sluice fetch https://videos.example.org/media/3f2a9c…
      sluice fetch 3f2a9c… --stdout | ffplay -
    """  # noqa: D301
    if to_stdout and (output is not None or as_json):
        raise click.UsageError("--stdout goes with neither --output nor --json.")
    given["server"] = server_in(video) or given["server"]
    with connected(config=config, **given) as client:
        if to_stdout:
            return _to_stdout(client, video)
        with progress_display() as listener:
            fetched = client.fetch(video, output, on_progress=listener)
    _print(fetched, as_json)
    return OK


def _print(fetched: Fetched, as_json: bool) -> None:
    if as_json:
        document = asdict(fetched)
        document["verified"] = document.pop("is_verified")
        print_json(document)
    else:
        click.echo(f"{plain(fetched.path)}  ({size_text(fetched.length)})")
    if not fetched.is_verified:
        say("The server had no checksum to compare with.")


def _to_stdout(client: Client, video: str) -> int:
    if sys.stdout.isatty():
        raise click.UsageError("--stdout is for pipes; a terminal cannot show a video.")
    with progress_display() as listener:
        client.copy_to(video, sys.stdout.buffer, on_progress=listener)
    return OK

"""The command `fetch`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from sluice_client.cli.connection import connected, transfer_options
from sluice_client.cli.display import making_display, progress_display
from sluice_client.cli.output import OK, plain, print_json, say, size_text
from sluice_client.client import Client
from sluice_client.downloader import Fetched

STANDARD_OUTPUT = (Path("-"), Path("/dev/stdout"))
"""Nothing but the bytes may go there."""


@click.command()
@click.argument("video", metavar="ID|URL")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File or folder to write to; - is --stdout.",
)
@click.option("--force", is_flag=True, help="Overwrite a file that has the server's name for it.")
@click.option("--stdout", "to_stdout", is_flag=True, help="Write the bytes, in order, to a pipe.")
@click.option(
    "--rendition",
    metavar="HEIGHT",
    type=click.IntRange(1),
    help="Fetch the MP4 of this height, such as 720, which the server makes if need be.",
)
@transfer_options
def fetch(  # noqa: PLR0913 - the options of the command
    *,
    video: str,
    output: Path | None,
    force: bool,
    to_stdout: bool,
    rendition: int | None,
    as_json: bool,
    config: Path | None,
    **given: str | None,
) -> int:
    """Fetch a file over several connections.

    The bytes go to FILE.….part. After an interruption, the same command continues there. The file
    gets its name once its SHA-256 matches the server's. Without the name of a file in -o, the file
    gets the server's name for it, and another file of that name is only replaced with --force.

    \b
    Examples:
      sluice fetch 3f2a9c… -o film.mp4
      sluice fetch https://videos.example.org/media/3f2a9c…
      sluice fetch 3f2a9c… --stdout | ffplay -
      sluice fetch 3f2a9c… --rendition 720 -o small.mp4
    """  # noqa: D301 - \b is click's mark for text to leave as it is
    if output in STANDARD_OUTPUT:
        output, to_stdout = None, True
    if to_stdout and (output is not None or as_json):
        raise click.UsageError("Standard output cannot be combined with --output or --json.")
    with connected(config=config, address=video, as_json=as_json, **given) as client:
        if rendition is not None:
            _make(client, video, rendition, as_json)
        if to_stdout:
            return _to_stdout(client, video, rendition)
        with progress_display(as_json=as_json) as display:
            client.on_wait = display.waiting
            fetched = client.fetch(
                video, output, rendition=rendition, overwrite=force, on_progress=display
            )
    _print(fetched, as_json)
    if (output is None or output.is_dir()) and Path(fetched.path).name != fetched.name:
        say(plain(f"{fetched.name} is not a name for this folder: saved as {fetched.path}"))
    return OK


def _make(client: Client, video: str, height: int, as_json: bool) -> None:
    with making_display(f"{height}p", as_json=as_json) as display:
        client.on_wait = display.waiting
        client.make_rendition(video, height, on_progress=display)


def _print(fetched: Fetched, as_json: bool) -> None:
    if as_json:
        document = asdict(fetched)
        document["verified"] = document.pop("is_verified")
        print_json(document)
    else:
        is_old = fetched.resumed == fetched.length > 0
        remark = "already here, the same file" if is_old else size_text(fetched.length)
        click.echo(f"{plain(fetched.path)}  ({remark})")
    if not fetched.is_verified:
        say("The server had no checksum to compare with.")


def _to_stdout(client: Client, video: str, rendition: int | None) -> int:
    if sys.stdout.isatty():
        raise click.UsageError("--stdout is for pipes; a terminal cannot show a video.")
    with progress_display() as display:
        client.on_wait = display.waiting
        client.copy_to(video, sys.stdout.buffer, rendition=rendition, on_progress=display)
    return OK

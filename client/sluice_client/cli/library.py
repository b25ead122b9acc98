"""The commands `ls`, `show`, `rename`, `rm` and `status`."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import Any

import click

from sluice_client.cli.connection import connected, server_options
from sluice_client.cli.output import (
    OK,
    error_document,
    exit_code,
    plain,
    print_json,
    say,
    size_text,
)
from sluice_client.cli.playback import playback_lines
from sluice_client.client import Client
from sluice_client.errors import ConnectionFailed, Interrupted, SluiceError
from sluice_client.sources import sendable_name
from sluice_client.spans import Spans

ORDERS = ("newest", "oldest", "name", "-name", "size", "-size")


@click.command(name="ls")
@server_options
@click.option("--limit", type=click.IntRange(1, sys.maxsize), help="Show only this many. [all]")
@click.option("--search", default="", metavar="WORDS", help="Show only names with all these words.")
@click.option("--sort", type=click.Choice(ORDERS), default="newest", help="-size: largest first.")
def list_videos(
    *,
    limit: int | None,
    search: str,
    sort: str,
    as_json: bool,
    config: Path | None,
    server: str | None,
) -> int:
    """List the stored files."""
    with connected(server, config, as_json=as_json) as client:
        for video in islice(client.videos(sendable_name(search), sort), limit):
            if as_json:
                print_json(video)
            else:
                size = size_text(video["length"])
                moment = video["published"][:16].replace("T", " ")
                click.echo(f"{video['id']}  {moment}  {size:>10}  {plain(video['filename'])}")
    return OK


@click.command()
@click.argument("video", metavar="ID|URL")
@server_options
def show(video: str, as_json: bool, config: Path | None, server: str | None) -> int:
    """Show the details of a stored file, and how it can be played."""
    with connected(server, config, address=video, as_json=as_json) as client:
        _print(client.video(video), as_json)
    return OK


@click.command()
@click.argument("video", metavar="ID|URL")
@click.argument("name")
@server_options
def rename(video: str, name: str, as_json: bool, config: Path | None, server: str | None) -> int:
    """Give a stored file another name."""
    with connected(server, config, address=video, as_json=as_json) as client:
        renamed = client.rename(video, sendable_name(name))
        if as_json:
            print_json(renamed)
        else:
            click.echo(f"{renamed['id']}  {plain(renamed['filename'])}")
    return OK


@click.command(name="rm")
@click.argument("videos", metavar="ID|URL...", nargs=-1, required=True)
@server_options
def remove(videos: tuple[str, ...], as_json: bool, config: Path | None, server: str | None) -> int:
    """Delete stored files, without asking."""
    errors = []
    with connected(server, config, address=videos[0], as_json=as_json) as client:
        for video in videos:
            try:
                client.remove(video)
            except (Interrupted, ConnectionFailed):
                raise
            except SluiceError as error:
                errors.append(error)
                say(plain(f"{video}: {error}"))
                if as_json:
                    print_json({"id": video, "error": error_document(error)})
            else:
                if as_json:
                    print_json({"id": video, "removed": True})
                else:
                    click.echo(f"{plain(video)}  removed")
    return exit_code(errors)


@click.command()
@click.argument("upload", metavar="[ID]", required=False)
@server_options
def status(upload: str | None, as_json: bool, config: Path | None, server: str | None) -> int:
    """Show what has arrived of an upload and what is missing.

    Without ID, list the unfinished uploads of this machine.
    """
    with connected(server, config, as_json=as_json) as client:
        if upload is not None:
            _print_upload(client.status(upload), as_json)
        else:
            for record in client.unfinished():
                _print_unfinished(client, record.id, record.path, as_json)
    return OK


def _print_unfinished(client: Client, upload_id: str, path: str, as_json: bool) -> None:
    try:
        document = client.status(upload_id)
    except ConnectionFailed:
        raise
    except SluiceError as error:
        say(plain(f"{path}: {error}"))
        return
    if as_json:
        print_json({"path": path, **document})
    else:
        missing = Spans(document["missing"]).total
        size = size_text(document["length"])
        click.echo(f"{upload_id}  {size_text(missing)} of {size} missing  {plain(path)}")


def _print_upload(document: dict[str, Any], as_json: bool) -> None:
    shown = dict(document)
    if not as_json:
        for name in ("received", "missing"):
            shown[name] = ", ".join(f"{start}-{end}" for start, end in document[name]) or "nothing"
    _print(shown, as_json)


def _print(document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    facts = {name: value for name, value in document.items() if name != "playback"}
    facts.update(playback_lines(document.get("playback") or {}))
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{name:<{width}}  {plain('' if value is None else str(value))}")

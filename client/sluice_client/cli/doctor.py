"""The command `doctor`."""

from __future__ import annotations

from pathlib import Path

import click

from sluice_client.cli.connection import connected, server_options
from sluice_client.cli.output import OK, SOME_FAILED, plain, print_json
from sluice_client.doctor import Finding, Level
from sluice_client.doctor.examination import PAUSE_SECONDS

MARKS = {Level.OK: "ok    ", Level.NOTE: "note  ", Level.CHANGE: "CHANGE"}


@click.command()
@click.argument("url", required=False)
@click.option(
    "--pause",
    type=click.FloatRange(0.1, 600),
    default=PAUSE_SECONDS,
    show_default=True,
    help="Seconds without data that every proxy should accept.",
)
@server_options
def doctor(
    url: str | None, pause: float, as_json: bool, config: Path | None, server: str | None
) -> int:
    """Check what proxies do to uploads, and say what to change.

    Sends 3 MB to an upload of its own and cancels it. Exits with 1 if there is something to
    change.

    \b
    Example:
      sluice doctor https://videos.example.org
    """  # noqa: D301 - \b is click's mark for text to leave as it is
    levels = set()
    with connected(url or server, config, as_json=as_json) as client:
        for finding in client.examine(pause):
            levels.add(finding.level)
            _print(finding, as_json)
    return SOME_FAILED if Level.CHANGE in levels else OK


def _print(finding: Finding, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "check": finding.check,
                "level": finding.level.value,
                "text": finding.text,
                "advice": list(finding.advice),
            }
        )
        return
    click.echo(f"{MARKS[finding.level]}  {finding.check}: {plain(finding.text)}")
    for line in finding.advice:
        click.echo(f"          {line}")

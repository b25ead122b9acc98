"""The command `upload`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import click

from sluice_client.bundle_sender import Outcome
from sluice_client.cli.connection import connected, transfer_options
from sluice_client.cli.display import progress_display
from sluice_client.cli.output import error_document, exit_code, json_line, plain, say, size_text
from sluice_client.errors import FileProblem, SluiceError
from sluice_client.local_file import LocalFile
from sluice_client.sources import Left, find_files, sendable_name
from sluice_client.uploader import Uploaded


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|FOLDER|PATTERN...|-")
@click.option("--name", metavar="NAME", help="Name on the server, of one file or of -.")
@transfer_options
@click.option("--chunk-bytes", metavar="BYTES", help="Chunk size to start with. [the server's]")
def upload(
    paths: tuple[str, ...],
    *,
    name: str | None,
    as_json: bool,
    config: Path | None,
    **given: str | None,
) -> int:
    """Upload files, and folders with everything below them.

    If a path does not exist, nothing is sent. After an interruption, the same command continues.
    The SHA-256 of each file is compared with the server's at the end. - is standard input, which
    cannot be continued; it needs --name.

    \b
    Examples:
      sluice upload film.mp4
      sluice upload holiday/ "cards/*.mov"
      sluice upload film.mp4 --json | jq -r .url
      ffmpeg -i tape.mov -f matroska - | sluice upload - --name tape.mkv
    """  # noqa: D301 - \b is click's mark for text to leave as it is
    if "-" in paths and (len(paths) > 1 or name is None):
        raise click.UsageError("- is standard input: give it alone, and its name with --name.")
    report = _Report(as_json)
    if paths == ("-",):
        _send_standard_input(report, sendable_name(name or ""), config, **given)
        return exit_code(report.errors)
    found = list(find_files(paths))
    missing = [left for left in found if isinstance(left, Left) and left.is_missing]
    for left in missing or [left for left in found if isinstance(left, Left)]:
        report.left(left)
    if missing:
        say("Nothing was sent: every argument must be a file, a folder or a pattern.")
        return exit_code(report.errors)
    files = [file for file in found if isinstance(file, LocalFile)]
    if name is not None:
        if len(paths) != 1 or not files or not Path(paths[0]).is_file():
            raise click.UsageError("--name is for a single file.")
        files = [replace(files[0], name=sendable_name(name))]
    if files:
        with (
            connected(config=config, as_json=as_json, **given) as client,
            progress_display(as_json=as_json) as display,
        ):
            client.on_wait = display.waiting
            report.result, report.note = display.result, display.note
            client.upload_many(files, on_outcome=report.outcome, on_progress=display)
    report.close()
    return exit_code(report.errors)


def _send_standard_input(
    report: _Report, name: str, config: Path | None, **given: str | None
) -> None:
    if sys.stdin.isatty():
        raise click.UsageError("Standard input is a terminal; - is for pipes.")
    as_json = report.as_json
    with (
        connected(config=config, as_json=as_json, **given) as client,
        progress_display(as_json=as_json) as display,
    ):
        client.on_wait = display.waiting
        report.result, report.note = display.result, display.note
        uploaded = client.upload_stream(sys.stdin.buffer, name, on_progress=display)
        report.succeeded(uploaded)


class _Report:
    """Prints the outcome of each file, and counts."""

    def __init__(self, as_json: bool) -> None:
        self.errors: list[SluiceError] = []
        self.as_json = as_json
        self._done = 0
        self.result: Callable[[str], None] = click.echo
        self.note: Callable[[str], None] = say

    def left(self, left: Left) -> None:
        if left.is_failure:
            self._failed(str(left.path), FileProblem(f"{left.path}: {left.reason}"))
        else:
            say(plain(f"{left.path}: skipped, {left.reason}"))

    def outcome(self, file: LocalFile, outcome: Outcome) -> None:
        if isinstance(outcome, SluiceError):
            self._failed(str(file.path), outcome)
        else:
            self.succeeded(outcome)

    def close(self) -> None:
        if self._done + len(self.errors) > 1:
            say(f"{self._done} stored, {len(self.errors)} failed")

    def succeeded(self, uploaded: Uploaded) -> None:
        self._done += 1
        if self.as_json:
            document = asdict(uploaded)
            document["verified"] = document.pop("is_verified")
            self.result(json_line(document))
        else:
            self.result(f"{plain(uploaded.path)}  {uploaded.url}  {_remark(uploaded)}")

    def _failed(self, path: str, error: SluiceError) -> None:
        self.errors.append(error)
        if self.as_json:
            self.result(json_line({"path": path, "error": error_document(error)}))
        text = str(error)
        self.note(plain(text if text.startswith(path) else f"{path}: {text}"))


def _remark(uploaded: Uploaded) -> str:
    if uploaded.sent == 0 and uploaded.length > 0:
        return "(already on the server)"
    remark = size_text(uploaded.length)
    if uploaded.sent < uploaded.length:
        remark += f", {size_text(uploaded.sent)} sent now"
    return f"({remark}{'' if uploaded.is_verified else ', checksum not compared yet'})"

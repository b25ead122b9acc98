"""The commands together, and how each way of ending becomes an exit code."""

from __future__ import annotations

import os
import sys

import click

from sluice_client.cli.common import INTERRUPTED, PROGRAM, SOME_FAILED, UNREACHABLE, this_command
from sluice_client.cli.completion import completion
from sluice_client.cli.display import plain, say
from sluice_client.cli.doctor import doctor
from sluice_client.cli.fetch import fetch
from sluice_client.cli.library import list_videos, remove, show, status
from sluice_client.cli.upload import upload
from sluice_client.errors import ConnectionFailed, Interrupted, SluiceError

COMPLETE_VARIABLE = "_SLUICE_COMPLETE"

EXIT_CODES = """\b
Exit codes:
  0  all done
  1  some failed; each was named
  2  the command line or a setting is wrong
  3  the server cannot be reached; run it again to go on
  4  interrupted; run it again to go on
  5  the bytes here and on the server differ, or a file changed
"""


@click.group(epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Send large files to a Sluice server and fetch them, over lines that break.

    \b
    Every transfer can be interrupted: the same command goes on where it stood.
      sluice upload film.mp4
      sluice upload holiday/ --json
      sluice fetch 3f2a… -o film.mp4

    The server is --server, else SLUICE_URL, else http://127.0.0.1:8000.
    """  # noqa: D301 - \b is click's mark for text to leave as it is


for command in (upload, fetch, list_videos, show, remove, status, doctor, completion):
    cli.add_command(command)


def main() -> None:
    """Run the command line and end the process."""
    sys.exit(run())


def run() -> int:
    """The exit code of the command that `sys.argv` names."""
    try:
        result = cli.main(
            prog_name=PROGRAM,
            complete_var=COMPLETE_VARIABLE,
            standalone_mode=False,
        )
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except SluiceError as error:
        return _ended(error)
    except BrokenPipeError:
        # Whoever read our output has enough; Python must not fail again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SOME_FAILED
    return result if isinstance(result, int) else 0


def _ended(error: SluiceError) -> int:
    say(plain(str(error)))
    if isinstance(error, Interrupted):
        say(f"What was done is kept. To go on:\n  {plain(this_command())}")
        return INTERRUPTED
    if isinstance(error, ConnectionFailed):
        say(f"What was done is kept. To go on when the server answers:\n  {plain(this_command())}")
        return UNREACHABLE
    return error.exit_code

"""All commands together, and the exit code for each way they end."""

from __future__ import annotations

import errno
import os
import sys
from typing import NoReturn

import click
from click.shell_completion import get_completion_class

from sluice_client.cli.connection import Session
from sluice_client.cli.doctor import doctor
from sluice_client.cli.fetch import fetch
from sluice_client.cli.library import list_videos, remove, rename, show, status
from sluice_client.cli.login import login, logout
from sluice_client.cli.output import INTERRUPTED, PROGRAM, SOME_FAILED, plain, say, this_command
from sluice_client.cli.playback import watch
from sluice_client.cli.signals import run_until_signalled
from sluice_client.cli.upload import upload
from sluice_client.errors import ConnectionFailed, Interrupted, SluiceError

COMPLETE_VARIABLE = "_SLUICE_COMPLETE"
SHOW_CURSOR = "\x1b[?25h"
"""Progress bars hide it."""

EXIT_CODES = """\b
Exit codes:
  0  everything succeeded
  1  some files failed, or the server refused; each is named
  2  the command line or a setting is wrong
  3  the server cannot be reached; run the command again to continue
  4  interrupted; run the command again to continue
  5  the bytes here and on the server differ, or a file changed
"""


@click.group(epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sluice-client", prog_name=PROGRAM)
def cli() -> None:
    """Upload large files to a Sluice server, and fetch them, over unreliable connections.

    \b
    Every transfer can be interrupted; the same command continues it.
      sluice upload film.mp4
      sluice upload holiday/ --json
      sluice fetch 3f2a… -o film.mp4

    The server is --server, SLUICE_URL, `server` in ~/.config/sluice/client.toml or
    http://127.0.0.1:8000, in this order.
    """  # noqa: D301 - \b is click's mark for text to leave as it is


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print a script for shell completion.

    \b
    Example:
      sluice completion bash >> ~/.bashrc
    """  # noqa: D301 - \b is click's mark for text to leave as it is
    completer = get_completion_class(shell)
    if completer is None:
        raise click.UsageError(f"{shell} is not known.")
    root = context.find_root().command
    click.echo(completer(root, {}, PROGRAM, "_SLUICE_COMPLETE").source())
    return 0


for command in (
    upload,
    fetch,
    list_videos,
    show,
    watch,
    rename,
    remove,
    status,
    doctor,
    login,
    logout,
    completion,
):
    cli.add_command(command)


def main() -> None:
    """Run the command line and end the process."""
    session = Session()
    code = run_until_signalled(lambda: run(session), session.stop.set)
    if code is None:
        _leave(_ended(Interrupted("Stopped."), session))
    sys.exit(code)


def run(session: Session | None = None) -> int:
    """The exit code of the command that `sys.argv` names."""
    session = session or Session()
    try:
        result = cli.main(
            prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, standalone_mode=False, obj=session
        )
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except SluiceError as error:
        return _ended(error, session)
    except OSError as error:
        if error.errno not in {errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EDQUOT}:
            raise
        # Standard output is closed, or its disk is full. Python would flush it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EPIPE:
            say(f"Standard output: {os.strerror(error.errno)}.")
        return SOME_FAILED
    return result if isinstance(result, int) else 0


def _ended(error: SluiceError, session: Session) -> int:
    say(plain(str(error)))
    is_resumable = isinstance(error, Interrupted | ConnectionFailed)
    if is_resumable and session.has_kept_bytes:
        say(f"What was transferred is kept. To continue:\n  {plain(this_command())}")
    return error.exit_code


def _leave(code: int) -> NoReturn:
    """End the process without waiting for the threads that are left, or for the locks they hold."""
    if sys.stderr.isatty():
        sys.stderr.write(SHOW_CURSOR)
    sys.stderr.flush()
    os._exit(code)

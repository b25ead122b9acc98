"""The command `completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM = "sluice"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the shell's completion for a command called `sluice`.

    \b
    The command is a file on the PATH that a shell can complete:
      #!/bin/sh
      exec python -m app.client "$@"
    Then, for bash:
      python -m app.client completion bash >> ~/.bashrc
    """  # noqa: D301
    completer = get_completion_class(shell)
    if completer is None:
        raise click.UsageError(f"{shell} is not known.")
    root = context.find_root().command
    click.echo(completer(root, {}, PROGRAM, "_SLUICE_COMPLETE").source())
    return 0

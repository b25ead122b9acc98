"""The command `completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from sluice_client.cli.outcome import PROGRAM


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the script that completes `sluice` in a shell.

    \b
    Example:
      sluice completion bash >> ~/.bashrc
    """  # noqa: D301
    completer = get_completion_class(shell)
    if completer is None:
        raise click.UsageError(f"{shell} is not known.")
    root = context.find_root().command
    click.echo(completer(root, {}, PROGRAM, "_SLUICE_COMPLETE").source())
    return 0

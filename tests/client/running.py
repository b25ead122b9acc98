"""Runs the command line, as a process the way users do, or in this one."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from sluice_client.cli.main import run

SLUICE = Path(sys.executable).with_name("sluice")
"""The command that set-up installs beside the interpreter."""

SOON_SECONDS = 30.0
"""A loaded machine needs some of it to start Python; the retries go on for 15 minutes."""


@dataclass
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def documents(self) -> list[dict[str, Any]]:
        """The lines of `--json`."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class CommandLine:
    """The client with its own home folder and a server."""

    home: Path
    url: str
    extra: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        return {
            **inherited,
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.home / "state"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "SLUICE_URL": self.url,
            **self.extra,
        }

    def start(self, *words: object, stdin: Any = None, **settings: object) -> subprocess.Popen[str]:
        """Start a command; settings such as `CHUNK_BYTES=1` go into the environment."""
        given = {f"SLUICE_CLIENT_{name}": str(value) for name, value in settings.items()}
        process = subprocess.Popen(
            [SLUICE, *map(str, words)],
            cwd=self.home,
            env={**self.environment, **given},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def close(self) -> None:
        """Stop what a failed test left running."""
        for process in self.started:
            if process.returncode is None:
                process.kill()
                finish(process)

    def run(self, *words: object, **settings: object) -> Finished:
        """Run a command to its end, in this process: another takes 0.3 s of CPU time to begin."""
        given = {f"SLUICE_CLIENT_{name}": str(value) for name, value in settings.items()}
        out, err = StringIO(), StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name in [name for name in os.environ if name.startswith("SLUICE_")]:
                patch.delenv(name)
            for name, value in {**self.environment, **given}.items():
                patch.setenv(name, value)
            patch.chdir(self.home)
            patch.setattr(sys, "argv", [str(SLUICE), *map(str, words)])
            code = run()
        return Finished(code, out.getvalue(), err.getvalue())

    def run_alone(self, *words: object, **settings: object) -> Finished:
        """Run a command to its end, as a process."""
        return finish(self.start(*words, **settings))


def finish(process: subprocess.Popen[str]) -> Finished:
    """Wait for a command to end."""
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = process.stdout.read(), process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    return Finished(process.wait(), out, err)


def read_until(terminal: int, expected: bytes) -> bytes:
    """What appears on a terminal, until it has shown something."""
    shown = b""
    deadline = time.monotonic() + SOON_SECONDS
    while expected not in shown:
        left = deadline - time.monotonic()
        assert select.select([terminal], [], [], max(0.0, left))[0], shown
        shown += os.read(terminal, 65536)
    return shown

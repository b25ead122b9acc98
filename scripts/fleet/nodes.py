"""Sluice as a node of a fleet: an ordinary server that shares its database and bucket."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from scripts.fleet.programs import Program

ROOT = Path(__file__).parents[2]
ANSWER_SECONDS = 5


def node(folder: Path, port: int, settings: Mapping[str, str]) -> Program:
    """A node with folders of its own, not started yet."""
    folder.mkdir(exist_ok=True)
    return Program(
        (sys.executable, "-m", "app.run.server.supervisor"),
        folder / "log",
        partial(is_alive, port),
        environment={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SLUICE_PORT": str(port),
            "SLUICE_STAGING_DIR": str(folder / "staging"),
            "SLUICE_DATA_DIR": str(folder / "data"),
            **settings,
        },
    )


def is_alive(port: int) -> bool:
    """Whether a server on this port says that it is alive."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)) as connection:
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False

"""A fleet for development, until Ctrl-C.

PostgreSQL, versitygw, three nodes and nginx in front, which sends any request to any node. Each
start begins with an empty library. Settings such as SLUICE_LOG_LEVEL hold for every node;
SLUICE_PORT is the port of nginx.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import sys
import time
from collections import ChainMap
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NoReturn

from scripts.fleet.nginx import find_nginx, fleet_site, nginx
from scripts.fleet.nodes import ROOT, node
from scripts.fleet.postgresql import Postgresql, find_postgresql
from scripts.fleet.programs import Program, ProgramFailed, can_connect, free_port
from scripts.fleet.s3_servers import TOOLS, versitygw

POLL_SECONDS = 0.2

MARKER = "made-by-fleet"
"""A file in each folder that may be emptied."""


class Fleet:
    """All programs of a fleet, with their files and logs in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._groups: list[dict[str, Program]] = []

    def start_stores(self, cluster: Path) -> dict[str, str]:
        """PostgreSQL, its cluster in a folder of its own, and versitygw; the settings of nodes."""
        programs = find_postgresql() or refuse("PostgreSQL is missing; `make setup-dev`")
        if not (TOOLS / "versitygw").exists():
            refuse("versitygw is missing; `make setup-s3`")
        postgresql = Postgresql(cluster, programs)
        store = versitygw(made(self.folder / "versitygw"))
        self._start({"PostgreSQL": postgresql.program, "versitygw": store.program})
        return {"SLUICE_DATABASE_URL": postgresql.create("sluice"), **store.access.settings()}

    def start_nodes(self, count: int, port: int, settings: Mapping[str, str]) -> None:
        """The nodes, and nginx in front of them at a port."""
        program = find_nginx() or refuse("nginx is missing; `make setup-dev`")
        settings = {**settings, "SLUICE_ACCEL_REDIRECT": "/protected/"}
        ports = [free_port() for _ in range(count)]
        self._start(
            {
                f"node {number}": node(self.folder / f"node{number}", node_port, settings)
                for number, node_port in enumerate(ports, 1)
            }
        )
        front = nginx(program, self.folder / "nginx", fleet_site(port, ports), port)
        self._start({"nginx": front})

    def watch(self) -> NoReturn:
        """Look after the programs; raises `ProgramFailed` when one of them has ended."""
        while True:
            for name, program in ChainMap(*self._groups).items():
                if (status := program.ended()) is not None:
                    raise ProgramFailed(f"{name} ended with {status}; its log:\n{program.tail()}")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Stop the front, then all nodes at once, then what they share."""
        for group in reversed(self._groups):
            for program in group.values():
                program.begin_to_stop()
            for program in group.values():
                program.stop()

    def _start(self, group: dict[str, Program]) -> None:
        """Start programs side by side; return when all of them answer."""
        self._groups.append(group)
        for program in group.values():
            program.launch()
        for program in group.values():
            program.wait_until_ready()


def made(folder: Path) -> Path:
    """The folder, which now exists."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def emptied(folder: Path) -> Path:
    """The folder without what the last fleet left there; ours alone until this process ends.

    Refuses a folder with files of anybody else.
    """
    lock = os.open(made(folder), os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        refuse(f"another fleet runs in {folder}")
    found = list(folder.iterdir())
    if found and folder / MARKER not in found:
        refuse(f"{folder} is not empty, and no fleet made it; choose another, or empty it")
    (folder / MARKER).touch()
    for path in found:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != MARKER:
            path.unlink()
    return folder


def refuse(reason: str) -> NoReturn:
    """End with a message."""
    sys.exit(f"fleet: {reason}")


def stop_on_signals() -> None:
    """SIGTERM ends us as Ctrl-C does, with everything that we started."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        for number in (signal.SIGTERM, signal.SIGINT):  # A second one must not end the clean-up.
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)


def main() -> int:
    """Run a fleet; 0 after Ctrl-C or SIGTERM, 1 if one of its programs ended."""
    parser = argparse.ArgumentParser(prog="make fleet", description=__doc__)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument(
        "--folder", type=Path, default=ROOT / ".fleet", help="logs and files; emptied first"
    )
    options = parser.parse_args()
    port = int(os.environ.get("SLUICE_PORT", "8000"))
    if can_connect(port):
        refuse(f"port {port} is in use; set SLUICE_PORT")
    stop_on_signals()
    with ExitStack() as stack:
        fleet = Fleet(emptied(options.folder.resolve()))
        # Not in the checkout: root's PostgreSQL runs as another user, who may not get there. What
        # an interrupted initdb has started may still write while the folder is removed.
        folder = TemporaryDirectory(prefix="sluice-fleet-", ignore_cleanup_errors=True)
        cluster = Path(stack.enter_context(folder))
        stack.callback(fleet.stop)
        try:
            fleet.start_nodes(options.nodes, port, fleet.start_stores(cluster))
            print(
                f"{options.nodes} nodes serve at http://127.0.0.1:{port}; logs: {fleet.folder}",
                flush=True,
            )
            fleet.watch()
        except KeyboardInterrupt:
            print("stopping", flush=True)
        except ProgramFailed as failure:
            print(f"fleet: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

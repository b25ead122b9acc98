"""The client alone: installed from `client/` into an environment without the server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from tests.client.conftest import MakeFile
from tests.client.running import CommandLine
from tests.live_server import ROOT, Server

pytestmark = pytest.mark.e2e

PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with only the client and its declared dependencies."""
    folder = tmp_path_factory.mktemp("alone")
    venv.create(folder / "venv", symlinks=True)
    options = ("--no-index", "--no-deps", "--no-build-isolation")
    subprocess.run([*PIP, "wheel", *options, "-w", folder, ROOT / "client"], check=True)
    (wheel,) = folder.glob("sluice_client-*.whl")
    python = folder / "venv" / "bin" / "python"
    subprocess.run(
        [*PIP, "--python", python, "install", "--no-index", "--no-deps", wheel], check=True
    )
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    link_distributions(declared_dependencies(), packages)
    return folder / "venv"


def declared_dependencies() -> list[str]:
    project = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]
    return [name_of(requirement) for requirement in project["dependencies"]]


def link_distributions(names: list[str], packages: Path) -> None:
    """Link distributions of this environment, with their dependencies, into another."""
    waiting, linked = list(names), set()
    while waiting:
        name = waiting.pop()
        if name in linked:
            continue
        linked.add(name)
        distribution = metadata.distribution(name)
        for top in sorted({file.parts[0] for file in distribution.files or [] if file.parts}):
            source = Path(str(distribution.locate_file(top)))
            if top != ".." and source.exists() and not (packages / top).exists():
                (packages / top).symlink_to(source)
        waiting += requirements_of(distribution)


def requirements_of(distribution: metadata.Distribution) -> Iterator[str]:
    for requirement in distribution.requires or []:
        if ";" not in requirement:  # none of ours needs one of another platform or extra
            yield name_of(requirement)


def name_of(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match
    return match[0]


def test_the_client_installs_alone_and_works_from_any_folder(
    environment: Path, server: Server, command: CommandLine, make_file: MakeFile, tmp_path: Path
) -> None:
    path = make_file(size=2_000_000)

    def run(program: str, *words: object) -> str:
        return subprocess.run(
            [environment / "bin" / program, *map(str, words)],
            cwd=tmp_path,
            env=command.environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout

    video = json.loads(run("sluice", "upload", path, "--json"))["id"]
    run("python", "-m", "sluice_client", "fetch", video, "-o", "copy")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["app", "flask", "sqlalchemy"])
def test_the_environment_of_that_test_has_no_server(environment: Path, name: str) -> None:
    probe = f"import importlib.util as u, sys; sys.exit(u.find_spec({name!r}) is not None)"
    python = environment / "bin" / "python"
    assert subprocess.run([python, "-I", "-c", probe], check=False).returncode == 0


def test_setup_installs_the_command_beside_the_interpreter() -> None:
    shown = subprocess.run(
        [Path(sys.executable).with_name("sluice"), "--help"],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.startswith("Usage: sluice ")

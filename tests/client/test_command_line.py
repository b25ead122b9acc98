"""The commands as scripts and people use them: output, exit codes, settings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from scripts.fleet.programs import free_port
from sluice_client import sources
from sluice_client.cli.bars import layout
from sluice_client.cli.main import run
from sluice_client.stream_upload import CHUNK_BYTES
from tests.client.bad_line import BadLine, Line, sometimes
from tests.client.conftest import MakeFile
from tests.client.running import SLUICE, CommandLine
from tests.dropzone_client import crc32c_of, random_bytes
from tests.live_server import Server
from tests.long_tests import long

pytestmark = pytest.mark.e2e


def test_upload_and_fetch_print_one_json_object_per_file(
    server: Server, command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    path = make_file(size=100_000)
    (uploaded,) = command.run_alone("upload", path, "--json").documents
    assert uploaded["path"] == str(path)
    assert uploaded["media"] == f"/media/{uploaded['id']}"
    assert uploaded["url"] == f"{server.url}/media/{uploaded['id']}"
    (fetched,) = command.run_alone("fetch", uploaded["url"], "-o", "copy.mp4", "--json").documents
    assert fetched["path"] == "copy.mp4"
    assert fetched["crc32c"] == uploaded["crc32c"]
    assert (home / "copy.mp4").read_bytes() == path.read_bytes()


def test_show_ls_status_and_rm_print_json(command: CommandLine, make_file: MakeFile) -> None:
    (uploaded,) = command.run("upload", make_file(), "--json").documents
    video = uploaded["id"]
    assert command.run("show", video, "--json").documents[0]["crc32c"] == uploaded["crc32c"]
    assert command.run("ls", "--json", "--limit", "1").documents[0]["id"] == video
    assert command.run("status", video, "--json").documents[0]["missing"] == []
    assert command.run("rm", video, "--json").documents == [{"id": video, "removed": True}]
    gone = command.run("show", video, "--json")
    assert gone.code == 1
    assert gone.err.strip() == "The upload was deleted."


def test_without_json_there_are_lines_for_people(command: CommandLine, make_file: MakeFile) -> None:
    path = make_file(size=1_500_000)
    done = command.run("upload", path)
    assert str(path) in done.out
    assert "(1.5 MB)" in done.out
    assert "already on the server" in command.run("upload", path).out
    video = done.out.split("/media/")[1].split()[0]
    assert f"{video}  " in command.run("ls").out
    assert "1.5 MB" in command.run("ls").out
    assert "filename      film.mp4" in command.run("show", video).out
    assert "received     0-1500000" in command.run("status", video).out


def test_files_are_renamed_searched_and_sorted(command: CommandLine, make_file: MakeFile) -> None:
    (uploaded,) = command.run("upload", make_file(), "--json").documents
    renamed = command.run("rename", uploaded["id"], "Été & plage.mp4", "--json")
    assert renamed.documents[0]["filename"] == "Été & plage.mp4"
    found = command.run("ls", "--search", "PLAGE & ete", "--sort", "-size", "--json").documents
    assert [video["id"] for video in found] == [uploaded["id"]]
    assert command.run("ls", "--search", "no such name").out == ""
    assert "winter.mp4" in command.run("rename", uploaded["id"], "winter.mp4").out
    refused = command.run("rename", uploaded["id"], " ")
    assert (refused.code, refused.err.strip()) == (1, "The new name is empty.")


def test_fetch_can_write_to_a_pipe(command: CommandLine, make_file: MakeFile, home: Path) -> None:
    path = make_file(size=7_000_000)
    (uploaded,) = command.run("upload", path, "--json").documents
    script = f"sluice fetch {uploaded['id']} --stdout > piped"
    subprocess.run(["sh", "-c", script], cwd=home, env=_with_python(command), check=True)
    assert (home / "piped").read_bytes() == path.read_bytes()
    script = f"sluice fetch {uploaded['id']} --stdout | head -c 100000 > head"
    ended = subprocess.run(
        ["sh", "-c", script], cwd=home, env=_with_python(command), check=True, capture_output=True
    )
    assert (home / "head").read_bytes() == path.read_bytes()[:100_000]
    assert b"Traceback" not in ended.stderr


def _with_python(command: CommandLine) -> dict[str, str]:
    folder = str(Path(sys.executable).parent)
    environment = command.environment
    return {**environment, "PATH": f"{folder}:{environment['PATH']}"}


@pytest.mark.parametrize(
    "words",
    [
        ["upload"],
        ["fetch"],
        ["nonsense"],
        ["upload", "x", "--parallel", "many"],
        ["ls", "--server", "ftp://example.org"],
        ["ls", "--config", "nowhere.toml"],
        ["fetch", "abc", "--stdout", "--json"],
        ["fetch", "abc", "-o", "-", "--json"],
        ["ls", "--server", "http://127.0.0.1:99999"],
        ["ls", "--limit", "100000000000000000000"],
        ["upload", "-"],
        ["upload", "-", "x", "--name", "film.mp4"],
        ["upload", "x", "x", "--name", "film.mp4", "--server", "http://127.0.0.1:1"],
    ],
)
def test_a_wrong_command_line_exits_with_2(
    home: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    (home / "x").write_bytes(b"x")
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "argv", ["client", *words])
    assert run() == 2


def test_a_failed_file_exits_with_1_and_the_others_are_sent(
    command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    path = make_file()
    (home / "broken.mp4").symlink_to("nowhere")
    done = command.run_alone("upload", home / "broken.mp4", path, "--json")
    assert done.code == 1
    assert [("id" in d, "error" in d) for d in done.documents] == [(False, True), (True, False)]
    assert done.documents[0]["error"]["code"] == "file_problem"
    assert f"{home}/broken.mp4: is a broken link" in done.err


def test_a_path_that_does_not_exist_is_named_and_nothing_is_sent(
    command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    path = make_file()
    done = command.run("upload", path, "recordings/", home / "*.xyz", "--json")
    assert done.code == 1
    assert [document["path"] for document in done.documents] == ["recordings", f"{home}/*.xyz"]
    assert {document["error"]["code"] for document in done.documents} == {"file_problem"}
    assert "recordings: no such file or folder" in done.err
    assert "Nothing was sent: every argument must be a file, a folder or a pattern." in done.err
    assert command.run("status").out == ""


def test_an_unreadable_file_is_named(make_file: MakeFile, monkeypatch: pytest.MonkeyPatch) -> None:

    path = make_file()
    monkeypatch.setattr(os, "access", lambda *_: False)
    (left,) = sources.find_files([str(path)])
    assert isinstance(left, sources.Left)
    assert (left.reason, left.is_failure) == ("cannot be read: permission denied", True)


def test_an_unreachable_server_exits_with_3(command: CommandLine, make_file: MakeFile) -> None:
    command.url = f"http://127.0.0.1:{free_port()}"
    for run_words, words in (
        (command.run_alone, ["upload", make_file()]),
        (command.run, ["fetch", "0" * 32]),
        (command.run, ["ls"]),
    ):
        ended = run_words(*words, GIVE_UP_SECONDS=1)
        assert ended.code == 3
        assert f"Cannot reach {command.url} (connection refused)." in ended.err
        assert re.search(r"Gave up after \d+ seconds? without progress\.", ended.err)
        assert "kept" not in ended.err


def test_corrupted_bytes_exit_with_5(
    line: BadLine, slow_command: CommandLine, make_file: MakeFile
) -> None:
    (uploaded,) = slow_command.run("upload", make_file(), "--json").documents
    line.garble = lambda r, block: bytes(len(block)) if r.path.startswith("/media") else block
    ended = slow_command.run_alone("fetch", uploaded["id"], "-o", "copy.mp4")
    assert ended.code == 5
    assert "CRC32C" in ended.err


def test_patterns_are_expanded_for_shells_that_do_not_do_it(
    command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    for name in ("cards/a.mov", "cards/b.mov", "cards/c.txt"):
        make_file(name, 1000)
    done = command.run("upload", home / "cards" / "*.mov", "--json")
    assert [document["name"] for document in done.documents] == ["a.mov", "b.mov"]


def test_the_command_line_overrides_the_environment_overrides_the_file(
    server: Server, command: CommandLine, home: Path
) -> None:
    config = home / "config" / "sluice" / "client.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'server = "{server.url}"\nparallel = 2\n')
    command.url = ""
    assert command.run("ls", "--limit", "1").code == 0
    command.url = "http://127.0.0.1:1"
    assert command.run("ls", "--server", server.url).code == 0
    config.write_text("nonsense = 2\n")
    ended = command.run("ls")
    assert ended.code == 2
    assert "unknown settings: nonsense" in ended.err


def test_a_redirect_is_reported_and_not_followed(line: BadLine, slow_command: CommandLine) -> None:
    line.on_head = sometimes(
        lambda refusing: refusing.answer(
            "301 Moved Permanently", "Location: https://videos.example.org/"
        ),
        after=0,
        times=1,
        path="/",
    )
    ended = slow_command.run("ls")
    assert ended.code == 1
    assert "redirects to https://videos.example.org/" in ended.err


@pytest.mark.parametrize(
    "name", ["upload", "fetch", "ls", "show", "watch", "rm", "status", "doctor"]
)
def test_every_command_has_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["client", name, "--help"])
    assert run() == 0
    shown = capsys.readouterr().out
    assert "--json" in shown
    assert "--server" in shown


def test_the_shell_can_complete_commands(command: CommandLine, home: Path) -> None:
    script = command.run("completion", "bash")
    assert script.code == 0
    assert "_SLUICE_COMPLETE=bash_complete" in script.out
    environment = {
        **command.environment,
        "_SLUICE_COMPLETE": "bash_complete",
        "COMP_WORDS": "sluice up",
        "COMP_CWORD": "1",
    }
    shown = subprocess.run(
        [SLUICE], env=environment, cwd=home, capture_output=True, text=True, check=False
    )
    assert shown.stdout.splitlines() == ["plain,upload"]


def test_standard_input_is_uploaded_and_fetched_to_standard_output(
    command: CommandLine, home: Path
) -> None:
    content = random_bytes(2 * CHUNK_BYTES, 5)
    words = [str(SLUICE), "upload", "-", "--name", "tape.mkv", "--json"]
    printed = subprocess.check_output(words, input=content, env=command.environment, cwd=home)
    uploaded = json.loads(printed)
    assert (uploaded["name"], uploaded["length"]) == ("tape.mkv", len(content))
    assert uploaded["verified"]
    for name in ("-", "/dev/stdout"):
        words = [str(SLUICE), "fetch", uploaded["id"], "-o", name]
        assert subprocess.check_output(words, env=command.environment, cwd=home) == content
    assert not (home / "-").exists()


def test_standard_input_survives_a_broken_line(
    line: BadLine, slow_command: CommandLine, home: Path
) -> None:
    line.on_body = sometimes(Line.cut, after=1_000_000, times=3, path="/tus/")
    content = random_bytes(CHUNK_BYTES + 1_000_000, 6)
    words = [str(SLUICE), "upload", "-", "--name", "tape.mkv", "--json"]
    printed = subprocess.check_output(words, input=content, env=slow_command.environment, cwd=home)
    assert json.loads(printed)["crc32c"] == crc32c_of(content)


def test_an_unknown_id_is_explained(command: CommandLine) -> None:
    ended = command.run("fetch", "0" * 32)
    assert ended.code == 1
    assert ended.err == command.run("show", "0" * 32).err
    assert "status 404" not in ended.err


def test_a_name_that_cannot_be_used_here_is_named(
    command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    (uploaded,) = command.run("upload", make_file(".hidden.mp4"), "--json").documents
    fetched = command.run("fetch", uploaded["id"])
    assert fetched.code == 0
    assert (home / "hidden.mp4").exists()
    assert ".hidden.mp4 is not a name for this folder: saved as hidden.mp4" in fetched.err


@pytest.mark.parametrize("words", [["ls"], ["--help"], *long([(["completion", "bash"],)])])
def test_output_to_a_full_disk_is_an_error_of_one_line(
    command: CommandLine, make_file: MakeFile, words: list[str]
) -> None:
    command.run("upload", make_file())
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [SLUICE, *words],
            env=command.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (1, b"Standard output: No space left on device.\n")


def test_bytes_that_are_no_text_are_searched_for_as_they_were_stored(
    command: CommandLine, home: Path
) -> None:
    name = os.fsdecode(b"latin\xe9.mov")
    (home / name).write_bytes(b"old name")
    command.run("upload", home / name)
    found = command.run("ls", "--search", name)
    assert found.code == 0
    assert "latin\ufffd.mov" in found.out


def test_the_version_is_that_of_the_package(command: CommandLine) -> None:
    assert command.run("--version").out == f"sluice, version {version('sluice-client')}\n"


def test_a_signal_during_the_imports_ends_the_command_like_a_later_one(
    command: CommandLine, home: Path
) -> None:
    hook = home / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Hook:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'requests':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Hook())\n"
    )
    command.extra = {"PYTHONPATH": str(hook)}
    ended = command.run_alone("ls")
    assert (ended.code, ended.err) == (4, "Stopped.\n")


@pytest.mark.parametrize(
    ("width", "shown", "name_characters"),
    [
        (200, ["speed", "time", "bar", "size"], 32),
        (80, ["speed", "time", "bar", "size"], 12),
        (79, ["time", "bar", "size"], 22),
        (60, ["bar", "size"], 13),
        (40, ["size"], 18),
        (20, [], 14),
        (5, [], 1),
    ],
)
def test_a_narrow_terminal_loses_the_speed_then_the_time_then_the_bar(
    width: int, shown: list[str], name_characters: int
) -> None:
    assert layout(width) == (shown, name_characters)

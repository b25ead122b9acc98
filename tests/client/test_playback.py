"""What the command line says about playing films, and the renditions it fetches."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice_client.cli.playback import duration_text, playback_lines
from tests.client.conftest import MakeFile
from tests.client.film_server import FILM, RENDITION, FilmServer, film_server
from tests.client.running import SLUICE, CommandLine, read_until

pytestmark = pytest.mark.e2e

MAKING = {"state": "making", "progress": 0.4}
READY = {"state": "ready", "progress": 1.0}

PLAYBACK = {
    "state": "playable",
    "duration": 3724.6,
    "width": 3840,
    "height": 2160,
    "frame_rate": 29.97002997,
    "hdr": "PQ",
    "tracks": [
        {"kind": "video", "codec": "hvc1.2.4.L153", "language": "und", "bit_rate": 42_000_000},
        {"kind": "audio", "codec": "mp4a.40.2", "language": "de", "channels": 6, "bit_rate": 384e3},
        {"kind": "audio", "codec": "opus", "language": "en", "title": "Comments", "channels": 3},
        {"kind": "text", "codec": "tx3g", "language": "fr"},
    ],
    "chapters": [{"start": 0, "title": "One"}],
    "renditions": [
        {"height": 1080, "state": "failed", "progress": None},
        {"height": 720, "state": "making", "progress": 0.4},
        {"height": 360, "state": "on_demand", "progress": None},
    ],
}


@pytest.fixture
def film() -> Iterator[FilmServer]:
    """A server with a film."""
    with film_server() as running:
        yield running


@pytest.fixture
def cinema(command: CommandLine, film: FilmServer) -> CommandLine:
    """The command line, with the server that has a film."""
    command.url = film.url
    return command


def test_the_playback_of_a_film_is_said_in_words() -> None:
    assert dict(playback_lines(PLAYBACK)) == {
        "playback": "playable",
        "duration": "1:02:05",
        "picture": "3840 x 2160, 29.97 frames/s, HDR (PQ)",
        "track 1": "video, HEVC (hvc1.2.4.L153), 42.0 Mbit/s",
        "track 2": "audio, AAC (mp4a.40.2), de, 5.1, 384 kbit/s",
        "track 3": "audio, opus, en, Comments, 3 channels",
        "track 4": "text, tx3g, fr",
        "chapters": "1",
        "1080p": "could not be made",
        "720p": "being made, 40 %",
        "360p": "made when it is watched",
    }


def test_a_file_that_cannot_be_played_says_why() -> None:
    problem = {"code": "no_film", "detail": "This file contains no film."}
    lines = dict(playback_lines({"state": "unplayable", "problem": problem, "tracks": []}))
    assert lines == {"playback": "not playable: This file contains no film."}


def test_what_is_not_known_yet_is_left_out() -> None:
    lines = dict(playback_lines({"state": "waiting", "duration": None, "width": None}))
    assert lines == {"playback": "the server has not looked at this file yet"}
    assert dict(playback_lines({})) == {}


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (61, "1:01"), (3599.6, "1:00:00"), (36_000, "10:00:00")]
)
def test_durations_are_written_as_players_do(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_show_has_the_words_and_json_the_document(cinema: CommandLine, film: FilmServer) -> None:
    film.playback = {"state": "playable", "duration": 8.0}
    assert "duration  0:08\n720p      made when it is" in cinema.run("show", FILM).out
    assert cinema.run("show", FILM, "--json").documents == [film.video()]


def test_a_rendition_is_asked_for_awaited_and_fetched(
    cinema: CommandLine, film: FilmServer, home: Path
) -> None:
    film.states = [MAKING, MAKING, READY]
    done = cinema.run("fetch", FILM, "--rendition", 720, "-o", "small.mp4")
    assert done.code == 0
    assert (home / "small.mp4").read_bytes() == RENDITION
    assert "720p is being made: 40 %" in done.err
    assert film.requests.count(f"POST /api/videos/{FILM}/renditions/720") == 1


def test_a_rendition_that_is_ready_is_fetched_at_once(
    cinema: CommandLine, film: FilmServer, home: Path
) -> None:
    film.states, film.has_rendition = [READY], True
    (fetched,) = cinema.run("fetch", FILM, "--rendition", 720, "--json").documents
    assert (fetched["path"], fetched["length"]) == (f"{FILM} 720p.mp4", len(RENDITION))
    assert fetched["verified"] is False
    assert (home / fetched["path"]).read_bytes() == RENDITION
    assert not [request for request in film.requests if request.startswith("POST")]


def test_a_rendition_that_is_here_cannot_be_compared(
    cinema: CommandLine, film: FilmServer, home: Path
) -> None:
    film.states, film.has_rendition = [READY], True
    path = home / f"{FILM} 720p.mp4"
    path.write_bytes(RENDITION)
    again = cinema.run("fetch", FILM, "--rendition", 720)
    assert again.code == 1
    assert "exists, and the server has no checksum to compare it with. Use --force" in again.err
    path.write_bytes(b"of another size")
    assert "exists and is another file" in cinema.run("fetch", FILM, "--rendition", 720).err
    assert cinema.run("fetch", FILM, "--rendition", 720, "--force").code == 0
    assert path.read_bytes() == RENDITION


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (
            {"state": "failed", "problem": {"code": "x", "detail": "The encoder ended with 1."}},
            "The server could not make 720p: The encoder ended with 1.",
        ),
        ({"state": "failed"}, "The server could not make 720p."),
        ({"state": "on_demand"}, "The server no longer makes 720p: it was cancelled."),
    ],
)
def test_a_rendition_that_is_not_made_is_an_error_in_words(
    cinema: CommandLine, film: FilmServer, home: Path, last: dict[str, object], said: str
) -> None:
    film.states = [MAKING, MAKING, last]
    ended = cinema.run("fetch", FILM, "--rendition", 720, "-o", "small.mp4")
    assert (ended.code, ended.err.splitlines()[-1]) == (1, said)
    assert list(home.glob("small*")) == []


def test_a_rendition_cancelled_before_the_first_look_is_not_waited_for(
    cinema: CommandLine, film: FilmServer
) -> None:
    film.states = [{"state": "on_demand"}]
    ended = cinema.run("fetch", FILM, "--rendition", 720)
    assert (ended.code, ended.err.splitlines()[-1]) == (
        1,
        "The server no longer makes 720p: it was cancelled.",
    )


def test_a_server_that_makes_no_renditions_is_quoted(cinema: CommandLine, film: FilmServer) -> None:
    film.refusal = {"status": 409, "code": "renditions_off", "detail": "It makes no renditions."}
    ended = cinema.run("fetch", FILM, "--rendition", 720)
    assert (ended.code, ended.err) == (1, "It makes no renditions.\n")


def test_on_a_terminal_a_bar_shows_how_much_is_made(cinema: CommandLine, film: FilmServer) -> None:
    film.states = [MAKING, MAKING, READY]
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [SLUICE, "fetch", FILM, "--rendition", "720", "-o", cinema.home / "small.mp4"],
        env=cinema.environment,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = read_until(ours, b"checksum")
    os.close(ours)
    assert b"720p is being made" in shown
    assert b"40 %" in shown
    assert process.returncode == 0


def test_watch_opens_the_page_in_the_browser_and_prints_its_address(
    command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    (stored,) = command.run("upload", make_file(), "--json").documents
    browser = home / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {home}/opened\n')
    browser.chmod(0o755)
    command.extra = {"BROWSER": f"{browser} %s"}
    url = f"{command.url}/watch/{stored['id']}"
    assert command.run("watch", stored["url"]).out == f"{url}\n"
    assert (home / "opened").read_text() == f"{url}\n"
    assert command.run("watch", stored["id"], "--json").documents == [{"url": url, "opened": True}]


def test_watch_without_a_browser_prints_the_address_and_says_so(
    command: CommandLine, make_file: MakeFile
) -> None:
    (stored,) = command.run("upload", make_file(), "--json").documents
    command.extra = {"BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": "", "PATH": "/nonexistent"}
    ended = command.run("watch", stored["id"])
    assert (ended.code, ended.out) == (0, f"{command.url}/watch/{stored['id']}\n")
    assert "No browser was found" in ended.err


def test_watch_of_an_unknown_film_is_an_error(command: CommandLine) -> None:
    ended = command.run("watch", "0" * 32)
    assert ended.code == 1
    assert ended.out == ""

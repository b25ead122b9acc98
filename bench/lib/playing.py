"""What a player does with a video on our server: waits until it plays, and asks for its parts."""

from __future__ import annotations

import time
from typing import Any

from bench.lib.client import Connection, RequestFailed
from bench.lib.harness import BenchServer

PATIENCE_SECONDS = 120.0
LOOK_SECONDS = 0.02
"""Between two looks; each costs the server a millisecond or two."""

PLAYS = frozenset({"playable", "ready"})


def await_playable(port: int, video: str) -> None:
    """Return once the video plays as one file and as HLS, and the first bytes of both came."""
    with Connection(port) as connection:
        await_playback(connection, video, PLAYS)
        connection.get(f"/media/{video}/play.mp4", (0, 2))
        connection.get(f"/media/{video}/hls/source/1.m4s")


def await_playback(connection: Connection, video: str, states: frozenset[str]) -> dict[str, Any]:
    """A video's `playback`, once it is in one of the states and has segments."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        playback: dict[str, Any] = connection.json(f"/api/videos/{video}")["playback"]
        if playback["state"] in states and playback["playable"]["hls"]:
            return playback
        time.sleep(LOOK_SECONDS)
    raise TimeoutError(f"the video does not play: {playback}")


def made_bytes(server: BenchServer, video: str) -> int:
    """The disk that a video takes beside its original."""
    folder = server.library.parent / "media" / video
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def parts_of(connection: Connection, playlist: str) -> list[str]:
    """Paths of the parts of a media playlist, what comes before the first segment included."""
    folder = playlist.rpartition("/")[0]
    lines = connection.text(playlist).splitlines()
    head = [line.split('"')[1] for line in lines if line.startswith("#EXT-X-MAP:")]
    return [f"{folder}/{name}" for name in (*head, *(line for line in lines if line[:1] != "#"))]


def segment_seconds(connection: Connection, playlist: str) -> list[float]:
    """Lengths of its segments."""
    lines = connection.text(playlist).splitlines()
    return [float(line[8:].partition(",")[0]) for line in lines if line.startswith("#EXTINF:")]


def get_patiently(port: int, path: str) -> int:
    """GET what may have to be made first, and ask again as often as told to; the body's length."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with Connection(port) as connection:
                return connection.get(path)
        except RequestFailed as refused:
            if time.monotonic() > deadline or not str(refused).startswith("503"):
                raise
            time.sleep(LOOK_SECONDS)

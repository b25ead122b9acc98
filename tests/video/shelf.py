"""Films on a live server, each uploaded when a test first asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.live_server import Server
from tests.video.films import FilmStore
from tests.waiting import wait_until

UNDECIDED = {"waiting", "probed"}
SETTLED = {"ready", "unplayable"}


@dataclass(frozen=True)
class Shelved:
    """A film on a server: where its URLs begin, and what the server says of its playback."""

    path: str
    url: str
    playback: dict[str, Any]

    @property
    def id(self) -> str:
        """The video's."""
        return self.path.rpartition("/")[2]


class Shelf:
    """A server's films by name."""

    def __init__(self, server: Server, film: FilmStore) -> None:
        self.server = server
        self._film = film
        self._shelved: dict[str, Shelved] = {}

    def __getitem__(self, name: str) -> Shelved:
        """The film of this name, once the server knows whether it can be played."""
        if name not in self._shelved:
            self._shelved[name] = self._upload(name)
        return self._shelved[name]

    def with_segments(self, name: str) -> Shelved:
        """The film of this name, once its segments are cut, which comes a moment later."""
        shelved = self[name]

        def has_segments() -> bool:
            return bool(self.look_at(shelved)["playable"]["hls"])

        wait_until(has_segments, f"{name} has segments")
        return shelved

    def when_made(self, name: str) -> Shelved:
        """The film of this name, once nothing more is made of it."""
        shelved = self[name]
        wait_until(lambda: self.look_at(shelved)["state"] in SETTLED, f"{name} is made")
        return shelved

    def look_at(self, shelved: Shelved) -> dict[str, Any]:
        """What the server says of the playback now; noted in `shelved`."""
        video = self.server.get(shelved.path.replace("/media/", "/api/videos/")).json()
        shelved.playback.update(video["playback"])
        return shelved.playback

    def with_qualities(self, name: str) -> Shelved:
        """The film of this name, once it is offered in other qualities: the server has to measure
        itself first.
        """
        shelved = self.with_segments(name)

        def has_qualities() -> bool:
            return bool(self.look_at(shelved)["renditions"])

        wait_until(has_qualities, f"{name} is offered in other qualities")
        return shelved

    def _upload(self, name: str) -> Shelved:
        with self._film(name).open("rb") as file:
            answer = self.server.post("/upload", files={"file": (name, file)})
        answer.raise_for_status()
        path = f"/media/{answer.json()['id']}"
        shelved = Shelved(path, self.server.url + path, {})

        def is_decided() -> bool:
            return self.look_at(shelved)["state"] not in UNDECIDED

        wait_until(is_decided, f"{name} is playable or not")
        return shelved

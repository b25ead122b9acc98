"""What has become of complete files: neither memory nor disk grow with the length of a run."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from threading import Lock

import requests

from tests.hostile.senders import Crowd, Sender, when_free
from tests.live_server import Server

GONE = {404, 410}

MOST_REMOVED = 2
"""Files that one call deletes at most. With one, each failed try would leave a file too many;
two catch up as long as fewer than half of the tries fail."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The files of a sender, by their SHA-256; with its bytes the sender is forgotten."""

    sender: str
    files: Mapping[str, str]
    length: int


class Archive:
    """Files that clients were told are complete; beyond `most_bytes`, the oldest are deleted.

    Before that each is read from any node. What no node answers about is asked again later. Each
    `keep` may delete two files, so that it catches up after a time in which no node answered.
    """

    def __init__(self, crowd: Crowd, most_bytes: int) -> None:
        self.received_bytes = 0
        self.checked_files = 0
        self._crowd = crowd
        self._most_bytes = most_bytes
        self._kept = deque[Kept]()
        self._deleting = deque[str]()
        self._bytes = 0
        self._lock = Lock()

    def keep(self, sender: Sender) -> None:
        """Remember what a sender was told, and delete the oldest if there is too much."""
        length = len(sender.content) if sender.files else 0
        with self._lock:
            self.received_bytes += length
            self._bytes += length
            self._kept.append(Kept(str(sender), sender.files, length))
        for old in self._oldest_beyond_limit():
            self._remove(old, sender.rng)

    def check(self) -> None:
        """Assert that every file is there and whole, and that those deleted are gone."""
        for kept in self._kept:
            for upload_id, sha256 in kept.files.items():
                self._crowd.check_file(upload_id, sha256, kept.sender)
        server = self._crowd.line.servers[0]
        for upload_id in self._deleting:
            deleted = when_free(partial(server.delete, f"/api/videos/{upload_id}"))
            assert deleted.status_code in {204, *GONE}, deleted.text
            gone = when_free(partial(server.get, f"/media/{upload_id}"))
            assert gone.status_code in GONE, gone.text

    def _oldest_beyond_limit(self) -> list[Kept]:
        """Up to two that nobody else removes meanwhile."""
        oldest = list[Kept]()
        with self._lock:
            excess = self._bytes - self._most_bytes
            while self._kept and excess > 0 and len(oldest) < MOST_REMOVED:
                oldest.append(self._kept.popleft())
                excess -= oldest[-1].length
        return oldest

    def _remove(self, kept: Kept, rng: Random) -> None:
        server = rng.choice(self._crowd.line.servers)
        left = dict(kept.files)
        for upload_id, sha256 in kept.files.items():
            if not self._is_read(server, upload_id, sha256, kept.sender):
                break
            del left[upload_id]
            self._delete(server, upload_id)
        with self._lock:
            if left:
                self._kept.append(Kept(kept.sender, left, kept.length))
            else:
                self._bytes -= kept.length

    def _is_read(self, server: Server, upload_id: str, sha256: str, sender: str) -> bool:
        """Whether the node returns the file; asserts that it is what was sent."""
        try:
            answer = server.get(f"/media/{upload_id}")
        except requests.RequestException:
            return False
        if answer.status_code == 200:
            assert hashlib.sha256(answer.content).hexdigest() == sha256, sender
            self.checked_files += 1
        return answer.status_code == 200

    def _delete(self, server: Server, upload_id: str) -> None:
        try:
            is_gone = server.delete(f"/api/videos/{upload_id}").status_code in {204, *GONE}
        except requests.RequestException:
            is_gone = False
        if not is_gone:
            self._deleting.append(upload_id)

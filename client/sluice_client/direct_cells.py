"""Sends cells of uploads straight to the bucket of the server, at URLs that the server signs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import requests

from sluice_client.errors import ConnectionFailed, Refused, SluiceError
from sluice_client.hashing import Kind, find_crc32c, hash_of
from sluice_client.local_file import FileSlice
from sluice_client.spans import Span
from sluice_client.transport import Transport, json_object

FAILURES_IN_A_ROW = 2
"""Failed cells after which everything goes through the server."""

LONGEST_CELL_SECONDS = 120.0
"""If a cell takes longer, the bytes go to the server, in chunks that fit the line: a cell is lost
whole when its connection breaks."""


MOST_CELLS_AT_ONCE = 8
CELLS_SECONDS = 15.0
"""One request asks for the URLs of several cells, and one reports them: of as many as a connection
sends in this time. What was not reported before a crash is sent again."""

SHORTEST_SECONDS = 0.001
"""For a cell, whatever the clock says."""


class BucketFailed(SluiceError):
    """The bucket did not take a cell; it is sent again, perhaps to the server."""


class NotDirect(BucketFailed):
    """The server wants the bytes of this upload itself."""


class DirectCells:
    """Sends cells to the bucket while it seems reachable. Thread-safe."""

    def __init__(
        self,
        server: Transport,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._clock = clock
        # Without the API key, which is for the server alone.
        self._bucket = Transport(server.options.for_server(""), server.stop)
        self._has_checksum = find_crc32c() is not None
        self._failures = 0
        self._sent = set[tuple[str, int]]()
        self._offers = dict[tuple[str, int], dict[str, Any]]()
        self._cell_seconds = CELLS_SECONDS
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close every connection to the bucket."""
        self._bucket.close()

    @property
    def is_usable(self) -> bool:
        """Whether cells may go to the bucket."""
        return self._has_checksum and self._failures < FAILURES_IN_A_ROW

    def may_send(self, upload_id: str, start: int) -> bool:
        """Whether the cell of an upload that starts there may go to the bucket.

        Only once: the bucket keeps nothing of a request that breaks off, and the server keeps what
        has arrived. So a line that breaks often costs each cell at most once.
        """
        return (upload_id, start) not in self._sent

    @property
    def cells_at_once(self) -> int:
        """How many cells to send with one `send`."""
        return max(1, min(MOST_CELLS_AT_ONCE, int(CELLS_SECONDS / self._cell_seconds)))

    def send(
        self,
        upload_id: str,
        descriptor: int,
        *,
        cells: Sequence[Span],
        body: Callable[[Span], FileSlice],
    ) -> int:
        """Return once the server counts cells, with the end of the last one that it counts.

        If sending fails after the first cell, that is before the end of the last. If it fails
        before, this raises any `SluiceError`: `BucketFailed` if only the bucket has failed.
        """
        promised = [self._promise(descriptor, cell) for cell in cells]
        path = f"/api/uploads/{upload_id}/cells"
        self._ask_for_urls(upload_id, path, promised)
        stored = 0
        try:
            for cell in cells:
                self._store((upload_id, cell.start), body(cell))
                stored += 1
        except SluiceError:
            if not stored:
                raise
        self._server.patiently(lambda: self._ask(f"{path}/stored", promised[:stored]))
        if stored == len(cells):
            self._succeeded()
        return cells[stored - 1].end

    def _promise(self, descriptor: int, cell: Span) -> dict[str, Any]:
        checksum = hash_of(descriptor, cell.start, cell.end, Kind.CRC32C).result()
        return {"start": cell.start, "length": cell.length, "crc32c": checksum}

    def _ask_for_urls(self, upload_id: str, path: str, promised: Sequence[dict[str, Any]]) -> None:
        """Ask for those not there from an earlier request: the server signs four for a cell."""
        new = [each for each in promised if (upload_id, each["start"]) not in self._offers]
        for offer in self._ask(path, new)["cells"] if new else ():
            self._offers[upload_id, offer["start"]] = offer

    def _store(self, place: tuple[str, int], body: FileSlice) -> None:
        offer = self._offers.pop(place)
        if not offer["stored"]:
            began = self._clock()
            self._sent.add(place)
            if "url" not in offer:
                raise BucketFailed("The server wants a part of the file itself.")
            self._put(offer, body)
            self._cell_seconds = max(self._clock() - began, SHORTEST_SECONDS)

    def _succeeded(self) -> None:
        is_slow = self._cell_seconds > LONGEST_CELL_SECONDS
        with self._lock:
            if self.is_usable:
                self._failures = FAILURES_IN_A_ROW if is_slow else 0

    def _ask(self, path: str, promised: Sequence[dict[str, Any]]) -> dict[str, Any]:
        try:
            return json_object(self._server.request("POST", path, json={"cells": promised}))
        except Refused as error:
            if error.code == "not_direct":
                raise NotDirect(str(error)) from error
            if error.code != "cell_not_stored":
                raise
            raise self._failed(str(error)) from error

    def _put(self, offer: dict[str, Any], body: FileSlice) -> None:
        request = {"data": body, "headers": offer["headers"], "auth": _no_credentials}
        try:
            self._bucket.request(offer["method"], offer["url"], **request)
        except ConnectionFailed as error:
            self._server.request("GET", "/healthz")  # Raises if the network is down.
            raise self._failed(str(error)) from error
        except Refused as error:
            raise self._failed(str(error)) from error

    def _failed(self, reason: str) -> BucketFailed:
        with self._lock:
            self._failures += 1
        return BucketFailed(f"The bucket did not take a part of the file: {reason}")


def _no_credentials(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Add no credentials from ~/.netrc: the URL has its own."""
    return request

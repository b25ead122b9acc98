"""104 (Upload Resumption Supported): interim responses while a body arrives."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from app.ingest.gunicorn_socket.connection import send_interim
from app.protocols.ietf.versions import InteropVersion

STATUS = "104 Upload Resumption Supported"

PROGRESS_SECONDS = 1.0
"""Offsets are told at most this often; the core records them about as often."""


class Interim:
    """Interim responses to one request.

    With `version` None none is sent: the draft forbids it for clients that name no version we
    speak (appendix "Draft Version Identification"), and a proxy may not let it through.
    """

    def __init__(self, environ: dict[str, Any], version: InteropVersion | None) -> None:
        self._environ = environ
        self._version = version
        self._offset = 0
        self._told_at = time.monotonic()

    def announce(self, headers: Mapping[str, str]) -> None:
        """Tell where the upload resource is, and its limits."""
        self._send(headers)

    def progress(self, offset: int) -> None:
        """Tell that the bytes before `offset` are safe, unless the last one was just told."""
        is_due = time.monotonic() - self._told_at >= PROGRESS_SECONDS
        if is_due and offset > self._offset and self._version and self._version.has_progress:
            self._offset, self._told_at = offset, time.monotonic()
            self._send({"Upload-Offset": str(offset)})

    def _send(self, headers: Mapping[str, str]) -> None:
        if self._version is not None:
            number = str(self._version.number)
            lines = {"Upload-Draft-Interop-Version": number, **headers}
            send_interim(self._environ, STATUS, lines)

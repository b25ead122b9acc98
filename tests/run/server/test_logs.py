"""What the access log says about a request, and in which format."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest

from app.run.server.logs import (
    JsonFormatter,
    TextFormatter,
    formatter_of,
    without_codes,
)
from tests.dropzone_client import random_bytes
from tests.live_server import Server
from tests.waiting import wait_until

HOSTILE = "\x1b\x7f\x80\x9b\u2028\u202e\u2066\x00"


def record_of(message: str) -> logging.LogRecord:
    return logging.LogRecord("app", logging.INFO, "", 0, message, (), None)


def test_nothing_in_a_json_line_moves_a_terminals_cursor() -> None:
    line = JsonFormatter().format(record_of(f"é{HOSTILE}"))
    assert not set(line) & set(HOSTILE)
    assert json.loads(line)["message"] == f"é{HOSTILE}"


def test_nothing_in_a_text_line_moves_a_terminals_cursor() -> None:
    line = TextFormatter().format(record_of(f"é{HOSTILE}\r"))
    assert not set(line) & {*HOSTILE, "\r"}
    assert "é\\u001b\\u007f\\u0080\\u009b\\u2028" in line


def test_people_get_text_and_programs_json() -> None:
    stream = io.StringIO()
    assert isinstance(formatter_of(stream), JsonFormatter)
    stream.isatty = lambda: True  # type: ignore[method-assign]
    assert isinstance(formatter_of(stream), TextFormatter)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/s/secret", "/s/***"),
        ("/u/secret/tus/1", "/u/***/tus/1"),
        ("/set-up/secret", "/set-up/***"),
        ("/join/secret", "/join/***"),
        ("/reset/secret", "/reset/***"),
        ("/media/1/hls/a", "/media/1/hls/a"),
    ],
)
def test_the_log_keeps_no_code_of_a_link(path: str, shown: str) -> None:
    assert without_codes(path) == shown


# ---- of a running server -------------------------------------------------------------------------


def entry_of(server: Server, request_id: str) -> dict[str, Any]:
    """The log line of a request, which is written a moment after the answer."""
    mark, found = f'"request_id": "{request_id}"', list[str]()

    def is_there() -> bool:
        found[:] = [line for line in server.log.splitlines() if mark in line]
        return bool(found)

    wait_until(is_there, "the request is logged")
    entry: dict[str, Any] = json.loads(found[0])
    return entry


@pytest.mark.e2e
def test_a_path_is_shown_as_text_and_its_control_characters_are_escaped(server: Server) -> None:
    path = "/media/%C3%A9%7F%C2%9B%E2%80%AE%9B"
    with server.connect() as connection:
        connection.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: hostile-path\r\n\r\n".encode()
        )
        connection.recv(65536)
    entry = entry_of(server, "hostile-path")
    assert entry["path"] == "/media/é\x7f\x9b\u202e\\x9b"
    assert not set(server.log) & {"\x7f", "\x9b", "\u202e"}


@pytest.mark.e2e
def test_sent_bytes_are_those_that_went_out(server: Server) -> None:
    content = random_bytes(3_000_000, 7)
    media = server.post("/upload", files={"file": ("a.mp4", content)}).json()["media"]
    server.get(media, headers={"X-Request-ID": "whole-file"})
    server.get(media, headers={"X-Request-ID": "one-range", "Range": "bytes=10-1009"})
    server.get("/healthz", headers={"X-Request-ID": "small-answer"})
    assert entry_of(server, "whole-file")["sent"] == len(content)
    assert entry_of(server, "one-range")["sent"] == 1000
    assert 0 < entry_of(server, "small-answer")["sent"] < 1000


@pytest.mark.e2e
def test_received_bytes_are_those_that_arrived(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(
            b"POST /upload?dzuuid=a&dztotalfilesize=4398046511104&dzchunkindex=0&filename=a.mp4"
            b"&dztotalchunkcount=1&dzchunksize=4398046511104&dzchunkbyteoffset=0 HTTP/1.1\r\n"
            b"Host: localhost\r\nX-Request-ID: refused\r\nContent-Length: 4398046511104\r\n\r\n"
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
    assert entry_of(server, "refused")["received"] == 0
    server.post("/upload", files={"file": ("a.mp4", bytes(500_000))}, headers={"X-Request-ID": "b"})
    assert 500_000 < entry_of(server, "b")["received"] < 501_000

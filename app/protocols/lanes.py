"""GET /lanes: WebSockets whose messages are chunks, for pages on lossy networks.

A browser opens six connections to a server, which do not fill a link that loses packets. WebSockets
are exempt from that limit. Each binary message is a `POST /upload` with the cookies, link, origin
and address of the handshake: a head (the length of its JSON in two bytes, big-endian, then
`{"query": "dzuuid=...", "digest": "crc32c=:...:"}`; both are optional), and the bytes of the chunk.
Each is answered, in order and once its bytes are durable, by a text message `{"status": 200,
"retry_after": null, "body": {...}}`. An empty message is answered by an empty one with status 200.

A lane has a thread, like a slow upload: it waits for its client without a slot.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from threading import Lock
from typing import TYPE_CHECKING

from flask import Blueprint, Response, request
from werkzeug.datastructures import Headers
from werkzeug.wsgi import ClosingIterator

from app.core.access import Action, counted_as
from app.core.errors import BodyStalled, InvalidRequest, ServerBusy
from app.http.access import requires
from app.http.context import ViewContext
from app.http.mounts import LINK_KEY
from app.ingest.connection import UpgradedConnection, upgraded
from app.ingest.copy import BodyLimits, Pace
from app.ingest.websocket import (
    INNER_KEY,
    CloseCode,
    InnerAnswer,
    InnerRequest,
    InnerRequests,
    Message,
    MessageReader,
    Opcode,
    WebSocketError,
    accept_value,
    close_frame,
    frame,
)

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

blueprint = Blueprint("lanes", __name__)

SUBPROTOCOL = "sluice-lane-1"

MOST_MESSAGE_BYTES = 256 * 1024 + 4096
"""Maximum size of a chunk and its head."""

IDLE_SECONDS = 60.0
"""Idle timeout of a lane; a page that needs it again opens another."""

RECEIVE_BYTES = 64 * 1024

MOST_LANES = 256
"""Maximum per process: each lane holds a thread, and at most one message."""

MOST_LANES_OF_SENDER = 32

REFUSED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
"""Statuses that end a lane: its client has lost the access that the handshake had."""

LANES_PATH, UPLOAD_PATH = "/lanes", "/upload"

HEAD_LENGTH_BYTES = 2

_KEY_BYTES = 16

_NOTHING = InnerAnswer(HTTPStatus.OK, None, b"{}")


class OpenLanes:
    """Counts the open lanes of this process by sender."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._changing = Lock()

    def require_room(self, sender: str) -> None:
        """Raise `ServerBusy` if the process or the sender has too many lanes."""
        with self._changing:
            is_full = self._counts.total() >= MOST_LANES
            if is_full or self._counts[sender] >= MOST_LANES_OF_SENDER:
                raise ServerBusy("There are enough lanes; send by POST.")

    @contextmanager
    def counting(self, sender: str) -> Iterator[None]:
        """Count a lane as open for the duration of the block."""
        with self._changing:
            self._counts[sender] += 1
        try:
            yield
        finally:
            with self._changing:
                self._counts[sender] -= 1
                if not self._counts[sender]:
                    del self._counts[sender]


_open_lanes = OpenLanes()


class LaneResponse(Response):
    """A 101 response; its body runs the lane until it ends."""

    def __init__(self, lane: UploadLane, accept: str, sender: str) -> None:
        super().__init__(status=HTTPStatus.SWITCHING_PROTOCOLS)
        self._lane = lane
        self._sender = sender
        self.headers["Upgrade"] = "websocket"
        self.headers["Connection"] = "upgrade"
        self.headers["Sec-WebSocket-Accept"] = accept
        self.headers["Sec-WebSocket-Protocol"] = SUBPROTOCOL

    def get_app_iter(self, _environ: WSGIEnvironment) -> Iterable[bytes]:
        """Returns the body; the server sends the headers with its first block, which is empty."""
        return ClosingIterator(self._run(), self.close)

    def _run(self) -> Iterator[bytes]:
        with _open_lanes.counting(self._sender):
            yield b""
            self._lane.run()


@blueprint.get(LANES_PATH, websocket=True)
@requires(Action.SEND)
def lanes(ctx: ViewContext) -> Response:
    """Open a lane."""
    accept = accept_value(parse_handshake(request.method, request.headers))
    inner: InnerRequests | None = request.environ.get(INNER_KEY)
    connection = upgraded(request.environ) if inner is not None else None
    if connection is None or inner is None:
        raise InvalidRequest("This connection cannot become a WebSocket.")
    settings = ctx.services.settings
    limits = BodyLimits(settings.body_idle_seconds, settings.min_bytes_per_second)
    sender = counted_as(ctx.caller, request.environ.get("REMOTE_ADDR", ""))
    _open_lanes.require_room(sender)
    link = request.environ.get(LINK_KEY)
    path = f"/{'/'.join(link)}{UPLOAD_PATH}" if link else UPLOAD_PATH
    return LaneResponse(UploadLane(connection, inner, path, limits), accept, sender)


def parse_handshake(method: str, headers: Headers) -> str:
    """The handshake's key; raises `InvalidRequest` if RFC 6455, section 4.2.1, is violated."""
    if method != "GET":
        raise InvalidRequest("A lane is opened with GET.")
    if headers.get("Sec-WebSocket-Version") != "13":
        raise InvalidRequest("Sec-WebSocket-Version must be 13.")
    offered = headers.get("Sec-WebSocket-Protocol", "").split(",")
    if SUBPROTOCOL not in {name.strip() for name in offered}:
        raise InvalidRequest(f"The subprotocol of a lane is {SUBPROTOCOL}.")
    key = headers.get("Sec-WebSocket-Key", "")
    try:
        is_valid = len(b64decode(key, validate=True)) == _KEY_BYTES
    except ValueError:
        is_valid = False
    if not is_valid:
        raise InvalidRequest("Sec-WebSocket-Key must be 16 bytes in base64.")
    return key


def parse_message(message: bytes, path: str) -> InnerRequest:
    """The chunk in a message, as a request to `path`; raises `WebSocketError` without a head."""
    body_at = HEAD_LENGTH_BYTES + int.from_bytes(message[:HEAD_LENGTH_BYTES], "big")
    try:
        head = json.loads(message[HEAD_LENGTH_BYTES:body_at])
        texts = [head.get(name, "") for name in ("query", "digest")]
    except (ValueError, AttributeError, RecursionError):
        texts = []
    are_values = all(
        isinstance(text, str) and text.isascii() and text.isprintable() for text in texts
    )
    if len(message) < body_at or not texts or not are_values:
        raise WebSocketError(CloseCode.PROTOCOL_ERROR, "A message begins with its head.")
    query, digest = texts
    headers = {"Content-Digest": digest} if digest else {}
    return InnerRequest(path, query, message[body_at:], headers)


class UploadLane:
    """Serves the messages of one connection, one at a time."""

    def __init__(
        self, connection: UpgradedConnection, inner: InnerRequests, path: str, limits: BodyLimits
    ) -> None:
        self._connection = connection
        self._inner = inner
        self._path = path
        self._limits = limits
        self._reader = MessageReader(MOST_MESSAGE_BYTES)
        self._pace: Pace | None = None
        self._most_held = 0
        self._is_refused = False
        self._used_at = time.monotonic()

    def run(self) -> None:
        """Serve messages until either side closes the connection."""
        try:
            ended = self._serve()
            self._connection.send(close_frame(ended))
        except WebSocketError as error:
            with suppress(OSError):
                self._connection.send(close_frame(error.code, str(error)))
        except OSError:
            return  # The client has left.

    def _serve(self) -> CloseCode:
        while not self._inner.is_ending:
            data = self._connection.receive(RECEIVE_BYTES)
            if data == b"":
                return CloseCode.NORMAL
            for message in self._reader.feed(data or b""):
                if message.opcode is Opcode.CLOSE:
                    return CloseCode.NORMAL
                self._answer(message)
                if self._is_refused:
                    return CloseCode.NORMAL
            if not self._goes_on():
                return CloseCode.GOING_AWAY
        return CloseCode.SERVICE_RESTART

    def _goes_on(self) -> bool:
        """Check the minimum rate within a message, and the idle timeout between messages."""
        held = self._reader.held_bytes
        if not held:
            return time.monotonic() - self._used_at < IDLE_SECONDS
        if self._pace is None:
            self._pace, self._most_held = Pace(self._limits), 0
        arrived = max(0, held - self._most_held)  # Pings between do not count.
        self._most_held += arrived
        try:
            self._pace.saw(arrived)
        except BodyStalled:
            return False
        return True

    def _answer(self, message: Message) -> None:
        if message.opcode is Opcode.PING:
            self._connection.send(frame(Opcode.PONG, message.data))
        elif message.opcode is Opcode.BINARY:
            answer = _NOTHING
            if message.data:
                answer = self._inner.run(parse_message(message.data, self._path))
            try:
                body = json.loads(answer.body)
            except ValueError:
                body = None
            found = {"status": answer.status, "retry_after": answer.retry_after, "body": body}
            text = json.dumps(found, separators=(",", ":"))
            self._connection.send(frame(Opcode.TEXT, text.encode()))
            self._is_refused = answer.status in REFUSED
            self._pace, self._used_at = None, time.monotonic()
        elif message.opcode is Opcode.TEXT:
            raise WebSocketError(CloseCode.UNSUPPORTED, "Chunks are binary messages.")

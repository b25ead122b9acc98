"""Proxies that stand between a node and what it needs, and break some of what passes.

Each fault is drawn by the number of the request or connection: the same seed breaks the same ones.
All proxies run in one thread of the tests.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, StreamReader, StreamWriter
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from pathlib import Path
from random import Random
from threading import Thread

BLOCK_BYTES = 65_536
LONGEST_DELAY_SECONDS = 1.0
LONGEST_CUT_BYTES = 1_000_000
"""An answer or body is cut within so many bytes; most are cut early."""


class Fault(Enum):
    """What may happen to a request; the server sees only those marked so."""

    SLOW_DOWN = "503 without asking the server"
    INTERNAL_ERROR = "500 without asking the server"
    ERROR_IN_200 = "200 with an error in its body, to those that complete a multipart upload"
    CUT_BODY = "the connection breaks within the request; the server sees a part of it"
    LOST_ANSWER = "the connection breaks after the server has done what it was asked for"
    LOST_COMMIT = "the same, to a COMMIT of a transaction"
    CUT_ANSWER = "the connection breaks within the answer"
    DELAY = "the server gets it later"


S3_FAULTS: Mapping[Fault, float] = {
    fault: 0.03 for fault in Fault if fault is not Fault.LOST_COMMIT
}
"""The share of requests that each fault hits: every fifth one is hit by some."""

ERROR_CODES = {Fault.SLOW_DOWN: (503, "SlowDown"), Fault.INTERNAL_ERROR: (500, "InternalError")}


@dataclass(slots=True)
class Plan:
    """Which of the numbered requests is hit by what, and how often that has happened."""

    seed: int
    shares: Mapping[Fault, float] = field(default_factory=dict)
    happened: Counter[Fault] = field(default_factory=Counter)

    def draw(self, number: int) -> tuple[Fault | None, Random]:
        """The fault of a request, and the random numbers for its details."""
        rng = Random(f"{self.seed} {number}")
        threshold = rng.random()
        for fault in Fault:
            threshold -= self.shares.get(fault, 0)
            if threshold < 0:
                return fault, rng
        return None, rng


@dataclass(slots=True, eq=False)
class Line:
    """Both sides of a connection, and how many bytes of answers pass before it breaks."""

    client: StreamReader
    to_client: StreamWriter
    server: StreamReader
    to_server: StreamWriter
    flowing: asyncio.Event
    answer_bytes: int | None = None

    async def forward(self, block: bytes) -> None:
        """To the server."""
        await self.flowing.wait()
        self.to_server.write(block)
        await self.to_server.drain()

    async def relay_answers(self, happens: Callable[[], None]) -> None:
        """Until the server closes, or the allowed bytes are used up: then the fault `happens`."""
        while block := await self.server.read(BLOCK_BYTES):
            await self.flowing.wait()
            if self.answer_bytes is not None:
                block = block[: self.answer_bytes]
                self.answer_bytes -= len(block)
            self.to_client.write(block)
            await self.to_client.drain()
            if self.answer_bytes == 0:
                happens()
                self.close()
                return
        self.to_client.close()  # After what is still buffered.

    def close(self) -> None:
        """Both sides at once."""
        for transport in (self.to_client.transport, self.to_server.transport):
            # asyncio raises for one that has closed after sending what was buffered.
            if not transport.is_closing() or transport.get_write_buffer_size():
                transport.abort()


Talk = Callable[[Line, Iterator[int], Plan], Awaitable[None]]
"""Relays what a client sends; numbers its requests, and breaks them as planned."""


class Proxy:
    """Listens on a port for a server on another, or on a Unix socket."""

    def __init__(self, loop: AbstractEventLoop, server: int | Path, talk: Talk, plan: Plan) -> None:
        self.plan = plan
        self.port = 0
        self._loop = loop
        self._server = server
        self._talk = talk
        self._listener: asyncio.Server | None = None
        self._numbers = count()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._lines: set[Line] = set()
        self._is_refusing = False

    async def listen(self) -> None:
        """Take a free port."""
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Break all connections, and from now on each new one."""
        self._is_refusing = True
        self._flowing.set()
        self._close_all()

    def close(self) -> None:
        """Listen no longer. A connection that asyncio is just accepting would never be closed."""
        if self._listener is not None:
            self._listener.close()

    def hold(self) -> None:
        """From now on bytes are swallowed by the network, and nobody hears of it."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def release(self) -> None:
        """What was held arrives."""
        self._loop.call_soon_threadsafe(self._flowing.set)

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._lines)

    def drop_connections(self) -> None:
        """Break all that are open; new ones work."""
        self._loop.call_soon_threadsafe(self._close_all)

    def _close_all(self) -> None:
        for line in self._lines:
            line.close()

    async def _accept(self, client: StreamReader, to_client: StreamWriter) -> None:
        try:
            server, to_server = await self._connect()
        except OSError:
            to_client.transport.abort()
            return
        line = Line(client, to_client, server, to_server, self._flowing)
        self._lines.add(line)
        if self._is_refusing:
            line.close()
        try:
            await self._talk(line, self._numbers, self.plan)
        except* (OSError, asyncio.IncompleteReadError):
            pass  # One side has left, or has been made to.
        finally:
            self._lines.discard(line)
            line.close()

    async def _connect(self) -> tuple[StreamReader, StreamWriter]:
        if isinstance(self._server, Path):
            return await asyncio.open_unix_connection(self._server)
        return await asyncio.open_connection("127.0.0.1", self._server)


# ---- S3 ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """What the proxy must know of a request."""

    head: bytes
    body_bytes: int
    is_waiting: bool
    """Its body comes only after the server has said that it may."""
    is_completion: bool
    """It completes a multipart upload."""

    @staticmethod
    def of(head: bytes) -> Request:
        """From a head, which ends with an empty line."""
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = {
            name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)
        }
        return Request(
            head,
            int(fields.get("content-length", 0)),
            "expect" in fields,
            first.startswith("POST ") and "uploadId=" in first,
        )


async def talk_http(line: Line, numbers: Iterator[int], plan: Plan) -> None:
    """Relay HTTP/1.1, one request after another."""
    async with asyncio.TaskGroup() as group:
        fault: Fault | None = None

        def answer_broke() -> None:
            if fault is not None:
                plan.happened[fault] += 1

        group.create_task(line.relay_answers(answer_broke))
        while True:
            request = Request.of(await line.client.readuntil(b"\r\n\r\n"))
            fault, rng = plan.draw(next(numbers))
            await pass_on(line, request, fault, rng, plan)


async def pass_on(
    line: Line, request: Request, fault: Fault | None, rng: Random, plan: Plan
) -> None:
    """Relay one request, or do to it what the fault says; count it if it was done."""
    line.answer_bytes = None
    match fault:
        case Fault.ERROR_IN_200 if not request.is_completion:
            pass
        case Fault.SLOW_DOWN | Fault.INTERNAL_ERROR | Fault.ERROR_IN_200:
            plan.happened[fault] += 1
            await refuse(line, request, *ERROR_CODES.get(fault, (200, "InternalError")))
            return
        case Fault.CUT_BODY if request.body_bytes:
            plan.happened[fault] += 1
            await line.forward(request.head)
            await forward_body(line, rng.randrange(request.body_bytes))
            raise ConnectionError("cut as planned")
        case Fault.DELAY:
            plan.happened[fault] += 1
            await asyncio.sleep(rng.uniform(0, LONGEST_DELAY_SECONDS))
        case Fault.LOST_ANSWER:
            line.answer_bytes = 0
        case Fault.CUT_ANSWER:
            line.answer_bytes = int(LONGEST_CUT_BYTES ** rng.random())
        case _:
            pass
    await line.forward(request.head)
    await forward_body(line, request.body_bytes)


async def forward_body(line: Line, length: int) -> None:
    """So many bytes from the client to the server."""
    while length:
        block = await line.client.read(min(length, BLOCK_BYTES))
        if not block:
            raise ConnectionError("the client left")
        length -= len(block)
        await line.forward(block)


async def refuse(line: Line, request: Request, status: int, code: str) -> None:
    """Answer in the server's place, once the body has been read."""
    if request.is_waiting:
        raise ConnectionError("no body will come")
    await line.client.readexactly(request.body_bytes)
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>as planned</Message></Error>"
    head = f"HTTP/1.1 {status} Planned\r\nContent-Type: application/xml\r\n"
    line.to_client.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    await line.to_client.drain()


# ---- anything else -------------------------------------------------------------------------------


async def talk_bytes(line: Line, numbers: Iterator[int], plan: Plan) -> None:
    """Relay bytes as they come; each block is a request that may be lost, or its answer may."""
    async with asyncio.TaskGroup() as group:
        group.create_task(line.relay_answers(lambda: None))
        while block := await line.client.read(BLOCK_BYTES):
            fault, rng = plan.draw(next(numbers))
            if fault is Fault.LOST_COMMIT and b"COMMIT" not in block:
                fault = None
            if fault is not None:
                plan.happened[fault] += 1
            if fault is Fault.CUT_BODY:
                await line.forward(block[: rng.randrange(len(block))])
                raise ConnectionError("cut as planned")
            if fault in {Fault.LOST_ANSWER, Fault.LOST_COMMIT}:
                line.answer_bytes = 0
            if fault is Fault.DELAY:
                await asyncio.sleep(rng.uniform(0, LONGEST_DELAY_SECONDS))
            await line.forward(block)
        # A client that was killed says nothing else; the server waits until it hears of it.
        raise ConnectionError("the client left")


# ---- the thread ----------------------------------------------------------------------------------

MakeProxy = Callable[[int | Path, Talk, Plan], Proxy]


@contextmanager
def proxies() -> Iterator[MakeProxy]:
    """Makes proxies that run until the context ends."""
    made: list[Proxy] = []
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="proxies")
    thread.start()

    def make(server: int | Path, talk: Talk, plan: Plan) -> Proxy:
        proxy = Proxy(loop, server, talk, plan)
        asyncio.run_coroutine_threadsafe(proxy.listen(), loop).result()
        made.append(proxy)
        return proxy

    try:
        yield make
    finally:
        asyncio.run_coroutine_threadsafe(close_all(made), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def close_all(made: Iterable[Proxy]) -> None:
    """End the proxies once every connection is closed, also those that are just being accepted."""
    ending = [*made]
    for proxy in ending:
        proxy.refuse()
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(tasks)
    for proxy in ending:
        proxy.close()

"""Slow clients, in their own process: `python -m tests.hostile.slow_clients`.

The first argument is JSON: `kind`, `port`, `count`, `addresses` (they come from so many) and `path`
of a large file. Prints a line once all are connected; whenever the server ends a connection another
takes its place, until standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

CONNECTS_AT_ONCE = 50
PAUSE_SECONDS = 0.5
HOLD_SECONDS = 20.0
RECEIVE_BUFFER_BYTES = 4096
BODY_BYTES = 1_000_000


@dataclass
class Attack:
    """What all clients do, and with which parameters."""

    kind: str
    port: int
    count: int
    addresses: int
    path: str = "/"
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    async def run(self) -> None:
        """Connect all, report it, and continue until standard input ends."""
        room = asyncio.Semaphore(CONNECTS_AT_ONCE)
        tasks = [asyncio.create_task(self._keep_on(number, room)) for number in range(self.count)]
        async with asyncio.timeout(120):
            while self._begun < self.count:
                await asyncio.sleep(0.02)
        print("connected", flush=True)
        await self.loop.run_in_executor(None, sys.stdin.read)
        for task in tasks:
            task.cancel()

    _begun = 0

    async def _keep_on(self, number: int, room: asyncio.Semaphore) -> None:
        behave = BEHAVIOURS[self.kind]
        has_begun = False
        while True:
            with suppress(OSError), socket.socket() as sock:
                sock.setblocking(False)
                if self.kind == "unread":
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
                sock.bind((address(number % self.addresses), 0))
                async with room:
                    await self.loop.sock_connect(sock, ("127.0.0.1", self.port))
                self._begun += not has_begun
                has_begun = True
                await behave(self, sock)
            await asyncio.sleep(0.1)

    async def send(self, sock: socket.socket, text: str) -> None:
        """The whole body."""
        await self.loop.sock_sendall(sock, text.encode())

    async def wait_for_end(self, sock: socket.socket) -> None:
        """Read until the server ends the connection."""
        while await self.loop.sock_recv(sock, 65536):
            pass


def address(number: int) -> str:
    """A loopback address other than 127.0.0.1."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


async def unclosed(attack: Attack, sock: socket.socket) -> None:
    """Ask for a last answer, and keep the connection open."""
    await attack.send(sock, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    await asyncio.sleep(HOLD_SECONDS)


async def silent(attack: Attack, sock: socket.socket) -> None:
    """Send nothing at all."""
    await attack.wait_for_end(sock)


async def dripped_headers(attack: Attack, sock: socket.socket) -> None:
    """Send headers slowly."""
    await attack.send(sock, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
    while True:
        await asyncio.sleep(PAUSE_SECONDS)
        await attack.send(sock, "X-Drip: 1\r\n")


async def dripped_body(attack: Attack, sock: socket.socket) -> None:
    """Send a chunk a byte at a time."""
    await attack.send(sock, chunk_head())
    while True:
        await asyncio.sleep(PAUSE_SECONDS)
        await attack.send(sock, "x")


async def stalled_body(attack: Attack, sock: socket.socket) -> None:
    """Send half of a chunk."""
    await attack.send(sock, chunk_head() + "x" * 10_000)
    await attack.wait_for_end(sock)


async def unread(attack: Attack, sock: socket.socket) -> None:
    """Request a large file, and read none of it."""
    await attack.send(sock, f"GET {attack.path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await asyncio.sleep(3600)


def chunk_head() -> str:
    """Headers of the only chunk of a new upload."""
    query = f"dzuuid={os.urandom(8).hex()}&dzchunkindex=0&dztotalfilesize={BODY_BYTES}"
    query += f"&dzchunksize={BODY_BYTES}&dztotalchunkcount=1&dzchunkbyteoffset=0&filename=a.mp4"
    return (
        f"POST /upload?{query} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
    )


BEHAVIOURS: dict[str, Callable[[Attack, Any], Awaitable[None]]] = {
    "unclosed": unclosed,
    "silent": silent,
    "dripped headers": dripped_headers,
    "dripped body": dripped_body,
    "stalled body": stalled_body,
    "unread": unread,
}


async def main() -> None:
    """Run the attack given by the arguments."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    await Attack(**json.loads(sys.argv[1])).run()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())

"""A long, narrow, lossy line between two ends on this machine. Linux, as root.

Each end is a network namespace with one TUN device; nothing else leads out of it. A thread of this
process carries the packets between the devices: late, at a rate, through a queue that overflows,
and not all of them. Kernels without netem can do so too.

    with lossy_line(Quality(loss=0.01)) as line:
        line.server.start([...])
        line.client.run(["curl", f"http://{line.server.address}:8000/"])
"""

from __future__ import annotations

import fcntl
import heapq
import os
import select
import shutil
import signal
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

MTU = 1500

SERVER_ADDRESS, CLIENT_ADDRESS = "10.99.0.1", "10.99.0.2"

SHORTEST_QUEUE_BYTES = 64 * MTU
"""Of a line almost without delay."""

ROUNDING_SECONDS = 0.0003
"""Packets due within it leave together: half of what a packet takes at 20 Mbit/s."""

CARRIER_NICENESS = -15
"""Of the thread that carries packets: on a busy machine it would add a delay of its own."""

STOP_SECONDS = 10.0

_TARGET = slice(16, 20)
"""The address that an IPv4 packet goes to, in its header."""

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
"""linux/if_tun.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Of each direction: bits of IP packets per second, seconds one way, share of packets lost."""

    bits_per_second: float = 20e6
    delay_seconds: float = 0.075
    loss: float = 0.0

    @property
    def queue_bytes(self) -> float:
        """As much as is under way on a full line, which is what routers are often given."""
        under_way = self.bits_per_second / 8 * 2 * self.delay_seconds
        return max(under_way, SHORTEST_QUEUE_BYTES)


@dataclass
class Direction:
    """One way along the line; `cut_until` is when packets pass again, by the monotonic clock.

    `passed` counts the bytes of packets by the address that they go to.
    """

    source: int
    target: int
    quality: Quality
    random: Random
    cut_until: float = 0.0
    dropped: int = 0
    passed: Counter[bytes] = field(default_factory=Counter)
    _idle_at: float = 0.0
    _arrivals: list[tuple[float, int, bytes]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def passed_bytes(self) -> int:
        """Of packets to whatever address."""
        return self.passed.total()

    @property
    def next_arrival(self) -> float:
        """When a packet is due; infinity without one."""
        return self._arrivals[0][0] if self._arrivals else float("inf")

    def accept(self, now: float) -> None:
        """Take what the sender's kernel has sent."""
        with suppress(BlockingIOError):
            while packet := os.read(self.source, MTU):
                if not self._carry(packet, now):
                    self.dropped += 1

    def arrive(self, now: float) -> None:
        """Hand over what is due."""
        while self.next_arrival <= now + ROUNDING_SECONDS:
            _, _, packet = heapq.heappop(self._arrivals)
            with suppress(OSError):  # That end is gone, or cannot keep up.
                os.write(self.target, packet)

    def _carry(self, packet: bytes, now: float) -> bool:
        """Whether the packet will arrive. One that is lost on the line has still used it."""
        seconds = 8 * len(packet) / self.quality.bits_per_second
        waits = max(0.0, self._idle_at - now)
        queued = waits * self.quality.bits_per_second / 8
        if now < self.cut_until or queued + len(packet) > self.quality.queue_bytes:
            return False
        self._idle_at = now + waits + seconds
        if self.random.random() < self.quality.loss:
            return False
        self.passed[packet[_TARGET]] += len(packet)
        arrival = (self._idle_at + self.quality.delay_seconds, next(self._numbers), packet)
        heapq.heappush(self._arrivals, arrival)
        return True


class End:
    """One end of the line, and what runs there. Its processes end with the line."""

    def __init__(self, address: str, device: str, congestion_control: str) -> None:
        self.address = address
        self._device = device
        self._stack = ExitStack()
        holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], start_new_session=True)
        self._stack.callback(_end, holder)
        nsenter = shutil.which("nsenter") or "nsenter"  # A process here may have another PATH.
        self._inside = [nsenter, f"--net=/proc/{holder.pid}/ns/net"]
        _await_namespace(holder.pid)
        self.tun = _open_tun(device)
        self._stack.callback(os.close, self.tun)
        _run("ip", "link", "set", device, "netns", str(holder.pid))
        for words in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{address}/24", "dev", device),
            ("link", "set", device, "mtu", str(MTU), "up"),
        ):
            _run(*self._inside, "ip", *words)
        choose = f"echo {congestion_control} > /proc/sys/net/ipv4/tcp_congestion_control"
        _run(*self._inside, "sh", "-c", choose)

    def add_address(self, address: str) -> None:
        """Another one, at which the same is reached."""
        words = ("ip", "address", "add", f"{address}/24", "dev", self._device)
        _run(*self._inside, *words)

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """A process here, which ends with the line at the latest."""
        process = subprocess.Popen([*self._inside, *command], start_new_session=True, **options)
        self._stack.callback(_end, process)
        return process

    def run(
        self, command: Sequence[str], *, timeout: float | None = None, **options: Any
    ) -> subprocess.CompletedProcess[Any]:
        """Run it here, and end what it has started if it takes too long."""
        if options.pop("capture_output", False):
            options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        inside = [*self._inside, *command]
        with subprocess.Popen(inside, start_new_session=True, **options) as process:
            try:
                out, errors = process.communicate(timeout=timeout)
            finally:
                _end(process)
        return subprocess.CompletedProcess(command, process.returncode, out, errors)

    def await_listener(self, port: int, seconds: float = 60.0) -> None:
        """Return once something listens here; raises `TimeoutError`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.run(["ss", "-Hltn", f"sport = :{port}"], stdout=subprocess.PIPE).stdout:
                return
            time.sleep(0.1)
        raise TimeoutError(f"nothing listens on port {port}")

    def close(self) -> None:
        """End all that runs here, and the namespace with it."""
        self._stack.close()


class LossyLine:
    """`up` is the direction from the client to the server."""

    def __init__(self, server: End, client: End, quality: Quality, seed: int) -> None:
        self.server = server
        self.client = client
        self.up = Direction(client.tun, server.tun, quality, Random(f"up {seed}"))
        self.down = Direction(server.tun, client.tun, quality, Random(f"down {seed}"))

    def cut(self, seconds: float) -> None:
        """Let nothing pass for so long."""
        for direction in (self.up, self.down):
            direction.cut_until = time.monotonic() + seconds

    def carry(self, ended: int) -> None:
        """Carry packets until something can be read from `ended`."""
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), CARRIER_NICENESS)
        both = (self.up, self.down)
        sources = [ended, *(direction.source for direction in both)]
        while True:
            due = min(direction.next_arrival for direction in both)
            wait = max(0.0, due - time.monotonic()) if due < float("inf") else None
            if ended in select.select(sources, [], [], wait)[0]:
                return
            now = time.monotonic()
            for direction in both:
                direction.accept(now)
                direction.arrive(now)


def what_is_missing() -> str | None:
    """Why this machine cannot have a line; None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    absent = [name for name in ("ip", "ss", "unshare", "nsenter") if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else None


@contextmanager
def lossy_line(
    quality: Quality, *, congestion_control: str = "cubic", seed: int = 1
) -> Iterator[LossyLine]:
    """The line, for the length of the context; the same seed loses the same packets.

    Raises `OSError` without the rights, or without /dev/net/tun.
    """
    _allow(congestion_control)
    with ExitStack() as stack:
        server = End(SERVER_ADDRESS, "line-server", congestion_control)
        stack.callback(server.close)
        client = End(CLIENT_ADDRESS, "line-client", congestion_control)
        stack.callback(client.close)
        line = LossyLine(server, client, quality, seed)
        ended, end_carrying = os.pipe()
        carrier = threading.Thread(target=line.carry, args=(ended,), name="line", daemon=True)
        carrier.start()
        stack.callback(os.close, ended)
        stack.callback(carrier.join)
        stack.callback(os.close, end_carrying)  # Its reader sees the end.
        yield line


def _open_tun(name: str) -> int:
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        request = struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI)
        fcntl.ioctl(tun, _TUNSETIFF, request)
    except OSError:
        os.close(tun)
        raise
    return tun


def _await_namespace(pid: int) -> None:
    """Return once the process has left our namespace."""
    ours = os.stat("/proc/self/ns/net").st_ino
    deadline = time.monotonic() + STOP_SECONDS
    while os.stat(f"/proc/{pid}/ns/net").st_ino == ours:
        if time.monotonic() > deadline:
            raise OSError("no network namespace: are you root?")
        time.sleep(0.01)


def _allow(congestion_control: str) -> None:
    """A namespace's default must be one that every program may choose; that list is the host's."""
    file = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
    allowed = file.read_text().split()
    if congestion_control not in allowed:
        file.write_text(" ".join([*allowed, congestion_control]))


def _end(process: subprocess.Popen[Any]) -> None:
    """End a process and its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)

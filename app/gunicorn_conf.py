"""gunicorn's settings: `gunicorn -c python:app.gunicorn_conf wsgi:app`."""

from __future__ import annotations

import math
import os
import signal
import socket
import struct
from typing import Any

from app.settings import from_env

settings = from_env(os.environ)

bind = f"{settings.host}:{settings.port}"
workers = settings.workers
worker_class = "gthread"  # The sync worker is killed in mid-body by its own time-out.
threads = settings.threads
worker_connections = 2000
backlog = 2048
keepalive = 75  # Above the 60 s after which AWS's load balancer drops an idle connection.
timeout = 120  # Heartbeat of a worker's main loop; no limit on a request.
graceful_timeout = math.ceil(settings.graceful_seconds)
worker_tmp_dir = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
forwarded_allow_ips = os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1,::1")
accesslog = "-"
loglevel = settings.log_level
logger_class = "app.access_log.AccessLogger"

HEADER_IDLE_SECONDS = 30
"""A client that stops in the middle of its headers is dropped after so long. gunicorn waits for
ever; but sockets inherit the listener's time-out, and recv() then fails."""


def when_ready(server: Any) -> None:
    """Bound waiting for headers, and make Ctrl-C as graceful as SIGTERM."""
    for listener in server.LISTENERS:
        listener.sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", HEADER_IDLE_SECONDS, 0)
        )
    signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))


def post_worker_init(worker: Any) -> None:
    """Ctrl-C reaches every process of the terminal; workers leave it to their master."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

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
control_socket_disable = True  # Its path is the user's: two servers would share it.
accesslog = "-"
loglevel = settings.log_level
logger_class = "app.access_log.AccessLogger"


def when_ready(server: Any) -> None:
    """Bound waiting for headers, and make Ctrl-C as graceful as SIGTERM.

    gunicorn waits for ever for a client that stops in the middle of its headers. But connections
    inherit their listener's time-out, and recv() then fails.
    """
    time_out = struct.pack("@ll", math.ceil(settings.body_idle_seconds), 0)
    for listener in server.LISTENERS:
        listener.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, time_out)
    signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))


def post_worker_init(worker: Any) -> None:
    """Ctrl-C reaches every process of the terminal; workers leave it to their master."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

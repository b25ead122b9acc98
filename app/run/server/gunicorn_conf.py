"""gunicorn's settings: `gunicorn -c python:app.run.server.gunicorn_conf wsgi:app`."""

from __future__ import annotations

import itertools
import math
import os
import resource
import signal
import socket
import struct
from typing import Any

from app.run.monitoring.folder import MetricsFolder, name_process
from app.run.server.child_processes import (
    RELOAD_SIGNAL,
    SUPERVISOR_VARIABLE,
    end_with_parent,
    end_with_supervisor,
    import_spared,
    tell_serving,
)
from app.run.server.logs import AccessLogger, greet
from app.settings import from_env

settings = from_env(os.environ)
_metrics = MetricsFolder(settings.data_dir)

DESCRIPTORS_A_CONNECTION = 2
DESCRIPTORS_A_THREAD = 4
"""A request holds its connection, a file and, while it runs, a pipe and a database connection."""

SEND_IDLE_SECONDS = 30
"""Idle timeout for sending. A client that reads nothing of a response for twice this long loses its
connection: the first send() to time out returns the bytes it had sent, and only the next fails."""

UNSENT_BYTES = 128 * 1024
TCP_NOTSENT_LOWAT = 25  # linux/tcp.h
"""Maximum of unsent bytes queued on a connection. By default the kernel reports free space only
once a third of its buffer, some megabytes, was sent: a client that reads 10 KB/s would look idle
for minutes. With this limit, sending from the page cache over loopback cost 0.8 of the CPU time."""


_is_bare_ipv6 = ":" in settings.host and "[" not in settings.host
bind = f"{f'[{settings.host}]' if _is_bare_ipv6 else settings.host}:{settings.port}"
workers = settings.workers
# Threads, because the sync worker's own timeout kills it in mid-body.
worker_class = "app.run.server.gunicorn_worker.PatientWorker"
threads = settings.threads
# A worker that runs out of open files dies, so the limit is raised to its maximum.
_, _descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_descriptors, _descriptors))
_for_connections = _descriptors - DESCRIPTORS_A_THREAD * threads - 100
worker_connections = max(threads + 1, min(2000, _for_connections // DESCRIPTORS_A_CONNECTION))
backlog = 2048
keepalive = 75  # Above the 60 s after which AWS's load balancer drops an idle connection.
timeout = 120  # Heartbeat of a worker's main loop; not a limit on requests.
graceful_timeout = math.ceil(settings.graceful_seconds)
worker_tmp_dir = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
forwarded_allow_ips = ",".join(str(network) for network in settings.trusted_proxies)
# gunicorn (27.0.1) would take SCRIPT_NAME and PATH_INFO from headers of trusted addresses, and
# respond with 500 if they do not fit the URL. X-Forwarded-Prefix replaces them (app/http/proxy.py).
forwarder_headers = ""
secure_scheme_headers: dict[str, str] = {}  # Differing values would be answered with 400.
control_socket_disable = True  # One path per user: two servers would share it.
accesslog = "-"
loglevel = settings.log_level
logger_class = AccessLogger


def when_ready(server: Any) -> None:
    """Set timeouts for idle clients, and make Ctrl-C as graceful as SIGTERM.

    gunicorn waits forever for a client that stops in the middle of its headers, or of reading the
    response. But connections inherit their listener's options, so that recv() or send() fails.
    """
    waits = {
        socket.SO_RCVTIMEO: math.ceil(settings.body_idle_seconds),
        socket.SO_SNDTIMEO: SEND_IDLE_SECONDS,
    }
    for listener in server.LISTENERS:
        for option, seconds in waits.items():
            time_out = struct.pack("@ll", seconds, 0)
            listener.sock.setsockopt(socket.SOL_SOCKET, option, time_out)
        if listener.sock.family in {socket.AF_INET, socket.AF_INET6}:
            listener.sock.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # The supervisor had blocked it.
    if SUPERVISOR_VARIABLE in os.environ:
        # The workers are replaced only at the supervisor's signal: those that stop, replace or
        # multiply gunicorn may be sent to all processes of a terminal or service.
        for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(RELOAD_SIGNAL, lambda *_: server.signal(signal.SIGHUP, None))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP, RELOAD_SIGNAL})
    greet(settings)


def on_starting(server: Any) -> None:
    """Import the application once, before forking: the workers share its modules and memory.

    Open files and counts are still their own, created by `wsgi`. The modules are imported by name,
    because this package knows no application, and after the metrics folder is set, for which
    prometheus-client looks when it is imported. Workers such as gevent's patch sockets and locks
    first, which must not have been imported by then.
    """
    end_with_supervisor()
    _metrics.open()
    # Before gunicorn handles signals: it would notice a SIGTERM only after the import, while it
    # starts its workers, and a starting worker misses it.
    if server.cfg.worker_class_str == worker_class:
        import_spared("app.run.build")
        import_spared("app.run.factory")
        if settings.storage:  # botocore takes 23 MiB.
            import_spared("app.storage.s3.store")
            import_spared("app.storage.s3.signing")


def pre_fork(server: Any, worker: Any) -> None:
    """Assign the lowest free number to a new worker, which continues the counts of that number."""
    taken = {other.number for other in server.WORKERS.values()}
    worker.number = next(number for number in itertools.count() if number not in taken)


def post_fork(_server: Any, worker: Any) -> None:
    """Runs in the worker, before it loads the application."""
    end_with_parent(worker.ppid)
    name_process(_name_of(worker))


def child_exit(_server: Any, worker: Any) -> None:
    """Reset the in-progress gauges of a worker that has ended."""
    from app.run.monitoring.instruments import forget_process  # noqa: PLC0415 - see on_starting

    forget_process(_name_of(worker))


def _name_of(worker: Any) -> str:
    return f"web{worker.number}"


def on_exit(_server: Any) -> None:
    """Runs only in the master, once its workers are gone."""
    _metrics.close()


def post_worker_init(worker: Any) -> None:
    """Ctrl-C reaches every process of the terminal; workers ignore it, their master handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tell_serving()

"""The same application under several of gunicorn's workers."""

from __future__ import annotations

from bench.lib.harness import BenchServer, Lab

OURS = "ours"

WORKERS: dict[str, str] = {
    OURS: "",
    "gthread": "--worker-class gthread",
    "gevent": "--worker-class gevent",
    "sync": "--worker-class sync --threads 1",
}
"""Arguments that gunicorn takes over those of its settings file; ours is what that file names."""


def worker_options(worker: str) -> dict[str, str]:
    """What the environment of `bench.lib.harness.Lab.server` needs for a worker class."""
    return {"GUNICORN_CMD_ARGS": WORKERS[worker]} if WORKERS[worker] else {}


def thread_count(server: BenchServer) -> int:
    """Threads of all processes of the server."""
    return sum(process.num_threads() for process in server.processes())


def pick_workers(lab: Lab) -> list[str]:
    """All of them, or in a quick run ours alone."""
    return [OURS] if lab.is_quick else list(WORKERS)

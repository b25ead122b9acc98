"""Other processes of a test, with threads of its own running."""

from __future__ import annotations

from multiprocessing import get_context

__all__ = ["PROCESSES"]

PROCESSES = get_context("forkserver")
"""Forks from a process without threads that has imported the program once: a new interpreter would
import it for each process, for half a second of CPU time."""

PROCESSES.set_forkserver_preload(["app.run.build"])

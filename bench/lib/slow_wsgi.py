"""The application with work added to every request: waiting, as for another service."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from wsgi import app as application

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

WORK_VARIABLE = "SLUICE_BENCH_WORK_MILLISECONDS"

_seconds = float(os.environ.get(WORK_VARIABLE, "0")) / 1000


def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """Wait, then answer."""
    time.sleep(_seconds)
    return application(environ, start_response)

"""`python -m app.run.server.supervisor`, with `bench.lib.slow_wsgi` as the application."""

from __future__ import annotations

import sys

from app.run.server import supervisor

supervisor.WEB[-1] = "bench.lib.slow_wsgi:app"

if __name__ == "__main__":
    sys.exit(supervisor.main())

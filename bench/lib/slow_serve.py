"""`python -m app.serve`, with `bench.lib.slow_wsgi` as the application."""

from __future__ import annotations

import sys

from app import serve

serve.WEB[-1] = "bench.lib.slow_wsgi:app"

if __name__ == "__main__":
    sys.exit(serve.main())

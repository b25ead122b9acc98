"""Logs as JSON, one object a line: requests, with the ids that tie them together, and all else."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from gunicorn.glogging import Logger

_EXTRA = ("upload_id",)


class JsonFormatter(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, source and message; the traceback where there is one."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update({name: getattr(record, name) for name in _EXTRA if hasattr(record, name)})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def configure_logging(level: str) -> None:
    """Send every log of this process to standard error as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)


class AccessLogger(Logger):  # type: ignore[misc]
    """gunicorn's logger, writing JSON."""

    def setup(self, cfg: Any) -> None:
        """Configure as gunicorn does, then put our format in place of its own."""
        super().setup(cfg)
        configure_logging(cfg.loglevel)
        for handler in [*self.error_log.handlers, *self.access_log.handlers]:
            handler.setFormatter(JsonFormatter())

    def access(self, resp: Any, req: Any, environ: dict[str, Any], request_time: timedelta) -> None:
        """One line for a request. Its query is left out: it may carry what is nobody's business."""
        entry = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": "info",
            "logger": "access",
            "request_id": environ.get("sluice.request_id"),
            "upload_id": environ.get("sluice.upload_id"),
            "client": environ.get("REMOTE_ADDR"),
            "method": environ.get("REQUEST_METHOD"),
            "path": environ.get("PATH_INFO"),
            "status": getattr(resp, "status_code", None),
            "received": int(environ.get("CONTENT_LENGTH") or 0),
            "sent": getattr(resp, "sent", None),
            "seconds": round(request_time.total_seconds(), 4),
        }
        # One write for a line: lines of several processes do not mix.
        sys.stdout.write(json.dumps(entry, ensure_ascii=False) + "\n")
        sys.stdout.flush()

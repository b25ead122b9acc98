"""What the server writes: an access log line per request, all other logs, and messages to a person.

One JSON object per line; at a terminal, readable text.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

from gunicorn.glogging import Logger

from app.settings import Settings
from app.storage.data_folder import shown

_EXTRA = ("upload_id",)

_UNSAFE = (
    *range(0x20),
    *range(0x7F, 0xA0),  # DEL and C1: some start a terminal escape sequence.
    0x061C,
    *(0x200E, 0x200F),
    *(0x2028, 0x2029),  # Line breaks to some programs.
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),  # Direction marks: they reorder what follows.
)
_ESCAPES = {code: f"\\u{code:04x}" for code in _UNSAFE}
_encode = json.JSONEncoder(ensure_ascii=False).encode  # dumps() makes an encoder for each call.
_LINK_CODE = re.compile(r"(/(?:[stu]|join|reset|set-up)/)[^/]+")

_TEXT_ESCAPES = {code: text for code, text in _ESCAPES.items() if chr(code) not in "\n\t"}


class JsonFormatter(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, source and message; and the traceback, if any."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update({name: getattr(record, name) for name in _EXTRA if hasattr(record, name)})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return _to_json(entry)


class TextFormatter(logging.Formatter):
    """A log record as readable text, followed by its traceback."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s: %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """Time of day, level and message."""
        return super().format(record).translate(_TEXT_ESCAPES)


def formatter_of(stream: TextIO) -> logging.Formatter:
    """Text for a person at a terminal, otherwise JSON."""
    return TextFormatter() if stream.isatty() else JsonFormatter()


def configure_logging(level: str) -> None:
    """Send every log of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter_of(sys.stderr))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)


class AccessLogger(Logger):  # type: ignore[misc]
    """gunicorn's logger with our format."""

    def setup(self, cfg: Any) -> None:
        """Configure as gunicorn does, then put our format in place of its own."""
        super().setup(cfg)
        configure_logging(cfg.loglevel)
        for handler in [*self.error_log.handlers, *self.access_log.handlers]:
            handler.setFormatter(formatter_of(sys.stderr))
        self._print = _to_text if sys.stdout.isatty() else _to_json
        if sys.stderr.isatty() and self.loglevel == logging.INFO:
            self.error_log.setLevel(logging.WARNING)  # `greet` and `say_stopping` report these.

    def access(self, resp: Any, req: Any, environ: dict[str, Any], request_time: timedelta) -> None:
        """Write one line for a request, without its query and codes of links, which are secrets.

        `received` and `sent` are the bytes of the bodies actually transferred.
        """
        path = environ.get("PATH_INFO", "").encode("latin-1", "replace")
        path = path.decode("utf-8", "backslashreplace")
        link, _ = environ.get("sluice.link") or ("", "")
        file = environ.get("sluice.sent_file")  # gunicorn 27 does not count sendfile().
        entry = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": "info",
            "logger": "access",
            "request_id": environ.get("sluice.request_id"),
            "upload_id": environ.get("sluice.upload_id"),
            "client": environ.get("REMOTE_ADDR"),
            "method": environ.get("REQUEST_METHOD"),
            "path": f"/{link}/***{path}" if link else without_codes(path),
            "status": getattr(resp, "status_code", None),
            "received": environ.get("sluice.received", 0),
            "sent": getattr(resp, "sent", None) if file is None else file.sent_bytes,
            "seconds": round(request_time.total_seconds(), 4),
        }
        # One write per line, so that lines of several processes are not interleaved.
        sys.stdout.write(self._print(entry) + "\n")
        sys.stdout.flush()


def without_codes(path: str) -> str:
    """The path of a request with link codes removed, so that the log does not leak them."""
    return _LINK_CODE.sub(r"\1***", path)


def _to_json(entry: dict[str, Any]) -> str:
    return _encode(entry).translate(_ESCAPES)


def _to_text(entry: dict[str, Any]) -> str:
    now = datetime.now().astimezone().strftime("%H:%M:%S")
    line = (
        f"{now} {entry['status']} {entry['method']} {entry['path']} "
        f"in {entry['received']} out {entry['sent']} bytes, {entry['seconds']:.3f} s"
    )
    return line.translate(_ESCAPES)


# ---- for a person at a terminal ------------------------------------------------------------------


def greet(settings: Settings) -> None:
    """Print the server's URL, and how to stop it."""
    _say(
        f"\n  Sluice is ready: open {settings.own_url}\n\n"
        f"  uploads in progress   {shown(settings.staging_dir)}\n"
        f"  finished files        {shown(settings.library_dir)}\n\n"
        "  Press Ctrl-C to stop.\n\n"
    )


def say_stopping(settings: Settings) -> None:
    """Print that the server is stopping, and how long that may take."""
    drain = settings.drain_seconds
    when = f" in {drain:g} s, once load balancers have noticed; Ctrl-C stops now" if drain else ""
    seconds = settings.graceful_seconds
    _say(f"\n  Stopping{when}. Running requests have up to {seconds:g} s to finish.\n")


def say_goodbye() -> None:
    """Print that the server has stopped."""
    _say("  Sluice has stopped.\n")


def _say(text: str) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(text)
        sys.stdout.flush()

"""Every setting of the client, each once: name, type, default, one line of help."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sluice_client.congestion import BBR
from sluice_client.errors import SluiceError

DEFAULT_SERVER = "http://127.0.0.1:8000"

QUESTION_SECONDS = 5.0
"""How long to try to reach a server for a listing, a deletion, or the start of a fetch."""


_FACTORS = {"K": 10**3, "M": 10**6, "G": 10**9}


class BadSetting(SluiceError):
    """A setting cannot be used; says which, and where it comes from."""

    exit_code = 2


def server_url(text: str) -> str:
    """An http(s) URL without a trailing slash; raises `ValueError`."""
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        raise ValueError("must be an address such as https://videos.example.org")
    try:
        parts.port  # noqa: B018 - parses it
    except ValueError:
        raise ValueError("the port must be a number from 1 to 65535") from None
    return text.rstrip("/")


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 64:
        raise ValueError("must be 1 to 64")
    return value


def _bytes(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError("must be 0 or more")
    return value


def _rate(text: str) -> int:
    factor = _FACTORS.get(text[-1:].upper())
    try:
        value = float(text[:-1] if factor else text) * (factor or 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError("must be bytes per second, such as 2000000, 500K or 2M")
    return int(value)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError("must be above 0")
    return value


def state_folder() -> Path:
    """Where records of unfinished uploads are, by the XDG specification."""
    base = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return folder / "sluice"


def config_folder() -> Path:
    """Where settings and keys are, by the same specification."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if base.startswith("/") else Path.home() / ".config"
    return folder / "sluice"


def settings_file() -> Path:
    """The settings file, read if it exists."""
    return config_folder() / "client.toml"


def _key(text: str) -> str:
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be printable ASCII without spaces")
    return text


def _control(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9_-]{1,15}", text):
        raise ValueError("must be a name such as bbr or cubic, or system for that of the system")
    return text


def _option(parse: Callable[[str], Any], default: str, text: str, variable: str = "") -> Any:
    return field(
        default_factory=lambda: parse(default),
        repr=parse is not _key,
        metadata={"parse": parse, "default": default, "help": text, "variable": variable},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of a `Client`. `SLUICE_CLIENT_` and a field's name in capitals is its variable."""

    server: str = _option(server_url, DEFAULT_SERVER, "Address of the server.", "SLUICE_URL")
    api_key: str = _option(
        _key, "", "Key to send to the server as a bearer token.", "SLUICE_API_KEY"
    )
    parallel: int = _option(
        _count, "24", "Maximum number of connections; fewer are used if more do not help."
    )
    limit_rate: int = _option(
        _rate, "0", "Bytes per second of all connections together, such as 500K or 2M; 0 for all."
    )
    congestion_control: str = _option(
        _control, BBR, "Congestion control of the connections, where this machine has it."
    )
    chunk_bytes: int = _option(
        _bytes, "0", "Chunk size to grow to at first; 0 for what the server recommends."
    )
    batch_below_bytes: int = _option(_bytes, "8388608", "Smaller files are bundled; 0 for never.")
    stall_seconds: float = _option(
        _seconds, "30", "A connection on which nothing moves for this long is replaced."
    )
    answer_seconds: float = _option(
        _seconds, "60", "How long to wait for an answer once a request is sent."
    )
    give_up_seconds: float = _option(
        _seconds, "900", "A transfer without any progress for this long ends; it can be resumed."
    )

    def for_server(self, server: str) -> Options:
        """The same for a server named by the URL of a file; the key is only for our own."""
        return self if server == self.server else replace(self, server=server, api_key="")

    def for_questions(self) -> Options:
        """The same for requests that a person waits for and that lose nothing by failing."""
        return replace(
            self,
            stall_seconds=min(self.stall_seconds, QUESTION_SECONDS),
            give_up_seconds=min(self.give_up_seconds, QUESTION_SECONDS),
        )


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    item = next(item for item in fields(Options) if item.name == name)
    return item.metadata["variable"] or f"SLUICE_CLIENT_{name.upper()}"


def load_options(
    environ: Mapping[str, str], file: Path | None = None, **given: str | None
) -> Options:
    """Settings from, in this order, `given`, the environment, the TOML file, the defaults.

    Raises `BadSetting`.
    """
    in_file = _read_toml(file)
    values: dict[str, Any] = {}
    for item in fields(Options):
        variable = variable_of(item.name)
        sources = (
            (f"--{item.name.replace('_', '-')}", given.get(item.name)),
            (variable, environ.get(variable) or None),
            (f"{item.name} in {file}", in_file.get(item.name)),
        )
        for origin, text in sources:
            if text is not None:
                values[item.name] = _parsed(item.metadata["parse"], text, origin)
                break
    return Options(**values)


def _parsed(parse: Callable[[str], Any], text: str, origin: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        shown = "" if parse is _key else f" = {text!r}"
        raise BadSetting(f"{origin}{shown}: {error}") from error


def _read_toml(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BadSetting(f"{file} cannot be read: {error}") from error
    unknown = values.keys() - {item.name for item in fields(Options)}
    if unknown:
        raise BadSetting(f"{file} has unknown settings: {', '.join(sorted(unknown))}")
    return {name: str(value) for name, value in values.items()}

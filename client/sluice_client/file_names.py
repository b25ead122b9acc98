"""Makes names from a server safe for the local disk. Pure."""

from __future__ import annotations

import re
import unicodedata
from email.message import Message
from urllib.parse import unquote

MOST_NAME_BYTES = 200
"""Common file systems take 255; `.part` and the like are added."""

_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")
"""Devices on Windows, whatever the extension."""


def name_in(content_disposition: str) -> str:
    """The file name of a Content-Disposition header; empty without one."""
    extended = re.search(r"filename\*\s*=\s*utf-8''([^;\s]+)", content_disposition, re.IGNORECASE)
    if extended:
        return unquote(extended.group(1), errors="replace")
    message = Message()
    message["Content-Disposition"] = content_disposition
    return message.get_filename("") or ""


def safe_name(name: str, fallback: str) -> str:
    """A name that stays in its folder, is not hidden, and has no special characters."""
    last = unicodedata.normalize("NFC", name).replace("\\", "/").rsplit("/", 1)[-1]
    kept = "".join("_" if _is_unsafe(character) else character for character in last)
    kept = kept.strip(" .")
    if not kept or _RESERVED.fullmatch(kept):
        return fallback
    return _shortened(kept)


def _is_unsafe(character: str) -> bool:
    return character in '<>:"|?*' or not character.isprintable()


def _shortened(name: str) -> str:
    if len(name.encode()) <= MOST_NAME_BYTES:
        return name
    stem, dot, extension = name.rpartition(".")
    if not dot or len(extension.encode()) > 20:
        stem, dot, extension = name, "", ""
    room = MOST_NAME_BYTES - len((dot + extension).encode())
    return stem.encode()[:room].decode(errors="ignore").rstrip(" .") + dot + extension

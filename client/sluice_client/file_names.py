"""Names from a server as names of files here. Pure."""

from __future__ import annotations

import os
import re
import unicodedata
from email.message import Message
from urllib.parse import unquote

MOST_NAME_BYTES = 255
"""The longest name that ext4, XFS and Btrfs take; a longer one is cut before its extension."""

_FORBIDDEN_ON_WINDOWS = frozenset('<>:"|?*')

_DEVICE_ON_WINDOWS = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")
"""Whatever the extension."""


def name_in(content_disposition: str) -> str:
    """The file name of a Content-Disposition header; empty without one."""
    extended = re.search(r"filename\*\s*=\s*utf-8''([^;\s]+)", content_disposition, re.IGNORECASE)
    if extended:
        return unquote(extended.group(1), errors="replace")
    message = Message()
    message["Content-Disposition"] = content_disposition
    return message.get_filename("") or ""


def usable_name(name: str, fallback: str, *, is_windows: bool = os.name == "nt") -> str:
    """A name that stays in its folder, changed only where this system demands it.

    Folders are dropped, control characters become `_`. Leading dots go too: a server must not
    choose a file that a shell or a program reads from its hidden files, such as `.bashrc`.
    """
    last = name.replace("\\", "/").rpartition("/")[2].lstrip(".")
    kept = "".join("_" if _is_impossible(c, is_windows) else c for c in last)
    if is_windows:
        kept = kept.rstrip(" .")
    if not kept or (is_windows and _DEVICE_ON_WINDOWS.fullmatch(kept)):
        return fallback
    return shortened(kept, MOST_NAME_BYTES)


def _is_impossible(character: str, is_windows: bool) -> bool:
    if unicodedata.category(character) in {"Cc", "Cs"}:
        return True
    return is_windows and character in _FORBIDDEN_ON_WINDOWS


def shortened(name: str, most_bytes: int) -> str:
    """The name in at most so many bytes, with its extension unless that is a long one."""
    if len(os.fsencode(name)) <= most_bytes:
        return name
    stem, dot, extension = name.rpartition(".")
    if not dot or len(os.fsencode(extension)) > 20:
        stem, dot, extension = name, "", ""
    kept_bytes = most_bytes - len(os.fsencode(dot + extension))
    return os.fsencode(stem)[:kept_bytes].decode(errors="ignore") + dot + extension

"""What every template may use: functions and filters."""

from __future__ import annotations

from datetime import datetime
from functools import cache

from flask import Flask, request
from markupsafe import Markup

from app.core.access import Action, Reach, reach_of
from app.http.context import view_context
from app.http.origins import style_nonce

SIZE_STEP = 1000
SIZE_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")

_ICON = Markup('<span class="icon" data-icon="{}" aria-hidden="true"{}></span>')
_PART = Markup(' data-part="{}"')


def init_app(app: Flask) -> None:
    """Add them to the templates of `app`."""
    app.jinja_env.globals.update(may=may, style_nonce=style_nonce)
    filters = {"date": date_text, "duration": duration, "file_size": file_size, "icon": icon}
    app.jinja_env.filters.update(filters)
    # Below a link, its files have the link's prefix. `url_for` takes ten times as long.
    app.context_processor(lambda: {"static": f"{request.root_path}/static"})


@cache
def icon(name: str, part: str = "") -> Markup:
    """An icon of css/icons.css; the page's script finds it by `part`.

    A filter: Jinja computes a filter of a constant when it compiles the template.
    """
    return _ICON.format(name, _PART.format(part) if part else "")


def may(action: str) -> bool:
    """Whether the caller's role allows the action in the project; for templates."""
    return reach_of(Action(action), view_context().caller.role) is not Reach.NONE


def date_text(moment: datetime) -> str:
    """A date for people: "3 Nov 2026, 14:05 UTC"."""
    return f"{moment.day} {moment:%b %Y, %H:%M} UTC"


def file_size(length: int) -> str:
    """A size in bytes as "20 MB" or "1.4 GB", in decimal units."""
    value = float(length)
    unit = 0
    while value >= 999.5 and unit < len(SIZE_UNITS) - 1:
        value /= SIZE_STEP
        unit += 1
    if length == 1:
        return "1 byte"
    text = f"{value:.1f}" if unit and value < 9.95 else f"{value:.0f}"
    return f"{text.removesuffix('.0')} {SIZE_UNITS[unit]}"


def duration(seconds: float) -> str:
    """The duration of a video as "0:05", "12:34" or "1:02:03"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

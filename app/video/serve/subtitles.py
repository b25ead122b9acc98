"""Subtitles as players find them, whether they came in the film or in a file of their own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Subtitles:
    """Subtitles of a film; `name` is that of their file without `.vtt`."""

    name: str
    language: str
    """BCP 47; "und" if nothing says."""
    title: str | None = None

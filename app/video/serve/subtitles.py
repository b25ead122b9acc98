"""Subtitles for players: from the video, or from a separate file."""

from __future__ import annotations

import unicodedata
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from app.core.errors import NotMade
from app.core.upload import Upload, UploadId
from app.records.uploads import UploadRecords
from app.video.index.languages import UNDETERMINED, language_of
from app.video.index.texts import cues_of, decoded, webvtt, within_limit
from app.video.serve.source import MediaSource, reader


@dataclass(frozen=True, slots=True)
class Subtitles:
    """Subtitles of a video; `name` is the name of their file without `.vtt`."""

    name: str
    language: str
    """BCP 47; "und" if unknown."""
    title: str | None = None


# ---- text files ----------------------------------------------------------------------------------

# Separate subtitle files of the same owner: `film.srt`, `film.en.vtt` and so on for `film.mp4`.
#
# They are queried from the records on each request, so they follow every upload, rename and
# deletion, and no stale state is kept.


ENDINGS = (".srt", ".vtt")

MOST_FILES = 20
"""Subtitle files of one video; others are not shown."""

MOST_NAMES = 500
"""File names checked for one video. Not all match: `final` in `film.final.srt` is no language."""

MOST_BYTES = 1 << 20
"""Read of one file; the rest is left out. Two hours of speech are 0.1 MB, and take 60 ms."""


@dataclass(frozen=True, slots=True)
class TextFile:
    """Subtitles of a video in a separate file."""

    id: UploadId
    language: str
    """BCP 47; "und" if the name does not say."""

    @property
    def subtitles(self) -> Subtitles:
        """The same as `Subtitles`."""
        return Subtitles(f"subs-{self.id}", self.language)


class TextFiles:
    """Finds and reads separate subtitle files."""

    def __init__(self, uploads: UploadRecords, source: MediaSource) -> None:
        self._uploads = uploads
        self._source = source

    def of(self, film: Upload) -> list[TextFile]:
        """The subtitle files of a video, matched by name."""
        stem, ending = _split(film.filename)
        if ending.lower() in ENDINGS:
            return []
        found = self._uploads.beside(film.owner, stem, ENDINGS, limit=MOST_NAMES)
        languages = ((text.id, language_beside(stem, text.filename)) for text in found)
        texts = (TextFile(text_id, language) for text_id, language in languages if language)
        return list(islice(texts, MOST_FILES))

    def as_webvtt(self, film: Upload, text_id: UploadId) -> str:
        """A subtitle file as WebVTT; raises `NotMade` if it does not belong to the video."""
        if text_id not in {text.id for text in self.of(film)}:
            raise NotMade("The film has no such subtitles.")
        with closing(self._source.open(self._uploads.get(text_id))) as file:
            text = decoded(reader(file)(0, MOST_BYTES))
        return webvtt(within_limit(cues_of(text)))


def language_beside(stem: str, filename: str) -> str | None:
    """The language of a subtitle file for a video named `stem`; None if the name does not match."""
    own_stem, ending = _split(filename)
    if ending.lower() not in ENDINGS:
        return None
    if _folded(own_stem) == _folded(stem):
        return UNDETERMINED
    own_stem, tag = _split(own_stem)
    return language_of(tag.removeprefix(".")) if _folded(own_stem) == _folded(stem) else None


def _split(filename: str) -> tuple[str, str]:
    """Splits a name, with its folders, at its last dot; the ending includes the dot."""
    stem, dot, ending = filename.rpartition(".")
    return (stem, dot + ending) if dot else (filename, "")


def _folded(name: str) -> str:
    """Case-folded and in normal form, as systems write accents differently."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())

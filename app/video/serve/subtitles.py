"""Subtitles as players find them: in the video, or in a file beside it."""

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
    """Subtitles of a film; `name` is that of their file without `.vtt`."""

    name: str
    language: str
    """BCP 47; "und" if nothing says."""
    title: str | None = None


# ---- text files ----------------------------------------------------------------------------------

# Subtitles beside a film: `film.srt`, `film.en.vtt` and the like, of the same owner.
#
# Which they are is asked of the records each time, so they follow every upload, new name and
# deletion, and nothing is kept that could be wrong.


ENDINGS = (".srt", ".vtt")

MOST_FILES = 20
"""Beside one film; others are not shown."""

MOST_NAMES = 500
"""Looked at beside one film, whatever they turn out to be: `film.final.srt` is no language."""

MOST_BYTES = 1 << 20
"""Read of one file: what follows is left out. Two hours of talk are 0.1 MB, and take 60 ms."""


@dataclass(frozen=True, slots=True)
class TextFile:
    """Subtitles of a film in a file of their own."""

    id: UploadId
    language: str
    """BCP 47; "und" if the name does not say."""

    @property
    def subtitles(self) -> Subtitles:
        """It, as those that are found in films."""
        return Subtitles(f"subs-{self.id}", self.language)


class TextFiles:
    """Finds and reads them."""

    def __init__(self, uploads: UploadRecords, source: MediaSource) -> None:
        self._uploads = uploads
        self._source = source

    def of(self, film: Upload) -> list[TextFile]:
        """Those beside a film, by name."""
        stem, ending = _split(film.filename)
        if ending.lower() in ENDINGS:
            return []
        found = self._uploads.beside(film.owner, stem, ENDINGS, limit=MOST_NAMES)
        languages = ((text.id, language_beside(stem, text.filename)) for text in found)
        texts = (TextFile(text_id, language) for text_id, language in languages if language)
        return list(islice(texts, MOST_FILES))

    def as_webvtt(self, film: Upload, text_id: UploadId) -> str:
        """One of them as WebVTT; raises `NotMade` if it is not beside the film, or not any more."""
        if text_id not in {text.id for text in self.of(film)}:
            raise NotMade("The film has no such subtitles.")
        with closing(self._source.open(self._uploads.get(text_id))) as file:
            text = decoded(reader(file)(0, MOST_BYTES))
        return webvtt(within_limit(cues_of(text)))


def language_beside(stem: str, filename: str) -> str | None:
    """The language of a text file of this name beside a film with that stem; None if it is not."""
    own_stem, ending = _split(filename)
    if ending.lower() not in ENDINGS:
        return None
    if _folded(own_stem) == _folded(stem):
        return UNDETERMINED
    own_stem, tag = _split(own_stem)
    return language_of(tag.removeprefix(".")) if _folded(own_stem) == _folded(stem) else None


def _split(filename: str) -> tuple[str, str]:
    """A name, with its folders, and what begins with its last dot."""
    stem, dot, ending = filename.rpartition(".")
    return (stem, dot + ending) if dot else (filename, "")


def _folded(name: str) -> str:
    """Without case, and with accents as every system writes them."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())

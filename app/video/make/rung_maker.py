"""Makes segments of the rungs of films, and keeps those of a rung alike."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from threading import Event

from app.core.jobs import JobFailed
from app.core.lifecycle import UploadState
from app.core.made_files import Made, Outdated
from app.core.upload import Upload, UploadId
from app.video.index.boxes import ReadAt
from app.video.index.entries import LONG_INDEX
from app.video.index.errors import LongIndex, NotIndexable
from app.video.index.movie import Movie
from app.video.index.rung_segments import RungCuts
from app.video.index.segments import segmented_video
from app.video.make.encoder import Encoder, recipe
from app.video.make.job_errors import as_job_errors, needing_index
from app.video.make.tools import StepTools
from app.video.serve.film_files import MANIFEST, keep_streams
from app.video.serve.folder import read_whole
from app.video.serve.ladder import Rung, ladder
from app.video.serve.manifest import Manifest, Stream
from app.video.serve.rungs import (
    initialization_file,
    left_out,
    left_out_file,
    rung_folder,
    segment_file,
)
from app.video.serve.source import length_of, reader

MADE_BY = "made-by"
"""In the folder of a rung: a digest of what its segments were made with. Players mix them, so all
are made with the same."""

NOT_ENCODED = "not_encoded"
"""The code of a job that failed because of what is in the film, as it will each time."""

TOO_LARGE = "too_large"
"""The code of a job for which too much of the film would have to be decoded."""

SEGMENTS_LOST = "segments_lost", "Segments were removed meanwhile."

MOST_EXCERPT_BYTES = 1 << 30
"""Of the film, decoded for one segment; a segment that needs more, or more than the whole film has,
is not made. Four seconds of ProRes 4444 in 4K have 0.9 GB."""

MOST_ENTRIES = 2 * LONG_INDEX
"""A film with a longer index, of 8 hours or more, is not made in other qualities: the media worker
keeps the index of one film, with 50 bytes an entry."""

CANNOT_BE_CONVERTED = "This part of the film cannot be converted"


@dataclass(frozen=True, slots=True)
class _Film:
    key: tuple[UploadId, int]
    movie: Movie
    cuts: RungCuts


@dataclass(frozen=True, slots=True, kw_only=True)
class RungMaker:
    """A rung of a film whose file is open. Numbers of segments count from 1."""

    tools: StepTools
    video_id: UploadId
    movie: Movie
    cuts: RungCuts
    rung: Rung
    encoder: str
    read_at: ReadAt

    def has(self, number: int) -> bool:
        """Whether a segment has been made."""
        name = segment_file(self.rung.quality, number)
        return self.tools.folder.find(self.video_id, name) is not None

    @property
    def left_out(self) -> frozenset[int]:
        """The segments that the whole film goes without."""
        return left_out(self.tools.folder, self.video_id, self.rung.quality)

    def prepare(self) -> None:
        """Remove what was made of the rung with another encoder, or otherwise."""
        folder = self.tools.folder
        with folder.locked(self.video_id):
            if self._mark() is None:
                folder.discard(self.video_id, rung_folder(self.rung.quality))
                with suppress(FileExistsError):  # Another machine has just prepared it.
                    self._write(self._made_by, self._mark_file, is_new=True)

    def make(self, number: int, stop: Event, *, wall_seconds: float) -> None:
        """Make a segment; raises `JobFailed`, and `JobCancelled` once `stop` is set."""
        quality, folder = self.rung.quality, self.tools.folder
        with folder.scratch_folder(self._excerpt_bytes(number)) as scratch:
            encoder = Encoder(self.tools.ffmpeg, scratch, self.read_at, stop, wall_seconds)
            with as_job_errors(NOT_ENCODED, CANNOT_BE_CONVERTED, is_final=True):
                initialization, segment = encoder.encode(self.cuts, number, self.rung)
            with self._adding() as mark:
                self._keep_initialization(initialization, mark)
                folder.keep(segment, self.video_id, segment_file(quality, number), beside=mark)

    def leave_out(self, number: int) -> None:
        """Note that nothing of a segment can be decoded."""
        numbers = sorted({*self.left_out, number})
        with self._adding() as mark:
            text = "\n".join(map(str, numbers))
            self._write(text, left_out_file(self.rung.quality), beside=mark)

    def forget_left_out(self) -> None:
        """Whoever orders the film again has them tried again."""
        self.tools.folder.discard(self.video_id, left_out_file(self.rung.quality))

    @contextmanager
    def _adding(self) -> Iterator[Made]:
        """The rung's mark; no file is added if the rung was removed since it was prepared."""
        with self.tools.folder.locked(self.video_id):
            mark = self._mark()
            if mark is None:
                raise JobFailed(*SEGMENTS_LOST)
            try:
                yield mark
            except Outdated as error:
                raise JobFailed(*SEGMENTS_LOST) from error

    def _keep_initialization(self, made: Path, mark: Made) -> None:
        """Keep the first initialization segment; all segments of a rung share it."""
        folder, name = self.tools.folder, initialization_file(self.rung.quality)
        content = made.read_bytes()
        if folder.find(self.video_id, name) is None:
            with suppress(FileExistsError):  # Another machine has just made it.
                folder.keep(made, self.video_id, name, beside=mark, is_new=True)
        if read_whole(folder, self.video_id, name) != content:
            problem = "This part of the film was encoded differently from the others."
            raise JobFailed("encoded_unlike", problem, is_final=True)

    def _write(
        self, text: str, name: str, *, beside: Made | None = None, is_new: bool = False
    ) -> None:
        folder = self.tools.folder
        with folder.scratch_folder() as scratch:
            made = scratch / "made"
            made.write_text(text)
            folder.keep(made, self.video_id, name, beside=beside, is_new=is_new)

    def _mark(self) -> Made | None:
        """The file that marks the rung as made with this encoder, if it exists."""
        try:
            found, file = self.tools.folder.fetch(self.video_id, self._mark_file)
        except FileNotFoundError:
            return None
        with closing(file):
            return found if file.readall() == self._made_by.encode() else None

    @property
    def _mark_file(self) -> str:
        return f"{rung_folder(self.rung.quality)}/{MADE_BY}"

    def _excerpt_bytes(self, number: int) -> int:
        """How much is copied for a segment. Samples may overlap in a hostile film."""
        size = self.cuts.excerpt(number).size
        if size > min(MOST_EXCERPT_BYTES, self.movie.length):
            problem = f"{CANNOT_BE_CONVERTED}: too much would have to be decoded for it."
            raise JobFailed(TOO_LARGE, problem, is_final=True)
        return size

    @property
    def _made_by(self) -> str:
        made_with = f"{self.encoder} {recipe(self.cuts, self.rung)}"
        return hashlib.sha256(made_with.encode()).hexdigest()


class RungMakers:
    """Opens films. The last one is remembered: the index of a long film takes half a second."""

    def __init__(self, tools: StepTools) -> None:
        self._tools = tools
        self._film: _Film | None = None

    @contextmanager
    def of(self, upload_id: UploadId, quality: int) -> Iterator[RungMaker]:
        """A rung of a complete film; raises `JobFailed` if it has no such rung here."""
        video = self._tools.uploads.get(upload_id)
        if video.state is not UploadState.COMPLETE:
            raise JobFailed("not_complete", "The film has not arrived yet.", is_final=True)
        with closing(self._tools.source.open(video)) as source:
            film, read_at = self._read(video, source), reader(source)
            capability, picture = self._tools.capability(), self._picture(film, read_at)
            rungs = {rung.quality: rung for rung in ladder(picture, capability)}
            if capability is None or quality not in rungs:
                problem = "This server does not make this quality of this film."
                raise JobFailed("not_offered", problem, is_final=True)
            maker = RungMaker(
                tools=self._tools,
                video_id=video.id,
                movie=film.movie,
                cuts=film.cuts,
                rung=rungs[quality],
                encoder=capability.encoder,
                read_at=read_at,
            )
            maker.prepare()
            yield maker

    def _read(self, video: Upload, source: RawIOBase) -> _Film:
        key = video.id, length_of(source)
        if self._film is None or self._film.key != key:
            movie = self._read_movie(source)
            if movie.picture is None:
                raise JobFailed("no_picture", "The file has no picture.", is_final=True)
            try:
                cuts = RungCuts.of(segmented_video(movie.picture))
            except NotIndexable as error:
                raise JobFailed(error.code, error.detail, is_final=True) from error
            self._film = _Film(key, movie, cuts)
        return self._film

    def _read_movie(self, source: RawIOBase) -> Movie:
        try:
            with needing_index():
                return self._tools.movies.read(source, most_entries=MOST_ENTRIES)[0]
        except LongIndex as error:
            problem = "The film has too many frames to be offered in other qualities."
            raise JobFailed("too_many_samples", problem, is_final=True) from error

    def _picture(self, film: _Film, read_at: ReadAt) -> Stream:
        """The picture in the manifest, which names the segments to players."""
        upload_id = film.key[0]
        for _ in range(2):
            picture = self._listed_picture(upload_id)
            if picture is not None and picture.rung_segments == film.cuts.durations:
                return picture
            # It is of an earlier version.
            keep_streams(film.movie, upload_id, self._tools.folder, read_at=read_at)
        raise JobFailed("no_segments", "The film has no segments.", is_final=True)

    def _listed_picture(self, upload_id: UploadId) -> Stream | None:
        try:
            return Manifest.from_json(read_whole(self._tools.folder, upload_id, MANIFEST)).picture
        except FileNotFoundError:
            return None

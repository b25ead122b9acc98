"""The step `index`: the first examination of a file, which makes most videos playable."""

from __future__ import annotations

from app.core.jobs import SOUND, Job, Lane
from app.core.playback import PlaybackProblem, PlaybackState
from app.core.upload import Upload
from app.video.index.boxes import NotIndexable, ReadAt
from app.video.index.movie import Movie
from app.video.index.texts import read_chapters
from app.video.make.pictures import PICTURES
from app.video.make.remux import OtherFormats
from app.video.make.sound import WAVEFORM
from app.video.make.steps import NO_FFMPEG, NO_RENDITIONS, Heartbeat, StepTools
from app.video.make.subtitles import SUBTITLES
from app.video.make.video_files import (
    can_be_rendered,
    is_playable,
    keep_play_file,
    keep_streams,
    sounds_to_encode,
)
from app.video.serve.facts import MANIFEST, SOUND_FILE, Facts
from app.video.serve.source import REMUXED


class Indexing:
    """Indexes a complete file, stores its metadata, and queues the next steps."""

    def __init__(self, tools: StepTools) -> None:
        self._tools = tools
        self._other_formats = OtherFormats(tools)

    def __call__(self, job: Job, beat: Heartbeat) -> None:
        """Do the job."""
        with self._tools.opened(job.upload_id) as (video, source):
            try:
                movie, read_at = self._tools.read_movie(job, source)
                facts = Facts.of(movie, read_chapters(movie, read_at))
                if is_playable(movie):
                    keep_play_file(movie, video.id, self._tools.folder, read_at=read_at)
            except NotIndexable as error:
                self._other_formats.look(video, source, error, job, beat)
                return
            facts = self._of_original(video, facts)
            if is_playable(movie):
                self._describe(video, PlaybackState.PLAYABLE, facts, facts.problem)
                keep_streams(movie, video.id, self._tools.folder, read_at=read_at)
            else:
                self._describe_unplayed(video, movie, facts, read_at)
            self._queue_what_follows(video, movie, facts)

    def _of_original(self, video: Upload, facts: Facts) -> Facts:
        """The facts of the original, even if a remuxed copy was indexed."""
        known = self._tools.media.get(video.id)
        if not self._has(video, REMUXED) or known is None or known.facts is None:
            return facts
        return Facts.from_json(known.facts).completed_by(facts)

    def _describe_unplayed(
        self, video: Upload, movie: Movie, facts: Facts, read_at: ReadAt
    ) -> None:
        """Describe a video that no browser plays: it becomes playable once a track is encoded."""
        is_sound = movie.picture is None and bool(sounds_to_encode(movie))
        if can_be_rendered(movie, self._tools.capability()) or (
            is_sound and self._has(video, SOUND_FILE)
        ):
            keep_streams(movie, video.id, self._tools.folder, read_at=read_at)
        if self._has(video, MANIFEST):
            self._describe(video, PlaybackState.PLAYABLE, facts, facts.problem)
        elif self._tools.ffmpeg.ffmpeg is None:
            self._describe(video, PlaybackState.UNPLAYABLE, facts, _needs_ffmpeg(facts))
        elif is_sound:
            self._describe(video, PlaybackState.PROBED, facts, None)
        else:
            self._describe(video, PlaybackState.UNPLAYABLE, facts, _not_offered(facts))

    def _describe(
        self, video: Upload, state: PlaybackState, facts: Facts, problem: PlaybackProblem | None
    ) -> None:
        now = self._tools.clock()
        self._tools.media.describe(video.id, state, now, facts=facts.to_json(), problem=problem)

    def _has(self, video: Upload, name: str) -> bool:
        return self._tools.folder.find(video.id, name) is not None

    def _queue_what_follows(self, video: Upload, movie: Movie, facts: Facts) -> None:
        """Queue the automatic steps; shortest first."""
        if facts.chapters or facts.of_kind("text"):
            self._enqueue(video, SUBTITLES, priority=10)
        if self._tools.ffmpeg.ffmpeg is None:
            return
        if self._needs_sound(video, movie):
            self._enqueue(video, SOUND, priority=15)
        if movie.picture is not None:
            self._enqueue(video, PICTURES, priority=20)
        elif movie.sounds:
            self._enqueue(video, WAVEFORM, priority=30)

    def _needs_sound(self, video: Upload, movie: Movie) -> bool:
        """Whether its segments lack audio; an audio file that plays needs no encoding."""
        if not sounds_to_encode(movie) or self._has(video, SOUND_FILE):
            return False
        return not is_playable(movie) if movie.picture is None else self._has(video, MANIFEST)

    def _enqueue(self, video: Upload, step: str, *, priority: int) -> None:
        lane, now = Lane.BACKGROUND, self._tools.clock()
        self._tools.jobs.enqueue(video.id, step, lane=lane, priority=priority, now=now, renew=True)


def _needs_ffmpeg(facts: Facts) -> PlaybackProblem:
    return PlaybackProblem(
        NO_FFMPEG,
        f"Browsers cannot play what is in this file ({_codecs(facts)}). To convert it, the server "
        "needs ffmpeg, which is not installed.",
    )


def _not_offered(facts: Facts) -> PlaybackProblem:
    return PlaybackProblem(
        NO_RENDITIONS,
        f"Browsers cannot play what is in this file ({_codecs(facts)}), and the server does not "
        "offer it in another quality.",
    )


def _codecs(facts: Facts) -> str:
    return ", ".join(track.codec for track in facts.tracks if track.kind in {"video", "audio"})

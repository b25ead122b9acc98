"""Films that an edit list cuts: HLS shows what the edit list says, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from app.video.index.boxes import NotIndexable
from app.video.index.edits import MAX_EDITS, Edit, Timeline
from app.video.index.flattened import Remaining, flattened
from app.video.index.samples import LONG_INDEX
from app.video.index.segments import segmented_sound, segmented_video
from app.video.index.texts import read_cues, subtitle_tracks
from app.video.index.tracks import Track
from tests.video.films import FilmStore
from tests.video.frames import (
    BEEP_TOLERANCE,
    FRAME_TOLERANCE,
    Frame,
    Showing,
    differences,
    seen,
    watch,
)
from tests.video.index.making import indexed, write_segments
from tests.video.rewritten import FIXED_ONE, Part, with_edits

RATE = 25
SECONDS = 6
MOVIE_TIMESCALE = 1000

CUT: list[Part] = [(1.2, 0.2), (2.4, 2.2)]
SWAPPED: list[Part] = [(1.44, 3.0), (1.44, 0.2), (1.0, 3.6)]
WITH_GAPS: list[Part] = [(0.52, None), (1.0, 1.2), (0.6, None), (1.44, 4.2)]


def shown(path: Path, folder: Path) -> Showing:
    """What HLS made of a film shows and sounds like."""
    movie = indexed(path)
    assert movie.picture
    video = segmented_video(movie.picture)
    picture = watch(write_segments(video, path, folder / "video.mp4"))
    sound = segmented_sound(movie.sounds[0], [segment.start for segment in video.segments()][1:])
    heard = watch(write_segments(sound, path, folder / "sound.mp4"))
    return Showing(tuple(seen(picture.frames)), heard.beeps)


def expected(parts: Sequence[Part], whole: Showing) -> Showing:
    """What an edit list shows of a film that begins at its first frame."""
    pixels = [frame.digest for frame in whole.frames]
    frames, beeps, start = [], [], 0.0
    for seconds, begin in parts:
        if begin is not None:
            later, end = start - begin, begin + seconds - FRAME_TOLERANCE
            numbers = [n for n in range(RATE * SECONDS) if begin <= n / RATE < end]
            frames += [Frame(n / RATE + later, n, pixels[n]) for n in numbers]
            beeps += [n + 0.5 + later for n in range(SECONDS) if begin <= n + 0.5 < end]
        start += seconds
    return Showing((replace(frames[0], time=0), *frames[1:]), (tuple(beeps),))


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("moov-last.mp4", SWAPPED),
        ("moov-last.mp4", WITH_GAPS),
        ("hevc.mp4", CUT),
    ],
    ids=["swapped", "with gaps", "hevc"],
)
def test_hls_shows_what_the_edit_list_says(
    film: FilmStore, tmp_path: Path, name: str, parts: list[Part]
) -> None:
    path = tmp_path / name
    with_edits(film(name), path, *parts)
    wanted, found = expected(parts, watch(film(name))), shown(path, tmp_path)
    # The last frame is left out by `seen`, as it may be one that others need.
    assert [(frame.number, frame.digest) for frame in found.frames] == [
        (frame.number, frame.digest) for frame in wanted.frames[: len(found.frames)]
    ]
    assert len(wanted.frames) - len(found.frames) <= 1
    for frame, other in zip(found.frames, wanted.frames, strict=False):
        assert frame.time == pytest.approx(other.time, abs=FRAME_TOLERANCE)
    assert found.beeps[0] == pytest.approx(wanted.beeps[0], abs=BEEP_TOLERANCE)
    movie = indexed(path)
    assert float(movie.duration) == pytest.approx(sum(seconds for seconds, _ in parts), abs=0.03)


@pytest.mark.parametrize("name", ["several-edits.mp4", "hidden-start.mp4"])
def test_ffmpeg_reads_the_same_from_the_original(
    film: FilmStore, tmp_path: Path, name: str
) -> None:
    """Without reordered frames, or with one edit: it errs by a frame at cuts between others."""
    found, original = shown(film(name), tmp_path), watch(film(name))
    without_last = replace(original, frames=original.frames[: len(found.frames)])
    assert len(original.frames) - len(found.frames) <= 1
    assert differences(without_last, found) == []


def with_edit_list(track: Track, *edits: Edit) -> Track:
    """The track with other edits, flattened."""
    timeline = Timeline.of(edits, movie_timescale=MOVIE_TIMESCALE, timescale=track.timescale)
    cut = replace(track, edits=edits, timeline=timeline)
    return flattened(cut, movie_timescale=MOVIE_TIMESCALE, remaining=Remaining(LONG_INDEX))


def test_a_key_frame_of_a_cut_film_is_the_picture_of_its_time(film: FilmStore) -> None:
    movie = indexed(film("several-edits.mp4"))
    track, stored = movie.tracks[0], movie.stored_tracks[0]
    number = track.key_frame_before(Fraction(3, 2))
    assert track.shown_at(number) / track.timescale == pytest.approx(1.2, abs=FRAME_TOLERANCE)
    # The key frame before 2.2 s.
    assert stored.samples.offsets.index(track.samples.offsets[number]) == 50


def test_what_is_not_shown_is_no_part_of_the_frame_rate(film: FilmStore) -> None:
    track = indexed(film("hidden-start.mp4")).tracks[0]
    assert [len(run) for run in track.unseen] == [
        5,
        1,
    ]  # from the key frame at 1 s to 1.2 s, and at the end
    assert float(track.frame_rate) == pytest.approx(RATE, abs=0.1)


def test_subtitles_are_cut_with_the_film(film: FilmStore) -> None:
    """The first one is shown from 0.5 to 1.5 s, the second one from 2 to 3 s."""
    path = film("subtitles.mp4")
    data = path.read_bytes()
    (track,) = subtitle_tracks(indexed(path))
    second = track.timescale
    cut = with_edit_list(track, Edit(1000, second), Edit(2500, 0), Edit(500, 2 * second))
    cues = list(read_cues(cut, lambda offset, count: data[offset : offset + count]))
    assert [(float(cue.start), float(cue.end), cue.text) for cue in cues] == [
        (0, 0.5, "Good evening"),
        (1.5, 2.5, "Good evening"),
        (3, 3.5, "Ä"),
        (3.5, 4, "Ä"),
    ]


def repeated(track: Track, count: int, **changes: int) -> Track:
    """The track with so many edits, each of which shows all of it."""
    whole = Edit(MOVIE_TIMESCALE * SECONDS, track.edits[0].media_time)
    return with_edit_list(track, *[replace(whole, **changes)] * count)


def test_a_film_may_be_repeated_but_not_without_end(film: FilmStore) -> None:
    for track in indexed(film("moov-last.mp4")).tracks:
        for count in (2, 300):
            assert repeated(track, count).duration == pytest.approx(count * SECONDS, abs=0.05)
            assert len(repeated(track, count).samples) == pytest.approx(
                count * len(track.samples), rel=0.01
            )
        endless = repeated(track, MAX_EDITS)
        cut = segmented_video if track.kind == "video" else segmented_sound
        assert endless.samples is track.samples
        with pytest.raises(NotIndexable) as refused:
            cut(endless)
        assert refused.value.code == "complex_edits"


def test_a_film_at_another_speed_or_with_a_pause_of_hours_is_left_to_play_mp4(
    film: FilmStore,
) -> None:
    track = indexed(film("moov-last.mp4")).tracks[0]
    pause = Edit(2 * 3600 * MOVIE_TIMESCALE, -1)
    part = Edit(1000, track.edits[0].media_time)
    for cut in (repeated(track, 2, rate=FIXED_ONE // 2), with_edit_list(track, part, pause, part)):
        with pytest.raises(NotIndexable) as refused:
            segmented_video(cut)
        assert refused.value.code == "complex_edits"

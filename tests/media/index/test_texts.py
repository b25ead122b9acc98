"""Subtitles and chapters, read from the film's own text tracks."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from app.media.index.boxes import ReadAt
from app.media.index.texts import Cue, read_chapters, read_cues, subtitle_tracks, webvtt
from tests.media.films import FilmStore, ffmpeg
from tests.media.index.making import indexed


def reading(path: Path) -> ReadAt:
    data = path.read_bytes()
    return lambda offset, count: data[offset : offset + count]


def test_subtitles_become_webvtt(film: FilmStore) -> None:
    movie = indexed(film("subtitles.mp4"))
    (track,) = subtitle_tracks(movie)
    assert track.language == "en"
    assert webvtt(read_cues(track, reading(film("subtitles.mp4")))) == (
        "WEBVTT\n\n"
        "00:00:00.500 --> 00:00:01.500\nGood evening\n\n"
        "00:00:02.000 --> 00:00:03.000\nÄ\n"
    )


def test_text_with_the_signs_of_tags_is_shown_as_it_is(film: FilmStore, tmp_path: Path) -> None:
    data = film("subtitles.mp4").read_bytes()
    place = data.index(b"Good evening")
    changed = tmp_path / "signs.mp4"
    changed.write_bytes(data[:place] + b"1 < 2 --> &\n\n" + data[place + 13 :])
    text = webvtt(read_cues(subtitle_tracks(indexed(changed))[0], reading(changed)))
    assert "\n1 &lt; 2 --&gt; &amp;\n\n" in text


def test_chapters_are_found_in_a_list_and_in_a_track(film: FilmStore, tmp_path: Path) -> None:
    quicktime = tmp_path / "chapters.mov"
    ffmpeg("-i", str(film("chapters.mp4")), "-map", "0:v", "-c", "copy", str(quicktime))
    for path in (film("chapters.mp4"), quicktime):
        movie = indexed(path)
        chapters = read_chapters(movie, reading(path))
        assert [(chapter.start, chapter.title) for chapter in chapters] == [
            (Fraction(0), "Morning"),
            (Fraction(2), "Evening"),
        ]
        assert subtitle_tracks(movie) == []


def test_a_film_without_chapters_has_none(film: FilmStore) -> None:
    path = film("moov-last.mp4")
    assert read_chapters(indexed(path), reading(path)) == ()


def test_hours_and_settings_are_written_as_webvtt_wants_them() -> None:
    cue = Cue(Fraction(3601), Fraction(3602, 1) + Fraction(1, 3), "Noon", "line:0")
    assert "01:00:01.000 --> 01:00:02.333 line:0\nNoon\n" in webvtt([cue])

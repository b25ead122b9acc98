"""Subtitles and chapters, read from the film's own text tracks."""

from __future__ import annotations

from array import array
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from app.video.index.boxes import Box, ReadAt, box, full_box
from app.video.index.samples import Samples
from app.video.index.texts import (
    MAX_CHAPTER_BYTES,
    MAX_CHAPTERS,
    MAX_CUES,
    MAX_TEXT_BYTES,
    MAX_TRACK_BYTES,
    Cue,
    read_chapters,
    read_cues,
    subtitle_tracks,
    webvtt,
)
from app.video.index.tracks import Track
from tests.video.films import FilmStore, ffmpeg
from tests.video.index.making import indexed


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


def text_track(film: FilmStore, fourcc: str, count: int, size: int) -> Track:
    """The track of a film's subtitles with `count` samples of a second, all at byte 0."""
    (track,) = subtitle_tracks(indexed(film("subtitles.mp4")))
    samples = Samples(
        array("Q", bytes(8 * count)),
        array("I", [size]) * count,
        array("q", range(0, count * track.timescale, track.timescale)),
        array("i", bytes(4 * count)),
        range(count),
        count * track.timescale,
    )
    entry = replace(track.entry, fourcc=fourcc)
    timeline = replace(track.timeline, end=None)
    return replace(track, samples=samples, entry=entry, timeline=timeline)


def test_cues_without_a_text_are_left_out(film: FilmStore) -> None:
    sample = box(b"vttc") + box(b"vttc", box(b"payl", b"Hello")) + box(b"vttc")
    cues = read_cues(text_track(film, "wvtt", 2, len(sample)), lambda *_: sample)
    assert [cue.text for cue in cues] == ["Hello", "Hello"]


def test_cues_are_counted_not_the_samples_they_are_in(film: FilmStore) -> None:
    sample = box(b"vttc", box(b"payl", b"A")) * 900
    track = text_track(film, "wvtt", MAX_CUES // 900 + 5, len(sample))
    assert sum(1 for _ in read_cues(track, lambda *_: sample)) == MAX_CUES


def test_of_samples_that_are_all_at_one_place_not_all_are_read(film: FilmStore) -> None:
    sample = box(b"vttc", bytes(MAX_TEXT_BYTES - 8))
    track = text_track(film, "wvtt", 10_000, len(sample))
    reads: list[int] = []

    def read_at(_offset: int, count: int) -> bytes:
        reads.append(count)
        return sample

    assert list(read_cues(track, read_at)) == []
    assert sum(reads) == MAX_TRACK_BYTES


def test_cues_without_a_text_are_counted_too(film: FilmStore) -> None:
    """A sample of 16 KiB has two thousand of them, and all samples may be at one place."""
    sample = box(b"vttc") * (MAX_TEXT_BYTES // 8)
    track = text_track(film, "wvtt", MAX_TRACK_BYTES // MAX_TEXT_BYTES, len(sample))
    reads: list[int] = []

    def read_at(_offset: int, count: int) -> bytes:
        reads.append(count)
        return sample

    assert list(read_cues(track, read_at)) == []
    assert len(reads) == -(-MAX_CUES // (MAX_TEXT_BYTES // 8))


def test_less_is_read_of_chapters(film: FilmStore) -> None:
    """They are read with the index, which the films of others wait for."""
    movie, reads = indexed(film("chapters.mp4")), list[int]()
    track = replace(text_track(film, "wvtt", 10_000, MAX_TEXT_BYTES), references={b"chap": 7})
    unlisted = replace(movie.box, payload=memoryview(b""))

    def read_at(_offset: int, count: int) -> bytes:
        reads.append(count)
        return bytes(count)

    assert (
        read_chapters(replace(movie, tracks=(replace(track, id=7),), box=unlisted), read_at) == ()
    )
    assert sum(reads) == MAX_CHAPTER_BYTES


def test_chapters_without_a_title_are_counted_too(film: FilmStore) -> None:
    """Each may be in another block of a file in a bucket."""
    movie, reads = indexed(film("chapters.mp4")), list[int]()
    track = replace(text_track(film, "tx3g", 100_000, 2), id=7, references={b"chap": 7})
    unlisted = replace(movie.box, payload=memoryview(b""))

    def read_at(_offset: int, count: int) -> bytes:
        reads.append(count)
        return bytes(count)

    assert read_chapters(replace(movie, tracks=(track,), box=unlisted), read_at) == ()
    assert len(reads) == MAX_CHAPTERS


def test_a_long_title_of_a_chapter_is_cut(film: FilmStore) -> None:
    title = b"a" * 255
    listed = full_box(b"chpl", 0, 0, b"\1", bytes(8), bytes([len(title)]), title)
    movie = indexed(film("moov-last.mp4"))
    moov = Box(b"moov", memoryview(box(b"udta", listed)), movie.box.raw)
    (chapter,) = read_chapters(replace(movie, box=moov), lambda *_: b"")
    assert chapter.title == "a" * 200


def test_a_film_without_chapters_has_none(film: FilmStore) -> None:
    path = film("moov-last.mp4")
    assert read_chapters(indexed(path), reading(path)) == ()


def test_hours_and_settings_are_written_as_webvtt_wants_them() -> None:
    cue = Cue(Fraction(3601), Fraction(3602, 1) + Fraction(1, 3), "Noon", "line:0")
    assert "01:00:01.000 --> 01:00:02.333 line:0\nNoon\n" in webvtt([cue])

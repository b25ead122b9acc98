"""Subtitles in files of their own: which belong to a film, and what becomes of them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from app.core.lifecycle import UploadState
from app.db.engine import Database
from app.records.uploads import UploadRecords
from app.video.index.texts import MAX_CUES, cues_of, decoded, webvtt
from app.video.serve.library import MOST_BYTES, TextFiles, language_beside
from app.video.serve.source import MediaSource
from tests.derived import files_in
from tests.records.making import new_upload
from tests.storage.stores import local_store

SUBRIP = """1
00:00:00,500 --> 00:00:01,500
- <i>Good</i> <font color="red">evening</font> & <b onclick="x">welcome
{\\an8}- 1 < 2

2
0:00:02,000-->0:00:03,5  X1:40 X2:600
Ä

3
00:00:09,000 --> 00:00:08,000
Never
"""

WEBVTT = """WEBVTT - a title

STYLE
::cue { color: red }

NOTE 00:01.000 is no time

first
00:01.000 --> 00:02.500 line:0 align:start region:x
<v Roger>Hello --> there</v>
"""


def converted(text: str) -> str:
    return webvtt(cues_of(text))


def test_subrip_becomes_webvtt() -> None:
    assert converted(SUBRIP) == (
        "WEBVTT\n\n"
        "00:00:00.500 --> 00:00:01.500\n"
        '- <i>Good</i> evening &amp; &lt;b onclick="x"&gt;welcome\n- 1 &lt; 2\n\n'
        "00:00:02.000 --> 00:00:03.500\nÄ\n"
    )


def test_of_webvtt_the_cues_are_kept_and_nothing_else() -> None:
    assert converted(WEBVTT) == (
        "WEBVTT\n\n00:00:01.000 --> 00:00:02.500 line:0 align:start\n"
        "<v Roger>Hello --&gt; there</v>\n"
    )


@pytest.mark.parametrize(
    "written",
    [
        SUBRIP.replace("\n", "\r\n"),
        SUBRIP.replace("\n", "\r\r\n"),
        SUBRIP.replace("00\n", "00\n\n").replace("X2:600\n", "X2:600\n\n"),
        SUBRIP.replace("\n\n", "\n"),
    ],
    ids=["carriage returns", "two of them", "empty line after the times", "none between cues"],
)
def test_subrip_is_read_as_many_programs_write_it(written: str) -> None:
    assert converted(written) == converted(SUBRIP)


def test_a_cue_without_text_does_not_show_that_of_another() -> None:
    written = "1\n00:01,000 --> 00:02,000\n\n2\n00:03,000 --> 00:04,000\n12\n\n\n"
    assert converted(written) == "WEBVTT\n\n00:00:03.000 --> 00:00:04.000\n12\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_every_usual_encoding_is_read(encoding: str) -> None:
    assert decoded(SUBRIP.encode(encoding)) == SUBRIP


def test_a_letter_that_is_cut_in_two_does_not_change_the_encoding() -> None:
    assert decoded("Grüße – ß".encode()[:-1]) == "Grüße – "


@pytest.mark.parametrize(
    "text",
    [
        "00:00:01,000 --> 00:00:02,000\nx\n\n" * 30_000,
        "0:00:01,0 " + "-->" * 300_000,
        " " * MOST_BYTES,
        "\n" * MOST_BYTES,
        "\r" * MOST_BYTES,
        "00:00:01,000 --> 00:00:02,000\n" + "<font " * 170_000,
        "00:00:01,000 --> 00:00:02,000\n" + "{\\" * 500_000,
        "00:00:01,000 --> 00:00:02,000" + " line:" * 170_000,
        "9999:99:99,999 --> 9999:99:99,999\n",
        "\0\x1b\u2028\ud800",
    ],
    ids=str.__len__,
)
def test_hostile_files_are_read_soon(text: str) -> None:
    began = time.process_time()
    found = cues_of(text)
    assert len(found) <= MAX_CUES
    assert all("\n\n" not in cue.text and "-->" not in cue.text for cue in found)
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("filename", "language"),
    [
        ("Trip/Film 2.srt", "und"),
        ("trip/FILM 2.VTT", "und"),
        ("Trip/Film 2.en.srt", "en"),
        ("Trip/Film 2.ger.vtt", "de"),
        ("Trip/Film 2.pt-BR.srt", "pt-BR"),
        ("Trip/Film 2.final.srt", None),
        ("Trip/Film 2.txt", None),
        ("Trip/Film 20.srt", None),
        ("Other/Film 2.srt", None),
        ("Film 2.srt", None),
        ("Trip/Film 2.en.srt.mp4", None),
    ],
)
def test_the_name_says_the_film_and_the_language(filename: str, language: str | None) -> None:
    assert language_beside("Trip/Film 2", filename) == language


def test_accents_are_compared_however_they_are_written() -> None:
    assert language_beside("e\u0301te\u0301", "\u00c9t\u00e9.srt") == "und"


@pytest.fixture
def records(in_file: Database) -> UploadRecords:
    return UploadRecords(in_file)


def test_only_what_may_be_beside_a_film_is_read_from_the_records(records: UploadRecords) -> None:
    beside = ["clip 2.srt", "Clip 2.en.vtt", "clip 2.z.srt"]
    apart = ["clip 2.mp4", "clip 2.001.srt", "clip 20.srt", "clip 2", "clip 1.srt", "clip 2.srt.gz"]
    for name in (*beside, *apart):
        upload = replace(new_upload(), filename=name, state=UploadState.COMPLETE)
        records.add(upload)
        records.add(replace(new_upload(owner="another"), filename=name, state=UploadState.COMPLETE))
    found = records.beside("someone", "clip 2", (".srt", ".vtt"), limit=10)
    assert sorted(upload.filename for upload in found) == sorted(beside)
    assert {upload.owner for upload in found} == {"someone"}


def test_files_that_are_no_subtitles_hide_none(
    records: UploadRecords, in_file: Database, tmp_path: Path
) -> None:
    names = ["clip.mp4", *(f"clip.cut {number}.srt" for number in range(30)), "clip.en.srt"]
    film, *_ = [
        records.add(replace(new_upload(), filename=name, state=UploadState.COMPLETE))[0]
        for name in names
    ]
    source = MediaSource(
        local_store(tmp_path / "in", tmp_path / "out"), files_in(tmp_path, in_file)
    )
    assert [text.language for text in TextFiles(records, source).of(film)] == ["en"]

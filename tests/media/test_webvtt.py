"""WebVTT files that no text can break."""

from app.media.webvtt import Cue, webvtt


def test_cues_are_written_with_milliseconds() -> None:
    assert webvtt([Cue(0, 1.5, "One"), Cue(3661.0004, 360_000, "Two\nlines")]) == (
        "WEBVTT\n"
        "\n00:00:00.000 --> 00:00:01.500\nOne\n"
        "\n01:01:01.000 --> 100:00:00.000\nTwo\nlines\n"
    )


def test_text_is_no_markup_and_ends_no_cue() -> None:
    text = "1 --> 2\r\n\r\n \n<b>&\0\u2028NOTE"
    assert webvtt([Cue(0, 1, text)]) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\n1 --&gt; 2\n&lt;b&gt;&amp;\ufffd\nNOTE\n"
    )


def test_what_cannot_be_shown_is_left_out() -> None:
    assert webvtt([Cue(1, 1, "no time"), Cue(2, 1, "less"), Cue(0, 1, " \n")]) == "WEBVTT\n"

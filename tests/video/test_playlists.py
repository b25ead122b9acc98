"""Playlists are byte for byte what RFC 8216 wants."""

from __future__ import annotations

from dataclasses import replace

from app.video.serve.facts import Manifest, Stream
from app.video.serve.playlists import Subtitles, master_playlist, media_playlist, segment_lines

THREE = segment_lines([4.004, 4.004, 0.333333])
LONGEST = 4.004


def test_a_complete_film_is_a_list_that_ends() -> None:
    assert media_playlist(THREE, LONGEST) == (
        "#EXTM3U\n"
        "#EXT-X-VERSION:7\n"
        "#EXT-X-TARGETDURATION:5\n"
        "#EXT-X-MEDIA-SEQUENCE:1\n"
        "#EXT-X-PLAYLIST-TYPE:VOD\n"
        '#EXT-X-MAP:URI="init.mp4"\n'
        "#EXTINF:4.004000,\n1.m4s\n"
        "#EXTINF:4.004000,\n2.m4s\n"
        "#EXTINF:0.333333,\n3.m4s\n"
        "#EXT-X-ENDLIST\n"
    )


def test_a_film_that_arrives_is_a_list_that_grows_and_is_played_from_its_beginning() -> None:
    assert media_playlist(THREE, LONGEST, available=1) == (
        "#EXTM3U\n"
        "#EXT-X-VERSION:7\n"
        "#EXT-X-TARGETDURATION:5\n"
        "#EXT-X-MEDIA-SEQUENCE:1\n"
        "#EXT-X-PLAYLIST-TYPE:EVENT\n"
        "#EXT-X-START:TIME-OFFSET=0\n"
        '#EXT-X-MAP:URI="init.mp4"\n'
        "#EXTINF:4.004000,\n1.m4s\n"
    )


def test_variants_name_their_sound_and_subtitles() -> None:
    picture = Stream(
        name="source",
        kind="video",
        codecs="hvc1.2.4.L120.90",
        peak_rate=1_900_000,
        mean_rate=1_420_000,
        width=1920,
        height=1080,
        frame_rate=29.97,
        video_range="PQ",
    )
    first, second, third = (
        Stream(
            name=f"audio-{number}", kind="audio", codecs="mp4a.40.2", peak_rate=rate, mean_rate=rate
        )
        for number, rate in ((1, 80_000), (2, 60_000), (3, 60_000))
    )
    first = replace(first, language="en", channels=2, peak_rate=100_000)
    second = replace(second, title='The "cut"\n')
    third = replace(third, title="en", language="en")
    subtitles = [Subtitles("subs-1", "en", "English")]
    assert master_playlist(Manifest([picture, first, second, third]), [], subtitles) == (
        "#EXTM3U\n"
        "#EXT-X-VERSION:7\n"
        '#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio",NAME="en",DEFAULT=YES,AUTOSELECT=YES,'
        'LANGUAGE="en",CHANNELS="2",URI="audio-1/index.m3u8"\n'
        '#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio",NAME="The \'cut\'",DEFAULT=NO,AUTOSELECT=YES,'
        'URI="audio-2/index.m3u8"\n'
        '#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio",NAME="en 2",DEFAULT=NO,AUTOSELECT=YES,'
        'LANGUAGE="en",URI="audio-3/index.m3u8"\n'
        '#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID="subtitles",NAME="English",DEFAULT=NO,AUTOSELECT=YES,'
        'LANGUAGE="en",URI="subs-1/index.m3u8"\n'
        "#EXT-X-STREAM-INF:BANDWIDTH=2000000,AVERAGE-BANDWIDTH=1500000,"
        'CODECS="hvc1.2.4.L120.90,mp4a.40.2",RESOLUTION=1920x1080,FRAME-RATE=29.970,'
        'VIDEO-RANGE=PQ,AUDIO="audio",SUBTITLES="subtitles",CLOSED-CAPTIONS=NONE\n'
        "source/index.m3u8\n"
    )

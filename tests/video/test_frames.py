"""The comparers pass what ffmpeg itself remuxes or segments, and name every damage."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.long_tests import long
from tests.video.films import FilmStore, ffmpeg
from tests.video.frames import differences, duration_of, packets, watch
from tests.video.hls_reader import download, faults

COPY = ("-map", "0", "-c", "copy")


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A folder's address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def segmented(film: FilmStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the HLS that ffmpeg makes of a film: its sound apart, segments of 1 s."""
    folder = tmp_path_factory.mktemp("hls")
    split = ("-var_stream_map", "v:0,agroup:sound a:0,agroup:sound,language:eng,default:yes")
    fragments = ("-hls_segment_type", "fmp4", "-hls_fmp4_init_filename", "%v.mp4")
    names = ("-hls_segment_filename", f"{folder}/%v-%d.m4s", "-master_pl_name", "master.m3u8")
    whole = ("-f", "hls", "-hls_time", "1", "-hls_playlist_type", "vod")
    source = ("-i", str(film("h264.mp4")), *COPY)
    ffmpeg(*source, *whole, *fragments, *split, *names, f"{folder}/%v.m3u8")
    return folder


def test_every_frame_tells_its_number_and_sound_beeps_in_the_middle_of_seconds(
    film: FilmStore,
) -> None:
    shown = watch(film("ntsc.mp4"))
    assert [frame.number for frame in shown.frames] == list(range(180))
    assert shown.frames[30].time == pytest.approx(1.001, abs=0.0001)
    assert shown.beeps[0] == pytest.approx((0.5, 1.5, 2.5, 3.5, 4.5, 5.5), abs=0.005)


@pytest.mark.parametrize(
    "name",
    ["two-languages.mp4", *long(["moov-last.mp4", "hevc-open-gop.mp4", "variable-rate.mp4"])],
)
def test_a_remux_shows_the_same(film: FilmStore, tmp_path: Path, name: str) -> None:
    remuxed = tmp_path / "remuxed.mp4"
    ffmpeg("-i", str(film(name)), *COPY, "-movflags", "+faststart", str(remuxed))
    assert differences(watch(film(name)), watch(remuxed)) == []
    assert packets(remuxed, "v:0") == packets(film(name), "v:0")
    assert duration_of(remuxed) == pytest.approx(duration_of(film(name)), abs=0.04)


DAMAGES = {
    "1 frames are missing: [50]": ("-bsf:v", r"noise=drop=eq(n\,50)"),
    "frame 50 is 20.0 ms late": ("-bsf:v", r"setts=pts=PTS+256*eq(N\,50):dts=DTS"),
    "frame 0 has other pixels": ("-c:v", "libx264", "-preset", "ultrafast", "-crf", "35"),
    # 40 ms, which the edit list rounds to its milliseconds
    "track 0 beeps 39 ms late at 1.50 s": ("-bsf:a", "setts=ts=TS+1920"),
    "0 audio tracks instead of 1": ("-an",),
}


@pytest.mark.parametrize("complaint", DAMAGES)
def test_damage_is_named(film: FilmStore, tmp_path: Path, complaint: str) -> None:
    damaged = tmp_path / "damaged.mp4"
    ffmpeg("-i", str(film("intra.mp4")), *COPY, *DAMAGES[complaint], str(damaged))
    found = differences(watch(film("intra.mp4")), watch(damaged))
    assert complaint in "\n".join(found)


DOUBLED = ((0, 2.04), (2.0, 6.0))
SWAPPED = ((0, 2.0), (2.04, 2.08), (2.0, 2.04), (2.08, 6.0))


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [(DOUBLED, "1 frames are shown too often: [50]"), (SWAPPED, "number=51) comes")],
    ids=["doubled", "swapped"],
)
def test_frames_that_are_doubled_or_swapped_are_named(
    film: FilmStore, tmp_path: Path, parts: Sequence[tuple[float, float]], complaint: str
) -> None:
    script, damaged = tmp_path / "parts.txt", tmp_path / "damaged.mp4"
    part = f"file {film('intra.mp4')}\ninpoint {{}}\noutpoint {{}}\n"
    script.write_text("ffconcat version 1.0\n" + "".join(part.format(*span) for span in parts))
    ffmpeg("-safe", "0", "-i", str(script), "-map", "0:v", "-c", "copy", str(damaged))
    found = differences(watch(film("intra.mp4")), watch(damaged))
    assert complaint in "\n".join(found)


def test_hls_shows_the_same_read_by_us_and_by_ffmpeg(
    film: FilmStore, segmented: Path, tmp_path: Path
) -> None:
    original = watch(film("h264.mp4"))
    with serving(segmented) as site:
        stream = download(f"{site}/master.m3u8", tmp_path)
        assert differences(original, watch(f"{site}/master.m3u8")) == []
    assert differences(original, stream.showing()) == []
    assert faults(stream.variants[0], has_picture=True) == []
    assert faults(stream.sounds[0], has_picture=False) == []
    assert stream.variants[0].duration == pytest.approx(12, abs=0.04)


def test_damaged_hls_is_named(film: FilmStore, segmented: Path, tmp_path: Path) -> None:
    original = watch(film("h264.mp4"))
    playlist = segmented / "0.m3u8"
    text = playlist.read_text()
    without = text.replace("#EXTINF:1.000000,\n0-2.m4s\n", "")
    shifted = text.replace("#EXTINF:1.000000,", "#EXTINF:0.960000,", 1)
    growing = text.replace("#EXT-X-ENDLIST\n", "")
    with serving(segmented) as site:
        streams = {}
        for name, damaged in (("without", without), ("shifted", shifted), ("growing", growing)):
            assert damaged != text
            playlist.write_text(damaged)
            streams[name] = download(f"{site}/master.m3u8", tmp_path / name)
    playlist.write_text(text)
    assert "25 frames are missing" in differences(original, streams["without"].showing())[0]
    assert "no key frame is at" in faults(streams["shifted"].variants[0], has_picture=True)[0]
    assert "does not end" in faults(streams["growing"].variants[0], has_picture=True)[0]

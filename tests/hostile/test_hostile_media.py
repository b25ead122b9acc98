"""Films that want other users' films, the network, or the whole machine.

The files hold no frame of their own: whatever is decoded is the secret film. Each attack is shown
to work on a bare ffmpeg, and to fail with the options alone, with each layer of the sandbox that
is meant to stop it alone, and with everything.
"""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest

from app.video.make.ffmpeg import VIDEO_FORMATS, Conversion, Ffmpeg, FfmpegFailed
from app.video.make.sandbox.process import LAYERS, Command, ProgramLimits, Stopped, run
from tests.browser.tools import find_program
from tests.video.rewritten import box, edited

LIMITS = ProgramLimits(
    cpu_seconds=20, wall_seconds=60, memory_bytes=512 * 1024**2, output_bytes=2**24
)
NO_LAYER: frozenset[str] = frozenset()
ALL_FORMATS = "hls,concat,sdp,lavfi,matroska,dash,mpegts," + VIDEO_FORMATS
ALL_PROTOCOLS = "file,pipe,http,tcp,udp,rtp,crypto,data,concat,subfile"


@dataclass
class Scene:
    """Another user's film, what listens on this machine, and where the hostile film is."""

    secret: Path
    secret_mov: Path
    listener: socket.socket
    film: Path

    @property
    def port(self) -> int:
        """Where something listens, as a service of the operator's may."""
        return int(self.listener.getsockname()[1])

    def was_connected_to(self) -> bool:
        """Whether a connection has arrived."""
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("secrets")
    paths = [folder / "secret.ts", folder / "secret.mov"]
    for path in paths:
        source = ["-f", "lavfi", "-i", "color=red:size=64x64:duration=1"]
        options = ["-c:v", "mpeg2video", "-movflags", "+faststart"]
        subprocess.run([find_program("ffmpeg"), "-v", "error", *source, *options, path], check=True)
    return paths


@pytest.fixture
def scene(secrets: list[Path], tmp_path: Path) -> Iterator[Scene]:
    secret, secret_mov = (Path(shutil.copy(path, tmp_path)) for path in secrets)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield Scene(secret, secret_mov, listener, tmp_path / "film.mp4")


# ---- films that name other files -----------------------------------------------------------------


def playlist(scene: Scene) -> bytes:
    return PLAYLIST.format(scene.secret).encode()


def playlist_from_the_network(scene: Scene) -> bytes:
    return PLAYLIST.format(f"http://127.0.0.1:{scene.port}/secret.ts").encode()


def script(scene: Scene) -> bytes:
    return f"ffconcat version 1.0\nfile {scene.secret.name}\n".encode()


def movie_with_its_samples_elsewhere(scene: Scene) -> bytes:
    """The index of the secret film, with its path as a Macintosh alias (QuickTime's `dref`)."""
    path = str(scene.secret_mov).encode()
    path += b"\0" * (len(path) % 2)
    header = bytes(10 + 28 + 12 + 64 + 16 + 4 + 16)
    alias = bytes(4) + header + struct.pack(">HH", 2, len(path)) + path + struct.pack(">hH", -1, 0)
    reference = box(b"dref", struct.pack(">II", 0, 1) + box(b"alis", alias))

    def point_elsewhere(kind: bytes, content: bytes) -> tuple[bytes, bytes]:
        return kind, reference if kind == b"dinf" else content

    film = scene.secret_mov.read_bytes()
    return edited(film[: film.index(b"mdat") - 4], point_elsewhere)


PLAYLIST = "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{}\n#EXT-X-ENDLIST\n"

ALIASES_ON = ("-enable_drefs", "1", "-use_absolute_path", "1")

Maker = Callable[[Scene], bytes]

THEFTS: dict[str, tuple[Maker, tuple[str, ...]]] = {
    "playlist": (playlist, ("-f", "hls")),
    "concat script": (script, ("-f", "concat")),
    "samples elsewhere": (movie_with_its_samples_elsewhere, ALIASES_ON),
}
"""How the film is made, and what makes a bare ffmpeg fall for it, whatever its version."""


def stolen(
    scene: Scene, *options: str, formats: str = ALL_FORMATS, layers: frozenset[str]
) -> bytes:
    """What ffmpeg decodes of the film, with every protocol allowed."""
    output = bytearray()
    limits = ["-protocol_whitelist", ALL_PROTOCOLS, "-format_whitelist", formats]
    source = [*limits, *options, "-i", str(scene.film)]
    command = Command(
        program=Path(find_program("ffmpeg")),
        arguments=["-nostdin", "-v", "error", *source, "-f", "rawvideo", "-"],
        limits=LIMITS,
        readable=[scene.film],
        layers=layers,
    )
    run(command, on_output=output.extend, on_report=len)
    return bytes(output)


@pytest.mark.parametrize("name", THEFTS)
def test_a_film_that_names_another_users_film_gets_nothing_of_it(name: str, scene: Scene) -> None:
    make, options = THEFTS[name]
    scene.film.write_bytes(make(scene))
    ffmpeg = Ffmpeg.find()
    for chosen in ((), options):
        arguments = [*chosen, "-i", str(scene.film), "-f", "rawvideo", "-"]
        output = bytearray()
        with pytest.raises(FfmpegFailed) as caught:
            ffmpeg.run(
                Conversion(arguments, readable=[scene.film], limits=LIMITS),
                on_output=output.extend,
            )
        assert output == b""
        assert str(scene.film.parent) not in str(caught.value)
    assert stolen(scene, *options, layers=NO_LAYER), "the attack is none"
    assert not stolen(scene, *options, layers=frozenset({"landlock"}))


@pytest.mark.parametrize("name", ["playlist", "concat script"])
def test_the_list_of_formats_alone_stops_it_too(name: str, scene: Scene) -> None:
    make, options = THEFTS[name]
    scene.film.write_bytes(make(scene))
    assert not stolen(scene, *options, formats=VIDEO_FORMATS, layers=NO_LAYER)


def test_the_samples_of_a_movie_are_never_elsewhere_by_default(scene: Scene) -> None:
    scene.film.write_bytes(movie_with_its_samples_elsewhere(scene))
    assert not stolen(scene, layers=NO_LAYER)


# ---- films that want the network -----------------------------------------------------------------


def test_a_film_reaches_no_server(scene: Scene) -> None:
    scene.film.write_bytes(playlist_from_the_network(scene))
    for source in (str(scene.film), f"http://127.0.0.1:{scene.port}/film.mp4"):
        with pytest.raises(FfmpegFailed):
            Ffmpeg.find().run(
                Conversion(
                    arguments=["-i", source, "-f", "rawvideo", "-"],
                    readable=[scene.film],
                    limits=LIMITS,
                )
            )
    for layer in sorted(LAYERS):
        assert not stolen(scene, "-f", "hls", layers=frozenset({layer}))
    assert not scene.was_connected_to()
    with pytest.raises(Stopped):  # The listener accepts it, and never answers.
        play_until_connected(scene)


def play_until_connected(scene: Scene) -> None:
    """Have a bare ffmpeg play the playlist."""
    is_connected = Event()

    def look(_report: bytes) -> None:
        if scene.was_connected_to():
            is_connected.set()

    command = Command(
        program=Path(find_program("ffmpeg")),
        arguments=["-protocol_whitelist", ALL_PROTOCOLS, "-f", "hls", "-i", str(scene.film)],
        limits=LIMITS,
        layers=NO_LAYER,
    )
    run(command, on_output=len, on_report=look, stop=is_connected)


def test_a_session_description_opens_no_socket(scene: Scene) -> None:
    text = (
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 33\n"
    )
    scene.film.write_text(text)
    assert not stolen(scene, "-f", "sdp", layers=frozenset({"seccomp"}))
    with pytest.raises(FfmpegFailed):
        Ffmpeg.find().probe(scene.film)


# ---- options that a film must not gain -----------------------------------------------------------


def test_even_a_filter_reads_no_other_file(scene: Scene) -> None:
    """If text of a film ever came into a filter: `movie`, `subtitles` and `drawtext` open files."""
    source = ("-f", "lavfi", "-i", f"movie={scene.secret}")
    arguments = [*source, "-f", "rawvideo", "-"]
    ffmpeg = Ffmpeg.find()
    bare_ffmpeg = Ffmpeg(ffmpeg=ffmpeg.ffmpeg, ffprobe=None, layers=NO_LAYER)
    assert bare_ffmpeg.run(Conversion(arguments, limits=LIMITS, formats="lavfi"))
    with pytest.raises(FfmpegFailed):
        ffmpeg.run(Conversion(arguments, limits=LIMITS, formats="lavfi"))


# ---- films that want the whole machine -----------------------------------------------------------


def png(width: int, height: int, rows: int = 0) -> bytes:
    """A picture of which only the first rows are there, all black; 16 bits, four channels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    header = struct.pack(">IIBBBBB", width, height, 16, 6, 0, 0, 0)
    pixels = zlib.compress(bytes((1 + 8 * width) * rows), 1)
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    return start + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def cover(picture: bytes) -> bytes:
    """A song with a cover: the picture is decoded although the file is no picture."""
    mime = b"image/png"
    content = struct.pack(">II", 3, len(mime)) + mime + struct.pack(">I", 0)
    content += struct.pack(">IIIII", 1, 1, 24, 0, len(picture)) + picture
    info = struct.pack(">HH", 4096, 4096) + bytes(6) + b"\x0a\xc4\x42\xf0" + bytes(4 + 16)
    blocks = struct.pack(">I", len(info)) + info
    return b"fLaC" + blocks + struct.pack(">I", 0x86000000 | len(content)) + content


def boxes_in_boxes(depth: int) -> bytes:
    """A `moov` in which each box holds the next one."""
    kinds = (b"moov", b"trak", b"mdia", b"minf", b"stbl")
    length = 8 * depth
    return b"".join(
        struct.pack(">I4s", length - 8 * level, kinds[min(level, 4)]) for level in range(depth)
    )


def sample_table(count: int) -> bytes:
    """A movie that claims so many samples, of one byte and the longest possible time each."""
    entry = box(b"mp4v", bytes(78))
    times = struct.pack(">IIII", 0, 1, count, 0x7FFFFFFF)
    tables = box(b"stsd", struct.pack(">II", 0, 1) + entry) + box(b"stts", times)
    tables += box(b"stsz", struct.pack(">III", 0, 1, count))
    tables += box(b"stsc", struct.pack(">IIIII", 0, 1, 1, count, 1))
    tables += box(b"stco", struct.pack(">III", 0, 1, 64))
    media = box(b"mdhd", struct.pack(">IIIIII", 0, 0, 0, 1, 0xFFFFFFFF, 0))
    media += box(b"hdlr", bytes(8) + b"vide" + bytes(13)) + box(b"minf", box(b"stbl", tables))
    return box(b"ftyp", b"isom" + bytes(4)) + box(b"moov", box(b"trak", box(b"mdia", media)))


BOMBS: dict[str, Callable[[], bytes]] = {
    "a cover of 60000 x 60000": lambda: cover(png(60_000, 60_000)),
    "a cover a little too large": lambda: cover(png(8200, 8200, rows=8200)),
    "a million tracks": lambda: (
        box(b"ftyp", b"isom" + bytes(4)) + box(b"moov", box(b"trak", b"") * 1_000_000)
    ),
    "a hundred thousand boxes, each in the one before": lambda: boxes_in_boxes(100_000),
    "four thousand million samples": lambda: sample_table(0xFFFFFFFE),
    "a length beyond the end of the file": lambda: struct.pack(">I4s", 0x7FFFFFFF, b"moov"),
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_words(name: str, tmp_path: Path) -> None:
    film = tmp_path / "film.mp4"
    film.write_bytes(BOMBS[name]())
    ffmpeg = Ffmpeg.find()
    arguments = ["-i", str(film), "-f", "rawvideo", "-"]
    with pytest.raises(FfmpegFailed) as caught:
        ffmpeg.run(Conversion(arguments, readable=[film], limits=LIMITS))
    assert str(tmp_path) not in str(caught.value)
    assert 5 < len(str(caught.value)) <= 200
    with suppress(FfmpegFailed):  # Of a cover that is too large, the song is still known.
        ffmpeg.probe(film)


def test_too_many_tracks_are_said(tmp_path: Path) -> None:
    film = tmp_path / "film.mp4"
    film.write_bytes(BOMBS["a million tracks"]())
    with pytest.raises(FfmpegFailed, match="more than 100 tracks"):
        Ffmpeg.find().probe(film)


def test_memory_alone_stops_a_huge_picture(tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    picture.write_bytes(png(16_000, 16_000, rows=10))
    command = Command(
        program=Path(find_program("ffmpeg")),
        arguments=["-v", "error", "-f", "png_pipe", "-i", str(picture), "-f", "rawvideo", "-"],
        limits=LIMITS,
        readable=[picture],
    )
    written = 0

    def count(block: bytes) -> None:
        nonlocal written
        written += len(block)

    ended = run(command, on_output=count, on_report=len)
    assert ended.status != 0 or b"Cannot allocate memory" in ended.errors
    assert written == 0


def test_an_endless_film_ends_with_its_cpu_time(tmp_path: Path) -> None:
    """Two frames 28 hours apart, to be filled up with a hundred million."""
    film = tmp_path / "film.mkv"
    source = ["-f", "lavfi", "-i", "color=red:size=64x64:rate=1:duration=2"]
    far_apart = ["-vf", "settb=1,setpts=N*1e5", "-enc_time_base", "1", "-c:v", "mjpeg"]
    command = [find_program("ffmpeg"), "-v", "error", *source, *far_apart, "-y", str(film)]
    subprocess.run(command, check=True)
    limits = ProgramLimits(cpu_seconds=1, wall_seconds=60, memory_bytes=2**29, output_bytes=2**20)
    with pytest.raises(FfmpegFailed, match="more than 1 s of CPU time"):
        Ffmpeg.find().run(
            Conversion(
                arguments=["-i", str(film), "-vf", "fps=1000", "-f", "null", "-"],
                readable=[film],
                limits=limits,
            )
        )

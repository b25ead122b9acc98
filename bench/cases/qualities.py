"""Other qualities on demand: how soon a segment comes, and what making them costs uploads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.lib.client import Connection, RequestFailed
from bench.lib.films import LARGE, SMALL, make_films, run_ffmpeg
from bench.lib.harness import Benchmark, BenchServer, Lab, NotRunnable
from bench.lib.meter import Meter
from bench.lib.playing import PLAYS, await_playback, get_patiently, segment_seconds
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table, Target, target_table
from bench.lib.samples import GB, MB, Sample, costs_of, paired_ratio, rates_of, ratio, spread
from bench.lib.uploading import upload_raw

FILM = "10 min"
FULL, QUICK = (LARGE, 720), (SMALL, 360)
"""The video and the quality."""

OFFER_SECONDS = 20.0
"""How long a new server may take to measure its encoder."""

START, SEEK = "cold start", "seek to the middle"
OURS, ALONE = "Sluice", "ffmpeg"
ENCODING = (
    "-an -c:v libx264 -preset veryfast -pix_fmt yuv420p -crf 23 -maxrate 3500k -bufsize 7000k"
)
START_LIMIT = 2.0
"""Most time until a segment comes, as a multiple of ffmpeg's for the same seconds of the video."""

MEANWHILE, QUIET = "while a quality is made", "otherwise"
RATE_SHARE = 0.9
"""Wanted of the rate of uploads while a quality is made; two measurements differ by as much."""

SEGMENT_NOTES = (
    "Of a video of 10 min in 1080p at 4 Mbit/s (in a quick run in 720p at 1 Mbit/s). Ours: from "
    "the first request until playlist, `init.mp4` and a segment have come, and then until the one "
    "in the middle of the video has, while the server reads ahead. ffmpeg encodes the same "
    "seconds to a file.",
)
UPLOAD_NOTES = (
    "Raw chunks, one after another, to the same server while it makes a whole quality and while "
    "it does not, in pairs whose order alternates. CPU of the web workers alone.",
)


@dataclass(frozen=True, slots=True)
class Watched:
    """A video on a server, and the quality that is asked for."""

    server: BenchServer
    video: str
    quality: int
    film: Path


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables; raises `NotRunnable` where no quality is offered."""
    kind, quality = QUICK if lab.is_quick else FULL
    film = make_films(lab.folder, [FILM], kind)[FILM]
    source = lab.source(lab.pick(500, 100) * MB)
    for number in lab.rounds():
        with lab.server() as server:
            video = upload_raw(server.port, film, film.stat().st_size)
            _await_offer(server.port, video, quality)
            watched = Watched(server, video, quality, film)
            _watch(lab, watched, number)
            _upload_meanwhile(lab, watched, source, number=number)
    segments = Table(
        f"A segment of {quality}p",
        ("asked for", "seconds", "ffmpeg, seconds", "of ffmpeg"),
        [_segment_row(lab, what) for what in (START, SEEK)],
        SEGMENT_NOTES,
    )
    uploads = Table(
        f"An upload of {source.stat().st_size // MB} MB",
        ("uploaded", "MB/s", "CPU s/GB"),
        [_upload_row(lab, what) for what in (QUIET, MEANWHILE)],
        UPLOAD_NOTES,
    )
    return [segments, uploads, _targets(lab)]


def _await_offer(port: int, video: str, quality: int) -> None:
    deadline = time.monotonic() + OFFER_SECONDS
    with Connection(port) as connection:
        while time.monotonic() < deadline:
            offered = await_playback(connection, video, PLAYS)["renditions"]
            if any(one["height"] == quality for one in offered):
                return
            time.sleep(0.2)
    raise NotRunnable(f"no {quality}p is offered: the encoder is missing, or too slow right now")


def _watch(lab: Lab, watched: Watched, number: int) -> None:
    base, port = f"/media/{watched.video}/hls/{watched.quality}", watched.server.port
    started = time.perf_counter()
    with Connection(port) as connection:
        seconds = segment_seconds(connection, f"{base}/index.m3u8")
    get_patiently(port, f"{base}/init.mp4")
    get_patiently(port, f"{base}/1.m4s")
    lab.keep(_since(started, f"{START}: {OURS}", number))
    middle = len(seconds) // 2
    started = time.perf_counter()
    get_patiently(port, f"{base}/{middle + 1}.m4s")
    lab.keep(_since(started, f"{SEEK}: {OURS}", number))
    _await_quiet(port)
    for what, index in ((START, 0), (SEEK, middle)):
        place = ["-ss", f"{sum(seconds[:index])}", "-t", f"{seconds[index]}"]
        scale = ["-vf", f"scale=-2:{watched.quality}"]
        started = time.perf_counter()
        made = str(lab.folder / "segment.mp4")
        run_ffmpeg(*place, "-i", str(watched.film), *ENCODING.split(), *scale, made)
        lab.keep(_since(started, f"{what}: {ALONE}", number))


def _since(started: float, case: str, number: int) -> Sample:
    seconds = time.perf_counter() - started
    return Sample(case=case, round=number, byte_count=0, seconds=seconds)


def _await_quiet(port: int) -> None:
    """Return once the server no longer reads ahead."""
    with Connection(port) as connection:
        while connection.json("/api/status")["jobs"]["next"]:
            time.sleep(0.2)


def _upload_meanwhile(lab: Lab, watched: Watched, source: Path, *, number: int) -> None:
    server, length = watched.server, source.stat().st_size
    for what in (QUIET, MEANWHILE)[:: -1 if number % 2 else 1]:
        _order(watched, "POST" if what == MEANWHILE else "DELETE")
        with Meter(server.web_workers()) as meter:
            upload_raw(server.port, source, length)
            lab.keep(meter.sample(f"upload: {what}", number, length))


def _order(watched: Watched, method: str) -> None:
    """Have the whole quality made, or stop that and forget its segments."""
    path = f"/api/videos/{watched.video}/renditions/{watched.quality}"
    try:
        with Connection(watched.server.port) as connection:
            connection.request(f"{method} {path}", {})
    except RequestFailed as refused:
        raise NotRunnable(f"qualities cannot be ordered: {refused}") from refused


def _segment_row(lab: Lab, what: str) -> tuple[str, ...]:
    ours, alone = (_seconds_of(lab.of(f"{what}: {who}")) for who in (OURS, ALONE))
    return (what, spread(ours, 2), spread(alone, 2), ratio(ours, alone))


def _upload_row(lab: Lab, what: str) -> tuple[str, ...]:
    found = lab.of(f"upload: {what}")
    return (what, spread(rates_of(found)), spread(costs_of(found), 2))


def _targets(lab: Lab) -> Table:
    wanted = [
        Target(
            what=f"{what}: seconds, of ffmpeg",
            measured=paired_ratio(
                *(_seconds_of(lab.of(f"{what}: {who}")) for who in (OURS, ALONE))
            ),
            at_most=START_LIMIT,
        )
        for what in (START, SEEK)
    ]
    rates = [rates_of(lab.of(f"upload: {what}")) for what in (MEANWHILE, QUIET)]
    rate = Target(
        what="uploads while a quality is made: rate, of that otherwise",
        measured=paired_ratio(*rates),
        at_least=RATE_SHARE,
    )
    return target_table([*wanted, rate])


def _seconds_of(samples: Sequence[Sample]) -> list[float]:
    return [sample.seconds for sample in samples]


def draw(lab: Lab) -> Plot:
    """How soon segments come, and what uploads are left."""
    panels = [
        panel_of(f"{what}: seconds", lab.cases(f"{what}: "), _seconds_of, ours=[OURS], digits=2)
        for what in (START, SEEK)
    ]
    uploads = lab.cases("upload: ")
    panels.append(panel_of("upload: MB/s", uploads, rates_of, ours=list(uploads)))
    return Plot("Other qualities", tuple(panels))


BENCHMARK = Benchmark(
    name="qualities",
    summary="720p on demand: start, seek, and uploads beside it",
    run=run,
    draw=draw,
    needed_bytes=4 * GB,
    rounds=5,
    seconds=300,
    quick_seconds=4,
)

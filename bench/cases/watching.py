"""What an hour of a video costs the server that sends it: as it was uploaded, virtual, as HLS."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.lib.client import Connection
from bench.lib.films import LARGE, LENGTHS, SMALL, make_films
from bench.lib.harness import Benchmark, Lab
from bench.lib.meter import Meter, await_idle
from bench.lib.parallel import in_processes
from bench.lib.playing import PLAYS, await_playback, parts_of
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table, Target, target_table
from bench.lib.samples import GB, MB, Sample, paired_ratio, ratio, spread
from bench.lib.uploading import upload_raw
from bench.peers.downloads import spans
from bench.peers.process import Served, can_run, running
from bench.peers.put import Nginx
from bench.peers.uploads import await_digests

FILM, QUICK_FILM = "1 h", "10 min"
NGINX, ORIGINAL, VIRTUAL, HLS = "nginx, the file", "the original", "play.mp4", "HLS"
OURS = (ORIGINAL, VIRTUAL, HLS)

COST_LIMIT = 1.5
"""Most CPU of `play.mp4`, as a multiple of the original's."""

COLUMNS = ("sent", "requests", "CPU s", "of the original", "of nginx", "MB/s")
NOTES = (
    "One client takes the video at full speed from the page cache, once all its pictures are made: "
    "files in ranges of 5 MB on one connection, HLS as a player does, all segments of picture and "
    "sound. CPU of all processes of the server. Ratios are medians of those within a round.",
)

Asked = Sequence[tuple[str, tuple[int, int] | None]]
"""Paths, with the range that is asked for."""


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables; raises `NotRunnable` without ffmpeg."""
    name, kind = (QUICK_FILM, SMALL) if lab.is_quick else (FILM, LARGE)
    film = make_films(lab.folder, [name], kind)[name]
    requests: dict[str, int] = {}
    for number in lab.rounds():
        with lab.server() as server:
            for way, asked in _ways(server.port, film).items():
                requests[way] = len(asked)
                lab.keep(_measured(server, asked, case=way, number=number))
        if can_run(Nginx()):
            with _nginx(lab, film) as (peer, asked):
                requests[NGINX] = len(asked)
                lab.keep(_measured(peer, asked, case=NGINX, number=number))
    rows = [_row(lab, way, requests[way]) for way in lab.cases()]
    title = f"{LENGTHS[name] // 60} min watched, {film.stat().st_size / MB:.0f} MB"
    return [Table(title, COLUMNS, rows, NOTES), _targets(lab)]


def _ways(port: int, film: Path) -> dict[str, Asked]:
    video = upload_raw(port, film, film.stat().st_size)
    await_digests(port, [video])
    base = f"/media/{video}"
    with Connection(port) as connection:
        await_playback(connection, video, PLAYS)
        await_playback(connection, video, frozenset({"ready"}))
        master = connection.text(f"{base}/hls/master.m3u8")
        names = [name for name in ("source", "audio-1") if f"{name}/index.m3u8" in master]
        playlists = [f"{base}/hls/{name}/index.m3u8" for name in names]
        parts = [path for playlist in playlists for path in parts_of(connection, playlist)]
        virtual_bytes = connection.length(f"{base}/play.mp4")
    return {
        ORIGINAL: [(base, span) for span in spans(film.stat().st_size)],
        VIRTUAL: [(f"{base}/play.mp4", span) for span in spans(virtual_bytes)],
        HLS: [(path, None) for path in (*playlists, *parts)],
    }


@contextmanager
def _nginx(lab: Lab, film: Path) -> Iterator[tuple[Served, Asked]]:
    with running(lab, Nginx()) as peer:
        os.link(film, peer.files / "film.mp4")
        yield peer, [("/film.mp4", span) for span in spans(film.stat().st_size)]


def _measured(server: Served, asked: Asked, *, case: str, number: int) -> Sample:
    await_idle(server.processes)
    with (
        in_processes(1, partial(_take, server.port, asked)) as take,
        Meter(server.processes()) as meter,
    ):
        (count,) = take()
        return meter.sample(case, number, count)


def _take(port: int, asked: Asked, _: int) -> int:
    with Connection(port) as connection:
        return sum(connection.get(path, span) for path, span in asked)


def _row(lab: Lab, way: str, requests: int) -> tuple[str, ...]:
    cpu, original, nginx = (_cpu_of(lab.of(name)) for name in (way, ORIGINAL, NGINX))
    return (
        way,
        str(requests),
        spread(cpu, 2),
        ratio(cpu, original),
        ratio(cpu, nginx),
        spread([sample.mb_per_second for sample in lab.of(way)]),
    )


def _targets(lab: Lab) -> Table:
    measured = paired_ratio(_cpu_of(lab.of(VIRTUAL)), _cpu_of(lab.of(ORIGINAL)))
    what = f"{VIRTUAL}: CPU, of the original"
    return target_table([Target(what=what, measured=measured, at_most=COST_LIMIT)])


def _cpu_of(samples: Sequence[Sample]) -> list[float]:
    return [sample.cpu_seconds or 0.0 for sample in samples]


def draw(lab: Lab) -> Plot:
    """CPU of each way."""
    panel = panel_of("CPU s", lab.cases(), _cpu_of, ours=list(OURS), digits=2)
    return Plot("A video that is watched", (panel,))


BENCHMARK = Benchmark(
    name="watching",
    summary="an hour of a video as file, virtual file and HLS, beside nginx",
    run=run,
    draw=draw,
    needed_bytes=8 * GB,
    rounds=5,
    seconds=300,
    quick_seconds=4,
)

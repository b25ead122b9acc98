"""From the last byte of a video until it plays, by its length, beside what others run on it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import median

from bench.lib.client import Connection
from bench.lib.films import LENGTHS, make_films
from bench.lib.harness import Benchmark, Lab
from bench.lib.meter import Meter, resident_bytes
from bench.lib.playing import await_playable, made_bytes
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table, Target, target_table
from bench.lib.samples import GB, MB, Sample, paired_ratio, ratio, spread
from bench.lib.uploading import upload_in_turn, upload_raw
from bench.peers.publishers import PUBLISHERS, REMUX, publish
from sluice_client.play_order import needed_first

FILMS = ("10 s", "10 min", "2 h")
QUICK_FILMS = ("10 s", "10 min")
OURS = "Sluice"

SECONDS_LIMIT = 1.0
REMUX_SHARE = 0.5
DISK_SHARE = 0.02
"""Wanted of the longest video: seconds until it plays, CPU of ours of ffmpeg's remux, and disk
beside the original."""

COLUMNS = (
    "until it plays",
    "seconds",
    "CPU s",
    "of ours",
    "peak memory, MiB",
    "more disk, of the video",
)
NOTES = (
    "720p at 1 Mbit/s, index at the end of the file. Ours: from the answer to the last chunk until "
    "`play.mp4` and the first segment of HLS have been answered, looked for every 20 ms; CPU and "
    "memory above idle of all processes, without the digest of the file and without pictures, "
    "which come later. Others: the command alone, without upload, queue or database. PeerTube's "
    "and MediaCMS's are those for one quality of several; they encode, so only the shortest video "
    "is measured, and a longer one takes as many times as long.",
)

STEPS = 200
"""Chunks in which a video is sent for the second table."""

WAIT_SECONDS = 1.5
"""After a chunk; the server looks at videos that arrive about once a second."""

PAGE_ORDER, FILE_ORDER = "as page and client send it", "in the order of the file"
SHARE_LIMIT = 0.05
SHARE_NOTES = (
    f"The video of 10 min in {STEPS} chunks of one size, with a pause after each of the first ten "
    "and after every tenth: share of its bytes that had arrived when its first segment could be "
    "fetched.",
)


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables; raises `NotRunnable` without ffmpeg."""
    names = QUICK_FILMS if lab.is_quick else FILMS
    films = make_films(lab.folder, names)
    for number in lab.rounds():
        for name in lab.in_time(names):
            lab.keep(_ours(lab, films[name], case=f"{name}: {OURS}", number=number))
            for peer in PUBLISHERS:
                if not peer.is_encoding or (name == names[0] and not lab.is_quick):
                    with lab.scratch("publisher") as folder:
                        case = f"{name}: {peer.name}"
                        lab.keep(publish(peer, films[name], folder, case=case, number=number))
    tables = [_table(lab, name, NOTES if name == names[-1] else ()) for name in names]
    if lab.is_quick:
        return tables
    shares = {order: _share(lab, films["10 min"], order) for order in (PAGE_ORDER, FILE_ORDER)}
    rows: list[tuple[str, ...]] = [
        (order, f"{100 * share:.1f} %") for order, share in shares.items()
    ]
    arriving = Table("While it uploads", ("sent", "it plays from"), rows, SHARE_NOTES)
    return [*tables, arriving, _targets(lab, films[names[-1]], names[-1], shares[PAGE_ORDER])]


def _ours(lab: Lab, film: Path, *, case: str, number: int) -> Sample:
    with lab.server() as server:
        idle_bytes = resident_bytes(server.processes())
        video = upload_raw(server.port, film, film.stat().st_size)
        with Meter(server.processes(), idle_bytes=idle_bytes) as meter:
            await_playable(server.port, video)
            return meter.sample(case, number, made_bytes(server, video))


def _share(lab: Lab, film: Path, order: str) -> float:
    """The share of a video's bytes with which it begins to play."""
    length = film.stat().st_size
    chunk_bytes = -(-length // STEPS)
    count = -(-length // chunk_bytes)
    first = _needed_chunks(film, chunk_bytes) if order == PAGE_ORDER else []
    arrived = 0
    with lab.server() as server:
        turns = dict.fromkeys(chain(first, range(count)))
        sent = upload_in_turn(server.port, film, turns, chunk_bytes=chunk_bytes)
        for number, (upload, sent_bytes) in enumerate(sent):
            arrived += sent_bytes
            if (number < 10 or number % 10 == 0) and _plays(server.port, upload):
                return arrived / length
    return 1.0


def _needed_chunks(film: Path, chunk_bytes: int) -> list[int]:
    with film.open("rb") as file:

        def read_at(position: int, count: int) -> bytes:
            file.seek(position)
            return file.read(count)

        spans = needed_first(read_at, film.stat().st_size)
    chunks = [range(span.start // chunk_bytes, -(-span.end // chunk_bytes)) for span in spans]
    return list(chain.from_iterable(chunks))


def _plays(port: int, upload: str) -> bool:
    time.sleep(WAIT_SECONDS)
    with Connection(port) as connection:
        return "#EXTINF" in connection.text(f"/media/{upload}/hls/source/index.m3u8")


def _table(lab: Lab, film: str, notes: tuple[str, ...]) -> Table:
    length = (lab.folder / f"{LENGTHS[film]}.mp4").stat().st_size
    ours = lab.of(f"{film}: {OURS}")
    rows: list[tuple[str, ...]] = [
        (
            name,
            spread([sample.seconds for sample in found], 2),
            spread(_cpu_of(found), 2),
            ratio(_cpu_of(found), _cpu_of(ours)),
            spread([sample.peak_mib for sample in found]),
            f"{100 * median(sample.byte_count for sample in found) / length:.1f} %",
        )
        for name, found in lab.cases(f"{film}: ").items()
    ]
    return Table(f"{film}, {length / MB:.0f} MB", COLUMNS, rows, notes)


def _targets(lab: Lab, path: Path, film: str, share: float) -> Table:
    ours, remux = (lab.of(f"{film}: {name}") for name in (OURS, REMUX.name))
    disk = median(sample.byte_count for sample in ours) / path.stat().st_size
    seconds = median(sample.seconds for sample in ours)
    cpu = paired_ratio(_cpu_of(ours), _cpu_of(remux))
    wanted = [
        Target(what=f"{film}: seconds until it plays", measured=seconds, at_most=SECONDS_LIMIT),
        Target(what=f"{film}: CPU, of ffmpeg's fast start", measured=cpu, at_most=REMUX_SHARE),
        Target(what=f"{film}: disk beside it, of the video", measured=disk, at_most=DISK_SHARE),
        Target(what="share that must have arrived", measured=share, at_most=SHARE_LIMIT),
    ]
    return target_table(wanted)


def _cpu_of(samples: Sequence[Sample]) -> list[float]:
    return [sample.cpu_seconds or 0.0 for sample in samples]


def _seconds_of(samples: Sequence[Sample]) -> list[float]:
    return [sample.seconds for sample in samples]


def draw(lab: Lab) -> Plot:
    """Seconds until each video plays."""
    panels = [
        panel_of(f"{name}: seconds", found, _seconds_of, ours=[OURS], digits=2)
        for name in FILMS
        if (found := lab.cases(f"{name}: "))
    ]
    return Plot("Until a video plays", tuple(panels))


BENCHMARK = Benchmark(
    name="publishing",
    summary="from the last byte of a video until it plays, beside ffmpeg, PeerTube and MediaCMS",
    run=run,
    draw=draw,
    needed_bytes=6 * GB,
    rounds=3,
    seconds=400,
    quick_seconds=5,
)

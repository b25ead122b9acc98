"""Poster and thumbnails of videos of three lengths: through their index, and by ffmpeg alone."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from io import FileIO
from pathlib import Path
from statistics import median
from threading import Event

from app.video.index.movie import Movie, read_movie
from app.video.make.ffmpeg import Ffmpeg
from app.video.make.pictures import MOST_DECODED_PIXELS, MOST_THUMBNAILS, PictureMaker
from app.video.serve.source import length_of, reader
from bench.lib.films import make_films, run_ffmpeg
from bench.lib.harness import Benchmark, Lab, NotRunnable
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table, Target, target_table
from bench.lib.samples import GB, MB, Sample, paired_ratio, spread

LENGTHS = ("10 s", "10 min", "2 h")
QUICK_LENGTHS = ("10 s", "10 min")
TIMES_LESS = 10
"""Wanted for the longest video: CPU of ffmpeg alone, of that with the index."""

INDEX, POSTER, SPRITE, NOKEY = "index", "poster", "sprite", "-skip_frame nokey"
COLUMNS = (
    "video",
    "index, CPU s",
    "poster, CPU s",
    "sprite, CPU s",
    "read for the sprite, MB",
    "sprite by `-skip_frame nokey`, CPU s",
    "less CPU, with the index",
)
NOTES = (
    "720p with a key frame every 5 s, one video of 10 s repeated. CPU of this process and of "
    "ffmpeg, which runs in the sandbox for ours; paired. The index is read once for both "
    "pictures. ffmpeg alone has one thread and makes the same sprite of the whole video.",
)


def run(lab: Lab) -> list[Table]:
    """Measure, and return the table; raises `NotRunnable` without ffmpeg."""
    if Ffmpeg.find().ffmpeg is None:
        raise NotRunnable("ffmpeg is not installed")
    lengths = QUICK_LENGTHS if lab.is_quick else LENGTHS
    films = make_films(lab.folder, lengths)
    for number in lab.rounds():
        for name in lab.in_time(lengths):
            for sample in _measured(films[name], name, number, lab):
                lab.samples.append(sample)
    table = Table("Pictures of a video", COLUMNS, [_row(lab, name) for name in lengths], NOTES)
    longest = lengths[-1]
    what = f"{longest}: times less CPU, with the index"
    wanted = Target(what=what, measured=_times_less(lab, longest), at_least=TIMES_LESS)
    return [table] if lab.is_quick else [table, target_table([wanted])]


def _measured(path: Path, name: str, number: int, lab: Lab) -> Iterator[Sample]:
    with closing(FileIO(path)) as file, lab.scratch("pictures") as folder:
        read = _Counted(reader(file))
        with _Clock() as clock:
            movie = read_movie(read, length_of(file))
        yield clock.sample(f"{name}, {INDEX}", number, read.taken())
        assert movie.picture is not None
        maker = PictureMaker(Ffmpeg.find(), folder, read, Event())
        with _Clock() as clock:
            maker.poster(movie.picture, pixels=MOST_DECODED_PIXELS)
        yield clock.sample(f"{name}, {POSTER}", number, read.taken())
        with _Clock() as clock:
            maker.sprite(movie, movie.picture)
        yield clock.sample(f"{name}, {SPRITE}", number, read.taken())
        with _Clock() as clock:
            _without_index(path, movie, folder / "nokey.jpg")
        yield clock.sample(f"{name}, {NOKEY}", number, path.stat().st_size)


def _without_index(path: Path, movie: Movie, sprite: Path) -> None:
    rate = MOST_THUMBNAILS / movie.duration
    graph = f"fps={rate.limit_denominator(10**6)},scale=160:90,tile=10x10"
    options = ["-threads", "1", "-skip_frame", "nokey", "-i", str(path), "-an"]
    run_ffmpeg(*options, "-vf", graph, "-frames:v", "1", "-update", "1", str(sprite))


class _Counted:
    """Counts the bytes that a reader reads."""

    def __init__(self, read_at: Callable[[int, int], bytes]) -> None:
        self._read_at = read_at
        self._count = 0

    def __call__(self, offset: int, count: int) -> bytes:
        found = self._read_at(offset, count)
        self._count += len(found)
        return found

    def taken(self) -> int:
        """Bytes since the last call."""
        count, self._count = self._count, 0
        return count


class _Clock:
    """Measures this process and the programs that it has waited for."""

    def __enter__(self) -> _Clock:
        self._begun, self._cpu_before = time.perf_counter(), _cpu_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._begun
        self.cpu_seconds = _cpu_seconds() - self._cpu_before

    def sample(self, case: str, number: int, byte_count: int) -> Sample:
        return Sample(
            case=case,
            round=number,
            byte_count=byte_count,
            seconds=self.seconds,
            cpu_seconds=self.cpu_seconds,
        )


def _cpu_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _row(lab: Lab, name: str) -> tuple[str, ...]:
    of = {what: lab.of(f"{name}, {what}") for what in (INDEX, POSTER, SPRITE, NOKEY)}
    cpu = {what: _cpu_of(samples) for what, samples in of.items()}
    times = _times_less(lab, name)
    return (
        name,
        *(spread(cpu[what], 2) for what in (INDEX, POSTER, SPRITE)),
        f"{median([sample.byte_count for sample in of[SPRITE]] or [0]) / MB:.1f}",
        spread(cpu[NOKEY], 2),
        "-" if times is None else f"{times:.1f} x",
    )


def _times_less(lab: Lab, name: str) -> float | None:
    index, sprite, alone = (_cpu_of(lab.of(f"{name}, {what}")) for what in (INDEX, SPRITE, NOKEY))
    return paired_ratio(alone, [one + other for one, other in zip(index, sprite, strict=True)])


def _cpu_of(samples: Sequence[Sample]) -> list[float]:
    return [sample.cpu_seconds or 0.0 for sample in samples]


def draw(lab: Lab) -> Plot:
    """CPU of all cases."""
    cases = lab.cases()
    ours = [name for name in cases if not name.endswith(NOKEY)]
    return Plot("Pictures of a video", (panel_of("CPU s", cases, _cpu_of, ours=ours, digits=2),))


BENCHMARK = Benchmark(
    name="pictures",
    summary="poster and sprite through the index, and by ffmpeg alone",
    run=run,
    draw=draw,
    needed_bytes=2 * GB,
    rounds=5,
    seconds=200,
    quick_seconds=3,
)

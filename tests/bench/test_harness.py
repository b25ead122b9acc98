"""What all benchmarks share: rounds, disk space, clean-up, the meter, the client."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bench.__main__ import BENCHMARKS, main, quick_share
from bench.lib import harness
from bench.lib.client import Connection, FileSlice, RequestFailed
from bench.lib.harness import Benchmark, Lab, NotEnoughRoom, prepared_lab
from bench.lib.meter import Meter, await_idle, cpu_seconds_of
from bench.lib.page_cache import PageCache
from bench.lib.parallel import in_processes, in_threads
from bench.lib.plot import Plot
from bench.lib.samples import GB, Sample
from bench.lib.uploading import Upload, in_order, upload_form, upload_raw
from tests.dropzone_client import random_bytes
from tests.live_server import Server


def benchmark(needed_bytes: int = 0) -> Benchmark:
    def draw(_: Lab) -> Plot:
        return Plot("", ())

    return Benchmark(name="x", summary="", run=lambda _: [], draw=draw, needed_bytes=needed_bytes)


def test_a_lab_leaves_nothing_even_if_the_benchmark_fails(tmp_path: Path) -> None:
    def fail() -> None:
        with prepared_lab(benchmark(), tmp_path, quick_seconds=1.0) as lab:
            lab.source(100)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_benchmark_does_not_start_without_disk_space(tmp_path: Path) -> None:
    huge = benchmark(needed_bytes=10**9 * GB)
    with pytest.raises(NotEnoughRoom), prepared_lab(huge, tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_rounds_stop_when_time_is_up_but_not_before_the_first(tmp_path: Path) -> None:
    assert list(Lab(tmp_path, False, 3, seconds=60.0).rounds()) == [0, 1, 2]
    assert list(Lab(tmp_path, False, 3, seconds=0.0).rounds()) == [0]


@pytest.mark.parametrize(("seconds", "count"), [(29.0, 2), (30.0, 3), (31.0, 3)])
def test_a_round_that_would_not_end_in_time_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, count: int
) -> None:
    now = 0.0
    monkeypatch.setattr("bench.lib.harness.time.monotonic", lambda: now)
    lab = Lab(tmp_path, False, 9, seconds)
    begun = 0
    for _ in lab.rounds():
        begun += 1
        now += 10.0
    assert begun == count


def test_a_quick_run_starts_only_the_first_case_when_time_is_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(Lab(tmp_path, True, 1, seconds=60.0).in_time("abc")) == ["a", "b", "c"]
    assert capsys.readouterr().out == ""
    assert list(Lab(tmp_path, True, 1, seconds=-1.0).in_time("abc")) == ["a"]
    assert "left out: 2 cases" in capsys.readouterr().out


def test_a_full_run_skips_no_case(tmp_path: Path) -> None:
    assert list(Lab(tmp_path, False, 1, seconds=-1.0).in_time("abc")) == ["a", "b", "c"]


def test_the_time_one_benchmark_uses_of_a_quick_run_is_taken_from_the_others() -> None:
    parts = [10.0, 20.0, 30.0]
    assert quick_share(parts, 0, elapsed=0) == 10.0
    assert quick_share(parts, 1, elapsed=5.0) == pytest.approx(22.0)
    assert quick_share(parts, 1, elapsed=20.0) == pytest.approx(16.0)
    assert quick_share(parts, 2, elapsed=61.0) < 0


def test_a_quick_run_of_all_is_meant_to_end_within_two_minutes() -> None:
    assert sum(one.quick_seconds for one in BENCHMARKS) <= 118


def test_figures_of_a_quick_run_are_kept_out_of_the_documentation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--quick", "--docs", "upload"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "--docs wants a full run" in capsys.readouterr().err


def test_cases_are_named_by_what_follows_a_prefix(tmp_path: Path) -> None:
    lab = Lab(tmp_path, True, 1, 1.0)
    names = ("4 MB, cp", "4 MB, ours", "14 MB, cp", "4 MB, cp")
    lab.samples = [Sample(case=name, round=0, byte_count=1, seconds=1.0) for name in names]
    assert {name: len(found) for name, found in lab.cases("4 MB, ").items()} == {"cp": 2, "ours": 1}


@pytest.mark.e2e
def test_a_quick_run_keeps_a_server_for_the_same_options(tmp_path: Path) -> None:
    ports = []
    with prepared_lab(benchmark(), tmp_path, quick_seconds=1.0) as lab:
        for durability in ("none", "chunk", "none"):
            with lab.server(SLUICE_DURABILITY=durability) as server:
                ports.append(server.port)
                assert server.get("/healthz").status_code == 200
    first, other, again = ports
    assert first == again != other
    assert list(tmp_path.iterdir()) == []


def test_a_source_has_the_requested_length_and_no_pattern(tmp_path: Path) -> None:
    source = Lab(tmp_path, True, 1, 1.0).source(1_000_001)
    content = source.read_bytes()
    assert len(content) == 1_000_001
    assert content[:1000] != content[1000:2000]


def test_the_page_cache_is_filled_with_more_than_was_free_and_files_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    kept.write_bytes(b"x" * 5000)
    monkeypatch.setattr("bench.lib.page_cache.STEP_BYTES", 4096)
    monkeypatch.setattr("bench.lib.page_cache.BEYOND_BYTES", 5000)
    monkeypatch.setattr("bench.lib.page_cache._free_bytes", lambda: 10_000)
    PageCache(tmp_path).fill([kept])
    assert (tmp_path / "sparse").stat().st_size == 4 * 4096


def test_the_meter_counts_only_the_process() -> None:
    busy = "import os\nwhile os.times().user < 0.3: pass\ninput()\n"
    short = "x = bytearray(30_000_000); del x\n"
    program = f"input(); print(flush=True)\n{busy}{short}print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with Meter([psutil.Process(process.pid)]) as meter:
            process.stdin.write(b"\n\n")
            process.stdin.flush()
            process.stdout.readline()
            process.stdout.readline()
            sum(range(3_000_000))
        assert 0.1 < meter.cpu_seconds < 5
        process.kill()
    assert 25e6 < meter.peak_bytes < 60e6, "also when the process has ended"


@pytest.mark.e2e
@pytest.mark.parametrize("send", [upload_raw, upload_form])
def test_chunked_uploads_arrive_unchanged(server: Server, tmp_path: Path, send: Upload) -> None:
    source = Lab(tmp_path, True, 1, 1.0).source(350_001)
    upload_id = send(server.port, source, 350_001, chunk_bytes=100_000)
    video = server.get(f"/api/videos/{upload_id}").json()
    assert video["length"] == 350_001
    assert server.get(f"/media/{upload_id}").content == source.read_bytes()


@pytest.mark.e2e
def test_whole_files_are_all_sent_once(server: Server, tmp_path: Path) -> None:
    paths = [tmp_path / f"{os.urandom(4).hex()}.mp4" for _ in range(7)]
    for number, path in enumerate(paths):
        path.write_bytes(random_bytes(50_000 + number, number))
    in_order(paths, parallel=3, port=server.port)
    videos = server.get("/api/videos?limit=200").json()["videos"]
    ours = {one["filename"]: one["id"] for one in videos if tmp_path / one["filename"] in paths}
    assert len(ours) == 7
    for path in paths:
        stored = server.get(f"/media/{ours[path.name]}").content
        assert hashlib.sha256(stored).digest() == hashlib.sha256(path.read_bytes()).digest()


@pytest.mark.e2e
def test_the_client_fetches_whole_files_and_ranges(server: Server, tmp_path: Path) -> None:
    source = Lab(tmp_path, True, 1, 1.0).source(300_000)
    upload_id = upload_raw(server.port, source, 300_000)
    with Connection(server.port) as connection:
        assert connection.get(f"/media/{upload_id}") == 300_000
        assert connection.get(f"/media/{upload_id}", (100, 200)) == 100
        with pytest.raises(RequestFailed):
            connection.get("/media/unknown")


@pytest.mark.e2e
def test_an_error_invalidates_the_sample(server: Server, tmp_path: Path) -> None:
    source = Lab(tmp_path, True, 1, 1.0).source(10)
    body = FileSlice(source, 0, 10)
    with Connection(server.port) as connection, pytest.raises(RequestFailed, match="400"):
        connection.post("/upload", "application/octet-stream", body, around=(b"", b""))


def fail_at_two(index: int) -> int:
    if index == 2:
        raise RequestFailed("two")
    return index


def test_clients_run_at_once_and_give_their_results() -> None:
    assert in_threads(2, fail_at_two) == [0, 1]
    with in_processes(2, lambda index: (fail_at_two(index), os.getpid())) as run_clients:
        (first, one), (second, other) = run_clients()
    assert (first, second) == (0, 1)
    assert len({one, other, os.getpid()}) == 3


def test_an_error_in_one_of_several_clients_is_raised() -> None:
    with pytest.raises(RequestFailed, match="two"):
        in_threads(3, fail_at_two)
    with (
        in_processes(3, fail_at_two) as run_clients,
        pytest.raises(RequestFailed, match="two"),
    ):
        run_clients()


def test_clients_that_are_never_called_end() -> None:
    with in_processes(1, fail_at_two):
        assert len(multiprocessing.active_children()) == 1
    assert multiprocessing.active_children() == []


def test_a_bench_server_runs_with_the_defaults_of_the_program(tmp_path: Path) -> None:
    environment = harness.BenchServer(tmp_path, {}).environment
    assert {"SLUICE_WORKERS", "SLUICE_THREADS"}.isdisjoint(environment)
    assert environment["SLUICE_STAGING_DIR"].startswith(str(tmp_path))


def test_a_server_counts_as_started_once_its_processes_are_idle() -> None:
    program = "import os\nif os.fork() == 0:\n while os.times().user < 0.4: pass\ninput()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        top = psutil.Process(process.pid)
        while not top.children():
            assert process.poll() is None
        await_idle(lambda: [top, *top.children()])
        [child] = top.children()
        assert cpu_seconds_of([child]) >= 0.4
        child.kill()
        process.kill()
    assert cpu_seconds_of([top]) == 0


def test_a_run_goes_on_with_the_samples_that_an_earlier_one_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    sample = Sample(case="1 %: client", round=0, byte_count=1, seconds=1.0)
    earlier = Lab(tmp_path, False, 2, 60.0)
    earlier.resume("line")
    earlier.keep(sample)
    later = Lab(tmp_path, False, 2, 60.0, only="client")
    later.resume("line")
    assert later.samples == [sample]
    assert not later.is_due("1 %: client", 0)
    assert later.is_due("1 %: client", 1)
    assert not later.is_due("1 %: page", 1)

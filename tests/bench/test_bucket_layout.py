"""What bucket_layout sends, counts and computes."""

from __future__ import annotations

import http.client
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from bench.cases import bucket_layout as case
from bench.cases.bucket_layout import EARLIER, LONG, NOW, ONE, Job, counting, operation_of
from bench.lib import harness
from bench.lib.harness import Lab
from bench.lib.report import Table
from bench.lib.samples import GB, Sample
from bench.lib.uploading import CHUNK_BYTES
from tests.fleet.faulty_proxy import Plan, proxies


def measured(layout: str, job: Job, complete_seconds: float, number: int = 0) -> Sample:
    return Sample(
        case=f"{layout}, versitygw, {job.name}",
        round=number,
        byte_count=job.length,
        seconds=complete_seconds + 10,
        cpu_seconds=job.length / GB,
        complete_seconds=complete_seconds,
        store_written_bytes=2 * job.length,
        store_read_bytes=0,
    )


def death(seconds: float) -> Sample:
    return Sample(
        case=f"{NOW}, versitygw, death, {ONE.name}",
        round=0,
        byte_count=0,
        seconds=seconds,
        complete_seconds=seconds,
    )


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """The earlier layout is complete after 1 and 10 s, that at hand after 2 and 15 s."""
    found = Lab(tmp_path, False, 3, 1.0)
    found.samples = [
        measured(NOW, ONE, 2.0),
        measured(NOW, LONG, 15.0),
        measured(EARLIER, ONE, 1.0),
        measured(EARLIER, LONG, 10.0),
    ]
    return found


def rows(table: Table) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in table.rows}


def test_the_code_at_hand_stands_beside_what_was_recorded(lab: Lab) -> None:
    [table] = case._tables(lab, "versitygw")
    assert table.columns == ("", EARLIER, NOW)
    found = rows(table)
    assert found[f"{ONE.name}: seconds until complete"] == ("1.0", "2.0")
    assert found[f"{ONE.name}: CPU s/GB of the node"] == ("1.00", "1.00")
    assert found[f"{LONG.name}: bytes the store wrote, per byte"] == ("2.00", "2.00")
    assert case.DEATH not in found, "no layout has a figure"
    assert case._tables(lab, "Garage") == []


def test_what_a_file_of_100_gb_takes_is_computed_from_the_growth(lab: Lab) -> None:
    [table] = case._tables(lab, "versitygw")
    assert rows(table)[case.COMPUTED] == ("100", "145")


def test_requests_are_summed_by_what_they_cost(lab: Lab) -> None:
    requests = {"UploadPart": 96, "UploadPartCopy": 4, "GetObject": 6, "DeleteObject": 100}
    lab.samples.append(
        Sample(
            case=f"{NOW}, versitygw, requests, {ONE.name}",
            round=0,
            byte_count=2 * GB,
            seconds=1.0,
            requests=requests,
        )
    )
    _, table = case._tables(lab, "versitygw")
    assert rows(table) == {
        f"{ONE.way}: UploadPart": ("-", "48"),
        f"{ONE.way}: UploadPartCopy": ("-", "2"),
        f"{ONE.way}: GetObject": ("-", "3"),
        f"{ONE.way}: DeleteObject": ("-", "50"),
    }
    found = rows(case.summary(lab))
    assert found[f"PUT, POST and LIST per GB, {ONE.way}"] == ("-", "50")
    assert found[f"GET and HEAD per GB, {ONE.way}"] == ("-", "3")


def test_completion_is_compared_with_the_earlier_layout_and_a_death_with_none(lab: Lab) -> None:
    lab.samples.append(death(40.0))
    found = {row[0]: row[2:] for row in case._targets(lab).rows}
    late = f"versitygw, {LONG.name}: seconds until complete, of {EARLIER}"
    assert found[late] == ("1.50", "yes")
    assert found["versitygw: seconds more after a node's death"] == ("38.00", "**no**")
    assert found[case.CODE_LINES] == ("-", "not measured")


def test_a_file_longer_than_the_source_repeats_it_in_other_blocks(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with source.open("wb") as file:
        file.truncate(GB)
    slices = [*LONG.slices(source)]
    assert [offset for offset, _ in slices] == [*range(0, LONG.length, CHUNK_BYTES)]
    assert sum(body.length for _, body in slices) == LONG.length
    assert all(body.start + body.length <= GB for _, body in slices)
    assert len({body.start for _, body in slices}) == len(slices)


def test_one_patch_is_the_whole_source(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(1000))
    [(offset, body)] = Job(1000, None).slices(source)
    assert (offset, body.start, body.length) == (0, 0, 1000)


@pytest.mark.parametrize(
    ("request_line", "operation"),
    [
        ("PUT /sluice/films/a?partNumber=3&uploadId=x", "UploadPart"),
        ("PUT /sluice/films/a", "PutObject"),
        ("POST /sluice/films/a?uploads=", "CreateMultipartUpload"),
        ("POST /sluice/films/a?uploads", "CreateMultipartUpload"),
        ("POST /sluice/films/a?uploadId=x", "CompleteMultipartUpload"),
        ("POST /sluice?delete=", "DeleteObjects"),
        ("DELETE /sluice/films/a?uploadId=x", "AbortMultipartUpload"),
        ("DELETE /sluice/films/a", "DeleteObject"),
        ("GET /sluice/films/a?uploadId=x", "ListParts"),
        ("GET /sluice/films/a", "GetObject"),
        ("GET /sluice?list-type=2&prefix=films", "ListObjects"),
        ("HEAD /sluice/films/a", "HeadObject"),
        ("HEAD /sluice", "other"),
    ],
)
def test_requests_are_told_apart(request_line: str, operation: str) -> None:
    assert operation_of(f"{request_line} HTTP/1.1\r\nHost: x\r\n\r\n".encode()) == operation


@pytest.mark.parametrize(
    ("target", "operation"),
    [("a?partNumber=1&uploadId=x", "UploadPartCopy"), ("a", "CopyObject")],
)
def test_copies_are_told_by_their_header(target: str, operation: str) -> None:
    head = f"PUT /sluice/{target} HTTP/1.1\r\nX-Amz-Copy-Source: /sluice/b\r\n\r\n"
    assert operation_of(head.encode()) == operation


class Store(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def store_port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Store) as server:
        Thread(target=server.serve_forever).start()
        yield server.server_port
        server.shutdown()


def test_the_proxy_counts_each_request_of_a_connection(store_port: int) -> None:
    counts: Counter[str] = Counter()
    with proxies() as make:
        proxy = make(store_port, counting(counts), Plan(0))
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port)
        for path in ("/sluice/a", "/sluice/a?partNumber=1&uploadId=x", "/sluice/b"):
            connection.request("PUT", path, body=b"PUT /c HTTP/1.1\r\n\r\n")
            assert connection.getresponse().read() == b""
        connection.close()
    assert counts == {"PutObject": 2, "UploadPart": 1}


def test_a_withheld_request_does_not_reach_the_store(store_port: int) -> None:
    counts: Counter[str] = Counter()
    with proxies() as make:
        proxy = make(store_port, counting(counts, withheld="UploadPart"), Plan(0))
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=60)
        connection.request("PUT", "/sluice/a", body=b"x")
        assert connection.getresponse().read() == b""
        connection.request("PUT", "/sluice/a?partNumber=1&uploadId=x", body=b"x")
        connection.sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.getresponse()
        connection.close()


def test_recorded_samples_stand_beside_those_of_later_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(harness, "RECORDED", tmp_path / "recorded")
    for record in ("", "cells and parts", ""):
        lab = Lab(tmp_path, False, 1, 1.0, record=record)
        lab.resume("x")
        if lab.is_due(name := f"{record or NOW}, code", 0):
            lab.keep(Sample(case=name, round=0, byte_count=0, seconds=0.0))
    assert [sample.case for sample in lab.samples] == ["cells and parts, code", f"{NOW}, code"]
    assert (tmp_path / "recorded/x/cells-and-parts.jsonl").exists()
    assert (tmp_path / "results/x.jsonl").read_text().count("\n") == 1

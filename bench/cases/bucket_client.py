"""What our own client of S3 costs beside botocore's, with Garage on this machine.

Both run in this process and take turns, so that each pair of samples met the same machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from app.core.ranges import ByteRange
from app.storage.s3.address import AccessKey, BucketAddress
from app.storage.s3.bucket import Bucket
from app.storage.s3.contents import SpoolSlice
from app.storage.s3.reader import COPIED_BYTES
from bench.lib.harness import Benchmark, Lab
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import GB, Sample, costs_of, ratio, spread
from bench.peers.buckets import running_garage
from scripts.fleet.s3_servers import Access

PART_BYTES = 20 * 1024 * 1024
PARTS, QUICK_PARTS = 25, 3

OURS, BOTOCORE = "our own", "botocore"
SENDING, READING = "a part of 20 MiB is sent", "an object of 20 MiB is read"

NOTE = (
    "CPU seconds of the client per GB, over plain HTTP on loopback. Ours sends from a file with "
    "sendfile and a CRC32C; botocore sends with its default, a CRC32 in a trailer. The ratio is "
    "the median of the pairs."
)

Work = Callable[[], None]


def run(lab: Lab) -> list[Table]:
    """Measure, and return the table; raises `NotRunnable` without Garage."""
    source = lab.source(PART_BYTES)
    with running_garage(lab) as store, source.open("rb") as file:
        cases = {**_ours(store.access, file.fileno()), **_botocore(store.access, source)}
        for number in lab.rounds():
            for name in sorted(cases, reverse=bool(number % 2)):
                _measure(lab, number, name, cases[name])
    return [_table(lab)]


def _ours(access: Access, descriptor: int) -> Mapping[str, Work]:
    address = BucketAddress.of(
        f"s3://{access.bucket}/ours", endpoint=access.endpoint, region=access.region
    )
    bucket = Bucket.at(address, key=lambda: AccessKey(access.key, access.secret))
    body, span = SpoolSlice(descriptor, 0, PART_BYTES), ByteRange(0, PART_BYTES)
    upload = bucket.create_multipart("upload")
    buffer = bytearray(COPIED_BYTES)

    def send() -> None:
        bucket.upload_part("upload", upload, 1, body)

    def read() -> None:
        with bucket.open("object", span, PART_BYTES) as file:
            while file.readinto(buffer):
                pass

    bucket.put_object("object", body)
    return {f"{SENDING}: {OURS}": send, f"{READING}: {OURS}": read}


def _botocore(access: Access, source: Path) -> Mapping[str, Work]:
    from botocore.session import Session  # noqa: PLC0415 - slow to import

    client: Any = Session().create_client(
        "s3",
        endpoint_url=access.endpoint,
        region_name=access.region,
        aws_access_key_id=access.key,
        aws_secret_access_key=access.secret,
    )
    place = {"Bucket": access.bucket, "Key": "theirs"}
    upload = client.create_multipart_upload(**place, ChecksumAlgorithm="CRC32")["UploadId"]

    def send() -> None:
        with source.open("rb") as file:
            client.upload_part(
                **place, UploadId=upload, PartNumber=1, Body=file, ChecksumAlgorithm="CRC32"
            )

    def read() -> None:
        body = client.get_object(Bucket=access.bucket, Key="ours/object")["Body"]
        while body.read(COPIED_BYTES):
            pass

    return {f"{SENDING}: {BOTOCORE}": send, f"{READING}: {BOTOCORE}": read}


def _measure(lab: Lab, number: int, name: str, work: Work) -> None:
    work()  # Connects, imports.
    count = lab.pick(PARTS, QUICK_PARTS)
    started, cpu_before = time.perf_counter(), time.process_time()
    for _ in range(count):
        work()
    lab.keep(
        Sample(
            case=name,
            round=number,
            byte_count=count * PART_BYTES,
            seconds=time.perf_counter() - started,
            cpu_seconds=time.process_time() - cpu_before,
        )
    )


def _table(lab: Lab) -> Table:
    rows: list[tuple[str, ...]] = []
    for what in (SENDING, READING):
        base = costs_of(lab.of(f"{what}: {OURS}"))
        for client in (OURS, BOTOCORE):
            costs = costs_of(lab.of(f"{what}: {client}"))
            rows.append((what, client, spread(costs, 2), ratio(costs, base)))
    return Table("Clients of a bucket", ("what", "client", "CPU s/GB", "ratio"), rows, (NOTE,))


def draw(lab: Lab) -> Plot:
    """A panel for sending, one for reading."""
    panels = [
        panel_of(f"CPU s/GB: {what}", lab.cases(f"{what}: "), costs_of, ours=[OURS], digits=2)
        for what in (SENDING, READING)
    ]
    return Plot("Clients of a bucket", tuple(panels))


BENCHMARK = Benchmark(
    name="bucket_client",
    summary="our own client of S3 beside botocore's",
    run=run,
    draw=draw,
    needed_bytes=GB,
    rounds=5,
    quick_seconds=2,
)

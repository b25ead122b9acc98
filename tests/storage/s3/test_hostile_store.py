"""What the client makes of a store that cuts, stalls, lies or refuses."""

from __future__ import annotations

import io
import os
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.client import HTTPConnection
from itertools import count
from pathlib import Path

import pytest

from app.core.errors import NoRoom, ServerBusy, StorageFailed
from app.core.pieces import Checksums
from app.core.ranges import ByteRange
from app.storage.s3 import bucket as bucket_module
from app.storage.s3 import connections
from app.storage.s3.address import AccessKey, BucketAddress
from app.storage.s3.bucket import Bucket
from app.storage.s3.caller import MultipartGone, PartsDiffer
from app.storage.s3.connections import Answer, Connections, Request
from app.storage.s3.contents import SpoolSlice, SpoolTooShort
from tests.e2e.server_kinds import make_certificate
from tests.storage.s3.hostile_store import (
    CUT,
    SLOW_DOWN,
    STORED,
    HostileStore,
    Step,
    error,
    reply,
)

LONG = 120.0
"""Seconds that no test waits for."""
SHORT = 0.4
MIB = 1024 * 1024

SLOW_BUT_FINE = [Step(b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n"), Step(error(503, "x"))]
CUT_HEAD = Step(b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: "ab', closes=True)
GARBAGE = [Step(b"\0\1\2 nonsense\r\n\r\n", closes=True), Step(b"", closes=True)]
TOO_MANY_HEADERS = Step(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n")
PARTS = [(1, Checksums("etag", "crc"))]
COMPLETED = reply(200, b" \n<CompleteResult><ETag>&quot;new&quot;</ETag></CompleteResult>")
THERE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
NOT_THERE = reply(404)
BOMB = (
    b'<!DOCTYPE a [<!ENTITY a "aaaaaaaaaaaaaaaaaaaa">'
    + b"".join(b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 50) for n in range(8))
    + b"]><a><IsTruncated>&i;</IsTruncated></a>"
)


@pytest.mark.parametrize(
    "trouble",
    [
        [SLOW_DOWN, SLOW_DOWN],
        SLOW_BUT_FINE,
        [CUT],
        [CUT_HEAD],
        GARBAGE,
        [TOO_MANY_HEADERS],
        [Step(error(400, "RequestTimeout"), closes=True)],
        [Step(error(409, "OperationAborted"))],
        [Step(reply(502, b"<html>Bad gateway"))],
    ],
)
def test_a_part_is_sent_again_after_trouble_that_passes(trouble: list[Step], spool: int) -> None:
    os.pwrite(spool, b"hello", 0)
    with HostileStore([*trouble, STORED]) as store:
        stored = store.bucket(LONG).upload_part("a", "upload", 3, SpoolSlice(spool, 1, 4))
    assert stored.etag == "abc"
    line = "PUT /films/prefix/a?partNumber=3&uploadId=upload HTTP/1.1"
    assert store.requests[-1] == (line, b"ello")
    assert set(store.lines) == {line}
    assert len(store.lines) > len(trouble)


@pytest.mark.parametrize(
    "step", [SLOW_DOWN, CUT, Step(hangs=True), Step(b"HTTP/1.1 200 OK\r\n", hangs=True)]
)
def test_a_store_that_does_not_recover_in_time_is_busy(step: Step) -> None:
    with HostileStore([step]) as store, pytest.raises(ServerBusy) as caught:
        store.bucket(SHORT).head("a")
    assert caught.value.retry_after_seconds


class NotedConnections(Connections):
    """Notes how long the store may take for each request."""

    def __init__(self, scheme: str, host: str, port: int) -> None:
        super().__init__(scheme, host, port)
        self.patience = list[float]()

    def ask(self, request: Request, deadline: float) -> Answer:
        self.patience.append(request.idle_seconds)
        return super().ask(request, deadline)


def test_a_store_has_longer_to_answer_for_a_longer_body(spool: int) -> None:
    os.ftruncate(spool, 64 * MIB)
    with HostileStore([STORED]) as store:
        caller = store.bucket(LONG).caller
        address = caller.address
        noted = NotedConnections(address.scheme, address.host, address.port)
        bucket = Bucket(replace(caller, connections=noted))
        bucket.put_object("a", b"")
        bucket.put_object("a", SpoolSlice(spool, 0, 64 * MIB))
    assert noted.patience[1] >= 30 + noted.patience[0]


def test_a_store_that_is_not_there_is_busy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    address = BucketAddress.of("s3://a-b", endpoint=f"http://127.0.0.1:{port}", region="r")
    bucket = Bucket.at(address, key=lambda: AccessKey("id", "secret")).within(SHORT)
    with pytest.raises(ServerBusy):
        bucket.put_object("a", b"")


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, "AccessDenied", "does not allow"),
        (403, "SignatureDoesNotMatch", "does not accept this server's key"),
        (403, "RequestTimeTooSkewed", "more than 15 minutes"),
        (404, "NoSuchBucket", "does not exist"),
        (400, "AuthorizationHeaderMalformed", "SLUICE_S3_REGION"),
        (400, "BadDigest", "damaged on their way"),
        (418, "Whatever", "refused a request"),
        (400, "no;such <code>", "refused a request"),
    ],
)
def test_a_refusal_says_what_to_do_and_no_place(status: int, code: str, words: str) -> None:
    step = Step(error(status, code))
    with HostileStore([step]) as store, pytest.raises(StorageFailed, match=words) as caught:
        store.bucket(LONG).put_object("a", b"x")
    assert len(store.requests) == 1, "nothing is tried again"
    for secret in ("127.0.0.1", "secret", "films", "prefix"):
        assert secret not in str(caught.value)


def test_a_full_store_has_no_room() -> None:
    with HostileStore([Step(error(400, "QuotaExceeded"))]) as store, pytest.raises(NoRoom):
        store.bucket(LONG).put_object("a", b"x")


@pytest.mark.parametrize(
    ("code", "expected"), [("NoSuchUpload", MultipartGone), ("InvalidPart", PartsDiffer)]
)
def test_a_completion_may_fail_after_its_status_was_sent(
    code: str, expected: type[Exception]
) -> None:
    steps = [Step(error(200, code)), Step(NOT_THERE)]
    with HostileStore(steps) as store, pytest.raises(expected):
        store.bucket(LONG).complete_multipart("a", "id", PARTS, length=5)


@pytest.mark.parametrize(
    "trouble",
    [
        Step(error(200, "InternalError")),
        Step(reply(200)),
        Step(reply(200, b" \n <Comp")[:-3], closes=True),
    ],
)
def test_a_completion_that_fails_in_passing_is_tried_again(trouble: Step) -> None:
    with HostileStore([trouble, Step(COMPLETED), Step(THERE)]) as store:
        store.bucket(LONG).complete_multipart("a", "id", PARTS, length=5)
    assert store.requests[0] == store.requests[1]


@pytest.fixture
def _keeps_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the machine pauses between two calls."""
    monkeypatch.setattr(connections, "KEPT_SECONDS", 600)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_module, "APPEARS_SECONDS", 0.05)
    monkeypatch.setattr(bucket_module, "APPEARS_POLL_SECONDS", 0.1)


@pytest.mark.usefixtures("_impatient")
def test_an_object_may_appear_after_its_completion_was_confirmed() -> None:
    with HostileStore([Step(COMPLETED), Step(NOT_THERE), Step(THERE)]) as store:
        store.bucket(LONG).complete_multipart("a", "id", PARTS, length=5)
    assert len(store.requests) == 3


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("length", [5, 6])
def test_an_object_that_was_confirmed_and_is_not_there_is_not_complete(length: int) -> None:
    found = NOT_THERE if length == 5 else THERE
    with HostileStore([Step(COMPLETED), *[Step(found)] * 5]) as store, pytest.raises(PartsDiffer):
        store.bucket(LONG).complete_multipart("a", "id", PARTS, length=length)


def test_an_object_that_an_earlier_call_has_completed_is_complete() -> None:
    with HostileStore([Step(error(404, "NoSuchUpload")), Step(THERE)]) as store:
        store.bucket(LONG).complete_multipart("a", "id", PARTS, length=5)
    assert len(store.requests) == 2


def test_a_copy_may_fail_after_its_status_was_sent() -> None:
    failed, done = error(200, "InternalError"), b"<CopyPartResult><ETag>new</ETag></CopyPartResult>"
    with HostileStore([Step(failed), Step(reply(200, done))]) as store:
        stored = store.bucket(LONG).copy_part("a", "id", 1, "b")
    assert stored == Checksums("new", "")


def test_a_cut_object_is_read_on_where_it_was_cut() -> None:
    ends = [
        Step(reply(206, b"0123456789", "Content-Range: bytes 0-9/10")[:-6], closes=True),
        Step(reply(206, b"456789", "Content-Range: bytes 4-9/10")[:-1], closes=True),
        Step(reply(206, b"9", "Content-Range: bytes 9-9/10")),
    ]
    with HostileStore(ends) as store, open_ten_bytes(store) as file:
        assert file.readall() == b"0123456789"


def test_an_object_that_is_always_cut_before_its_first_byte() -> None:
    cut = Step(reply(206, b"0", "Content-Range: bytes 0-9/10")[:-1], closes=True)
    with HostileStore([cut]) as store, open_ten_bytes(store) as file, pytest.raises(ServerBusy):
        file.read(1)


def open_ten_bytes(store: HostileStore) -> io.RawIOBase:
    return store.bucket(LONG).open("a", ByteRange(0, 10), 10)


@pytest.mark.parametrize(
    "answer",
    [
        reply(206, b"12345", "Content-Range: bytes 1-5/10"),
        reply(206, b"01234", "Content-Range: bytes 0-4/11"),
        reply(206, b"01234"),
        reply(200, b"0123456789"),
        error(416, "InvalidRange"),
    ],
)
def test_other_bytes_than_those_asked_for(answer: bytes) -> None:
    with HostileStore([Step(answer)]) as store, pytest.raises(StorageFailed):
        store.bucket(LONG).open("a", ByteRange(0, 5), 10)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not XML",
        BOMB,
        b"<a><IsTruncated>true</IsTruncated></a>",
        b"<a><Contents><Key>a</Key><Size>-1</Size></Contents></a>",
        b"<a><Contents><Key>a</Key><Size>1</Size><LastModified>today</LastModified></Contents></a>",
    ],
)
def test_a_list_that_is_none(body: bytes) -> None:
    with HostileStore([Step(reply(200, body))]) as store, pytest.raises(StorageFailed):
        list(store.bucket(LONG).list_objects())


def test_a_list_that_turns_in_a_circle() -> None:
    body = b"<a><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken></a>"
    with HostileStore([Step(reply(200, body))]) as store, pytest.raises(StorageFailed):
        list(store.bucket(LONG).list_objects())
    assert len(store.requests) == 2


def test_an_answer_without_an_end_is_not_read() -> None:
    endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1100000\r\n"
    step = Step(endless + b"x" * 17 * MIB, closes=True)
    with HostileStore([step]) as store, pytest.raises(ServerBusy):
        list(store.bucket(SHORT).list_objects())


def test_a_refusal_before_the_body_was_sent_is_heard(spool: int) -> None:
    os.ftruncate(spool, 64 * MIB)
    refused = Step(error(403, "AccessDenied"), closes=True, reads_body=False)
    with HostileStore([refused]) as store, pytest.raises(StorageFailed, match="does not allow"):
        store.bucket(LONG).put_object("a", SpoolSlice(spool, 0, 64 * MIB))


def test_a_connection_on_which_the_body_was_not_sent_whole_is_not_used_again(spool: int) -> None:
    """The store would take the next request for the rest of the body."""
    os.ftruncate(spool, 64 * MIB)
    with HostileStore([Step(error(503, "SlowDown"), reads_body=False), STORED]) as store:
        store.bucket(LONG).put_object("a", SpoolSlice(spool, 0, 64 * MIB))
        assert store.connections == 2


def test_a_head_without_a_body_is_explained_by_its_status() -> None:
    answer = Step(b"HTTP/1.1 403 Text\r\nContent-Length: 0\r\n\r\n")
    with HostileStore([answer]) as store, pytest.raises(StorageFailed, match="does not allow"):
        store.bucket(LONG).head("a")


@pytest.mark.parametrize("answer", [reply(404), reply(404, b"<html>Not found</html>")])
def test_a_web_server_is_no_bucket(answer: bytes) -> None:
    with HostileStore([Step(answer)]) as store:
        with pytest.raises(StorageFailed):
            store.bucket(LONG).probe()
        assert store.bucket(LONG).head("a") is None


def test_a_proxy_without_routes_is_no_missing_object() -> None:
    with HostileStore([Step(reply(404))]) as store:
        bucket = store.bucket(LONG)
        with pytest.raises(StorageFailed, match="404"):
            bucket.open("a", ByteRange(0, 1), 1)
        with pytest.raises(StorageFailed, match="404"):
            bucket.copy_part("a", "upload", 1, "source")


def test_a_slice_beyond_its_file_is_a_mistake_of_the_caller(spool: int) -> None:
    with HostileStore([STORED]) as store, pytest.raises(SpoolTooShort):
        store.bucket(LONG).put_object("a", SpoolSlice(spool, 0, 5))


@pytest.mark.usefixtures("_keeps_connections")
def test_connections_are_kept_and_given_up_when_the_store_closes_them() -> None:
    with HostileStore([STORED, STORED, Step(STORED.answer, closes=True), CUT, STORED]) as store:
        bucket = store.bucket(LONG)
        for count in (1, 1, 1):
            bucket.put_object("a", b"x")
            assert store.connections == count
        bucket.put_object("a", b"x")
        assert len(store.requests) == 5


def test_a_kept_connection_whose_socket_was_closed_is_not_used() -> None:
    """As the collector of garbage closes the socket of an object that nobody read."""
    with HostileStore([STORED]) as store:
        bucket = store.bucket(LONG)
        connection = HTTPConnection("127.0.0.1")
        connection.sock = socket.socket()
        connection.sock.close()
        bucket.caller.connections.keep(connection)
        assert bucket.put_object("a", b"x").etag == "abc"


def test_threads_share_connections() -> None:
    with HostileStore([STORED]) as store, ThreadPoolExecutor(8) as threads:
        bucket = store.bucket(LONG)
        stored = threads.map(lambda number: bucket.put_object("a", b"%d" % number), range(100))
        assert {found.etag for found in stored} == {"abc"}
        assert store.connections <= 8
    assert sorted(int(body) for _, body in store.requests) == list(range(100))


def test_threads_and_forked_processes_share_the_client_of_the_rare_calls() -> None:
    with HostileStore([STORED]) as store, ThreadPoolExecutor(8) as threads:
        bucket = store.bucket(LONG)
        found = list(threads.map(lambda number: bucket.head(f"{number}"), range(100)))
        child = os.fork()
        if child == 0:
            os._exit(0 if bucket.head("100") == found[0] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert {head and head.etag for head in found} == {"abc"}
    lines = [f"HEAD /films/prefix/{number} HTTP/1.1" for number in range(101)]
    assert sorted(store.lines) == sorted(lines)


@pytest.mark.usefixtures("_keeps_connections")
def test_a_connection_that_closes_as_it_is_used_costs_no_pause() -> None:
    """With a pause the call would be over its time."""
    with HostileStore([STORED, CUT, STORED]) as store:
        bucket = store.bucket(LONG)
        bucket.put_object("a", b"x")
        bucket.put_object("a", b"x")
    assert (len(store.requests), store.connections) == (3, 2)


def test_no_name_gets_a_second_multipart_upload_when_an_answer_is_lost() -> None:
    """Neither on a connection that was kept nor on a new one: nobody would ever abort the first."""
    begun = Step(reply(200, b"<Result><UploadId>begun</UploadId></Result>"))
    with HostileStore([STORED, CUT, CUT, SLOW_DOWN, begun]) as store:
        bucket = store.bucket(LONG)
        bucket.put_object("a", b"x")
        numbers = count()
        name, upload = bucket.create_named_multipart(lambda: f"files/{next(numbers)}")
    assert (name, upload) == ("files/3", "begun")
    assert store.lines[1:] == [
        f"POST /films/prefix/files/{number}?uploads HTTP/1.1" for number in range(4)
    ]


@pytest.mark.usefixtures("_keeps_connections")
def test_a_forked_process_opens_connections_of_its_own() -> None:
    with HostileStore([STORED]) as store:
        bucket = store.bucket(LONG)
        bucket.put_object("a", b"x")
        child = os.fork()
        if child == 0:
            os._exit(0 if bucket.put_object("b", b"x").etag == "abc" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        bucket.put_object("a", b"x")
        assert (len(store.requests), store.connections) == (3, 2)


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    """What a store needs for TLS; its certificate is not trusted by itself."""
    certificate = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, tmp_path / "key.pem")
    return context


def test_bytes_go_over_tls_to_a_store_whose_certificate_is_trusted(
    tls: ssl.SSLContext, tmp_path: Path, spool: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = os.urandom(3 * MIB + 5)
    os.pwrite(spool, sent, 0)
    os.ftruncate(spool, 64 * MIB)
    refused = Step(error(403, "AccessDenied"), closes=True, reads_body=False)
    with HostileStore([STORED, refused], tls) as store:
        with pytest.raises(StorageFailed, match="certificate"):
            store.bucket(LONG).put_object("a", b"x")
        assert store.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        bucket = store.bucket(LONG)
        bucket.put_object("a", SpoolSlice(spool, 0, len(sent)))
        assert store.requests[0][1] == sent
        with pytest.raises(StorageFailed, match="does not allow"):
            bucket.put_object("a", SpoolSlice(spool, 0, 64 * MIB))

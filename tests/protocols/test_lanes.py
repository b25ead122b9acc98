"""WebSockets whose messages are chunks: on a live server, frame by frame."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from app.core.access import FIRST_PROJECT, LOCAL, Role
from app.ingest.websocket import CloseCode, Opcode
from tests.access.accounts import bearer, make_key, revoke, services_of, sign_in
from tests.dropzone_client import ChunkedFile, crc32c_of, random_bytes, send_chunk
from tests.lane_client import MASK, LaneClient, chunk_message, client_frame, message_of
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.nginx import bare_nginx, deployed_nginx
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

CHUNK_BYTES = 250_000


def small_file(seed: int, chunks: int = 3) -> ChunkedFile:
    return ChunkedFile(random_bytes(chunks * CHUNK_BYTES - 1, seed), CHUNK_BYTES)


@pytest.fixture
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that waits a second for a silent client."""
    options = {"SLUICE_TEST_CONSTANTS": "body_idle_seconds=1", **NO_FFMPEG}
    with running_server(tmp_path_factory.mktemp("impatient"), **options) as running:
        yield running


def test_a_file_arrives_by_a_lane(server: Server) -> None:
    file = small_file(1)
    with LaneClient(server) as lane:
        assert lane.handshake.status == 101
        assert lane.handshake.headers["sec-websocket-protocol"] == "sluice-lane-1"
        answers = [lane.ask(message_of(file, index)) for index in range(file.count)]
        lane.end()
        assert lane.close_code() == CloseCode.NORMAL
    assert [answer["status"] for answer in answers] == [200, 200, 200]
    assert [answer["body"]["complete"] for answer in answers] == [False, False, True]
    assert server.get(f"/media/{answers[-1]['body']['id']}").content == file.content


def test_chunks_of_a_file_arrive_by_lanes_and_posts(server: Server) -> None:
    file = small_file(2, chunks=6)
    with ExitStack() as lanes:
        for index in (5, 0, 3):
            lane = lanes.enter_context(LaneClient(server))
            assert lane.ask(message_of(file, index))["status"] == 200
        for index in (4, 1, 2):
            answer = send_chunk(server, file, index)
            assert answer.status_code == 200
    assert answer.json()["complete"]
    assert server.get(f"/media/{answer.json()['id']}").content == file.content


def test_messages_under_way_are_answered_in_order(server: Server) -> None:
    file = small_file(3)
    with LaneClient(server) as lane:
        for index in range(file.count):
            lane.send(message_of(file, index))
        received = [lane.answer()["body"]["received"] for _ in range(file.count)]
    assert received == [CHUNK_BYTES, 2 * CHUNK_BYTES, len(file.content)]


def test_a_message_may_come_in_frames_with_a_ping_between(server: Server) -> None:
    file = small_file(4, chunks=1)
    message = message_of(file, 0)
    with LaneClient(server) as lane:
        lane.connection.sendall(client_frame(Opcode.BINARY, message[:70_000], is_last=False))
        lane.connection.sendall(client_frame(Opcode.PING, b"still there?"))
        assert lane.receive() == (Opcode.PONG, b"still there?")
        lane.connection.sendall(client_frame(Opcode.CONTINUATION, message[70_000:]))
        assert lane.answer()["body"]["complete"]


def test_an_empty_message_asks_whether_the_lane_is_open(server: Server) -> None:
    with LaneClient(server) as lane:
        assert lane.ask(b"") == {"status": 200, "retry_after": None, "body": {}}


def test_a_damaged_chunk_is_refused_and_the_lane_goes_on(server: Server) -> None:
    file = small_file(5, chunks=1)
    right = f"crc32c=:{crc32c_of(file.content)}:"
    with LaneClient(server) as lane:
        damaged = bytearray(message_of(file, 0, right))
        damaged[-1] ^= 1
        refused = lane.ask(bytes(damaged))
        assert (refused["status"], refused["body"]["code"]) == (400, "digest_mismatch")
        assert lane.ask(message_of(file, 0, right))["body"]["complete"]


def test_what_a_post_would_be_told_a_message_is_told(server: Server) -> None:
    with LaneClient(server) as lane:
        answer = lane.ask(chunk_message("dzuuid=x&dzchunkindex=zero", b"bytes"))
        assert answer["status"] == server.post("/upload?dzuuid=x&dzchunkindex=zero").status_code
        assert answer["body"]["code"]
        assert lane.ask(b"")["status"] == 200


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (client_frame(Opcode.BINARY, b"\x00"), CloseCode.PROTOCOL_ERROR),
        (client_frame(Opcode.BINARY, b"\x00\x02[]bytes"), CloseCode.PROTOCOL_ERROR),
        (client_frame(Opcode.BINARY, b"\xff\xff{}"), CloseCode.PROTOCOL_ERROR),
        (client_frame(Opcode.BINARY, chunk_message("a\nb", b"")), CloseCode.PROTOCOL_ERROR),
        (client_frame(Opcode.BINARY, chunk_message("ü", b"")), CloseCode.PROTOCOL_ERROR),
        (client_frame(Opcode.TEXT, b"{}"), CloseCode.UNSUPPORTED),
        (client_frame(Opcode.CONTINUATION, b"x"), CloseCode.PROTOCOL_ERROR),
        (client_frame(Opcode.BINARY, b"")[:-4], CloseCode.NORMAL),
        (b"\x82\xff" + (1 << 40).to_bytes(8, "big") + MASK, CloseCode.TOO_BIG),
        (b"\x82\x05Hello", CloseCode.PROTOCOL_ERROR),
    ],
)
def test_what_no_lane_means_ends_it(server: Server, sent: bytes, code: CloseCode) -> None:
    with LaneClient(server) as lane:
        lane.connection.sendall(sent)
        if code is CloseCode.NORMAL:
            lane.connection.shutdown(1)
        assert lane.close_code() == code


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_WebSocket_Version": "8"},
        {"Sec_WebSocket_Key": "short"},
        {"Sec_WebSocket_Key": ""},
        {"Sec_WebSocket_Protocol": ""},
        {"Sec_WebSocket_Protocol": "chat"},
        {"Upgrade": ""},
        {"Upgrade": "h2c"},
        {"Connection": "keep-alive"},
    ],
)
def test_anything_but_a_handshake_is_refused(server: Server, headers: dict[str, str]) -> None:
    with LaneClient(server, **headers) as lane:
        assert lane.handshake.status == 400


def test_pages_of_other_sites_open_no_lane(server: Server) -> None:
    with LaneClient(server, Origin="https://example.org") as lane:
        assert lane.handshake.status == 403
    with LaneClient(server, Sec_Fetch_Site="cross-site") as lane:
        assert lane.handshake.status == 403
    with LaneClient(server, Origin=server.url, Sec_Fetch_Site="same-origin") as lane:
        assert lane.handshake.status == 101


def test_strangers_open_no_lane(closed_server: Server) -> None:
    with LaneClient(closed_server) as lane:
        assert lane.handshake.status == 401
    with LaneClient(closed_server, Authorization="Bearer nonsense") as lane:
        assert lane.handshake.status == 401
    viewer = make_key(closed_server, Role.VIEWER)
    with LaneClient(closed_server, **bearer(viewer)) as lane:
        assert lane.handshake.status == 403


def test_each_message_is_let_in_anew(closed_server: Server) -> None:
    key, file = make_key(closed_server), small_file(6)
    session = sign_in(closed_server, {FIRST_PROJECT: Role.EDITOR})
    with (
        LaneClient(closed_server, **bearer(key)) as of_key,
        LaneClient(closed_server, Cookie=f"sluice={session}") as of_person,
    ):
        assert of_key.ask(message_of(file, 0))["status"] == 200
        assert of_person.ask(message_of(small_file(7), 0))["status"] == 200
        revoke(closed_server, key)
        with services_of(closed_server) as services:
            services.identity.sessions.end(services.context.acting(LOCAL), session)

        for lane in (of_key, of_person):
            statuses = iter(lambda: lane.ask(message_of(small_file(8), 0))["status"], 401)  # noqa: B023
            assert set(statuses) <= {200}
            assert lane.close_code() == CloseCode.NORMAL


def test_a_link_has_lanes_until_it_is_closed(closed_server: Server) -> None:
    member = bearer(make_key(closed_server))
    link = closed_server.post("/api/upload-links", json={"name": "Films"}, headers=member).json()
    path = "/u/" + link["url"].rpartition("/")[2]
    file = small_file(9)
    with LaneClient(closed_server, f"{path}/lanes") as lane:
        answers = [lane.ask(message_of(file, index)) for index in range(file.count - 1)]
        assert {answer["status"] for answer in answers} == {200}
        address = f"/api/upload-links/{link['id']}"
        assert closed_server.delete(address, headers=member).status_code == 204
        last = message_of(file, file.count - 1)
        wait_until(lambda: lane.ask(last)["status"] in {404, 410}, "the lane is told")


def test_a_sender_has_so_many_lanes(server: Server) -> None:
    with ExitStack() as lanes:
        statuses = [
            lanes.enter_context(LaneClient(server)).handshake.status
            for _ in range(33 * len(server.web_workers()))
        ]
    assert 32 <= statuses.count(101) <= 32 * len(server.web_workers())
    assert set(statuses) == {101, 503}

    def is_let_in() -> bool:
        with LaneClient(server) as lane:
            return lane.handshake.status == 101

    wait_until(is_let_in, "the others are over")


def test_a_stopping_server_ends_lanes_and_keeps_what_it_answered(impatient: Server) -> None:
    file = small_file(10)
    with LaneClient(impatient) as lane:
        answer = lane.ask(message_of(file, 0))
        assert answer["status"] == 200
        impatient.stop(signal.SIGTERM)
        assert lane.close_code() == CloseCode.SERVICE_RESTART
    impatient.start()
    upload = impatient.get(f"/api/uploads/{answer['body']['id']}").json()
    assert upload["received"] == [[0, CHUNK_BYTES]]


def test_half_a_message_is_not_waited_for_long(impatient: Server) -> None:
    with LaneClient(impatient) as lane:
        lane.connection.sendall(client_frame(Opcode.BINARY, bytes(1000))[:-1])
        assert lane.close_code() == CloseCode.GOING_AWAY


def test_pings_are_no_progress_of_a_message(impatient: Server) -> None:
    with LaneClient(impatient) as lane:
        lane.connection.sendall(client_frame(Opcode.BINARY, bytes(1000), is_last=False))

        def is_told() -> bool:
            lane.connection.sendall(client_frame(Opcode.PING, bytes(125)))
            return lane.receive()[0] is Opcode.CLOSE

        wait_until(is_told, "the lane ends")


def test_lanes_pass_the_nginx_of_deploy(server: Server, tmp_path: Path) -> None:
    file = small_file(12)
    with deployed_nginx(tmp_path / "nginx", server.port) as url:
        proxied = replace(server, port=int(url.rpartition(":")[2]))
        with LaneClient(proxied) as lane:
            answers = [lane.ask(message_of(file, index)) for index in range(file.count)]
    assert server.get(f"/media/{answers[-1]['body']['id']}").content == file.content


def test_a_proxy_that_passes_no_upgrade_gets_an_error(server: Server, tmp_path: Path) -> None:
    with bare_nginx(tmp_path / "nginx", server.port) as url:
        proxied = replace(server, port=int(url.rpartition(":")[2]))
        with LaneClient(proxied) as lane:
            assert lane.handshake.status in {400, 404, 426}


def test_the_log_has_a_line_for_each_message(impatient: Server) -> None:
    file = small_file(11)
    with LaneClient(impatient) as lane:
        for index in range(file.count):
            lane.ask(message_of(file, index))

    def lines() -> list[dict[str, object]]:
        found = [json.loads(line) for line in impatient.log.splitlines() if '"access"' in line]
        return [line for line in found if line["path"] == "/upload"]

    wait_until(lambda: len(lines()) == file.count, "its lines are written")
    assert [line["received"] for line in lines()] == [CHUNK_BYTES, CHUNK_BYTES, CHUNK_BYTES - 1]
    assert {line["status"] for line in lines()} == {200}

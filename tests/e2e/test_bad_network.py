"""What happens to uploads when connections, clients and workers fail."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.dropzone_client import (
    ChunkedFile,
    chunk_request,
    random_bytes,
    read_json,
    read_response,
    send_chunk,
    stored_sha256,
)
from tests.live_server import NO_FFMPEG, STOP_SECONDS, Server, running_server
from tests.waiting import wait_until, wait_until_read

StartServer = Callable[..., Server]

WORKERS = 3


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that these tests kill and restart; it runs many requests at once."""
    options = {"SLUICE_WORKERS": str(WORKERS), "SLUICE_THREADS": "32", **NO_FFMPEG}
    with running_server(tmp_path_factory.mktemp("mortal"), **options) as server:
        yield server


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that soon ends slow requests, and runs two at once."""
    options = {
        "SLUICE_TEST_CONSTANTS": "body_idle_seconds=1 min_bytes_per_second=100000",
        "SLUICE_WORKERS": "1",
        "SLUICE_THREADS": "2",
        **NO_FFMPEG,
    }
    with running_server(tmp_path_factory.mktemp("impatient"), **options) as server:
        yield server


def received(server: Server, upload_id: str) -> int:
    """Bytes that have arrived, as the server reports."""
    ranges = server.get(f"/api/uploads/{upload_id}").json()["received"]
    return sum(end - start for start, end in ranges)


def create(server: Server, file: ChunkedFile) -> str:
    """Create the file's upload with the API, and address it by its id."""
    body = {"name": file.filename, "size": len(file.content)}
    file.key = server.post("/api/uploads", json=body).json()["id"]
    return file.key


def test_bytes_from_before_a_cut_are_kept_and_only_the_rest_is_needed(server: Server) -> None:
    file = ChunkedFile(random_bytes(8_000_000, 20), 8_000_000)
    upload_id = create(server, file)
    request = chunk_request(server, file, 0)
    with server.connect() as connection:
        connection.sendall(request[:5_000_000])
    wait_until(lambda: received(server, upload_id) > 4_900_000, "the cut chunk is recorded")
    assert server.get(f"/api/uploads/{upload_id}").json()["state"] == "receiving"
    assert send_chunk(server, file, 0).json()["complete"] is True
    assert stored_sha256(server, upload_id) == file.sha256


def test_a_reset_connection_loses_nothing_either(server: Server) -> None:
    file = ChunkedFile(random_bytes(4_000_000, 21), 4_000_000)
    upload_id = create(server, file)
    connection = server.connect()
    connection.sendall(chunk_request(server, file, 0)[:2_000_000])
    wait_until_read(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    connection.close()
    wait_until(lambda: received(server, upload_id) > 1_900_000, "the reset chunk is recorded")
    assert send_chunk(server, file, 0).json()["complete"] is True
    assert stored_sha256(server, upload_id) == file.sha256


def test_a_returning_client_is_served_while_its_old_connection_hangs(server: Server) -> None:
    file = ChunkedFile(random_bytes(4_000_000, 22), 4_000_000)
    upload_id = create(server, file)
    with server.connect() as old:
        old.sendall(chunk_request(server, file, 0)[:2_000_000])
        wait_until_read(old)
        response = send_chunk(server, file, 0)
        assert (response.status_code, response.json()["complete"]) == (200, True)
        assert stored_sha256(server, upload_id) == file.sha256
    assert server.get("/healthz").status_code == 200


def test_a_superseded_request_is_answered_with_what_the_newer_one_achieved(
    server: Server,
) -> None:
    file = ChunkedFile(random_bytes(4_000_000, 23), 4_000_000)
    upload_id = create(server, file)
    request = chunk_request(server, file, 0)
    with server.connect() as old:
        old.sendall(request[:2_000_000])
        wait_until_read(old)
        send_chunk(server, file, 0)
        old.sendall(request[2_000_000:])
        status, answer = read_json(old)
    assert (status, answer["complete"], answer["id"]) == (200, True, upload_id)
    assert stored_sha256(server, upload_id) == file.sha256


def test_chunks_do_not_wait_for_each_other(server: Server) -> None:
    file = ChunkedFile(random_bytes(2_000_000, 24), 1_000_000)
    create(server, file)
    with server.connect() as slow:
        slow.sendall(chunk_request(server, file, 0)[:500_000])
        assert send_chunk(server, file, 1).status_code == 200
        slow.sendall(chunk_request(server, file, 0)[500_000:])
        status, answer = read_json(slow)
    assert (status, answer["complete"]) == (200, True)


def test_pipelined_chunks_are_kept_apart(server: Server) -> None:
    file = ChunkedFile(random_bytes(3_000_001, 25), 1_000_000)
    requests = b"".join(chunk_request(server, file, index) for index in range(file.count))
    with server.connect() as connection:
        sender = threading.Thread(target=connection.sendall, args=(requests,))
        sender.start()
        answers = [read_json(connection) for _ in range(file.count)]
        sender.join()
    assert [status for status, _ in answers] == [200] * file.count
    assert answers[-1][1]["complete"] is True
    assert stored_sha256(server, answers[-1][1]["id"]) == file.sha256


def test_a_request_fed_byte_by_byte_arrives(server: Server) -> None:
    file = ChunkedFile(random_bytes(500, 26), 500)
    with server.connect() as connection:
        for byte in chunk_request(server, file, 0):
            connection.sendall(bytes([byte]))
        status, answer = read_json(connection)
    assert (status, answer["complete"]) == (200, True)
    assert stored_sha256(server, answer["id"]) == file.sha256


def test_a_killed_worker_costs_at_most_a_chunk(mortal: Server) -> None:
    server = mortal
    file = ChunkedFile(random_bytes(12_000_000, 27), 4_000_000)
    upload_id = create(server, file)
    send_chunk(server, file, 2)
    with server.connect() as connection:
        connection.sendall(chunk_request(server, file, 0)[:3_000_000])
        wait_until_read(connection)
        workers = server.web_workers()
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
        with pytest.raises(ConnectionError):
            read_response(connection)
    assert not psutil.wait_procs(workers, STOP_SECONDS)[1]
    wait_until(lambda: len(server.web_workers()) == WORKERS, "new workers")
    document = server.get(f"/api/uploads/{upload_id}").json()
    assert [8_000_000, 12_000_000] in document["received"]
    for index in (0, 1):
        answer = send_chunk(server, file, index).json()
    assert answer["complete"] is True
    assert stored_sha256(server, upload_id) == file.sha256


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_restarted_server_resumes_where_it_stopped(
    mortal: Server, number: signal.Signals
) -> None:
    server = mortal
    file = ChunkedFile(random_bytes(5_000_000, 28), 1_000_000)
    upload_id = create(server, file)
    for index in (4, 1):
        send_chunk(server, file, index)
    server.restart(number)
    document = server.get(f"/api/uploads/{upload_id}").json()
    assert document["received"] == [[1_000_000, 2_000_000], [4_000_000, 5_000_000]]
    for index in (0, 2, 3):
        answer = send_chunk(server, file, index).json()
    assert answer["complete"] is True
    assert stored_sha256(server, upload_id) == file.sha256


def test_a_stopping_server_lets_a_running_chunk_finish(start_server: StartServer) -> None:
    server = start_server()
    file = ChunkedFile(random_bytes(4_000_000, 29), 4_000_000)
    create(server, file)
    request = chunk_request(server, file, 0)
    with server.connect() as connection:
        connection.sendall(request[:2_000_000])
        wait_until_read(connection)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        wait_until(lambda: "Handling signal: term" in server.log, "the server has begun to stop")
        connection.sendall(request[2_000_000:])
        status, answer = read_json(connection)
        stopping.join()
    assert (status, answer["complete"]) == (200, True)


def test_ctrl_c_stops_as_gracefully(start_server: StartServer) -> None:
    server = start_server()
    assert server.process is not None
    file = ChunkedFile(random_bytes(2_000_000, 30), 2_000_000)
    request = chunk_request(server, file, 0)
    with server.connect() as connection:
        connection.sendall(request[:1_000_000])
        wait_until_read(connection)
        os.killpg(server.process.pid, signal.SIGINT)
        wait_until(lambda: "Handling signal" in server.log, "the server has begun to stop")
        connection.sendall(request[1_000_000:])
        status, answer = read_json(connection)
    assert (status, answer["complete"]) == (200, True)
    assert server.process.wait(60) == 0
    server.process = None


def test_stalled_bodies_end_with_408_and_free_their_threads(impatient: Server) -> None:
    server = impatient
    files = [ChunkedFile(random_bytes(200_000, seed), 200_000) for seed in range(4)]
    connections = [server.connect() for _ in files]
    for file, connection in zip(files, connections, strict=True):
        connection.sendall(chunk_request(server, file, 0)[:100_000])
    for connection in connections:
        status, problem = read_json(connection)
        assert (status, problem["code"], problem["retryable"]) == (408, "body_stalled", True)
        assert connection.recv(1) == b"", "the connection is closed"
        connection.close()
    for file in files:
        with server.connect() as connection:
            # At once, head and body: a busy machine might else pause for longer than is allowed.
            connection.sendall(chunk_request(server, file, 0))
            assert read_json(connection)[1]["complete"] is True


def test_a_body_below_the_minimum_rate_is_ended(impatient: Server) -> None:
    server = impatient
    file = ChunkedFile(random_bytes(2_000_000, 31), 2_000_000)
    request = chunk_request(server, file, 0)
    with server.connect() as connection:
        connection.settimeout(0.2)
        position = 0
        while True:
            connection.sendall(request[position : position + 1000])
            position += 1000
            assert position < len(request), "the trickle was never ended"
            try:
                first = connection.recv(12)
            except TimeoutError:
                continue
            break
    assert first == b"HTTP/1.1 408"


@pytest.mark.long
def test_half_sent_headers_do_not_block_the_server(impatient: Server) -> None:
    """It takes the 30 s that are for headers; tests/e2e/test_patient_worker.py has it with less."""
    server = impatient
    stalled = [server.connect() for _ in range(4)]
    for connection in stalled:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
    for connection in stalled:
        assert connection.recv(1) == b"", "the connection is closed"
        connection.close()
    assert server.get("/healthz").status_code == 200


def test_64_chunks_at_once_never_find_the_database_locked(mortal: Server) -> None:
    server = mortal
    file = ChunkedFile(random_bytes(640_000, 32), 10_000)
    statuses: list[int] = []
    barrier = threading.Barrier(64)

    def send(index: int) -> None:
        barrier.wait()
        statuses.append(send_chunk(server, file, index).status_code)

    threads = [threading.Thread(target=send, args=(index,)) for index in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 64
    assert "locked" not in server.log
    answer = send_chunk(server, file, 0).json()
    assert answer["complete"] is True
    assert stored_sha256(server, answer["id"]) == file.sha256

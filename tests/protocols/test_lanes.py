"""WebSockets whose messages are chunks: on a live server, frame by frame."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dropzone_client import ChunkedFile, crc32c_of, random_bytes
from tests.lane_client import LaneClient, chunk_message, client_frame, message_of
from tests.live_server import NO_FFMPEG, Server, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("lanes"), **NO_FFMPEG) as server:
        yield server


def test_a_file_arrives_by_a_lane(server: Server) -> None:
    file = ChunkedFile(random_bytes(700_000), 250_000)
    with LaneClient(server) as lane:
        assert lane.handshake.status == 101
        assert lane.handshake.headers["sec-websocket-protocol"] == "sluice-lane-1"
        answers = [lane.ask(message_of(file, index)) for index in range(file.count)]
    assert [answer["status"] for answer in answers] == [200, 200, 200]
    assert [answer["body"]["complete"] for answer in answers] == [False, False, True]
    assert server.get(f"/media/{answers[-1]['body']['id']}").content == file.content

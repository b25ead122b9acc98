"""aiotus, which uses `Location` as a URL and does not resolve paths."""

from __future__ import annotations

import asyncio
from io import BytesIO

import aiotus
import pytest

from tests.dropzone_client import random_bytes
from tests.live_server import Server

FILE = random_bytes(300_000, 96)

pytestmark = pytest.mark.e2e


def test_a_file_is_uploaded(server: Server) -> None:
    url = asyncio.run(aiotus.upload(f"{server.url}/tus/", BytesIO(FILE), {"filename": b"a.mp4"}))
    assert str(url).startswith(f"{server.url}/tus/")
    assert server.get(f"/media/{str(url).rpartition('/')[2]}").content == FILE


def test_several_uploads_are_concatenated(server: Server) -> None:
    parts = [BytesIO(FILE[:100_000]), BytesIO(FILE[100_000:])]
    metadata = {"filename": b"whole.mp4"}
    url = asyncio.run(aiotus.upload_multiple(f"{server.url}/tus/", parts, metadata))
    assert server.get(f"/media/{str(url).rpartition('/')[2]}").content == FILE

"""tus extension: checksum-trailer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.conformance.checksums import checksum_of
from tests.conformance.conftest import Stored
from tests.conformance.tus_client import CHUNK_TYPE, Tus, base64_of, headers_of
from tests.conformance.wire import Connection, Reply, exchange_chunked

pytestmark = [pytest.mark.e2e, pytest.mark.extension("checksum-trailer")]


def patch(url: str, pieces: Sequence[bytes], checksum: str, offset: int = 0) -> Reply:
    """The answer to a PATCH whose checksum stands behind the body."""
    fields = headers_of(Upload_Offset=offset, Content_Type=CHUNK_TYPE)
    return exchange_chunked("PATCH", url, fields, pieces, trailers={"Upload-Checksum": checksum})


# Checksum: the hash "MAY be included as a trailer".
def test_bytes_that_match_the_checksum_in_the_trailer_are_accepted(
    tus: Tus, stored: Stored
) -> None:
    url = tus.create(11)
    reply = patch(url, [b"hello", b" world"], checksum_of("sha1", b"hello world"))
    assert (reply.status, reply["Upload-Offset"]) == (204, "11")
    assert stored(url) in (b"hello world", None)


# Checksum: 460, and the chunk is discarded.
def test_bytes_that_do_not_match_the_checksum_in_the_trailer_are_discarded(
    tus: Tus, stored: Stored
) -> None:
    url = tus.create(11)
    assert patch(url, [b"hello", b" wxrld"], checksum_of("sha1", b"hello world")).status == 460
    assert tus.offset(url) == 0
    assert patch(url, [b"hello world"], checksum_of("sha1", b"hello world")).status == 204
    assert stored(url) in (b"hello world", None)


# Checksum: 400 for an unknown algorithm, wherever it is named.
def test_an_unknown_algorithm_in_the_trailer_is_refused_with_400(tus: Tus) -> None:
    url = tus.create(5)
    assert patch(url, [b"hello"], f"unknown {base64_of(bytes(20))}").status == 400
    assert tus.offset(url) == 0


# Checksum: each algorithm that is announced works behind the body too.
def test_every_announced_algorithm_works_in_a_trailer(tus: Tus) -> None:
    known = [name for name in tus.algorithms if name in {"md5", "sha1", "sha256", "sha512"}]
    for name in known:
        url = tus.create(5)
        assert patch(url, [b"hello"], checksum_of(name, b"jello")).status == 460
        assert patch(url, [b"hello"], checksum_of(name, b"hello")).status == 204


# Checksum: chunks before the bad one stay.
def test_a_bad_chunk_with_a_trailer_leaves_earlier_chunks_alone(tus: Tus) -> None:
    url = tus.create(10)
    assert patch(url, [b"hello"], checksum_of("sha1", b"hello")).status == 204
    assert patch(url, [b"world"], checksum_of("sha1", b"hello"), offset=5).status == 460
    assert tus.offset(url) == 5


# RFC 9112, section 7.1.2: the trailer section ends the request; the next one follows it.
def test_the_connection_is_usable_after_a_trailer(tus: Tus) -> None:
    url = tus.create(5)
    fields = headers_of(Upload_Offset=0, Content_Type=CHUNK_TYPE)
    fields |= {"Transfer-Encoding": "chunked", "Trailer": "Upload-Checksum"}
    with Connection(url) as connection:
        connection.begin("PATCH", url, fields)
        connection.send_chunks([b"hello"], {"Upload-Checksum": checksum_of("sha1", b"hello")})
        assert connection.read().status == 204
        connection.begin("HEAD", url, headers_of())
        assert connection.read()["Upload-Offset"] == "5"

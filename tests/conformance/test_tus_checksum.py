"""tus extension: checksum."""

from __future__ import annotations

import random

import pytest

from tests.conformance.checksums import ALGORITHMS, checksum_of
from tests.conformance.conftest import Stored
from tests.conformance.tus_client import Tus, base64_of

pytestmark = [pytest.mark.e2e, pytest.mark.extension("checksum")]

LARGE = random.Random(5).randbytes(3_000_000)

MALFORMED = {
    "nothing": "",
    "no checksum": "sha1",
    "an empty checksum": "sha1 ",
    "not base64": "sha1 not*base64",
    "two spaces": f"sha1  {base64_of(bytes(20))}",
    "too short": f"sha1 {base64_of(bytes(19))}",
    "too long": f"sha1 {base64_of(bytes(21))}",
}


@pytest.fixture(params=ALGORITHMS)
def algorithm(request: pytest.FixtureRequest, tus: Tus, is_own: bool) -> str:
    """Each algorithm that the server announces."""
    name: str = request.param
    if not is_own and name not in tus.algorithms:
        pytest.skip(f"not announced: checksum algorithm {name}")
    return name


# Checksum: Tus-Checksum-Algorithm MUST be in the answer to OPTIONS, with sha1 in it; names are
# ASCII without capitals.
def test_the_announced_algorithms_include_sha1(tus: Tus) -> None:
    assert "sha1" in tus.algorithms
    assert all(name.isascii() and name == name.lower() for name in tus.algorithms)


# Checksum: 204 where the checksums match.
def test_bytes_that_match_their_checksum_are_accepted(
    tus: Tus, stored: Stored, algorithm: str
) -> None:
    url = tus.create(5)
    reply = tus.patch(url, 0, b"hello", Upload_Checksum=checksum_of(algorithm, b"hello"))
    assert (reply.status, reply["Upload-Offset"]) == (204, "5")
    assert stored(url) in (b"hello", None)


# Checksum: 460; "the uploaded chunk MUST be discarded, and the upload and its offset MUST NOT be
# updated".
def test_bytes_that_do_not_match_are_refused_with_460_and_discarded(
    tus: Tus, stored: Stored, algorithm: str
) -> None:
    url = tus.create(5)
    reply = tus.patch(url, 0, b"jello", Upload_Checksum=checksum_of(algorithm, b"hello"))
    assert reply.status == 460
    assert tus.offset(url) == 0
    assert tus.patch(url, 0, b"hello").status == 204
    assert stored(url) in (b"hello", None)


# Checksum: the checksum is that of the request's body, not of the file.
def test_a_bad_chunk_leaves_earlier_chunks_alone(tus: Tus, stored: Stored) -> None:
    url = tus.create(11)
    tus.patch(url, 0, b"hello", Upload_Checksum=checksum_of("sha1", b"hello"))
    bad = tus.patch(url, 5, b" wxrld", Upload_Checksum=checksum_of("sha1", b" world"))
    assert (bad.status, tus.offset(url)) == (460, 5)
    good = tus.patch(url, 5, b" world", Upload_Checksum=checksum_of("sha1", b" world"))
    assert (good.status, good["Upload-Offset"]) == (204, "11")
    assert stored(url) in (b"hello world", None)


# Checksum: also a chunk too large for a buffer is discarded as a whole.
def test_a_large_chunk_is_all_or_nothing(tus: Tus, stored: Stored) -> None:
    url = tus.create(len(LARGE))
    checksum = checksum_of("sha1", LARGE)
    assert tus.patch(url, 0, LARGE[:-1] + b"\0", Upload_Checksum=checksum).status == 460
    assert tus.offset(url) == 0
    assert tus.patch(url, 0, LARGE, Upload_Checksum=checksum).status == 204
    assert stored(url) in (LARGE, None)


# Checksum: 400 for an algorithm that the server does not have; the chunk is discarded.
@pytest.mark.parametrize("name", ["unknown", "none", "md4711", "shake_128", "sha-1"])
def test_an_unknown_algorithm_is_refused_with_400(tus: Tus, name: str) -> None:
    url = tus.create(5)
    reply = tus.patch(url, 0, b"hello", Upload_Checksum=f"{name} {base64_of(bytes(20))}")
    assert (reply.status, tus.offset(url)) == (400, 0)


# Upload-Checksum: "MUST consist of the name ... and the Base64 encoded checksum separated by a
# space".
@pytest.mark.parametrize("value", MALFORMED.values(), ids=list(MALFORMED))
def test_a_malformed_checksum_is_refused(tus: Tus, value: str) -> None:
    url = tus.create(5)
    reply = tus.patch(url, 0, b"hello", Upload_Checksum=value)
    assert reply.status in {400, 460}
    assert tus.offset(url) == 0


# Checksum: an offset that does not fit stays a conflict.
def test_a_checksum_does_not_hide_a_conflict(tus: Tus) -> None:
    url = tus.create(5)
    checksum = checksum_of("sha1", b"hello")
    assert tus.patch(url, 1, b"hello", Upload_Checksum=checksum).status == 409
    assert tus.offset(url) == 0

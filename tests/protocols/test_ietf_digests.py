"""Digests of requests and of whole files (RFC 9530) at /resumable/."""

from __future__ import annotations

import hashlib
import time
from base64 import b64encode

import pytest

from tests.dropzone_client import random_bytes, stored_sha256
from tests.ietf_client import append, create, look
from tests.live_server import Server

FILE = random_bytes(30_000, 84)
SHA256 = hashlib.sha256(FILE).hexdigest()


def digest(content: bytes, algorithm: str = "sha256", name: str = "sha-256") -> str:
    """The value of a digest field."""
    return f"{name}=:{b64encode(hashlib.new(algorithm, content).digest()).decode()}:"


@pytest.mark.parametrize(
    ("algorithm", "name"), [("sha256", "sha-256"), ("sha512", "sha-512"), ("md5", "md5")]
)
def test_a_file_with_the_right_digest_is_published(
    server: Server, algorithm: str, name: str
) -> None:
    whole = create(server, FILE, is_last=True, Repr_Digest=digest(FILE, algorithm, name))
    assert whole.status == 200
    parts = create(server, FILE[:10], Repr_Digest=digest(FILE, algorithm, name))
    assert append(server, parts.upload_id, 10, FILE[10:], is_last=True).status == 200
    assert stored_sha256(server, parts.upload_id) == SHA256


def test_a_file_with_a_wrong_digest_ends_the_upload(server: Server) -> None:
    upload_id = create(server, FILE[:10], Repr_Digest=digest(b"another file")).upload_id
    answer = append(server, upload_id, 10, FILE[10:], is_last=True)
    assert (answer.status, answer.json()["code"]) == (400, "digest_mismatch")
    assert answer.headers["upload-complete"] == "?1"
    assert look(server, upload_id).status == 410
    assert server.get(f"/media/{upload_id}").status_code == 410


def test_a_file_with_a_wrong_digest_in_one_request_is_not_published(server: Server) -> None:
    answer = create(server, FILE, is_last=True, Repr_Digest=digest(b"another file"))
    assert (answer.status, answer.headers["upload-complete"]) == (400, "?1")


def test_unknown_algorithms_are_ignored(server: Server) -> None:
    answer = create(server, FILE, is_last=True, Repr_Digest="crc99=:AAAA:")
    assert answer.status == 200


def test_content_with_a_wrong_digest_is_discarded_and_can_be_sent_again(server: Server) -> None:
    created = create(server, FILE[:10], Content_Digest=digest(FILE[:10]))
    upload_id = created.upload_id
    wrong = append(server, upload_id, 10, FILE[10:], is_last=True, Content_Digest=digest(FILE))
    assert (wrong.status, wrong.json()["code"]) == (400, "digest_mismatch")
    assert wrong.json()["retryable"] is True
    assert (wrong.headers["upload-offset"], wrong.headers["upload-complete"]) == ("10", "?0")
    right = append(server, upload_id, 10, FILE[10:], is_last=True, Content_Digest=digest(FILE[10:]))
    assert right.status == 200
    assert stored_sha256(server, upload_id) == SHA256


def test_a_creation_whose_content_has_a_wrong_digest_leaves_an_empty_upload(
    server: Server,
) -> None:
    answer = create(server, FILE, is_last=True, Content_Digest=digest(b"another"))
    assert (answer.status, answer.headers["upload-complete"]) == (400, "?0")
    assert (answer.headers["upload-offset"], len(answer.upload_id)) == ("0", 32)
    assert append(server, answer.upload_id, 0, FILE, is_last=True).status == 200
    assert stored_sha256(server, answer.upload_id) == SHA256


@pytest.mark.parametrize(
    ("wanted", "algorithm", "name"),
    [
        ("sha-256=1", "sha256", "sha-256"),
        ("sha-256=1, sha-512=10", "sha512", "sha-512"),
        ("crc99=10, sha-256=3, sha-512=0", "sha256", "sha-256"),
    ],
)
def test_the_digest_of_a_file_in_one_request_is_sent_if_wanted(
    server: Server, wanted: str, algorithm: str, name: str
) -> None:
    answer = create(
        server, FILE, is_last=True, Want_Repr_Digest=wanted, Content_Digest=digest(FILE)
    )
    assert answer.headers["repr-digest"] == digest(FILE, algorithm, name)


def test_a_wanted_digest_does_not_keep_wrong_content(server: Server) -> None:
    wanted = {"Want_Repr_Digest": "sha-256=1", "Content_Digest": digest(b"another")}
    answer = create(server, FILE, is_last=True, **wanted)
    assert (answer.status, answer.headers["upload-offset"]) == (400, "0")


@pytest.mark.parametrize("wanted", ["", "sha-256=0", "crc99=10"])
def test_an_unrequested_digest_is_not_sent(server: Server, wanted: str) -> None:
    answer = create(server, FILE, is_last=True, Want_Repr_Digest=wanted)
    assert "repr-digest" not in answer.headers


def test_the_digest_of_a_file_sent_in_parts_is_sent_once_known(server: Server) -> None:
    upload_id = create(server, FILE[:10]).upload_id
    append(server, upload_id, 10, FILE[10:], is_last=True)
    deadline = time.monotonic() + 60
    while True:
        state = look(server, upload_id, Want_Repr_Digest="sha-256=1")
        if "repr-digest" in state.headers:
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert state.headers["repr-digest"] == digest(FILE)


def test_a_digest_the_client_gave_is_known_at_once(server: Server) -> None:
    upload_id = create(server, FILE[:10], Repr_Digest=digest(FILE)).upload_id
    last = append(server, upload_id, 10, FILE[10:], is_last=True, Want_Repr_Digest="sha-256=1")
    assert last.headers["repr-digest"] == digest(FILE)

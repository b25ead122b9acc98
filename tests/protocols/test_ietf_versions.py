"""What differs in earlier drafts, which devices in the field use."""

from __future__ import annotations

import pytest

from app.protocols.ietf.interop import VERSIONS
from tests.dropzone_client import random_bytes
from tests.ietf_client import Answer, flag, send, send_request
from tests.live_server import Server

FILE = random_bytes(3_000, 81)
OLD = ["3", "4", "5", "6"]
STRICT = {"8", "9"}
ALL = [*OLD, "7", *sorted(STRICT)]
UNKNOWN = ["2", "10", "-8", "8.0", "eight", "8, 8", ""]


def completeness(version: str, is_complete: bool) -> dict[str, str]:
    """The completeness header of that version."""
    if version == "3":
        return {"Upload-Incomplete": flag(not is_complete)}
    return {"Upload-Complete": flag(is_complete)}


def is_complete(version: str, answer: Answer) -> bool:
    """The answer's completeness, which must be only in that version's header."""
    (name, value), *others = [
        (name, value)
        for name, value in answer.headers.items()
        if name in {"upload-complete", "upload-incomplete"}
    ]
    assert others == []
    assert name == ("upload-incomplete" if version == "3" else "upload-complete")
    return value == flag(version != "3")


def create(server: Server, version: str, body: bytes, *, is_last: bool) -> Answer:
    headers = {"Upload-Draft-Interop-Version": version, **completeness(version, is_last)}
    return send(server, "POST", body=body, **headers)


def append(
    server: Server, version: str, upload_id: str, offset: int, body: bytes, **headers: str
) -> Answer:
    fields = {
        "Upload-Draft-Interop-Version": version,
        "Upload-Offset": str(offset),
        "Content-Type": "application/partial-upload",
        **headers,
    }
    return send_request(server, "PATCH", f"/resumable/{upload_id}", body, fields)


def ask(server: Server, method: str, version: str, upload_id: str, **headers: str) -> Answer:
    fields = {"Upload-Draft-Interop-Version": version, **headers}
    return send_request(server, method, f"/resumable/{upload_id}", b"", fields)


def test_the_table_has_every_version_under_its_number() -> None:
    assert {number: version.number for number, version in VERSIONS.items()} == {
        number: number for number in range(3, 10)
    }


@pytest.mark.parametrize("version", ALL)
def test_a_file_in_one_request_is_published(server: Server, version: str) -> None:
    answer = create(server, version, FILE, is_last=True)
    assert answer.status == (201 if version in OLD else 200)
    assert is_complete(version, answer)
    assert answer.headers["upload-offset"] == "3000"
    assert answer.headers["upload-draft-interop-version"] == version
    assert server.get(answer.json()["media"]).content == FILE


@pytest.mark.parametrize("version", ALL)
def test_a_file_resumes_at_its_offset(server: Server, version: str) -> None:
    created = create(server, version, FILE[:1000], is_last=False)
    assert (created.status, is_complete(version, created)) == (201, False)
    upload_id = created.upload_id
    middle = append(
        server, version, upload_id, 1000, FILE[1000:2000], **completeness(version, False)
    )
    assert middle.status == (201 if version in OLD else 204)
    assert middle.headers["upload-offset"] == "2000"
    state = ask(server, "HEAD", version, upload_id)
    assert (state.status, state.headers["upload-offset"]) == (204, "2000")
    assert not is_complete(version, state)
    last = append(server, version, upload_id, 2000, FILE[2000:], **completeness(version, True))
    assert last.status == (201 if version in OLD else 200)
    assert is_complete(version, last)
    assert server.get(last.json()["media"]).content == FILE


@pytest.mark.parametrize("version", ALL)
def test_the_upload_is_announced_in_the_clients_own_version(server: Server, version: str) -> None:
    created = create(server, version, b"", is_last=False)
    [(status, headers)] = created.interim
    assert status == 104
    assert headers["upload-draft-interop-version"] == version
    assert headers["location"] == created.headers["location"]


@pytest.mark.parametrize("version", UNKNOWN)
def test_other_versions_are_read_as_the_newest_and_get_no_interim_response(
    server: Server, version: str
) -> None:
    created = send(
        server, "POST", body=FILE, Upload_Complete="?1", Upload_Draft_Interop_Version=version
    )
    assert (created.status, created.interim) == (200, [])
    assert "upload-draft-interop-version" not in created.headers


@pytest.mark.parametrize(
    ("version", "lifetime"),
    [
        *[(version, None) for version in ("3", "4", "5")],
        ("6", "expires"),
        *[(version, "max-age") for version in ("7", "8", "9")],
    ],
)
def test_limits_have_the_names_of_the_version(
    server: Server, version: str, lifetime: str | None
) -> None:
    created = create(server, version, b"", is_last=False)
    limits = created.headers.get("upload-limit")
    if lifetime is None:
        assert limits is None
        assert "upload-limit" not in created.interim[0][1]
    else:
        assert limits is not None
        assert f", {lifetime}=" in limits
        assert f", {lifetime}=" in created.interim[0][1]["upload-limit"]


@pytest.mark.parametrize("version", ALL)
def test_the_type_of_an_append_counts_since_version_6(server: Server, version: str) -> None:
    upload_id = create(server, version, b"", is_last=False).upload_id
    label = {"Content-Type": "video/mp4", **completeness(version, True)}
    answer = append(server, version, upload_id, 0, FILE, **label)
    assert answer.status == (201 if version in {"3", "4", "5"} else 415)


@pytest.mark.parametrize(
    ("version", "means_complete"),
    [("3", True), ("4", False), ("5", False), ("6", False), ("7", None), ("8", None), ("9", None)],
)
def test_an_append_that_does_not_say_whether_it_is_the_last(
    server: Server, version: str, means_complete: bool | None
) -> None:
    upload_id = create(server, version, b"", is_last=False).upload_id
    answer = append(server, version, upload_id, 0, FILE)
    if means_complete is None:
        assert answer.status == 400
    else:
        assert answer.status == 201
        assert is_complete(version, answer) is means_complete


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("method", ["HEAD", "DELETE"])
def test_early_drafts_refuse_a_lookup_with_the_state(
    server: Server, version: str, method: str
) -> None:
    upload_id = create(server, version, FILE, is_last=False).upload_id
    telling_offset = ask(server, method, version, upload_id, **{"Upload-Offset": "0"})
    assert telling_offset.status == (400 if version in OLD else 204)
    if version in OLD:
        telling_state = ask(server, method, version, upload_id, **completeness(version, False))
        assert telling_state.status == 400
        telling_length = ask(server, method, version, upload_id, **{"Upload-Length": "3000"})
        assert telling_length.status == (400 if method == "HEAD" else 204)


@pytest.mark.parametrize("version", ALL)
def test_an_ended_upload_is_not_found_or_gone(server: Server, version: str) -> None:
    upload_id = create(server, version, FILE, is_last=False).upload_id
    assert ask(server, "DELETE", version, upload_id).status == 204
    assert ask(server, "HEAD", version, upload_id).status == (404 if version in OLD else 410)


@pytest.mark.parametrize("version", ALL)
def test_a_wrong_offset_is_a_conflict_in_all_of_them(server: Server, version: str) -> None:
    upload_id = create(server, version, FILE, is_last=False).upload_id
    answer = append(server, version, upload_id, 5, FILE, **completeness(version, True))
    assert (answer.status, answer.headers["upload-offset"]) == (409, "3000")
    assert not is_complete(version, answer)


@pytest.mark.parametrize("version", ALL)
def test_more_bytes_for_a_complete_upload_are_refused(server: Server, version: str) -> None:
    upload_id = create(server, version, FILE, is_last=True).upload_id
    headers = {"Transfer-Encoding": "chunked", **completeness(version, False)}
    answer = append(server, version, upload_id, 3000, b"more", **headers)
    has_own_problem = version in {"6", "7"}
    assert answer.status == (400 if has_own_problem else 409)
    assert answer.json()["type"].endswith("#completed-upload") is has_own_problem
    assert not is_complete(version, answer), "it is not the answer to the whole file"
    assert server.get(f"/media/{upload_id}").content == FILE


@pytest.mark.parametrize("version", ALL)
def test_bytes_past_the_length_end_the_upload_only_since_version_8(
    server: Server, version: str
) -> None:
    headers = {"Upload-Draft-Interop-Version": version, **completeness(version, False)}
    created = send(server, "POST", body=FILE[:10], **headers, **{"Upload-Length": "20"})
    fields = {"Transfer-Encoding": "chunked", **completeness(version, False)}
    answer = append(server, version, created.upload_id, 10, FILE, **fields)
    assert answer.status == 400
    assert ask(server, "HEAD", version, created.upload_id).status == (
        410 if version in STRICT else 204
    )


@pytest.mark.parametrize("length", ["-1", "1.5", "many", "20, 20", "9999999999999999"])
@pytest.mark.parametrize("version", ALL)
def test_an_invalid_length_is_ignored_only_since_version_8(
    server: Server, version: str, length: str
) -> None:
    headers = {"Upload-Draft-Interop-Version": version, **completeness(version, False)}
    created = send(server, "POST", body=FILE, **headers, **{"Upload-Length": length})
    if version in STRICT:
        assert created.status == 201
        assert "upload-length" not in created.headers
    else:
        assert (created.status, created.interim) == (400, [])

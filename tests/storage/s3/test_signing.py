"""Signatures are those of AWS's documentation; keys come from where AWS's tools find them."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore import auth

from app.core.errors import StorageFailed
from app.storage.s3.address import AccessKey, BucketAddress
from app.storage.s3.connections import Reply, Request
from app.storage.s3.signing import Botocore

EXAMPLE_KEY = AccessKey("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
EXAMPLE_URL = "https://examplebucket.s3.amazonaws.com/test.txt"


def session(storage: str, *, region: str, endpoint: str = "", token: str = "") -> Botocore:
    """A session with the key of AWS's documentation."""
    address = BucketAddress.of(storage, endpoint=endpoint, region=region)
    return Botocore(address, lambda: AccessKey(EXAMPLE_KEY.id, EXAMPLE_KEY.secret, token))


@pytest.fixture
def example_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the documentation's examples."""
    monkeypatch.setattr(auth, "get_current_datetime", lambda: datetime(2013, 5, 24))  # noqa: DTZ001


@pytest.mark.usefixtures("example_time")
def test_the_url_of_the_documentations_example() -> None:
    """ "Authenticating Requests: Using Query Parameters", the example of 24 hours."""
    botocore = session("s3://examplebucket", region="us-east-1")
    url = botocore.presigned("GET", EXAMPLE_URL, {}, 86400)
    signature = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    assert parse_qs(urlsplit(url).query)["X-Amz-Signature"] == [signature]


@pytest.mark.usefixtures("example_time")
def test_a_header_signs_all_headers_and_no_body() -> None:
    botocore = session("s3://examplebucket", region="us-east-1", token="to/ken+==")
    signed = botocore.headers("GET", EXAMPLE_URL, {"range": "bytes=0-9"})
    assert signed["host"] == "examplebucket.s3.us-east-1.amazonaws.com"
    assert signed["X-Amz-Content-SHA256"] == "UNSIGNED-PAYLOAD"
    assert signed["X-Amz-Security-Token"] == "to/ken+=="
    names = "host;range;x-amz-content-sha256;x-amz-date;x-amz-security-token"
    assert f"SignedHeaders={names}, Signature=" in signed["Authorization"]


def test_keys_come_from_the_environment_or_a_profile(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("aws")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    address = BucketAddress.of("s3://films", endpoint="", region="r")

    def credential() -> str:
        url = Botocore(address, None).presigned("GET", address.url("a", {}), {}, 60)
        return parse_qs(urlsplit(url).query)["X-Amz-Credential"][0].partition("/")[0]

    with pytest.raises(StorageFailed, match="no key"):
        credential()
    with pytest.raises(StorageFailed, match="no key"):
        Botocore(address, None).call("head_object", {"Key": "a"}, answer_nothing)
    profile = "[default]\naws_access_key_id = a\naws_secret_access_key = b\n"
    (folder / "credentials").write_text(profile)
    assert credential() == "a"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "d")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "e")
    assert credential() == "d"
    monkeypatch.setenv("AWS_PROFILE", "missing")
    with pytest.raises(StorageFailed, match="cannot be renewed"):
        credential()


def answer_nothing(_request: Request) -> Reply:
    """A response that is in order."""
    return Reply(200, {}, b"")


def test_a_key_does_not_show_its_secret() -> None:
    assert "secret" not in repr(AccessKey("id", "secret", "secret"))


@pytest.mark.parametrize(
    ("storage", "endpoint", "region", "url"),
    [
        ("s3://films", "", "eu-central-1", "https://films.s3.eu-central-1.amazonaws.com/a"),
        ("s3://films", "", "us-east-1", "https://films.s3.us-east-1.amazonaws.com/a"),
        ("s3://a.films", "", "eu-west-1", "https://s3.eu-west-1.amazonaws.com/a.films/a"),
        ("s3://films", "", "cn-north-1", "https://films.s3.cn-north-1.amazonaws.com.cn/a"),
        ("s3://films/x/y", "http://[::1]:80", "r", "http://[::1]/films/x/y/a"),
        ("s3://films/x", "https://s3.example:9000", "r", "https://s3.example:9000/films/x/a"),
    ],
)
def test_every_call_goes_to_the_url_of_the_object(
    storage: str, endpoint: str, region: str, url: str
) -> None:
    address = BucketAddress.of(storage, endpoint=endpoint, region=region)
    assert address.url("a", {}) == url
    requests = []

    def answer(request: Request) -> Reply:
        requests.append(request)
        return Reply(200, {}, b"")

    botocore = session(storage, region=region, endpoint=endpoint)
    botocore.call("head_object", {"Key": f"{address.prefix}a"}, answer)
    assert address.origin + requests[0].target == url
    assert requests[0].headers["host"] == address.authority


def test_the_query_of_a_url_is_sorted_and_quoted() -> None:
    address = BucketAddress.of("s3://films/x", endpoint="http://s3", region="r")
    query = {"uploadId": "a/b c", "partNumber": "1"}
    assert (
        address.url("ä b", query) == "http://s3/films/x/%C3%A4%20b?partNumber=1&uploadId=a%2Fb%20c"
    )

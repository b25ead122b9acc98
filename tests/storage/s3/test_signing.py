"""Signatures are those of AWS's documentation, and those of botocore for any request."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.errors import StorageFailed
from app.storage.s3.address import AccessKey, BucketAddress
from app.storage.s3.signing import AmbientKeys, Signer, Target

EXAMPLE_KEY = AccessKey("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
EXAMPLE_TIME = datetime(2013, 5, 24, tzinfo=UTC)

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)
QUERIES = st.dictionaries(st.sampled_from(["uploadId", "partNumber", "prefix", "uploads"]), TEXTS)
HEADERS = st.dictionaries(
    st.sampled_from(["content-type", "range", "x-amz-checksum-crc32c"]),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20),
)


def test_the_header_of_the_documentations_example() -> None:
    """ "Signature Calculations for the Authorization Header", example GET Object."""
    signer = Signer("us-east-1", lambda: EXAMPLE_KEY, lambda: EXAMPLE_TIME)
    target = Target("examplebucket.s3.amazonaws.com", "/test.txt")
    payload = hashlib.sha256(b"").hexdigest()
    signed = signer.headers("GET", target, {"range": "bytes=0-9"}, payload)
    signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    assert signed["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
        f"Signature={signature}"
    )


def test_the_url_of_the_documentations_example() -> None:
    """ "Authenticating Requests: Using Query Parameters", the example of 24 hours."""
    signer = Signer("us-east-1", lambda: EXAMPLE_KEY, lambda: EXAMPLE_TIME)
    target = Target("examplebucket.s3.amazonaws.com", "/test.txt")
    signature = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    query = signer.presigned_query("GET", target, {}, 86400)
    assert query.endswith(f"&X-Amz-Signature={signature}")


@settings(max_examples=40)
@given(key=TEXTS, query=QUERIES, headers=HEADERS, token=st.sampled_from(["", "to/ken+=="]))
def test_any_request_is_signed_as_botocore_signs_it(
    key: str, query: dict[str, str], headers: dict[str, str], token: str
) -> None:
    address = BucketAddress.of("s3://films", endpoint="http://[::1]:3900", region="garage")
    target = Target(address.authority, address.path(key), query)
    theirs = AWSRequest("PUT", url_of(address, target), headers=headers, data=b"hello")
    credentials = Credentials(EXAMPLE_KEY.id, EXAMPLE_KEY.secret, token or None)
    S3SigV4Auth(credentials, "s3", "garage").add_auth(theirs)
    ours = signer_at(theirs.context["timestamp"], token)
    signed = ours.headers("PUT", target, headers, hashlib.sha256(b"hello").hexdigest())
    assert signed["authorization"] == theirs.headers["Authorization"]


@settings(max_examples=40)
@given(key=TEXTS, query=QUERIES, headers=HEADERS, token=st.sampled_from(["", "to/ken+=="]))
def test_any_url_is_signed_as_botocore_signs_it(
    key: str, query: dict[str, str], headers: dict[str, str], token: str
) -> None:
    address = BucketAddress.of("s3://films", endpoint="", region="eu-central-1")
    target = Target(address.authority, address.path(key), query)
    theirs = AWSRequest("PUT", url_of(address, target), headers=headers)
    credentials = Credentials(EXAMPLE_KEY.id, EXAMPLE_KEY.secret, token or None)
    S3SigV4QueryAuth(credentials, "s3", "eu-central-1", expires=60).add_auth(theirs)
    ours = signer_at(theirs.context["timestamp"], token, "eu-central-1")
    presigned = ours.presigned_query("PUT", target, headers, 60)
    assert parse_qs(presigned, True) == parse_qs(urlsplit(theirs.url).query, True)


def url_of(address: BucketAddress, target: Target) -> str:
    pairs = "&".join(f"{name}={quote(text, safe='')}" for name, text in target.query.items())
    return f"{address.origin}{target.path}?{pairs}"


def signer_at(timestamp: str, token: str, region: str = "garage") -> Signer:
    key = AccessKey(EXAMPLE_KEY.id, EXAMPLE_KEY.secret, token)
    moment = datetime.strptime(timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    return Signer(region, lambda: key, lambda: moment)


def test_keys_come_from_the_environment_or_a_profile(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("aws")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StorageFailed, match="no key"):
        AmbientKeys()()
    profile = "[default]\naws_access_key_id = a\naws_secret_access_key = b\naws_session_token = c\n"
    (folder / "credentials").write_text(profile)
    assert AmbientKeys()() == AccessKey("a", "b", "c")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "d")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "e")
    assert AmbientKeys()() == AccessKey("d", "e")


def test_a_key_does_not_show_its_secret() -> None:
    assert "secret" not in repr(AccessKey("id", "secret", "secret"))


@pytest.mark.parametrize(
    ("storage", "endpoint", "region", "url"),
    [
        ("s3://films", "", "eu-central-1", "https://films.s3.eu-central-1.amazonaws.com/a"),
        ("s3://a.films", "", "eu-west-1", "https://s3.eu-west-1.amazonaws.com/a.films/a"),
        ("s3://films", "", "cn-north-1", "https://films.s3.cn-north-1.amazonaws.com.cn/a"),
        ("s3://films/x/y", "http://[::1]:80", "r", "http://[::1]/films/x/y/a"),
        ("s3://films/x", "https://s3.example:9000", "r", "https://s3.example:9000/films/x/a"),
    ],
)
def test_the_url_of_an_object(storage: str, endpoint: str, region: str, url: str) -> None:
    address = BucketAddress.of(storage, endpoint=endpoint, region=region)
    assert address.origin + address.path(f"{address.prefix}a") == url

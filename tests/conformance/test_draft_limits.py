"""IETF draft: limits."""

from __future__ import annotations

import re

import pytest

from tests.conformance.draft_client import Draft, limits_of
from tests.conformance.wire import exchange

pytestmark = [pytest.mark.e2e, pytest.mark.versions(6, 8)]

DICTIONARY = re.compile(r"[a-z*][a-z0-9_.*-]*=\d{1,15}(, ?[a-z*][a-z0-9_.*-]*=\d{1,15})*")
"""A Dictionary of Integers (RFC 9651, section 3.2)."""

LARGER_IS_STRICTER = {"min-size", "min-append-size"}


# 4.1.4 Limits: MUST be in the answer to OPTIONS; "min-size=0" where there are none.
def test_options_has_the_limits(draft: Draft) -> None:
    reply = draft.request("OPTIONS", draft.url)
    assert 200 <= reply.status < 300
    assert DICTIONARY.fullmatch(reply["Upload-Limit"])


# 4.1.4 Limits: the same for a client that sends no version.
@pytest.mark.versions(8)
def test_options_has_the_limits_without_a_version(draft: Draft) -> None:
    reply = exchange("OPTIONS", draft.url)
    assert DICTIONARY.fullmatch(reply["Upload-Limit"])


# 4.1.4 Limits: those in OPTIONS "SHOULD NOT be less restrictive" than those of an upload.
def test_the_limits_of_an_upload_are_those_of_options(draft: Draft) -> None:
    general = limits_of(draft.request("OPTIONS", draft.url))
    special = limits_of(draft.post(complete=False))
    for name in general.keys() & special.keys() - {"max-age", "expires"}:
        sign = -1 if name in LARGER_IS_STRICTER else 1
        assert sign * special[name] >= sign * general[name]


# 4.2 Upload Creation: MUST be sent with the URL if there are limits.
def test_the_answer_to_a_creation_has_the_limits(draft: Draft) -> None:
    assert DICTIONARY.fullmatch(draft.post(complete=False)["Upload-Limit"])


# 4.1.4 Limits: the server "might" refuse what is beyond max-size; then with 413, and since -06 with
# Upload-Limit.
def test_a_file_beyond_the_largest_size_is_refused_with_413(draft: Draft, is_own: bool) -> None:
    largest = limits_of(draft.request("OPTIONS", draft.url)).get("max-size")
    if largest is None:
        pytest.skip("not announced: max-size")
    reply = draft.post(complete=False, Upload_Length=largest + 1)
    if reply.status < 300 and not is_own:
        pytest.skip("not announced: that max-size is enforced")
    assert reply.status == 413
    if draft.version.number == 8:
        assert limits_of(reply)["max-size"] == largest


# 4.1.4 Limits: max-age (before -06: expires) counts seconds, and moves on with the upload.
def test_the_lifetime_is_in_seconds(draft: Draft) -> None:
    name = "max-age" if draft.version.number == 8 else "expires"
    url = draft.create(b"hello")
    lifetime = limits_of(draft.head(url)).get(name)
    if lifetime is None:
        pytest.skip(f"not announced: {name}")
    assert lifetime > 0


# 4.1.4 Limits: "SHOULD NOT change in a way that causes failures".
def test_the_limits_of_an_upload_do_not_change(draft: Draft) -> None:
    reply = draft.post(complete=False)
    first, later = limits_of(reply), limits_of(draft.head(draft.location(reply)))
    assert first.get("max-size") == later.get("max-size")
    assert first.get("min-append-size") == later.get("min-append-size")

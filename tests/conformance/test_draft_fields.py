"""IETF draft: structured fields."""

from __future__ import annotations

import pytest

from tests.conformance.draft_client import Draft

pytestmark = [pytest.mark.e2e, pytest.mark.versions(8)]


# 4.1.3 Length: "Other values MUST cause the entire header field to be ignored."
@pytest.mark.parametrize("value", ["ten", "-1", "1.5", '"11"', "?1", "11, 12", "1" * 16])
def test_an_invalid_length_is_ignored(draft: Draft, value: str) -> None:
    url = draft.create(b"hello", Upload_Length=value)
    assert "Upload-Length" not in draft.head(url)


# 4.1.1 Offset: the same; and without an offset nothing can be appended.
@pytest.mark.parametrize("value", ["five", "-5", "5.0", '"5"', "?1", "5, 5", "5" * 16])
def test_an_invalid_offset_counts_as_missing(draft: Draft, value: str) -> None:
    url = draft.create(b"hello")
    assert 400 <= draft.patch(url, value, b"!", complete=False).status < 500
    assert draft.offset(url) == 5


# 4.1.2 Completeness: the same; and without it nothing can be appended.
@pytest.mark.parametrize("value", ["1", "true", "?2", "?", '"?1"', "?1, ?1"])
def test_completeness_that_is_not_a_boolean_counts_as_missing(draft: Draft, value: str) -> None:
    url = draft.create(b"hello")
    reply = draft.patch(url, 5, b"!", complete=None, Upload_Complete=value)
    assert 400 <= reply.status < 500
    assert draft.offset(url) == 5


# RFC 9651, section 3.1.2: an Item may have parameters, which have no meaning here.
def test_parameters_of_a_field_are_ignored(draft: Draft) -> None:
    url = draft.create(b"hello", Upload_Length="11;a=b")
    assert draft.head(url)["Upload-Length"] == "11"
    reply = draft.patch(url, "5;a", b" wor", complete=None, Upload_Complete="?0;a=1")
    assert 200 <= reply.status < 300
    assert draft.offset(url) == 9

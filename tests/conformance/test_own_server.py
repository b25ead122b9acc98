"""our own server: nothing of the protocols is left out."""

from __future__ import annotations

import pytest

from tests.conformance.checksums import ALGORITHMS
from tests.conformance.conftest import Stored
from tests.conformance.draft_client import Draft, content_of
from tests.conformance.tus_client import Tus

pytestmark = [pytest.mark.e2e, pytest.mark.own]

EXTENSIONS = {
    "creation",
    "creation-with-upload",
    "creation-defer-length",
    "expiration",
    "checksum",
    "checksum-trailer",
    "termination",
    "concatenation",
    "concatenation-unfinished",
}


# Tus-Extension: every one that tus 1.0.0 has.
def test_every_extension_of_tus_is_announced(tus: Tus) -> None:
    assert set(tus.extensions) == EXTENSIONS


# Tus-Checksum-Algorithm: every one that the cases know.
def test_every_checksum_algorithm_is_announced(tus: Tus) -> None:
    assert set(ALGORITHMS) <= set(tus.algorithms)


# Neither protocol says how a file is read; without it the cases could not see what is stored.
def test_files_of_tus_can_be_read_back(tus: Tus, stored: Stored) -> None:
    assert stored(tus.create_with(b"hello")) == b"hello"


# The same for the draft.
def test_files_of_the_draft_can_be_read_back(draft: Draft) -> None:
    url = draft.create(b"hello")
    assert content_of(draft, url, draft.patch(url, 5, b"!", complete=True)) == b"hello!"


# Tus-Max-Size: is known, so that its cases run.
def test_the_largest_size_is_announced(tus: Tus) -> None:
    assert "Tus-Max-Size" in tus.options


# Appendix "Draft Version Identification".
def test_every_version_of_the_draft_in_the_field_is_supported(draft: Draft) -> None:
    assert draft.is_spoken

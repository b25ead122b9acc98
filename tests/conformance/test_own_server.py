"""our own server: nothing of the protocols is left out."""

from __future__ import annotations

import pytest

from tests.conformance.checksums import ALGORITHMS
from tests.conformance.draft_client import Draft
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


# Tus-Max-Size: is known, so that its cases run.
def test_the_largest_size_is_announced(tus: Tus) -> None:
    assert "Tus-Max-Size" in tus.options


# Appendix "Draft Version Identification".
def test_every_version_of_the_draft_in_the_field_is_spoken(draft: Draft) -> None:
    assert draft.is_spoken

"""What the server has signed comes back unchanged, or not at all."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from itsdangerous import BadSignature

from app.identity.signing import Signing


@pytest.fixture
def signing(tmp_path: Path) -> Signing:
    return Signing(tmp_path / "secret")


def test_a_signed_text_passes_in_every_process(signing: Signing, tmp_path: Path) -> None:
    signed = signing.signer("tickets").dumps("film")
    assert Signing(tmp_path / "secret").signer("tickets").loads(signed) == "film"


def test_what_was_signed_for_one_purpose_does_not_pass_for_another(signing: Signing) -> None:
    with pytest.raises(BadSignature):
        signing.signer("cookies").loads(signing.signer("tickets").dumps("film"))


def test_a_changed_or_shortened_text_does_not_pass(signing: Signing) -> None:
    signed = str(signing.signer("tickets").dumps("film"))
    for forged in (signed[:-1], f"x{signed}", signed.partition(".")[0], ""):
        with pytest.raises(BadSignature):
            signing.signer("tickets").loads(forged)


def test_processes_that_start_together_agree_on_the_secret(tmp_path: Path) -> None:
    processes = [Signing(tmp_path / "secret") for _ in range(16)]
    with ThreadPoolExecutor(16) as threads:
        found = set(threads.map(lambda process: process.secret, processes))
    assert len(found) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_only_the_server_can_read_the_secret(signing: Signing, tmp_path: Path) -> None:
    assert len(signing.secret) == 32
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600

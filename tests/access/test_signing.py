"""What the server has signed comes back unchanged, or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from itsdangerous import BadSignature

from app.access.signing import SECRET_BYTES, Signing, SingleUse
from app.core.errors import SignInRefused
from app.db.context import Context
from app.db.engine import Database
from app.db.nodes import SharedValues, utc_now
from app.settings import Settings


@pytest.fixture
def signing(database: Database) -> Signing:
    return Signing(SharedValues(database))


def test_a_signed_text_passes_in_every_process(signing: Signing, database: Database) -> None:
    signed = signing.signer("tickets").dumps("film")
    assert Signing(SharedValues(database)).signer("tickets").loads(signed) == "film"


def test_what_was_signed_for_one_purpose_does_not_pass_for_another(signing: Signing) -> None:
    with pytest.raises(BadSignature):
        signing.signer("cookies").loads(signing.signer("tickets").dumps("film"))


def test_a_changed_or_shortened_text_does_not_pass(signing: Signing) -> None:
    signed = str(signing.signer("tickets").dumps("film"))
    for forged in (signed[:-1], f"x{signed}", signed.partition(".")[0], ""):
        with pytest.raises(BadSignature):
            signing.signer("tickets").loads(forged)


def test_nodes_that_start_together_agree_on_the_secret(database: Database) -> None:
    nodes = [Signing(SharedValues(database)) for _ in range(16)]
    with ThreadPoolExecutor(16) as threads:
        (secret,) = set(threads.map(lambda node: node.secret, nodes))
    assert len(secret) == SECRET_BYTES


def test_the_secret_of_an_earlier_version_is_taken_over_once(
    database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "link-secret"
    file.write_bytes(b"earlier" * 4)
    assert Signing(SharedValues(database), file).secret == b"earlier" * 4
    assert not file.exists()
    file.write_bytes(b"another node's" * 2)
    assert Signing(SharedValues(database), file).secret == b"earlier" * 4


def test_a_renewed_secret_ends_what_was_signed(signing: Signing, database: Database) -> None:
    signed = signing.signer("tickets").dumps("film")
    signing.renew()
    with pytest.raises(BadSignature):
        Signing(SharedValues(database)).signer("tickets").loads(signed)


def test_a_token_that_is_no_text_is_refused(signing: Signing, database: Database) -> None:
    context = Context(database=database, clock=utc_now, new_id=lambda: "1", settings=Settings())
    tokens = SingleUse(context, signing)
    for token in ("forged", "\ud800"):
        with pytest.raises(SignInRefused):
            tokens.read("registration", token)

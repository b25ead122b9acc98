"""Passkeys: registered by people who are signed in, and used to sign in (Web Authentication).

Each of the two begins with options for the browser, which hold a challenge. The browser returns
what the device has signed together with the token that was given out with the options.

The library `webauthn` is imported where it is used: it costs 0.12 s of CPU time, and most processes
need none of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from hmac import compare_digest
from typing import Any

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.exc import IntegrityError

from app.access import audit
from app.access.audit import AuditAction
from app.access.people import Person, admitted, find_person
from app.access.sessions import Sessions
from app.access.signing import LIFETIME, Browser, SingleUse
from app.core.errors import InvalidRequest, SignInRefused
from app.core.names import clean_name
from app.db.context import Context, RequestContext
from app.db.sql import insert_row, lock_row
from app.db.tables import passkeys, people

MAX_PASSKEYS = 20
"""Maximum passkeys per person; browsers get all their ids at registration."""

NOT_ACCEPTED = "The passkey was not accepted. Try again."

TIMEOUT_MILLISECONDS = int(LIFETIME.total_seconds() * 1000)

_REGISTER, _SIGN_IN = "passkey registration", "passkey sign-in"

Options = Mapping[str, Any]
"""What the browser passes to `navigator.credentials`, as JSON."""

# ---- rows ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Passkey:
    """A key pair; a person's device or password manager has the private half.

    `public_key` is in COSE's form, as the device sent it. `sign_count` is what the device counted
    at the last use; most count nothing, and send 0.
    """

    id: str
    credential_id: bytes
    person_id: str
    public_key: bytes
    sign_count: int
    name: str
    created_at: datetime
    used_at: datetime | None = None


# ---- use cases -----------------------------------------------------------------------------------


class Passkeys:
    """What people do with passkeys.

    In all ceremonies the device must verify its owner, by finger, face or PIN: a passkey replaces
    the password.
    """

    def __init__(self, ctx: Context, tokens: SingleUse, sessions: Sessions) -> None:
        self._ctx = ctx
        self._tokens = tokens
        self._sessions = sessions

    def of_person(self, person_id: str) -> list[Passkey]:
        """The passkeys of a person, the oldest first."""
        query = (
            select(passkeys)
            .where(passkeys.c.person_id == person_id)
            .order_by(passkeys.c.created_at, passkeys.c.id)
        )
        with self._ctx.database.read() as connection:
            return [Passkey(**row._mapping) for row in connection.execute(query)]

    def begin_registration(self, person: Person, browser: Browser) -> tuple[Options, str]:
        """What the browser needs to make a passkey, and the token to return with it."""
        from webauthn import generate_registration_options, helpers  # noqa: PLC0415 - see above
        from webauthn.helpers import structs  # noqa: PLC0415

        options = generate_registration_options(
            rp_id=browser.host,
            rp_name="Sluice",
            user_id=person.id.encode(),
            user_name=person.email,
            user_display_name=person.name or person.email,
            timeout=TIMEOUT_MILLISECONDS,
            authenticator_selection=structs.AuthenticatorSelectionCriteria(
                resident_key=structs.ResidentKeyRequirement.REQUIRED,
                user_verification=structs.UserVerificationRequirement.REQUIRED,
            ),
            exclude_credentials=[
                structs.PublicKeyCredentialDescriptor(id=passkey.credential_id)
                for passkey in self.of_person(person.id)
            ],
        )
        words = {
            "challenge": helpers.bytes_to_base64url(options.challenge),
            "browser": browser.mark,
        }
        return helpers.options_to_json_dict(options), self._tokens.issue(_REGISTER, words)

    def register(
        self, ctx: RequestContext, browser: Browser, credential: Options, token: str, *, name: str
    ) -> Passkey:
        """Store what the caller's device has made, under a name.

        The session counts as one of a passkey if a second factor was missing: the device has just
        verified its owner. Raises `SignInRefused`, `InvalidField`, and `InvalidRequest` if the
        passkey is stored already, or its person has too many.
        """
        from webauthn import base64url_to_bytes, verify_registration_response  # noqa: PLC0415

        name = clean_name(name)
        words = self._read(_REGISTER, token, browser)
        with _refused("The passkey could not be registered. Try again."):
            made = verify_registration_response(
                credential=dict(credential),
                expected_challenge=base64url_to_bytes(words["challenge"]),
                expected_rp_id=browser.host,
                expected_origin=browser.origin,
                require_user_verification=True,
            )
        passkey = Passkey(
            id=ctx.new_id(),
            credential_id=made.credential_id,
            person_id=ctx.caller.id,
            public_key=made.credential_public_key,
            sign_count=made.sign_count,
            name=name,
            created_at=ctx.clock(),
        )
        self._tokens.spend(words)
        count = select(func.count()).where(passkeys.c.person_id == passkey.person_id)
        try:
            with ctx.database.write() as connection:
                lock_row(connection, people.c.id, passkey.person_id)  # Keeps the count right.
                if connection.execute(count).scalar_one() >= MAX_PASSKEYS:
                    raise InvalidRequest(
                        "You have too many passkeys: remove one that you do not use."
                    )
                insert_row(connection, passkeys, passkey)
        except IntegrityError:
            raise InvalidRequest("This passkey is registered already.") from None
        if ctx.caller.needs_second_factor:
            self._sessions.strengthen(ctx, "passkey")
        _audit(ctx, AuditAction.PASSKEY_ADDED, passkey)
        return passkey

    def begin_sign_in(self, browser: Browser) -> tuple[Options, str]:
        """What the browser needs to ask for a passkey, and the token to return with the answer.

        Names no person: the browser offers what it has, and strangers learn nothing about accounts.
        """
        from webauthn import generate_authentication_options, helpers  # noqa: PLC0415 - see above
        from webauthn.helpers import structs  # noqa: PLC0415

        options = generate_authentication_options(
            rp_id=browser.host,
            timeout=TIMEOUT_MILLISECONDS,
            user_verification=structs.UserVerificationRequirement.REQUIRED,
        )
        words = {
            "challenge": helpers.bytes_to_base64url(options.challenge),
            "browser": browser.mark,
        }
        return helpers.options_to_json_dict(options), self._tokens.issue(_SIGN_IN, words)

    def sign_in(
        self, ctx: RequestContext, browser: Browser, credential: Options, token: str
    ) -> Person:
        """Whose passkey the device has used; raises `SignInRefused`."""
        try:
            return self._owner(browser, credential, token)
        except SignInRefused as error:
            if error.person_id:  # Otherwise strangers could fill the log with unknown passkeys.
                subject = f"person:{error.person_id}"
                audit.note(ctx, AuditAction.SESSION_REFUSED, subject, method="passkey")
            raise

    def remove(self, ctx: RequestContext, passkey_id: str) -> None:
        """Delete one of the caller's passkeys, if there is one with that id."""
        is_it = (passkeys.c.id == passkey_id) & (passkeys.c.person_id == ctx.caller.id)
        with ctx.database.write() as connection:
            row = connection.execute(select(passkeys).where(is_it)).first()
            connection.execute(delete(passkeys).where(is_it))
        if row is not None:
            _audit(ctx, AuditAction.PASSKEY_REMOVED, Passkey(**row._mapping))

    def _owner(self, browser: Browser, credential: Options, token: str) -> Person:
        from webauthn import (  # noqa: PLC0415 - see above
            base64url_to_bytes,
            helpers,
            verify_authentication_response,
        )

        words = self._read(_SIGN_IN, token, browser)
        with _refused(NOT_ACCEPTED):
            answer = helpers.parse_authentication_credential_json(dict(credential))
        query = select(passkeys).where(passkeys.c.credential_id == answer.raw_id)
        with self._ctx.database.read() as connection:
            row = connection.execute(query).first()
        if row is None:
            raise SignInRefused("This passkey belongs to no account here.")
        passkey = Passkey(**row._mapping)
        # Web Authentication, section 7.2, step 6: a discoverable passkey names its owner.
        if not compare_digest(answer.response.user_handle or b"", passkey.person_id.encode()):
            raise SignInRefused("This passkey belongs to another account.")
        with _refused(NOT_ACCEPTED, passkey.person_id):
            used = verify_authentication_response(
                credential=answer,
                expected_challenge=base64url_to_bytes(words["challenge"]),
                expected_rp_id=browser.host,
                expected_origin=browser.origin,
                credential_public_key=passkey.public_key,
                credential_current_sign_count=passkey.sign_count,
                require_user_verification=True,
            )
        self._tokens.spend(words)
        self._note_use(passkey, used.new_sign_count)
        owner = find_person(self._ctx, passkey.person_id)
        return admitted(owner, person_id=passkey.person_id)

    def _note_use(self, passkey: Passkey, sign_count: int) -> None:
        """Raises `SignInRefused` if the passkey is gone, or was used with that count before.

        Two uses at the same time cannot both pass with one count.
        """
        is_new = or_(passkeys.c.sign_count < sign_count, passkeys.c.sign_count == 0)
        change = update(passkeys).where(passkeys.c.id == passkey.id, is_new)
        values = {"sign_count": sign_count, "used_at": self._ctx.clock()}
        with self._ctx.database.write() as connection:
            if connection.execute(change.values(values)).rowcount != 1:
                raise SignInRefused(NOT_ACCEPTED, person_id=passkey.person_id)

    def _read(self, purpose: str, token: str, browser: Browser) -> Mapping[str, str]:
        words = self._tokens.read(purpose, token)
        if not browser.mark or not compare_digest(words["browser"].encode(), browser.mark.encode()):
            raise SignInRefused("This was begun in another browser. Begin again.")
        return words


def _audit(ctx: RequestContext, action: AuditAction, passkey: Passkey) -> None:
    audit.note(ctx, action, f"passkey:{passkey.id}", name=passkey.name)


@contextmanager
def _refused(message: str, person_id: str = "") -> Iterator[None]:
    """The library's errors as ours; what devices and strangers send makes it raise many kinds."""
    from webauthn.helpers.exceptions import WebAuthnException  # noqa: PLC0415 - see above

    try:
        yield
    except (WebAuthnException, ValueError, TypeError, KeyError) as error:
        raise SignInRefused(message, person_id=person_id) from error

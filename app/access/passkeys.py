"""Passkeys: registered by people who are signed in, and used to sign in (Web Authentication).

Each of the two begins with options for the browser, which hold a challenge. The browser returns
what the device has signed together with the token that was given out with the options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hmac import compare_digest as _is_same
from typing import Any

from webauthn import (
    generate_authentication_options,
    generate_registration_options,
    verify_authentication_response,
    verify_registration_response,
)
from webauthn.helpers import (
    base64url_to_bytes,
    bytes_to_base64url,
    options_to_json_dict,
    parse_authentication_credential_json,
)
from webauthn.helpers.exceptions import WebAuthnException
from webauthn.helpers.structs import (
    AuthenticationCredential,
    AuthenticatorSelectionCriteria,
    PublicKeyCredentialDescriptor,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from app.access.passkey_records import Passkey, PasskeyRecords
from app.access.people import Person, find_person
from app.access.signing import LIFETIME, Browser, SingleUse
from app.core.errors import InvalidField, SignInRefused
from app.db.context import Context

MAX_NAME_CHARACTERS = 100

NOT_ACCEPTED = "The passkey was not accepted. Try again."

_MILLISECONDS = 1000

_REGISTER, _SIGN_IN = "passkey registration", "passkey sign-in"

_VERIFIED = UserVerificationRequirement.REQUIRED
"""A passkey replaces the password: the device must know its owner, by finger, face or PIN."""

Options = Mapping[str, Any]
"""What the browser passes to `navigator.credentials`, as JSON."""


class Passkeys:
    """What people do with passkeys."""

    def __init__(
        self,
        ctx: Context,
        tokens: SingleUse,
    ) -> None:
        self._ctx = ctx
        self._records = PasskeyRecords(ctx.database)
        self._tokens = tokens

    def begin_registration(self, person_id: str, browser: Browser) -> tuple[Options, str]:
        """What the browser needs to make a passkey, and the token to return with it."""
        person = self._person(person_id)
        known = self._records.of_person(person_id)
        options = generate_registration_options(
            rp_id=browser.host,
            rp_name="Sluice",
            user_id=person.id.encode(),
            user_name=person.email,
            user_display_name=person.name or person.email,
            timeout=_timeout(),
            authenticator_selection=AuthenticatorSelectionCriteria(
                resident_key=ResidentKeyRequirement.REQUIRED, user_verification=_VERIFIED
            ),
            exclude_credentials=[
                PublicKeyCredentialDescriptor(id=passkey.credential_id) for passkey in known
            ],
        )
        return options_to_json_dict(options), self._token(_REGISTER, options.challenge, browser)

    def register(
        self, person_id: str, browser: Browser, credential: Options, token: str, *, name: str
    ) -> Passkey:
        """Store what the device has made; raises `SignInRefused` or `InvalidRequest`."""
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
            id=self._ctx.new_id(),
            credential_id=made.credential_id,
            person_id=person_id,
            public_key=made.credential_public_key,
            sign_count=made.sign_count,
            name=_name(name),
            created_at=self._ctx.clock(),
        )
        self._tokens.spend(words)
        self._records.add(passkey)
        return passkey

    def begin_sign_in(self, browser: Browser) -> tuple[Options, str]:
        """What the browser needs to ask for a passkey, and the token to return with the answer.

        Names no person: the browser offers what it has, and strangers learn nothing about accounts.
        """
        options = generate_authentication_options(
            rp_id=browser.host, timeout=_timeout(), user_verification=_VERIFIED
        )
        return options_to_json_dict(options), self._token(_SIGN_IN, options.challenge, browser)

    def sign_in(self, browser: Browser, credential: Options, token: str) -> Person:
        """Whose passkey the device has used; raises `SignInRefused`."""
        words = self._read(_SIGN_IN, token, browser)
        with _refused(NOT_ACCEPTED):
            answer = parse_authentication_credential_json(dict(credential))
        passkey = self._known(answer)
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
        now = self._ctx.clock()
        if not self._records.note_use(passkey.id, sign_count=used.new_sign_count, now=now):
            raise SignInRefused(NOT_ACCEPTED, person_id=passkey.person_id)
        return self._person(passkey.person_id)

    def of_person(self, person_id: str) -> list[Passkey]:
        """The passkeys of a person, the oldest first."""
        return self._records.of_person(person_id)

    def remove(self, person_id: str, passkey_id: str) -> Passkey | None:
        """Delete a passkey of a person; it cannot be used to sign in any more."""
        return self._records.remove(person_id, passkey_id)

    def _known(self, answer: AuthenticationCredential) -> Passkey:
        passkey = self._records.find(answer.raw_id)
        if passkey is None:
            raise SignInRefused("This passkey belongs to no account here.")
        # Web Authentication, section 7.2, step 6: a discoverable passkey names its owner.
        if not _is_same(answer.response.user_handle or b"", passkey.person_id.encode()):
            raise SignInRefused("This passkey belongs to another account.")
        return passkey

    def _person(self, person_id: str) -> Person:
        person = find_person(self._ctx, person_id)
        if person is None or person.is_blocked:
            message = "This account is blocked. An administrator can let you in again."
            raise SignInRefused(message, person_id=person_id)
        return person

    def _token(self, purpose: str, challenge: bytes, browser: Browser) -> str:
        words = {"challenge": bytes_to_base64url(challenge), "browser": browser.mark}
        return self._tokens.issue(purpose, words)

    def _read(self, purpose: str, token: str, browser: Browser) -> Mapping[str, str]:
        words = self._tokens.read(purpose, token)
        if not browser.mark or not _is_same(words["browser"].encode(), browser.mark.encode()):
            raise SignInRefused("This was begun in another browser. Begin again.")
        return words


def _timeout() -> int:
    return int(LIFETIME.total_seconds() * _MILLISECONDS)


def _name(text: str) -> str:
    name = text.strip()
    if not name or len(name) > MAX_NAME_CHARACTERS:
        raise InvalidField(f"A name has 1 to {MAX_NAME_CHARACTERS} characters.", field="name")
    return name


@contextmanager
def _refused(message: str, person_id: str = "") -> Iterator[None]:
    """The library's errors as ours; what devices and strangers send makes it raise many kinds."""
    try:
        yield
    except (WebAuthnException, ValueError, TypeError, KeyError) as error:
        raise SignInRefused(message, person_id=person_id) from error

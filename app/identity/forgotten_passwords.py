"""Mails a link for a new password to whoever asks for one, if there is an account."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from app.domain.addresses import is_loopback, network_of
from app.domain.errors import TooManyAttempts
from app.identity.invitations import Invitations
from app.identity.mail import Mail
from app.records.identity.attempts import AttemptRecords, Patience
from app.records.identity.people import PeopleRecords, Person

MAIL_EVERY = timedelta(minutes=15)
"""To one account. A new link ends the one before it, so strangers must not have many made."""

OF_NETWORK = Patience(free=20)


class ForgottenPasswords:
    """Works if the server can send mail."""

    def __init__(
        self,
        people: PeopleRecords,
        invitations: Invitations,
        attempts: AttemptRecords,
        mail: Mail,
        *,
        public_url: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._people = people
        self._invitations = invitations
        self._attempts = attempts
        self._mail = mail
        self._public_url = public_url
        self._clock = clock

    @property
    def is_on(self) -> bool:
        """Whether this server can send mail."""
        return self._mail.is_on

    def send_link(self, email: str, *, address: str) -> Person | None:
        """Whose link is on its way, if anybody's; the requester must not learn which.

        Raises `TooManyAttempts` if a network asks too often.
        """
        self._count(address)
        person = self._people.find_by_email(email.strip().lower())
        if person is None or person.is_blocked or not self._may_have_mail(person):
            return None
        code = self._invitations.to_reset(person, by="")
        self._mail.send_later(
            person.email,
            subject="A new password for Sluice",
            text="Somebody, probably you, has asked for a new password for your account.\n"
            f"Open this link within a day to choose one:\n\n{self._public_url}/reset/{code}\n\n"
            "If it was not you, do nothing: your password stays as it is.\n",
        )
        return person

    def _count(self, address: str) -> None:
        if is_loopback(address):  # Behind a proxy that names no clients, it would be everybody.
            return
        subject, now = f"forgotten:{network_of(address)}", self._clock()
        failures = self._attempts.failures([subject], now).get(subject)
        if failures is not None and (wait := OF_NETWORK.wait(failures, now)):
            seconds = int(wait.total_seconds()) + 1
            raise TooManyAttempts("Try again later.", wait_seconds=seconds)
        self._attempts.failed([subject], now)

    def _may_have_mail(self, person: Person) -> bool:
        """Notes that they get some now, unless they got some just before."""
        subject, now = f"forgotten:{person.id}", self._clock()
        failures = self._attempts.failures([subject], now).get(subject)
        if failures is not None and now - failures.last_at < MAIL_EVERY:
            return False
        self._attempts.failed([subject], now)
        return True

"""Mails a link for a new password, if the address has an account."""

from __future__ import annotations

import logging
from datetime import timedelta
from threading import Thread

from app.access import audit
from app.access.attempts import Backoff, PasswordChecks
from app.access.audit import AuditAction
from app.access.invitations import Invitations
from app.access.mail import Mail
from app.access.people import Person, find_by_email
from app.core.access import NOBODY
from app.core.addresses import is_loopback, network_of
from app.core.errors import TooManyAttempts, UploadError
from app.db.context import Context

OF_ACCOUNT = Backoff(free=1, first=timedelta(minutes=15), most=timedelta(days=1))
"""Mails to an account: after each, the next one waits twice as long. A day has eight at most."""

OF_NETWORK = Backoff(free=20)

log = logging.getLogger(__name__)


class ForgottenPasswords:
    """Works if the server can send mail. Its links begin with the settings' `link_url`.

    They never begin with the host of the request, which the client chooses.
    """

    def __init__(
        self,
        ctx: Context,
        invitations: Invitations,
        checks: PasswordChecks,
        mail: Mail,
    ) -> None:
        self._ctx = ctx
        self._invitations = invitations
        self._checks = checks
        self._mail = mail

    @property
    def is_on(self) -> bool:
        """Whether this server can send mail."""
        return self._mail.is_on

    def send_link_later(self, email: str, *, address: str) -> None:
        """Send a link to the account with this e-mail address, if there is one.

        Returns before it looks: neither the response nor its time tells who has an account.
        Raises `TooManyAttempts` if a network asks too often.
        """
        if not is_loopback(address):  # Behind a proxy that names no clients, it would be everybody.
            self._checks.count({f"forgotten:{network_of(address)}": OF_NETWORK})
        given = (email.strip().lower(), address)
        Thread(target=self._send_link, args=given, name="forgotten password", daemon=True).start()

    def _send_link(self, email: str, address: str) -> None:
        try:
            self._try_to_send_link(email, address)
        except UploadError as error:
            log.error("cannot make a link for a new password: %s", error)
        except Exception:
            log.exception("cannot make a link for a new password")

    def _try_to_send_link(self, email: str, address: str) -> None:
        """A person without a password signs in elsewhere, where they can be blocked."""
        person = find_by_email(self._ctx, email)
        if person is None or person.is_blocked or person.password_hash is None:
            return
        subject, is_sent = f"forgotten:{person.id}", False
        try:
            self._checks.count({subject: OF_ACCOUNT})
        except TooManyAttempts:
            return
        try:
            is_sent = self._sends_link(person)
        finally:
            if not is_sent:  # They read that it is on its way: the next one must not wait.
                self._checks.forget(subject)
        if is_sent:  # Otherwise strangers could fill the log while the mail server is away.
            audit.note(
                self._ctx.acting(NOBODY, address=address),
                AuditAction.PASSWORD_LINK_MADE,
                f"person:{person.id}",
                details={"email": person.email, "by": "mail"},
            )

    def _sends_link(self, person: Person) -> bool:
        """Whether the mail server has taken a new link."""
        code = self._invitations.to_reset_by_mail(person)
        url = f"{self._ctx.settings.link_url}/reset/{code}"
        return self._mail.send(
            person.email,
            subject="A new password for Sluice",
            text="Somebody, probably you, has asked for a new password for your account.\n"
            f"Open this link within a day to choose one:\n\n{url}\n\n"
            "If it was not you, do nothing: your password stays as it is.\n",
        )

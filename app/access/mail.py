"""Sends e-mail through the operator's SMTP server."""

from __future__ import annotations

import logging
import math
import smtplib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from ipaddress import ip_address
from threading import Thread
from urllib.parse import unquote, urlsplit

from app.access.attempts import AttemptRecords, Backoff, in_words
from app.access.people import Person
from app.core.errors import TooManyRequests

TIMEOUT_SECONDS = 10.0

PORTS = {"smtp": 587, "smtps": 465}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mail:
    """Mail from `sender` by way of a server.

    `url` is smtp://user:password@host:587, or smtps:// for TLS from
    the first byte. smtp:// changes to TLS where the server offers it.
    """

    url: str = ""
    sender: str = ""

    @property
    def is_on(self) -> bool:
        """Whether mail can be sent at all."""
        return bool(self.url)

    def send(self, to: str, *, subject: str, text: str) -> bool:
        """Send a message; whether the server has taken it. What went wrong is logged."""
        if not self.is_on:
            return False
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self.sender, to, subject
        message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain=self._domain)
        message.set_content(text)
        try:
            with self._connect() as server:
                self._secure(server)
                server.send_message(message)
        except (OSError, smtplib.SMTPException) as error:
            log.error("cannot send mail through %s: %s", urlsplit(self.url).hostname, error)
            return False
        return True

    def send_later(self, to: str, *, subject: str, text: str) -> None:
        """Send a message without waiting for the mail server.

        The time of a response would tell whether there is an account.
        """
        if self.is_on:
            given = {"to": to, "subject": subject, "text": text}
            Thread(target=self.send, kwargs=given, name="mail", daemon=True).start()

    @property
    def _domain(self) -> str:
        return self.sender.rpartition("@")[2].rstrip(">") or "localhost"

    def _connect(self) -> smtplib.SMTP:
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
        if parts.scheme == "smtps":
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(host, port, timeout=TIMEOUT_SECONDS, context=context)
        return smtplib.SMTP(host, port, timeout=TIMEOUT_SECONDS)

    def _secure(self, server: smtplib.SMTP) -> None:
        """Change to TLS and log in; no password goes over a line that others can read."""
        parts = urlsplit(self.url)
        server.ehlo()
        is_private = parts.scheme == "smtps"
        if not is_private and server.has_extn("starttls"):
            server.starttls(context=ssl.create_default_context())
            server.ehlo()
            is_private = True
        if not parts.username:
            return
        if not is_private and not _is_this_machine(parts.hostname or ""):
            raise smtplib.SMTPException("it offers no TLS, and the password would be readable")
        server.login(unquote(parts.username), unquote(parts.password or ""))


@dataclass(frozen=True, slots=True)
class GuessingNotice:
    """Mail to the owner of an account whose password is being guessed."""

    mail: Mail
    public_url: str

    def send(self, person: Person, failures: int) -> None:
        """Say how many wrong passwords there were; returns before it is sent."""
        self.mail.send_later(
            person.email,
            subject="Wrong passwords for your Sluice account",
            text=f"Lately, about {failures} wrong passwords were entered for your account at\n"
            f"{self.public_url}\n\nNone of them was accepted, and you can sign in as before. "
            "If it was not you,\nadd a passkey to your account, or choose a longer password:\n\n"
            f"{self.public_url}/account\n",
        )


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# ---- limits --------------------------------------------------------------------------------------

# How much mail people and keys may have the server send.


OF_SENDER = Backoff(free=30)
"""Messages of a person or a key, of about a day."""

OF_PROJECT = Backoff(free=60)
"""Messages of a project: its managers can make any number of keys."""


class MailLimits:
    """Counts messages by who has them sent, and for which project."""

    def __init__(self, records: AttemptRecords, *, clock: Callable[[], datetime]) -> None:
        self._records = records
        self._clock = clock

    def count(self, sender: str, project_id: str | None) -> None:
        """Count a message; raises `TooManyRequests` for one too many."""
        subjects = {f"mail:{sender}": OF_SENDER}
        if project_id is not None:
            subjects[f"mail:project:{project_id}"] = OF_PROJECT
        if wait := self._records.count_unless_waiting(subjects, self._clock()):
            seconds = math.ceil(wait.total_seconds())
            error = TooManyRequests(f"That is much mail. Try again in {in_words(seconds)}.")
            error.retry_after_seconds = seconds
            raise error

"""Mail, taken by a real little SMTP server."""

from __future__ import annotations

import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from app.access.attempts import AttemptRecords
from app.access.mail import OF_SENDER, Mail, MailLimits
from app.core.errors import TooManyRequests
from tests.access.world import World

LINK = "https://videos.example/join/" + "x" * 32


class MailBox(socketserver.ThreadingTCPServer):
    """Takes mail without TLS; `lines` is all that clients have sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.lines: list[str] = []
        self.refuses = ""

    @property
    def url(self) -> str:
        """What the setting would be."""
        return f"smtp://127.0.0.1:{self.server_address[1]}"


class _Conversation(socketserver.StreamRequestHandler):
    """RFC 5321, as far as smtplib needs it."""

    server: MailBox

    def handle(self) -> None:
        """Until the client quits."""
        self._say("220 box")
        is_body = False
        for raw in self.rfile:
            line = raw.decode().rstrip("\r\n")
            self.server.lines.append(line)
            if is_body and line != ".":
                continue
            command = line.partition(" ")[0].upper()
            is_body = command == "DATA"
            self._say(self._answer(command))
            if command == "QUIT":
                return

    def _answer(self, command: str) -> str:
        if command == self.server.refuses:
            return "550 no"
        answers = {
            "DATA": "354 go on",
            "EHLO": "250-box\r\n250 AUTH PLAIN",
            "AUTH": "235 in",
            "QUIT": "221 bye",
        }
        return answers.get(command, "250 ok")

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@contextmanager
def new_box() -> Iterator[MailBox]:
    with MailBox() as box:
        thread = Thread(target=box.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield box
        finally:
            box.shutdown()
            thread.join()


@pytest.fixture
def box() -> Iterator[MailBox]:
    with new_box() as box:
        yield box


def send(url: str, to: str = "bob@example.org") -> bool:
    mail = Mail(url, "Sluice <films@example.org>")
    return mail.send(to, subject="An invitation", text=f"Open this:\n\n{LINK}\n")


def test_the_server_gets_the_link(box: MailBox) -> None:
    assert send(box.url)
    commands = [line.partition(" size=")[0].lower() for line in box.lines]
    assert "rcpt to:<bob@example.org>" in commands
    assert "mail from:<films@example.org>" in commands
    assert LINK in box.lines
    assert "From: Sluice <films@example.org>" in box.lines


def test_a_name_and_a_password_are_sent_to_this_machine_alone_without_tls(box: MailBox) -> None:
    assert send(box.url.replace("//", "//ann:s%40cret@"))
    assert any(line.startswith("AUTH PLAIN") for line in box.lines)


def test_a_refusal_is_no_crash(box: MailBox) -> None:
    box.refuses = "RCPT"
    assert not send(box.url)


def test_a_server_that_is_not_there_is_no_crash() -> None:
    with new_box() as box:
        url = box.url
    assert not send(url)


def test_without_a_server_nothing_is_sent() -> None:
    assert not Mail().is_on
    assert not send("")


def test_who_sends_a_few_messages_a_day_never_waits(world: World) -> None:
    limits = MailLimits(AttemptRecords(world.database), clock=world.clock)
    for _ in range(2 * OF_SENDER.free):
        for _ in range(3):
            limits.count("person:ann", None)
        world.clock.turn(hours=22)
    for _ in range(OF_SENDER.free - 1):
        limits.count("person:ann", None)
    with pytest.raises(TooManyRequests):
        limits.count("person:ann", None)

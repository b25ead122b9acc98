"""Events go out signed, to the address that was checked, and wait for no receiver."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from standardwebhooks import Webhook as Verifier

from app.access import webhooks
from app.access.webhook_delivery import (
    MAX_IN_A_ROW,
    DeliveryResult,
    WebhookDelivery,
    WebhookSender,
)
from app.access.webhooks import PAUSES, DeliveryState, EventType, Webhook
from app.core.access import FIRST_PROJECT
from app.core.jobs import WEBHOOK, Lane
from app.core.upload import UploadId
from app.db.engine import Database
from app.db.job_worker import JobWorker, Kind
from app.db.waking import WakeupSocket
from tests.access.receiver import Behaviour, Receiver, answer, running_receiver
from tests.access.webhook_world import WebhookWorld
from tests.architecture.sources import ROOT
from tests.waiting import wait_until

NAME = "hooks.example"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_receiver() as running:
        yield running


@pytest.fixture
def world(database: Database) -> WebhookWorld:
    world = WebhookWorld(database, may_be_private=True)
    world.now = datetime.now(UTC)  # The library refuses old signatures.
    return world


@pytest.fixture
def delivery(world: WebhookWorld) -> WebhookDelivery:
    return WebhookDelivery(world.context, WebhookSender(may_be_private=True, timeout_seconds=600))


@pytest.fixture
def worker(world: WebhookWorld, delivery: WebhookDelivery, tmp_path: Path) -> Iterator[JobWorker]:
    """Delivers what is due once it is started."""
    wakeup = WakeupSocket(tmp_path)
    worker = JobWorker(
        jobs=world.jobs,
        kinds={WEBHOOK: Kind(run=delivery.deliver_some, after=lambda *_: wakeup.notify())},
        looks=[lambda: delivery.look(world.jobs, world.now)],
        wakeup=wakeup,
        name="worker",
        clock=lambda: world.now,
    )
    yield worker
    # Otherwise its threads would find the next test's events: their ids are the same.
    worker.stop(60)


def made(world: WebhookWorld, receiver: Receiver, project: str = FIRST_PROJECT) -> Webhook:
    events = [EventType.UPLOAD_COMPLETED]
    return webhooks.make(world.acting(project), url=receiver.url, events=events)


def local_sender(seconds: float = 60) -> WebhookSender:
    """Finds every name on this machine, which it is allowed to."""
    return WebhookSender(
        may_be_private=True, resolve=lambda *_: ["127.0.0.1"], timeout_seconds=seconds
    )


def answer_once(event: Event) -> Behaviour:
    """Answers 204 when the event is set."""

    def behave(handler: BaseHTTPRequestHandler) -> None:
        event.wait(60)
        answer(204)(handler)

    return behave


def test_a_receiver_can_verify_what_it_gets(
    world: WebhookWorld, receiver: Receiver, delivery: WebhookDelivery
) -> None:
    webhook = made(world, receiver)
    video = world.video()
    assert world.deliver(delivery, webhook)
    (request,) = receiver.received
    told = Verifier(webhook.secret).verify(request.body, request.headers)
    assert (told["type"], told["data"]["id"]) == ("upload.completed", video.id)
    assert request.headers["content-type"] == "application/json"
    assert not world.deliver(delivery, webhook)


def test_after_a_change_of_the_secret_both_verify_for_a_day(
    world: WebhookWorld, receiver: Receiver, delivery: WebhookDelivery
) -> None:
    webhook = made(world, receiver)
    changed = webhooks.renew_secret(world.acting(webhook.project_id), webhook.id)
    world.video()
    assert world.deliver(delivery, webhook)
    (request,) = receiver.received
    for secret in (webhook.secret, changed.secret):
        assert Verifier(secret).verify(request.body, request.headers)
    claim_secrets = len(request.headers["webhook-signature"].split())
    world.now += timedelta(days=1)
    world.video()
    assert world.deliver(delivery, webhook)
    signatures = receiver.received[1].headers["webhook-signature"].split()
    assert (claim_secrets, len(signatures)) == (2, 1)


def test_an_event_is_sent_again_until_the_receiver_takes_it(
    world: WebhookWorld, receiver: Receiver, delivery: WebhookDelivery
) -> None:
    webhook = made(world, receiver)
    world.video()
    receiver.behaviours = [answer(500), answer(429)]
    for attempt, pause in enumerate((*PAUSES[:2], timedelta(0)), 1):
        has_arrived = world.deliver(delivery, webhook)
        assert has_arrived is (attempt == 3), "one that failed ends the turn"
        assert not world.deliver(delivery, webhook)
        assert len(receiver.received) == attempt
        world.now += pause
    (sent,) = world.deliveries(webhook)
    assert (sent.state, sent.attempts, sent.status) == (DeliveryState.DELIVERED, 3, 204)
    assert len({request.headers["webhook-id"] for request in receiver.received}) == 1
    times = [int(request.headers["webhook-timestamp"]) for request in receiver.received]
    assert times == sorted(set(times))


def test_redirects_are_not_followed(receiver: Receiver) -> None:
    receiver.behaviours = [answer(302, Location=f"{receiver.url}/elsewhere")]
    found = local_sender().post(receiver.url, b"{}", {})
    assert found == DeliveryResult(302, "The receiver answered 302; redirects are not followed.")
    assert [request.path for request in receiver.received] == ["/hook"]


@pytest.mark.parametrize("host", ["localhost", "127.1", "0x7f000001", "2130706433", "0"])
def test_nothing_is_sent_to_private_networks_however_they_are_written(
    receiver: Receiver, host: str
) -> None:
    url = f"http://{host}:{receiver.port}/hook"
    found = WebhookSender(may_be_private=False).post(url, b"{}", {})
    assert found.status is None
    assert receiver.received == []


def test_a_name_that_changes_its_address_leads_nowhere_else(receiver: Receiver) -> None:
    addresses = iter([["127.0.0.1"]])  # Whoever asked again would get an error.
    sender = WebhookSender(may_be_private=True, resolve=lambda *_: next(addresses))
    found = sender.post(f"http://{NAME}:{receiver.port}/hook?a=b", b"{}", {})
    assert found == DeliveryResult(204, None)
    (request,) = receiver.received
    assert request.headers["host"] == f"{NAME}:{receiver.port}"
    assert request.path == "/hook?a=b"


def test_private_addresses_of_a_name_are_left_out(receiver: Receiver) -> None:
    sender = WebhookSender(may_be_private=False, resolve=lambda *_: ["127.0.0.1", "::1"])
    found = sender.post(f"http://{NAME}:{receiver.port}/hook", b"{}", {})
    assert "private network" in str(found.problem)
    assert receiver.received == []


def test_names_that_cannot_be_resolved_and_closed_ports_are_told() -> None:
    def fail(*_: object) -> list[str]:
        raise OSError("no such name")

    unknown = WebhookSender(may_be_private=True, resolve=fail).post(f"http://{NAME}/", b"", {})
    assert unknown == DeliveryResult(None, f"The name {NAME} cannot be resolved.")
    closed = local_sender().post(f"http://{NAME}:1/", b"", {})
    assert closed == DeliveryResult(None, "The connection failed: Connection refused.")


def trickle(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while not Event().wait(0.05):
        handler.wfile.write(b"x")


def babble(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"220 mail.example ESMTP\r\n")


def send_much(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(bytes(1024 * 1024))


@pytest.mark.parametrize(
    ("behaviour", "found"),
    [
        (trickle, DeliveryResult(None, "There was no answer within 0.5 seconds.")),
        (babble, DeliveryResult(None, "The answer is not HTTP.")),
        (send_much, DeliveryResult(200, None)),
    ],
)
def test_hostile_receivers_cost_little(
    receiver: Receiver, behaviour: Behaviour, found: DeliveryResult
) -> None:
    receiver.behaviours = [behaviour]
    seconds = 0.5 if behaviour is trickle else 60
    assert local_sender(seconds).post(receiver.url, b"{}", {}) == found


def test_a_slow_receiver_holds_up_nobody_else(
    world: WebhookWorld, receiver: Receiver, worker: JobWorker
) -> None:
    go_on = Event()
    with running_receiver() as slow_receiver:
        slow_receiver.behaviours = [answer_once(go_on)]
        slow, quick = made(world, slow_receiver), made(world, receiver)
        for _ in range(3):
            world.video()
        worker.start()
        wait_until(lambda: len(receiver.received) == 3, "the quick receiver has all events")
        wait_until(lambda: len(slow_receiver.received) == 1, "the slow one has the first")
        go_on.set()
        wait_until(
            lambda: {each.state for each in world.deliveries(slow)} == {DeliveryState.DELIVERED},
            "the slow receiver has all events",
        )
    wait_until(
        lambda: {each.state for each in world.deliveries(quick)} == {DeliveryState.DELIVERED},
        "what the quick receiver has is noted",
    )


def test_the_slow_receivers_of_a_project_hold_up_no_other_project(
    world: WebhookWorld, receiver: Receiver, worker: JobWorker
) -> None:
    go_on = Event()
    with running_receiver() as slow_receiver:
        slow_receiver.behaviours = [answer_once(go_on)] * (Lane.WEBHOOKS.threads + 1)
        for _ in slow_receiver.behaviours:
            made(world, slow_receiver)
        other = made(world, receiver, world.project())
        world.video()
        webhooks.send_test(world.acting(other.project_id), other.id)
        worker.start()
        wait_until(lambda: receiver.received, "the other project's receiver has its event")
        most = Lane.WEBHOOKS.most_of_client
        wait_until(lambda: len(slow_receiver.received) >= most, "the slow ones have their share")
        assert len(slow_receiver.received) == most
        go_on.set()
        wait_until(
            lambda: len(slow_receiver.received) == Lane.WEBHOOKS.threads + 1,
            "all of them have their event",
        )


def test_a_webhook_gets_more_than_one_turn_has(
    world: WebhookWorld, receiver: Receiver, worker: JobWorker
) -> None:
    webhook = made(world, receiver)
    for _ in range(MAX_IN_A_ROW + 1):
        webhooks.send_test(world.acting(), webhook.id)
    worker.start()
    wait_until(lambda: len(receiver.received) == MAX_IN_A_ROW + 1, "all have arrived")
    wait_until(lambda: world.jobs.find(UploadId(webhook.id), WEBHOOK) is None, "its job has ended")


SEND_ONE = """
import sys
from datetime import datetime, timedelta
from app.access.webhook_delivery import WebhookDelivery, WebhookSender
from app.core.jobs import WEBHOOK, Lane
from app.db.context import Context
from app.db.engine import Database
from app.db.jobs import JobRecords
from app.settings import Settings

context = Context(
    database=Database(sys.argv[1], synced=False),
    clock=lambda: datetime.fromisoformat(sys.argv[3]),
    new_id=lambda: "e" * 32,
    settings=Settings(),
)
sender = WebhookSender(may_be_private=True, timeout_seconds=60)
delivery = WebhookDelivery(context, sender)
now = context.clock()
jobs = JobRecords(context.database)
jobs.add(WEBHOOK, {sys.argv[2]: "client"}, Lane.WEBHOOKS, now)
delivery.deliver_next(jobs.claim(Lane.WEBHOOKS, "killed", now, timedelta(seconds=15), [WEBHOOK]))
"""


def test_what_a_killed_worker_was_sending_is_sent_again(
    world: WebhookWorld, receiver: Receiver, delivery: WebhookDelivery, address: str
) -> None:
    webhook = made(world, receiver)
    world.video()
    killed = Event()
    receiver.behaviours = [answer_once(killed)]
    command = [sys.executable, "-c", SEND_ONE, address, webhook.id, world.now.isoformat()]
    with subprocess.Popen(command, cwd=ROOT) as process:
        wait_until(lambda: receiver.received, "the event has arrived")
        process.send_signal(signal.SIGKILL)
    killed.set()
    assert world.deliver(delivery, webhook)
    first, second = receiver.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert json.loads(first.body) == json.loads(second.body)
    (sent,) = world.deliveries(webhook)
    assert (sent.state, sent.attempts) == (DeliveryState.DELIVERED, 2)


def certificate_for(name: str, folder: Path) -> Path:
    """A self-signed certificate and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private = key.private_bytes(pem, form, serialization.NoEncryption())
    file.write_bytes(private + certificate.public_bytes(pem))
    return file


def test_the_certificate_must_be_for_the_name_though_the_address_is_fixed(tmp_path: Path) -> None:
    file = certificate_for(NAME, tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(file)
    sender = WebhookSender(
        may_be_private=True,
        resolve=lambda *_: ["127.0.0.1"],
        certificates=lambda: ssl.create_default_context(cafile=str(file)),
    )
    with running_receiver(tls) as receiver:
        good = sender.post(f"https://{NAME}:{receiver.port}/hook", b"{}", {})
        bad = sender.post(f"https://other.example:{receiver.port}/hook", b"{}", {})
        unknown = local_sender().post(f"https://{NAME}:{receiver.port}/hook", b"{}", {})
    assert good == DeliveryResult(204, None)
    assert [request.headers["host"] for request in receiver.received] == [f"{NAME}:{receiver.port}"]
    for refused in (bad, unknown):
        assert str(refused.problem).startswith("The certificate is not valid")

"""A server of PostgreSQL that restarts, crashes and keeps us waiting."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from multiprocessing.synchronize import Barrier, Event
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, event, make_url, select, text
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

from app.core.errors import InvalidRequest, NoRoom, ServerBusy, StorageFailed
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange, RangeSet
from app.core.upload import Upload, UploadId
from app.db.engine import Database, SchemaState
from app.db.errors import as_upload_error, driver_message
from app.db.postgresql import MIGRATION_LOCK, SESSION, PostgresqlServer
from app.db.tables import audit
from app.records import statements
from app.records.uploads import UploadRecords
from tests.postgresql import Postgresql, pgbouncer, postgresql, set_limits
from tests.processes import PROCESSES
from tests.records.making import at, new_upload

HELD_UP = text("SET LOCAL idle_in_transaction_session_timeout = '300ms'")
"""Instead of a minute; from when the lock is held: a process may be slow before."""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgresql]:
    with postgresql(is_safe=True) as server:
        yield server


@pytest.fixture
def url(server: Postgresql, request: pytest.FixtureRequest) -> str:
    return server.create(f"of {abs(hash(request.node.name))}")


@pytest.fixture
def records(url: str) -> Iterator[UploadRecords]:
    with closing(Database(url, synced=True)) as database:
        database.migrate()
        yield UploadRecords(database)


def test_a_connection_that_broke_between_two_requests_is_replaced(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Database(url, synced=True)) as database:
        with database.read() as connection:
            broken = connection.connection.driver_connection
        assert broken is not None
        broken.close()
        with database.read() as connection:
            assert connection.execute(text("SELECT 1")).scalar_one() == 1
        with database.read() as connection:
            broken = connection.connection.driver_connection
            assert broken is not None
            broken.close()  # Before its return to the pool.
        with database.read() as connection:
            assert connection.execute(text("SELECT 1")).scalar_one() == 1
    assert not caplog.records


@pytest.mark.parametrize("kind", ["read", "write", "snapshot"])
def test_a_server_that_ends_each_new_connection_is_busy(url: str, kind: str) -> None:
    with closing(Database(url, synced=True)) as database:
        event.listen(database._engine, "connect", lambda connection, _: connection.close())
        with pytest.raises(ServerBusy), getattr(database, kind)():
            pytest.fail("it is connected")


@pytest.mark.parametrize("kind", ["read", "write", "snapshot"])
@pytest.mark.parametrize("side", ["server", "driver"])
def test_a_connection_lost_between_checkout_and_begin_is_busy_and_no_error_in_the_log(
    server: Postgresql, url: str, kind: str, side: str, caplog: pytest.LogCaptureFixture
) -> None:
    def end(connection: Any, *_: object) -> None:
        if side == "driver":
            connection.close()
        else:
            server.ask(f"SELECT pg_terminate_backend({connection.info.backend_pid})")

    with closing(Database(url, synced=True)) as database:
        event.listen(database._engine, "checkout", end)
        with pytest.raises(ServerBusy), getattr(database, kind)() as connection:
            connection.execute(text("SELECT 1"))
    assert not caplog.records


def test_a_restart_between_two_requests_goes_unnoticed(
    server: Postgresql, records: UploadRecords
) -> None:
    upload, _ = records.add(new_upload())
    server.stop()
    server.start()
    assert records.get(upload.id) == upload
    assert records.add_received(upload, ByteRange(0, 50), at(1)).received.total == 50


def test_while_the_server_is_away_requests_are_to_be_repeated(
    server: Postgresql, records: UploadRecords
) -> None:
    upload, _ = records.add(new_upload())
    server.stop()
    try:
        with pytest.raises(ServerBusy):
            records.get(upload.id)
        with pytest.raises(ServerBusy):
            records.add_received(upload, ByteRange(0, 50), at(1))
    finally:
        server.start()
    assert records.add_received(upload, ByteRange(50, 100), at(1)).received.total == 50


def test_what_was_recorded_survives_a_crash(server: Postgresql, records: UploadRecords) -> None:
    uploads = [records.add(new_upload(length=100))[0] for _ in range(8)]

    def send(number: int) -> int:
        upload = uploads[number]
        for place in range(100):
            try:
                upload = records.add_received(upload, ByteRange(place, place + 1), at(place))
            except ServerBusy:
                return place
        return 100

    with ThreadPoolExecutor(len(uploads)) as pool:
        sent = [pool.submit(send, number) for number in range(len(uploads))]
        server.stop(signal.SIGQUIT)
        server.start()
        counts = [each.result() for each in sent]
    for upload, count in zip(uploads, counts, strict=True):
        assert records.get(upload.id).received.covers(ByteRange(0, count))


def test_a_process_paused_in_a_transaction_holds_up_nobody_for_long(
    records: UploadRecords, url: str
) -> None:
    upload, _ = records.add(new_upload())
    is_held = PROCESSES.Event()
    process = PROCESSES.Process(target=hold, args=(url, upload.id, is_held))
    process.start()
    try:
        assert is_held.wait(120)
        moved = records.move(upload.id, UploadState.CANCELLED, at(1))
        assert moved.state is UploadState.CANCELLED
    finally:
        process.kill()
        process.join()


def hold(url: str, upload_id: UploadId, is_held: Event) -> None:
    """Lock an upload's row, and stop there, as a process does that gets SIGSTOP."""
    with Database(url, synced=True).write() as connection:
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        statements.get(connection, upload_id, for_update=True)
        connection.execute(HELD_UP)
        is_held.set()
        signal.pause()


def test_a_snapshot_may_wait_for_other_work_between_two_pages(url: str) -> None:
    with closing(Database(url, synced=True)) as database:
        limit = text("SHOW idle_in_transaction_session_timeout")
        with database.snapshot() as connection:
            assert connection.scalar(limit) == "1h"
        with database.read() as connection:
            assert connection.scalar(limit) == "10s"


@pytest.mark.usefixtures("records")
def test_a_start_with_nothing_to_migrate_waits_for_nobody(url: str) -> None:
    with (
        psycopg.connect(url.replace("+psycopg", "")) as vanished,
        closing(Database(url, synced=True)) as database,
    ):
        vanished.execute("SELECT pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
        database.migrate()
        assert database.schema_state() is SchemaState.CURRENT


def test_a_migration_whose_process_vanished_ends_by_itself(url: str) -> None:
    kind = PostgresqlServer(make_url(url))
    with closing_engine(kind) as engine, engine.begin() as connection:
        kind.lock_for_migration(connection)
        limits = [connection.scalar(text(f"SHOW {name}")) for name in SESSION]
    assert limits == ["0", "0", "1min", "2s"]


@contextmanager
def closing_engine(kind: PostgresqlServer) -> Iterator[Engine]:
    """Its connections are closed at the end."""
    engine = kind.engine(1)
    try:
        yield engine
    finally:
        engine.dispose()


def test_processes_that_start_together_migrate_once(server: Postgresql) -> None:
    url = server.create("new")
    together = PROCESSES.Barrier(4)
    processes = [PROCESSES.Process(target=migrate, args=(url, together)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert server.ask("SELECT count(*) FROM projects", database="new") == "1"


def migrate(url: str, together: Barrier) -> None:
    with closing(Database(url, synced=True)) as database:
        together.wait()
        database.migrate()


def test_ranges_recorded_at_the_same_time_are_all_kept(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload(length=800))

    def send(thread: int) -> None:
        known = upload
        for number in range(100):
            start = number * 8 + thread
            known = records.add_received(known, ByteRange(start, start + 1), at(number))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(send, range(8)))
    found = records.get(upload.id)
    assert found == replace(
        found, received=RangeSet.of([ByteRange(0, 800)]), state=UploadState.VERIFYING
    )


def test_a_transaction_that_the_server_cannot_serialize_is_to_be_repeated(
    records: UploadRecords,
) -> None:
    upload, _ = records.add(new_upload())

    def lock_what_has_changed_since() -> None:
        with records._database.snapshot() as connection:
            known = statements.get(connection, upload.id)
            records.add_received(known, ByteRange(0, 50), at(1))
            statements.get(connection, upload.id, for_update=True)

    with pytest.raises(ServerBusy) as refused:
        lock_what_has_changed_since()
    assert "could not serialize" in driver_message(refused.value)
    assert records.add_received(upload, ByteRange(50, 100), at(2)).received.total == 100


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (psycopg.errors.DiskFull, NoRoom),
        (psycopg.errors.TooManyConnections, ServerBusy),
        (psycopg.errors.DeadlockDetected, ServerBusy),
        (psycopg.errors.SerializationFailure, ServerBusy),
        (psycopg.errors.LockNotAvailable, ServerBusy),
        (psycopg.errors.QueryCanceled, ServerBusy),
        (psycopg.errors.AdminShutdown, ServerBusy),
        (psycopg.errors.CannotConnectNow, ServerBusy),
        (psycopg.errors.ReadOnlySqlTransaction, ServerBusy),
        (psycopg.errors.IdleInTransactionSessionTimeout, ServerBusy),
        (psycopg.OperationalError, ServerBusy),
        (psycopg.errors.IoError, StorageFailed),
        (psycopg.errors.DataCorrupted, StorageFailed),
        (psycopg.errors.InvalidPassword, StorageFailed),
        (psycopg.errors.InvalidCatalogName, StorageFailed),
        (psycopg.errors.InsufficientPrivilege, StorageFailed),
        (psycopg.errors.UniqueViolation, type(None)),
        (psycopg.errors.SyntaxError, type(None)),
    ],
)
def test_each_sqlstate_has_its_error(error: type[psycopg.Error], expected: type) -> None:
    kind = OperationalError if issubclass(error, psycopg.OperationalError) else ProgrammingError
    assert type(as_upload_error(kind("SELECT", {}, error("what happened")))) is expected


@pytest.mark.parametrize("owner", ["a\x00b", "x" * 100])
def test_what_a_client_cannot_have_sent_in_earnest_is_refused(
    records: UploadRecords, owner: str
) -> None:
    with pytest.raises(InvalidRequest):
        records.add(new_upload(owner=owner))
    with pytest.raises(InvalidRequest), records._database.read() as connection:
        connection.execute(select(audit).where(audit.c.id < 2**40))


def test_broken_constraints_are_not_translated(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload())
    with pytest.raises(IntegrityError), records._database.write() as connection:
        statements.add(connection, upload)
    assert records.get(upload.id) == upload


@pytest.fixture
def pooled_url(server: Postgresql, url: str) -> Iterator[str]:
    """The same database, through PgBouncer in transaction mode."""
    with pgbouncer(server) as pooler:
        yield pooler.pooled(url)


@pytest.fixture
def with_limits(server: Postgresql) -> Iterator[None]:
    set_limits(server)
    yield
    server.ask("ALTER ROLE sluice RESET ALL")


@pytest.mark.usefixtures("with_limits")
def test_clients_of_a_pooler_run_their_own_statements(pooled_url: str) -> None:
    """Statements that psycopg prepares have the same names in each of its connections."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(closing(Database(pooled_url, synced=True))) for _ in range(2)]
        nodes[0].migrate()

        def send(thread: int) -> Upload:
            records = UploadRecords(nodes[thread % 2])
            upload, _ = records.add(new_upload(length=60))
            for start in range(0, 60, 2):
                records.find(upload.owner, f"{start}")
                upload = records.add_received(upload, ByteRange(start, start + 2), at(start))
                assert records.get(upload.id) == upload
            return upload

        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(send, range(8)))
        assert {upload.state for upload in done} == {UploadState.VERIFYING}


@pytest.mark.usefixtures("with_limits")
@pytest.mark.parametrize("name", ["url", "pooled_url"])
def test_only_a_commit_that_need_not_be_durable_does_not_wait_for_the_disk(
    name: str, request: pytest.FixtureRequest
) -> None:
    with closing(Database(request.getfixturevalue(name), synced=True, connections=1)) as database:

        def setting(*, is_durable: bool) -> str:
            with database.write(is_durable=is_durable) as connection:
                return str(connection.scalar(text("SHOW synchronous_commit")))

        found = [setting(is_durable=is_durable) for is_durable in (True, False, True)]
    assert found == ["on", "off", "on"]


def test_a_pooler_that_drops_the_limits_of_sessions_is_refused_at_the_start(
    pooled_url: str,
) -> None:
    with (
        closing(Database(pooled_url, synced=True)) as database,
        pytest.raises(StorageFailed, match=r"lock_timeout.*ALTER ROLE"),
    ):
        database.migrate()


def test_without_a_pooler_statements_are_prepared(url: str) -> None:
    with closing(Database(url, synced=True)) as database, database.read() as connection:
        driver: Any = connection.connection.driver_connection
        assert driver.prepare_threshold == 5

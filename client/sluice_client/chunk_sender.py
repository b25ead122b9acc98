"""Sends the missing ranges of one upload, in chunks, over several connections."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from sluice_client.chunk_sums import ChunkSums
from sluice_client.connections import FIRST
from sluice_client.crew import Crew
from sluice_client.direct_cells import BucketFailed, DirectCells, NotDirect
from sluice_client.errors import ConnectionFailed, Refused, SluiceError
from sluice_client.hashing import BackgroundHash, FileHash, Kind, hash_of
from sluice_client.local_file import FileSlice, LocalFile
from sluice_client.pace import Pace
from sluice_client.play_order import needed_first, next_missing
from sluice_client.progress import Meter
from sluice_client.retry import Patience
from sluice_client.spans import Chunk, Span, Spans, missing_cells
from sluice_client.transport import Transport, json_object

LAST_SECONDS = 1.0
"""The bytes of the last second go out on several connections, even if fewer fill the line: those
few would mostly wait for answers to ever smaller chunks."""


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file being sent: its descriptor, and the checksums computed meanwhile.

    `hash` is that of the whole file, which is read for it only if the `sums` do not cover it.
    """

    file: LocalFile
    descriptor: int
    hash: BackgroundHash
    sums: ChunkSums


@dataclass(slots=True)
class _Sending:
    """A chunk on its way; `sent` bytes of it have left."""

    chunk: Chunk
    sent: int = 0

    @property
    def is_sent(self) -> bool:
        """Whether only the answer is waited for."""
        return self.sent == self.chunk.span.length


class ChunkSender:
    """One pass over the missing ranges. A chunk that fails becomes a missing range again.

    Of a film, those go first without which none of it can be played.
    """

    def __init__(
        self,
        transport: Transport,
        opened: OpenedFile,
        upload_id: str,
        *,
        pace: Pace,
        meter: Meter,
        direct: DirectCells,
    ) -> None:
        self.completed: dict[str, Any] | None = None
        """The server's document of the upload, once an answer says that it is complete."""
        self._direct = direct
        self._cell_bytes: int | None = None
        self._transport = transport
        self._opened = opened
        self._upload_id = upload_id
        self._pace = pace
        self._meter = meter
        self._missing = Spans()
        self._is_summed = False
        self._first: list[Span] = []
        self._in_flight = 0
        self._answering = 0
        self._changed = threading.Condition()
        self._patience: Patience = transport.patience()
        self._patience.on_wait = meter.waiting
        self._crew = Crew(1, self._work, transport.stop)

    def send(self, missing: Spans, *, cell_bytes: int | None = None) -> None:
        """Return once the server has acknowledged every chunk; raises any `SluiceError`.

        With `cell_bytes`, missing cells of that size go straight to the bucket.
        """
        if self._opened.file.size == 0:
            chunk = Chunk(0, self._pace.chunk_bytes, Span(0, 0))
            self._transport.patiently(lambda: self._post(chunk, b""), self._patience)
            return
        self._missing, self._cell_bytes = missing, cell_bytes
        is_new = missing.total == self._opened.file.size and not cell_bytes
        self._is_summed = is_new and self._opened.hash.kind is Kind.CRC32C
        self._first = needed_first(self._read_at, self._opened.file.size)
        self._crew.run()

    def _notice_room(self) -> None:
        """Wake a waiting thread if there may be more connections by now."""
        if self._missing and self._may_begin():
            with self._changed:
                self._changed.notify()

    def _read_at(self, position: int, count: int) -> bytes:
        return os.pread(self._opened.descriptor, count, position)

    def _work(self) -> None:
        failures = 0
        while (chunk := self._take()) is not None:
            try:
                sent_until = self._send(chunk)
                failures = 0
            except SluiceError as error:
                failures += 1
                self._finish(chunk, sent_until=chunk.span.start)
                if not self._is_cured_by_other_chunks(error, chunk):
                    self._patience.wait_after(error, failures)
            else:
                self._finish(chunk, sent_until=sent_until)

    def _take(self) -> Chunk | None:
        """The next chunk; waits while all are in flight, as one of them may still fail."""
        with self._changed:
            while not self._crew.is_over:
                if not self._missing and self._in_flight == 0:
                    return None
                if self._missing and self._may_begin():
                    return self._cut()
                self._changed.wait(0.5)
        return None

    def _may_begin(self) -> bool:
        """Whether there is a connection to send on, besides those that only wait for an answer."""
        most = self._parallel
        return self._in_flight - min(self._answering, most) < most

    @property
    def _parallel(self) -> int:
        """How many connections to send on: near the end, as many as can end together."""
        pace = self._pace
        is_near_end = self._missing.total <= LAST_SECONDS * FIRST * pace.bytes_per_second
        return pace.parallel_at_end if is_near_end else pace.parallel

    def _cut(self) -> Chunk:
        chunk = self._next_cells() or self._next_chunk()
        self._missing.remove(chunk.span.start, chunk.span.end)
        self._in_flight += 1
        self._crew.grow_to(min(self._in_flight + 1, self._transport.options.parallel))
        if not self._is_summed:
            self._opened.hash.allow(self._all_cut_before)
        return chunk

    def _next_cells(self) -> Chunk | None:
        if not self._cell_bytes or not self._direct.is_usable:
            return None
        # Near the end of the file, few enough that no connection is left with nothing to send.
        share = -(-self._missing.total // (2 * self._parallel * self._cell_bytes))
        return missing_cells(
            *(self._missing, self._first),
            cell_bytes=self._cell_bytes,
            length=self._opened.file.size,
            at_most=min(self._direct.cells_at_once, share),
            may_send=lambda start: self._direct.may_send(self._upload_id, start),
        )

    def _next_chunk(self) -> Chunk:
        position, gap = next_missing(self._missing, self._first)
        # Near the end, small enough that no connection is left with a long one.
        share = self._missing.total // (2 * self._parallel)
        return self._pace.ladder.chunk(
            *(position, gap),
            at_most=min(self._pace.chunk_bytes, max(share, self._pace.shortest)),
            length=self._opened.file.size,
        )

    @property
    def _all_cut_before(self) -> int:
        """The first byte that has not been taken yet."""
        return next((gap.start for gap in self._missing), self._opened.file.size)

    def _finish(self, chunk: Chunk, *, sent_until: int) -> None:
        with self._changed:
            self._in_flight -= 1
            self._missing.add(sent_until, chunk.span.end)
            self._changed.notify_all()

    def _send(self, chunk: Chunk) -> int:
        """Return where the bytes end that the server has; raises any `SluiceError`."""
        self._opened.file.check_unchanged()
        sending = _Sending(chunk)
        began = time.monotonic()
        try:
            end = self._deliver(chunk, lambda span: self._body(span, sending))
        except SluiceError as error:
            self._meter.moved(-sending.sent)
            self._learn(error, chunk, sending.sent)
            raise
        finally:
            if sending.is_sent:
                with self._changed:
                    self._answering -= 1
        of_one_cell = min(1, chunk.size / chunk.span.length)
        seconds, length = (time.monotonic() - began) * of_one_cell, end - chunk.span.start
        self._meter.moved(min(length - sending.sent, 0))
        self._pace.sent(length, seconds=seconds, size=chunk.size)
        self._patience.progressed()
        self._transport.has_kept_bytes = True
        return end

    def _body(self, span: Span, sending: _Sending) -> FileSlice:
        def count(block: int) -> None:
            sending.sent += block
            self._meter.moved(block)
            if sending.is_sent:
                with self._changed:
                    self._answering += 1
                    self._changed.notify()
            else:
                self._notice_room()

        descriptor = self._opened.descriptor
        return FileSlice(descriptor, span, is_over=lambda: self._crew.is_over, on_sent=count)

    def _deliver(self, chunk: Chunk, body: Callable[[Span], FileSlice]) -> int:
        if chunk.is_direct:
            descriptor = self._opened.descriptor
            return self._direct.send(self._upload_id, descriptor, cells=chunk.cells, body=body)
        self._post(chunk, body(chunk.span))
        return chunk.span.end

    def _post(self, chunk: Chunk, body: FileSlice | bytes) -> None:
        total = self._opened.file.size
        query = urlencode(
            {
                "dzuuid": self._upload_id,
                "dzchunkindex": chunk.index,
                "dztotalfilesize": total,
                "dzchunksize": chunk.size,
                "dztotalchunkcount": max(1, -(-total // chunk.size)),
                "dzchunkbyteoffset": chunk.span.start,
            }
        )
        checksum = self._checksum_of(chunk.span)
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Digest": checksum.digest_field(),
        }
        response = self._transport.request("POST", f"/upload?{query}", data=body, headers=headers)
        answer = json_object(response)
        self._opened.sums.add(chunk.span, checksum.crc32c)
        if answer.get("complete"):
            self.completed = answer

    def _checksum_of(self, span: Span) -> FileHash:
        """Reads the bytes, which are then sent from the page cache."""
        kind = self._opened.hash.kind
        return hash_of(self._opened.descriptor, span.start, span.end, kind)

    def _learn(self, error: SluiceError, chunk: Chunk, sent: int) -> None:
        if isinstance(error, NotDirect):
            self._cell_bytes = None
        if chunk.is_direct:
            return
        if isinstance(error, Refused) and error.is_busy:
            self._pace.was_refused_for_now()
        elif isinstance(error, ConnectionFailed) and sent > 0:
            self._pace.failed(chunk.size)
        elif isinstance(error, Refused) and (error.is_body_too_large or error.status == 408):
            self._pace.failed(chunk.size, is_too_large=error.is_body_too_large)

    def _is_cured_by_other_chunks(self, error: SluiceError, chunk: Chunk) -> bool:
        return isinstance(error, BucketFailed) or (
            isinstance(error, Refused)
            and error.is_body_too_large
            and self._pace.can_shrink_below(chunk.size)
        )

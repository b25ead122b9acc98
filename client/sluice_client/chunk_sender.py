"""Sends the missing ranges of one upload, in chunks, over several connections."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from sluice_client.chunk_sums import ChunkSums
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
from sluice_client.transport import AbortHandle, Transport, json_object

LAST_SECONDS = 1.0
"""The bytes of the last second go out on several connections, even if fewer fill the line: those
few would mostly wait for answers to ever smaller chunks."""

LONGEST_REPEATED_BYTES = 1024 * 1024
"""Two requests with the same longer chunk would end each other on the server."""

MOST_REPEATED = 0.1
"""Of a file: what may be sent twice, so that the end of it need not wait for a slow connection."""

LATE_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file being sent: its descriptor, and the checksums computed while it is read.

    `hash` is that of the whole file, which is read for it only if the `sums` do not cover it.
    """

    file: LocalFile
    descriptor: int
    hash: BackgroundHash
    sums: ChunkSums


@dataclass(slots=True, eq=False)
class _Sending:
    """A chunk on its way; `sent` bytes of it have left.

    Its `twin` is another request with the same chunk. Once that is acknowledged, this one
    `is_spare`, and ends as soon as it can: at once, unless it is still connecting. A repetition
    does not count as progress while it runs.
    """

    chunk: Chunk
    twin: _Sending | None = None
    is_repetition: bool = False
    is_spare: bool = False
    sent: int = 0
    began: float = field(default_factory=time.monotonic)
    handle: AbortHandle = field(default_factory=AbortHandle)
    thread: threading.Thread = field(default_factory=threading.current_thread)

    @property
    def counted(self) -> int:
        """Bytes of it that count as progress."""
        return 0 if self.is_repetition else self.sent

    @property
    def is_sent(self) -> bool:
        """Whether only the answer is waited for."""
        return self.sent == self.chunk.span.length

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self.began

    @property
    def may_be_repeated(self) -> bool:
        """Once, if it is short enough, and on its way to the server and not to the bucket."""
        is_short = self.chunk.span.length <= LONGEST_REPEATED_BYTES
        return is_short and self.twin is None and not self.chunk.is_direct


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
        self._sendings: list[_Sending] = []
        self._repeated_bytes = 0
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

    def _read_at(self, position: int, count: int) -> bytes:
        return os.pread(self._opened.descriptor, count, position)

    def _work(self) -> None:
        failures = 0
        while (sending := self._take()) is not None:
            chunk = sending.chunk
            try:
                sent_until = self._send(sending)
            except SluiceError as error:
                if not sending.is_spare:
                    self._learn(error, chunk, sending.sent)
                self._finish(sending, sent_until=chunk.span.start)
                if sending.is_spare:
                    return
                failures += 1
                if not self._is_cured_by_other_chunks(error, chunk):
                    self._patience.wait_after(error, failures)
            else:
                self._finish(sending, sent_until=sent_until)
                if sending.is_spare:
                    return
                failures = 0

    def _take(self) -> _Sending | None:
        """The next chunk; waits while all are in flight, as one of them may still fail.

        While waiting, it sends slow chunks a second time.
        """
        with self._changed:
            while not self._crew.is_over:
                if not self._missing and not self._sendings:
                    return None
                if self._may_begin():
                    sending = _Sending(self._cut()) if self._missing else self._repetition()
                    if sending is not None:
                        self._sendings.append(sending)
                        most = self._transport.options.parallel
                        self._crew.grow_to(min(len(self._sendings) + 1, most))
                        return sending
                self._changed.wait(0.5 if self._missing else LATE_LOOK_SECONDS)
        return None

    def _repetition(self) -> _Sending | None:
        """A second request with the chunk that is on its way for longest, if that is late."""
        if self._transport.options.limit_rate:
            return None
        most = self._opened.file.size * MOST_REPEATED - self._repeated_bytes
        late = [
            each
            for each in self._sendings
            if each.may_be_repeated
            and each.chunk.span.length <= most
            and self._pace.is_late(each.chunk.span.length, each.seconds)
        ]
        if not late:
            return None
        slowest = max(late, key=lambda each: each.seconds)
        self._repeated_bytes += slowest.chunk.span.length
        slowest.twin = _Sending(slowest.chunk, twin=slowest, is_repetition=True)
        return slowest.twin

    def _may_begin(self) -> bool:
        """Whether there is a connection to send on, besides those that only wait for an answer."""
        most = self._parallel
        answering = sum(each.is_sent for each in self._sendings)
        return len(self._sendings) - min(answering, most) < most

    @property
    def _parallel(self) -> int:
        """How many connections to send on: near the end, as many as can end together."""
        pace = self._pace
        at_end = pace.parallel_at_end
        is_near_end = self._missing.total <= LAST_SECONDS * at_end * pace.bytes_per_second
        return at_end if is_near_end else pace.parallel

    def _cut(self) -> Chunk:
        chunk = self._next_cells() or self._next_chunk()
        self._missing.remove(chunk.span.start, chunk.span.end)
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

    def _finish(self, sending: _Sending, *, sent_until: int) -> None:
        """The server has the chunk up to there; the rest is missing unless a twin sends it."""
        span, twin = sending.chunk.span, sending.twin
        gained = sent_until - span.start - sending.counted
        if not sending.is_repetition:
            gained = min(gained, 0)
        with self._changed:
            if sending.is_spare:
                return
            self._sendings.remove(sending)
            if twin is None or twin not in self._sendings:
                self._missing.add(sent_until, span.end)
            elif sent_until == span.end:
                self._leave(twin)
                gained -= twin.counted
            self._changed.notify_all()
        self._meter.moved(gained)

    def _leave(self, spare: _Sending) -> None:
        """End a request that is not needed any more, without waiting for its end."""
        spare.is_spare = True
        self._sendings.remove(spare)
        self._crew.abandon(spare.thread)
        spare.handle.abort()

    def _send(self, sending: _Sending) -> int:
        """Return where the bytes end that the server has; raises any `SluiceError`."""
        self._opened.file.check_unchanged()
        chunk = sending.chunk
        end = self._deliver(sending)
        of_one_cell = min(1, chunk.size / chunk.span.length)
        seconds, length = sending.seconds * of_one_cell, end - chunk.span.start
        self._pace.sent(length, seconds=seconds, size=chunk.size)
        self._patience.progressed()
        self._transport.has_kept_bytes = True
        return end

    def _body(self, span: Span, sending: _Sending) -> FileSlice:
        def count(block: int) -> None:
            with self._changed:
                if sending.is_spare:
                    return
                sending.sent += block
                if sending.is_sent or (self._missing and self._may_begin()):
                    self._changed.notify()
            if not sending.is_repetition:
                self._meter.moved(block)

        def is_over() -> bool:
            return sending.is_spare or self._crew.is_over

        return FileSlice(self._opened.descriptor, span, is_over=is_over, on_sent=count)

    def _deliver(self, sending: _Sending) -> int:
        chunk = sending.chunk
        if chunk.is_direct:
            return self._direct.send(
                self._upload_id,
                self._opened.descriptor,
                cells=chunk.cells,
                body=lambda span: self._body(span, sending),
            )
        self._post(chunk, self._body(chunk.span, sending), sending.handle)
        return chunk.span.end

    def _post(
        self, chunk: Chunk, body: FileSlice | bytes, handle: AbortHandle | None = None
    ) -> None:
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
        response = self._transport.request(
            "POST", f"/upload?{query}", data=body, headers=headers, handle=handle
        )
        answer = json_object(response)
        if checksum.crc32c is not None:
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

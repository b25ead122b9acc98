"""Makes one object of a file's pieces: one node at a time, and while the file still arrives.

The holder of the file's lease (`lease.py`) copies pieces into the parts of a multipart upload
(`parts.py`), from the first byte on, and records each part. When the lease of a killed node ends,
another one goes on after those parts. If the store's parts are not the recorded ones, as when a
node that was paused has replaced one, a new multipart upload is begun.
"""

from __future__ import annotations

import logging
import time

from app.core.errors import ServerBusy, StorageFailed, UploadError
from app.core.pieces import PIECE_BYTES, Multipart, StoredFile, is_whole
from app.core.ranges import ByteRange
from app.ingest.slots import without_slot
from app.storage.base import BytesLost
from app.storage.s3.caller import MultipartGone, PartsDiffer
from app.storage.s3.catalog import DIRECT, FILES, LeaseLost
from app.storage.s3.lease import LEASE_SECONDS, leased
from app.storage.s3.parts import PARTS_AT_ONCE, DaemonThreads, PartMaker
from app.storage.s3.pieces import PieceStore, new_name

WAIT_SECONDS = LEASE_SECONDS + 5
"""How long to wait for another node that makes the object: long enough for its lease to end."""

COMPLETING_SECONDS = 600.0
"""Time limit for completing an object of 10,000 parts: some stores copy the bytes, 1 GB in 6 s."""

COMPLETION_TRIES = 3

EARLY_BYTES = 8 * PIECE_BYTES
"""How often, in bytes that have arrived, parts are made of an unfinished file."""

MOST_EARLY_PARTS = 64
"""Parts made at once of an unfinished file, so that others get their turn."""

_POLL_SECONDS = 0.1

log = logging.getLogger(__name__)


class Assembly:
    """Makes objects of pieces."""

    def __init__(self, pieces: PieceStore) -> None:
        self._pieces = pieces
        self._catalog = pieces.catalog
        self._bucket = pieces.bucket
        self._making = DaemonThreads(PARTS_AT_ONCE)
        self._early, self._making_early = DaemonThreads(1), DaemonThreads(PARTS_AT_ONCE)
        self._are_early = set[str]()

    def publish(self, key: str, length: int) -> None:
        """Make the file one object of `length` bytes, and publish it. Repeatable.

        Raises `BytesLost` if the file does not have `length` bytes, and `ServerBusy` if another
        node takes too long for it.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        while (file := self._catalog.require(key)).name is None:
            try:
                if self._finish_short(file, length) or self._finish_leased(file, length):
                    continue
            except BytesLost:
                if self._catalog.require(key).name is None:
                    raise
                continue  # Another node has just finished it, so its pieces are gone.
            if time.monotonic() > deadline:
                raise ServerBusy("Another server still makes one object of the file.")
            with without_slot():
                time.sleep(_POLL_SECONDS)
        if file.length != length:
            raise BytesLost(key)
        if not file.is_published and not self._catalog.publish([key]):
            raise BytesLost(key)  # It has just been removed.

    def _finish_short(self, file: StoredFile, length: int) -> bool:
        """Whether the file is one object already, as it has no bytes or a piece with all of them.

        A client could replace a piece that it has put itself.
        """
        whole = ByteRange(0, length)
        if not length:
            name = self._pieces.put(file.key, whole, b"").name
        elif length > PIECE_BYTES:
            return False
        else:
            taken, _ = self._pieces.taken(file.key, whole)
            if len(taken) != 1 or taken[0][1] != whole or not is_whole(taken[0]):
                return False
            name = taken[0][0].name
            if name.startswith(DIRECT):
                return False
        return self._catalog.finish(file.key, name, length)

    def _finish_leased(self, file: StoredFile, length: int) -> bool:
        """Finish the file; False if another node, or another thread, has or gets its lease."""
        with leased(self._catalog, file.key) as token:
            if token is None:
                return False
            try:
                self._finish(file.key, length, token)
            except LeaseLost:
                return False
        return True

    def _finish(self, key: str, length: int, token: str) -> None:
        for _ in range(COMPLETION_TRIES):
            file = self._catalog.require(key)
            if file.name is not None:
                return
            multipart = file.multipart or self._begin(key, token)
            try:
                self._complete(key, length, token, multipart)
            except (PartsDiffer, MultipartGone):
                log.warning("the parts of a file are made again", extra={"upload_id": key})
                self._catalog.forget_multipart(key, token)
                continue
            if not self._catalog.finish(key, multipart.name, length, token):
                raise LeaseLost
            return
        raise StorageFailed("The object store does not have the parts that it has confirmed.")

    def _complete(self, key: str, length: int, token: str, multipart: Multipart) -> None:
        """Make the missing parts and complete the object, unless a killed node has done so."""
        PartMaker(self._pieces, key, token, multipart, length, self._making).make()
        parts = self._catalog.parts(key)
        if not parts or parts[-1].end != length:
            if self._pieces.has_all(key, length):
                raise LeaseLost  # Another node has begun with other parts.
            raise BytesLost(key)
        wanted = [(part.number, part.checksums) for part in parts]
        with without_slot():
            self._bucket.within(COMPLETING_SECONDS).complete_multipart(
                multipart.name, multipart.id, wanted, length=length
            )

    def _begin(self, key: str, token: str) -> Multipart:
        def announced_name() -> str:
            """A multipart upload with this name is garbage unless it becomes the file's."""
            name = new_name(FILES, key)
            self._catalog.announce_multipart(name)
            return name

        own = Multipart(*self._bucket.create_named_multipart(announced_name))
        self._catalog.begin_multipart(key, token, own)
        return own

    # ---- unfinished files

    def note(self, file: StoredFile, span: ByteRange) -> None:
        """Make parts of an unfinished file now and then, as its bytes arrive.

        A process that ends does not wait for them. Its lease then ends by itself.
        """
        is_long = file.length is not None and file.length > EARLY_BYTES
        is_due = is_long and span.start // EARLY_BYTES != span.end // EARLY_BYTES
        if is_due and file.key not in self._are_early:
            self._are_early.add(file.key)
            self._early.submit(self._make_early_parts, file.key)

    def _make_early_parts(self, key: str) -> None:
        self._are_early.discard(key)
        try:
            with leased(self._catalog, key) as token:
                if token is None:
                    return
                file = self._catalog.require_open(key)
                multipart, length = file.multipart or self._begin(key, token), file.length or 0
                PartMaker(self._pieces, key, token, multipart, length, self._making_early).make(
                    MOST_EARLY_PARTS
                )
        except (LeaseLost, MultipartGone, BytesLost):
            return  # Another request has finished or ended the upload.
        except UploadError as error:
            log.warning("parts are made later: %s", error, extra={"upload_id": key})
        except Exception:  # Nothing reads this future, so nothing else would log it.
            log.exception("parts are made later", extra={"upload_id": key})

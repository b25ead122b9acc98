"""Sources of a chunk's bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from app.core import errors
from app.ingest.checksum import ALGORITHMS, Crc32c, new_checksum
from app.ingest.stages import Stage, note_arrival

IDLE_TICK_SECONDS = 0.5
"""A source that waits for the client returns at least this often, so that its reader can check time
limits and takeover requests."""


SOURCE_KEY = "sluice.body"
"""Key of the request body's source in the WSGI environment, once it is open."""

FEW_BYTES = 8 * 1024
"""A read of at most this size returns what has arrived. A larger one waits for all of it, a tick at
most, so as not to be woken for every packet."""


Watch = Callable[[], None]
"""Called after every block and every tick without bytes; raises to end the wait."""


def no_watch() -> None:
    """A watch that does nothing, for bytes that no other request can take over."""


class Readable(Protocol):
    """The file-object interface that `StreamSource` needs."""

    def read(self, size: int, /) -> bytes | None:
        """At most `size` bytes, none at the end."""
        ...


class BodySource(Protocol):
    """A stream of bytes.

    The reader calls `readinto` until it has taken `remaining` bytes (or, if their number is not
    known, until it returns 0), then `finish` once, and only then reports that the bytes have
    arrived.
    """

    @property
    def remaining(self) -> int | None:
        """Bytes still to come, 0 once the end was read; None if unknown."""
        ...

    @property
    def is_verified_at_end(self) -> bool:
        """Whether `finish` may still find the bytes wrong, so that none may be kept before it."""
        ...

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill a part of `buffer`; bytes taken, 0 at the end, None after a tick without any.

        Raises `BodyTruncated` if the connection ends early, and `BodyStalled` if the transport
        itself gave up waiting.
        """
        ...

    def finish(self, watch: Watch = no_watch, /) -> None:
        """Check what follows the bytes, and their digest; raises `MalformedBody` or the like.

        `watch` is called after every tick of waiting for the client.
        """
        ...


class SpliceSource(ABC):
    """Capability of a source: it can move its bytes into a pipe.

    A base class, because isinstance() with a protocol takes 20 us.
    """

    @property
    @abstractmethod
    def can_splice(self) -> bool:
        """False while bytes in the program must be taken with `readinto` first."""
        ...

    @abstractmethod
    def wait(self, count: int) -> bool:
        """Whether bytes, or the end, have arrived; False after a tick without any.

        `count` is how many the caller still wants.
        """
        ...

    @abstractmethod
    def splice_into(self, pipe: int, count: int) -> int:
        """After `wait`: move at most `count` bytes into an empty pipe; 0 at the end.

        Raises as `readinto` does.
        """
        ...


class StreamSource:
    """A body read through a file object, such as `wsgi.input`, which may block.

    The fallback for servers, transports and encodings whose socket cannot be taken over. It waits
    as long as the transport does, without ticks. With `remaining` None the stream ends where its
    encoding says. `must_end` is for a stream that has both: anything beyond `remaining` is then a
    mismatch.
    """

    is_verified_at_end = False

    def __init__(self, stream: Readable, remaining: int | None, *, must_end: bool = False) -> None:
        self._stream = stream
        self._must_end = must_end or remaining is None
        self._remaining = remaining

    @property
    def remaining(self) -> int | None:
        """Bytes still to come, or None."""
        return self._remaining

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read at most what remains; translates the transport's errors."""
        wanted = len(buffer) if self._remaining is None else min(len(buffer), self._remaining)
        if wanted == 0:
            return 0
        data = read_from_stream(self._stream, wanted)
        note_arrival(len(data))
        buffer[: len(data)] = data
        if self._remaining is None:
            self._remaining = None if data else 0
        else:
            if not data and self._must_end:
                raise errors.ChunkMismatch(f"The body is {self._remaining} bytes too short.")
            if not data:
                raise errors.BodyTruncated(f"The body ended {self._remaining} bytes early.")
            self._remaining -= len(data)
        return len(data)

    def finish(self, _watch: Watch = no_watch, /) -> None:
        """Raise `ChunkMismatch` if the body continues after what was taken."""
        if self._must_end and read_from_stream(self._stream, 1):
            raise errors.ChunkMismatch("The body is longer than it should be.")


def read_from_stream(stream: Readable, size: int) -> bytes:
    """Read at most `size` bytes, none at the end; converts network errors to domain errors."""
    try:
        with Stage.RECEIVE:
            return stream.read(size) or b""
    except (TimeoutError, BlockingIOError) as error:
        raise errors.BodyStalled("The body stopped arriving.") from error
    except OSError as error:
        raise errors.BodyTruncated("The connection broke while the body arrived.") from error
    except Exception as error:
        # Servers raise exceptions of their own for a broken body (gunicorn: NoMoreData,
        # InvalidChunkSize); each of them is caused by the client's bytes.
        raise errors.MalformedBody(f"The body cannot be read: {type(error).__name__}.") from error


class WrappedSource:
    """Passes on what another source does; a subclass changes some of it."""

    def __init__(self, source: BodySource) -> None:
        self._source = source

    @property
    def remaining(self) -> int | None:
        """Bytes still to come, or None."""
        return self._source.remaining

    @property
    def is_verified_at_end(self) -> bool:
        """Same as the wrapped source."""
        return self._source.is_verified_at_end

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read on."""
        return self._source.readinto(buffer)

    def finish(self, watch: Watch = no_watch, /) -> None:
        """Finish the wrapped source."""
        self._source.finish(watch)


class AllOrNothing(WrappedSource):
    """A source that is recorded completely or not at all.

    For clients that would misread an offset inside a chunk as the end of the chunk.
    """

    is_verified_at_end = True


class HashingSource(WrappedSource):
    """A source that hashes its bytes as they pass."""

    is_verified_at_end = False

    def __init__(self, source: BodySource, algorithm: str = "sha256") -> None:
        super().__init__(source)
        self._algorithm = algorithm
        self._checksum = new_checksum(algorithm)

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read and hash."""
        count = self._source.readinto(buffer)
        if count:
            with Stage.HASH:
                self._checksum.update(buffer[:count])
        return count

    def hexdigest(self) -> str:
        """The digest of the bytes so far, in hexadecimal."""
        return self._checksum.digest().hex()


class DigestSource(HashingSource):
    """A source verified against a digest that the client sent."""

    is_verified_at_end = True

    def __init__(self, source: BodySource, algorithm: str, expected: bytes) -> None:
        super().__init__(source, algorithm)
        self._expected = expected
        # The server keeps a CRC32C for any algorithm the client sends: see `RangeSums`.
        self.crc32c = self._checksum if isinstance(self._checksum, Crc32c) else Crc32c()

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read and hash."""
        count = super().readinto(buffer)
        if count and self.crc32c is not self._checksum:
            self.crc32c.update(buffer[:count])
        return count

    def finish(self, watch: Watch = no_watch, /) -> None:
        """Raise `DigestMismatch` unless the bytes are those the client meant."""
        self._source.finish(watch)
        if self._checksum.digest() != self._expected:
            raise errors.DigestMismatch(
                f"The {self._algorithm} digest of the bytes does not match."
            )


class BufferedSource:
    """The bytes of another source, read to its end, verified, and held in memory."""

    is_verified_at_end = True
    """Recorded at once, together with their checksum."""

    def __init__(self, data: memoryview, verified: BodySource) -> None:
        self._data = data
        self.verified = verified

    @property
    def remaining(self) -> int | None:
        """Bytes not taken yet."""
        return len(self._data)

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Copy as many bytes as fit."""
        count = min(len(buffer), len(self._data))
        buffer[:count] = self._data[:count]
        self._data = self._data[count:]
        return count

    def finish(self, _watch: Watch = no_watch, /) -> None:
        """Does nothing: the source has been finished."""


def crc32c_of(source: BodySource) -> int | None:
    """The CRC32C of the bytes of a source that has been verified, read from its first byte on."""
    verified = source.verified if isinstance(source, BufferedSource) else source
    return verified.crc32c.value if isinstance(verified, DigestSource) else None


class TrailingDigestSource(WrappedSource):
    """A source verified against a digest that arrives after the bytes.

    The algorithm arrives after them too, so the bytes are hashed with all algorithms.
    """

    is_verified_at_end = True

    def __init__(self, source: BodySource, expected: Callable[[], tuple[str, bytes]]) -> None:
        super().__init__(source)
        self._expected = expected
        self._checksums = {algorithm: new_checksum(algorithm) for algorithm in ALGORITHMS}

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read and hash."""
        count = self._source.readinto(buffer)
        if count:
            for checksum in self._checksums.values():
                checksum.update(buffer[:count])
        return count

    def finish(self, watch: Watch = no_watch, /) -> None:
        """Raise `DigestMismatch` unless the bytes are those the client meant."""
        self._source.finish(watch)
        algorithm, expected = self._expected()
        if self._checksums[algorithm].digest() != expected:
            raise errors.DigestMismatch(f"The {algorithm} digest of the bytes does not match.")

"""The digest of the file, for clients that want to be told it (RFC 9530, section 4)."""

from __future__ import annotations

from app.domain.upload import Upload
from app.http.digests import ALGORITHMS
from app.ingest.source import BodySource, HashingSource
from app.protocols.ietf.headers import parse_wanted_digests, write_repr_digest

SHA256 = "sha-256"
"""What every published file has, sooner or later, as RFC 9530's registry calls it."""


class WantedDigest:
    """Sums a file up that arrives in one request; of any other it knows what the server knows."""

    def __init__(self, header: str) -> None:
        self._names = parse_wanted_digests(header)
        self._summed: HashingSource | None = None

    def watch(self, source: BodySource) -> BodySource:
        """`source`, which brings the whole file, summed up if that is wanted."""
        if not self._names:
            return source
        self._summed = HashingSource(source, ALGORITHMS[self._names[0]])
        return self._summed

    def headers(self, upload: Upload) -> dict[str, str]:
        """`Repr-Digest`, where it is wanted and known."""
        if self._summed is not None:
            digest = bytes.fromhex(self._summed.hexdigest())
            return {"Repr-Digest": write_repr_digest(self._names[0], digest)}
        if SHA256 in self._names and upload.sha256 is not None:
            digest = bytes.fromhex(upload.sha256)
            return {"Repr-Digest": write_repr_digest(SHA256, digest)}
        return {}
